package rag

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// localCopy is a replica's content: an index, and the documents that it refers to. In the index a
// document's name contains its version, so that a hit belongs to exactly one text, however old the
// index's snapshot is.
type localCopy struct {
	index   *textindex.Collection
	filters filters
	mark    atomic.Pointer[docstore.Mark] // position in the log that is applied; stored under the gate
	texts   *texts                        // where the texts of new documents go; changed under the gate

	mu    sync.RWMutex
	byID  map[string]*indexedDocument // guarded by mu
	fresh map[string]*indexedDocument // by name: documents that are about to be in the index; guarded by mu
	bare  map[string]*indexedDocument // by name: documents without vectors yet; nil without an Embedder; guarded by mu
	space *space                      // of the vectors in the index; nil before the first; guarded by mu
}

// indexedDocument is an indexed document without its text. It is immutable.
type indexedDocument struct {
	ID       string
	Version  int64
	Title    string
	Source   string
	Metadata map[string]string // often shared with other documents
	Passages []place

	Sum contentHash // of what is stored
	// The text lies in a file at an offset; texts is nil if there was no room for it.
	At    int64
	Size  int
	texts *texts

	name string // its name in the index
}

// place is a passage's place in its document's text.
type place struct {
	Start, End, Page int32
	Hash             contentHash // of the passage's text
	Section          string
}

// contentHash is the first half of the SHA-256 by which the store identifies a document's content.
// Equal hashes mean equal texts, whatever the versions.
type contentHash [sha256.Size / 2]byte

// contentHashOf parses a stored hash. Of text that is not one it is zero from where the
// hexadecimal digits end, which is equal to no stored hash.
func contentHashOf(text string) (sum contentHash) {
	if len(text) >= 2*len(sum) {
		_, _ = hex.Decode(sum[:], []byte(text[:2*len(sum)]))
	}
	return sum
}

// newLocalCopy is an empty copy.
func (r *replica) newLocalCopy() *localCopy {
	k := &localCopy{index: textindex.NewCollection(), texts: r.library.files.texts(r.collection, r.library.o.Log),
		byID: map[string]*indexedDocument{}, fresh: map[string]*indexedDocument{}}
	if r.library.o.Embedder != nil {
		k.bare = map[string]*indexedDocument{}
	}
	k.mark.Store(&docstore.Mark{})
	return k
}

// complete makes up a document's name in the index, and shares equal strings and metadata with those before, which saves
// most of the memory. The name contains a part of the content's hash, because a collection that was made anew may give
// the same version to another content.
func (h *indexedDocument) complete(id string, previous *indexedDocument) {
	h.name = id + "\x00" + strconv.FormatInt(h.Version, 10) + " " + string(h.Sum[:6])
	if h.ID = h.name[:len(id)]; h.Source == h.ID {
		h.Source = h.ID // one string in memory
	}
	if maps.Equal(h.Metadata, previous.Metadata) {
		h.Metadata = previous.Metadata
	}
	for i := 1; i < len(h.Passages); i++ {
		if p := &h.Passages[i]; p.Section == h.Passages[i-1].Section {
			p.Section = h.Passages[i-1].Section
		}
	}
}

// get finds a document by its name in the index; nil if that version is gone.
func (k *localCopy) get(name string) *indexedDocument {
	id, _, _ := strings.Cut(name, "\x00")
	k.mu.RLock()
	defer k.mu.RUnlock()
	if h := k.byID[id]; h != nil && h.name == name {
		return h
	}
	return k.fresh[name]
}

// document finds a document by its id; nil if there is none.
func (k *localCopy) document(id string) *indexedDocument {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byID[id]
}

// ids are those of all documents, in no order.
func (k *localCopy) ids() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Keys(k.byID))
}

// documents are all documents, in no order.
func (k *localCopy) documents() []*indexedDocument {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Values(k.byID))
}

// hold makes the in-memory form of documents and writes their texts to a file.
func hold(documents []docstore.Document, file *texts) []*indexedDocument {
	list := make([]*indexedDocument, len(documents))
	bodies := make([]string, len(documents))
	for i, d := range documents {
		bodies[i] = d.Text
	}
	offset, stored := file.add(bodies)
	previous := &indexedDocument{}
	for i, d := range documents {
		h := &indexedDocument{Version: d.Version, Title: d.Title, Source: d.Source, Metadata: d.Metadata, Size: len(d.Text),
			Sum: contentHashOf(d.Hash), Passages: make([]place, len(d.Passages))}
		if stored {
			h.texts, h.At = file, offset
			offset += int64(len(d.Text))
		}
		for n, p := range d.Passages {
			h.Passages[n] = place{Start: int32(p.Start), End: int32(p.End), Page: int32(p.Page), Section: p.Section,
				Hash: sumOf(d.Text[p.Start:p.End])}
		}
		h.complete(d.ID, previous)
		list[i], previous = h, h
	}
	return list
}

