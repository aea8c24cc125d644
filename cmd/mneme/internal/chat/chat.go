// Package chat is a line-mode chat client. It sends lines to webmemory and prints the events of their runs.
package chat

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

const (
	maxMessage  = 1 << 20 // bytes, the limit of webmemory
	lastShown   = 6       // messages of the history that are printed at the start
	stopTimeout = 10 * time.Second
)

// Options configure a chat.
type Options struct {
	Chat  memory.Chat
	Agent memory.Agent // answers instead of the master, if not empty
	In    io.Reader    // one message per line; unused if ReadLine is set
	Out   io.Writer
	Style term.Style
	// Interactive prints prompts, the last messages and errors. Otherwise the first error ends the chat.
	Interactive bool
	Quiet       bool             // print answers only, no delegations
	Interrupts  <-chan os.Signal // the first one stops a run, the second one leaves
	ReadLine    func(prompt string) (string, error)
	Remember    func(message string) // adds a message to the line history; nil for none
}

// errLeave indicates that the user leaves the chat.
var errLeave = errors.New("leave")

// Run chats until the input ends, the user leaves or ctx ends. A goroutine may still wait for a line after that.
func Run(ctx context.Context, client *webapi.Client, o Options) error {
	t := &talk{Options: o, client: client, view: view{out: o.Out, style: o.Style, quiet: o.Quiet}}
	if t.ReadLine == nil {
		t.ReadLine = t.lines()
	}
	err := error(nil)
	if o.Interactive {
		err = t.greet(ctx)
	}
	for err == nil {
		var text string
		if text, err = t.read(ctx); err != nil || text == "" {
			continue
		}
		err = t.send(ctx, text)
		if err != nil && o.Interactive && !isExit(err) && ctx.Err() == nil {
			t.view.problem(err.Error())
			err = nil
		}
	}
	if isExit(err) {
		return nil
	}
	return err
}

func isExit(err error) bool { return errors.Is(err, errLeave) || errors.Is(err, context.Canceled) }

type talk struct {
	Options
	client *webapi.Client
	view   view
}

// lines returns a ReadLine over In.
func (t *talk) lines() func(prompt string) (string, error) {
	scanner := bufio.NewScanner(t.In)
	scanner.Buffer(make([]byte, 0, 4096), maxMessage+2) // with the line end
	return func(prompt string) (string, error) {
		if t.Interactive {
			fmt.Fprint(t.Out, prompt)
		}
		if scanner.Scan() {
			return scanner.Text(), nil
		}
		if errors.Is(scanner.Err(), bufio.ErrTooLong) {
			return "", fmt.Errorf("a line exceeds the maximum size of a message (%d bytes)", maxMessage)
		}
		return "", cmp.Or(scanner.Err(), io.EOF)
	}
}

