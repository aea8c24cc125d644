package rag

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// Searcher is a search engine outside of this process that finds candidates among the passages of collections. Nothing
// that it says is shown unless the store proves it. Its errors wrap ErrEngineAway or ErrNoShard.
type Searcher interface {
	// Identity names what is kept: another one stands for an engine that begins empty.
	Identity(ctx context.Context) (string, error)
	// Make makes a shard, in which the passages of one collection are apart from all others, unless there is one.
	Make(ctx context.Context, shard string) error
	Shards(ctx context.Context) ([]string, error)
	Drop(ctx context.Context, shards ...string) error
	// Put puts entries. An entry is never changed, so that of two processes that put it none spoils the other's work.
	Put(ctx context.Context, shard string, entries []Entry) error
	Delete(ctx context.Context, shard string, deletions []Deletion) error
	// Search gives at most limit entries for each query, a list of terms, best first.
	Search(ctx context.Context, shard string, queries [][]string, limit int) (Candidates, error)
}

// Entry is a passage as a Searcher keeps it.
type Entry struct {
	Document string
	Version  int64  // of the document
	Hash     string // of its content
	Passage  int    // position in the document
	Sum      string // of the passage's text
	Terms    []string
}

// Deletion are the entries of a document with a version below Before.
type Deletion struct {
	Document     string
	BelowVersion int64
}

// Candidates is the result of a Searcher.
type Candidates struct {
	Entries    []Entry
	HasMore    bool // there may be others
	Statistics textindex.Statistics
}

// Errors of a Searcher, for errors.Is.
var (
	ErrEngineAway = fmt.Errorf("%w: the search engine does not serve", docstore.ErrUnavailable)
	// ErrNoShard: the shard is not there, so that the collection has to be fed again.
	ErrNoShard = fmt.Errorf("%w: the search engine lacks what it was fed", docstore.ErrUnavailable)
)

// fed is how far an engine has a collection, which the collection's meta keeps.
type fed struct {
	Engine string `json:"engine"`          // its identity
	Shard  string `json:"shard,omitempty"` // a new one for each feeding from the beginning
	Mark   string `json:"mark,omitempty"`  // place in the log up to which the shard has all, once it is filled
	// Filling: all documents are put, in the order of their ids; those up to Cursor have been.
	Filling  bool   `json:"filling,omitempty"`
	Cursor   string `json:"cursor,omitempty"`
	Previous string `json:"before,omitempty"` // the shard that is searched while Filling; "" for none
}

func parseFed(text string) (f fed) {
	_ = json.Unmarshal([]byte(text), &f) // what is no JSON is as good as nothing
	return f
}

// searched is the shard that can be searched, "" for none.
func (f fed) searched() string {
	if f.Filling {
		return f.Previous
	}
	return f.Shard
}

// shardsOf begins the names of the shards of a tenant, shardOf those of one of its collections.
func shardsOf(tenant memory.Tenant) string { return sumOf(tenant.String()).short() }

func shardOf(c docstore.Collection) string { return shardsOf(c.Tenant()) + sumOf(c.String()).short() }

func (h contentHash) short() string { return hex.EncodeToString(h[:8]) + "-" }

// engineOf is the Searcher that serves a collection; nil for a chat's.
func engineOf(l *Library, c docstore.Collection) Searcher {
	if !c.Chat().IsZero() {
		return nil
	}
	return l.o.Searcher
}

func (r *replica) engine() Searcher { return engineOf(r.library, r.collection) }

// outside is the engine's part in a search, current as of this call or marked as degraded. It is false while the engine
// has not been fed all of the collection: until then this process's own copy is searched.
func (r *replica) outside(ctx context.Context) (leg, bool, error) {
	if r.engine() == nil {
		return leg{}, false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.library.o.Patience)
	defer cancel()
	degraded := true
	for retry := false; ; retry = true {
		last, text, err := docstore.Fed(bounded, r.library.store, r.collection)
		f := parseFed(text)
		switch {
		case errors.Is(err, docstore.ErrNoCollection), err != nil && r.local.Load() != nil:
			return leg{}, false, nil // the copy's part says what that means
		case err != nil:
			return leg{}, false, err
		case f.searched() == "":
			r.feeding.begin(r.library, r.feed)
			return leg{}, false, nil
		case !f.Filling && f.Mark == last.Text():
			degraded = false
		case !retry:
			waiting, cancel := context.WithTimeout(ctx, r.library.o.CatchUp)
			degraded = r.fedUp(waiting) != nil
			cancel()
			continue // the shard may be another
		}
		return leg{collection: r.collection, outside: &outside{replica: r, shard: f.searched(), state: text,
			version: docstore.ParseMark(f.Mark).Version}, degraded: degraded || f.Filling}, true, nil
	}
}

