// Package chat is the terminal chat: it reads lines, posts them to webmemory and
// shows the events of their runs as they come.
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

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/panel"
	webapi "mneme/webmemory/api"
)

const (
	maxLine     = 1 << 20 // bytes of one message, webmemory's own bound
	recalled    = 6       // messages of the history shown at the start
	stopTimeout = 10 * time.Second
)

// Options say where a talk takes place.
type Options struct {
	Chat  memory.Chat
	In    io.Reader // one message per line, if there is no Editor
	Out   io.Writer
	Style term.Style
	// Interactive is a talk with a person: a prompt, the history at the start,
	// and errors that are shown and leave the talk open. Otherwise the first
	// error ends it.
	Interactive bool
	Quiet       bool             // answers only, no delegations
	Interrupts  <-chan os.Signal // Ctrl-C: stops a run; a second one in a row leaves
	Editor      Editor           // reads a person's lines; nil: they come from In
}

// Editor is what a person types into.
type Editor interface {
	// ReadLine waits for a message or a command. Ctrl-C is term.ErrInterrupt, the
	// wish to leave io.EOF.
	ReadLine(prompt string) (string, error)
	// Remember keeps a line to be called up again.
	Remember(line string)
}

// errLeave is the user's wish to go.
var errLeave = errors.New("leave")

// Run talks until the input ends, the user leaves or ctx ends. It returns while
// its Editor may still wait for a line, which only the end of its input could end.
func Run(ctx context.Context, client *webapi.Client, o Options) error {
	t := &talk{Options: o, client: client, view: view{out: o.Out, style: o.Style, quiet: o.Quiet}}
	if t.Editor == nil {
		scanner := bufio.NewScanner(o.In)
		scanner.Buffer(make([]byte, 0, 4096), maxLine)
		t.Editor, t.plain = lineReader{scanner}, true
	}
	if o.Interactive {
		if err := t.greet(ctx); err != nil {
			return ignoreLeave(err)
		}
	}
	for {
		line, err := t.prompt(ctx)
		if err != nil {
			return ignoreLeave(err)
		}
		if line != "" {
			t.Editor.Remember(line)
		}
		if err := t.take(ctx, line); err != nil {
			if errors.Is(err, errLeave) || ctx.Err() != nil {
				return ignoreLeave(err)
			}
			if !o.Interactive {
				return err
			}
			t.view.problem(err.Error())
		}
	}
}

func ignoreLeave(err error) error {
	if errors.Is(err, errLeave) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type talk struct {
	Options
	client *webapi.Client
	view   view
	plain  bool        // the Editor is a lineReader
	edited <-chan line // of the Editor's ReadLine that goes on; nil for none
}

type line struct {
	text string
	err  error
}

// lineReader is an Editor over an input of lines, which shows no prompt.
type lineReader struct{ *bufio.Scanner }

// ReadLine implements Editor.
func (r lineReader) ReadLine(string) (string, error) {
	if r.Scan() {
		return r.Text(), nil
	}
	if errors.Is(r.Err(), bufio.ErrTooLong) {
		return "", fmt.Errorf("a line is longer than a message may be (%d bytes)", maxLine)
	}
	return "", cmp.Or(r.Err(), io.EOF)
}

// Remember implements Editor.
func (lineReader) Remember(string) {}

// prompt waits for the next message. The end of the input, the second of two
// interrupts in a row and the end of ctx are errLeave.
func (t *talk) prompt(ctx context.Context) (string, error) {
	for try := 0; ; try++ {
		text, err := t.read(ctx, "› ")
		if !errors.Is(err, term.ErrInterrupt) {
			return strings.TrimSpace(text), err
		}
		if try > 0 || !t.Interactive {
			return "", errLeave
		}
		t.view.note("(Ctrl-C again, or Ctrl-D, leaves)")
	}
}

// read waits for one line. The end of the input and that of ctx are errLeave.
func (t *talk) read(ctx context.Context, prompt string) (string, error) {
	switch {
	case t.plain && t.Interactive:
		fmt.Fprint(t.Out, t.Style.Bold(prompt))
	case !t.plain && t.edited != nil: // a signal interrupted this method, but not the editor, which has shown its prompt
		fmt.Fprint(t.Out, prompt)
	}
	if t.edited == nil {
		edited := make(chan line, 1)
		go func() { // ends with the line, or with the process
			text, err := t.Editor.ReadLine(prompt)
			edited <- line{text, err}
		}()
		t.edited = edited
	}
	err := errLeave
	select {
	case l := <-t.edited:
		t.edited = nil
		if !errors.Is(l.err, io.EOF) {
			return l.text, l.err
		}
	case <-t.Interrupts:
		err = term.ErrInterrupt
	case <-ctx.Done():
	}
	if t.Interactive {
		fmt.Fprintln(t.Out)
	}
	return "", err
}

// take does what a line asks for.
func (t *talk) take(ctx context.Context, text string) error {
	command, isCommand := strings.CutPrefix(text, "/")
	switch {
	case text == "":
		return nil
	case isCommand && strings.HasPrefix(command, "/"):
		text = command // "//" sends a message that begins with a slash
	case command == "quit" || command == "exit":
		return errLeave
	case isCommand:
		return t.command(ctx, command)
	}
	return say(ctx, t, text)
}

// say posts a message and shows its run to the end.
func say(ctx context.Context, t *talk, text string) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	return t.watch(ctx, t.client.Say(ctx, t.Chat, text, rand.Text()))
}

