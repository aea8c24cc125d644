package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/event"
)

// clock is how far apart the times of one machine may look: events carry
// milliseconds.
const clock = 2 * time.Millisecond

// findings are the totals of the check at the end.
type findings struct {
	stored, checked int // messages
	late            int // of blocks that stand behind their turn
	maybe           int // acknowledged while their chat was being erased
	replayed        int // runs read once more
	told            int // losses that a run told of

	lost, followed int      // messages that Redis' losses must cost, and findings that follow
	excuses        []string // what and why
}

// stored is one history as it is in the end.
type stored struct {
	chat     *chat
	key      memory.Key
	history  *memory.History
	raw      []string
	messages []memory.Message
}

// time is when message i was made.
func (h *stored) time(i int) time.Time {
	return time.UnixMilli(int64(h.messages[i].Timestamp*1000 + 0.5))
}

// verify compares what was acknowledged with what is stored.
func (s *soak) verify() (*findings, error) {
	found := &findings{}
	s.reread(found)
	check := &checker{ledger: s.ledger, found: found, wanted: map[memory.Key][]wanted{}, fates: s.fates()}
	check.fold()
	known := map[memory.Key]bool{}
	for _, ch := range s.chats {
		for _, key := range keysOf(ch.id) {
			known[key] = true
			h, err := s.stored(ch, key)
			if err != nil {
				return nil, err
			}
			check.history(h)
			s.compareReads(h)
		}
	}
	check.vanished(s.reads.gone)
	check.posts()
	check.excuseConflicts()
	check.told(s)
	if err := s.words.all(); err != nil {
		return nil, err
	}
	if late := s.meters.total("mneme_memory_late_total"); found.late > late {
		s.ledger.violate(violation{
			kind: invalid, what: fmt.Sprintf("%d messages stand behind their turn, %d were counted late", found.late, late),
		})
	}
	s.crashes()
	return found, s.strange(known)
}

// stored reads one history and checks it against its meta.
func (s *soak) stored(ch *chat, key memory.Key) (*stored, error) {
	ctx := context.Background()
	value, err := s.reads.redis.Get(ctx, key.String()).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	out := &stored{chat: ch, key: key, history: memory.Empty(key)}
	if errors.Is(err, redis.Nil) {
		return out, nil
	}
	if out.history, err = memory.ParseHistory(key, value); err != nil {
		s.ledger.violate(violation{kind: torn, chat: ch, key: key, what: err.Error()})
		out.history = memory.Empty(key)
		return out, nil
	}
	for _, raw := range out.history.Raw(0) {
		out.raw = append(out.raw, string(raw))
	}
	if out.messages, err = out.history.Messages(0); err != nil {
		s.ledger.violate(violation{kind: invalid, chat: ch, key: key, what: err.Error()})
	}
	meta, err := s.reads.redis.HGetAll(ctx, "{"+key.String()+"}:meta").Result()
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("sum %s len %d count %d", out.history.Sum(), len(value), out.history.Len())
	if have := fmt.Sprintf("sum %s len %s count %s", meta["sum"], meta["len"], meta["count"]); have != want {
		s.ledger.violate(violation{kind: invalid, chat: ch, key: key, what: "the meta says " + have + ", the value is " +
			want})
	}
	return out, nil
}

// checker holds what must be where.
type checker struct {
	ledger *ledger
	found  *findings
	wanted map[memory.Key][]wanted // in no order across runs, in theirs within one
	fates  *fates                  // nil: nothing may be lost
}

// wanted is one acknowledged message.
type wanted struct {
	run     *run
	seq     int64
	raw     string
	started float64 // of its run, Unix seconds
}

// fold turns the received events into messages.
func (c *checker) fold() {
	for _, id := range slices.Sorted(maps.Keys(c.ledger.runs)) {
		r := c.ledger.runs[id]
		sink := &collect{run: r, into: c.wanted, started: r.events[1].event.TS}
		histories := event.NewHistories(r.chat.id, sink)
		for _, seq := range slices.Sorted(maps.Keys(r.events)) {
			if err := histories.Apply(r.events[seq].event); err != nil {
				panic(err) // collect never fails
			}
		}
	}
}

// collect is the fold's sink.
type collect struct {
	run     *run
	into    map[memory.Key][]wanted
	started float64
}

