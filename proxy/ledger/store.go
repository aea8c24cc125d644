package ledger

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"time"
)

// store holds the turns of this process. Its caller holds the ledger's lock.
type store struct {
	config Config

	books     map[Scope]*book
	recent    *list.List // of *book, the most recently used one in front
	owners    map[route]owners
	erased    map[talk]time.Time // tombstones of erasures, kept as long as something older may still be recorded
	deadlines map[talk]time.Time // until when a conversation stays though it is not used
	// Scopes that were dropped for their age or for room, in two generations of at most maxLapsed: of
	// the older one no more is added, and it goes as a whole.
	lapsed, olderLapsed map[Scope]struct{}
	turns               int
	bytes               int
}

// talk is a conversation across routes.
type talk struct{ tenant, conversation string }

// route is a tenant's route across conversations.
type route struct{ tenant, route string }

func (s Scope) talk() talk   { return talk{s.Tenant, s.Conversation} }
func (s Scope) route() route { return route{s.Tenant, s.Route} }

// book is what this process holds of a scope.
type book struct {
	scope   Scope
	turns   []*entry           // oldest first
	unread  []*entry           // recorded but not read, oldest first; only their route's index has them
	index   index              // nil before the first turn is read, as is nodes
	nodes   map[string]*Node   // the tree of the conversation, by ID
	orphans map[string][]*Node // turns of the tree without their parent, by its ID
	leaves  int                // turns of the tree that no other one follows
	refused *refusals          // nil for none
	bytes   int
	used    time.Time
	place   *list.Element // its element in store.recent

	mark   Mark // how far the remote was read
	loaded bool // the remote was read at least once
}

const (
	bookSize = 1024 // estimated memory of an empty book, in bytes

	maxErasures = 4096
	maxKept     = 4096
	maxLapsed   = 2048
	// erasureLife is longer than any request lasts that could still record a turn.
	erasureLife = time.Hour
)

func newStore(c Config) *store {
	return &store{
		config: c, books: map[Scope]*book{}, recent: list.New(), owners: map[route]owners{}, erased: map[talk]time.Time{},
		deadlines: map[talk]time.Time{}, lapsed: map[Scope]struct{}{},
	}
}

// find is a scope's book, nil if there is none. It counts as a use.
func (s *store) find(scope Scope, now time.Time) *book {
	b := s.books[scope]
	if b == nil {
		return nil
	}
	if s.aged(b, now) {
		s.lapse(b)
		return nil
	}
	b.used = now
	s.recent.MoveToFront(b.place)
	return b
}

// aged reports whether a book was not used for too long.
func (s *store) aged(b *book, now time.Time) bool {
	return now.Sub(b.used) > s.config.TTL && !now.Before(s.deadlines[b.scope.talk()])
}

// keepUntil has a conversation outlive the TTL. Where too many do, any other one no longer does.
func (s *store) keepUntil(t talk, until, now time.Time) {
	if !until.After(s.deadlines[t]) {
		return
	}
	maps.DeleteFunc(s.deadlines, func(_ talk, until time.Time) bool { return !now.Before(until) })
	for other := range s.deadlines {
		if len(s.deadlines) < maxKept {
			break
		}
		delete(s.deadlines, other)
	}
	s.deadlines[t] = until
}

// open is a scope's book, which is made if there is none.
func (s *store) open(scope Scope, now time.Time) *book {
	if b := s.find(scope, now); b != nil {
		return b
	}
	b := &book{scope: scope, used: now, bytes: bookSize}
	b.place = s.recent.PushFront(b)
	s.books[scope] = b
	delete(s.lapsed, scope)
	delete(s.olderLapsed, scope)
	s.bytes += b.bytes
	return b
}

// lapse drops a book that was not used for longest, and remembers that it was there.
func (s *store) lapse(b *book) {
	if len(s.lapsed) == maxLapsed {
		s.lapsed, s.olderLapsed = map[Scope]struct{}{}, s.lapsed
	}
	if b.size() > 0 {
		s.lapsed[b.scope] = struct{}{}
	}
	s.drop(b)
}

