package textindex

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
)

// headingCount is how often each word of a title or section counts in a passage,
// besides its times in the text. On the judged sets with titles twice is better than
// once, and thrice a little better still.
const headingCount = 3

// builder makes a segment of documents.
type builder struct {
	analyzer *analyzer // used by no other goroutine meanwhile

	used  []int32  // numbers of the terms
	lists []list   // of the terms by their places, the first being 1
	words []int32  // places of the terms of the passage at hand
	times []uint32 // by places: in the passage at hand; all 0 between passages
	out   writer

	language language // of the document's texts so far
	folded   []byte   // room
}

func (b *builder) add(d Document) {
	s := &b.out
	s.docs = append(s.docs, entry{id: strings.Clone(d.ID), first: int32(len(s.lengths))})
	var heading []int32
	section := ""
	b.language = anyLanguage
	for i, p := range d.Passages {
		if p.Terms != nil {
			b.words = b.words[:0]
			for _, term := range p.Terms {
				b.words = append(b.words, b.place(b.analyzer.termNumber(term)))
			}
		} else {
			b.words = b.read(b.words[:0], p.Text)
			if i == 0 || p.Section != section {
				section = p.Section
				lang := b.language
				heading = b.heading(heading[:0], d.Title, section)
				b.language = lang
			}
			b.words = append(b.words, heading...)
		}
		if mark := languageTerms[b.language]; mark != "" && p.Terms == nil {
			b.words = append(b.words, b.place(b.analyzer.termNumber(mark)))
		}
		b.count(int32(len(s.lengths)))
		s.passage(uint32(len(b.words)), b.hash(d.Title, p), unit(p.Vector))
	}
}

// heading are the terms of a title and a section, which often repeat each other.
func (b *builder) heading(places []int32, title, section string) []int32 {
	places = b.read(b.read(places, title), section)
	slices.Sort(places)
	unique := slices.Compact(places)
	places = unique
	for range headingCount - 1 {
		places = append(places, unique...)
	}
	return places
}

// read appends the places of a text's terms.
func (b *builder) read(places []int32, text string) []int32 {
	for n := range b.analyzer.in(text, b.language) {
		places = append(places, b.place(n))
	}
	b.language = b.analyzer.judged
	return places
}

// place is that of a term's number, which has a list from then on.
func (b *builder) place(n int32) int32 {
	place := &b.analyzer.places[n]
	if *place == 0 {
		b.used = append(b.used, n)
		b.lists = append(b.lists, list{})
		*place = int32(len(b.used))
	}
	return *place
}

// PassageTerms are the terms of each passage of a document, headings among them, each as often as it counts: what an
// index elsewhere keeps. Their order says nothing.
func PassageTerms(d Document) [][]string {
	a := anAnalyzer()
	b := builder{analyzer: a}
	b.add(d)
	terms := make([][]string, len(d.Passages))
	for place, l := range b.lists {
		list := postings(append(binary.AppendUvarint(nil, uint64(l.count)), l.bytes...))
		for _, post := range list.decode(nil) {
			for range post.times {
				terms[post.passage] = append(terms[post.passage], a.terms[b.used[place]])
			}
		}
	}
	b.finish()
	analyzers.Put(a)
	return terms
}

// count adds the terms at hand to their lists.
func (b *builder) count(passage int32) {
	if n := len(b.lists) + 1 - len(b.times); n > 0 {
		b.times = append(b.times, make([]uint32, n)...)
	}
	for _, place := range b.words {
		b.times[place]++
	}
	for _, place := range b.words {
		if times := b.times[place]; times > 0 { // else it was added already
			b.lists[place-1].add(passage, times)
			b.times[place] = 0
		}
	}
}

// hash tells texts apart, by the first bytes of the SHA-256 of their words: it is the
// same in every process, and an attacker cannot make two texts that have it in common. A
// passage without words of its own is its headings.
func (b *builder) hash(title string, p Passage) uint64 {
	text := p.Text
	if strings.TrimSpace(text) == "" {
		text = title + " \n " + p.Section
	}
	b.folded = b.folded[:0]
	for word := range strings.FieldsSeq(text) {
		b.folded = append(append(b.folded, word...), ' ')
	}
	sum := sha256.Sum256(b.folded)
	return binary.LittleEndian.Uint64(sum[:])
}

