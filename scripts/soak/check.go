package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
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

// rereadRuns bounds how many runs are read once more in the end.
const rereadRuns = 400

// stored is one history as it is in the end.
type stored struct {
	chat     *chat
	key      memory.Key
	history  *memory.History
	raw      []string
	messages []memory.Message
}

// time is when message i was made.
func (h *stored) time(i int) time.Time { return unixTime(h.messages[i].Timestamp) }

// checker holds what must be where, and compares it with what is stored.
type checker struct {
	*ledger
	fates    *fates                           // nil: nothing may be lost
	expected map[memory.Key][]expectedMessage // in no order across runs, in theirs within one

	late    int      // messages of blocks that stand behind their turn
	excuses []string // what Redis' losses must cost, and why
}

// expectedMessage is one acknowledged message.
type expectedMessage struct {
	run *run
	seq int64
	raw string
}

// verify checks what the soak has left.
func (c *checker) verify(s *soak) error {
	c.reread(s)
	c.fold()
	keys := map[memory.Key]bool{}
	for _, ch := range s.chats {
		for _, key := range ch.keys() {
			keys[key] = true
			h, err := c.stored(s, ch, key)
			if err != nil {
				return err
			}
			c.history(h)
			c.checkView(s, h)
		}
	}
	c.vanished(s.reads.removed)
	c.checkPosts()
	c.excuseConflicts()
	c.checkResetNotices()
	if late := s.meters.total("mneme_memory_late_total"); c.late > late {
		c.violate(violation{kind: invalid,
			what: fmt.Sprintf("%d messages stand behind their turn, %d were counted late", c.late, late)})
	}
	for _, v := range s.services {
		v.mu.Lock()
		for _, what := range v.crashes {
			c.violate(violation{kind: invalid, what: what})
		}
		v.mu.Unlock()
	}
	return errors.Join(s.words.scanAll(), c.checkStrayKeys(s, keys))
}

// reread reads runs once more on both processes. What comes counts as received:
// it must be what clients got before, and it must be stored.
func (c *checker) reread(s *soak) {
	ids := slices.Sorted(maps.Keys(c.runs))
	s.random(3).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(len(ids), rereadRuns)] {
		r := c.runs[id]
		for _, web := range s.webs() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			a := s.follow(ctx, r.post, web, id, 0)
			cancel()
			v := violation{kind: invalid, chat: r.chat, run: id, seq: a.last, post: r.post, time: r.first().receivedAt}
			switch {
			case a.status == http.StatusOK && a.done:
				c.count("runs read again in the end", 1)
			case a.status == http.StatusOK:
				v.what = fmt.Sprintf("everything is at rest, yet on %s the run has no end after event %d (%s)", web.name, a.last,
					a.code)
				c.violate(v)
			case a.status != http.StatusNotFound && a.status != http.StatusGone:
				v.what = fmt.Sprintf("reading the run on %s gives %d %s", web.name, a.status, a.code)
				c.violate(v)
			}
		}
	}
}

// stored reads one history and checks it against its meta.
func (c *checker) stored(s *soak, ch *chat, key memory.Key) (*stored, error) {
	ctx := context.Background()
	out := &stored{chat: ch, key: key, history: memory.Empty(key)}
	value, err := s.redis.Get(ctx, key.String()).Bytes()
	if errors.Is(err, redis.Nil) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	parsed, err := memory.ParseHistory(key, value)
	if err != nil {
		c.violate(violation{kind: torn, chat: ch, key: key, what: err.Error()})
		return out, nil
	}
	out.history = parsed
	for _, raw := range parsed.Raw(0) {
		out.raw = append(out.raw, string(raw))
	}
	if out.messages, err = parsed.Messages(0); err != nil {
		c.violate(violation{kind: invalid, chat: ch, key: key, what: err.Error()})
	}
	meta, err := s.redis.HGetAll(ctx, "{"+key.String()+"}:meta").Result()
	want := fmt.Sprintf("sum %s len %d count %d", parsed.Sum(), len(value), parsed.Len())
	if have := fmt.Sprintf("sum %s len %s count %s", meta["sum"], meta["len"], meta["count"]); have != want && err == nil {
		c.violate(violation{kind: invalid, chat: ch, key: key, what: "the meta says " + have + ", the value is " + want})
	}
	return out, err
}

// checkView checks that both processes show a history as it is stored.
func (c *checker) checkView(s *soak, h *stored) {
	for _, web := range s.webs() {
		var view []string
		var failed error
		for raw, err := range web.client.Messages(context.Background(), h.key, 0) {
			if failed = err; err == nil {
				view = append(view, string(raw))
			}
		}
		if failed != nil || !slices.Equal(h.raw, view) {
			c.violate(violation{kind: invalid, chat: h.chat, key: h.key, history: h,
				what: fmt.Sprintf("%s shows %d messages that are not the %d stored ones (%v)", web.name, len(view), len(h.raw),
					failed)})
		}
	}
}

