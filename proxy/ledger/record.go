package ledger

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// Ledger holds answered turns. It is safe for concurrent use.
type Ledger struct {
	config Config
	forms  *forms[*Form]
	said   *forms[*Said]
	writer *writer // nil without a remote

	mu    sync.Mutex
	store *store    // guarded by mu
	last  time.Time // that stamp gave; guarded by mu
}

// New is an empty ledger. With a remote it runs one goroutine, which Close ends.
func New(c Config) *Ledger {
	c = c.withDefaults()
	l := &Ledger{config: c, forms: newForms[*Form](), said: newForms[*Said](), store: newStore(c)}
	if c.Remote != nil {
		l.writer = startWriter(c, l.erase, l.saveAll)
	}
	return l
}

// Close waits until the remote has what was recorded, or until ctx ends. The
// error says what it did not get. After Close the ledger works from memory.
func (l *Ledger) Close(ctx context.Context) error {
	if l.writer == nil {
		return nil
	}
	return l.writer.close(ctx)
}

// Degraded says that the remote was not reached when it was last tried: turns
// are found by what this process knows alone, and wait to be saved.
func (l *Ledger) Degraded() bool { return l.writer != nil && l.writer.failing() }

// Stats are sizes of the moment.
type Stats struct {
	Scopes, Turns int   // turns that turn out to be one count as many until somebody looks
	Bytes         int   // roughly, in memory
	Waiting       int   // turns and refusals that the remote does not have yet
	Dropped       int64 // that it will never have, since too many waited
}

// Stats are for metrics.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	s := Stats{Scopes: len(l.store.books), Turns: l.store.turns, Bytes: l.store.bytes}
	l.mu.Unlock()
	if l.writer != nil {
		s.Waiting, s.Dropped = l.writer.counts()
	}
	return s
}

// Record keeps a turn: for this process when it returns, in the remote too if
// that takes no longer than Config.Patience, else soon after. It never fails, and waits for
// nothing once ctx has ended.
//
// A turn may be recorded again with more blocks as long as it is Cut; the last
// record, whole, takes the place of the others when its scope is next looked at.
// One with nothing by which it could be found is kept no longer than that, and a Cut
// one without signatures not at all. Answers that no
// client will replay should not be recorded, since they take the room of others:
// those of count_tokens have none, and titles and summaries come with requests
// that hold no tools and ask for little.
func (l *Ledger) Record(ctx context.Context, t Turn) {
	if t.At.IsZero() {
		t.At = l.stamp()
	}
	t.At = t.At.Truncate(time.Microsecond)
	t.Tools = append([]ToolID(nil), t.Tools...)
	if t.Place != nil && t.Cut {
		t.Place = nil
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
	kept := l.store.keep(e, l.config.Now())
	l.mu.Unlock()
	if !kept {
		return
	}
	if l.writer != nil {
		l.writer.put(ctx, e.remote())
	}
}

// Refuse remembers that a backend and model rejected these blocks, in this scope
// and, those with a signature or data, for requests of the tenant's route that
// have no conversation. It waits like Record.
func (l *Ledger) Refuse(ctx context.Context, s Scope, by Origin, keys []string) {
	var signed []string
	for _, k := range keys {
		if isSealed(k) {
			signed = append(signed, k)
		}
	}
	now := l.stamp()
	l.mu.Lock()
	own := l.store.refuse(s, by, keys, now)
	common := l.store.refuse(s.pool(), by, signed, now)
	l.mu.Unlock()
	if l.writer == nil {
		return
	}
	var entries []Entry
	if len(own) > 0 {
		entries = append(entries, Entry{Scope: s, At: now, By: by, Refused: own})
	}
	if len(common) > 0 {
		entries = append(entries, Entry{Scope: s.pool(), At: now, By: by, Refused: common})
	}
	l.writer.put(ctx, entries...)
}

// Forget erases a conversation on every route of its tenant, here, in the remote
// and, within about a second, in the memory of other processes. What was asked
// before and is recorded later stays erased. After an error this process has
// forgotten it, the remote may not have; call it again.
func (l *Ledger) Forget(ctx context.Context, tenant, conversation string) error {
	e := Erasure{Tenant: strings.Clone(tenant), Conversation: strings.Clone(conversation), At: l.stamp()}
	l.erase([]Erasure{e})
	if l.writer == nil {
		return nil
	}
	if err := l.writer.erase(ctx, e); err != nil {
		return fmt.Errorf("erase conversation %s: %w", conversation, err)
	}
	return nil
}

// find is a scope's book, nil if there is none, with all of its turns read. It
// counts as a use. It needs mu: whoever looks for a turn while another reads it must
// not miss it.
func (l *Ledger) find(scope Scope) *book {
	now := l.config.Now()
	b := l.store.find(scope, now)
	if b == nil || len(b.unread) == 0 {
		return b
	}
	for _, e := range l.store.take(b) {
		seen, form, err := e.read(nil)
		switch {
		case err != nil:
			l.config.Log.Warn().Err(err).Str("backend", e.turn.Origin.Backend).Msg("an answer is not kept in the ledger")
		case len(e.keys) > 0 && l.store.add(e, now) && seen != nil:
			l.forms.put(l.forms.print(seen, e.turn.Dialect == wire.Chat), form)
		}
	}
	return l.store.find(scope, now)
}

// saveAll has the remote save all turns that this process knows.
func (l *Ledger) saveAll() {
	l.mu.Lock()
	var all []*entry
	for _, b := range l.store.books {
		all = append(append(all, b.turns...), b.unread...)
	}
	l.mu.Unlock()
	l.writer.again(all)
}

// stamp is the time, in µs, later than any that it gave before: an erasure must
// be told from what is recorded just before and behind it.
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

func (l *Ledger) erase(all []Erasure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store.erase(all, l.config.Now())
}
