package rag

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/journal"
	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// A snapshot consists of a snapshotHead and each document, both as encoding/gob, the index, and the CRC-32C of all that.

// snapshotHead begins a snapshot.
type snapshotHead struct {
	Format     string // of snapshots and of the index; a snapshot with another one is not read
	Collection string
	Mark       string
	Texts      string // the name of the file of texts
	Size       int64  // of that file
	Documents  int
}

func snapshotFormat() string { return "mneme/2/" + textindex.Format() }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save writes a snapshot and returns its version. Searches and changes go on meanwhile. The
// snapshot takes effect by a rename, so that a crash leaves the old one or the new one.
func (r *replica) save(ctx context.Context, k *localCopy) (version int64, err error) {
	if err := r.lock(ctx); err != nil {
		return 0, err
	}
	mark, file, frozen, documents := *k.mark.Load(), k.texts, k.index.Freeze(), k.documents()
	r.unlock()
	size, err := file.sync()
	if err != nil {
		return 0, err
	}
	path := filepath.Join(r.library.files.dir, base(r.collection)+snapshotEnding)
	head := snapshotHead{snapshotFormat(), base(r.collection), mark.Text(), file.name, size, len(documents)}
	return mark.Version, journal.Replace(path, draftEnding, func(draft io.Writer) error {
		sum := crc32.New(castagnoli)
		out := bufio.NewWriterSize(io.MultiWriter(draft, sum), 1<<16)
		records := gob.NewEncoder(out)
		if err := records.Encode(head); err != nil {
			return err
		}
		for _, h := range documents {
			d := *h
			if h.texts != file {
				d.At = -1
			}
			if err := cmp.Or(ctx.Err(), records.Encode(d)); err != nil {
				return err
			}
		}
		if err := cmp.Or(frozen.Write(out), out.Flush()); err != nil {
			return err
		}
		_, err := draft.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
		return err
	})
}

// read reads the snapshot, after checking its sum.
func (r *replica) read() (*localCopy, error) {
	f, err := os.Open(filepath.Join(r.library.files.dir, base(r.collection)+snapshotEnding))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size() - crc32.Size
	if err := proveSum(f, size); err != nil {
		return nil, err
	}
	src := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<16) // gob reads no byte too many of it
	records := gob.NewDecoder(src)
	var head snapshotHead
	if err := records.Decode(&head); err != nil {
		return nil, err
	}
	if head.Format != snapshotFormat() || head.Collection != base(r.collection) {
		return nil, fmt.Errorf("it is of another version, %.80q", head.Format)
	}
	k := r.newLocalCopy()
	mark := docstore.ParseMark(head.Mark)
	k.texts.name = head.Texts
	if err := k.texts.reopen(head.Size); err != nil {
		return nil, err
	}
	previous := &indexedDocument{}
	for range head.Documents {
		h := &indexedDocument{}
		if err := records.Decode(h); err != nil {
			return nil, err
		}
		if h.At >= 0 {
			h.texts = k.texts
		}
		h.complete(h.ID, previous)
		previous = h
		k.byID[h.ID] = h
		k.texts.dead -= int64(h.Size)
		if k.bare != nil && len(h.Passages) > 0 { // vectors are in the store
			k.bare[h.name] = h
		}
	}
	if k.index, err = textindex.Read(src, size); err != nil {
		return nil, err
	}
	k.mark.Store(&mark)
	return k, nil
}

// proveSum checks the CRC-32C behind the first size bytes of a file.
func proveSum(f *os.File, size int64) error {
	sum := crc32.New(castagnoli)
	want := make([]byte, crc32.Size)
	if size < 0 {
		return errBroken
	}
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return err
	}
	if _, err := f.ReadAt(want, size); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(want) != sum.Sum32() {
		return errBroken
	}
	return nil
}

var errBroken = errors.New("it is damaged")

