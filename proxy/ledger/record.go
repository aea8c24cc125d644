package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// Ledger is the store of answered turns: a bounded cache in memory over an optional Remote. It is
// safe for concurrent use.
type Ledger struct {
	config       Config
	forms        *forms[*Form]
	fingerprints *forms[*Fingerprint]
	writer       *writer // nil without a remote

	mu    sync.Mutex
	store *store    // guarded by mu
	last  time.Time // the newest result of stamp; guarded by mu
}

// New makes an empty ledger. With a remote it starts one goroutine, which Close ends.
func New(c Config) *Ledger {
	c = c.withDefaults()
	l := &Ledger{config: c, forms: newForms[*Form](), fingerprints: newForms[*Fingerprint](), store: newStore(c)}
	if c.Remote != nil {
		l.writer = startWriter(c, l)
	}
	return l
}

// Close waits until the remote has everything that was recorded, or until ctx ends; the error says
// what it does not have. After Close the ledger works from memory.
func (l *Ledger) Close(ctx context.Context) error {
	if l.writer == nil {
		return nil
	}
	return l.writer.close(ctx)
}

// Degraded reports that the remote failed when it was last tried: turns are found only by what this
// process knows, and wait to be saved.
func (l *Ledger) Degraded() bool { return l.writer != nil && l.writer.failing() }

// Stats are sizes at one instant.
type Stats struct {
	Scopes, Turns int   // identical turns count separately until their scope is looked at
	Bytes         int   // in memory, estimated
	Waiting       int   // turns and refusals that wait to be saved in the remote
	Dropped       int64 // entries that were never saved, since too many waited
}

// Stats are the ledger's sizes, for metrics.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	s := Stats{Scopes: len(l.store.books), Turns: l.store.turns, Bytes: l.store.bytes}
	l.mu.Unlock()
	if l.writer != nil {
		s.Waiting, s.Dropped = l.writer.counts()
	}
	return s
}

// Record stores a turn: in this process before it returns, and in the remote too if that takes no
// longer than Config.Patience, else soon after. It never fails, and does not wait once ctx has
// ended.
//
// A turn may be recorded again with more blocks as long as it is Cut; the last, complete record
// replaces the others when its scope is next looked at. Turns without any key are dropped then, and
// a Cut one without signatures is not stored at all. The caller should not record answers that no
// client will replay, since they displace others: answers of count_tokens, and titles and
// summaries, which come with requests that have no tools and ask for little.
func (l *Ledger) Record(ctx context.Context, t Turn) {
	if t.Time.IsZero() {
		t.Time = l.stamp()
	}
	t.Time = t.Time.Truncate(time.Microsecond)
	t.Tools = append([]ToolID(nil), t.Tools...)
	if t.Cut {
		t.Place, t.Response = nil, nil
	}
	if t.Response != nil {
		t.ResponseID = t.Response.ID
	}
	e, _, err := seal(&t)
	if err != nil {
		l.config.Log.Warn().Err(err).Str("backend", t.Origin.Backend).Msg("an answer is not kept in the ledger")
		return
	}
	if t.Cut && len(e.seals) == 0 {
		return
	}
	l.mu.Lock()
	stored := l.store.keep(e, l.config.Now())
	l.mu.Unlock()
	if !stored {
		return
	}
	if l.writer != nil {
		l.writer.put(ctx, e.remote())
	}
}

// Refuse notes that a backend and model rejected these blocks of a scope. It waits like Record.
func (l *Ledger) Refuse(ctx context.Context, s Scope, origin Origin, keys []string) {
	now := l.stamp()
	l.mu.Lock()
	fresh := l.store.refuse(s, origin, keys, now)
	l.mu.Unlock()
	if l.writer != nil && len(fresh) > 0 {
		l.writer.put(ctx, Entry{Scope: s, Time: now, Origin: origin, Refused: fresh, Keys: texts(lasting(fresh...))})
	}
}

// Forget erases a conversation on every route of its tenant: here, in the remote and, within about
// a second, in the memory of other processes. Answers to requests that began before stay erased
// when they are recorded later. After an error this process has erased it but the remote may not
// have; the call may be repeated.
func (l *Ledger) Forget(ctx context.Context, tenant, conversation string) error {
	e := Erasure{Tenant: strings.Clone(tenant), Conversation: strings.Clone(conversation), Time: l.stamp()}
	l.erase([]Erasure{e})
	if l.writer == nil {
		return nil
	}
	if err := l.writer.erase(ctx, e); err != nil {
		return fmt.Errorf("erase conversation %s: %w", conversation, err)
	}
	return nil
}

