package rag

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// A snapshot consists of the head's record, a record for each document, the index, and the CRC-32C
// of all that. A record is its length in 4 bytes and its fields: varints, and texts behind their
// length.

// snapshotFormat identifies the format of snapshots and the algorithm of the index; a snapshot with
// another one is not read.
func snapshotFormat() string { return "mneme/1/" + textindex.Format() }

// maxRecord bounds a record, in bytes; the passages of a document of 50 MB take less.
const maxRecord = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// save writes a snapshot and returns its version. Searches and changes go on meanwhile. The
// snapshot takes effect by a rename, so that a crash leaves the old one or the new one.
func (r *replica) save(ctx context.Context, k *known) (version int64, err error) {
	if err := r.lock(ctx); err != nil {
		return 0, err
	}
	mark, file, frozen := *k.mark.Load(), k.texts, k.index.Freeze()
	k.mu.RLock()
	documents := make([]*held, 0, len(k.byID))
	for _, h := range k.byID {
		documents = append(documents, h)
	}
	k.mu.RUnlock()
	r.unlock()
	size, err := file.sync()
	if err != nil {
		return 0, err
	}
	path := filepath.Join(r.library.files.dir, base(r.collection)+snapshotEnding)
	draft, err := os.OpenFile(path+draftEnding, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(draft.Name()) // after the renaming there is none
	defer draft.Close()
	var b record
	b.text(snapshotFormat())
	b.text(base(r.collection))
	b.text(mark.Text())
	b.text(file.name)
	b.number(size)
	b.number(int64(len(documents)))
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(draft, sum), 1<<16)
	if err := b.flush(out); err != nil {
		return 0, err
	}
	for _, h := range documents {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b.document(h, file)
		if err := b.flush(out); err != nil {
			return 0, err
		}
	}
	if err := frozen.Write(out); err != nil {
		return 0, err
	}
	if err := out.Flush(); err != nil {
		return 0, err
	}
	if _, err := draft.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32())); err != nil {
		return 0, err
	}
	if err := draft.Sync(); err != nil {
		return 0, err
	}
	return mark.Version, os.Rename(draft.Name(), path)
}

// read reads the snapshot, after checking its sum.
func (r *replica) read() (*known, error) {
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
	from := &records{from: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<16)}
	if err := from.next(); err != nil {
		return nil, err
	}
	format, name := from.text(), from.text()
	if format != snapshotFormat() || name != base(r.collection) {
		return nil, fmt.Errorf("it is of another version, %.80q", format)
	}
	k := r.newKnown()
	mark := docstore.ParseMark(from.text())
	k.texts.name = from.text()
	if err := k.texts.reopen(from.number()); err != nil {
		return nil, err
	}
	for range from.number() {
		if err := from.next(); err != nil {
			return nil, err
		}
		h := from.document(k.texts)
		if from.err != nil {
			return nil, from.err
		}
		k.byID[h.ID] = h
		k.texts.dead -= int64(h.size)
		if k.bare != nil && len(h.Passages) > 0 { // vectors are in the store
			k.bare[h.name] = h
		}
	}
	if k.index, err = textindex.Read(from.from, size); err != nil {
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

// record builds the bytes of one record.
type record struct{ b []byte }

func (r *record) number(n int64) { r.b = binary.AppendVarint(r.b, n) }

func (r *record) text(s string) {
	r.number(int64(len(s)))
	r.b = append(r.b, s...)
}

// document adds the fields of one document. A section equal to the one before is written as -1.
func (r *record) document(h *held, file *texts) {
	r.text(h.ID)
	r.number(h.Version)
	r.text(h.Title)
	r.text(h.Source)
	r.b = append(r.b, h.sum[:]...)
	at := int64(-1)
	if h.texts == file {
		at = h.at
	}
	r.number(at)
	r.number(int64(h.size))
	r.number(int64(len(h.Metadata)))
	for key, value := range h.Metadata {
		r.text(key)
		r.text(value)
	}
	r.number(int64(len(h.Passages)))
	section := ""
	for i, p := range h.Passages {
		r.number(int64(p.Start))
		r.number(int64(p.End))
		r.number(int64(p.Page))
		r.b = append(r.b, p.hash[:]...)
		if i > 0 && p.Section == section {
			r.number(-1)
			continue
		}
		section = p.Section
		r.text(section)
	}
}

func (r *record) flush(to io.Writer) error {
	defer func() { r.b = r.b[:0] }()
	if _, err := to.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(r.b)))); err != nil {
		return err
	}
	_, err := to.Write(r.b)
	return err
}

// records reads records. After the first error, which it keeps, all values are empty.
type records struct {
	from *bufio.Reader
	room []byte
	b    []byte // the unread rest of the current record
	err  error
	last map[string]string // the metadata of the document before
}

func (r *records) next() error {
	var head [4]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n > maxRecord {
		return errBroken
	}
	r.room = slices.Grow(r.room[:0], n)[:n]
	r.b = r.room
	_, err := io.ReadFull(r.from, r.b)
	return err
}

func (r *records) number() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.err, r.b = errBroken, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

// count reads how many items follow. Each item takes at least a byte, which bounds what a damaged
// count can allocate.
func (r *records) count() int {
	n := r.number()
	if n < 0 || n > int64(len(r.b)) {
		r.err, r.b, n = errBroken, nil, 0
	}
	return int(n)
}

func (r *records) bytes(n int) []byte {
	if n > len(r.b) {
		r.err, r.b = errBroken, nil
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *records) text() string { return string(r.bytes(r.count())) }

func (r *records) document(file *texts) *held {
	d := docstore.Document{ID: r.text(), Version: r.number()}
	h := &held{Version: d.Version, Title: r.text(), Source: r.text()}
	copy(h.sum[:], r.bytes(len(h.sum)))
	h.name = nameOf(d, h.sum)
	h.ID = h.name[:len(d.ID)]
	if h.Source == h.ID {
		h.Source = h.ID
	}
	if h.at = r.number(); h.at >= 0 {
		h.texts = file
	}
	h.size = int(r.number())
	h.Metadata = r.metadata()
	h.Passages = make([]place, r.count())
	section := ""
	for i := range h.Passages {
		p := &h.Passages[i]
		p.Start, p.End, p.Page = int32(r.number()), int32(r.number()), int32(r.number())
		copy(p.hash[:], r.bytes(len(p.hash)))
		if n := r.number(); n >= 0 {
			section = string(r.bytes(int(min(n, int64(len(r.b)+1)))))
		}
		p.Section = section
	}
	return h
}

// metadata reads a document's metadata and shares it with the document before if they are equal.
func (r *records) metadata() map[string]string {
	n := r.count()
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		key := r.text()
		m[key] = r.text()
	}
	if maps.Equal(m, r.last) {
		return r.last
	}
	r.last = m
	return m
}
