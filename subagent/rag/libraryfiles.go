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

// files is the directory in which a library keeps a snapshot and a file of texts for each
// collection. A nil one keeps nothing.
type files struct {
	dir  string
	lock io.Closer
	log  zerolog.Logger
}

// openFiles locks a directory for this process. If that fails collections are read from the store
// at every start, so it is no error.
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
		log.Warn().Err(err).Str("dir",
			dir).Msg(
			"what a restart could begin with is not kept: all documents are read from Redis at every start; check data_dir",
		)
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

// base is the common beginning of the names of a collection's files. Neither part of it contains a
// dot.
func base(c docstore.Collection) string { return c.Tenant() + "." + c.String() }

// texts is a new file for the texts of a collection; a chat's is temporary.
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

// tidy removes a collection's files except those named.
func (f *files) tidy(c docstore.Collection, but ...string) {
	f.sweep(func(collection, name string) bool { return collection != base(c) || slices.Contains(but, name) })
}

// remove removes the files of a collection that is gone.
func (f *files) remove(c docstore.Collection) {
	if c.Chat().IsZero() {
		f.tidy(c)
	}
}

// keep removes the files of a tenant's collections that do not exist any more.
func (f *files) keep(tenant string, infos []docstore.Info) {
	live := map[string]bool{}
	for _, info := range infos {
		live[tenant+"."+info.Name] = true
	}
	f.sweep(func(collection, _ string) bool {
		return live[collection] || !strings.HasPrefix(collection, tenant+".")
	})
}

// sweep removes all files for which keep is false.
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

// newKnown is an empty copy.
func (r *replica) newKnown() *known {
	return newKnown(r.library.o.Embedder != nil, r.library.files.texts(r.collection, r.library.o.Log))
}

// restored is the copy from the last snapshot, from which the log is followed, or an empty one. It
// may be searched at once: the store can be reached, and checks what is found.
func (r *replica) restored() *known {
	f := r.library.files
	if f == nil || !r.collection.Chat().IsZero() {
		return r.newKnown()
	}
	k, err := r.read()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Stringer("collection",
				r.collection).Msg("the snapshot of a collection is of no use: all documents are read from Redis")
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

// saved describes the snapshot on disk. It is used by the follower and by the catch-up that
// restores it, never at the same time.
type saved struct {
	version int64     // of the collection in it
	at      time.Time // when it was written, or when that was tried
}

func (s *saved) set(version int64) { *s = saved{version, time.Now()} }

// A snapshot is written when it lacks saveChanges changes, or 1/saveShare of the documents if that
// is more, but not twice within saveSoonest. After saveLatest any change is enough.
const (
	saveChanges = 1000
	saveShare   = 20
	saveSoonest = time.Minute
	saveLatest  = 10 * time.Minute
)

// tend compacts a replica's texts and writes its snapshot when that is due. Only the follower runs
// it.
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
			defer old.remove() // after the snapshot that does not need it is written
		}
	} else {
		k.texts.wipe()
	}
	if r.library.files == nil || !r.collection.Chat().IsZero() || !compacted && !r.due(k) {
		return
	}
	version, err := r.save(ctx, k)
	if err != nil && ctx.Err() == nil {
		r.library.o.Log.Warn().Err(err).Stringer("collection",
			r.collection).Msg(
			"a snapshot of a collection cannot be written: a restart reads more from Redis; make room in data_dir",
		)
		version = r.saved.version
	}
	r.saved.set(version)
	if r.known.Load() != k { // the collection was dropped meanwhile
		r.library.files.remove(r.collection)
	}
}

// due reports whether a new snapshot is worth writing.
func (r *replica) due(k *known) bool {
	changes := k.mark.Load().Version - r.saved.version
	if changes < 0 { // the collection was made anew
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
