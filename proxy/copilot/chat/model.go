package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/proxy/copilot"
	"mneme/proxy/wire"
)

// conversationHeader names the conversation that the CLI's own model calls belong
// to: its session.
const conversationHeader = "X-AG-Conversation-Id"

// Model answers chat completions. It is a http.RoundTripper, so that a gateway
// reaches it by the same code as a vendor.
type Model struct {
	cli    CLI
	config Config
	self   string // this process, as an owner

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // requests, sessions that are being ended, and the look-out

	replayed atomic.Uint64

	mu        sync.Mutex
	closed    bool
	talks     map[Scope][]*talk
	called    map[callKey]*talk         // parked ones that no conversation leads to
	histories map[Scope]*sessionHistory // what an erasure has to reach beside talks
	refusals  map[string]*Refusal       // by session: how its last model call was refused, nil if it was not
}

// sessionHistory are sessions that a conversation had, the oldest first.
type sessionHistory struct {
	ids     []string
	endTime time.Time // when the last one ended
}

// maxEnded bounds the sessions that are known of a conversation when they are over.
const maxEnded = 32

// callKey is a call's id where it belongs.
type callKey struct{ tenant, route, id string }

// New makes a Model on a CLI, which it closes.
func New(cli CLI, config Config) *Model {
	m := &Model{
		cli: cli, config: config.withDefaults(), self: rand.Text(),
		talks: map[Scope][]*talk{}, called: map[callKey]*talk{}, histories: map[Scope]*sessionHistory{},
		refusals: map[string]*Refusal{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.tasks.Go(m.lookOut) // ends with Close
	return m
}

// ErrClosed refuses requests after Close.
var ErrClosed = errors.New("the gateway is closing")

// take finds the talk that a request goes on from, or begins one. It is busy then.
// What it supersedes is freed. Without an error tasks counts the request.
func (m *Model) take(o origin, r *request) (t *talk, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	t = m.find(o, r)
	if t == nil {
		for _, other := range slices.Clone(m.talks[o.Scope]) {
			if other.superseded(r) {
				m.free(other)
			}
		}
		m.makeRoom(o.Scope)
		t = &talk{scope: o.Scope, setup: r.setup}
		m.talks[o.Scope] = append(m.talks[o.Scope], t)
	}
	m.uncall(t)
	t.minted, t.doomed = o.minted, o.final
	t.become(busy)
	m.tasks.Add(1)
	return t, nil
}

func (t *talk) become(s state) { t.state, t.stateSince = s, time.Now() }

// find needs mu. Of several that fit, which differ in nothing that was said, the
// one used last.
func (m *Model) find(o origin, r *request) *talk {
	for _, t := range slices.Backward(m.talks[o.Scope]) {
		if t.goesOn(r) {
			return t
		}
	}
	if !o.minted {
		return nil
	}
	for id := range r.results() {
		if t := m.called[callKey{o.Tenant, o.Route, id}]; t != nil && t.goesOn(r) {
			return t
		}
	}
	return nil
}

// makeRoom keeps the branches of a conversation few. It needs mu.
func (m *Model) makeRoom(s Scope) {
	for {
		talks := m.talks[s]
		if len(talks) < m.config.Limits.MaxBranch {
			return
		}
		i := slices.IndexFunc(talks, func(t *talk) bool { return t.state != busy })
		if i < 0 {
			return
		}
		m.free(talks[i])
	}
}

// uncall forgets the ids by which a talk can be found. It needs mu.
func (m *Model) uncall(t *talk) {
	for _, c := range t.calls {
		delete(m.called, callKey{t.scope.Tenant, t.scope.Route, c.ours})
	}
}

// remove takes a talk out. It needs mu.
func (m *Model) remove(t *talk) {
	m.uncall(t)
	rest := slices.DeleteFunc(m.talks[t.scope], func(o *talk) bool { return o == t })
	if len(rest) == 0 {
		delete(m.talks, t.scope)
		return
	}
	m.talks[t.scope] = rest
}

// free takes a talk out and ends its session for good. It needs mu, and a talk that
// is not busy or of which the request is done with it.
func (m *Model) free(t *talk) {
	m.remove(t)
	if t.id != "" && !t.minted && !t.doomed {
		m.remember(t)
	}
	m.discard(t)
}

// remember notes the talk's session for an erasure. It needs mu.
func (m *Model) remember(t *talk) {
	e := m.histories[t.scope]
	if e == nil {
		e = &sessionHistory{}
		m.histories[t.scope] = e
	}
	e.ids, e.endTime = append(e.ids, t.id), time.Now()
	if len(e.ids) > maxEnded {
		e.ids = slices.Delete(e.ids, 0, 1)
	}
}

// discard ends the talk's session and has the CLI forget it, without waiting for
// that. It needs mu.
func (m *Model) discard(t *talk) {
	s, id, resting, doomed := t.session, t.id, t.resting, t.doomed
	t.session, t.id, t.resting = nil, "", nil
	if id == "" {
		return
	}
	delete(m.refusals, id)
	m.tasks.Go(func() {
		if resting != nil {
			<-resting
		}
		ctx, cancel := context.WithTimeout(context.Background(), m.config.Limits.Connect)
		defer cancel()
		if s != nil {
			if s.Err() == nil {
				_ = s.Abort(ctx) // what fails here shows in the next line
			}
			if err := s.Close(); err != nil {
				m.config.Log.Warn().Err(err).Str("session", id).Msg("a session of the Copilot CLI could not be closed")
			}
		}
		if err := m.cli.Delete(ctx, id); err != nil && !errors.Is(err, copilot.ErrSessionUnknown) {
			m.config.Log.Debug().Err(err).Str("session", id).Msg("the Copilot CLI keeps what was said in a session")
		}
		if doomed {
			if err := m.forget(ctx, id); err != nil {
				m.config.Log.Error().Err(err).Str("session", id).Msg("the model calls of an erased session could not be forgotten")
			}
		}
	})
}

// Refusal is an error and when to come back: a vendor's answer to a model call of the CLI.
type Refusal struct {
	Failure    wire.Failure
	RetryAfter string // the header's value; empty for none
}

func (r *Refusal) Error() string { return r.Failure.Message }

// RecordRefusal notes how the last model call of a session was answered, with nil if it was
// not refused. It comes before the CLI can hear of it.
func (m *Model) RecordRefusal(session string, r *Refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.refusals[session]; ok {
		m.refusals[session] = r
	}
}

func (m *Model) forget(ctx context.Context, ids ...string) (err error) {
	if m.config.Forget == nil {
		return nil
	}
	for _, id := range ids {
		err = errors.Join(err, m.config.Forget(ctx, id))
	}
	return err
}

// rest makes a talk that is idle too long dormant: the CLI keeps what was said. It
// needs mu.
func (m *Model) rest(t *talk) {
	s, resting := t.session, make(chan struct{})
	t.session, t.resting = nil, resting
	t.become(dormant)
	m.tasks.Go(func() {
		defer close(resting)
		_ = s.Close() // whatever it says, the session is of no more use here
	})
}

// settle says what became of a talk behind an answer.
func (m *Model) settle(t *talk, s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.become(s)
	talks := m.talks[t.scope]
	if i := slices.Index(talks, t); i >= 0 { // the one used last stands last
		m.talks[t.scope] = append(slices.Delete(talks, i, i+1), t)
	}
	if m.closed || t.doomed || s == idle && t.minted {
		m.free(t)
		return
	}
	if s == parked && t.minted {
		for _, c := range t.calls {
			m.called[callKey{t.scope.Tenant, t.scope.Route, c.ours}] = t
		}
	}
	m.bound()
}

// fail ends the talk of a request that failed. It gives the refusal of the session's
// last model call, nil for none.
func (m *Model) fail(t *talk) *Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	refusal := m.refusals[t.id]
	m.free(t)
	return refusal
}

// Erase forgets the sessions of a tenant's conversation and their model calls, here
// and, within seconds, in the other processes. Those that answer at the moment are
// forgotten behind their answer.
func (m *Model) Erase(ctx context.Context, tenant, conversation string) error {
	ids := m.drop(func(s Scope) bool { return s.Tenant == tenant && s.Conversation == conversation })
	err := m.forget(ctx, ids...)
	if m.config.Owners != nil {
		err = errors.Join(err, m.config.Owners.Disown(ctx, tenant, conversation))
	}
	return err
}

// drop frees the talks of erased conversations and gives the ids of all sessions
// that these had, but for those that are busy.
func (m *Model) drop(erased func(Scope) bool) (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, e := range m.histories {
		if erased(s) {
			ids = append(ids, e.ids...)
			delete(m.histories, s)
		}
	}
	for s, talks := range m.talks {
		if !erased(s) {
			continue
		}
		for _, t := range slices.Clone(talks) {
			if t.state == busy {
				t.doomed = true
				continue
			}
			ids = append(ids, t.id)
			m.remove(t)
			m.discard(t)
		}
	}
	return ids
}

// Close ends all sessions and the connection. No request may be served any more.
// It takes at most Limits.Close and the end of the connection.
func (m *Model) Close() error {
	m.mu.Lock()
	m.closed = true
	for _, talks := range m.talks {
		for _, t := range slices.Clone(talks) {
			if t.state != busy {
				m.free(t)
			}
		}
	}
	m.mu.Unlock()
	m.cancel()
	done := make(chan struct{})
	go func() { // ends, since without a connection every task does
		m.tasks.Wait()
		close(done)
	}()
	timer := time.NewTimer(m.config.Limits.Close)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		m.config.Log.Warn().Msg("sessions of the Copilot CLI did not end in time")
	}
	err := m.cli.Close()
	<-done
	return err
}

// Stats count sessions now and replays since the start.
type Stats struct {
	Busy, Idle, Parked, Dormant int
	Replayed                    uint64 // requests with earlier turns that were told to a fresh session
}

// Stats is a snapshot.
func (m *Model) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{Replayed: m.replayed.Load()}
	for _, talks := range m.talks {
		for _, t := range talks {
			switch t.state {
			case busy:
				s.Busy++
			case idle:
				s.Idle++
			case parked:
				s.Parked++
			case dormant:
				s.Dormant++
			}
		}
	}
	return s
}
