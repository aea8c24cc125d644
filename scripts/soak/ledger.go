package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// ledger holds what clients sent and what was acknowledged to them.
type ledger struct {
	*trial                     // is told of findings at once
	posts      []*post         // guarded by mu
	runs       map[string]*run // guarded by mu: by run id
	violations []violation     // guarded by mu
	faults     []fault         // guarded by mu: what was done to processes, in order
}

func newLedger(t *trial) *ledger { return &ledger{trial: t, runs: map[string]*run{}} }

// fault is something that was done to a process.
type fault struct {
	time      time.Time
	who, what string
}

func (f fault) String() string { return fmt.Sprintf("%s %-9s %s", stamp(f.time), f.what, f.who) }

// recordFault enters a fault.
func (l *ledger) recordFault(who, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fault{time.Now(), who, what})
	l.counts[what+": "+who]++
}

// chat is one conversation with what was done to it.
type chat struct {
	id  memory.Chat
	tag string // stands in every text of the chat and in no other chat's

	serial  atomic.Int64 // of its posts
	busy    sync.RWMutex // held for reading while a client speaks to it
	keyed   sync.RWMutex // held for reading while a post may be repeated: its run's record must not be erased
	changes atomic.Int64 // begins and ends of erasures and edits: odd while one goes on

	mu       sync.Mutex
	erasures []erasure // guarded by mu
	edits    []edit    // guarded by mu

	// What its history says in the end; set by the check.
	positions map[string][]int  // user message → where
	replies   map[string]string // run → its answer
}

func newChat(i int) *chat {
	return &chat{id: memory.MustChat(fmt.Sprintf("soak-%03d", i)), tag: fmt.Sprintf("c%03dn", i),
		positions: map[string][]int{}, replies: map[string]string{}}
}

// keys are those of the chat and of the subagents of the default configuration.
func (ch *chat) keys() []memory.Key {
	return []memory.Key{memory.ChatKey(ch.id), memory.SubagentKey("analytic", ch.id),
		memory.SubagentKey("knowledge", ch.id)}
}

// erasure is one that succeeded, maybe after attempts that did not.
type erasure struct {
	key   memory.Key // what was erased; zero: everything of the chat
	first time.Time  // the first attempt began
	last  time.Time  // the one that succeeded began
	ack   time.Time  // and was answered
}

func (e erasure) covers(key memory.Key) bool { return e.key == (memory.Key{}) || e.key == key }

// edit is one change of a stored history by hand, as of an operator with redis-cli.
type edit struct {
	key         memory.Key
	time        time.Time
	sure        bool              // a run has gone on from it while Redis kept what it had
	rewrites    map[string]string // message as it was → as it is since; "" for removed
	userMessage string            // the user message of what was touched
}

// post is one message of a writer, maybe sent more than once under a key.
type post struct {
	chat        *chat
	text, agent string
	key         string // Idempotency-Key; empty for none
	sentAt      time.Time

	attempts []attempt // guarded by ledger.mu
	answers  []answer  // guarded by ledger.mu
}

// attempt is one request for the events or the answer of a post.
type attempt struct {
	start  time.Time
	web    string
	status int    // 0: no response
	run    string // the response's Mneme-Run-Id, or the one of its events
	last   int64  // the last event received
	done   bool   // the run's end was
	code   string // of a refusal, or of the frame that ended a stream early
	note   string // how it ended
}

func (a attempt) String() string {
	return fmt.Sprintf("%s to %s: %d %s %s, last event %d; %s", stamp(a.start), a.web, a.status, a.code, a.run, a.last,
		a.note)
}

// refused says whether the attempt was answered as one that ran nothing.
func (a attempt) refused() bool {
	return slices.Contains([]int{400, 404, 405, 409, 413, 415, 422, 429, 503}, a.status)
}

// answer is a 2xx JSON answer.
type answer struct {
	run, content string
	receivedAt   time.Time // received
}

// run is what clients received of one run.
type run struct {
	id     string
	chat   *chat
	post   *post
	events map[int64]received
}

// received is one event, acknowledged by having arrived with its id.
type received struct {
	event       event.Event
	line        []byte
	receivedAt  time.Time
	web         string
	conflicting bool // with another content; reported once
}

// createdAt is when an event was.
func (r received) createdAt() time.Time { return unixTime(r.event.TS) }

func (r *run) seqs() []int64 { return slices.Sorted(maps.Keys(r.events)) }

// first is the earliest event that was received.
func (r *run) first() received { return r.events[r.seqs()[0]] }

