package loader

import (
	"encoding/csv"
	"errors"
	"io"
	"path"
	"strings"
	"unicode"
)

// readCSV reads rows as blocks of "column: value" lines. The separator is found
// out; the first row names the columns if it looks like names.
func readCSV(b *builder, f file) error {
	text, err := decode(f.data, f.charset())
	if err != nil {
		return err
	}
	rest, comma := separator(text)
	if comma == 0 {
		comma = ','
		if strings.ToLower(path.Ext(f.name)) == ".tsv" || strings.Contains(f.contentType, "tab-separated") {
			comma = '\t'
		}
	}
	r := csv.NewReader(watched{b.ctx, strings.NewReader(rest)})
	r.Comma = comma
	r.LazyQuotes = true
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	rows := rowWriter{b: b}
	for b.room(0) {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			rows.end()
			return nil
		}
		if err != nil {
			return damaged(labelCSV, err)
		}
		rows.add(sheetRow{values: record})
	}
	return nil
}

// separator finds the character between the fields: the one that the first lines
// have the same number of, the most first. A line "sep=;" before the header says
// it. It is 0 if there is none.
func separator(text string) (rest string, comma rune) {
	first, rest, _ := strings.Cut(text, "\n")
	if sep, ok := strings.CutPrefix(strings.TrimRight(first, " "), "sep="); ok && len(sep) == 1 &&
		strings.Contains(",;|\t", sep) {
		return rest, rune(sep[0])
	}
	best := 0
	for _, candidate := range []rune{',', ';', '\t', '|'} {
		if score := separates(text, candidate); score > best {
			best, comma = score, candidate
		}
	}
	return text, comma
}

// separates scores a separator by the first lines: the number of fields, and
// many times that if all lines have the same.
func separates(text string, comma rune) int {
	const lines, longest = 20, 64 << 10
	if len(text) > longest {
		text = text[:longest]
	}
	var counts []int
	count, quoted, blank := 0, false, true
	for _, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == comma:
			count++
		case r == '\n' && !blank:
			counts = append(counts, count)
			count, blank = 0, true
		}
		blank = blank && unicode.IsSpace(r)
		if len(counts) == lines {
			break
		}
	}
	if len(counts) == 0 || count > 0 && len(counts) < lines && len(text) < longest {
		counts = append(counts, count)
	}
	switch usual, n := mostFrequent(counts); {
	case n == len(counts):
		return usual * 100
	case n*2 > len(counts): // a title stands above
		return usual * 10
	}
	return counts[0]
}