func (c *collect) Append(key memory.Key, seq int64, m memory.Message) error {
	c.into[key] = append(c.into[key], wanted{c.run, seq, string(m.Encode()), c.started})
	return nil
}

// state is what erasures mean for something of a time.
type state int

const (
	kept   state = iota
	erased       // before an erasure: must be gone
	either       // while one was asked for
)

func (ch *chat) stateOf(key memory.Key, seconds float64) state {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	at, out := time.UnixMilli(int64(seconds*1000+0.5)), kept
	for _, e := range ch.erasures {
		switch {
		case !e.covers(key):
		case at.Before(e.last.Add(-clock)):
			return erased
		case at.Before(e.ack.Add(clock)):
			out = either
		}
		// Attempts before the last one may have erased something too.
		if e.covers(key) && !at.Before(e.first) && at.Before(e.ack.Add(clock)) {
			out = either
		}
	}
	return out
}

// history checks one history message by message.
func (c *checker) history(h *stored) {
	c.found.stored += len(h.raw)
	where, ids := map[string]int{}, map[string]int{}
	for i, raw := range h.raw {
		where[raw] = i
		if i < len(h.messages) {
			id := h.messages[i].ID
			if j, twice := ids[id]; twice {
				c.report(h, violation{kind: doubled, at: h.time(i), what: fmt.Sprintf("messages %d and %d have one id: %.300s", j,
					i, raw)})
			}
			ids[id] = i
		}
	}
	for _, w := range c.wanted[h.key] {
		at := time.UnixMilli(int64(w.started * 1000))
		now := h.chat.stateOf(h.key, w.started)
		raw, sure, edited := h.chat.edited(h.key, w.raw)
		i, there := where[raw]
		v := violation{run: w.run.id, seq: w.seq, at: w.run.events[w.seq].at, post: w.run.post}
		switch {
		case now == either, now == kept && !sure, raw == "" && now == kept:
			c.found.maybe++ // what was removed by hand is looked for below
		case now == kept && !there:
			v.kind, v.what = lost, fmt.Sprintf("acknowledged to %s: %.400s", w.run.events[w.seq].web, w.raw)
			if j, other := ids[memory.MessageID(w.run.id, w.seq)]; other {
				v.kind, v.what, v.edited = rewritten, fmt.Sprintf("acknowledged was %.400s, stored with this id is %.400s", w.raw,
					h.raw[j]), edited
			}
			c.report(h, v)
		case now == erased && there:
			v.kind, v.what, v.at = returned, fmt.Sprintf("message %d of a run of %s was erased: %.300s", i,
				at.Format("15:04:05.000"), w.raw), at
			c.report(h, v)
		default:
			c.found.checked++
		}
	}
	c.edits(h, where)
	c.times(h)
	c.sendable(h, c.structure(h))
}

// times looks for messages from before an erasure, whoever they were shown to, and
// for texts of other chats.
func (c *checker) times(h *stored) {
	for i, m := range h.messages {
		if h.chat.stateOf(h.key, m.Timestamp) == erased {
			c.report(h, violation{kind: returned, at: h.time(i),
				what: fmt.Sprintf("message %d is from before an erasure: %.300s", i, h.raw[i])})
		}
		for _, tag := range tags(h.raw[i]) {
			if tag != h.chat.tag {
				c.report(h, violation{
					kind: invalid, at: h.time(i), what: fmt.Sprintf("message %d holds text of another chat (%s): %.300s", i, tag,
						h.raw[i]),
				})
			}
		}
	}
}

