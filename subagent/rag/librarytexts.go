package rag

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// texts is a file with the texts of a collection's documents, one behind the other, so that they
// take no memory and can be read while the store is away. Readers check what they read by its hash,
// so a damaged or truncated file yields nothing. A file that only this process needs has no name:
// it is deleted while open, and goes with the last reference to it.
type texts struct {
	dir, name string // name "" for a temporary file
	log       zerolog.Logger

	mu     sync.Mutex
	file   *os.File // guarded by mu; nil before the first text
	size   int64    // guarded by mu
	dead   int64    // bytes in it that belong to no document; guarded by mu
	gone   []span   // dropped texts that are not overwritten yet; guarded by mu
	going  []span   // those that the next wipe overwrites; guarded by mu
	failed bool     // the last write failed; guarded by mu
}

// span is a range of a file.
type span struct {
	at   int64
	size int
}

// add appends texts and returns the offset of the first one. It is false if they could not be
// written.
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
			t.log.Error().Err(err).Msg(
				"the texts of documents cannot be kept on disk: passages are read from Redis when they are shown, and not at " +
					"all while it is away; make room where data_dir and the temporary files are",
			)
		}
		t.failed = true
		return 0, false
	}
	t.failed = false
	at = t.size
	t.size += int64(all.Len())
	return at, true
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

// drop notes that a document's text is not needed any more.
func (t *texts) drop(h *held) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead += int64(h.size)
	t.gone = append(t.gone, span{h.at, h.size})
}

// wipe overwrites texts that were dropped before the previous wipe, so that deleted documents do
// not stay on disk. Searches that had found such a text were answered by then; a slower one reads
// zeros, which fail the hash.
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
