package textindex

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Format names what Write lays out and how texts become terms. What was written under
// another name is of no use.
func Format() string {
	terms := PassageTerms(Document{Title: "Café", Passages: []Passage{{Text: formatProbe}}})[0]
	sum := sha256.Sum256([]byte(strings.Join(terms, " ") + fmt.Sprint(len(stopwords), headingCount,
		maxStemmed)))
	return "index/2/" + hex.EncodeToString(sum[:8])
}

// formatProbe is a text that changes of the analysis are likely to show in.
const formatProbe = "The runners' quickest policies were generalised, relational and ﬁnally don't co-operate; naïve " +
	"Ångström 42.5 " +
	"ЁЛКИ и хозяйственные решения принимались быстрейшими руководителями, 日本語のテキスト ½ 5² 1,000 ٥ " +
	"İstanbul'dakiler แมวชื่ออะไร AB-12 getName 5 mm"

// Frozen is a Collection as it was at one time, to be written.
type Frozen struct {
	now    *Snapshot
	probes sample
	stale  int
}

// Freeze gives the collection as it is now.
func (c *Collection) Freeze() Frozen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Frozen{c.Snapshot(), slices.Clone(c.sample), c.stale}
}

// Write writes the collection, without its vectors: little-endian numbers, and strings and lists behind their length.
func (f Frozen) Write(dst io.Writer) error {
	w := encoder{bufio.NewWriterSize(dst, 1<<16)}
	w.number(f.now.version)
	w.number(math.Float64bits(f.now.weak))
	w.number(uint64(f.stale))
	w.number(uint64(len(f.probes)))
	for _, p := range f.probes {
		w.text(p.id)
		w.number(uint64(len(p.questions)))
		for _, q := range p.questions {
			w.text(q)
		}
	}
	w.number(uint64(len(f.now.parts)))
	for _, p := range f.now.parts {
		w.text(p.data)
		numbers(w, p.starts)
		w.number(uint64(len(p.docs)))
		for _, d := range p.docs {
			w.text(d.id)
			w.number(uint64(d.first))
		}
		numbers(w, p.lengths)
		numbers(w, p.hashes)
		numbers(w, p.dead)
	}
	return w.Flush()
}

// Read is a Collection that Write wrote under the same Format. size bounds what is read. That it is whole is for a
// checksum of the caller's to prove. What contradicts itself in spite of that is an error: the decoder, and places
// that are not there, panic, which ends here.
func Read(src io.Reader, size int64) (c *Collection, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			c, err = nil, fmt.Errorf("%w: %v", errDamaged, cause)
		}
	}()
	r := &decoder{src: src, remaining: size}
	c = NewCollection()
	version, weak := r.number(), math.Float64frombits(r.number())
	c.stale = int(r.number())
	for range r.count(1) {
		p := probe{id: r.text()}
		p.hash = hashID(p.id)
		for range r.count(1) {
			p.questions = append(p.questions, r.text())
		}
		c.sample = append(c.sample, p)
	}
	var e edit
	for range r.count(1) {
		s := &segment{data: r.text()}
		s.starts = readNumbers[uint32](r)
		s.docs = make([]entry, r.count(1))
		for i := range s.docs {
			s.docs[i] = entry{id: r.text(), first: int32(r.number())}
		}
		s.lengths = readNumbers[uint32](r)
		s.hashes = readNumbers[uint64](r)
		c.adopt(&e, s, readNumbers[uint64](r))
	}
	next := newSnapshot(c.shared, e.parts, len(c.places), version)
	next.weak = weak
	c.current.Store(next)
	return c, nil
}

// adopt adds a segment that was read.
func (c *Collection) adopt(e *edit, s *segment, dead bitset) {
	p := part{segment: s, dead: dead, bytes: s.bytes()}
	for i, n := range s.lengths {
		if !p.dead.has(i) {
			p.live++
			p.length += int(n)
		}
	}
	for i, d := range s.docs {
		if first, end := s.passages(i); first < end && !p.dead.has(first) {
			c.places[d.id] = place{s, i}
		}
	}
	e.parts = append(e.parts, p)
}

var errDamaged = errors.New("the index is damaged")

// perCopy is how many numbers are laid out at once, which bounds the memory that it takes.
const perCopy = 8 << 10

// encoder writes what decoder reads. Flush gives the first error of all writes.
type encoder struct{ *bufio.Writer }

func (w encoder) number(n uint64) {
	_, _ = w.Write(binary.LittleEndian.AppendUint64(w.AvailableBuffer(), n))
}

func (w encoder) text(s string) {
	w.number(uint64(len(s)))
	_, _ = w.WriteString(s)
}

func numbers[N byte | uint32 | uint64](w encoder, list []N) {
	w.number(uint64(len(list)))
	for chunk := range slices.Chunk(list, perCopy) {
		_ = binary.Write(w, binary.LittleEndian, chunk)
	}
}

// decoder reads what encoder wrote, and panics with what is wrong.
type decoder struct {
	src       io.Reader
	remaining int64 // bytes, at most
	room      [8]byte
}

func (r *decoder) fill(b []byte) {
	r.remaining -= int64(len(b))
	if _, err := io.ReadFull(r.src, b); err != nil {
		panic(err)
	}
}

func (r *decoder) number() uint64 {
	r.fill(r.room[:])
	return binary.LittleEndian.Uint64(r.room[:])
}

// count is how many values of at least so many bytes follow. They must have room in what is left, so that a damaged
// count allocates nothing.
func (r *decoder) count(size int) int {
	n := r.number()
	if n > uint64(max(r.remaining, 0))/uint64(size) {
		panic(fmt.Sprintf("%d values in %d bytes", n, r.remaining))
	}
	return int(n)
}

func (r *decoder) text() string {
	b := make([]byte, r.count(1))
	r.fill(b)
	return string(b)
}

func readNumbers[N byte | uint32 | uint64](r *decoder) []N {
	size := binary.Size(N(0))
	n := r.count(size)
	if n == 0 {
		return nil
	}
	list := make([]N, n)
	room := make([]byte, min(n, perCopy)*size)
	for chunk := range slices.Chunk(list, perCopy) {
		b := room[:len(chunk)*size]
		r.fill(b)
		_, _ = binary.Decode(b, binary.LittleEndian, chunk) // it fails for too few bytes only
	}
	return list
}
