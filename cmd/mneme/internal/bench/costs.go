package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// lease is longer than any turn of the benchmark.
const lease = 15 * time.Second

// Names of the ways that are compared.
const (
	wayTurn    = "turn: take lease, prove 2 histories, append 2, release"
	wayAppend  = "prove 1 history, append 2"
	wayRewrite = "rewriting all: GET, parse, append 2, SET"
	wayCold    = "cold load, nothing cached"
	wayGet     = "bare GET"
	wayGetSet  = "bare GET, SET of the same bytes"
	wayRange   = "bare SETRANGE twice, nothing checked"
	wayPing    = "bare PING"
)

// bed is what one size is measured on: a chat's history and that of a subagent,
// with equal content.
type bed struct {
	messages int
	chat     memory.Chat
	loaded   []*memory.History // the chat's and the subagent's, as they are put back before a batch
	kept     []string          // what reset copies from, in pairs with live
	live     []string
	pristine string // the array as it was prepared, written by nobody
	scratch  string
	size     int64 // bytes of the array
}

// lab measures every way on every bed.
type lab struct {
	client *redis.Client
	store  *redisstore.Store
	cache  *cache.Cache
	name   string // in every key of the run
	turn   int64  // a number that outlives the batch, for ways without a lease
	marks  int
	pair   [2]memory.Message // what every turn appends
}

// way is one row of the table.
type way struct {
	name string
	ops  func(bed) int // how often in one batch
	do   func(ctx context.Context, b *bed) error
}

func (l *lab) ways() []way {
	often := func(bed) int { return 25 }
	// What moves the whole array is repeated less the larger it is.
	byBytes := func(b bed) int { return int(max(1, min(10, 2_000_000/b.size))) }
	return []way{
		{wayTurn, often, l.wholeTurn},
		{wayAppend, often, l.proveAndAppend},
		{wayRewrite, byBytes, l.rewriteAll},
		{wayCold, byBytes, l.coldLoad},
		{wayGet, byBytes, l.bareGet},
		{wayGetSet, byBytes, l.bareGetSet},
		{wayRange, often, l.bareRange},
		{wayPing, often, func(ctx context.Context, _ *bed) error { return l.client.Ping(ctx).Err() }},
	}
}

// costs measures in rounds of every size and every way, so that whatever slows
// the machine for a while slows all of them.
func costs(ctx context.Context, client *redis.Client, name string, o Options) ([]Cost, error) {
	store := redisstore.New(client, zerolog.Nop())
	l := &lab{client: client, store: store, cache: cache.New(store, 1<<30), name: name, pair: exchange()}
	var beds []*bed
	for _, n := range o.Sizes {
		o.Progress(fmt.Sprintf("preparing a history of %s messages", count(n)))
		b, err := l.prepare(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("preparing a history of %d messages: %w", n, err)
		}
		beds = append(beds, b)
	}
	ways := l.ways()
	taken := make(map[string][][]sample) // by way, then size, then run
	for run := range o.Runs {
		o.Progress(fmt.Sprintf("run %d of %d", run+1, o.Runs))
		for i, b := range beds {
			for _, w := range ways {
				s, err := l.batch(ctx, w, b)
				if err != nil {
					return nil, fmt.Errorf("%s, with %d messages: %w", w.name, b.messages, err)
				}
				if taken[w.name] == nil {
					taken[w.name] = make([][]sample, len(beds))
				}
				taken[w.name][i] = append(taken[w.name][i], s)
			}
		}
	}
	var table []Cost
	for _, w := range ways {
		for i, b := range beds {
			table = append(table, newCost(w.name, b, taken[w.name][i], taken[w.name][0], taken[wayAppend][i], taken[wayGet][i]))
		}
	}
	return table, nil
}

// prepare stores n messages as another program would and lets the store take
// them over.
func (l *lab) prepare(ctx context.Context, n int) (*bed, error) {
	chat, err := memory.ParseChat(l.name + ":" + strconv.Itoa(n))
	if err != nil {
		return nil, err
	}
	value := array(n)
	b := &bed{messages: n, chat: chat, size: int64(len(value)), scratch: "scratch:" + chat.String()}
	taken, err := l.store.Take(ctx, chat, l.name, l.name, lease)
	if err != nil {
		return nil, err
	}
	l.turn = max(l.turn, taken.Number)
	for _, key := range []memory.Key{memory.ChatKey(chat), memory.SubagentKey("analytic", chat)} {
		if err := l.client.Set(ctx, key.String(), value, 0).Err(); err != nil {
			return nil, err
		}
		b.loaded = append(b.loaded, memory.Empty(key))
		b.live = append(b.live, key.String(), "{"+key.String()+"}:meta")
	}
	if b.loaded, err = l.store.Load(ctx, l.turn, b.loaded...); err != nil {
		return nil, err
	}
	for _, live := range b.live {
		b.kept = append(b.kept, "kept:"+live)
	}
	b.pristine = b.kept[0]
	if err := copyKeys(ctx, l.client, b.live, b.kept); err != nil {
		return nil, err
	}
	return b, l.store.Release(ctx, chat, l.name)
}

