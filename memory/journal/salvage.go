package journal

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Span is a range of bytes of a file, from offset From up to and without To.
type Span struct{ From, To int64 }

// Salvaged says what Salvage found and did.
type Salvaged struct {
	Records int    // sound ones, all of which are kept
	Bytes   int64  // of their payloads
	Lost    []Span // what is no sound record, in the order of the file
	Kept    string // where the damaged file is; "" if nothing was lost and so nothing was changed
}

// Salvage writes the journal in dir anew with every sound record of it, on both sides of any damage, and keeps the
// damaged file beside it under another name. What replays the journal afterwards must be able to do without the records
// that were lost.
//
// After damaged bytes the first sound record is searched for byte by byte. Where the damaged record's header is sound,
// its end is known, and what lies inside is not taken for a record, unless records lead from there to that very end, as
// they do when bytes were taken out of the file.
//
// Errors: *InUseError when someone has dir open, ErrNotJournal when the file has neither the start of a journal nor a
// sound record, and what the file system says. The journal is as it was then.
func Salvage(dir string, opts Options) (Salvaged, error) {
	j := at(dir, opts)
	if _, err := os.Stat(j.path(fileName)); err != nil {
		return Salvaged{}, fmt.Errorf("salvage the journal: %w", err)
	}
	lock, err := lockDir(dir, j.path(lockName))
	if err != nil {
		return Salvaged{}, err
	}
	defer lock.Close()
	f, s, err := j.reader()
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage the journal: %w", err)
	}
	defer f.Close()
	found, err := s.salvage(func([]byte) error { return nil })
	if err != nil || len(found.Lost) == 0 {
		return found, err
	}
	if found.Records == 0 && found.Lost[0].From == 0 {
		return Salvaged{}, fmt.Errorf("%s: %w", s.path, ErrNotJournal)
	}
	found.Kept, err = j.keepDamaged(s)
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage %s: %w", s.path, err)
	}
	return found, nil
}

// keepDamaged puts a new journal with the sound records of s in the journal's place, and keeps the
// damaged file under the name that is returned.
func (j *Journal) keepDamaged(s scanner) (kept string, err error) {
	file, _, err := j.writeNew(func(emit func([]byte) error) error {
		_, err := s.salvage(emit)
		return err
	})
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		// The damaged file gets its second name by a hard link before the rename, so that at every
		// instant the directory has a journal, the damaged one or the new one.
		name := fileName + ".damaged-" + time.Now().UTC().Format("20060102T150405.000Z")
		kept = filepath.Join(j.dir, name)
		err = os.Link(s.path, kept)
	}
	if err == nil {
		if err = j.rename(); err != nil {
			_ = os.Remove(kept) // the journal has its own name still
		}
	}
	if err != nil {
		_ = os.Remove(j.path(newName))
		return "", err
	}
	return kept, j.syncDir()
}

// salvage calls fn for every sound record, in the order of the file, and reports the ranges between
// them as lost.
func (s scanner) salvage(fn func(payload []byte) error) (Salvaged, error) {
	var found Salvaged
	at := int64(len(magic))
	head, err := s.head()
	if err != nil {
		return found, err
	}
	if head != magic {
		if s.size <= at && strings.HasPrefix(magic, head) {
			return found, nil // of a journal that was never written to
		}
		next, err := s.search(0, s.size)
		if err != nil {
			return found, err
		}
		found.Lost = append(found.Lost, Span{0, next})
		at = next
	}
	for at < s.size {
		payload, end, err := s.record(at)
		if err != nil {
			return found, err
		}
		if payload != nil {
			if err := fn(payload); err != nil {
				return found, err
			}
			found.Records++
			found.Bytes += int64(len(payload))
			at = end
			continue
		}
		next, err := s.behind(at)
		if err != nil {
			return found, err
		}
		found.Lost = append(found.Lost, Span{at, next})
		at = next
	}
	return found, nil
}

// behind is the offset of the first sound record after the damaged one at bad, or the end of the
// file. If the damaged record has a sound header with an end at a plausible boundary, what lies
// inside its payload is skipped, since the payload may contain bytes that look like records.
func (s scanner) behind(bad int64) (int64, error) {
	h, err := s.header(bad)
	if err != nil {
		return 0, err
	}
	if end := bad + headerSize + h.length; h.length > 0 && end <= s.size {
		payload, _, err := s.record(end)
		if err != nil {
			return 0, err
		}
		if payload != nil || end == s.size {
			return s.leading(bad+1, end)
		}
	}
	return s.search(bad+1, s.size)
}

// leading is the offset of the first sound record in from…end from which sound records follow each
// other without a gap up to end; it returns end if there is none.
func (s scanner) leading(from, end int64) (int64, error) {
	for {
		first, err := s.search(from, end)
		if err != nil || first == end {
			return end, err
		}
		at := first
		for at < end {
			payload, next, err := s.record(at)
			if err != nil {
				return 0, err
			}
			if payload == nil {
				break
			}
			at = next
		}
		if at == end {
			return first, nil
		}
		from = first + 1
	}
}

// search is the offset of the first sound record that starts in from…to, or to if there is none. It
// tries every offset.
func (s scanner) search(from, to int64) (int64, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(s.file, from, s.size-from), 1<<16)
	for at := from; at < to && s.size-at > headerSize; at++ {
		head, err := in.Peek(headerSize)
		if err != nil {
			return 0, s.failed(at, err)
		}
		if _, ok := parseHeader(head); ok {
			if payload, _, err := s.record(at); err != nil || payload != nil {
				return at, err
			}
		}
		_, _ = in.Discard(1) // of what was peeked at
	}
	return to, nil
}

// header reads the header at an offset. Its length is 0 if it is not sound, or if the record would
// be larger than allowed.
func (s scanner) header(at int64) (header, error) {
	if s.size-at < headerSize {
		return header{}, nil
	}
	var head [headerSize]byte
	if _, err := s.file.ReadAt(head[:], at); err != nil {
		return header{}, s.failed(at, err)
	}
	h, sound := parseHeader(head[:])
	if !sound || h.length > int64(s.maxRecord) {
		return header{}, nil
	}
	return h, nil
}

// record reads the record at an offset: its payload and the offset behind it. The payload is nil if
// no sound record is there.
func (s scanner) record(at int64) (payload []byte, end int64, err error) {
	h, err := s.header(at)
	end = at + headerSize + h.length
	if err != nil || h.length == 0 || end > s.size {
		return nil, 0, err
	}
	payload = make([]byte, h.length)
	if _, err := s.file.ReadAt(payload, at+headerSize); err != nil {
		return nil, 0, s.failed(at, err)
	}
	if crc32.Checksum(payload, castagnoli) != h.sum {
		return nil, 0, nil
	}
	return payload, end, nil
}

// foreign is the error for a file that begins with head and thus not as a journal does: a
// CorruptError if the file has sound records, so that its first bytes are damaged, else
// ErrNotJournal.
func (s scanner) foreign(head string) error {
	if len(head) < len(magic) && strings.HasPrefix(magic, head) {
		return fmt.Errorf("%s: %w", s.path, ErrEmptied)
	}
	version := strings.HasPrefix(head, magic[:len(magic)-1]) // the magic bytes of another version of this format
	if next, err := s.search(0, s.size); err == nil && next < s.size && !version {
		return &CorruptError{Path: s.path, Offset: 0, Next: next}
	}
	return fmt.Errorf("%s: %w", s.path, ErrNotJournal)
}