// finish gives the segment of all that was added and leaves the analyzer as it was.
func (b *builder) finish() *segment {
	terms, places := b.analyzer.terms, b.analyzer.places
	slices.SortFunc(b.used, func(m, n int32) int { return strings.Compare(terms[m], terms[n]) })
	for _, n := range b.used {
		b.out.write(terms[n], &b.lists[places[n]-1])
		places[n] = 0
	}
	return b.out.finish()
}

// Prepared is documents that are analysed and can be put by a Change. Preparing is
// what takes time, and needs nothing of the collection: many can do it at once.
type Prepared struct {
	segments  []*segment
	probes    sample
	documents int
}

// Prepare analyses documents of different ids, on one processor.
func (c *Collection) Prepare(documents []Document) *Prepared {
	p := &Prepared{documents: len(documents)}
	for _, b := range batch(documents, perSegment) {
		p.segments = append(p.segments, c.segment(b))
	}
	for _, d := range documents {
		p.probes.add(d)
	}
	return p
}

// mergeFresh makes few segments of many in which every document is live and stands
// once, in their order and on all processors: in one pass, where merging them as
// changes come would take one for each size.
func mergeFresh(segments []*segment) []*segment {
	if len(segments) < fanout {
		return segments
	}
	groups := groupFresh(segments, min(runtime.GOMAXPROCS(0), fanout-1))
	merged := make([]*segment, len(groups))
	onAll(len(groups), func(i int) {
		parts := make([]part, len(groups[i]))
		for k, s := range groups[i] {
			parts[k] = part{segment: s}
		}
		merged[i] = merge(parts, func(*segment, int) bool { return true })
	})
	return merged
}

// groupFresh cuts segments into at least as many runs, of about equal size and none
// larger than a segment may be.
func groupFresh(segments []*segment, runs int) (groups [][]*segment) {
	total := 0
	for _, s := range segments {
		total += len(s.data)
	}
	most := min(total/runs+1, maxSegment)
	size := most // so that the first begins a run
	for _, s := range segments {
		if size >= most {
			groups, size = append(groups, nil), 0
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], s)
		size += len(s.data)
	}
	return slices.Clip(groups)
}

// merge makes one segment of parts, without the documents that are not kept.
func merge(parts []part, keep func(s *segment, doc int) bool) *segment {
	w := writer{}
	size := 0
	numbers := make([][]int32, len(parts))
	for i, p := range parts {
		size += len(p.data)
		numbers[i] = w.take(p.segment, keep)
	}
	w.data = make([]byte, 0, size)
	heads := make([]int, len(parts)) // the next term of each part
	var l list
	var decoded []posting
	for {
		least, ok := "", false
		for i, p := range parts {
			if heads[i] < len(p.starts)-1 {
				if term := p.term(heads[i]); !ok || term < least {
					least, ok = term, true
				}
			}
		}
		if !ok {
			return w.finish()
		}
		l = list{bytes: l.bytes[:0]}
		for i, p := range parts {
			if heads[i] == len(p.starts)-1 || p.term(heads[i]) != least {
				continue
			}
			decoded = p.postings(heads[i]).decode(decoded[:0])
			for _, post := range decoded {
				if number := numbers[i][post.passage]; number >= 0 {
					l.add(number, post.times)
				}
			}
			heads[i]++
		}
		w.write(least, &l)
	}
}

// take adds the documents of a segment and gives the new numbers of its passages,
// -1 for those that are left out.
func (w *writer) take(s *segment, keep func(s *segment, doc int) bool) []int32 {
	numbers := make([]int32, len(s.lengths))
	for doc, d := range s.docs {
		first, end := s.passages(doc)
		ok := keep(s, doc)
		if ok {
			w.docs = append(w.docs, entry{id: d.id, first: int32(len(w.lengths))})
		}
		for passage := first; passage < end; passage++ {
			if !ok {
				numbers[passage] = -1
				continue
			}
			numbers[passage] = int32(len(w.lengths))
			w.passage(s.lengths[passage], s.hashes[passage], s.vector(passage))
		}
	}
	return numbers
}
