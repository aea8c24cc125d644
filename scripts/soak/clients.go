package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
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

// write lets writers, the eraser and the faults go until the duration is over or
// ctx ends, and returns when all of them have.
func (s *soak) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	var wg sync.WaitGroup
	faults := &chaos{soak: s, rng: s.random(1)}
	wg.Go(func() { faults.strikes(ctx) })
	wg.Go(func() { faults.revive(ctx) })
	wg.Go(func() { (&chaos{soak: s, rng: s.random(4)}).lose(ctx) })
	wg.Go(func() { (&writer{s, s.random(5)}).editNowAndThen(ctx) })
	wg.Go(func() { (&writer{s, s.random(2)}).eraseNowAndThen(ctx) })
	for i := range s.writers {
		w := &writer{s, s.random(uint64(100 + i))}
		wg.Go(func() {
			for ctx.Err() == nil {
				w.step()
			}
		})
	}
	wg.Wait()
}

// step does one of the things that clients do. What it began it ends, also when
// the time is over.
func (w *writer) step() {
	ch := w.chats[w.rng.IntN(len(w.chats))]
	if w.rng.IntN(8) == 0 {
		ch = w.chats[w.rng.IntN(min(3, len(w.chats)))] // some chats are busier
	}
	ch.busy.RLock()
	defer ch.busy.RUnlock()
	var a attempt
	switch dice := w.rng.IntN(100); {
	case dice < 40:
		a = w.talk(w.compose(ch, ""), nil, w.rng.IntN(3) > 0)
	case dice < 52:
		a = w.bounded(func(ctx context.Context) attempt { return w.ask(ctx, w.compose(ch, ""), w.anyWeb()) })
	case dice < 62:
		w.atOnce(w.compose(ch, ""), w.compose(ch, ""))
	case dice < 74:
		a = w.talk(w.compose(ch, ""), untilSeq(1+w.rng.Int64N(30)), true)
	case dice < 78:
		a = w.talk(w.compose(ch, ""), untilSeq(w.rng.Int64N(8)), false)
	case dice < 84: // it asks either process to stop the run when some event has come
		seq, web := 1+w.rng.Int64N(20), w.anyWeb()
		a = w.talk(w.compose(ch, ""), func(e event.Event) bool {
			if e.Seq == seq {
				w.count("stops", 1)
				_ = web.client.Stop(context.Background(), ch.id, e.RunID) // whether it is done its events tell
			}
			return true
		}, false)
	default:
		w.repeat(ch)
		return
	}
	if a.status/100 != 2 {
		w.rest(400 * time.Millisecond)
	}
}

// bounded does one request for as long as some client would wait.
func (w *writer) bounded(do func(context.Context) attempt) attempt {
	wait := hasty
	switch {
	case w.rng.IntN(3) > 0:
	case w.fault != faultKills:
		wait = hung + 30*time.Second
	default:
		wait = patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait+5*w.slow)
	defer cancel()
	return do(ctx)
}

func (w *writer) anyWeb() *service {
	webs := w.webs()
	return webs[w.rng.IntN(len(webs))]
}

func (w *writer) rest(most time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(most)))) }

// untilSeq goes on up to an event.
func untilSeq(seq int64) func(event.Event) bool {
	return func(e event.Event) bool { return e.Seq < seq }
}

// talk posts a message and reads the stream for as long as see wants. back: it comes
// back with Last-Event-ID for what is missing, a few times, on alternating processes.
func (w *writer) talk(p *post, see func(event.Event) bool, resume bool) attempt {
	web := w.anyWeb()
	first := w.bounded(func(ctx context.Context) attempt { return w.stream(ctx, p, web, see) })
	for a, try := first, 0; resume && a.run != "" && !a.done && a.status/100 != 4 && try < 6; try++ {
		w.rest(2 * time.Second)
		web = w.other(web)
		w.count("resumed with Last-Event-ID", 1)
		a = w.bounded(func(ctx context.Context) attempt { return w.follow(ctx, p, web, a.run, a.last) })
	}
	return first
}

