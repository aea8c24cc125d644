// Package textindex finds the passages of documents that match a query's words best. It knows neither files nor
// models: texts go in, ranks come out. The ranking is BM25 over terms: folded words without stopwords, English
// and Russian ones by their stems, others by their beginnings, too, and scripts without spaces by pairs of characters
// (see Terms). Feedback, nearest neighbours of vectors that others made, and fusion of rankings are options on top.
//
// It owns Collections in memory; the texts themselves are not kept, but for titles and first sentences of a small
// sample. Goroutines live as long as the call that needs them. A search never waits for a writer, and what is not in
// a collection, or no longer, never shows in a score.
package textindex

// A Collection is the documents that are searched together. Its statistics are
// those of its own live passages only, so that what is not in it, or no longer,
// leaves no trace in a score. Every change makes a new Snapshot, in one step;
// searches run on a Snapshot, so they never wait for a writer and see a document
// either as it was or as it is.
//
// A query may come with the conversation before it; the words of that then count a little.

import (
	"cmp"
	"slices"
)

// Document is a text to be found, cut into passages.
type Document struct {
	ID       string
	Title    string // counts in every passage
	Passages []Passage
}

// Passage is a part of a document that is ranked and shown by itself. It is known
// by its document and its position there.
type Passage struct {
	Section string // the headings above it; they count as the title does
	Text    string
	// Vector is the passage as an embedding model places it, for Nearest; nil if
	// there is none. Its length is that of the model, its norm does not matter.
	Vector []float32
	// Terms, if they are not nil, are those of PassageTerms, which are not looked for in the headings and Text again. Text
	// then only tells passages of equal texts.
	Terms []string
}

// Hit is a passage that matches a query.
type Hit struct {
	Document string  // id
	Passage  int     // position in the document, from 0
	Score    float64 // more is better; only hits of one list compare

	text uint64 // equal for equal texts
}

// compare orders hits: the better first, and among equals the smaller id.
func (h Hit) compare(other Hit) int {
	return cmp.Or(cmp.Compare(other.Score, h.Score), cmp.Compare(h.Document, other.Document),
		cmp.Compare(h.Passage, other.Passage))
}

func (h Hit) textHash() uint64 { return h.text }

// distinct keeps the first of the hits with one text.
func distinct[H interface{ textHash() uint64 }](hits []H) []H {
	unique := map[uint64]bool{}
	return slices.DeleteFunc(hits, func(h H) bool {
		duplicate := unique[h.textHash()]
		unique[h.textHash()] = true
		return duplicate
	})
}
