package textindex

import (
	"encoding/binary"
	"slices"
	"sort"
)

// segment is an immutable index of some documents. Nothing in it holds a pointer
// per term or posting, so that a large one costs the garbage collector nothing.
type segment struct {
	data   string   // all terms, ascending, each with its length in front and its postings behind
	starts []uint32 // where that of term i begins; one more for the end

	docs    []entry
	lengths []uint32 // of each passage, in terms
	hashes  []uint64 // of each passage's text
	vectors []vector // of each passage; nil if none has one
}

// entry is a document of a segment. Its passages go on to where those of the next
// entry begin.
type entry struct {
	id    string
	first int32 // number of its first passage in the segment
}

// maxSegment bounds the bytes of postings of a segment that others are merged
// into, far below what its offsets can address.
const maxSegment = 1 << 30

// postings are the postings of a term: their count, then each as the distance
// from the passage before, doubled, plus 1 if the term stands there once;
// otherwise its count follows. All numbers are varints.
type postings string

// find returns the postings of a term, empty if no text has it.
func (s *segment) find(term string) postings {
	i := sort.Search(len(s.starts)-1, func(i int) bool { return s.term(i) >= term })
	if i == len(s.starts)-1 || s.term(i) != term {
		return ""
	}
	return s.postings(i)
}

func (s *segment) term(i int) string {
	n, pos := varint(s.data, int(s.starts[i]))
	return s.data[pos : pos+int(n)]
}

func (s *segment) postings(i int) postings {
	n, pos := varint(s.data, int(s.starts[i]))
	return postings(s.data[pos+int(n) : s.starts[i+1]])
}

// document is the position among docs of the document that a passage belongs to.
func (s *segment) document(passage int) int {
	return sort.Search(len(s.docs), func(i int) bool { return int(s.docs[i].first) > passage }) - 1
}

// passages gives the first passage of a document and the one behind its last.
func (s *segment) passages(doc int) (first, end int) {
	if doc+1 < len(s.docs) {
		return int(s.docs[doc].first), int(s.docs[doc+1].first)
	}
	return int(s.docs[doc].first), len(s.lengths)
}

// bytes is about how many the segment takes, with what a Collection keeps of its documents.
func (s *segment) bytes() int {
	const perDocument, perVector = 96, 24
	size := len(s.data) + 4*(len(s.starts)+len(s.lengths)) + 8*len(s.hashes)
	for _, d := range s.docs {
		size += perDocument + len(d.id)
	}
	for _, v := range s.vectors {
		size += perVector + 4*len(v)
	}
	return size
}

// vector is that of a passage, nil if it has none.
func (s *segment) vector(passage int) vector {
	if s.vectors == nil {
		return nil
	}
	return s.vectors[passage]
}

// count is how many passages have the term.
func (p postings) count() int {
	if p == "" {
		return 0
	}
	n, _ := varint(string(p), 0)
	return int(n)
}

// posting says how often a term stands in a passage.
type posting struct {
	passage int32
	times   uint32
}

// decode appends the postings to a list, ascending by passage.
func (p postings) decode(dst []posting) []posting {
	passage, list := int32(-1), string(p)
	for _, pos := varint(list, 0); pos < len(list); {
		var step uint64
		times := uint64(1)
		if step, pos = varint(list, pos); step&1 == 0 {
			times, pos = varint(list, pos)
		}
		passage += int32(step >> 1)
		dst = append(dst, posting{passage, uint32(times)})
	}
	return dst
}

// varint reads the number at a position, and returns the position behind it.
func varint(p string, pos int) (n uint64, next int) {
	if p[pos] < 0x80 {
		return uint64(p[pos]), pos + 1
	}
	return longVarint(p, pos) // apart, so that this is inlined
}

func longVarint(p string, pos int) (n uint64, next int) {
	for shift := 0; ; shift += 7 {
		n |= uint64(p[pos]&0x7f) << shift
		if pos++; p[pos-1] < 0x80 {
			return n, pos
		}
	}
}

// list collects the postings of one term.
type list struct {
	bytes []byte // without the count
	count int
	last  int32 // passage
}

func (l *list) add(passage int32, times uint32) {
	if l.count == 0 {
		l.last = -1
	}
	step := uint64(passage-l.last) << 1
	if times == 1 {
		l.bytes = binary.AppendUvarint(l.bytes, step|1)
	} else {
		l.bytes = binary.AppendUvarint(l.bytes, step)
		l.bytes = binary.AppendUvarint(l.bytes, uint64(times))
	}
	l.last = passage
	l.count++
}

// writer lays out the terms of a segment, which come in ascending order.
type writer struct {
	segment
	data []byte
}

func (w *writer) write(term string, l *list) {
	if l.count == 0 {
		return
	}
	w.starts = append(w.starts, uint32(len(w.data)))
	w.data = append(binary.AppendUvarint(w.data, uint64(len(term))), term...)
	w.data = append(binary.AppendUvarint(w.data, uint64(l.count)), l.bytes...)
}

func (w *writer) passage(length uint32, hash uint64, v vector) {
	w.lengths = append(w.lengths, length)
	w.hashes = append(w.hashes, hash)
	if v == nil && w.vectors == nil {
		return
	}
	for len(w.vectors) < len(w.lengths)-1 {
		w.vectors = append(w.vectors, nil)
	}
	w.vectors = append(w.vectors, v)
}

// finish gives the segment without spare room.
func (w *writer) finish() *segment {
	s := w.segment
	s.data = string(w.data)
	s.starts = slices.Clone(append(s.starts, uint32(len(w.data))))
	s.docs, s.lengths, s.hashes = slices.Clone(s.docs), slices.Clone(s.lengths), slices.Clone(s.hashes)
	return &s
}