// tags finds the chats' marks, "c017n", in a text.
func tags(s string) []string {
	var found []string
	for i := 0; i+5 <= len(s); i++ {
		t := s[i : i+5]
		digits := t[1] >= '0' && t[1] <= '9' && t[2] >= '0' && t[2] <= '9' && t[3] >= '0' && t[3] <= '9'
		if t[0] == 'c' && t[4] == 'n' && digits && (i == 0 || s[i-1] == ' ') && !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	return found
}

// posts checks each message of a writer: it ran once at most, what a JSON answer
// said is there, and what was refused left nothing.
func (c *checker) posts() {
	c.ledger.mu.Lock()
	posts := slices.Clone(c.ledger.posts)
	c.ledger.mu.Unlock()
	for _, p := range posts {
		runs := map[string]bool{}
		ran := false
		for _, a := range p.attempts {
			if a.run != "" {
				runs[a.run] = true
			}
			ran = ran || !a.refused()
		}
		// What failed may have been tried once more; what was answered may not.
		answered := maps.Clone(runs)
		maps.DeleteFunc(answered, func(id string, _ bool) bool { r := c.ledger.runs[id]; return r == nil || !r.answered() })
		if p.key != "" && len(answered) > 1 {
			c.ledger.violate(violation{kind: invalid, chat: p.chat, post: p, at: p.sent,
				what: fmt.Sprintf("one Idempotency-Key, %d runs that were answered: %v", len(answered),
					slices.Sorted(maps.Keys(answered)))})
		}
		said := p.chat.said[p.text]
		if len(said) > max(1, len(runs)) {
			c.ledger.violate(violation{kind: doubled, chat: p.chat, key: memory.ChatKey(p.chat.id), post: p, at: p.sent,
				what: fmt.Sprintf("a message that was posted once is stored %d times, at %v: %.200s", len(said), said, p.text)})
		}
		if !ran && len(p.attempts) > 0 && len(said) > 0 {
			c.ledger.violate(violation{kind: ghost, chat: p.chat, key: memory.ChatKey(p.chat.id), post: p, at: p.sent,
				what: fmt.Sprintf("every attempt was refused, and yet it is stored at %v: %.200s", said, p.text)})
		}
		c.answers(p, said)
	}
}

// answers checks the JSON answers of a post against the chat's history.
func (c *checker) answers(p *post, said []int) {
	key := memory.ChatKey(p.chat.id)
	for _, a := range p.answers {
		begun := float64(p.sent.UnixMilli()) / 1000
		end := float64(time.Now().UnixMilli()) / 1000
		if p.chat.touched(key, begun, end) || p.chat.handled(key, p.text) {
			c.found.maybe++
			continue
		}
		if r := c.ledger.runs[a.RunID]; c.fates.lost(p.chat, key, r, a.at) != "" {
			c.found.maybe++
			continue
		}
		if len(said) == 0 {
			c.ledger.violate(violation{kind: lost, chat: p.chat, key: key, run: a.RunID, post: p, at: p.sent,
				what: fmt.Sprintf("answered with 200, but the message is not stored: %.200s", p.text)})
			continue
		}
		if a.Content != "" && p.chat.replies[a.RunID] != a.Content {
			c.ledger.violate(violation{kind: lost, chat: p.chat, key: key, run: a.RunID, post: p, at: p.sent,
				what: fmt.Sprintf("answered with 200 and %.200q, stored as the answer of the run is %.200q", a.Content,
					p.chat.replies[a.RunID])})
		}
		c.found.checked++
	}
}

// touched says whether an erasure of key ended after from and began before to.
func (ch *chat) touched(key memory.Key, from, to float64) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.ContainsFunc(ch.erasures, func(e erasure) bool {
		return e.covers(key) && float64(e.ack.UnixMilli())/1000 >= from && float64(e.first.UnixMilli())/1000 <= to
	})
}

// report enters a finding about a history.
func (c *checker) report(h *stored, v violation) {
	v.chat, v.key, v.history = h.chat, h.key, h
	if c.excuse(h, v) {
		return
	}
	c.ledger.violate(v)
}

// crashes are ends that nobody here caused.
func (s *soak) crashes() {
	for _, v := range s.stack.services {
		v.mu.Lock()
		for _, what := range v.crashes {
			s.ledger.violate(violation{kind: invalid, what: what})
		}
		v.mu.Unlock()
	}
}

// strange looks for keys that should not be there.
func (s *soak) strange(known map[memory.Key]bool) error {
	ctx := context.Background()
	keys := s.reads.redis.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		name := keys.Val()
		if key, ok := memory.ParseKey(name); ok && !known[key] {
			s.ledger.violate(violation{kind: invalid, what: "a history that nobody wrote: " + name})
		}
		if strings.Contains(name, ":damaged:") {
			value, _ := s.reads.redis.Get(ctx, name).Bytes()
			s.ledger.violate(violation{kind: torn, what: fmt.Sprintf("a history was set aside as damaged: %s: …%s", name,
				tail(value, 300))})
		}
	}
	return keys.Err()
}

// equal compares message bytes.
func equal(a []string, b [][]byte) bool {
	return slices.EqualFunc(a, b, func(x string, y []byte) bool { return bytes.Equal([]byte(x), y) })
}
