package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// approving has two subagents call a tool each that a person is to approve, and kills what holds
// the run at every event of it, or has Redis lose data there.
type approving struct {
	options
	stack *stack
	out   io.Writer
	till  *till
	chaos *chaos // has Redis lose data; nil for a soak in which it loses none

	kills, losses, answered, once, never int
	wrong                                []string // findings
}

// till is the server of the two tools. It counts how often each thing was done.
type till struct {
	mu   sync.Mutex
	done map[string]int
}

func (t *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	t.done[r.URL.Path]++
	t.mu.Unlock()
	fmt.Fprint(w, `{"done":true}`)
}

func (t *till) count(path string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[path]
}

// serve opens the till, and gives its address.
func (t *till) serve() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: t, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // ends with stop
	return l.Addr().String(), func() { _ = server.Close() }, nil
}

// tools is the configuration of the agents.
const tools = `agents:
  subagents:
    - name: billing
      description: Pays orders back.
      tools:
        - http: {name: refund, description: Pays an order back., method: POST, url: "http://%[1]s/refund/{order}",
            parameters: {type: object, properties: {order: {type: string}}, required: [order]}}
          approve: [refund]
    - name: stock
      description: Keeps items.
      tools:
        - http: {name: reserve, description: Reserves an item., method: POST, url: "http://%[1]s/reserve/{item}",
            parameters: {type: object, properties: {item: {type: string}}, required: [item]}}
          approve: [reserve]
`

// configure writes the configuration into the folder of the soak.
func configure(dir, till string) (file string, err error) {
	file = filepath.Join(dir, "mneme.yaml")
	return file, os.WriteFile(file, []byte(fmt.Sprintf(tools, till)), 0o600)
}

func (a *approving) run(ctx context.Context) (clean bool, err error) {
	began := time.Now()
	if a.fault != faultKills {
		a.chaos = &chaos{soak: newSoak(a.options, a.stack, io.Discard), rng: a.random(1)}
	}
	events := 0
	for round := range a.rounds {
		if ctx.Err() != nil {
			break
		}
		// In the first round of each turn through the events nothing is killed, which tells how many there are.
		at := 0
		if events > 0 {
			at = round % (events + 1)
		}
		n, err := a.round(ctx, round, at)
		if err != nil {
			return false, fmt.Errorf("round %d, killed at event %d: %w", round, at, err)
		}
		if at == 0 {
			events = n
		}
	}
	return a.report(time.Since(began), events), nil
}

// round is one run, of which what holds it is killed when event at has come; 0 for never. It gives
// the number of the run's events.
func (a *approving) round(ctx context.Context, round, at int) (events int, err error) {
	chat, order := memory.MustChat(fmt.Sprint("approvals-", round)), fmt.Sprint("o", round)
	message := fmt.Sprintf("Ask billing to use refund {\"order\":%q}\nAsk stock to use reserve {\"item\":%[1]q}", order)
	webs := a.stack.webs()
	here, there := webs[round%2], webs[(round+1)%2]
	var last event.Event
	var run string
	lost := false // Redis has lost data in this round
	take := func(e event.Event, err error) (killed bool) {
		if err != nil {
			return false
		}
		run, last = e.RunID, e
		if at == 0 || e.Seq != int64(at) || lost {
			return false
		}
		lost = a.chaos != nil // once, or a further attempt at the message would lose its data there, too
		err = a.disturb(round, here)
		if err != nil {
			a.find(round, at, "what was killed did not come back: %v", err)
		}
		return true
	}
	for e, err := range here.client.Say(ctx, chat, message, order) {
		if take(e, err) {
			break
		}
	}
	if err := a.stack.startAll(); err != nil {
		return 0, err
	}
	for until := time.Now().Add(2 * time.Minute); ; {
		if time.Now().After(until) || ctx.Err() != nil {
			return 0, errors.New("the run does not come to an end")
		}
		info, err := there.client.Chat(ctx, chat)
		switch {
		case err != nil, info.Run != "":
			sleep(ctx, 50*time.Millisecond)
			continue
		case info.Waiting == nil && a.chaos == nil:
		case info.Waiting == nil: // it may have been lost with the process that had it: its client sends it again
			for e, err := range there.client.Say(ctx, chat, message, order) {
				if err == nil {
					run, last = e.RunID, e
				}
			}
			if _, over := last.Payload.(*event.RunFinished); !over {
				sleep(ctx, 100*time.Millisecond)
				continue
			}
		default:
			var answers []event.WaitAnswer
			for _, w := range info.Waiting.Waits {
				answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: event.Approve})
				a.answered++
			}
			here, there = there, here // what goes on is held by the other one
			again := false            // Redis has lost data behind the answers
			for e, err := range here.client.Resume(ctx, chat, info.Waiting.RunID, 0, answers...) {
				if take(e, err) {
					again = a.chaos != nil
					break
				}
			}
			if err := a.stack.startAll(); err != nil {
				return 0, err
			}
			for _, web := range webs { // the same answers at once to both, which have to know of the first time
				if !again {
					break
				}
				for e, err := range web.client.Resume(ctx, chat, info.Waiting.RunID, 0, answers...) {
					if err == nil {
						run, last = e.RunID, e
					}
				}
			}
			continue
		}
		break
	}
	for e, err := range there.client.Follow(ctx, chat, run) {
		if err == nil {
			last = e
		}
	}
	for _, path := range []string{"/refund/" + order, "/reserve/" + order} {
		switch n := a.till.count(path); {
		case n == 1:
			a.once++
		case n == 0 && at > 0:
			a.never++
		default:
			a.find(round, at, "%s was done %d times", path, n)
		}
	}
	if end, ok := last.Payload.(*event.RunFinished); !ok {
		a.find(round, at, "the run's last event is %s", last.Role())
	} else if at == 0 && end.Outcome != event.Completed {
		a.find(round, at, "the run is %s although nothing was killed", end.Outcome)
	}
	return int(last.Seq), a.usable(ctx, there, chat, round, at)
}

