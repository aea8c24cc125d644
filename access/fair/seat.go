package fair

import (
	"context"

	"mneme/memory"
)

// pool is where a request takes places.
type pool struct {
	places *Places
	tenant memory.Tenant
}

// seat is a place of a request. Only the goroutine that works in it uses it.
type seat struct {
	pool
	leave func() // nil while it is left
}

type poolKey struct{}
type seatKey struct{}

// With returns a context in which Share takes places of a tenant.
func With(ctx context.Context, p *Places, tenant memory.Tenant) context.Context {
	return context.WithValue(context.WithValue(ctx, poolKey{}, pool{p, tenant}), seatKey{}, (*seat)(nil))
}

// Share calls work in a place, for which it waits. work gets a context in which it has the place: inside of another
// Share, and without With, no further place is taken. What work does beside the store, such as to wait for a client, for
// a model or for a chat's turn, it does in Away.
func Share(ctx context.Context, work func(context.Context) error) error {
	of, shared := ctx.Value(poolKey{}).(pool)
	if held, _ := ctx.Value(seatKey{}).(*seat); !shared || held != nil && held.leave != nil {
		return work(ctx)
	}
	s := &seat{pool: of}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.quit()
	return work(context.WithValue(ctx, seatKey{}, s))
}

// Do is Share for work that is not refused. If there is no place in time, it calls work without one.
func Do(ctx context.Context, work func()) {
	if Share(ctx, func(context.Context) error { work(); return nil }) != nil {
		work()
	}
}

// Away leaves the place of a context while it calls wait, and takes one again, unless wait fails.
func Away(ctx context.Context, wait func() error) error {
	s, _ := ctx.Value(seatKey{}).(*seat)
	if s == nil || s.leave == nil {
		return wait()
	}
	s.quit()
	if err := wait(); err != nil {
		return err
	}
	return s.enter(ctx)
}

// Yield lets waiting requests have the place first.
func Yield(ctx context.Context) error { return Away(ctx, func() error { return nil }) }

func (s *seat) enter(ctx context.Context) (err error) {
	s.leave, err = s.places.Enter(ctx, s.tenant)
	return err
}

func (s *seat) quit() {
	if s.leave != nil {
		s.leave()
	}
	s.leave = nil
}
