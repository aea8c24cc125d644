package fair

import (
	"context"
	"time"

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
	leave func() // nil without a place
	start time.Time
}

type poolKey struct{}
type seatKey struct{}

// With returns a context in which Share takes places of a tenant. A context with a place stays as it is.
func With(ctx context.Context, p *Places, tenant memory.Tenant) context.Context {
	if seatOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, poolKey{}, pool{p, tenant})
}

// seatOf returns the place that a context has, or nil.
func seatOf(ctx context.Context) *seat {
	if s, _ := ctx.Value(seatKey{}).(*seat); s != nil && s.leave != nil {
		return s
	}
	return nil
}

// Share calls work in a place, for which it waits. work gets a context in which it has the place: inside of another
// Share, and without With, no further place is taken. work calls Away around waits for clients, models, services and
// turns. Errors are those of work, and of Enter.
func Share(ctx context.Context, work func(context.Context) error) error {
	p, shared := ctx.Value(poolKey{}).(pool)
	if !shared || seatOf(ctx) != nil {
		return work(ctx)
	}
	s := &seat{pool: p}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.quit()
	return work(context.WithValue(ctx, seatKey{}, s))
}

// Do is Share for work that is not refused. If Enter fails, it calls work without a place.
func Do(ctx context.Context, work func(context.Context)) {
	if Share(ctx, func(ctx context.Context) error { work(ctx); return nil }) != nil {
		work(ctx)
	}
}

// Block leaves the place of a context while it calls wait, and then takes another one. After the wait limit of Enter, the
// work continues without a place, since it may hold a chat's turn and have changed something.
func Block(ctx context.Context, wait func() error) error {
	s := seatOf(ctx)
	if s == nil {
		return wait()
	}
	s.quit()
	defer func() { _ = s.enter(ctx) }()
	return wait()
}

// Leave leaves the place of a context for good.
func Leave(ctx context.Context) {
	if s := seatOf(ctx); s != nil {
		s.quit()
	}
}

// atOnce is how long work goes on before it yields.
const atOnce = 10 * time.Millisecond

// Yield lets waiting requests have the place, if the work has had it for some time.
func Yield(ctx context.Context) {
	if s := seatOf(ctx); s != nil && time.Since(s.start) > atOnce {
		_ = Block(ctx, func() error { return nil })
	}
}

func (s *seat) enter(ctx context.Context) (err error) {
	s.leave, err = s.places.Enter(ctx, s.tenant)
	s.start = time.Now()
	return err
}

func (s *seat) quit() {
	if s.leave != nil {
		s.leave()
	}
	s.leave = nil
}
