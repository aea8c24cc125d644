package rag

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/journal"
	"mneme/subagent/rag/docstore"
)

// files is the directory where a library keeps, for each collection by name, a
// snapshot and the texts that it refers to. A nil one keeps nothing.
type files struct {
	dir  string
	lock io.Closer
	log  zerolog.Logger
}

// openFiles takes a directory for this process. One that cannot be had is no error:
// the collections are then read from the store at every start.
func openFiles(dir string, log zerolog.Logger) *files {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o700)
	f := &files{dir: dir, log: log}
	if err == nil {
		f.lock, err = journal.Lock(dir)
	}
	if err != nil {
		log.Warn().Err(err).Str("dir", dir).Msg("what a restart could begin with is not kept: all documents are read from Redis at every start; check data_dir")
		return nil
	}
	return f
}

func (f *files) close() {
	if f != nil {
		_ = f.lock.Close()
	}
}

// The endings of the files of a collection.
const (
	snapshotEnding = ".snapshot"
	textsEnding    = ".texts-"
	draftEnding    = ".draft"
)

// base is what the names of a collection's files begin with. Neither part of it has a
// dot.
func base(c docstore.Collection) string { return c.Tenant() + "." + c.String() }

// texts is a file for the texts of a collection.
func (f *files) texts(c docstore.Collection, log zerolog.Logger) *texts {
	t := &texts{log: log}
	if f != nil {
		t.dir = f.dir
		if c.Chat().IsZero() {
			t.name = base(c) + textsEnding + strings.ToLower(rand.Text())
		}
	}
	return t
}

// tidy removes a collection's files but those named.
func (f *files) tidy(c docstore.Collection, but ...string) {
	f.sweep(func(collection, name string) bool { return collection != base(c) || slices.Contains(but, name) })
}

// remove removes the files of a collection that is gone.
func (f *files) remove(c docstore.Collection) {
	if c.Chat().IsZero() {
		f.tidy(c)
	}
}

// keep removes the files of a tenant's collections that are not there any more.
func (f *files) keep(tenant string, infos []docstore.Info) {
	live := map[string]bool{}
	for _, info := range infos {
		live[tenant+"."+info.Name] = true
	}
	f.sweep(func(collection, _ string) bool {
		return live[collection] || !strings.HasPrefix(collection, tenant+".")
	})
}

func (f *files) sweep(keep func(collection, name string) bool) {
	if f == nil {
		return
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.log.Warn().Err(err).Msg("old snapshots of documents stay on disk")
	}
	for _, e := range entries {
		parts := strings.SplitN(e.Name(), ".", 3)
		if len(parts) < 3 || keep(parts[0]+"."+parts[1], e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Msg("an old file of documents stays on disk")
		}
	}
}

// newKnown is what is known before anything is read.
func (r *replica) newKnown() *known {
	return newKnown(r.library.o.Embedder != nil, r.library.files.texts(r.collection, r.library.o.Log))
}

// restored is what the last snapshot has, to be followed from there, or nothing. It is
// known at once: the store has been reached, and proves what is found in it.
func (r *replica) restored() *known {
	f := r.library.files
	if f == nil || !r.collection.Chat().IsZero() {
		return r.newKnown()
	}
	k, err := r.read()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Stringer("collection", r.collection).Msg("the snapshot of a collection is of no use: all documents are read from Redis")
		}
		k = r.newKnown()
		f.tidy(r.collection)
		return k
	}
	f.tidy(r.collection, base(r.collection)+snapshotEnding, k.texts.name)
	r.saved.set(k.mark.Load().Version)
	r.known.Store(k)
	return k
}

// saved says what the snapshot on disk has; only the follower and the catch-up that
// restores use it, one behind the other.
type saved struct {
	version int64     // of the collection
	at      time.Time // or tried then
}

func (s *saved) set(version int64) { *s = saved{version, time.Now()} }

// A snapshot is written when so many changes are missing in it, or the part of the
// documents if that is more, but not twice in saveSoonest; after saveLatest also for
// fewer.
const (
	saveChanges = 1000
	saveShare   = 20
	saveSoonest = time.Minute
	saveLatest  = 10 * time.Minute
)

// tend keeps the files of a replica in order. One goroutine runs it.
func (r *replica) tend(ctx context.Context) {
	k := r.known.Load()
	r.mu.Lock()
	busy := r.running != nil
	r.mu.Unlock()
	if k == nil || busy || *k.mark.Load() == (docstore.Mark{}) {
		return
	}
	compacted := false
	if k.texts.loose() {
		old := k.texts
		compacted = r.compact(ctx, k)
		if compacted {
			defer old.remove() // behind the snapshot that does without it
		}
	} else {
		k.texts.wipe()
	}
	if r.library.files == nil || !r.collection.Chat().IsZero() || !compacted && !r.due(k) {
		return
	}
	version, err := r.save(ctx, k)
	if err != nil && ctx.Err() == nil {
		r.library.o.Log.Warn().Err(err).Stringer("collection", r.collection).Msg("a snapshot of a collection cannot be written: a restart reads more from Redis; make room in data_dir")
		version = r.saved.version
	}
	r.saved.set(version)
	if r.known.Load() != k { // dropped meanwhile
		r.library.files.remove(r.collection)
	}
}

// due says whether the snapshot is to be written anew.
func (r *replica) due(k *known) bool {
	changes := k.mark.Load().Version - r.saved.version
	if changes < 0 { // of another collection of this name
		changes = saveChanges
	}
	k.mu.RLock()
	documents := int64(len(k.byID))
	k.mu.RUnlock()
	since := time.Since(r.saved.at)
	switch {
	case r.saved.at.IsZero():
		return documents > 0
	case changes == 0:
		return false
	}
	return since >= saveLatest || since >= saveSoonest && changes >= max(saveChanges, documents/saveShare)
}
