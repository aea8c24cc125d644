package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// processes is over how many processes the writers are spread.
const processes = 2

// Ways of the writers that are compared.
const (
	writeTurns   = "turns, each under the lease"
	writeScript  = "all in one turn, no lease: the append script alone"
	writeRewrite = "rewriting all: GET, parse, append 2, SET"
)

// job is what a process of writers is asked to do: turns × 2 messages for each.
type job struct {
	URL     string `json:"url"`
	Chat    string `json:"chat"`
	Way     string `json:"way"`
	Turn    int64  `json:"turn"`  // for the way that takes none
	First   int    `json:"first"` // number of the first writer
	Writers int    `json:"writers"`
	Turns   int    `json:"turns"`
}

// outcome is what a process of writers answers.
type outcome struct {
	Stale   int64 `json:"stale"`   // appends that another writer was ahead of
	Retried int64 `json:"retried"` // appends that were behind so often that the writer began again
}

// contend lets writers in two processes write into one chat at once.
func contend(ctx context.Context, client *redis.Client, name string, o Options) ([]Contention, error) {
	var rows []Contention
	for i, way := range []string{writeTurns, writeScript, writeRewrite} {
		o.Progress(fmt.Sprintf("%d writers in %d processes: %s", o.Writers, processes, way))
		chat, err := memory.ParseChat(name + ":writers-" + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		row, err := write(ctx, client, chat, way, o)
		if err != nil {
			return nil, fmt.Errorf("%d writers, %s: %w", o.Writers, way, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func write(ctx context.Context, client *redis.Client, chat memory.Chat, way string, o Options) (Contention, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	row := Contention{Way: way, Writers: o.Writers, Turns: o.Turns, Expected: o.Writers * o.Turns * 2}
	var started []*process
	defer func() {
		cancel() // ends processes that a failure left behind
		for _, p := range started {
			_ = p.cmd.Wait()
		}
	}()
	turn := time.Now().UnixMilli()
	for first := range processes {
		p, err := start(ctx, o.Writer, job{
			URL: o.URL, Chat: chat.String(), Way: way, Turn: turn,
			First: first, Writers: share(o.Writers, first), Turns: o.Turns,
		})
		if err != nil {
			return row, err
		}
		started = append(started, p)
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var reader sync.WaitGroup
	var readerErr error
	reader.Go(func() { readerErr = watch(reading, client, memory.ChatKey(chat).String(), &row) })

	began := time.Now()
	var failed error
	for _, p := range started {
		failed = errors.Join(failed, p.release())
	}
	for _, p := range started {
		failed = errors.Join(failed, p.outcome(&row))
	}
	row.Milliseconds = float64(time.Since(began).Microseconds()) / 1e3
	stop()
	reader.Wait()
	if err := errors.Join(failed, readerErr); err != nil {
		return row, err
	}
	value, err := client.Get(ctx, memory.ChatKey(chat).String()).Bytes()
	if err == nil {
		err = row.count(value)
	}
	return row, err
}

// share is how many of the writers a process gets.
func share(writers, process int) int { return (writers + processes - 1 - process) / processes }

// watch reads the value as often as it can until ctx ends.
func watch(ctx context.Context, client *redis.Client, key string, row *Contention) error {
	for ctx.Err() == nil {
		value, err := client.Get(ctx, key).Bytes()
		switch {
		case errors.Is(err, redis.Nil): // nobody has written yet
		case err != nil && ctx.Err() != nil:
		case err != nil:
			return fmt.Errorf("reading while others write: %w", err)
		default:
			row.Reads++
			if !json.Valid(value) {
				row.Invalid++
			}
		}
	}
	return nil
}

// count finds the messages that the writers sent.
func (c *Contention) count(value []byte) error {
	var stored []struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return fmt.Errorf("what the writers left is no history: %w", err)
	}
	seen := map[string]bool{}
	for _, m := range stored {
		name, _, _ := strings.Cut(m.Content, " ")
		if seen[name] {
			c.Twice++
		}
		seen[name] = true
	}
	for w := range c.Writers {
		for t := range c.Turns {
			for seq := range 2 {
				if seen[label(w, t, seq)] {
					c.Kept++
				}
			}
		}
	}
	return nil
}

// process is one process of writers.
type process struct {
	cmd    *exec.Cmd
	in     *json.Encoder
	out    *json.Decoder
	stderr bytes.Buffer
	close  func() error // its standard input
}

// start starts a process and waits until it is connected.
func start(ctx context.Context, command func(context.Context) *exec.Cmd, j job) (*process, error) {
	p := &process{cmd: command(ctx)}
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out, p.close = json.NewEncoder(stdin), json.NewDecoder(stdout), stdin.Close
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a process of writers: %w", err)
	}
	var ready bool
	err = p.in.Encode(j)
	if err == nil {
		err = p.out.Decode(&ready)
	}
	if err != nil {
		return nil, p.fail(err)
	}
	return p, nil
}

// release lets the writers begin.
func (p *process) release() error { return p.in.Encode(true) }

// outcome waits until the writers are through.
func (p *process) outcome(row *Contention) error {
	var o outcome
	if err := p.out.Decode(&o); err != nil {
		return p.fail(err)
	}
	row.Stale += o.Stale
	row.Retried += o.Retried
	return nil
}

// fail ends the process and says what it said.
func (p *process) fail(err error) error {
	_ = p.close() // which it takes for the end
	err = errors.Join(err, p.cmd.Wait())
	return fmt.Errorf("a process of writers failed: %w: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
}
