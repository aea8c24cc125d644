package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// agents are the subagents of the default configuration.
var agents = []memory.Agent{"analytic", "knowledge"}

func keysOf(ch memory.Chat) []memory.Key {
	keys := []memory.Key{memory.ChatKey(ch)}
	for _, a := range agents {
		keys = append(keys, memory.SubagentKey(a, ch))
	}
	return keys
}

// reader looks at stored histories all the time, straight in Redis: each must be
// an array of messages at every instant, and go on from what it was before.
type reader struct {
	redis   *redis.Client
	ledger  *ledger
	outages *outages
	chats   []*chat
	reads   atomic.Int64
	before  map[memory.Key]seen // used by the reading goroutine only
	gone    []vanished          // written by the reading goroutine, read once it has ended
}

// vanished is a message that was stored and then was not, after Redis had lost data.
type vanished struct {
	chat          *chat
	key           memory.Key
	raw           json.RawMessage
	before, after time.Time // seen last, missed first
}

// seen is a value while nothing was being erased.
type seen struct {
	value  []byte
	at     time.Time
	erased int64 // erasures and edits before it
	losses int   // of Redis before it
}

func newReader(client *redis.Client, l *ledger, chats []*chat, o *outages) *reader {
	return &reader{redis: client, ledger: l, chats: chats, outages: o, before: map[memory.Key]seen{}}
}

func (r *reader) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		ch := r.chats[i%len(r.chats)]
		for _, key := range keysOf(ch.id) {
			r.look(ctx, ch, key)
		}
		select {
		case <-time.After(4 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (r *reader) look(ctx context.Context, ch *chat, key memory.Key) {
	ended, begun := ch.ended.Load(), ch.begun.Load()
	losses, losing := r.outages.state()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	value, err := r.redis.Get(ctx, key.String()).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return // Redis is down or paused
	}
	r.reads.Add(1)
	before, known := r.before[key]
	delete(r.before, key)
	again, still := r.outages.state()
	if quiet := ended == begun && begun == ch.begun.Load() && !losing && !still && losses == again; quiet {
		now := time.Now()
		if known && before.erased == begun && before.losses == losses {
			gone, ok := r.outages.goesOn(before.value, value)
			if !ok {
				r.ledger.violate(violation{kind: rewritten, chat: ch, key: key,
					what: fmt.Sprintf("a history is no longer what it was with more in it:\n    before: …%.600s\n    after:  …%.600s",
						tail(before.value, 600), tail(value, 600))})
			}
			for _, raw := range gone {
				r.gone = append(r.gone, vanished{ch, key, raw, before.at, now})
			}
		}
		r.before[key] = seen{value, now, begun, losses}
	}
	if err == nil {
		if _, err := memory.ParseHistory(key, value); err != nil {
			r.ledger.violate(violation{kind: torn, chat: ch, key: key, what: fmt.Sprintf("%v: …%s", err, tail(value, 600))})
		}
	}
}

// continues says whether after is before with messages behind it.
func continues(before, after []byte) bool {
	open := bytes.TrimSuffix(before, []byte("]"))
	return len(before) == 0 || bytes.Equal(before, after) ||
		bytes.HasPrefix(after, open) && (len(open) == 1 || bytes.HasPrefix(after[len(open):], []byte(",")))
}

// goesOn says whether after is what before has become. Once Redis has lost data, what
// another process writes back may come to stand between older messages, and one that
// was away may take away what it knows to be erased or edited: gone is what is there
// no more, to be judged in the end.
func (o *outages) goesOn(before, after []byte) (gone []json.RawMessage, ok bool) {
	if done, _ := o.state(); done == 0 || continues(before, after) {
		return nil, continues(before, after)
	}
	key := memory.ChatKey(memory.MustChat("x"))
	old, err := memory.ParseHistory(key, before)
	if err != nil {
		return nil, true // reported as torn
	}
	young := memory.Empty(key)
	if len(after) > 0 {
		if young, err = memory.ParseHistory(key, after); err != nil {
			return nil, true
		}
	}
	there := map[string]bool{}
	for _, m := range young.Raw(0) {
		there[string(m)] = true
	}
	rest := young.Raw(0)
	for _, m := range old.Raw(0) {
		if !there[string(m)] {
			gone = append(gone, m)
			continue
		}
		i := slices.IndexFunc(rest, func(n json.RawMessage) bool { return bytes.Equal(m, n) })
		if i < 0 {
			return gone, false // in another order
		}
		rest = rest[i+1:]
	}
	return gone, true
}

func tail(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }

// meters adds up counters of processes that lose them with every life.
type meters struct {
	mu   sync.Mutex
	over map[string]float64            // guarded by mu: of lives that ended
	live map[string]map[string]float64 // guarded by mu: by process
	life map[string]int                // guarded by mu: which life live is of
	http http.Client
}

// counters are those that the report shows.
var counters = []string{
	"mneme_takeovers_total", "mneme_memory_late_total", "mneme_memory_adopted_total", "mneme_memory_stale_total",
	"mneme_memory_lost_total", "mneme_memory_damaged_total", "mneme_memory_deleted_total", "mneme_redis_resets_total",
}

func newMeters() *meters {
	return &meters{
		over: map[string]float64{}, live: map[string]map[string]float64{}, life: map[string]int{},
		http: http.Client{Timeout: time.Second},
	}
}

// scrape reads the counters of a webmemory process.
func (m *meters) scrape(v *service) (values map[string]float64) {
	if v.name != webA && v.name != webB {
		return nil
	}
	v.mu.Lock()
	life := len(v.lives)
	v.mu.Unlock()
	resp, err := m.http.Get("http://" + v.addr + "/metrics")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	values = parseMetrics(raw)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life[v.name] != life {
		for name, value := range m.live[v.name] {
			m.over[name] += value
		}
	}
	m.live[v.name], m.life[v.name] = values, life
	return values
}

func parseMetrics(raw []byte) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			values[name] = value
		}
	}
	return values
}

