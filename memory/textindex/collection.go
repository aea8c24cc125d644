package textindex

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Collection is documents that are searched together. Safe for concurrent use:
// writers take turns, searches never wait. Make one with NewCollection.
type Collection struct {
	shared  *shared
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex       // held by writers
	places map[string]place // of the documents, by id; guarded by mu
	judged bool             // its results can be weak
	sample sample           // guarded by mu
	stale  int              // documents changed since the threshold was found; guarded by mu
}

// place is where a document is.
type place struct {
	segment *segment
	entry   int
}

// shared is what all snapshots of a collection use.
type shared struct {
	tallies sync.Pool // of *tally
}

// NewCollection makes a Collection without documents, of version 0.
func NewCollection() *Collection {
	c := NewUnjudged()
	c.judged = true
	return c
}

// NewUnjudged makes a Collection whose results are never told to be weak by what is usual in it, and which keeps
// nothing of its texts for that: a small one takes less memory and a large one is made in less time.
func NewUnjudged() *Collection {
	c := &Collection{shared: &shared{}, places: map[string]place{}}
	c.shared.tallies.New = func() any { return &tally{} }
	c.current.Store(&Snapshot{shared: c.shared, weak: weakFixed})
	return c
}

// analyzers are shared by all collections, so that many small ones do not remember the same words each. What they
// remember shows in no result: terms are the same whichever analyzer finds them.
var analyzers = sync.Pool{New: func() any { return &analyzer{} }}

// anAnalyzer gives one to be put back.
func anAnalyzer() *analyzer {
	a := analyzers.Get().(*analyzer)
	a.forget()
	return a
}

// Change is documents to put in and to take out, in one step.
type Change struct {
	Put []Document // each replaces the one with its id; of two with one id the last counts
	// Prepared documents are put too, each id once in all of the change.
	Prepared []*Prepared
	Delete   []string // ids; what is not there is passed over, what is put stays
	// Version is the collection's version after the change; 0 for the one after
	// the present.
	Version uint64
}

// Put adds documents, each in place of the one with its id.
func (c *Collection) Put(documents ...Document) { c.Apply(Change{Put: documents}) }

// Delete takes documents out; ids that are not there are passed over.
func (c *Collection) Delete(ids ...string) { c.Apply(Change{Delete: ids}) }

// Search searches the present Snapshot.
func (c *Collection) Search(q Query) Result { return c.Snapshot().Search(q) }

// Snapshot gives the collection as it is now.
func (c *Collection) Snapshot() *Snapshot { return c.current.Load() }

// Has says whether a document is there.
func (c *Collection) Has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.places[id]
	return ok
}

// Apply makes a change. When it returns, every search sees it. The analysis, which takes time, is done before the lock is
// taken. Under the lock a copy of the list of segments is edited and published by one atomic store, so that searches,
// which take no lock, see all of the change or nothing of it (copy on write). Segments themselves never change: a
// document that is replaced or deleted is marked in a bitmap beside its segment.
func (c *Collection) Apply(change Change) {
	p := Prepared{segments: c.build(change.Put), documents: len(change.Put)}
	for _, other := range change.Prepared {
		p.segments = append(p.segments, other.segments...)
		p.probes = append(p.probes, other.probes...)
		p.documents += other.documents
	}
	built := mergeFresh(p.segments)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Snapshot()
	e := edit{parts: slices.Clone(now.parts), owned: map[*segment]bool{}}
	for _, id := range change.Delete {
		c.remove(&e, id)
	}
	for _, s := range built {
		e.add(s)
		for i, d := range s.docs {
			c.remove(&e, d.id)
			c.places[d.id] = place{s, i}
		}
	}
	for group := e.untidy(); group != nil; group = e.untidy() {
		c.merge(&e, group)
	}
	if c.judged {
		for _, d := range change.Put {
			c.sample.remove(d.ID)
			c.sample.add(d)
		}
		for _, q := range p.probes {
			c.sample.remove(q.id)
			c.sample.insert(q)
		}
	}
	version := change.Version
	if version == 0 {
		version = now.version + 1
	}
	next := newSnapshot(c.shared, e.parts, len(c.places), version)
	if next.weak = now.weak; c.judged {
		next.weak = c.threshold(next, now.weak, p.documents+len(change.Delete))
	}
	c.current.Store(next)
}

// threshold is that of the snapshot after a change of some documents, or the one
// before if they are few: two collections that came to the same documents by other
// steps may differ a little in it.
func (c *Collection) threshold(next *Snapshot, old float64, changed int) float64 {
	c.stale += changed
	switch {
	case next.documents < weakDocuments:
		c.stale = next.documents // all is to be found when there are enough
		return weakFixed
	case c.stale <= next.documents/staleShare:
		return old
	}
	c.stale = 0
	return next.threshold(c.sample)
}