// atOnce sends posts at the same time, or one twice.
func (w *writer) atOnce(posts ...*post) {
	var wg sync.WaitGroup
	for i, p := range posts {
		web := w.webs()[i%len(w.webs())]
		if posts[0] != posts[1] {
			web = w.anyWeb()
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience+5*w.slow)
			defer cancel()
			w.stream(ctx, p, web, nil)
		})
	}
	wg.Wait()
}

// repeat sends a message under a key, then again: at once on both processes, or
// after a break, whether the first one was heard to its end, hung up on, or broke.
func (w *writer) repeat(ch *chat) {
	ch.keyed.RLock()
	defer ch.keyed.RUnlock()
	p := w.compose(ch, fmt.Sprintf("key-%d", w.rng.Int64()))
	switch w.rng.IntN(3) {
	case 0:
		w.atOnce(p, p)
	case 1:
		w.talk(p, untilSeq(1+w.rng.Int64N(30)), false)
	default:
		w.talk(p, nil, false)
	}
	for range 1 + w.rng.IntN(3) {
		w.rest(2 * time.Second)
		w.count("repeated under a key", 1)
		w.bounded(func(ctx context.Context) attempt {
			if w.rng.IntN(3) == 0 {
				return w.ask(ctx, p, w.anyWeb())
			}
			return w.stream(ctx, p, w.anyWeb(), nil)
		})
	}
}

// lastPosts says something in each chat once everything is at rest, and is answered.
func (s *soak) lastPosts() {
	const atOnce = 8
	var wg sync.WaitGroup
	for n := range atOnce {
		w := &writer{s, s.random(uint64(10 + n))}
		wg.Go(func() {
			for i := n; i < len(s.chats); i += atOnce {
				if p := w.insist(s.chats[i], 6); p != nil {
					s.violate(violation{kind: unsettled, chat: s.chats[i], post: p,
						what: "everything is at rest, yet posts are not answered"})
				}
			}
		})
	}
	wg.Wait()
}

// insist posts until one is answered to its end; it gives the last one if none was.
func (w *writer) insist(ch *chat, times int) (unanswered *post) {
	for range times {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		p := w.compose(ch, "")
		a := w.stream(ctx, p, w.anyWeb(), nil)
		cancel()
		if a.done {
			return nil
		}
		unanswered = p
		time.Sleep(time.Second)
	}
	return unanswered
}

// stream posts p and reads its run's events for as long as see, shown every one, wants.
func (s *soak) stream(ctx context.Context, p *post, web *service, see func(event.Event) bool) attempt {
	a := attempt{start: time.Now(), web: web.name}
	s.hear(ctx, &a, p, web, see, http.MethodPost, webapi.MessagesPath(p.chat.id), p.header("text/event-stream"), p.body())
	s.addAttempt(p, a)
	return a
}

// follow reads the events of p's run behind a number.
func (s *soak) follow(ctx context.Context, p *post, web *service, run string, lastSeq int64) attempt {
	a := attempt{start: time.Now(), web: web.name, run: run, last: lastSeq}
	header := http.Header{}
	if lastSeq > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(lastSeq, 10))
	}
	s.hear(ctx, &a, p, web, nil, http.MethodGet, webapi.RunPath(p.chat.id, run)+"/events", header, nil)
	return a
}

// ask posts p and waits for its JSON answer.
func (s *soak) ask(ctx context.Context, p *post, web *service) attempt {
	a := attempt{start: time.Now(), web: web.name}
	if resp := s.send(ctx, &a, web, http.MethodPost, webapi.MessagesPath(p.chat.id), p.header("application/json"),
		p.body()); resp != nil {
		defer resp.Body.Close()
		var result webapi.Result
		if err := json.NewDecoder(resp.Body).Decode(&result); err != nil {
			a.status, a.note = 0, "the answer broke: "+err.Error()
		} else {
			a.done = true
			s.addAnswer(p, result.RunID, result.Content)
		}
	}
	s.addAttempt(p, a)
	return a
}

