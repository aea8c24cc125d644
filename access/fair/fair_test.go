package fair_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access/fair"
	"mneme/memory"
)

func tenant(t *testing.T, name string) memory.Tenant {
	t.Helper()
	of, err := memory.ParseTenant(name)
	require.NoError(t, err)
	return of
}

// taken takes places until none is given, and gives what leaves each.
func taken(t *testing.T, p *fair.Places, of memory.Tenant) (leaves []func()) {
	t.Helper()
	for {
		leave, err := p.Enter(t.Context(), of)
		if err != nil {
			require.ErrorIs(t, err, fair.ErrFull)
			return leaves
		}
		leaves = append(leaves, leave)
	}
}

func TestATenantAloneLeavesAFewPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for places, alone := range map[int]int{1: 1, 2: 1, 8: 7, 256: 224} {
			p := fair.New(places, time.Second)
			require.Len(t, taken(t, p, tenant(t, "a")), alone)
			require.Len(t, taken(t, p, tenant(t, "b")), places-alone, "which others find")
			require.Equal(t, places, p.InUse())
			require.Len(t, taken(t, fair.New(places, time.Second), memory.Tenant{}), places, "the default tenant has all")
		}
	})
}

func TestWhoHasLessIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(16, time.Hour)
		a, b := tenant(t, "a"), tenant(t, "b")
		var got [2]atomic.Int32
		var leaves [2][]func()
		var mu sync.Mutex
		enters := func(i int, of memory.Tenant) {
			go func() {
				leave, err := p.Enter(t.Context(), of)
				if err == nil {
					mu.Lock()
					leaves[i] = append(leaves[i], leave)
					mu.Unlock()
					got[i].Add(1)
				}
			}()
			synctest.Wait()
		}
		oneLeaves := func() { // twice, which counts once
			mu.Lock()
			leave := leaves[0][0]
			leaves[0] = leaves[0][1:]
			mu.Unlock()
			leave()
			leave()
			synctest.Wait()
		}
		for range 100 {
			enters(0, a)
		}
		require.EqualValues(t, 14, got[0].Load())
		for range 20 {
			enters(1, b)
		}
		require.EqualValues(t, 2, got[1].Load())
		// But for the two that are kept for a third one, each place that a leaves is b's, though 86 of a came before.
		for range 6 {
			oneLeaves()
		}
		require.EqualValues(t, 14, got[0].Load())
		require.EqualValues(t, 6, got[1].Load())
		for range 20 { // and from then on they take turns
			oneLeaves()
			require.Equal(t, 14, p.InUse())
		}
		require.InDelta(t, 7, len(leaves[0]), 1)
	})
}

func TestAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(1, time.Minute)
		leave, err := p.Enter(t.Context(), memory.Tenant{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Enter(ctx, memory.Tenant{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Enter(t.Context(), memory.Tenant{})
		require.ErrorIs(t, err, fair.ErrFull)
		leave()
		require.Zero(t, p.InUse(), "nobody who gave up has a place")
		_, err = p.Enter(t.Context(), memory.Tenant{})
		require.NoError(t, err)
	})
}

// However they come and go, no more than all places are taken, and none is lost.
func TestManyAtOnce(t *testing.T) {
	p := fair.New(4, time.Minute)
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for i := range 64 {
		of := tenant(t, []string{"a", "b", "c", "default"}[i%4])
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%8 == 0 {
					cancel()
				}
				leave, err := p.Enter(ctx, of)
				if err == nil {
					n := inside.Add(1)
					for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					inside.Add(-1)
					leave()
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int32(4))
	require.Zero(t, p.InUse())
}