// Lister is a Remote that knows which conversations tenants have.
type Lister interface {
	// Conversations gives up to count of them, and how many there are.
	Conversations(ctx context.Context, tenant string, count int) (names []string, total int, err error)
}

// Conversations gives up to count conversations of a tenant, of which the remote knows if it is a Lister, and then
// those that this process has in memory, and how many it knows at least.
func (l *Ledger) Conversations(ctx context.Context, tenant string, count int) (names []string, total int, err error) {
	if lister, ok := l.config.Remote.(Lister); ok {
		if names, total, err = lister.Conversations(ctx, tenant, count); err != nil {
			return nil, 0, fmt.Errorf("list conversations: %w", err)
		}
	}
	if total > 0 {
		return names, total, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	localNames := map[string]bool{}
	for scope := range l.store.books {
		if scope.Tenant == tenant {
			localNames[scope.Conversation] = true
		}
	}
	names = slices.Sorted(maps.Keys(localNames))
	return names[:min(count, len(names))], len(names), nil
}

// Keep has a conversation outlive Config.TTL on every route of its tenant: its turns, and those that
// are recorded later, stay at least until then, here and in the remote, unless their room is needed.
// An earlier time than before changes nothing; Forget ends it. Once it returns without an error, the
// remote has what was recorded in the conversation before, so that it can go on in another process. It
// waits for that up to 2 s, or Config.Patience if that is longer. After an error this process keeps the
// conversation but the remote may not; the call may be repeated.
func (l *Ledger) Keep(ctx context.Context, tenant, conversation string, until time.Time) error {
	l.mu.Lock()
	l.store.keepUntil(talk{strings.Clone(tenant), strings.Clone(conversation)}, until, l.config.Now())
	l.mu.Unlock()
	if l.writer == nil {
		return nil
	}
	t := talk{tenant, conversation}
	if err := l.writer.keep(ctx, t, until); err != nil {
		return fmt.Errorf("keep conversation %s: %w", conversation, err)
	}
	if err := l.writer.flush(ctx, t); err != nil {
		return fmt.Errorf("keep conversation %s: %w", conversation, err)
	}
	return nil
}

// find is a scope's book, nil if there is none, after reading its new entries. It counts as a use.
// The caller holds mu, so that no goroutine misses a turn that another goroutine is reading.
func (l *Ledger) find(scope Scope) *book {
	now := l.config.Now()
	b := l.store.find(scope, now)
	if b == nil || len(b.unread) == 0 {
		return b
	}
	for _, e := range l.store.take(b) {
		content, form, err := e.read(nil)
		switch {
		case err != nil:
			l.config.Log.Warn().Err(err).Str("backend", e.turn.Origin.Backend).Msg("an answer is not kept in the ledger")
		case len(e.keys) > 0 && l.store.add(e, now) && content != nil:
			l.forms.Set(l.forms.print(content, e.turn.Dialect == wire.Chat), form)
		}
	}
	return l.store.find(scope, now)
}

// saveAll saves all turns of this process to the remote again, and until when it keeps them.
func (l *Ledger) saveAll(ctx context.Context) {
	l.mu.Lock()
	var entries []*entry
	for _, b := range l.store.books {
		entries = append(append(entries, b.turns...), b.unread...)
	}
	deadlines := maps.Clone(l.store.deadlines)
	l.mu.Unlock()
	l.writer.requeue(entries)
	for t, until := range deadlines {
		if err := l.writer.keep(ctx, t, until); err != nil {
			l.config.Log.Warn().Err(err).Str("conversation", t.conversation).Msg("a conversation is kept in memory only")
			return
		}
	}
}

// stamp is a strictly increasing clock, in µs: an erasure must be ordered against what is recorded
// just before and after it.
func (l *Ledger) stamp() time.Time {
	now := l.config.Now().Truncate(time.Microsecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.After(l.last) {
		now = l.last.Add(time.Microsecond)
	}
	l.last = now
	return now
}

// erase applies erasures to this process's memory.
func (l *Ledger) erase(erasures []Erasure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store.erase(erasures, l.config.Now())
}