func (p *post) header(accept string) http.Header {
	h := http.Header{"Accept": {accept}, "Content-Type": {"application/json"}}
	if p.key != "" {
		h.Set(webapi.IdempotencyKey, p.key)
	}
	return h
}

// body is one that net/http cannot send again unseen: what each sending came to must
// be known.
func (p *post) body() io.Reader {
	raw, _ := json.Marshal(webapi.MessageRequest{Message: p.text, AgentVersion: p.agent})
	return struct{ io.Reader }{bytes.NewReader(raw)}
}

// send gives a 2xx response, and otherwise enters in a what came instead.
func (s *soak) send(ctx context.Context, a *attempt, web *service, method, path string, header http.Header,
	body io.Reader) *http.Response {
	resp, err := web.client.Send(ctx, method, path, header, body)
	var refused *api.Problem
	switch {
	case errors.As(err, &refused):
		a.status, a.code = refused.Status, refused.Code
		if !a.refused() {
			a.run = refused.RunID // it ran, and failed; a refusal may be about another run
		}
	case err != nil:
		a.note = err.Error()
	default:
		a.status = resp.StatusCode
		if run := resp.Header.Get(webapi.RunID); run != "" {
			a.run = run
		}
	}
	return resp
}

// hear takes the events of a response until it ends or see refuses.
func (s *soak) hear(ctx context.Context, a *attempt, p *post, web *service, see func(event.Event) bool, method,
	path string, header http.Header, body io.Reader) {
	resp := s.send(ctx, a, web, method, path, header, body)
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		a.done = true
		return
	}
	frames, began := newFrames(resp.Body), time.Now()
	for {
		f, err := frames.Next()
		if err != nil {
			a.note = fmt.Sprintf("broken after %v: %v", time.Since(a.start).Round(time.Millisecond), err)
			if age := time.Since(began); s.fault != faultKills && age > hung && errors.Is(err, context.DeadlineExceeded) {
				s.violate(violation{kind: hang, chat: p.chat, run: a.run, seq: a.last, post: p,
					what: fmt.Sprintf("%s has sent no end for %v; runs end after %v", web.name, age.Round(time.Second), runTimeout)})
			}
			return
		}
		if f.ID == nil {
			a.code = problemOf(f)
			continue
		}
		e, err := eventOf(f)
		switch {
		case err != nil:
		case e.Seq != a.last+1:
			err = fmt.Errorf("event %d came after event %d", e.Seq, a.last)
		case a.run != "" && e.RunID != a.run:
			err = fmt.Errorf("the run is %s, the event's run %s", a.run, e.RunID)
		}
		if err != nil {
			s.violate(violation{kind: invalid, chat: p.chat, run: e.RunID, seq: e.Seq, post: p,
				what: fmt.Sprintf("a frame from %s: %v: %s", web.name, err, f.Data)})
			return
		}
		s.receive(p, e, f.Data, web.name)
		a.run, a.last, a.done = e.RunID, e.Seq, e.Terminal()
		if a.done || see != nil && !see(e) {
			return
		}
	}
}

// newFrames reads a stream for as long as its request goes on.
func newFrames(body io.Reader) *sse.Reader { return sse.NewReader(body, api.MaxEvent, 0, func() {}) }

// eventOf is a frame's event, which must be what id and name of the frame say.
func eventOf(f sse.Event) (event.Event, error) {
	e, err := event.Decode(f.Data)
	switch {
	case err != nil:
	case strconv.FormatInt(e.Seq, 10) != string(f.ID) || e.Role() != string(f.Name):
		err = fmt.Errorf("the frame says id %s, event %s", f.ID, f.Name)
	case e.RunID == "":
		err = errors.New("an event without a run")
	}
	return e, err
}

// problemOf is the code of an error frame without id.
func problemOf(f sse.Event) string {
	var p api.Problem
	if json.Unmarshal(f.Data, &p) != nil {
		return "unreadable"
	}
	return p.Code
}

