package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// How long a writer waits for one response: some give up soon, as people do, some
// outlast a pause and the lease behind it.
const (
	hasty    = 6 * time.Second
	patience = 75 * time.Second
	hung     = runTimeout + 20*time.Second // of a stream, where run_timeout is runTimeout
)

// writer is one client. Its methods are for one goroutine.
type writer struct {
	*soak
	rng *rand.Rand
}

func (s *soak) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

// write lets writers, the eraser and the faults go until the duration is over or
// ctx ends, and returns when all of them have.
func (s *soak) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	var all sync.WaitGroup
	faults := &chaos{stack: s.stack, log: &s.ledger.faults, meters: s.meters, rng: s.random(1),
		losing: s.fault != faultKills}
	all.Go(func() { faults.run(ctx, s.every) })
	all.Go(func() { faults.revive(ctx) })
	all.Go(func() { faults.lose(ctx, s, s.random(4)) })
	all.Go(func() { (&writer{s, s.random(5)}).editNowAndThen(ctx) })
	all.Go(func() { (&writer{s, s.random(2)}).eraseNowAndThen(ctx) })
	for i := range s.writers {
		w := &writer{s, s.random(uint64(100 + i))}
		all.Go(func() {
			for ctx.Err() == nil {
				w.once()
			}
		})
	}
	all.Wait()
}

// once does one of the things that clients do. What it began it ends, also when
// the time is over.
func (w *writer) once() {
	ctx, cancel := w.bounded()
	defer cancel()
	ch := w.chats[w.rng.IntN(len(w.chats))]
	if w.rng.IntN(8) == 0 {
		ch = w.chats[w.rng.IntN(min(3, len(w.chats)))] // some chats are busier
	}
	ch.busy.RLock()
	defer ch.busy.RUnlock()
	var out outcome
	switch dice := w.rng.IntN(100); {
	case dice < 40:
		out = w.plain(ctx, ch)
	case dice < 52:
		out = w.client.ask(ctx, w.compose(ch, ""), w.anyWeb())
	case dice < 62:
		w.atOnce(ctx, w.compose(ch, ""), w.compose(ch, ""))
	case dice < 74:
		out = w.hangUpAndResume(ctx, ch)
	case dice < 78:
		out = w.client.say(ctx, w.compose(ch, ""), w.anyWeb(), w.until(w.rng.Int64N(8))) // and never comes back
	case dice < 84:
		out = w.stopMidway(ctx, ch)
	default:
		w.repeat(ch)
	}
	if out.status/100 != 2 {
		w.rest(400 * time.Millisecond)
	}
}

// bounded is a context for one response.
func (w *writer) bounded() (context.Context, context.CancelFunc) {
	if w.rng.IntN(3) > 0 {
		return context.WithTimeout(context.Background(), hasty)
	}
	if w.fault != faultKills {
		return context.WithTimeout(context.Background(), hung+30*time.Second)
	}
	return context.WithTimeout(context.Background(), patience)
}

func (w *writer) compose(ch *chat, key string) *post {
	message, agent := text(w.rng, ch)
	return w.ledger.post(ch, message, agent, key)
}

func (w *writer) anyWeb() *service { return w.stack.web(w.rng.IntN(2) == 0) }

func (w *writer) rest(most time.Duration) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(most))))
}

// until goes on up to an event.
func (w *writer) until(seq int64) func(event.Event) bool {
	return func(e event.Event) bool { return e.Seq < seq }
}

// plain posts a message, and comes back for the rest if the stream breaks.
func (w *writer) plain(ctx context.Context, ch *chat) outcome {
	p, web := w.compose(ch, ""), w.anyWeb()
	out := w.client.say(ctx, p, web, nil)
	if out.run != "" && !out.done && w.rng.IntN(3) > 0 {
		w.comeBack(p, out, w.stack.other(web))
	}
	return out
}

// comeBack reads on with Last-Event-ID, a few times, on alternating processes.
func (w *writer) comeBack(p *post, out outcome, web *service) {
	run, last := out.run, out.last
	for range 6 {
		w.ledger.add(func(c *counts) { c.resumed++ })
		ctx, cancel := w.bounded()
		next := w.client.follow(ctx, p, web, run, last, nil)
		cancel()
		if next.done || next.status/100 == 4 {
			return
		}
		last, web = next.last, w.stack.other(web)
		w.rest(2 * time.Second)
	}
}

// lastPosts says something in each chat once everything is at rest, and is answered.
func (s *soak) lastPosts() {
	w := &writer{s, s.random(6)}
	for _, ch := range s.chats {
		for try := 0; ; try++ {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			p, web := w.compose(ch, ""), w.anyWeb()
			out := w.client.say(ctx, p, web, nil)
			cancel()
			if out.done {
				break
			}
			if try == 5 {
				s.ledger.violate(violation{
					kind: unsettled, chat: ch, post: p, what: "everything is at rest, yet a post is not answered by " + web.name,
				})
				break
			}
			time.Sleep(time.Second)
		}
	}
}

