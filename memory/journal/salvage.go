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
type Span struct{ Start, End int64 }

// Salvaged says what Salvage found and did.
type Salvaged struct {
	Records int    // sound ones, all of which are kept
	Bytes   int64  // of their payloads
	Damaged []Span // what is no sound record, in the order of the file
	Backup  string // where the damaged file is; "" if nothing was lost and so nothing was changed
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
	j := newJournal(dir, opts)
	if _, err := os.Stat(j.path(fileName)); err != nil {
		return Salvaged{}, fmt.Errorf("salvage the journal: %w", err)
	}
	lock, err := Lock(dir)
	if err != nil {
		return Salvaged{}, err
	}
	defer lock.Close()
	f, s, err := j.reader()
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage the journal: %w", err)
	}
	defer f.Close()
	result, err := s.salvage(func([]byte) error { return nil })
	if err != nil || len(result.Damaged) == 0 {
		return result, err
	}
	if result.Records == 0 && result.Damaged[0].Start == 0 {
		return Salvaged{}, fmt.Errorf("%s: %w", s.path, ErrNotJournal)
	}
	result.Backup, err = j.keepDamaged(s)
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage %s: %w", s.path, err)
	}
	return result, nil
}

// keepDamaged puts a new journal with the sound records of s in the journal's place, and keeps the
// damaged file under the name that is returned.
func (j *Journal) keepDamaged(s scanner) (backup string, err error) {
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
		backup = filepath.Join(j.dir, name)
		err = os.Link(s.path, backup)
	}
	if err == nil {
		if err = j.rename(); err != nil {
			_ = os.Remove(backup) // the journal has its own name still
		}
	}
	if err != nil {
		_ = os.Remove(j.path(newName))
		return "", err
	}
	return backup, j.syncDir()
}

// salvage calls fn for every sound record, in the order of the file, and reports the ranges between
// them as lost.
func (s scanner) salvage(fn func(payload []byte) error) (Salvaged, error) {
	var result Salvaged
	offset := int64(len(magic))
	head, err := s.head()
	if err != nil {
		return result, err
	}
	if head != magic {
		if s.size <= offset && strings.HasPrefix(magic, head) {
			return result, nil // of a journal that was never written to
		}
		next, err := s.search(0, s.size)
		if err != nil {
			return result, err
		}
		result.Damaged = append(result.Damaged, Span{0, next})
		offset = next
	}
	for offset < s.size {
		payload, end, err := s.record(offset)
		if err != nil {
			return result, err
		}
		if payload != nil {
			if err := fn(payload); err != nil {
				return result, err
			}
			result.Records++
			result.Bytes += int64(len(payload))
			offset = end
			continue
		}
		next, err := s.nextSound(offset)
		if err != nil {
			return result, err
		}
		result.Damaged = append(result.Damaged, Span{offset, next})
		offset = next
	}
	return result, nil
}

// nextSound is the offset of the first sound record after the damaged one at bad, or the end of the
// file. If the damaged record has a sound header with an end at a plausible boundary, what lies
// inside its payload is skipped, since the payload may contain bytes that look like records.
func (s scanner) nextSound(bad int64) (int64, error) {
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
func (s scanner) leading(start, end int64) (int64, error) {
	for {
		first, err := s.search(start, end)
		if err != nil || first == end {
			return end, err
		}
		offset := first
		for offset < end {
			payload, next, err := s.record(offset)
			if err != nil {
				return 0, err
			}
			if payload == nil {
				break
			}
			offset = next
		}
		if offset == end {
			return first, nil
		}
		start = first + 1
	}
}

// search is the offset of the first sound record that starts in from…to, or to if there is none. It
// tries every offset.
func (s scanner) search(start, end int64) (int64, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(s.file, start, s.size-start), 1<<16)
	for offset := start; offset < end && s.size-offset > headerSize; offset++ {
		head, err := in.Peek(headerSize)
		if err != nil {
			return 0, s.failed(offset, err)
		}
		if _, ok := parseHeader(head); ok {
			if payload, _, err := s.record(offset); err != nil || payload != nil {
				return offset, err
			}
		}
		_, _ = in.Discard(1) // of what was peeked at
	}
	return end, nil
}

// header reads the header at an offset. Its length is 0 if it is not sound, or if the record would
// be larger than allowed.
func (s scanner) header(offset int64) (header, error) {
	if s.size-offset < headerSize {
		return header{}, nil
	}
	var head [headerSize]byte
	if _, err := s.file.ReadAt(head[:], offset); err != nil {
		return header{}, s.failed(offset, err)
	}
	h, sound := parseHeader(head[:])
	if !sound || h.length > int64(s.maxRecord) {
		return header{}, nil
	}
	return h, nil
}

// record reads the record at an offset: its payload and the offset behind it. The payload is nil if
// no sound record is there.
func (s scanner) record(offset int64) (payload []byte, end int64, err error) {
	h, err := s.header(offset)
	end = offset + headerSize + h.length
	if err != nil || h.length == 0 || end > s.size {
		return nil, 0, err
	}
	payload = make([]byte, h.length)
	if _, err := s.file.ReadAt(payload, offset+headerSize); err != nil {
		return nil, 0, s.failed(offset, err)
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