// compose makes and enters a message that no other post has: a fact, a question about
// one, a sum that needs a tool, or an errand of several steps, for the master or for the
// analytic subagent itself. Every name in it carries the chat's tag.
func (w *writer) compose(ch *chat, key string) *post {
	message, agent := text(w.rng, ch)
	return w.post(ch, message, agent, key)
}

func text(rng *rand.Rand, ch *chat) (message, agent string) {
	n := ch.serial.Add(1)
	box := func(n int64) string { return fmt.Sprintf("box %s%05d", ch.tag, n) }
	pad := ""
	if rng.IntN(40) == 0 { // a long one now and then: more to tear
		pad = " " + strings.Repeat("and so on ", 200+rng.IntN(3000))
	}
	forms := []string{
		"Tell the WHO subagent that the code of BOX is CODEPAD",
		"Ask the WHO subagent what the code of EARLIER is, for CODE",
		"Ask the analytic subagent what SUM is, then tell the knowledge subagent that the code of BOX is CODE",
		"Tell the WHO subagent that the code of BOX is CODE, then ask it what the code of BOX is, then tell the " +
			"knowledge subagent that the key of BOX is red, then ask the analytic subagent what SUM is",
	}
	agent = webapi.Master
	form := []int{0, 0, 0, 0, 1, 1, 2, 2, 3, 3}[rng.IntN(10)]
	if form < 3 && rng.IntN(4) == 0 {
		agent = "analytic"
		forms = []string{"The code of BOX is CODEPAD", "What is the code of EARLIER? This is question CODE",
			"What is SUM? It is for CODE"}
	}
	return strings.NewReplacer(
		"WHO", []string{"analytic", "analytic", "knowledge"}[rng.IntN(3)],
		"BOX", box(n), "EARLIER", box(max(n-1-rng.Int64N(6), 1)),
		"CODE", fmt.Sprintf("%s%05dk%03d", ch.tag, n, rng.IntN(1000)), "SUM",
		fmt.Sprintf("%d %c %d", 1000+n, "*+"[rng.IntN(2)], rng.IntN(1000)), "PAD", pad,
	).Replace(forms[form]), agent
}

// eraseNowAndThen erases a chat, or one of its histories, until ctx ends.
func (w *writer) eraseNowAndThen(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for w.erase > 0 && sleep(ctx, time.Duration(w.rng.ExpFloat64()*float64(w.erase))) {
		ch, key := w.chats[w.rng.IntN(len(w.chats))], memory.Key{}
		if w.rng.IntN(4) == 0 {
			key = memory.SubagentKey("analytic", ch.id)
		}
		if web := w.anyWeb(); ch.keyed.TryLock() {
			wg.Go(func() {
				defer ch.keyed.Unlock()
				w.eraseOnce(ch, key, web)
			})
		}
	}
}

// eraseOnce asks until it is done. An attempt is never given up while its process
// may still act on it: it would erase what the soak does not know of.
func (w *writer) eraseOnce(ch *chat, key memory.Key, web *service) {
	ch.changes.Add(1)
	done := erasure{key: key, first: time.Now()}
	for {
		var err error
		if done.last = time.Now(); key == (memory.Key{}) {
			_, err = web.client.EraseChat(context.Background(), ch.id)
		} else {
			_, err = web.client.EraseHistory(context.Background(), key)
		}
		if err == nil {
			break
		}
		if time.Since(done.first) > 4*time.Minute {
			w.violate(violation{kind: unsettled, chat: ch, what: "an erasure never succeeded: " + err.Error()})
			break
		}
		w.count("erasures tried again", 1)
		web = w.other(web)
		time.Sleep(300 * time.Millisecond)
	}
	done.ack = time.Now()
	ch.mu.Lock()
	ch.erasures = append(ch.erasures, done)
	ch.mu.Unlock()
	ch.changes.Add(1)
	w.count("erasures", 1)
	if key == (memory.Key{}) {
		w.words.erased(ch, done)
	}
}