func (w *writer) hangUpAndResume(ctx context.Context, ch *chat) outcome {
	p, web := w.compose(ch, ""), w.anyWeb()
	out := w.client.say(ctx, p, web, w.until(1+w.rng.Int64N(30)))
	if out.run != "" && !out.done {
		if w.rng.IntN(2) == 0 {
			w.rest(3 * time.Second)
		}
		w.comeBack(p, out, w.stack.other(web))
	}
	return out
}

// stopMidway asks either process to stop the run when some event has come.
func (w *writer) stopMidway(ctx context.Context, ch *chat) outcome {
	p, web, at := w.compose(ch, ""), w.anyWeb(), 1+w.rng.Int64N(20)
	by := w.anyWeb()
	return w.client.say(ctx, p, web, func(e event.Event) bool {
		if e.Seq == at {
			w.ledger.add(func(c *counts) { c.stopped++ })
			w.client.stop(ctx, ch, by, e.RunID)
		}
		return true
	})
}

// atOnce sends posts at the same time.
func (w *writer) atOnce(ctx context.Context, posts ...*post) {
	var both sync.WaitGroup
	for _, p := range posts {
		web := w.anyWeb()
		both.Go(func() { w.client.say(ctx, p, web, nil) })
	}
	both.Wait()
}

// repeat sends a message under a key, then again: at once on both processes, or
// after a break, whether the first one was heard to its end, hung up on, or broke.
func (w *writer) repeat(ch *chat) {
	ch.keyed.RLock()
	defer ch.keyed.RUnlock()
	p := w.compose(ch, fmt.Sprintf("key-%d", w.rng.Int64()))
	ctx, cancel := w.bounded()
	defer cancel()
	switch w.rng.IntN(3) {
	case 0:
		var both sync.WaitGroup
		for _, web := range []*service{w.stack.web(true), w.stack.web(false)} {
			both.Go(func() { w.client.say(ctx, p, web, nil) })
		}
		both.Wait()
	case 1:
		w.client.say(ctx, p, w.anyWeb(), w.until(1+w.rng.Int64N(30)))
	default:
		w.client.say(ctx, p, w.anyWeb(), nil)
	}
	for range 1 + w.rng.IntN(3) {
		w.rest(2 * time.Second)
		w.again(p)
	}
}

// again sends a post with a key once more.
func (w *writer) again(p *post) {
	ctx, cancel := w.bounded()
	defer cancel()
	w.ledger.add(func(c *counts) { c.repeated++ })
	if w.rng.IntN(3) == 0 {
		w.client.ask(ctx, p, w.anyWeb())
	} else {
		w.client.say(ctx, p, w.anyWeb(), nil)
	}
}

// eraseNowAndThen erases a chat, or one of its histories, until ctx ends.
func (w *writer) eraseNowAndThen(ctx context.Context) {
	var going sync.WaitGroup
	defer going.Wait()
	for w.erase > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(w.rng.ExpFloat64() * float64(w.erase))):
		}
		ch, key := w.chats[w.rng.IntN(len(w.chats))], memory.Key{}
		if w.rng.IntN(4) == 0 {
			key = memory.SubagentKey("analytic", ch.id)
		}
		if !ch.keyed.TryLock() {
			continue
		}
		web := w.anyWeb()
		going.Go(func() {
			defer ch.keyed.Unlock()
			w.eraseOnce(ch, key, web)
		})
	}
}

// eraseOnce asks until it is done. An attempt is never given up while its process
// may still act on it: it would erase what nobody knows of.
func (w *writer) eraseOnce(ch *chat, key memory.Key, web *service) {
	ch.begun.Add(1)
	done := erasure{key: key, first: time.Now()}
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		done.last = time.Now()
		ok, why := w.client.erase(ctx, ch, key, web)
		cancel()
		if ok {
			break
		}
		if try > 0 && time.Since(done.first) > 4*time.Minute {
			w.ledger.violate(violation{kind: unsettled, chat: ch, what: "an erasure never succeeded: " + why})
			break
		}
		w.ledger.add(func(c *counts) { c.eraseRetries++ })
		web = w.stack.other(web)
		time.Sleep(300 * time.Millisecond)
	}
	done.ack = time.Now()
	ch.mu.Lock()
	ch.erasures = append(ch.erasures, done)
	ch.mu.Unlock()
	ch.ended.Add(1)
	w.ledger.add(func(c *counts) { c.erased++ })
	if key == (memory.Key{}) {
		w.words.erased(ch, done)
	}
}