// fold turns the received events into messages.
func (c *checker) fold() {
	c.expected = map[memory.Key][]expectedMessage{}
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		r := c.runs[id]
		histories := event.NewHistories(r.chat.id, sink{r, c.expected})
		for _, seq := range r.seqs() {
			_ = histories.Apply(r.events[seq].event) // sink never fails
		}
	}
}

type sink struct {
	run *run
	dst map[memory.Key][]expectedMessage
}

func (s sink) Append(key memory.Key, seq int64, m memory.Message) error {
	s.dst[key] = append(s.dst[key], expectedMessage{s.run, seq, string(m.Encode())})
	return nil
}

// state is what erasures mean for something of a time.
type state int

const (
	intact    state = iota
	erased          // before an erasure: must be gone
	uncertain       // while one was asked for
)

func (ch *chat) stateOf(key memory.Key, t time.Time) state {
	out := intact
	for _, e := range ch.erasures {
		switch {
		case !e.covers(key):
		case t.Before(e.last.Add(-clock)):
			return erased
		case t.Before(e.ack.Add(clock)):
			out = uncertain
		}
	}
	return out
}

// history checks one history message by message.
func (c *checker) history(h *stored) {
	c.count("messages stored in the end", len(h.raw))
	index, ids := map[string]int{}, map[string]int{}
	for i, raw := range h.raw {
		index[raw] = i
		if i < len(h.messages) {
			id := h.messages[i].ID
			if j, twice := ids[id]; twice {
				c.report(h, i, violation{kind: doubled, what: fmt.Sprintf("and message %d have one id", j)})
			}
			ids[id] = i
		}
	}
	for _, w := range c.expected[h.key] {
		began := w.run.events[1].createdAt()
		now := h.chat.stateOf(h.key, began)
		raw, sure, edited := h.chat.edited(h.key, w.raw)
		i, present := index[raw]
		v := violation{run: w.run.id, seq: w.seq, time: w.run.events[w.seq].receivedAt, post: w.run.post}
		switch {
		case now == uncertain, now == intact && !sure, raw == "" && now == intact:
			c.count("not compared: while being erased or edited", 1) // what was removed by hand is looked for below
		case now == intact && !present:
			v.kind, v.what = missing, fmt.Sprintf("acknowledged to %s: %.400s", w.run.events[w.seq].web, w.raw)
			if j, other := ids[memory.MessageID(w.run.id, w.seq)]; other {
				v.kind, v.edited = rewritten, edited
				v.what = fmt.Sprintf("acknowledged was %.400s, stored with this id is %.400s", w.raw, h.raw[j])
			}
			c.report(h, -1, v)
		case now == erased && present:
			v.kind, v.time, v.what = returned, began, "is of a run that was erased"
			c.report(h, i, v)
		default:
			c.count("acknowledged messages compared", 1)
		}
	}
	for _, e := range h.chat.edits { // nothing comes back that was removed or rewritten by hand
		for old := range e.rewrites {
			if i, present := index[old]; present && e.key == h.key && e.sure {
				c.report(h, i, violation{kind: revived, time: e.time, what: "was removed or rewritten by hand"})
			}
		}
	}
	for i, m := range h.messages { // whichever reader it was shown to
		if h.chat.stateOf(h.key, unixTime(m.Timestamp)) == erased {
			c.report(h, i, violation{kind: returned, what: "is from before an erasure"})
		}
		for _, tag := range tagPattern.FindAllStringSubmatch(h.raw[i], -1) {
			if tag[1] != h.chat.tag {
				c.report(h, i, violation{kind: invalid, what: "holds text of another chat, " + tag[1]})
			}
		}
	}
	c.sendable(h, c.structure(h))
}

// tagPattern finds the chats' tags in texts.
var tagPattern = regexp.MustCompile(`(?:^| )(c\d{3,}n)`)

// report enters a finding about a history, and about message i of it unless i is
// negative, if Redis' losses do not excuse it.
func (c *checker) report(h *stored, i int, v violation) {
	v.chat, v.key, v.history = h.chat, h.key, h
	if i >= 0 {
		v.what = fmt.Sprintf("message %d %s: %.300s", i, v.what, h.raw[i])
		if v.time.IsZero() {
			v.time = h.time(i)
		}
	}
	if why := c.excuse(h, v); why != "" {
		c.excused(v, why)
		return
	}
	c.violate(v)
}