// hasOutcome reports whether a client saw an outcome of the run that ok accepts.
func (r *run) hasOutcome(ok func(outcome string) bool) bool {
	for _, e := range r.events {
		if p, finished := e.event.Payload.(*event.RunFinished); finished && ok(p.Outcome) {
			return true
		}
	}
	return false
}

// answered says whether the run is known to have its answer, or to have been stopped.
func (r *run) answered() bool {
	for _, e := range r.events {
		if p, ok := e.event.Payload.(*event.Assistant); ok && p.Failure == "" {
			return true
		}
	}
	return r.hasOutcome(func(outcome string) bool { return outcome != event.Failed })
}

// retries says whether the run tries a failed one once more.
func (r *run) retries() bool {
	started, ok := r.events[1].event.Payload.(*event.RunStarted)
	return ok && started.RetryOf != ""
}

// post enters a new message.
func (l *ledger) post(c *chat, text, agent, key string) *post {
	p := &post{chat: c, text: text, agent: agent, key: key, sentAt: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts = append(l.posts, p)
	l.counts["posts"]++
	return p
}

// addAttempt enters how an attempt to send a post ended.
func (l *ledger) addAttempt(p *post, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.attempts = append(p.attempts, a)
	switch {
	case a.status/100 == 2:
		l.counts["accepted"]++
	case a.status == 0:
		l.counts["no response"]++
	default:
		l.counts["refused"]++
		l.counts[fmt.Sprintf("refused %d %s", a.status, a.code)]++
	}
}

func (l *ledger) addAnswer(p *post, run, content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.answers = append(p.answers, answer{run, content, time.Now()})
	l.counts["answered in JSON"]++
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
	prev, ok := r.events[e.Seq]
	if !ok {
		r.events[e.Seq] = received{event: e, line: bytes.Clone(line), receivedAt: now, web: web}
		l.counts["events"]++
	}
	differs := ok && !prev.conflicting && !bytes.Equal(prev.line, line)
	if differs {
		prev.conflicting = true
		r.events[e.Seq] = prev
	}
	l.mu.Unlock()
	switch {
	case r.post != p:
		l.violate(violation{kind: invalid, chat: p.chat, run: e.RunID, seq: e.Seq, time: now,
			what: fmt.Sprintf("two posts got one run: %q and %q", r.post.text, p.text)})
	case differs:
		l.violate(violation{kind: conflict, chat: p.chat, run: e.RunID, seq: e.Seq, time: now, post: p,
			what: fmt.Sprintf("an event has two contents:\n    %s %s: %s\n    %s %s: %s",
				stamp(prev.receivedAt), prev.web, prev.line, stamp(now), web, line)})
	}
}

// kind is what is wrong.
type kind string

// What can be found.
const (
	missing   kind = "lost"          // acknowledged and not stored
	torn      kind = "torn"          // no array of messages, at any instant
	rewritten kind = "rewritten"     // a history that changed other than by growing, an id with other contents
	doubled   kind = "doubled"       // stored twice
	disorder  kind = "disorder"      // not in the order of its run, or inside another
	conflict  kind = "conflict"      // one event with two contents
	returned  kind = "returned"      // from before an erasure
	ghost     kind = "ghost"         // refused as having run nothing, and stored
	invalid   kind = "invalid"       // anything else that must not be
	declared  kind = "declared lost" // a run that a client saw completed
	revived   kind = "put back"      // what was edited by hand
	untold    kind = "untold"        // a loss of which the chat's next run says nothing
	hang      kind = "hung"          // a stream without an end
	unsettled kind = "unsettled"     // never came to rest
)

// violation is one finding.
type violation struct {
	kind    kind
	what    string
	time    time.Time // near which to look for the cause
	chat    *chat
	key     memory.Key
	edited  time.Time // when the message in question was edited by hand; zero for never
	run     string
	seq     int64
	post    *post
	history *stored
}

func (v violation) headline() string {
	var b strings.Builder
	if v.chat != nil {
		fmt.Fprintf(&b, "chat %s ", v.chat.id)
	}
	if v.key != (memory.Key{}) {
		fmt.Fprintf(&b, "history %s ", v.key)
	}
	if v.run != "" {
		fmt.Fprintf(&b, "run %s event %d ", v.run, v.seq)
	}
	return b.String() + v.what
}

// violate enters a finding.
func (l *ledger) violate(v violation) {
	if v.time.IsZero() {
		v.time = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, v)
	if len(l.violations) <= 20 {
		fmt.Fprintf(l.out, "%s FOUND %s: %.200s\n", stamp(time.Now()), v.kind, v.headline())
	}
}

func unixTime(seconds float64) time.Time { return time.UnixMilli(int64(seconds*1000 + 0.5)) }