// reset makes a bed what it was after prepare, in Redis and in the cache.
func (l *lab) reset(ctx context.Context, b *bed) error {
	for _, h := range b.loaded {
		l.cache.Put(h)
	}
	if err := copyKeys(ctx, l.client, []string{b.pristine}, []string{b.scratch}); err != nil {
		return err
	}
	return copyKeys(ctx, l.client, b.kept, b.live)
}

// copyKeys copies inside Redis.
func copyKeys(ctx context.Context, client *redis.Client, from, to []string) error {
	for i := range from {
		n, err := client.Copy(ctx, from[i], to[i], client.Options().DB, true).Result()
		if err == nil && n == 0 {
			err = errors.New("the key is gone")
		}
		if err != nil {
			return fmt.Errorf("copying %s: %w", from[i], err)
		}
	}
	return nil
}

// sample is the mean cost of an operation in one batch.
type sample struct {
	micros             float64
	toRedis, fromRedis float64 // bytes
}

// batch measures one way on a bed as it was prepared. The first operation is not
// counted: it pays for memory that the copied value does not have yet.
func (l *lab) batch(ctx context.Context, w way, b *bed) (sample, error) {
	if err := l.reset(ctx, b); err != nil {
		return sample{}, err
	}
	if err := w.do(ctx, b); err != nil {
		return sample{}, err
	}
	runtime.GC() // nobody pays for the garbage of the way before
	var traffic [3][2]float64
	var err error
	for i := range 2 { // twice, to know what asking costs itself
		if traffic[i], err = l.traffic(ctx); err != nil {
			return sample{}, err
		}
	}
	n := w.ops(*b)
	began := time.Now()
	for range n {
		if err := w.do(ctx, b); err != nil {
			return sample{}, err
		}
	}
	took := time.Since(began)
	if traffic[2], err = l.traffic(ctx); err != nil {
		return sample{}, err
	}
	bytes := func(i int) float64 {
		asking := traffic[1][i] - traffic[0][i]
		return math.Max(0, traffic[2][i]-traffic[1][i]-asking) / float64(n)
	}
	return sample{micros: float64(took.Nanoseconds()) / 1e3 / float64(n), toRedis: bytes(0), fromRedis: bytes(1)}, nil
}

// traffic is how many bytes Redis has read and written since it started.
func (l *lab) traffic(ctx context.Context) (bytes [2]float64, err error) {
	info, err := l.client.InfoMap(ctx, "stats").Result()
	if err != nil {
		return bytes, err
	}
	for i, field := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		if bytes[i], err = strconv.ParseFloat(info["Stats"][field], 64); err != nil {
			return bytes, fmt.Errorf("INFO stats does not tell %s: %w", field, err)
		}
	}
	return bytes, nil
}

// wholeTurn is what webmemory does for a turn, as far as it concerns Redis.
func (l *lab) wholeTurn(ctx context.Context, b *bed) error {
	token := rand.Text()
	turn, err := l.store.Take(ctx, b.chat, token, l.name, lease)
	if err != nil {
		return err
	}
	current, err := l.cache.Load(ctx, turn.Number, memory.Empty(b.loaded[0].Key()), memory.Empty(b.loaded[1].Key()))
	if err != nil {
		return err
	}
	if err := l.append(ctx, current[0], turn.Number); err != nil {
		return err
	}
	return l.store.Release(ctx, b.chat, token)
}

func (l *lab) proveAndAppend(ctx context.Context, b *bed) error {
	current, err := l.cache.Load(ctx, l.turn, memory.Empty(b.loaded[0].Key()))
	if err != nil {
		return err
	}
	return l.append(ctx, current[0], l.turn)
}

func (l *lab) append(ctx context.Context, h *memory.History, turn int64) (err error) {
	l.marks++
	run := fmt.Sprintf("RUN%023d", l.marks) // as long as a real one
	for i, m := range l.pair {
		if h, err = l.cache.Append(ctx, h, memory.Mark{Run: run, Seq: int64(i + 1), Turn: turn}, m.Encode()); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) rewriteAll(ctx context.Context, b *bed) error {
	return rewriteAppend(ctx, l.client, b.pristine, b.scratch, l.pair[:]...)
}

func (l *lab) coldLoad(ctx context.Context, b *bed) error {
	loaded, err := l.store.Load(ctx, 0, memory.Empty(b.loaded[0].Key()))
	if err == nil && loaded[0].Len() != b.messages {
		err = fmt.Errorf("%d messages were loaded", loaded[0].Len())
	}
	return err
}

func (l *lab) bareGet(ctx context.Context, b *bed) error {
	return l.client.Get(ctx, b.pristine).Err()
}

func (l *lab) bareGetSet(ctx context.Context, b *bed) error {
	value, err := l.client.Get(ctx, b.pristine).Bytes()
	if err != nil {
		return err
	}
	return l.client.Set(ctx, b.scratch, value, 0).Err()
}

// bareRange writes behind the array, always at the same place.
func (l *lab) bareRange(ctx context.Context, b *bed) error {
	at := b.size - 1
	for _, m := range l.pair {
		spliced := "," + string(m.Encode()) + "]"
		if err := l.client.SetRange(ctx, b.scratch, at, spliced).Err(); err != nil {
			return err
		}
		at += int64(len(spliced)) - 1
	}
	return nil
}
