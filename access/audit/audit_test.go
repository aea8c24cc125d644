package audit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/audit"
	"mneme/internal/redistest"
	"mneme/memory"
)

func tenant(t *testing.T, name string) memory.Tenant {
	of, err := memory.ParseTenant(name)
	require.NoError(t, err)
	return of
}

func TestEntriesAreKeptInTheirOrder(t *testing.T) {
	log, acme := audit.New(redistest.Start(t).Client()), tenant(t, "acme")
	began := time.Now().Add(-time.Second)
	ctx := access.With(t.Context(), access.Principal{Key: "k1", Tenant: acme})
	var writing sync.WaitGroup
	for i := range 4 {
		writing.Go(func() {
			for j := range 25 {
				if err := log.Write(ctx, acme, "chat.erase", fmt.Sprintf("chats/%d.%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	require.NoError(t, log.Write(t.Context(), memory.Tenant{}, "key.create", "keys/k2"))

	var all []audit.Entry
	for after := ""; ; after = all[len(all)-1].ID {
		page, err := log.Page(t.Context(), acme, after, 7)
		require.NoError(t, err)
		if all = append(all, page...); len(page) < 7 {
			break
		}
	}
	require.Len(t, all, 100, "nothing is lost, and the other tenant's is not there")
	targets := map[string]bool{}
	for _, e := range all {
		require.Equal(t, "k1", e.Key)
		require.Equal(t, "chat.erase", e.Action)
		require.Equal(t, acme, e.Tenant)
		require.WithinRange(t, e.Time, began, time.Now().Add(time.Second))
		targets[e.Target] = true
	}
	require.Len(t, targets, 100)

	own, err := log.Page(t.Context(), memory.Tenant{}, "", 7)
	require.NoError(t, err)
	require.Len(t, own, 1)
	later, err := log.Page(t.Context(), acme, audit.StartID(time.Now().Add(time.Hour)), 7)
	require.NoError(t, err)
	require.Empty(t, later)
	since, err := log.Page(t.Context(), acme, audit.StartID(began), 1000)
	require.NoError(t, err)
	require.Len(t, since, 100)
}

func TestWhatIsNoPage(t *testing.T) {
	log := audit.New(redistest.Start(t).Client())
	for _, after := range []string{"x", "(", "1-2-3", "99999999999999999999999", "+"} {
		_, err := log.Page(t.Context(), memory.Tenant{}, after, 7)
		require.ErrorIs(t, err, memory.ErrBadName, after)
	}
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer away.Close()
	require.ErrorIs(t, audit.New(away).Write(context.Background(), memory.Tenant{}, "a", ""), memory.ErrUnavailable)
	var none *audit.Log
	require.NoError(t, none.Write(t.Context(), memory.Tenant{}, "a", ""))
}