// checkPosts checks each message of a writer: it ran once at most, what a JSON answer
// said is there, and what was refused left nothing.
func (c *checker) checkPosts() {
	for _, p := range c.posts {
		runs, answered, ran, unheard := map[string]bool{}, map[string]bool{}, false, 0
		for _, a := range p.attempts {
			ran = ran || !a.refused()
			if a.run == "" {
				if a.status == 0 { // it may have begun a further run of which nothing was heard
					unheard++
				}
				continue
			}
			runs[a.run] = true
			// What failed may have been tried once more; what was answered may not.
			if r := c.runs[a.run]; r != nil && r.answered() {
				answered[a.run] = true
			}
		}
		positions := p.chat.positions[p.text]
		v := violation{chat: p.chat, key: memory.ChatKey(p.chat.id), post: p, time: p.sentAt}
		if p.key != "" && len(answered) > 1 {
			v.kind, v.what = invalid, fmt.Sprintf("one Idempotency-Key, %d runs that were answered: %v", len(answered),
				slices.Sorted(maps.Keys(answered)))
			c.violate(v)
		}
		if len(positions) > max(1, len(runs)+unheard) {
			v.kind, v.what = doubled, fmt.Sprintf("a message that was posted once is stored at %v: %.200s", positions, p.text)
			c.violate(v)
		}
		if !ran && len(p.attempts) > 0 && len(positions) > 0 {
			v.kind, v.what = ghost, fmt.Sprintf("every attempt was refused, and yet it is stored at %v: %.200s", positions,
				p.text)
			c.violate(v)
		}
		for _, a := range p.answers {
			c.answer(v, a, len(positions) > 0)
		}
	}
}

// answer checks one JSON answer of a post against the chat's history.
func (c *checker) answer(v violation, a answer, present bool) {
	ch := v.chat
	wasErased := func(e erasure) bool { return e.covers(v.key) && e.ack.After(v.post.sentAt) }
	wasEdited := func(e edit) bool { return e.key == v.key && e.userMessage == v.post.text }
	v.kind, v.run = missing, a.run
	switch {
	case slices.ContainsFunc(ch.erasures, wasErased), slices.ContainsFunc(ch.edits, wasEdited),
		c.fates.lossReason(ch, v.key, c.runs[a.run], a.receivedAt) != "":
		c.count("not compared: while being erased or edited", 1)
	case !present:
		v.what = fmt.Sprintf("answered with 200, but the message is not stored: %.200s", v.post.text)
		c.violate(v)
	case a.content != "" && ch.replies[a.run] != a.content:
		v.what = fmt.Sprintf("answered with 200 and %.200q, stored as the answer of the run is %.200q", a.content,
			ch.replies[a.run])
		c.violate(v)
	default:
		c.count("acknowledged messages compared", 1)
	}
}

// vanished judges what was no more there after Redis had lost data. What had been
// erased or edited may go when a process comes back that knows that; with it what lay
// before an edit, and had been lost before it came back from somewhere.
func (c *checker) vanished(list []vanished) {
	for _, x := range list {
		m, err := memory.Decode([]json.RawMessage{x.raw})
		if err != nil {
			continue // reported as torn
		}
		createdAt := unixTime(m[0].Timestamp)
		_, _, touched := x.chat.edited(x.key, string(x.raw))
		name := memory.RunOf(m[0].ID)
		why := ""
		switch {
		case x.chat.stateOf(x.key, createdAt) != intact:
			why = "it had been erased"
		case !touched.IsZero() && touched.Before(x.lastSeen):
			why = "it had been edited by hand"
		case createdAt.Before(x.chat.lastEdit(x.key, x.lastSeen)):
			why = c.fates.lossReasonUntil(x.chat, x.key, c.runs[name], createdAt, x.lastSeen)
		}
		v := violation{kind: rewritten, chat: x.chat, key: x.key, run: name, time: x.firstMissed,
			what: fmt.Sprintf("a message was there at %s and is no more: %.300s", stamp(x.lastSeen), x.raw)}
		if why == "" {
			c.violate(v)
			continue
		}
		c.excused(v, why)
	}
}

// checkStrayKeys looks for keys that should not be there.
func (c *checker) checkStrayKeys(s *soak, keys map[memory.Key]bool) error {
	ctx := context.Background()
	return s.scan(ctx, "*", func(name string) error {
		if key, ok := memory.ParseKey(name); ok && !keys[key] {
			c.violate(violation{kind: invalid, what: "a history that nobody wrote: " + name})
		}
		if strings.Contains(name, ":damaged:") {
			value, _ := s.redis.Get(ctx, name).Bytes()
			c.violate(violation{kind: torn, what: fmt.Sprintf("a history was set aside as damaged: %s: …%s", name,
				tail(value, 300))})
		}
		return nil
	})
}
