package textindex

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// headingCount is how often each word of a title or section counts in a passage,
// besides its times in the text. On the judged sets with titles twice is better than
// once, and thrice a little better still.
const headingCount = 3

// builder makes a segment of documents.
type builder struct {
	analyzer *analyzer // used by nobody else meanwhile

	used  []int32  // numbers of the terms
	lists []list   // of the terms by their places, the first being 1
	words []int32  // places of the terms of the passage at hand
	times []uint32 // by places: in the passage at hand; all 0 between passages
	out   writer

	folded []byte // room
}

func (b *builder) add(d Document) {
	s := &b.out
	s.docs = append(s.docs, entry{id: strings.Clone(d.ID), first: int32(len(s.lengths))})
	var heading []int32
	section := ""
	for i, p := range d.Passages {
		if i == 0 || p.Section != section {
			section = p.Section
			heading = b.heading(heading[:0], d.Title, section)
		}
		b.words = b.read(append(b.words[:0], heading...), p.Text)
		b.count(int32(len(s.lengths)))
		s.passage(uint32(len(b.words)), b.hash(d.Title, p), unit(p.Vector))
	}
}

// heading are the terms of a title and a section, which often repeat each other.
func (b *builder) heading(places []int32, title, section string) []int32 {
	places = b.read(b.read(places, title), section)
	slices.Sort(places)
	once := slices.Compact(places)
	places = once
	for range headingCount - 1 {
		places = append(places, once...)
	}
	return places
}

// read appends the places of a text's terms.
func (b *builder) read(places []int32, text string) []int32 {
	for word := range words(text) {
		n := b.analyzer.number(word)
		if n == stopword {
			continue
		}
		place := &b.analyzer.places[n]
		if *place == 0 {
			b.used = append(b.used, n)
			b.lists = append(b.lists, list{})
			*place = int32(len(b.used))
		}
		places = append(places, *place)
	}
	return places
}

// count adds the terms at hand to their lists.
func (b *builder) count(passage int32) {
	if more := len(b.lists) + 1 - len(b.times); more > 0 {
		b.times = append(b.times, make([]uint32, more)...)
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
// same in every process, and nobody can make two texts that have it in common. A
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
