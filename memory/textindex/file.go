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
	sum := sha256.Sum256([]byte(strings.Join(Terms(formatProbe), " ") + fmt.Sprint(len(stopwords), headingCount,
		maxStemmed)))
	return "index/1/" + hex.EncodeToString(sum[:8])
}

// formatProbe is a text that changes of the analysis are likely to show in.
const formatProbe = "The runners' quickest policies were generalised, relational and ﬁnally don't co-operate; naïve " +
	"Ångström 42.5 " +
	"ЁЛКИ и хозяйственные решения принимались быстрейшими руководителями, 日本語のテキスト ½ ²"

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

// Write writes the collection, without its vectors.
func (f Frozen) Write(to io.Writer) error {
	now, probes, stale := f.now, f.probes, f.stale
	w := encoder{to: bufio.NewWriterSize(to, 1<<16)}
	w.number(now.version)
	w.number(math.Float64bits(now.weak))
	w.number(uint64(stale))
	w.number(uint64(len(probes)))
	for _, p := range probes {
		w.text(p.id)
		w.number(uint64(len(p.questions)))
		for _, q := range p.questions {
			w.text(q)
		}
	}
	w.number(uint64(len(now.parts)))
	for _, p := range now.parts {
		w.text(p.terms)
		numbers(&w, p.starts)
		w.number(uint64(len(p.lists)))
		w.bytes(p.lists)
		numbers(&w, p.offsets)
		w.number(uint64(len(p.docs)))
		for _, d := range p.docs {
			w.text(d.id)
			w.number(uint64(d.first))
		}
		numbers(&w, p.lengths)
		numbers(&w, p.hashes)
		numbers(&w, []uint64(p.dead))
	}
	if w.err == nil {
		w.err = w.to.Flush()
	}
	return w.err
}

// Read is a Collection that Write wrote under the same Format. size bounds what is
// read. What is there must be whole, which a checksum of the caller's proves; what
// contradicts itself in spite of it is an error.
func Read(from io.Reader, size int64) (c *Collection, err error) {
	defer func() {
		if recover() != nil { // a place that is not there
			c, err = nil, errDamaged
		}
	}()
	r := decoder{from: from, left: size}
	c = NewCollection()
	version, weak := r.number(), math.Float64frombits(r.number())
	c.stale = int(r.number())
	for range r.count() {
		p := probe{id: r.text()}
		p.hash = hashID(p.id)
		for range r.count() {
			p.questions = append(p.questions, r.text())
		}
		c.sample = append(c.sample, p)
	}
	var e edit
	for range r.count() {
		if r.err != nil {
			return nil, r.err
		}
		s := &segment{terms: r.text()}
		s.starts = readNumbers[uint32](&r)
		s.lists = r.bytes()
		s.offsets = readNumbers[uint32](&r)
		s.docs = make([]entry, 0, r.count())
		for range cap(s.docs) {
			s.docs = append(s.docs, entry{id: r.text(), first: int32(r.number())})
		}
		s.lengths = readNumbers[uint32](&r)
		s.hashes = readNumbers[uint64](&r)
		dead := bitset(readNumbers[uint64](&r))
		if r.err != nil {
			return nil, r.err
		}
		c.adopt(&e, s, dead)
	}
	next := newSnapshot(c.shared, e.parts, len(c.places), version)
	next.weak = weak
	c.current.Store(next)
	return c, r.err
}

// adopt adds a segment that was read.
func (c *Collection) adopt(e *edit, s *segment, dead bitset) {
	p := part{segment: s}
	if len(dead) > 0 {
		p.dead = dead
	}
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

// perCopy is how many numbers are laid out at once.
const perCopy = 8 << 10

// encoder writes little-endian numbers, and strings and lists behind their length.
// The first error stays.
type encoder struct {
	to   *bufio.Writer
	room []byte
	err  error
}

func (w *encoder) bytes(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
	}
}

func (w *encoder) number(n uint64) {
	w.room = binary.LittleEndian.AppendUint64(w.room[:0], n)
	w.bytes(w.room)
}

func (w *encoder) text(s string) {
	w.number(uint64(len(s)))
	if w.err == nil {
		_, w.err = w.to.WriteString(s)
	}
}

func numbers[N uint32 | uint64](w *encoder, list []N) {
	w.number(uint64(len(list)))
	for some := range slices.Chunk(list, perCopy) {
		if w.err == nil {
			w.room, w.err = binary.Append(w.room[:0], binary.LittleEndian, some)
		}
		w.bytes(w.room)
	}
}

// decoder reads what encoder writes. The first error stays, and what is read then is
// empty.
type decoder struct {
	from io.Reader
	left int64 // bytes, at most
	room [8]byte
	err  error
}

func (r *decoder) fill(b []byte) {
	if r.err != nil {
		return
	}
	r.left -= int64(len(b))
	_, r.err = io.ReadFull(r.from, b)
}

func (r *decoder) number() uint64 {
	r.fill(r.room[:])
	if r.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(r.room[:])
}

// count is the length of what follows, which can be no more than what is left.
func (r *decoder) count() int {
	n := r.number()
	if r.err == nil && n > uint64(max(r.left, 0)) {
		r.err = errDamaged
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *decoder) bytes() []byte {
	b := make([]byte, r.count())
	r.fill(b)
	return b
}

func (r *decoder) text() string { return string(r.bytes()) }

func readNumbers[N uint32 | uint64](r *decoder) []N {
	n := r.count()
	if n == 0 {
		return nil
	}
	size := binary.Size(N(0))
	if int64(n) > r.left/int64(size) {
		r.err = errDamaged
		return nil
	}
	list := make([]N, n)
	room := make([]byte, min(n, perCopy)*size)
	for some := range slices.Chunk(list, perCopy) {
		b := room[:len(some)*size]
		r.fill(b)
		if r.err != nil {
			return nil
		}
		_, r.err = binary.Decode(b, binary.LittleEndian, some)
	}
	return list
}
