package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// ledger holds what clients sent and what was acknowledged to them.
type ledger struct {
	faults faults
	out    io.Writer // told of findings at once

	mu         sync.Mutex
	posts      []*post         // guarded by mu
	runs       map[string]*run // guarded by mu: by run id
	violations []violation     // guarded by mu
	counts     counts          // guarded by mu
}

// counts are totals of what clients saw.
type counts struct {
	posts, accepted, broken, answers int
	refused                          map[string]int // by status and code
	events                           int            // with an id, each once
	resumed, repeated, stopped       int
	erased, eraseRetries, edited     int
}

func newLedger(out io.Writer) *ledger {
	return &ledger{out: out, runs: map[string]*run{}, counts: counts{refused: map[string]int{}}}
}

// chat is one conversation with what was done to it.
type chat struct {
	id  memory.Chat
	tag string // stands in every text of the chat and in no other chat's

	serial atomic.Int64 // of its posts
	busy   sync.RWMutex // held for reading while a client speaks to it
	keyed  sync.RWMutex // held for reading while a post may be repeated: its run's record must not be erased
	begun  atomic.Int64 // erasures and edits begun
	ended  atomic.Int64 // and answered with success

	mu       sync.Mutex
	erasures []erasure // guarded by mu
	edits    []edit    // guarded by mu

	// What its history says in the end; set by the check.
	said    map[string][]int  // user message → where
	replies map[string]string // run → its answer
}

func chatID(i int) memory.Chat { return memory.MustChat(fmt.Sprintf("soak-%03d", i)) }
func chatTag(i int) string     { return fmt.Sprintf("c%03dn", i) }

// erasure is one that succeeded, maybe after attempts that did not.
type erasure struct {
	key   memory.Key // what was erased; zero: everything of the chat
	first time.Time  // the first attempt began
	last  time.Time  // the one that succeeded began
	ack   time.Time  // and was answered
}

func (e erasure) covers(key memory.Key) bool { return e.key == (memory.Key{}) || e.key == key }

// post is one message of a writer, maybe sent more than once under a key.
type post struct {
	chat  *chat
	text  string
	agent string
	key   string // Idempotency-Key; empty for none
	sent  time.Time

	attempts []attempt // guarded by ledger.mu
	answers  []answer  // guarded by ledger.mu
}

// attempt is one sending of a post.
type attempt struct {
	at     time.Time
	web    string
	run    string // the response's Mneme-Run-Id
	status int    // 0: no response
	code   string // of a refusal, or of the frame that ended a stream early
	note   string // how it ended
}

func (a attempt) String() string {
	return fmt.Sprintf("%s to %s: %d %s %s %s", a.at.Format("15:04:05.000"), a.web, a.status, a.code, a.run, a.note)
}

// refused says whether the attempt was answered as one that ran nothing.
func (a attempt) refused() bool {
	switch a.status {
	case 400, 404, 405, 409, 413, 415, 422, 429, 503:
		return true
	}
	return false
}

// answer is a 2xx JSON answer.
type answer struct {
	RunID   string `json:"run_id"`
	Content string `json:"content"`
	Outcome string `json:"outcome"`

	at time.Time // received
}

// run is what clients received of one run.
type run struct {
	id     string
	chat   *chat
	post   *post
	events map[int64]received
}

func (r *run) seqs() []int64 { return slices.Sorted(maps.Keys(r.events)) }

// first is the earliest event that was received.
func (r *run) first() received { return r.events[r.seqs()[0]] }

// completed says whether a client saw the run come to a good end.
func (r *run) completed() bool {
	for _, e := range r.events {
		if p, ok := e.event.Payload.(*event.RunFinished); ok && p.Outcome == event.Completed {
			return true
		}
	}
	return false
}

// retryOf is the failed run that this one tried once more; empty if it is none.
func (r *run) retryOf() string {
	if started, ok := r.events[1].event.Payload.(*event.RunStarted); ok {
		return started.RetryOf
	}
	return ""
}

// answered says whether the run is known to have its answer, or to have been stopped.
func (r *run) answered() bool {
	for _, e := range r.events {
		switch p := e.event.Payload.(type) {
		case *event.Assistant:
			return p.Failure == ""
		case *event.RunFinished:
			if p.Outcome != event.Failed {
				return true
			}
		}
	}
	return false
}

// received is one event, acknowledged by having arrived with its id.
type received struct {
	event event.Event
	line  []byte
	at    time.Time
	web   string
	twice bool // with another content; reported once
}

// post enters a new message.
func (l *ledger) post(c *chat, text, agent, key string) *post {
	p := &post{chat: c, text: text, agent: agent, key: key, sent: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts = append(l.posts, p)
	l.counts.posts++
	return p
}

// tried enters how an attempt to send a post ended.
func (l *ledger) tried(p *post, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.attempts = append(p.attempts, a)
	switch {
	case a.status/100 == 2:
		l.counts.accepted++
	case a.status == 0:
		l.counts.broken++
	default:
		l.counts.refused[fmt.Sprintf("%d %s", a.status, a.code)]++
	}
}

func (l *ledger) answered(p *post, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.at = time.Now()
	p.answers = append(p.answers, a)
	l.counts.answers++
}

// receive enters an event of a run of p. An event that was received before must be
// the same to the byte.
func (l *ledger) receive(p *post, e event.Event, line []byte, web string) {
	now := time.Now()
	l.mu.Lock()
	r := l.runs[e.RunID]
	if r == nil {
		r = &run{id: e.RunID, chat: p.chat, post: p, events: map[int64]received{}}
		l.runs[e.RunID] = r
	}
	before, known := r.events[e.Seq]
	if !known {
		r.events[e.Seq] = received{event: e, line: bytes.Clone(line), at: now, web: web}
		l.counts.events++
	}
	differs := known && !before.twice && !bytes.Equal(before.line, line)
	if differs {
		before.twice = true
		r.events[e.Seq] = before
	}
	l.mu.Unlock()
	switch {
	case r.post != p:
		l.violate(violation{kind: invalid, chat: p.chat, run: e.RunID, seq: e.Seq, at: now,
			what: fmt.Sprintf("two posts got one run: %q and %q", r.post.text, p.text)})
	case differs:
		l.violate(violation{kind: conflict, chat: p.chat, run: e.RunID, seq: e.Seq, at: now, post: p,
			what: fmt.Sprintf("an event has two contents:\n    %s %s: %s\n    %s %s: %s",
				before.at.Format("15:04:05.000"), before.web, before.line, now.Format("15:04:05.000"), web, line)})
	}
}

// add changes a total.
func (l *ledger) add(change func(*counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.counts)
}

// violate enters a finding.
func (l *ledger) violate(v violation) {
	if v.at.IsZero() {
		v.at = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, v)
	if len(l.violations) <= 20 {
		fmt.Fprintf(l.out, "%s FOUND %s: %.200s\n", time.Now().Format("15:04:05"), v.kind, v.headline())
	}
}