// read returns the next message. On a terminal, a line that ends with a backslash continues on the next line.
func (t *talk) read(ctx context.Context) (string, error) {
	text, err := t.readLine(ctx, "> ")
	for err == nil && t.Interactive && strings.HasSuffix(text, `\`) {
		var next string
		next, err = t.readLine(ctx, "… ")
		text = strings.TrimSuffix(text, `\`) + "\n" + next
	}
	return strings.TrimSpace(text), err
}

// removedCommands maps the slash commands of 0.2 to their replacements.
var removedCommands = map[string]string{
	"/answer": "the question at the start of mneme chat, or the page", "/chats": "mneme memory ls",
	"/discuss": "mneme chat --agent discuss", "/ensemble": "mneme chat --agent ensemble", "/exit": "Ctrl-D",
	"/forget": "mneme memory rm", "/help": "mneme chat --help", "/memory": "mneme memory ls",
	"/new": "mneme chat --chat ID", "/quit": "Ctrl-D",
}

func (t *talk) readLine(ctx context.Context, prompt string) (string, error) {
	type line struct {
		text string
		err  error
	}
	next := make(chan line, 1)
	go func() { // ends with the line, or with the process
		text, err := t.ReadLine(prompt)
		next <- line{text, err}
	}()
	select {
	case l := <-next:
		if errors.Is(l.err, io.EOF) {
			return "", errLeave
		}
		return l.text, l.err
	case <-t.Interrupts:
		return "", errLeave
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (t *talk) send(ctx context.Context, text string) error {
	command, _, _ := strings.Cut(text, " ")
	if replacement := removedCommands[command]; replacement != "" {
		return fmt.Errorf("%s was removed: use %s", command, replacement)
	}
	if t.Remember != nil {
		t.Remember(text)
	}
	return t.watch(ctx, func(ctx context.Context) iter.Seq2[event.Event, error] {
		if t.Agent != "" {
			return t.client.Ask(ctx, t.Chat, t.Agent, text, rand.Text())
		}
		return t.client.Say(ctx, t.Chat, text, rand.Text())
	})
}

// greet prints the last messages and follows an unfinished run.
func (t *talk) greet(ctx context.Context) error {
	t.view.note(fmt.Sprintf("chat %s: Ctrl-C stops an answer, Ctrl-D leaves", t.Chat))
	info, err := t.client.Chat(ctx, t.Chat)
	if webapi.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	page, err := t.client.Page(ctx, memory.ChatKey(t.Chat), -lastShown, lastShown)
	if err != nil && !webapi.IsNotFound(err) {
		return err
	}
	messages, err := memory.Decode(page.Messages)
	if err != nil {
		return err
	}
	for _, m := range messages {
		t.view.message(m)
	}
	switch {
	case info.Waiting != nil:
		err = t.approve(ctx, &pending{run: info.Waiting.RunID, pending: info.Waiting.Pending})
	case info.Run != "":
		err = t.watch(ctx, func(ctx context.Context) iter.Seq2[event.Event, error] {
			return t.client.Follow(ctx, t.Chat, info.Run)
		})
	}
	if err != nil && !isExit(err) && ctx.Err() == nil {
		t.view.problem(err.Error())
		return nil
	}
	return err
}

// watch prints a run to its end. It asks for approvals in between.
func (t *talk) watch(ctx context.Context, start func(context.Context) iter.Seq2[event.Event, error]) error {
	if err := t.watchOne(ctx, start); err != nil {
		return err
	}
	return t.approve(ctx, t.view.pending)
}

type received struct {
	event event.Event
	err   error
}

// watchOne prints a run until it ends or waits for a person. The first Ctrl-C stops the run, the second one leaves. Its
// id arrives with the first event, so an earlier Ctrl-C stops the run then.
func (t *talk) watchOne(ctx context.Context, start func(context.Context) iter.Seq2[event.Event, error]) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	t.view.begin()
	feed := make(chan received)
	go func() { // ends with the events, which end with reading
		defer close(feed)
		for e, err := range start(reading) {
			select {
			case feed <- received{e, err}:
			case <-reading.Done():
				return
			}
		}
	}()
	run, interrupts := "", 0
	for {
		select {
		case r, ok := <-feed:
			if !ok {
				for len(t.Interrupts) > 0 { // they were for this run
					<-t.Interrupts
				}
				return t.view.end()
			}
			if r.err != nil {
				t.view.breakLine()
				return r.err
			}
			if run == "" && interrupts > 0 {
				t.stop(ctx, r.event.RunID)
			}
			run = r.event.RunID
			t.view.show(r.event)
		case <-t.Interrupts:
			if interrupts++; interrupts > 1 {
				t.view.breakLine()
				return errLeave
			}
			t.view.note("(stopping; Ctrl-C again leaves)")
			if run != "" {
				t.stop(ctx, run)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *talk) stop(ctx context.Context, run string) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := t.client.Stop(ctx, t.Chat, run); err != nil {
		t.view.problem("the run could not be stopped: " + err.Error())
	}
}

// pending is a run that waits for a person.
type pending struct {
	run     string
	seq     int64 // the number of its last event, or 0
	pending []event.Wait
}

// approve asks for a decision on each pending tool call and resumes the run, until the run ends.
func (t *talk) approve(ctx context.Context, p *pending) error {
	for p != nil {
		var answers []event.WaitAnswer
		for _, w := range p.pending {
			t.view.call(w)
			if w.Kind != event.Approval || !t.Interactive {
				return fmt.Errorf("the run is pending: answer it on the page or with POST %s; a new message denies the call",
					webapi.ResumePath(t.Chat, p.run))
			}
			line, err := t.readLine(ctx, "Allow this call? [y/N] ")
			if err != nil {
				return err
			}
			decision := event.Deny
			if yes := strings.ToLower(strings.TrimSpace(line)); yes == "y" || yes == "yes" {
				decision = event.Approve
			}
			answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: decision})
		}
		run, seq := p.run, p.seq
		err := t.watchOne(ctx, func(ctx context.Context) iter.Seq2[event.Event, error] {
			return t.client.Resume(ctx, t.Chat, run, seq, answers...)
		})
		if err != nil {
			return err
		}
		p = t.view.pending
	}
	return nil
}
