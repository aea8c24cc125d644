package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// process is one of several over one Redis, each with a cache of its own.
type process struct {
	t *testing.T
	*redisstore.Store
	*cache.Cache
}

func newProcess(t *testing.T, server *redistest.Server) process {
	s := redisstore.New(server.Client(), zerolog.Nop())
	return process{t, s, cache.New(s, 1<<24)}
}

func (p process) Load(turn int64) *memory.History {
	p.t.Helper()
	return loadFrom(p.t, p.Cache, turn, memory.Empty(key))
}

// run is a turn in which a run asks and is answered, at a time in seconds.
func (p process) run(name string, at int64) *memory.History {
	p.t.Helper()
	h := p.Load(at * 1000)
	for seq, role := range []string{memory.RoleUser, memory.RoleAssistant} {
		m := memory.Message{
			Role: role, Content: fmt.Sprint(name, seq+1), Timestamp: float64(at) + float64(seq)/10,
			ID: memory.MessageID(name, int64(seq+1)),
		}
		var err error
		h, err = p.Cache.Append(ctx, h, memory.Mark{Run: name, Seq: int64(seq + 1), Turn: at * 1000}, m.Encode())
		require.NoError(p.t, err)
	}
	return h
}

func (p process) writeBack() int {
	p.t.Helper()
	copies, before := p.List(), p.Counts.Recovered.Load()
	current, err := p.WriteBack(ctx, copies...)
	require.NoError(p.t, err)
	for i, h := range current {
		if h != nil {
			p.Refresh(copies[i], h)
		}
	}
	return int(p.Counts.Recovered.Load() - before)
}

func said2(runs ...string) (out []string) {
	for _, r := range runs {
		out = append(out, r+"1", r+"2")
	}
	return out
}

func stored(t *testing.T, client *redis.Client) []string {
	t.Helper()
	value, err := client.Get(ctx, key.String()).Bytes()
	require.NoError(t, err)
	h, err := memory.ParseHistory(key, value)
	require.NoError(t, err)
	meta := client.HGetAll(ctx, "{"+key.String()+"}:meta").Val()
	require.Equal(t, h.Sum().String(), meta["sum"])
	require.Equal(t, fmt.Sprint(len(value)), meta["len"])
	require.Equal(t, fmt.Sprint(h.Len()), meta["count"])
	return contents(t, h)
}

// A chat was used on A; Redis loses its data; one run on B, which knows nothing; then
// one on A. All is there, in the order of the runs, and so it is if A writes back
// before it is used, or B is used once more.
func TestALossAfterWhichAnotherProcessBeganAnew(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(a, b process) []string{
		"used on A":     func(a, _ process) []string { a.run("r9", 90); return []string{"r9"} },
		"A writes back": func(a, _ process) []string { require.Equal(a.t, 1, a.writeBack()); return nil },
		"both write back": func(a, b process) []string {
			b.writeBack()
			require.Equal(a.t, 1, a.writeBack())
			b.writeBack()
			return nil
		},
		"B, then A is used": func(a, b process) []string { b.run("r8", 80); a.run("r9", 90); return []string{"r8", "r9"} },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			a, b := newProcess(t, server), newProcess(t, server)
			var runs []string
			for i := range 6 {
				runs = append(runs, fmt.Sprint("r", i+1))
				a.run(runs[i], int64(i+1)*10)
			}
			require.NoError(t, server.Client().FlushAll(ctx).Err())
			b.run("r7", 70)
			runs = append(append(runs, "r7"), again(a, b)...)
			require.Equal(t, said2(runs...), stored(t, server.Client()))
			for i, p := range []process{a, b, a, newProcess(t, server)} {
				require.Equal(t, said2(runs...), contents(t, p.Load(int64(100_000+i))))
			}
			require.EqualValues(t, 1, a.Counts.Recovered.Load())
			require.Zero(t, b.Counts.Recovered.Load())
			index := server.Client().HKeys(ctx, "{chat_history:12345}:meta").Val()
			require.Contains(t, index, "s:analytic", "it is listed")
			require.Contains(t, index, "lost", "the chat's next run is to tell")

			// A run that is replayed after all that is not said twice.
			_, err := b.Cache.Append(ctx, b.Peek(key), memory.Mark{Run: "r3", Seq: 2, Turn: 200_000}, said(1))
			require.NoError(t, err)
			require.Equal(t, said2(runs...), stored(t, server.Client()))
		})
	}
}