// indexed is the document in the form that the index takes.
func (h *indexedDocument) indexed(text string) textindex.Document {
	d := textindex.Document{ID: h.name, Title: h.Title, Passages: make([]textindex.Passage, len(h.Passages))}
	for i, p := range h.Passages {
		d.Passages[i] = textindex.Passage{Section: p.Section, Text: text[p.Start:p.End]}
	}
	return d
}

// passage is a document's passage by its ordinal, without its text.
func (h *indexedDocument) passage(ordinal int) Passage {
	p := h.Passages[ordinal]
	return Passage{
		ID: h.ID + "#" + strconv.Itoa(ordinal), DocID: h.ID, Title: h.Title, Source: h.Source, Section: p.Section,
		Page:  int(p.Page),
		Start: int(p.Start), End: int(p.End), Hash: p.hex(), doc: h, ordinal: ordinal,
	}
}

func (p place) hex() string { return hex.EncodeToString(p.Hash[:]) }

// sumOf is the first half of a text's SHA-256.
func sumOf(text string) contentHash {
	sum := sha256.Sum256([]byte(text))
	return contentHash(sum[:])
}

// text reads a passage's text from the file. It is false if the file does not have it, which the
// hash proves.
func (h *indexedDocument) text(ordinal int) (string, bool) {
	if h.texts == nil {
		return "", false
	}
	p := h.Passages[ordinal]
	text, ok := h.texts.read(h.At+int64(p.Start), int(p.End-p.Start))
	return text, ok && sumOf(text) == p.Hash
}

// fullText reads the whole text; every passage in it is proven by its hash.
func (h *indexedDocument) fullText() (string, bool) {
	if h.texts == nil {
		return "", false
	}
	text, ok := h.texts.read(h.At, h.Size)
	return text, ok && h.fits(text)
}

// fits reports whether a text contains the passages at their places.
func (h *indexedDocument) fits(text string) bool {
	return !slices.ContainsFunc(h.Passages, func(p place) bool {
		return int(p.End) > len(text) || sumOf(text[p.Start:p.End]) != p.Hash
	})
}

// update is a set of changes to apply.
type update struct {
	prepared []prepared
	deleted  []string      // ids of deleted documents; what is not known is passed over
	mark     docstore.Mark // position in the log after the update
}

// prepared is a set of documents with index entries that are built. They replace known documents
// with their ids, whatever the versions.
type prepared struct {
	documents []*indexedDocument
	index     *textindex.Prepared
}

// prepare builds the index entries of documents with different ids. It may run concurrently.
func (k *localCopy) prepare(documents []docstore.Document) prepared {
	p := prepared{documents: hold(documents, k.texts)}
	indexed := make([]textindex.Document, len(documents))
	for i, h := range p.documents {
		indexed[i] = h.indexed(documents[i].Text)
	}
	p.index = k.index.Prepare(indexed)
	return p
}

// apply applies an update; the caller has the gate. A
// search may run at any moment of it, so the order is: first new documents become known by name (announce), then the
// index is changed in one step, and only then are old documents forgotten, as hits of the old index may name them.
func (k *localCopy) apply(u update) {
	change := textindex.Change{Version: uint64(u.mark.Version)}
	var fresh []*indexedDocument
	for _, p := range u.prepared {
		fresh = append(fresh, p.documents...)
		change.Prepared = append(change.Prepared, p.index)
	}
	obsolete := k.announce(fresh, u.deleted)
	for _, h := range obsolete {
		change.Delete = append(change.Delete, h.name)
	}
	if len(fresh)+len(obsolete) > 0 || change.Version != k.index.Snapshot().Version() {
		k.index.Apply(change)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range obsolete {
		h.texts.drop(h)
		if k.byID[h.ID] == h {
			delete(k.byID, h.ID)
		}
		delete(k.bare, h.name)
	}
	for _, h := range fresh {
		k.byID[h.ID] = h
	}
	k.fresh = map[string]*indexedDocument{}
	mark := u.mark // a copy, so that a pointer does not keep the update alive
	k.mark.Store(&mark)
}

// announce makes new documents findable by name before the index has them, so that no hit is
// without a document, and returns the documents that they replace or that were deleted.
func (k *localCopy) announce(fresh []*indexedDocument, deleted []string) (obsolete []*indexedDocument) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range fresh {
		if old := k.byID[h.ID]; old != nil {
			obsolete = append(obsolete, old)
		}
		k.fresh[h.name] = h
		if k.bare != nil && len(h.Passages) > 0 { // before the index, or a search could lack vectors without saying so
			k.bare[h.name] = h
		}
	}
	for _, id := range deleted {
		if old := k.byID[id]; old != nil {
			obsolete = append(obsolete, old)
		}
	}
	return obsolete
}

