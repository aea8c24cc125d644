package rag

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// known is what a replica has: one index and the documents behind it. The index
// knows a document by a name that holds its version, so that a hit belongs to
// exactly one text, however old the snapshot is that it comes from.
type known struct {
	index   *textindex.Collection
	filters filters
	mark    atomic.Pointer[docstore.Mark] // up to where the log is applied; stored under the gate
	texts   *texts                        // where those of documents go that are put from now on; changed under the gate

	mu    sync.RWMutex
	byID  map[string]*held // guarded by mu
	fresh map[string]*held // by name, those that the index is about to have; guarded by mu
	bare  map[string]*held // by name, those that wait for vectors; nil if none are wanted; guarded by mu
	space *space           // of the vectors in the index; nil before there are some; guarded by mu
}

// held is a document of an index, without its text. It does not change.
type held struct {
	ID       string
	Version  int64
	Title    string
	Source   string
	Metadata map[string]string // often another document's too
	Passages []place

	name string      // in the index
	sum  contentHash // of what is stored
	// The text is at, of this size, in a file; in none if there was no room.
	texts *texts
	at    int64
	size  int
}

// place is a passage in its document's text.
type place struct {
	Start, End, Page int32
	hash             [sha256.Size / 2]byte // of the text
	Section          string
}

// contentHash is the first half of the SHA-256 by which the store knows a document's
// content. Equal ones have equal texts, whatever their versions.
type contentHash [sha256.Size / 2]byte

// contentHashOf reads what the store has; what is none is zero from where it ends.
func contentHashOf(text string) (sum contentHash) {
	if len(text) >= 2*len(sum) {
		_, _ = hex.Decode(sum[:], []byte(text[:2*len(sum)]))
	}
	return sum
}

func newKnown(vectors bool, texts *texts) *known {
	k := &known{index: textindex.NewCollection(), texts: texts, byID: map[string]*held{}, fresh: map[string]*held{}}
	if vectors {
		k.bare = map[string]*held{}
	}
	k.mark.Store(&docstore.Mark{})
	return k
}

// nameOf is a document's name in the index. It has some of the content's hash, since a
// collection that was made anew may give the same version to another content.
func nameOf(d docstore.Document, sum contentHash) string {
	return d.ID + "\x00" + strconv.FormatInt(d.Version, 10) + " " + string(sum[:6])
}

// get is the document of a name in the index; nil if it is no longer there.
func (k *known) get(name string) *held {
	id, _, _ := strings.Cut(name, "\x00")
	k.mu.RLock()
	defer k.mu.RUnlock()
	if h := k.byID[id]; h != nil && h.name == name {
		return h
	}
	return k.fresh[name]
}

// document is the document with an id, nil if there is none.
func (k *known) document(id string) *held {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byID[id]
}

// hold makes documents what is kept of them, and puts their texts into a file, which
// is nil if they are not to be kept.
func hold(documents []docstore.Document, file *texts) []*held {
	list := make([]*held, len(documents))
	bodies := make([]string, len(documents))
	for i, d := range documents {
		bodies[i] = d.Text
	}
	at, kept := int64(0), false
	if file != nil {
		at, kept = file.add(bodies)
	}
	var metadata map[string]string
	for i, d := range documents {
		h := &held{Version: d.Version, Title: d.Title, Source: d.Source, size: len(d.Text)}
		h.sum = contentHashOf(d.Hash)
		h.name = nameOf(d, h.sum)
		h.ID = h.name[:len(d.ID)]
		if len(d.Metadata) > 0 {
			if !maps.Equal(metadata, d.Metadata) {
				metadata = d.Metadata
			}
			h.Metadata = metadata
		}
		if h.Source == h.ID {
			h.Source = h.ID // one string
		}
		if kept {
			h.texts, h.at = file, at
			at += int64(len(d.Text))
		}
		h.Passages = make([]place, len(d.Passages))
		for n, p := range d.Passages {
			if n > 0 && p.Section == h.Passages[n-1].Section {
				p.Section = h.Passages[n-1].Section
			}
			h.Passages[n] = place{Start: int32(p.Start), End: int32(p.End), Page: int32(p.Page), Section: p.Section, hash: sumOf(d.Text[p.Start:p.End])}
		}
		list[i] = h
	}
	return list
}

// indexed is the document as the index takes it.
func (h *held) indexed(text string) textindex.Document {
	d := textindex.Document{ID: h.name, Title: h.Title, Passages: make([]textindex.Passage, len(h.Passages))}
	for i, p := range h.Passages {
		d.Passages[i] = textindex.Passage{Section: p.Section, Text: text[p.Start:p.End]}
	}
	return d
}