// reopen opens the file of texts that a snapshot refers to and cuts off what was added after the
// snapshot. At first all of it counts as dead; documents that are read make their part live.
func (t *texts) reopen(size int64) error {
	if size == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(t.dir, filepath.Base(t.name)), os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("the texts are not there: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() < size {
		err = errBroken
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return err
	}
	t.file, t.size, t.dead = f, size, size
	return nil
}

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
		log.Warn().Err(err).Str("dir", dir).Msg("what a restart could begin with is not kept: " +
			"all documents are read from Redis at every start; check data_dir")
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
func base(c docstore.Collection) string { return c.Tenant().String() + "." + c.String() }

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
func (f *files) keep(tenant memory.Tenant, infos []docstore.Info) {
	live := map[string]bool{}
	for _, info := range infos {
		live[tenant.String()+"."+info.Name] = true
	}
	f.sweep(func(collection, _ string) bool {
		return live[collection] || !strings.HasPrefix(collection, tenant.String()+".")
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

// restored is the copy from the last snapshot, from which the log is followed, or an empty one. It
// may be searched at once: the store can be reached, and checks what is found.
func (r *replica) restored() *localCopy {
	f := r.library.files
	if f == nil || !r.collection.Chat().IsZero() {
		return r.newLocalCopy()
	}
	k, err := r.read()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Stringer("collection", r.collection).
				Msg("the snapshot of a collection is of no use: all documents are read from Redis")
		}
		f.tidy(r.collection)
		return r.newLocalCopy()
	}
	f.tidy(r.collection, base(r.collection)+snapshotEnding, k.texts.name)
	r.saved.set(k.mark.Load().Version)
	r.local.Store(k)
	return k
}

// saved describes the snapshot on disk. It is used by the follower and by the catch-up that
// restores it, never at the same time.
type saved struct {
	version   int64     // of the collection in it
	writtenAt time.Time // when it was written, or when that was tried
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
	k := r.local.Load()
	r.mu.Lock()
	busy := r.running != nil
	r.mu.Unlock()
	if k == nil || busy || *k.mark.Load() == (docstore.Mark{}) {
		return
	}
	old := k.texts
	compacted := old.loose() && r.compact(ctx, k)
	if compacted {
		defer old.remove() // after the snapshot that does not need it is written
	} else {
		old.wipe()
	}
	if r.library.files == nil || !r.collection.Chat().IsZero() || !compacted && !r.due(k) {
		return
	}
	version, err := r.save(ctx, k)
	if err != nil && ctx.Err() == nil {
		r.library.o.Log.Warn().Err(err).Stringer("collection", r.collection).Msg(
			"a snapshot of a collection cannot be written: a restart reads more from Redis; make room in data_dir")
		version = r.saved.version
	}
	r.saved.set(version)
	if r.local.Load() != k { // the collection was dropped meanwhile
		r.library.files.remove(r.collection)
	}
}

// due reports whether a new snapshot is worth writing.
func (r *replica) due(k *localCopy) bool {
	changes := k.mark.Load().Version - r.saved.version
	if changes < 0 { // the collection was made anew
		changes = saveChanges
	}
	k.mu.RLock()
	documents := int64(len(k.byID))
	k.mu.RUnlock()
	elapsed := time.Since(r.saved.writtenAt)
	switch {
	case r.saved.writtenAt.IsZero():
		return documents > 0
	case changes == 0:
		return false
	}
	return elapsed >= saveLatest || elapsed >= saveSoonest && changes >= max(saveChanges, documents/saveShare)
}

// compactBytes is how many bytes are copied at once.
const compactBytes = 4 << 20

// compact copies the live texts into a new file (log compaction), in the order of their offsets. Searches go on
// meanwhile, from the old file; changes wait. A text that cannot be read is left to the store.
func (r *replica) compact(ctx context.Context, k *localCopy) bool {
	if r.lock(ctx) != nil {
		return false
	}
	defer r.unlock()
	next := r.library.files.texts(r.collection, r.library.o.Log)
	documents := k.documents()
	slices.SortFunc(documents, func(a, b *indexedDocument) int { return cmp.Compare(a.At, b.At) })
	moved := make([]*indexedDocument, 0, len(documents))
	for len(moved) < len(documents) {
		var bodies []string
		first := len(moved)
		for size := 0; len(moved) < len(documents) && size < compactBytes; {
			h := *documents[len(moved)]
			text, ok := h.fullText()
			if h.texts = next; !ok {
				h.texts, text = nil, ""
			}
			moved, bodies = append(moved, &h), append(bodies, text)
			size += len(text)
		}
		offset, ok := next.add(bodies)
		if !ok || ctx.Err() != nil {
			next.remove()
			return false
		}
		for i, text := range bodies {
			moved[first+i].At = offset
			offset += int64(len(text))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range moved {
		k.byID[h.ID] = h
		if k.bare[h.name] != nil {
			k.bare[h.name] = h
		}
	}
	k.texts = next
	return true
}
