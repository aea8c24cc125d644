package rag

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// texts is a file that holds the texts of a collection's documents, one behind the
// other, so that they take no memory and are at hand when the store is not. What is
// read is proven by the reader, by its hash: a file that was damaged, cut or changed
// gives nothing. It has no name where it is of use to this process alone, and is
// closed when nothing refers to it any more.
type texts struct {
	dir, name string // name "" for a temporary file
	log       zerolog.Logger

	mu     sync.Mutex
	file   *os.File // guarded by mu; nil before the first text
	size   int64    // guarded by mu
	dead   int64    // bytes of it that belong to no document any more; guarded by mu
	gone   []span   // of those, what is there still; guarded by mu
	going  []span   // and what the next wipe overwrites; guarded by mu
	failed bool     // a text could not be written; guarded by mu
}

// span is a text's place in a file.
type span struct {
	at   int64
	size int
}

// add appends texts and says where the first is; false if there is no room.
func (t *texts) add(list []string) (at int64, ok bool) {
	var all strings.Builder
	for _, text := range list {
		all.WriteString(text)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.open()
	if err == nil {
		_, err = t.file.WriteAt([]byte(all.String()), t.size)
	}
	if err != nil {
		if !t.failed {
			t.log.Error().Err(err).Msg("the texts of documents cannot be kept on disk: passages are read from Redis when they are shown, and not at all while it is away; make room where data_dir and the temporary files are")
		}
		t.failed = true
		return 0, false
	}
	t.failed = false
	at = t.size
	t.size += int64(all.Len())
	return at, true
}

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
	return os.Remove(f.Name()) // the process has it as long as it is open
}

// read reads a part of the file.
func (t *texts) read(at int64, size int) (string, bool) {
	t.mu.Lock()
	f := t.file
	t.mu.Unlock()
	if f == nil {
		return "", size == 0
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, at); err != nil && (err != io.EOF || size > 0) {
		return "", false
	}
	return string(b), true
}

// drop notes that a document's text belongs to it no more.
func (t *texts) drop(h *held) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead += int64(h.size)
	t.gone = append(t.gone, span{h.at, h.size})
}

// wipe overwrites the texts that were dropped before the wipe before: searches that had
// found them are answered by then. Who still comes reads nothing that is proven.
func (t *texts) wipe() {
	t.mu.Lock()
	list, f := t.going, t.file
	t.going, t.gone = t.gone, nil
	t.mu.Unlock()
	zeros := make([]byte, 1<<16)
	for _, s := range list {
		for s.size > 0 {
			n, err := f.WriteAt(zeros[:min(s.size, len(zeros))], s.at)
			if err != nil {
				t.log.Warn().Err(err).Msg("the text of a deleted document stays on disk until its file is rewritten")
				return
			}
			s.at, s.size = s.at+int64(n), s.size-n
		}
	}
}

// A file is rewritten when it is larger than looseTexts and half of it is dead.
const looseTexts = 8 << 20

func (t *texts) loose() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size > looseTexts && t.dead > t.size/2
}

// sync makes sure that what was added so far outlives the machine, and says how much
// that is.
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
	if t.name != "" {
		_ = os.Remove(filepath.Join(t.dir, t.name)) // the next start finds what is left
	}
}