// texts is a file with the texts of a collection's documents, one behind the other, so that they
// take no memory and can be read while the store is away. Readers check what they read by its hash,
// so a damaged or truncated file yields nothing. A file that only this process needs has no name:
// it is deleted while open, and goes with the last reference to it.
type texts struct {
	dir, name string // name "" for a temporary file
	log       zerolog.Logger

	mu      sync.Mutex
	file    *os.File // guarded by mu; nil before the first text
	size    int64    // guarded by mu
	dead    int64    // bytes in it that belong to no document; guarded by mu
	dropped []span   // dropped texts that are not overwritten yet; guarded by mu
	wiping  []span   // those that the next wipe overwrites; guarded by mu
	failed  bool     // the last write failed; guarded by mu
}

// span is a range of a file.
type span struct {
	offset int64
	size   int
}

// add appends texts and returns the offset of the first one. It is false if they could not be
// written.
func (t *texts) add(list []string) (offset int64, ok bool) {
	var joined strings.Builder
	for _, text := range list {
		joined.WriteString(text)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.open()
	if err == nil {
		_, err = t.file.WriteAt([]byte(joined.String()), t.size)
	}
	if err != nil {
		if !t.failed {
			t.log.Error().Err(err).Msg(
				"the texts of documents cannot be kept on disk: passages are read from Redis when they are shown, and not at " +
					"all while it is away; make room where data_dir and the temporary files are",
			)
		}
		t.failed = true
		return 0, false
	}
	t.failed = false
	offset = t.size
	t.size += int64(joined.Len())
	return offset, true
}

// open creates the file on first use.
func (t *texts) open() (err error) {
	switch {
	case t.file != nil:
		return nil
	case t.name != "":
		t.file, err = os.OpenFile(filepath.Join(t.dir, t.name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	}
	f, err := os.CreateTemp(t.dir, "mneme-texts-")
	if err != nil {
		return err
	}
	t.file = f
	return os.Remove(f.Name()) // the process keeps the data as long as the file is open
}

// read reads a range of the file.
func (t *texts) read(offset int64, size int) (string, bool) {
	t.mu.Lock()
	f := t.file
	t.mu.Unlock()
	if f == nil {
		return "", size == 0
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, offset); err != nil && (err != io.EOF || size > 0) {
		return "", false
	}
	return string(b), true
}

// drop notes that a document's text is not needed any more.
func (t *texts) drop(h *indexedDocument) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead += int64(h.Size)
	t.dropped = append(t.dropped, span{h.At, h.Size})
}

// wipe overwrites texts that were dropped before the previous wipe, so that deleted documents do
// not stay on disk. Searches that had found such a text were answered by then; a slower one reads
// zeros, which fail the hash.
func (t *texts) wipe() {
	t.mu.Lock()
	list, f := t.wiping, t.file
	t.wiping, t.dropped = t.dropped, nil
	t.mu.Unlock()
	zeros := make([]byte, 1<<16)
	for _, s := range list {
		for s.size > 0 {
			n, err := f.WriteAt(zeros[:min(s.size, len(zeros))], s.offset)
			if err != nil {
				t.log.Warn().Err(err).Msg("the text of a deleted document stays on disk until its file is rewritten")
				return
			}
			s.offset, s.size = s.offset+int64(n), s.size-n
		}
	}
}

// looseTexts is the size in bytes from which a file is rewritten when half of it is dead.
const looseTexts = 8 << 20

func (t *texts) loose() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size > looseTexts && t.dead > t.size/2
}

// sync makes what was added so far survive a power loss, and returns its size.
func (t *texts) sync() (size int64, err error) {
	t.mu.Lock()
	f, size := t.file, t.size
	t.mu.Unlock()
	if f == nil {
		return 0, nil
	}
	return size, f.Sync()
}

// remove removes the file's name.
func (t *texts) remove() {
	if t.name != "" { // a leftover is removed at the next start
		_ = os.Remove(filepath.Join(t.dir, t.name)) // the next start finds what is left
	}
}