// fedUp waits until the engine has what the store had at this call.
func (r *replica) fedUp(ctx context.Context) error {
	for r.engine() != nil {
		run, started := r.feeding.begin(r.library, r.feed)
		select {
		case <-run.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if started || run.err != nil {
			return run.err
		}
	}
	return nil
}

// isFed reports whether the engine has a shard of the collection that can be searched.
func (r *replica) isFed(ctx context.Context) bool {
	if r.engine() == nil {
		return false
	}
	_, text, err := docstore.Fed(ctx, r.library.store, r.collection)
	return err == nil && parseFed(text).searched() != ""
}

// fedAtOnce is how many documents or changes are fed in one step, unless they are large.
const fedAtOnce = 256

// feed brings the engine up to date with the store, step by step. What was done is noted after each step by compare and
// set, so that a process that is killed loses one step, and several share the work or repeat it without harm.
func (r *replica) feed(ctx context.Context) error {
	store, engine := r.library.store, r.engine()
	identity, err := engine.Identity(ctx)
	for err == nil {
		last, text, failed := docstore.Fed(ctx, store, r.collection)
		f := parseFed(text)
		if failed != nil || f.Engine == identity && !f.Filling && f.Mark == last.Text() {
			return failed
		}
		if f.Engine != identity {
			f = fed{}
		}
		var next fed
		next, err = r.step(ctx, f, last)
		if next.Engine = identity; errors.Is(err, ErrNoShard) {
			r.unfed(ctx, text)
		} else if err == nil {
			encoded, _ := json.Marshal(next) // strings encode
			_, err = docstore.Feed(ctx, store, r.collection, text, string(encoded))
		}
	}
	if ctx.Err() == nil && !errors.Is(err, docstore.ErrNoCollection) {
		r.library.o.Log.Warn().Err(err).Stringer("collection", r.collection).
			Msg("the search engine lacks changes of a collection; it is tried again")
	}
	return err
}

// unfed has a collection fed from the beginning, if what is noted is still this.
func (r *replica) unfed(ctx context.Context, state string) {
	_, _ = docstore.Feed(ctx, r.library.store, r.collection, state, "") // the next feeding or search finds the same
}

// step is one step of feed: a new shard, a page of all documents, or a page of the log.
func (r *replica) step(ctx context.Context, f fed, last docstore.Mark) (fed, error) {
	store := r.library.store
	anew := fed{Shard: shardOf(r.collection) + strings.ToLower(rand.Text()[:16]), Mark: last.Text(), Filling: true,
		Previous: f.searched()}
	switch {
	case f.Shard == "":
		return anew, nil
	case f.Filling:
		if f.Cursor == "" { // the shard is noted before it is made, since those that are not noted are swept
			if err := r.engine().Make(ctx, f.Shard); err != nil {
				return f, err
			}
		}
		heads, next, err := store.List(ctx, r.collection, f.Cursor, fedAtOnce)
		if err != nil {
			return f, err
		}
		n, err := r.send(ctx, f.Shard, heads)
		if f.Cursor = next; n < len(heads) {
			f.Cursor = heads[n-1].ID
		}
		if f.Cursor == "" {
			f.Filling, f.Previous = false, ""
		}
		return f, err
	}
	changes, err := store.Tail(ctx, r.collection, docstore.ParseMark(f.Mark), fedAtOnce)
	switch {
	case errors.Is(err, docstore.ErrGap):
		return anew, nil
	case err != nil || len(changes) == 0:
		return f, err
	}
	end := changes[len(changes)-1].Mark
	// A document without a head was deleted up to here; what is put under its id later has a greater version.
	versions := map[string]int64{}
	ids := changed(changes)
	for _, id := range ids {
		versions[id] = end.Version + 1
	}
	heads, err := store.Heads(ctx, r.collection, ids...)
	for _, h := range heads {
		versions[h.ID] = h.Version
	}
	for n := 0; len(heads) > 0 && err == nil; heads = heads[n:] {
		n, err = r.send(ctx, f.Shard, heads)
	}
	var deletions []Deletion
	for id, version := range versions {
		deletions = append(deletions, Deletion{id, version})
	}
	f.Mark = end.Text()
	if err == nil {
		err = r.engine().Delete(ctx, f.Shard, deletions)
	}
	return f, err
}

// send puts the first n of some documents, so many as are worth one step.
func (r *replica) send(ctx context.Context, shard string, heads []docstore.Head) (n int, err error) {
	var ids []string
	for passages, bytes := 0, 0; n < len(heads) && passages < jobPassages && bytes < jobBytes; n++ {
		ids = append(ids, heads[n].ID)
		passages, bytes = passages+heads[n].Passages, bytes+heads[n].Bytes
	}
	documents, err := r.library.store.GetAll(ctx, r.collection, ids...)
	var entries []Entry
	for _, d := range documents {
		indexed := textindex.Document{Title: d.Title}
		for _, p := range d.Passages {
			indexed.Passages = append(indexed.Passages, textindex.Passage{Section: p.Section, Text: d.Text[p.Start:p.End]})
		}
		for i, terms := range textindex.PassageTerms(indexed) {
			sum := sumOf(indexed.Passages[i].Text)
			entries = append(entries, Entry{d.ID, d.Version, d.Hash, i, hex.EncodeToString(sum[:]), terms})
		}
	}
	if err != nil || len(entries) == 0 {
		return n, err
	}
	return n, r.engine().Put(ctx, shard, entries)
}

// outside is a leg that the engine searches: what it found, and the store proved, is scored here.
type outside struct {
	replica *replica
	shard   string
	state   string // how far the engine was fed
	version int64
	where   Where

	snapshot   *textindex.Snapshot
	candidates map[string]Passage // by their document's name in the snapshot
}

// leastCandidates is how many candidates are asked for at least, for each text of a conversation: the engine does not
// know what weight we give to each.
const leastCandidates = 100

// gather asks the engine for candidates and the store for the heads of their documents. Those with another content than
// the head says, or that the filter refuses, fall out; more are asked for if too few are left. A head's hash is that of
// all that the store has of the document, so what is proven is no other collection's, nor of a time before.
func (o *outside) gather(ctx context.Context, q query) error {
	l, c := o.replica.library, o.replica.collection
	queries := textindex.QueryTerms(textindex.Query{Text: q.text, History: q.history})
	match := o.where.match
	var result Candidates
	for limit := max(leastCandidates, 4*q.k); ; limit *= 4 {
		var err error
		result, err = l.o.Searcher.Search(ctx, o.shard, queries, limit)
		if errors.Is(err, ErrNoShard) {
			o.replica.unfed(ctx, o.state)
		}
		if err != nil {
			return fmt.Errorf("searching collection %s: %w", c, err)
		}
		ids := map[string]bool{}
		for _, e := range result.Entries {
			ids[e.Document] = true
		}
		bounded, cancel := context.WithTimeout(ctx, l.o.Patience)
		heads, err := l.store.Heads(bounded, c, slices.Collect(maps.Keys(ids))...)
		cancel()
		if err != nil {
			return err
		}
		byID := map[string]docstore.Head{}
		for _, h := range heads {
			if match(h.Metadata) {
				byID[h.ID] = h
			}
		}
		o.candidates = map[string]Passage{}
		change := textindex.Change{Version: uint64(o.version)}
		for _, e := range result.Entries {
			h, ok := byID[e.Document]
			name := e.Document + "\x00" + strconv.Itoa(e.Passage)
			if _, duplicate := o.candidates[name]; duplicate || !ok || h.Version != e.Version || h.Hash != e.Hash ||
				e.Passage < 0 || e.Passage >= h.Passages {
				continue
			}
			o.candidates[name] = Passage{ID: h.ID + "#" + strconv.Itoa(e.Passage), DocID: h.ID, Title: h.Title,
				Source: h.Source, Hash: e.Sum, doc: &indexedDocument{Sum: contentHashOf(h.Hash)}, ordinal: e.Passage}
			change.Put = append(change.Put, textindex.Document{ID: name,
				Passages: []textindex.Passage{{Text: e.Sum, Terms: e.Terms}}})
		}
		if len(o.candidates) >= 2*q.k || !result.HasMore || limit > maxProven {
			index := textindex.NewUnjudged()
			index.Apply(change)
			o.snapshot = index.Snapshot().WithStatistics(result.Statistics)
			return nil
		}
	}
}

// complete takes a passage's place and text from its document, if that still has the content that was proven.
func (p *Passage) complete(d docstore.Document) {
	if contentHashOf(d.Hash) != p.doc.Sum || p.ordinal >= len(d.Passages) {
		return
	}
	passage := d.Passages[p.ordinal]
	p.Start, p.End, p.Page, p.Section, p.Text = passage.Start, passage.End, passage.Page, passage.Section,
		d.Text[passage.Start:passage.End]
	sum := sumOf(p.Text)
	p.Hash, p.doc = hex.EncodeToString(sum[:]), nil
}

// dropShards removes the shards whose names begin so and are not noted.
func dropShards(ctx context.Context, engine Searcher, shards []string, prefix string, live map[string]bool) error {
	shards = slices.DeleteFunc(shards, func(s string) bool { return !strings.HasPrefix(s, prefix) || live[s] })
	if len(shards) == 0 {
		return nil
	}
	return engine.Drop(ctx, shards...)
}

// tendOutside feeds a tenant's collections what killed processes left, gives up the copies of those that are fed, and
// removes shards that no collection notes. The shards are listed first, so that none is among them that is noted later.
func tendOutside(ctx context.Context, l *Library, tenant memory.Tenant) error {
	shards, err := l.o.Searcher.Shards(ctx)
	if err != nil {
		return err
	}
	replicas, err := l.listed(ctx, tenant)
	live := map[string]bool{}
	for _, r := range replicas {
		_, text, failed := docstore.Fed(ctx, l.store, r.collection)
		if failed != nil && !errors.Is(failed, docstore.ErrNoCollection) {
			return failed
		}
		f := parseFed(text)
		live[f.Shard], live[f.Previous] = true, true
		r.feeding.begin(l, r.feed)
		if f.searched() != "" && r.local.Swap(nil) != nil {
			l.files.remove(r.collection)
		}
	}
	if err != nil {
		return err
	}
	return dropShards(ctx, l.o.Searcher, shards, shardsOf(tenant), live)
}
