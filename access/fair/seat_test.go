package fair_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access/fair"
)

// takes returns work that requires so many places to be taken.
func takes(t *testing.T, p *fair.Places, n int) func(context.Context) error {
	return func(context.Context) error { require.Equal(t, n, p.InUse()); return nil }
}

func TestShareTakesOnePlaceAndAwayLeavesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(1, time.Second)
		plain := t.Context()
		of := fair.With(plain, p, tenant(t, "a"))
		taken := func(n int) func() error {
			return func() error { require.Equal(t, n, p.InUse()); return nil }
		}
		inside := func(ctx context.Context) error {
			require.NoError(t, fair.Share(ctx, func(context.Context) error { return taken(1)() }))
			require.NoError(t, fair.Block(ctx, taken(0)))
			fair.Yield(ctx)
			time.Sleep(time.Second)
			fair.Yield(ctx)
			return taken(1)()
		}
		require.NoError(t, fair.Share(of, inside))
		require.NoError(t, fair.Share(plain, func(context.Context) error { return taken(0)() }))
		require.Zero(t, p.InUse())

		// Another request takes the place while it is left, and keeps it.
		var leave func()
		err := fair.Share(of, func(ctx context.Context) error {
			return fair.Block(ctx, func() (err error) {
				leave, err = p.Enter(plain, tenant(t, "b"))
				return err
			})
		})
		require.NoError(t, err, "work that has begun goes on without a place")
		require.ErrorIs(t, fair.Share(of, inside), fair.ErrFull)
		done := false
		fair.Do(of, func(context.Context) { done = true })
		require.True(t, done)
		leave()

		require.NoError(t, fair.Share(of, func(ctx context.Context) error {
			require.NoError(t, fair.Share(fair.With(ctx, p, tenant(t, "b")), takes(t, p, 1)), "the place that it has")
			fair.Leave(ctx)
			return taken(0)()
		}))

		failed := errors.New("failed")
		require.ErrorIs(t, fair.Share(of, func(ctx context.Context) error {
			return fair.Block(ctx, func() error { return failed })
		}), failed)
		require.Zero(t, p.InUse())
	})
}
