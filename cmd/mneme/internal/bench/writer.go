package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// Write is the body of a process of writers: it reads a job, says true when it is
// connected, begins when it is told true, and answers with an outcome. The end of
// in ends it at any time.
func Write(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := orders.Decode(&j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	client, err := connect(j.URL)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("connecting to Redis: %w", err)
	}
	if err := answers.Encode(true); err != nil {
		return err
	}
	var begin bool
	if err := orders.Decode(&begin); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	go func() { // ends with in, at the latest with the process
		err := orders.Decode(&begin)
		cancel(fmt.Errorf("standard input ended: %w", err))
	}()

	store := redisstore.New(client, zerolog.Nop())
	group := &writers{job: j, chat: memory.MustChat(j.Chat), client: client, store: store, cache: cache.New(store, 64<<20)}
	if err := group.run(ctx); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return answers.Encode(outcome{Stale: store.Counts.Stale.Load(), Retried: group.retried.Load()})
}

// writers are those of one process: one cache, one pool of connections.
type writers struct {
	job
	chat    memory.Chat
	client  *redis.Client
	store   *redisstore.Store
	cache   *cache.Cache
	queue   sync.Mutex // who waits for the lease inside the process
	retried atomic.Int64
}

func (w *writers) run(ctx context.Context) error {
	errs := make([]error, w.Writers)
	var group sync.WaitGroup
	for i := range w.Writers {
		group.Go(func() {
			for t := 0; t < w.Turns && errs[i] == nil; t++ {
				errs[i] = w.write(ctx, w.First+i*processes, t)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// label begins a message's content, so that it is found again.
func label(writer, turn, seq int) string { return fmt.Sprintf("writer-%d-%d-%d", writer, turn, seq) }

func (w *writers) write(ctx context.Context, writer, turn int) error {
	pair := []memory.Message{message(2 * turn), message(2*turn + 1)}
	for seq := range pair {
		pair[seq].Content = label(writer, turn, seq) + " " + pair[seq].Content
	}
	run := fmt.Sprintf("W%dT%d", writer, turn)
	switch w.Way {
	case writeRewrite:
		key := memory.ChatKey(w.chat).String()
		return rewriteAppend(ctx, w.client, key, key, pair...)
	case writeScript:
		return w.append(ctx, run, w.Turn, pair)
	case writeTurns:
		return w.underLease(ctx, run, pair)
	}
	return fmt.Errorf("there is no way to write called %q", w.Way)
}

// underLease is one turn: queued inside the process, polling across processes.
func (w *writers) underLease(ctx context.Context, run string, pair []memory.Message) error {
	w.queue.Lock()
	defer w.queue.Unlock()
	token := rand.Text()
	for {
		taken, err := w.store.Take(ctx, w.chat, token, w.Chat, lease)
		var held *redisstore.HeldError
		if errors.As(err, &held) {
			if err := pause(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := w.append(ctx, run, taken.Number, pair); err != nil {
			return err
		}
		return w.store.Release(ctx, w.chat, token)
	}
}

// pause is between a half and one millisecond.
func pause(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond/2 + mathrand.N(time.Millisecond/2)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// append goes on until both messages are stored. An append that lost to others
// too often is refused, and its mark makes it safe to try again.
func (w *writers) append(ctx context.Context, run string, turn int64, pair []memory.Message) error {
	current, err := w.cache.Load(ctx, turn, memory.Empty(memory.ChatKey(w.chat)))
	if err != nil {
		return err
	}
	h := current[0]
	for seq, m := range pair {
		for {
			grown, err := w.cache.Append(ctx, h, memory.Mark{Run: run, Seq: int64(seq + 1), Turn: turn}, m.Encode())
			if err == nil {
				h = grown
				break
			}
			if !errors.Is(err, memory.ErrUnavailable) || ctx.Err() != nil {
				return err
			}
			w.retried.Add(1)
			if err := pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