// What is looked at after a loss does not take the only copy away.
func TestALookDoesNotLoseACopy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newProcess(t, server)
	a.run("r1", 10)
	require.NoError(t, server.Client().FlushAll(ctx).Err())
	require.Zero(t, a.Load(0).Len(), "Redis has nothing")
	require.Equal(t, 1, a.writeBack())
	require.Equal(t, said2("r1"), contents(t, a.Load(0)))
}

// What was done on purpose is not undone by a copy from before, whichever process has it and
// whatever Redis loses afterwards.
func TestWhatWasDeliberateIsNotUndone(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*testing.T, *redis.Client, process)
		want   []string
	}{
		"rewritten by hand": {func(t *testing.T, client *redis.Client, _ process) {
			value := client.Get(ctx, key.String()).Val()
			require.NoError(t, client.Set(ctx, key.String(), strings.Replace(value, "r21", "----", 1), 0).Err())
		}, []string{"r11", "r12", "----", "r22", "r31", "r32", "r41", "r42", "r51", "r52"}},
		"a message cut out by hand": {func(t *testing.T, client *redis.Client, _ process) {
			h, err := memory.ParseHistory(key, []byte(client.Get(ctx, key.String()).Val()))
			require.NoError(t, err)
			raw := slices.Delete(slices.Clone(h.Raw(0)), 2, 3)
			value := "["
			for i, m := range raw {
				value += strings.Repeat(",", min(i, 1)) + string(m)
			}
			require.NoError(t, client.Set(ctx, key.String(), value+"]", 0).Err())
		}, []string{"r11", "r12", "r22", "r31", "r32", "r41", "r42", "r51", "r52"}},
		"deleted by hand": {func(t *testing.T, client *redis.Client, _ process) {
			require.NoError(t, client.Del(ctx, key.String()).Err())
		}, said2("r4", "r5")},
		"erased": {func(t *testing.T, _ *redis.Client, a process) {
			require.NoError(t, a.Cache.Erase(ctx, 35_000, key))
		}, said2("r4", "r5")},
	} {
		for _, first := range []string{"a", "b"} {
			t.Run(name+", "+first+" first", func(t *testing.T) {
				server := redistest.Start(t)
				client := server.Client()
				a, b := newProcess(t, server), newProcess(t, server)
				for i := range 3 {
					a.run(fmt.Sprint("r", i+1), int64(i+1)*10)
				}
				b.Load(31_000) // B has all of it
				c.change(t, client, a)
				a.run("r4", 40) // A's turn takes note of it
				require.NoError(t, client.FlushAll(ctx).Err())
				order := []process{a, b}
				if first == "b" {
					order = []process{b, a}
				}
				for _, p := range order {
					p.writeBack()
				}
				a.run("r5", 50)
				require.Equal(t, c.want, stored(t, client))
				b.writeBack()
				require.Equal(t, c.want, stored(t, client))
				require.Equal(t, c.want, contents(t, b.Load(60_000)))
				require.Equal(t, c.want, contents(t, a.Load(61_000)))
			})
		}
	}
}

// A trim is no deliberate change: older copies come in shortened.
func TestOlderCopiesAreShortenedToATrim(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newProcess(t, server), newProcess(t, server)
	for i := range 4 {
		a.run(fmt.Sprint("r", i+1), int64(i+1)*10)
	}
	b.run("r5", 50)
	short, err := a.Archives.Trim(ctx, a.Load(51_000), 51_000, 4)
	require.NoError(t, err)
	a.Put(short)
	a.run("r6", 60)
	require.Equal(t, said2("r4", "r5", "r6"), stored(t, server.Client()))
	require.Equal(t, said2("r4", "r5", "r6"), contents(t, b.Load(61_000)))

	require.NoError(t, server.Client().FlushAll(ctx).Err())
	b.writeBack()
	a.writeBack()
	require.Equal(t, said2("r4", "r5", "r6"), stored(t, server.Client()))

	// The copy that comes in last is from before the trim.
	c := newProcess(t, server)
	old := memory.Empty(key)
	for _, run := range []string{"r1", "r2", "r3", "r4"} {
		for seq := int64(1); seq <= 2; seq++ {
			old = old.With(memory.Message{Role: "user", Content: fmt.Sprint(run, seq), Timestamp: float64(run[1]-'0') * 10,
				ID: memory.MessageID(run, seq)}.Encode())
		}
	}
	old.ProvenIn(41_000)
	c.Put(old)
	c.writeBack()
	require.Subset(t, said2("r4", "r5", "r6"), stored(t, server.Client()))
	require.Len(t, stored(t, server.Client()), 6)
}