func (m *meters) total(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.over[name]
	for _, values := range m.live {
		sum += values[name]
	}
	return int(sum)
}

// watch reads, scrapes and prints progress until ctx ends; then it closes what it
// returned.
func (s *soak) watch(ctx context.Context, began time.Time) <-chan struct{} {
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { s.reads.run(ctx) })
	for _, first := range []bool{true, false} {
		all.Go(func() { // each for itself: one may be paused
			for ctx.Err() == nil {
				s.meters.scrape(s.stack.web(first))
				select {
				case <-time.After(250 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Go(func() {
		for {
			select {
			case <-time.After(10 * time.Second):
				s.progress(time.Since(began))
			case <-ctx.Done():
				return
			}
		}
	})
	go func() { all.Wait(); close(over) }()
	return over
}

func (s *soak) progress(age time.Duration) {
	l := s.ledger
	l.mu.Lock()
	refused := 0
	for _, n := range l.counts.refused {
		refused += n
	}
	c, runs, found := l.counts, len(l.runs), len(l.violations)
	l.mu.Unlock()
	s.say("%4.0fs  posts %d, accepted %d, refused %d, broken %d, runs %d, events %d, reads %d, kills %d, terms %d, "+
		"pauses %d, takeovers %d, late %d, erased %d, found %d",
		age.Seconds(), c.posts, c.accepted, refused, c.broken, runs, c.events, s.reads.reads.Load(),
		l.faults.count("", "kill"), l.faults.count("", "term"), l.faults.count("", "pause"),
		s.meters.total("mneme_takeovers_total"), s.meters.total("mneme_memory_late_total"), c.erased, found)
}

// settleWithin bounds how long everything may take to come to rest: leases run
// out, left runs are found and finished, spools are drained.
const settleWithin = 2 * time.Minute

// settle waits until no run is open and no append waits anywhere.
func (s *soak) settle() (time.Duration, error) {
	began := time.Now()
	for {
		open, err := s.reads.redis.ZRange(context.Background(), "turns:open", 0, -1).Result()
		waiting := -1.0
		if a, b := s.meters.scrape(s.stack.web(true)), s.meters.scrape(s.stack.web(false)); a != nil && b != nil {
			waiting = a["mneme_spool_bytes"] + b["mneme_spool_bytes"]
		}
		age := time.Since(began)
		if err == nil && len(open) == 0 && waiting == 0 {
			return age, nil
		}
		if age > settleWithin {
			return age, fmt.Errorf("after %v: turns:open holds %v (%w), the spools %v bytes", settleWithin, open, err, waiting)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// dump writes a file of findings.
func (s *soak) dump(name string, data []byte) {
	path := filepath.Join(s.dir, "found", name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		s.say("a finding could not be kept: %v", err)
	}
}