// staleShare is the part of the documents that may change before the threshold is
// found anew, which takes as long as some hundred searches.
const staleShare = 4

// The passages of a segment that new documents are built into: at most so many,
// which bounds the memory that building takes, and no fewer than are worth the
// start of a goroutine.
const (
	perSegment   = 4096
	leastSegment = 256
)

// build makes segments of documents, on all processors; it returns when they are
// done.
func (c *Collection) build(documents []Document) []*segment {
	total := 0
	for _, d := range documents {
		total += len(d.Passages)
	}
	workers := runtime.GOMAXPROCS(0)
	batches := batch(documents, min(max(total/workers+1, leastSegment), perSegment))
	built := make([]*segment, len(batches))
	if len(batches) == 1 {
		built[0] = c.segment(batches[0])
		return built
	}
	onAll(len(batches), func(i int) { built[i] = c.segment(batches[i]) })
	return built
}

// onAll does n things on all processors; it returns when they are done.
func onAll(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error { do(i); return nil })
	}
	_ = group.Wait() // which has no errors
}

// batch cuts documents into runs that end when they have so many passages.
func batch(documents []Document, passages int) (batches [][]Document) {
	first, sum := 0, 0
	for i, d := range documents {
		if sum += len(d.Passages); sum >= passages || i == len(documents)-1 {
			batches = append(batches, documents[first:i+1])
			first, sum = i+1, 0
		}
	}
	return batches
}

func (c *Collection) segment(documents []Document) *segment {
	a := anAnalyzer()
	b := builder{analyzer: a}
	for _, d := range documents {
		b.add(d)
	}
	s := b.finish()
	analyzers.Put(a) // not deferred: after a panic it is not as finish leaves it
	return s
}

// remove takes a document out, if it is there: out of the places and the sample, and in its segment it becomes dead.
func (c *Collection) remove(e *edit, id string) {
	p, ok := c.places[id]
	if !ok {
		return
	}
	delete(c.places, id)
	c.sample.remove(id)
	e.remove(p)
}

// merge makes one segment of some parts.
func (c *Collection) merge(e *edit, group []int) {
	var parts []part
	for _, i := range group {
		parts = append(parts, e.parts[i])
	}
	merged := merge(parts, func(s *segment, doc int) bool { return c.places[s.docs[doc].id] == place{s, doc} })
	for i, d := range merged.docs {
		c.places[d.id] = place{merged, i}
	}
	for _, i := range slices.Backward(group) {
		e.parts = slices.Delete(e.parts, i, i+1)
	}
	if len(merged.docs) > 0 {
		e.add(merged)
	}
}

// part is a segment as far as it is live.
type part struct {
	*segment
	dead   bitset // by passage; nil for none
	live   int    // passages
	length int    // terms of the live passages
	bytes  int    // that it takes, about
}

// bitset holds one bit per passage.
type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }
func (b bitset) has(i int) bool { return b != nil && b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }

// edit is a list of parts in the making.
type edit struct {
	parts []part
	owned map[*segment]bool // segments with a set of dead that no snapshot shares
}

func (e *edit) add(s *segment) {
	p := part{segment: s, live: len(s.lengths)}
	for _, n := range s.lengths {
		p.length += int(n)
	}
	p.bytes = s.bytes()
	e.parts = append(e.parts, p)
}

func (e *edit) remove(target place) {
	i := slices.IndexFunc(e.parts, func(p part) bool { return p.segment == target.segment })
	p := &e.parts[i]
	if !e.owned[p.segment] {
		dead := newBitset(len(p.lengths))
		copy(dead, p.dead)
		p.dead = dead
		e.owned[p.segment] = true
	}
	first, end := p.passages(target.entry)
	for passage := first; passage < end; passage++ {
		p.dead.set(passage)
		p.live--
		p.length -= int(p.lengths[passage])
	}
}

// fanout is how many segments of about one size are left beside each other. More
// would make searches slower, fewer make changes slower.
const fanout = 4

// untidy are the parts to be merged next, ascending; nil if none are. It is the size-tiered compaction of log-structured
// merge trees: a part that is dead for the most part is rewritten, and parts of about one size become one when there
// are fanout of them.
func (e *edit) untidy() []int {
	bySize := map[int][]int{}
	for i, p := range e.parts {
		if p.live*2 < len(p.lengths) {
			return []int{i}
		}
		if len(p.data) < maxSegment/fanout {
			size := bits.Len(uint(p.live)) / 2
			bySize[size] = append(bySize[size], i)
			if len(bySize[size]) == fanout {
				return bySize[size]
			}
		}
	}
	return nil
}