// panelTakes says what stands behind the command of a panel; empty for no such
// command. It asks the panel past the master, whether or not what users type may
// do so elsewhere.
func panelTakes(command string) string {
	switch memory.Agent(command) {
	case panel.DiscussName:
		return "QUESTION"
	case panel.EnsembleName:
		return "GOAL"
	}
	return ""
}

// ask has a panel work on a question.
func (t *talk) ask(ctx context.Context, command, question string) error {
	if question == "" {
		return fmt.Errorf("/%s needs what it is to work on: /%s %s", command, command, panelTakes(command))
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	err := t.watch(ctx, t.client.Ask(ctx, t.Chat, memory.Agent(command), question, rand.Text()))
	var refused *api.Problem
	if errors.As(err, &refused) && refused.Code == "unknown_agent" {
		return fmt.Errorf("there are no models for /%s: list them under panel.members in mneme.yaml (docs/panel.md)", command)
	}
	return err
}

// greet shows where the user is, the last messages, and a run under way.
func (t *talk) greet(ctx context.Context) error {
	t.view.note(fmt.Sprintf("chat %s · /help lists commands, Ctrl-D leaves", t.Chat))
	info, err := t.client.Chat(ctx, t.Chat)
	if webapi.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	page, err := t.client.Page(ctx, memory.ChatKey(t.Chat), -recalled, recalled)
	if err != nil && !webapi.IsNotFound(err) {
		return err
	}
	messages, err := memory.Decode(page.Messages)
	if err != nil {
		return err
	}
	for _, m := range messages {
		t.view.recall(m)
	}
	following, leave := context.WithCancel(ctx)
	defer leave()
	switch {
	case info.Waiting != nil:
		err = t.answer(following, &waiting{run: info.Waiting.RunID, waits: info.Waiting.Waits})
	case info.Run == "":
		return nil
	default:
		fmt.Fprintln(t.Out, t.Style.Dim("(an answer is under way)"))
		err = t.watch(following, t.client.Follow(following, t.Chat, info.Run))
	}
	if err != nil && !errors.Is(err, errLeave) && ctx.Err() == nil {
		t.view.problem(err.Error())
		return nil
	}
	return err
}

type received struct {
	event event.Event
	err   error
}

// watch shows a run to its end. What it waits for is asked in between.
func (t *talk) watch(ctx context.Context, events iter.Seq2[event.Event, error]) error {
	if err := t.watchOne(ctx, events); err != nil {
		return err
	}
	return t.answer(ctx, t.view.waiting)
}

// watchOne shows a run to its end, or to where it waits. Events are read in a goroutine of their own, so that an
// interrupt is seen while none comes. An interrupt stops the run; its id comes with the
// first event, so that a stop that is asked for earlier is sent then. A second interrupt
// leaves, and the run goes on by itself. The caller ends ctx, which must be that of
// events, after watchOne returned: that ends the goroutine.
func (t *talk) watchOne(ctx context.Context, events iter.Seq2[event.Event, error]) error {
	t.view.begin()
	feed := make(chan received)
	left := make(chan struct{})
	go func() { // ends with the events, that is with ctx at the latest
		defer close(feed)
		for e, err := range events {
			select {
			case feed <- received{e, err}:
			case <-left:
				return
			}
		}
	}()
	defer close(left)
	var (
		run      string
		stopping bool
		asked    bool
	)
	for {
		select {
		case r, ok := <-feed:
			if !ok {
				return t.view.end()
			}
			if r.err != nil {
				t.view.breakLine()
				return r.err
			}
			run = r.event.RunID
			t.view.show(r.event)
		case <-t.Interrupts:
			t.view.breakLine()
			if stopping {
				return errLeave
			}
			stopping = true
			t.view.note("(stopping; Ctrl-C again leaves)")
		case <-ctx.Done():
			return ctx.Err()
		}
		if stopping && !asked && run != "" {
			asked = true
			if err := t.stop(ctx, run); err != nil {
				t.view.problem(err.Error())
				stopping, asked = false, false
			}
		}
	}
}

func (t *talk) stop(ctx context.Context, run string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := t.client.Stop(ctx, t.Chat, run); err != nil {
		return fmt.Errorf("the run could not be stopped: %w", err)
	}
	return nil
}