// drop removes a book with all of its turns.
func (s *store) drop(b *book) {
	for _, e := range slices.Concat(b.turns, b.unread) {
		s.unlink(b.scope, e.seals)
	}
	if b.refused != nil {
		for _, f := range b.refused.order {
			s.unlink(b.scope, lasting(f.key))
		}
	}
	s.turns -= b.size()
	s.bytes -= b.bytes
	s.recent.Remove(b.place)
	delete(s.books, b.scope)
}

// size is the number of turns.
func (b *book) size() int { return len(b.turns) + len(b.unread) }

// link has keys lead to a conversation.
func (s *store) link(scope Scope, keys []key) {
	routeOwners := s.owners[scope.route()]
	if routeOwners == nil && len(keys) > 0 {
		routeOwners = owners{}
		s.owners[scope.route()] = routeOwners
	}
	for _, k := range keys {
		routeOwners.add(k, scope.Conversation)
	}
}

// unlink is the end of what link did.
func (s *store) unlink(scope Scope, keys []key) {
	routeOwners := s.owners[scope.route()]
	for _, k := range keys {
		routeOwners.remove(k)
	}
	if len(routeOwners) == 0 {
		delete(s.owners, scope.route())
	}
}

// isErased reports whether what was recorded at a time is erased.
func (s *store) isErased(t talk, recordedAt time.Time) bool {
	erased, ok := s.erased[t]
	return ok && !recordedAt.After(erased)
}

// has reports whether a scope has a turn.
func (s *store) has(scope Scope, id sum) bool {
	b := s.books[scope]
	return b != nil && len(b.index[key{byRecord, id}]) > 0
}

// keep adds a sealed entry that is not read yet. It returns false if the entry is erased, or larger
// than a scope may be.
func (s *store) keep(e *entry, now time.Time) bool {
	scope := e.turn.Scope
	if e.size > s.config.ScopeBytes || s.isErased(scope.talk(), e.turn.Time) {
		return false
	}
	b := s.open(scope, now)
	b.unread = append(b.unread, e)
	s.grow(b, 1, e.size)
	s.link(scope, e.seals)
	s.trim(b, now)
	return true
}

// take removes all entries from a scope that are not read.
func (s *store) take(b *book) []*entry {
	unread := b.unread
	b.unread = nil
	for _, e := range unread {
		s.unlink(b.scope, e.seals)
		s.grow(b, -1, -e.size)
	}
	return unread
}

// grow accounts for turns and bytes that are added to b.
func (s *store) grow(b *book, turns, bytes int) {
	b.bytes += bytes
	s.bytes += bytes
	s.turns += turns
}

// add adds an entry that was read, to a scope without unread ones. It returns false if the entry is
// there already, is erased, is a shorter piece of one that is there, or is larger than a scope may
// be.
func (s *store) add(e *entry, now time.Time) bool {
	scope := e.turn.Scope
	if e.size > s.config.ScopeBytes || s.isErased(scope.talk(), e.turn.Time) || s.has(scope, e.id) {
		return false
	}
	b := s.open(scope, now)
	if !s.supersede(b, e) {
		return false
	}
	i, _ := slices.BinarySearchFunc(b.turns, e, func(a, e *entry) int {
		if a.turn.Time.After(e.turn.Time) {
			return 1
		}
		return -1
	})
	b.turns = slices.Insert(b.turns, i, e)
	s.grow(b, 1, e.size)
	if b.index == nil {
		b.index, b.nodes, b.orphans = index{}, map[string]*Node{}, map[string][]*Node{}
	}
	b.index.add(key{byRecord, e.id}, e)
	for _, k := range e.keys {
		b.index.add(k, e)
	}
	s.link(scope, e.seals)
	if e.node != nil {
		b.nodes[e.node.id] = e.node
		s.plant(b, e.node)
	}
	s.trim(b, now)
	return true
}

