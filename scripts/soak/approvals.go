package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// approving has two subagents call a tool each that a person is to approve, and kills what holds
// the run at every event of it, or has Redis lose data there.
type approving struct {
	*trial
	chaos *chaos // has Redis lose data; nil for a soak in which it loses none
}

// ServeHTTP is the server of the two tools, which counts how often each thing was done.
func (t *trial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.count(r.URL.Path, 1)
	fmt.Fprint(w, `{"done":true}`)
}

// toolsConfig is the configuration of the agents.
const toolsConfig = `agents:
  subagents:
    - name: billing
      description: Pays orders back.
      tools:
        - http: {name: refund, description: Pays an order back., method: POST, url: "%[1]s/refund/{order}",
            parameters: {type: object, properties: {order: {type: string}}, required: [order]}}
          approve: [refund]
    - name: stock
      description: Keeps items.
      tools:
        - http: {name: reserve, description: Reserves an item., method: POST, url: "%[1]s/reserve/{item}",
            parameters: {type: object, properties: {item: {type: string}}, required: [item]}}
          approve: [reserve]
`

func approve(ctx context.Context, t *trial) (clean bool, err error) {
	a := &approving{trial: t}
	if a.losesData() {
		quiet := newTrial(t.options, io.Discard)
		quiet.testbed = t.testbed
		a.chaos = &chaos{soak: newSoak(quiet), rng: a.random(1)}
	}
	events := 0
	err = a.eachRound(ctx, func(round int, owner, peer *service) error {
		// In the first round of each turn through the events nothing is killed, which tells how many there are.
		faultSeq := 0
		if events > 0 {
			faultSeq = round % (events + 1)
		}
		n, err := a.round(ctx, round, faultSeq, owner, peer)
		if faultSeq == 0 && err == nil {
			events = n
			a.count("events of runs that nothing disturbs", n)
		}
		return err
	})
	return err == nil && a.report("rounds", "events of runs that nothing disturbs", "kill -9", "losses of Redis",
		"waits approved", "calls made once", "calls never made"), err
}

// round is one run, of which what holds it is killed when event at has come; 0 for never. It gives
// the number of the run's events.
func (a *approving) round(ctx context.Context, round, faultSeq int, owner, peer *service) (events int, err error) {
	chat, order := memory.MustChat(fmt.Sprint("approvals-", round)), fmt.Sprint("o", round)
	message := fmt.Sprintf("Ask billing to use refund {\"order\":%q}\nAsk stock to use reserve {\"item\":%[1]q}", order)
	var last event.Event
	var run string
	dataLost := false // Redis has lost data in this round
	take := func(e event.Event, err error) (killed bool) {
		if err != nil {
			return false
		}
		run, last = e.RunID, e
		if faultSeq == 0 || e.Seq != int64(faultSeq) || dataLost {
			return false
		}
		dataLost = a.chaos != nil // once, or a further attempt at the message would lose its data there, too
		err = a.disturb(round, owner)
		if err != nil {
			a.find("round %d, killed at event %d: what was killed did not come back: %v", round, faultSeq, err)
		}
		return true
	}
	for e, err := range owner.client.Say(ctx, chat, message, order) {
		if take(e, err) {
			break
		}
	}
	if err := a.startAll(); err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return 0, errors.New("the run does not come to an end")
		}
		info, err := peer.client.Chat(ctx, chat)
		switch {
		case err != nil, info.Run != "":
			sleep(ctx, 50*time.Millisecond)
			continue
		case info.Waiting == nil && a.chaos == nil:
		case info.Waiting == nil: // it may have been lost with the process that had it: its client sends it again
			for e, err := range peer.client.Say(ctx, chat, message, order) {
				if err == nil {
					run, last = e.RunID, e
				}
			}
			if _, finished := last.Payload.(*event.RunFinished); !finished {
				sleep(ctx, 100*time.Millisecond)
				continue
			}
		default:
			var answers []event.WaitAnswer
			for _, w := range info.Waiting.Pending {
				answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: event.Approve})
				a.count("waits approved", 1)
			}
			owner, peer = peer, owner // what goes on is held by the other one
			resend := false           // Redis has lost data behind the answers
			for e, err := range owner.client.Resume(ctx, chat, info.Waiting.RunID, 0, answers...) {
				if take(e, err) {
					resend = a.chaos != nil
					break
				}
			}
			if err := a.startAll(); err != nil {
				return 0, err
			}
			for _, web := range a.webs() { // the same answers at once to both, which have to know of the first time
				if !resend {
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
	for e, err := range peer.client.Follow(ctx, chat, run) {
		if err == nil {
			last = e
		}
	}
	for _, path := range []string{"/refund/" + order, "/reserve/" + order} {
		switch n := a.counted(path); {
		case n == 1:
			a.count("calls made once", 1)
		case n == 0 && faultSeq > 0:
			a.count("calls never made", 1)
		default:
			a.find("round %d, killed at event %d: %s was done %d times", round, faultSeq, path, n)
		}
	}
	if end, ok := last.Payload.(*event.RunFinished); !ok {
		a.find("round %d, killed at event %d: the run's last event is %s", round, faultSeq, last.Role())
	} else if faultSeq == 0 && end.Outcome != event.Completed {
		a.find("round %d, killed at event %d: the run is %s although nothing was killed", round, faultSeq, end.Outcome)
	}
	return int(last.Seq), a.usable(ctx, peer, chat, round, faultSeq)
}

// usable says something more in the chat.
func (a *approving) usable(ctx context.Context, v *service, chat memory.Chat, round, faultSeq int) error {
	const message = "Tell the billing subagent that my name is Aliya"
	for e, err := range v.client.Say(ctx, chat, message, fmt.Sprint("more-", round)) {
		if err != nil {
			a.find("round %d, killed at event %d: the chat cannot be used: %v", round, faultSeq, err)
			return nil
		}
		if end, ok := e.Payload.(*event.RunFinished); ok && end.Outcome != event.Completed {
			a.find("round %d, killed at event %d: the next run in the chat is %s", round, faultSeq, end.Outcome)
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
	a.count("losses of Redis", 1)
	_, err := a.chaos.loseOnce()
	return err
}

// kill ends what holds the run: its webmemory, its apiserver, both, or everything but Redis.
func (a *approving) kill(round int, web *service) {
	a.count("kill -9", 1)
	agents := a.services["apiserver"+strings.TrimPrefix(web.name, "webmemory")]
	var targets []*service
	for _, v := range a.services {
		if !v.isRedis() {
			targets = append(targets, v)
		}
	}
	for _, v := range [][]*service{{web}, {agents}, {web, agents}, targets}[round/2%4] {
		v.Kill()
	}
}