// passage is a document's passage by its ordinal, without its text.
func (h *held) passage(ordinal int) Passage {
	at := h.Passages[ordinal]
	return Passage{
		ID: h.ID + "#" + strconv.Itoa(ordinal), DocID: h.ID, Title: h.Title, Source: h.Source, Section: at.Section, Page: int(at.Page),
		Start: int(at.Start), End: int(at.End), Hash: at.hex(), held: h, ordinal: ordinal,
	}
}

func (p place) hex() string { return hex.EncodeToString(p.hash[:]) }

// sumOf is the first half of a text's SHA-256.
func sumOf(text string) (half [sha256.Size / 2]byte) {
	sum := sha256.Sum256([]byte(text))
	copy(half[:], sum[:])
	return half
}

// text is the text of a passage as the file has it; false if the file does not have
// it, which its hash proves.
func (h *held) text(ordinal int) (string, bool) {
	if h.texts == nil {
		return "", false
	}
	p := h.Passages[ordinal]
	text, ok := h.texts.read(h.at+int64(p.Start), int(p.End-p.Start))
	return text, ok && sumOf(text) == p.hash
}

// whole is the whole text, every passage of it proven by its hash.
func (h *held) whole() (string, bool) {
	if h.texts == nil {
		return "", false
	}
	text, ok := h.texts.read(h.at, h.size)
	return text, ok && h.fits(text)
}

// fits says whether a text has the passages.
func (h *held) fits(text string) bool {
	for _, p := range h.Passages {
		if int(p.End) > len(text) || sumOf(text[p.Start:p.End]) != p.hash {
			return false
		}
	}
	return true
}

// update is what is to be applied.
type update struct {
	puts     []docstore.Document
	prepared []prepared
	gone     map[string]int64 // ids → the version by which they are gone
	mark     docstore.Mark    // up to where the log is applied then
}

// prepared is documents that are ready to be known. They take the place of what is
// known by their ids, whatever its version.
type prepared struct {
	held  []*held
	index *textindex.Prepared
}

// prepare readies documents of different ids. Many may do so at once.
func (k *known) prepare(documents []docstore.Document) prepared {
	p := prepared{held: hold(documents, k.texts)}
	indexed := make([]textindex.Document, len(documents))
	for i, h := range p.held {
		indexed[i] = h.indexed(documents[i].Text)
	}
	p.index = k.index.Prepare(indexed)
	return p
}

// apply makes an update. Documents that are known in the same or a newer version
// stay. The caller has the gate.
func (k *known) apply(u update) {
	change := textindex.Change{Version: uint64(u.mark.Version)}
	var fresh []*held
	if puts := k.newer(u.puts); len(puts) > 0 {
		fresh = hold(puts, k.texts)
		for i, h := range fresh {
			change.Put = append(change.Put, h.indexed(puts[i].Text))
		}
	}
	for _, p := range u.prepared {
		fresh = append(fresh, p.held...)
		change.Prepared = append(change.Prepared, p.index)
	}
	gone := k.announce(fresh, u.gone)
	for _, h := range gone {
		change.Delete = append(change.Delete, h.name)
	}
	if len(fresh)+len(gone) > 0 || change.Version != k.index.Snapshot().Version() {
		k.index.Apply(change)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range gone {
		h.texts.drop(h)
		if k.byID[h.ID] == h {
			delete(k.byID, h.ID)
		}
		delete(k.bare, h.name)
	}
	for _, h := range fresh {
		k.byID[h.ID] = h
	}
	k.fresh = map[string]*held{}
	mark := u.mark // a copy, or it would keep all of the update in memory
	k.mark.Store(&mark)
}

// newer are the documents that are not known in their version or a newer one; of two
// with one id the newer.
func (k *known) newer(documents []docstore.Document) []docstore.Document {
	var list []docstore.Document
	at := map[string]int{}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, d := range documents {
		if old := k.byID[d.ID]; old != nil && old.Version >= d.Version {
			continue
		}
		if i, twice := at[d.ID]; twice {
			if list[i].Version < d.Version {
				list[i] = d
			}
			continue
		}
		at[d.ID] = len(list)
		list = append(list, d)
	}
	return list
}

// announce lets searches find documents as soon as the index has them, and gives
// those that are then gone.
func (k *known) announce(fresh []*held, deleted map[string]int64) (gone []*held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	put := make(map[string]bool, len(fresh))
	for _, h := range fresh {
		put[h.ID] = true
		if old := k.byID[h.ID]; old != nil {
			gone = append(gone, old)
		}
		k.fresh[h.name] = h
		if k.bare != nil && len(h.Passages) > 0 { // first, or a search could miss vectors and not say so
			k.bare[h.name] = h
		}
	}
	for id, version := range deleted {
		if old := k.byID[id]; old != nil && old.Version < version && !put[id] {
			gone = append(gone, old)
		}
	}
	return gone
}
