package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/stack"
	"mneme/memory"
)

// reader looks at stored histories all the time, straight in Redis: each must be
// an array of messages at every instant, and go on from what it was before.
type reader struct {
	*soak
	// begins and ends of losses of Redis, with the time to write back: odd while one goes on
	losses    atomic.Int64
	reads     atomic.Int64            // of histories
	snapshots map[memory.Key]snapshot // used by the reading goroutine only
	removed   []vanished              // written by the reading goroutine, read once it has ended
}

// vanished is a message that was stored and then was not, after Redis had lost data.
type vanished struct {
	chat                  *chat
	key                   memory.Key
	raw                   json.RawMessage
	lastSeen, firstMissed time.Time // seen last, missed first
}

// quiet tells two moments apart between which something was erased, edited or lost.
type quiet struct{ changes, losses int64 }

// now is ok if nothing of that goes on.
func (r *reader) now(ch *chat) (q quiet, ok bool) {
	q = quiet{ch.changes.Load(), r.losses.Load()}
	return q, q.changes%2 == 0 && q.losses%2 == 0
}

// snapshot is a value while nothing was being erased, edited or lost.
type snapshot struct {
	value []byte
	time  time.Time
	quiet
}

func (r *reader) run(ctx context.Context) {
	for i := 0; sleep(ctx, 4*time.Millisecond); i++ {
		ch := r.chats[i%len(r.chats)]
		for _, key := range ch.keys() {
			r.look(ctx, ch, key)
		}
	}
}

func (r *reader) look(ctx context.Context, ch *chat, key memory.Key) {
	start, stable := r.now(ch)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	value, err := r.redis.Get(ctx, key.String()).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return // Redis is down or paused
	}
	r.reads.Add(1)
	if _, err := memory.ParseHistory(key, value); len(value) > 0 && err != nil {
		r.violate(violation{kind: torn, chat: ch, key: key, what: fmt.Sprintf("%v: …%s", err, tail(value, 600))})
	}
	prev, hasPrev := r.snapshots[key]
	delete(r.snapshots, key)
	if end, _ := r.now(ch); !stable || end != start {
		return
	}
	now := time.Now()
	r.snapshots[key] = snapshot{value, now, start}
	if !hasPrev || prev.quiet != start {
		return
	}
	removed, ok := compareHistory(prev.value, value, start.losses > 0)
	if !ok {
		r.violate(violation{kind: rewritten, chat: ch, key: key,
			what: fmt.Sprintf("a history is no longer what it was with more in it:\n    before: …%s\n    after:  …%s",
				tail(prev.value, 600), tail(value, 600))})
	}
	for _, raw := range removed {
		r.removed = append(r.removed, vanished{ch, key, raw, prev.time, now})
	}
}

// compareHistory says whether after is before with messages behind it. Once Redis has lost data,
// what another process writes back may come to stand between older messages, and one that
// was away may take away what it knows to be erased or edited: gone is what is there
// no more, to be judged in the end.
func compareHistory(prev, next []byte, losses bool) (removed []json.RawMessage, ok bool) {
	open := bytes.TrimSuffix(prev, []byte("]"))
	if len(prev) == 0 || bytes.Equal(prev, next) ||
		bytes.HasPrefix(next, open) && (len(open) == 1 || bytes.HasPrefix(next[len(open):], []byte(","))) {
		return nil, true
	}
	if !losses {
		return nil, false
	}
	var old, rest []json.RawMessage // what is not read is reported as torn
	_, _ = json.Unmarshal(prev, &old), json.Unmarshal(next, &rest)
	for messages := slices.Clip(rest); len(old) > 0; old = old[1:] {
		same := func(m json.RawMessage) bool { return bytes.Equal(m, old[0]) }
		if !slices.ContainsFunc(messages, same) {
			removed = append(removed, old[0])
			continue
		}
		i := slices.IndexFunc(rest, same)
		if i < 0 {
			return removed, false // in another order
		}
		rest = rest[i+1:]
	}
	return removed, true
}

func tail(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }

// meters keeps the last counters of each life of the webmemory processes: they start
// again from nothing with every life.
type meters struct {
	mu   sync.Mutex
	last map[*span]map[string]float64 // guarded by mu: by the life
}

// scrape reads the counters of a webmemory process; nil if it does not answer.
func (m *meters) scrape(v *service) map[string]float64 {
	if !strings.HasPrefix(v.name, "webmemory-") {
		return nil
	}
	now := time.Now()
	life := v.life(now, now)
	values, err := stack.Metrics(v.addr)
	if err != nil || life == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[*span]map[string]float64{}
	}
	m.last[life] = values
	return values
}

// total is a counter summed over all lives.
func (m *meters) total(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := 0.0
	for _, values := range m.last {
		sum += values[name]
	}
	return int(sum)
}

// watch reads, scrapes and prints progress until ctx ends.
func (s *soak) watch(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() { s.reads.run(ctx) })
	for _, web := range s.webs() {
		wg.Go(func() { // each for itself: one may be paused
			for sleep(ctx, 250*time.Millisecond) {
				s.meters.scrape(web)
			}
		})
	}
	wg.Go(func() {
		for sleep(ctx, 10*time.Second) {
			open := int(s.redis.ZCard(ctx, "turns:open").Val())
			s.count("answers open at once, at most", max(0, open-s.counted("answers open at once, at most")))
			s.mu.Lock()
			line := fmt.Sprintf("open %d, runs %d, faults %d, found %d", open, len(s.runs), len(s.faults), len(s.violations))
			for _, name := range []string{"posts", "accepted", "refused", "no response", "events", "erasures"} {
				line += fmt.Sprintf(", %s %d", name, s.counts[name])
			}
			s.mu.Unlock()
			s.say("%4.0fs  %s, reads %d, takeovers %d, late %d", time.Since(s.began).Seconds(), line, s.reads.reads.Load(),
				s.meters.total("mneme_takeovers_total"), s.meters.total("mneme_memory_late_total"))
		}
	})
	return &wg
}

// settleWithin bounds how long everything may take to come to rest: leases run
// out, left runs are found and finished, spools are drained.
const settleWithin = 2 * time.Minute

// settle waits until no run is open and no append waits anywhere.
func (s *soak) settle() error {
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		open, err := s.redis.ZRange(context.Background(), "turns:open", 0, -1).Result()
		waiting := -1.0
		for _, web := range s.webs() {
			values := s.meters.scrape(web)
			if values == nil {
				waiting = -1
				break
			}
			waiting = max(waiting, 0) + values["mneme_spool_bytes"]
		}
		if err == nil && len(open) == 0 && waiting == 0 {
			s.say("at rest after %v: no open run, spools empty", time.Since(began).Round(100*time.Millisecond))
			return nil
		}
		if time.Since(began) > settleWithin {
			return fmt.Errorf("after %v: turns:open holds %v (%w), the spools %v bytes", settleWithin, open, err, waiting)
		}
	}
}
