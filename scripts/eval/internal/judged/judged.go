// Package judged is what sets of documents and of conversations have in common: files of lines,
// and BM25 as textbooks have it (Okapi, Robertson and Zaragoza 2009), to compare with.
package judged

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// maxLine bounds a line of a set's files.
const maxLine = 64 << 20

// Lines calls do with the lines of a file that are not blank. Errors name the file and the line.
func Lines(path string, do func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	number := 1
	for ; lines.Scan(); number++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		if err := do(lines.Bytes()); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", path, number, err)
	}
	return nil
}

// Escape writes a path as a pattern that matches nothing else.
func Escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// BM25 ranks texts by the terms of a question, each of which counts as often as it is there.
type BM25 struct {
	terms   func(text string) []string
	lengths []float64
	average float64
	holders map[string][]holder // by term
}

// holder is a text that has a term.
type holder struct {
	text  int
	times float64
}

// NewBM25 takes in texts, each as its terms.
func NewBM25(texts []string, terms func(text string) []string) *BM25 {
	b := &BM25{terms: terms, holders: map[string][]holder{}}
	for i, text := range texts {
		tokens := terms(text)
		for _, t := range tokens {
			list := b.holders[t]
			if n := len(list); n > 0 && list[n-1].text == i {
				list[n-1].times++
			} else {
				b.holders[t] = append(list, holder{i, 1})
			}
		}
		b.lengths = append(b.lengths, float64(len(tokens)))
		b.average += float64(len(tokens)) / float64(len(texts))
	}
	return b
}

// Rank gives the texts that share a term with the question by their places, best first. ties
// orders those that are equally good.
func (b *BM25) Rank(question string, ties func(i, j int) int) []int {
	const k1, length = 1.2, 0.75 // the usual parameters, the second one often called b
	scores := map[int]float64{}
	for _, t := range b.terms(question) {
		holders := float64(len(b.holders[t]))
		idf := math.Log(1 + (float64(len(b.lengths))-holders+0.5)/(holders+0.5))
		for _, h := range b.holders[t] {
			norm := 1 - length + length*b.lengths[h.text]/b.average
			scores[h.text] += idf * h.times * (k1 + 1) / (h.times + k1*norm)
		}
	}
	var order []int
	for i := range scores {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(scores[j], scores[i]), ties(i, j)) })
	return order
}
