package spool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/memory"
)

// model is what a spool should hold, and the spool that does.
type model struct {
	base  string
	dirs  int
	dir   string
	spool *Spool
	turn  int64
	seq   int64
	want  map[Queue][]Entry // in order of turn and arrival
}

func (m *model) open(t *rapid.T) {
	s, err := Open(m.dir, Options{}, zerolog.Nop())
	require.NoError(t, err)
	m.spool = s
}

func drawKey(t *rapid.T) Queue { return rapid.SampledFrom(workKeys).Draw(t, "key") }

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.check,
		"add": func(t *rapid.T) {
			m.seq++
			e := entry(drawKey(t), m.turn-rapid.Int64Range(0, 2).Draw(t, "turns late"), m.seq)
			require.NoError(t, m.spool.Add(e))
			list := m.want[e.Queue]
			at := len(list)
			for at > 0 && list[at-1].Mark.Turn > e.Mark.Turn {
				at--
			}
			m.want[e.Queue] = slices.Insert(list, at, e)
		},
		"next turn": func(*rapid.T) { m.turn++ },
		"drain": func(t *rapid.T) {
			key := drawKey(t)
			left := rapid.IntRange(0, 12).Draw(t, "taken before the error")
			stop := errors.New("stop")
			err := m.spool.Drain(context.Background(), key, func(_ context.Context, entries []Entry) (int, error) {
				n := min(left, len(entries))
				require.Equal(t, m.want[key][:len(entries)], entries)
				m.want[key], left = m.want[key][n:], left-n
				if n < len(entries) {
					return n, stop
				}
				return n, nil
			})
			if len(m.want[key]) > 0 {
				require.ErrorIs(t, err, stop)
			} else {
				require.NoError(t, err)
			}
		},
		"forget": func(t *rapid.T) {
			queues := rapid.SliceOfDistinct(rapid.SampledFrom(workKeys), rapid.ID[Queue]).Draw(t, "keys")
			for _, q := range queues {
				require.NoError(t, forget(m.spool, q.Key))
				delete(m.want, History(q.Key))
				delete(m.want, Events(q.Key.Chat()))
			}
		},
		"restart": func(t *rapid.T) {
			require.NoError(t, m.spool.Close())
			m.open(t)
		},
		"crash": func(t *rapid.T) {
			m.dirs++
			next := filepath.Join(m.base, strconv.Itoa(m.dirs))
			require.NoError(t, os.CopyFS(next, os.DirFS(m.dir)))
			require.NoError(t, m.spool.Close())
			m.dir = next
			m.open(t)
		},
	}
}

func (m *model) check(t *rapid.T) {
	var keys []Queue
	for _, k := range workKeys {
		require.Equal(t, len(m.want[k]), m.spool.Pending(k))
		if len(m.want[k]) > 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Queue) int {
		x, y := m.want[a][0].Mark, m.want[b][0].Mark
		if x.Turn != y.Turn {
			return int(x.Turn - y.Turn)
		}
		return int(x.Seq - y.Seq)
	})
	require.Equal(t, len(keys), len(m.spool.Queues()))
	if len(keys) > 0 {
		require.Equal(t, keys, m.spool.Queues())
	}
	require.Equal(t, len(keys) == 0, m.spool.Bytes() == 0)
}

func TestModel(t *testing.T) {
	testtier.Slow(t)
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := &model{base: filepath.Join(base, strconv.Itoa(runs)), turn: 3, want: map[Queue][]Entry{}}
		m.dir = filepath.Join(m.base, "0")
		require.NoError(t, os.MkdirAll(m.base, 0o700))
		m.open(t)
		defer func() {
			require.NoError(t, m.spool.Close())
			require.NoError(t, os.RemoveAll(m.base))
		}()
		t.Repeat(m.actions())
	})
}

// TestAddsAndDrainsAtOnce has every method called at once; each history must come out whole and in order.
func TestAddsAndDrainsAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const each = 60
	got := map[Queue]*[]Entry{}
	var writers, drainers sync.WaitGroup
	written := make(chan struct{})
	for i := range 8 {
		key := Events(memory.MustChat("chat" + strconv.Itoa(i)))
		into := new([]Entry)
		got[key] = into
		writers.Go(func() {
			for seq := range int64(each) {
				if err := s.Add(entry(key, 1, seq)); err != nil {
					t.Error(err)
				}
			}
		})
		for range 2 { // of one history only one drains at a time, so both may write there
			drainers.Go(func() {
				for done := false; !done; {
					select {
					case <-written:
						done = true
					default:
					}
					if err := s.Drain(context.Background(), key, takeInto(into)); err != nil {
						t.Error(err)
					}
					s.Pending(key)
					s.Queues()
					s.Bytes()
					if err := forget(s, bob.Key); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	writers.Wait()
	close(written)
	drainers.Wait()
	require.Empty(t, s.Queues())
	for key, entries := range got {
		require.Len(t, *entries, each)
		for seq, e := range *entries {
			require.Equal(t, entry(key, 1, int64(seq)), e)
		}
	}
	require.Empty(t, open(t, crashed(t, dir)).Queues())
}

// BenchmarkAdd shows that Adds that meet share their syncs: more writers, less time for each.
func BenchmarkAdd(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(strconv.Itoa(writers)+" writers a core", func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{}, zerolog.Nop())
			require.NoError(b, err)
			defer s.Close()
			b.SetParallelism(writers)
			var next sync.Mutex
			seq := int64(0)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					next.Lock()
					seq++
					e := entry(alice, 1, seq)
					next.Unlock()
					if err := s.Add(e); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