// supersede removes earlier pieces of the answer that e has more of. It is false if e itself is
// such a piece of an entry that is there.
func (s *store) supersede(b *book, e *entry) bool {
	for _, k := range e.keys {
		if !k.opaque() {
			continue
		}
		for _, old := range b.index[k] {
			switch {
			case old.turn.Origin != e.turn.Origin:
			case e.turn.Cut && (!old.turn.Cut || len(old.form.parts) >= len(e.form.parts) &&
				len(old.turn.Content) >= len(e.turn.Content)):
				return false
			case old.turn.Cut:
				s.remove(b, old)
			}
		}
	}
	return true
}

// remove removes an entry from a book and all indexes.
func (s *store) remove(b *book, e *entry) {
	i := slices.Index(b.turns, e)
	if i < 0 {
		return
	}
	b.turns = slices.Delete(b.turns, i, i+1)
	s.grow(b, -1, -e.size)
	if e.node != nil {
		b.uproot(e.node)
	}
	b.index.remove(key{byRecord, e.id}, e)
	for _, k := range e.keys {
		b.index.remove(k, e)
	}
	s.unlink(b.scope, e.seals)
}

// removeOldest removes the oldest turn of a book that has one. Entries that were read are older
// than those that were not.
func (s *store) removeOldest(b *book) {
	if len(b.turns) > 0 {
		s.remove(b, b.turns[0])
		return
	}
	e := b.unread[0]
	b.unread = slices.Delete(b.unread, 0, 1)
	s.unlink(b.scope, e.seals)
	s.grow(b, -1, -e.size)
}

// trim enforces the bounds after something was added to b.
func (s *store) trim(b *book, now time.Time) {
	for b.size() > s.config.ScopeTurns || b.bytes > s.config.ScopeBytes+bookSize && b.size() > 0 {
		s.removeOldest(b)
	}
	for el := s.recent.Back(); el != nil; el = s.recent.Back() {
		last := el.Value.(*book)
		overLimit := s.turns > s.config.Turns || s.bytes > s.config.Bytes
		if !overLimit && !s.aged(last, now) {
			return
		}
		if last != b {
			s.lapse(last)
		} else if b.size() > 0 {
			s.removeOldest(b)
		} else {
			s.drop(b)
		}
	}
}

// refuse notes rejected blocks and returns those that are new.
func (s *store) refuse(scope Scope, origin Origin, keys []string, now time.Time) []string {
	var fresh []string
	b := s.books[scope]
	for _, k := range keys {
		if k != "" && (b == nil || !b.refused.has(origin, k)) && !slices.Contains(fresh, k) {
			fresh = append(fresh, strings.Clone(k))
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	b = s.open(scope, now)
	if b.refused == nil {
		b.refused = &refusals{set: map[refusal]struct{}{}}
	}
	evicted := b.refused.add(origin, fresh)
	s.link(scope, lasting(fresh...))
	s.unlink(scope, lasting(evicted...))
	s.grow(b, 0, refusalSize*(len(fresh)-len(evicted)))
	s.trim(b, now)
	return fresh
}

// erase notes erasures as tombstones, and removes what they cover.
func (s *store) erase(erasures []Erasure, now time.Time) {
	fresh := map[talk]time.Time{}
	for _, e := range erasures {
		if t := (talk{e.Tenant, e.Conversation}); !s.isErased(t, e.Time) && now.Sub(e.Time) <= erasureLife {
			fresh[t] = e.Time
		}
	}
	if len(fresh) == 0 {
		return
	}
	for old, erasedAt := range s.erased {
		if len(s.erased)+len(fresh) > maxErasures || now.Sub(erasedAt) > erasureLife {
			delete(s.erased, old)
		}
	}
	maps.Copy(s.erased, fresh)
	for t := range fresh {
		delete(s.deadlines, t)
	}
	for scope, b := range s.books {
		if erasedAt, ok := fresh[scope.talk()]; ok {
			s.clear(b, erasedAt, now)
		}
	}
}

// clear removes what is not later than an erasure.
func (s *store) clear(b *book, erasedAt, now time.Time) {
	for _, e := range slices.Clone(b.turns) {
		if !e.turn.Time.After(erasedAt) {
			s.remove(b, e)
		}
	}
	for _, e := range s.take(b) {
		if e.turn.Time.After(erasedAt) {
			s.keep(e, now)
		}
	}
	if b.size() == 0 {
		s.drop(b)
	}
}
