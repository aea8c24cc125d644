// Package fair shares what there is of something, such as runs at once, between the tenants of one process. A place
// that is free is given to the first that asks: a tenant alone may have all of them but a few, which are kept for
// those that have none or hardly any, so that the first request of another one finds a place at once. The default
// tenant, which is all there is where the operator has made no tenants, may have those too. Where there is no place a
// request waits for a bounded time; of the tenants that wait that with the fewest gets the next one.
//
// It owns its counts and the line of those that wait, in memory, and no goroutine. It never takes a place back.
package fair

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"mneme/memory"
)

// ErrFull says that no place became free in time.
var ErrFull = errors.New("all places are taken")

// Places are what is shared. The zero value has none; make it with New. Safe for concurrent use.
type Places struct {
	total, reserved int
	patience        time.Duration

	mu        sync.Mutex
	inUse     int                   // guarded by mu
	perTenant map[memory.Tenant]int // guarded by mu: the places that each has, none of them 0
	waiting   []*waiter             // guarded by mu: in the order of their coming
}

// waiter is a request that waits.
type waiter struct {
	tenant memory.Tenant
	called chan struct{} // closed once it has a place
}

// New has so many places; a request waits at most so long for one. An eighth of the places, and one at least if there
// are two, is kept from a tenant that is alone.
func New(places int, patience time.Duration) *Places {
	return &Places{total: places, reserved: min(places-1, max(1, places/8)), patience: patience,
		perTenant: map[memory.Tenant]int{}}
}

// ForProcessors returns places for work that keeps a processor busy: one per processor, and at least two. A request waits
// at most 30 seconds for one.
func ForProcessors() *Places { return New(max(2, runtime.GOMAXPROCS(0)), 30*time.Second) }

// Enter waits for a place of a tenant. The caller that gets it leaves it, once or more often. The error is ErrFull,
// or the cause of ctx's end.
func (p *Places) Enter(ctx context.Context, tenant memory.Tenant) (leave func(), err error) {
	leave = sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leave(tenant)
	})
	p.mu.Lock()
	if len(p.waiting) == 0 && p.mayEnter(tenant) { // the usual case, without what waiting takes
		p.enter(tenant)
		p.mu.Unlock()
		return leave, nil
	}
	w := &waiter{tenant, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.call()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, ErrFull)
	defer cancel()
	select {
	case <-w.called:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 { // it was not called in
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return nil, context.Cause(ctx)
	}
	return leave, nil
}

// In does something in a place of a tenant.
func (p *Places) In(ctx context.Context, tenant memory.Tenant, do func() error) error {
	leave, err := p.Enter(ctx, tenant)
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

// InUse returns the number of places in use.
func (p *Places) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inUse
}

// enter takes a place. The caller holds mu.
func (p *Places) enter(tenant memory.Tenant) {
	p.inUse++
	p.perTenant[tenant]++
}

// leave gives a place back, and calls in the next one. The caller holds mu.
func (p *Places) leave(tenant memory.Tenant) {
	p.inUse--
	if p.perTenant[tenant]--; p.perTenant[tenant] == 0 {
		delete(p.perTenant, tenant)
	}
	p.call()
}

// call gives free places to those that wait: the first of those of the tenant that has the fewest. The caller holds
// mu.
func (p *Places) call() {
	for {
		next := -1
		for i, w := range p.waiting {
			if p.mayEnter(w.tenant) && (next < 0 || p.perTenant[w.tenant] < p.perTenant[p.waiting[next].tenant]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.enter(w.tenant)
		close(w.called)
	}
}

// mayEnter says whether there is a place for a tenant: of those that are kept for others only its first ones. The caller
// holds mu.
func (p *Places) mayEnter(tenant memory.Tenant) bool {
	free := p.total - p.inUse
	return free > p.reserved || free > 0 && (tenant == memory.Tenant{} || p.perTenant[tenant] < p.reserved)
}