// The same event with two contents: what is stored stays, the copy is kept aside.
func TestACopyWithOtherContentsIsSetAside(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newProcess(t, server), newProcess(t, server)
	a.run("r1", 10)
	require.NoError(t, server.Client().FlushAll(ctx).Err())
	b.run("r1", 20)
	a.run("r2", 30)
	require.Equal(t, said2("r1", "r2"), stored(t, server.Client()))
	require.EqualValues(t, 1, a.Counts.Damaged.Load())
	aside := server.Client().Keys(ctx, "*:damaged:*").Val()
	require.Len(t, aside, 1)
	require.Contains(t, server.Client().Get(ctx, aside[0]).Val(), `"timestamp":10,"id":"r1.1"`)
	require.Contains(t, server.Client().Get(ctx, key.String()).Val(), `"timestamp":20,"id":"r1.1"`)
	a.run("r3", 40)
	require.EqualValues(t, 1, a.Counts.Damaged.Load(), "once")
}

// Another program finds nothing, and begins anew, before a process writes back.
func TestALossAfterWhichAnotherProgramWrote(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newProcess(t, server)
	a.run("r1", 10)
	require.NoError(t, server.Client().FlushAll(ctx).Err())
	require.NoError(t, server.Client().Set(ctx, key.String(), `[{"role": "user", "content": "theirs", "timestamp": 15}]`,
		0).Err())
	a.writeBack()
	a.run("r2", 20)
	require.Equal(t, []string{"r11", "r12", "theirs", "r21", "r22"}, stored(t, server.Client()))
}

// Copies of the version before have no ids: they are merged by content.
func TestCopiesOfTheVersionBeforeAreMerged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newProcess(t, server), newProcess(t, server)
	add := func(p process, h *memory.History, run string, turn int64, seqs ...int64) *memory.History {
		for _, seq := range seqs {
			var err error
			h, err = p.Cache.Append(ctx, h, memory.Mark{Run: run, Seq: seq, Turn: turn}, said(seq))
			require.NoError(t, err)
		}
		return h
	}
	h := add(a, memory.Empty(key), "r", 5, 1, 2, 3)
	lose := snapshot(t, server.Client())
	add(a, h, "r", 5, 4)
	lose()
	add(b, memory.Empty(key), "s", 6, 5)
	require.Equal(t, saying(5), contents(t, a.Load(7)))
	require.NoError(t, server.Client().FlushAll(ctx).Err())
	add(b, memory.Empty(key), "t", 8, 6)
	a.writeBack()
	require.Equal(t, saying(6), stored(t, server.Client()))
}

// Redis loses its data again and again under two processes that write, each in the
// turns that it gets, and write back what they hold. Nothing is lost and nothing
// doubled, and what is stored is at all times what its meta says.
func TestNothingIsLostUnderLossAfterLoss(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	const runs = 150
	processes := []process{newProcess(t, server), newProcess(t, server)}
	done, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	for _, p := range processes {
		working.Go(func() {
			for done.Err() == nil {
				copies := p.List()
				current, err := p.WriteBack(ctx, copies...)
				for i, h := range current {
					if err == nil && h != nil {
						p.Refresh(copies[i], h)
					}
				}
			}
		})
	}
	var turn sync.Mutex // the chat's lease
	var writing sync.WaitGroup
	for i, p := range processes {
		writing.Go(func() {
			for n := range runs {
				turn.Lock()
				p.run(fmt.Sprintf("%c%03d", 'a'+i, n), time.Now().UnixMilli())
				if n%10 == 9 && i == 0 {
					if err := client.FlushAll(ctx).Err(); err != nil {
						t.Error(err)
					}
				}
				turn.Unlock()
			}
		})
	}
	writing.Wait()
	stop()
	working.Wait()
	for range 2 {
		for _, p := range processes {
			p.writeBack()
		}
	}
	var want []string
	for i := range processes {
		for n := range runs {
			want = append(want, said2(fmt.Sprintf("%c%03d", 'a'+i, n))...)
		}
	}
	require.ElementsMatch(t, want, stored(t, client))
}