// usable says something more in the chat.
func (a *approving) usable(ctx context.Context, v *service, chat memory.Chat, round, at int) error {
	const message = "Tell the billing subagent that my name is Aliya"
	for e, err := range v.client.Say(ctx, chat, message, fmt.Sprint("more-", round)) {
		if err != nil {
			a.find(round, at, "the chat cannot be used: %v", err)
			return nil
		}
		if end, ok := e.Payload.(*event.RunFinished); ok && end.Outcome != event.Completed {
			a.find(round, at, "the next run in the chat is %s", end.Outcome)
		}
	}
	return ctx.Err()
}

// disturb is what happens at an event of a round.
func (a *approving) disturb(round int, web *service) error {
	if a.chaos == nil {
		a.kill(round, web)
		return nil
	}
	a.losses++
	_, err := a.chaos.loseOnce()
	return err
}

// kill ends what holds the run: its webmemory, its apiserver, both, or everything but Redis.
func (a *approving) kill(round int, web *service) {
	a.kills++
	agents := a.stack.services["apiserver"+strings.TrimPrefix(web.name, "webmemory")]
	var all []*service
	for _, v := range a.stack.services {
		if !v.isRedis() {
			all = append(all, v)
		}
	}
	for _, v := range [][]*service{{web}, {agents}, {web, agents}, all}[round/2%4] {
		v.Kill()
	}
}

func (a *approving) find(round, at int, format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf("round %d, killed at event %d: ", round, at)+fmt.Sprintf(format, args...))
}

// report prints the totals and the findings.
func (a *approving) report(took time.Duration, events int) (clean bool) {
	fmt.Fprintf(a.out, "\nsoak of approvals of %v, seed %d\n", took.Round(time.Second), a.seed)
	for _, v := range a.stack.services {
		a.wrong = append(a.wrong, v.crashes...)
	}
	printRows(a.out, []row{{"runs", a.rounds}, {"events of one that nothing disturbs", events}, {"kill -9", a.kills},
		{"losses of Redis", a.losses}, {"waits approved", a.answered}, {"calls made once", a.once},
		{"calls never made", a.never}, {"findings", len(a.wrong)}})
	for _, w := range a.wrong[:min(len(a.wrong), 20)] {
		fmt.Fprintln(a.out, w)
	}
	return len(a.wrong) == 0
}

// row is a figure of a report.
type row struct {
	name  string
	value int
}

func printRows(out io.Writer, rows []row) {
	for _, r := range rows {
		fmt.Fprintf(out, "  %-40s %d\n", r.name, r.value)
	}
}
