package chat

import (
	"context"
	"maps"
	"slices"
	"time"
)

// bound ends what is too much: of sessions that wait, those that have waited for
// longest. It needs mu.
func (m *Model) bound() {
	l := m.config.Limits
	for _, b := range []struct {
		state state
		max   int
	}{{parked, l.MaxParked}, {idle, l.MaxIdle}, {dormant, l.MaxDormant}} {
		waiting := m.waiting(b.state)
		if len(waiting) > b.max {
			slices.SortFunc(waiting, func(a, b *talk) int { return a.stateSince.Compare(b.stateSince) })
			for _, t := range waiting[:len(waiting)-b.max] {
				m.retire(t)
			}
		}
	}
}

// waiting needs mu.
func (m *Model) waiting(s state) (out []*talk) {
	for _, talks := range m.talks {
		for _, t := range talks {
			if t.state == s {
				out = append(out, t)
			}
		}
	}
	return out
}

// retire ends a talk that has waited for too long, as far as its state asks for. It
// needs mu.
func (m *Model) retire(t *talk) {
	if t.state == idle {
		m.rest(t)
		return
	}
	if t.state == parked {
		m.config.Log.Info().Str("session", t.id).Str("conversation", t.scope.Conversation).
			Msg("gave up a turn whose tool results did not come")
	}
	m.free(t)
}

// lookOut ends what expires and what another process has taken over, until Close.
func (m *Model) lookOut() {
	tick := time.NewTicker(m.config.Limits.Look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		m.expire()
		if m.config.Owners != nil {
			m.yield()
		}
	}
}

func (m *Model) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, limit := range map[state]time.Duration{parked: m.config.Limits.Parked, idle: m.config.Limits.Idle,
		dormant: m.config.TTL} {
		for _, t := range m.waiting(s) {
			if time.Since(t.stateSince) >= limit {
				m.retire(t)
			}
		}
	}
	m.bound() // what has just become dormant counts there
	for s, e := range m.histories {
		if time.Since(e.endTime) >= m.config.TTL {
			delete(m.histories, s)
		}
	}
}

// Times that the owners' store may take.
const (
	claimTime = 100 * time.Millisecond
	lookTime  = 2 * time.Second
)

// claim says that the sessions of a scope are here from now on. That it fails costs
// nothing but a session elsewhere that is freed later.
func (m *Model) claim(ctx context.Context, s Scope) {
	if m.config.Owners == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := m.config.Owners.Claim(ctx, s, m.self); err != nil {
		m.config.Log.Debug().Err(err).Str("conversation",
			s.Conversation).Msg("the owner of a conversation's sessions was not written")
	}
}

// place is where the owner of a talk is written. A conversation with an id that only this
// process knows goes by the first call that it waits for.
func (t *talk) place() Scope {
	s := t.scope
	if t.minted && len(t.calls) > 0 {
		s.Conversation = t.calls[0].ours
	}
	return s
}

// yield frees the sessions of conversations that another process has claimed, or
// that were erased: those have no owner.
func (m *Model) yield() {
	places := m.places()
	if len(places) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, lookTime)
	defer cancel()
	holders, err := m.config.Owners.Holders(ctx, places)
	if err != nil {
		m.config.Log.Debug().Err(err).Msg("who owns the sessions of conversations was not told")
		return
	}
	foreign, erased := map[Scope]bool{}, map[Scope]bool{}
	for i, holder := range holders {
		foreign[places[i]] = holder != m.self
		erased[places[i]] = holder == ""
	}
	ids := m.drop(func(s Scope) bool { return erased[s] })
	if err := m.forget(ctx, ids...); err != nil {
		m.config.Log.Error().Err(err).Msg("the model calls of an erased conversation could not be forgotten")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, talks := range m.talks {
		for _, t := range slices.Clone(talks) {
			if t.state != busy && foreign[t.place()] {
				m.free(t)
			}
		}
	}
}

// places are where the owners of all sessions are written that can be freed.
func (m *Model) places() []Scope {
	m.mu.Lock()
	defer m.mu.Unlock()
	unique := map[Scope]bool{}
	for s := range m.histories {
		unique[s] = true
	}
	for _, talks := range m.talks {
		for _, t := range talks {
			if t.state != busy {
				unique[t.place()] = true
			}
		}
	}
	return slices.Collect(maps.Keys(unique))
}
