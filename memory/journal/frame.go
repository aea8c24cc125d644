package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The file format; the package comment describes it.
const (
	magic      = "mnemejl1"
	headerSize = 12
)

// castagnoli is the table of CRC32C, the polynomial that processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the frame of one record, which is its header and its payload, to dst.
func appendFrame(dst, payload []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, payload...)
}

// header is a record's header as far as readers need it: the payload's length in bytes and its
// CRC32C.
type header struct {
	length int64
	sum    uint32
}

// parseHeader decodes the header at the start of b, which has headerSize bytes at least. It reports
// false for bytes that appendFrame cannot have written: a checksum that does not match, or an empty
// payload. The length of a header with a matching checksum can be trusted before the payload is
// read.
func parseHeader(b []byte) (header, bool) {
	h := header{
		length: int64(binary.LittleEndian.Uint32(b)),
		sum:    binary.LittleEndian.Uint32(b[4:]),
	}
	return h, h.length > 0 && binary.LittleEndian.Uint32(b[8:]) == crc32.Checksum(b[:8], castagnoli)
}

// scanner reads the records in the first size bytes of a file. It holds no position and keeps
// nothing between calls, so that a scan may run while another one does.
type scanner struct {
	file      io.ReaderAt
	path      string
	size      int64
	maxRecord int
}

// each calls fn for every sound record, oldest first, and returns the offset at which the last of
// them ends. The bytes from there to the end of the file are a torn tail by the rule in the package
// comment. The payload is valid during the call of fn only.
func (s scanner) each(fn func(payload []byte) error) (end int64, err error) {
	var (
		offset = int64(len(magic))
		in     = bufio.NewReaderSize(io.NewSectionReader(s.file, offset, s.size-offset), 1<<16)
		buf    []byte
	)
	for s.size-offset >= headerSize {
		var head [headerSize]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return offset, s.failed(offset, err)
		}
		h, sound := parseHeader(head[:])
		if !sound {
			return offset, s.tornAt(offset, offset+1)
		}
		next := offset + headerSize + h.length
		// The header is sound and the payload runs past the end of the file: the write was cut
		// short.
		if next > s.size {
			return offset, nil
		}
		if h.length > int64(s.maxRecord) {
			return offset, fmt.Errorf("%s: record of %d bytes at byte %d, at most %d are allowed: %w",
				s.path, h.length, offset, s.maxRecord, ErrRecordSize)
		}
		if int64(cap(buf)) < h.length {
			buf = make([]byte, h.length)
		}
		payload := buf[:h.length]
		if _, err := io.ReadFull(in, payload); err != nil {
			return offset, s.failed(offset, err)
		}
		if crc32.Checksum(payload, castagnoli) != h.sum {
			return offset, s.tornAt(offset, next)
		}
		if err := fn(payload); err != nil {
			return offset, fmt.Errorf("replay %s at byte %d: %w", s.path, offset, err)
		}
		offset = next
	}
	// A failed checksum alone does not tell a torn tail from corruption; what follows it does.
	return offset, nil
}

// tornAt decides between a torn tail and corruption for the bad record at offset bad: it returns
// nil when no sound record starts at from or later, else a CorruptError. It tries every offset,
// since the length of a bad header says nothing about where the next record begins.
func (s scanner) tornAt(bad, start int64) error {
	next, err := s.search(start, s.size)
	if err == nil && next < s.size {
		err = &CorruptError{Path: s.path, Offset: bad, Next: next}
	}
	return err
}

// altered says whether the tail from an offset on is something else than the beginning of a record: then it was not cut
// short. Zeros are left by a check of the disk that was interrupted, or by a loss of power.
func (s scanner) altered(offset int64) (bool, error) {
	if s.size-offset < headerSize {
		return false, nil
	}
	var head [headerSize]byte
	if _, err := s.file.ReadAt(head[:], offset); err != nil {
		return false, s.failed(offset, err)
	}
	h, sound := parseHeader(head[:])
	return head != [headerSize]byte{} && (!sound || offset+headerSize+h.length <= s.size), nil
}

// head is the beginning of the file, as long as the magic bytes or the whole of a shorter file.
func (s scanner) head() (string, error) {
	head := make([]byte, min(s.size, int64(len(magic))))
	if _, err := s.file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", s.failed(0, err)
	}
	return string(head), nil
}

func (s scanner) failed(offset int64, err error) error {
	return fmt.Errorf("read %s at byte %d: %w", s.path, offset, err)
}
