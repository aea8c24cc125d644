package loader

import (
	"cmp"
	"strconv"
	"time"
)

// Limits bound what is read and what reading costs. A zero field means its
// default. What exceeds a limit is refused, never cut off: half a document would
// answer wrongly.
type Limits struct {
	// Bytes is the size of a file, and of one line of JSONL that is read as a
	// stream of documents; 50 MB.
	Bytes int64
	// Text is the size in bytes of what is extracted, for all documents of a file
	// together unless they are streamed; 50 MB.
	Text int
	// Unpacked is how many bytes a compressed file may claim to hold, and how many
	// are unpacked from it; 100 MB.
	Unpacked int64
	// Pages is the number of pages of a PDF; 5,000.
	Pages int
	// Rows is the number of rows of a CSV and of documents in a JSON file; 500,000.
	Rows int
	// Nesting is how deep JSON values and elements of XML may lie in each other;
	// 500. HTML that is deeper loses its innermost tags.
	Nesting int
	// Time is how long one call of Load may take, beside what an extractor is given and
	// the wait for the engine of PDFs; 2 min. A negative one is none.
	Time time.Duration
}

// Default are the limits that hold for fields that are zero.
func Default() Limits {
	return Limits{
		Bytes:    50 << 20,
		Text:     50 << 20,
		Unpacked: 100 << 20,
		Pages:    5_000,
		Rows:     500_000,
		Nesting:  500,
		Time:     2 * time.Minute,
	}
}

func (l Limits) orDefault() Limits {
	d := Default()
	return Limits{
		Bytes:    cmp.Or(max(l.Bytes, 0), d.Bytes),
		Text:     cmp.Or(max(l.Text, 0), d.Text),
		Unpacked: cmp.Or(max(l.Unpacked, 0), d.Unpacked),
		Pages:    cmp.Or(max(l.Pages, 0), d.Pages),
		Rows:     cmp.Or(max(l.Rows, 0), d.Rows),
		Nesting:  cmp.Or(max(l.Nesting, 0), d.Nesting),
		Time:     cmp.Or(l.Time, d.Time),
	}
}

// size writes a number of bytes for people.
func size(n int64) string {
	const kb, mb = 1 << 10, 1 << 20
	switch {
	case n >= mb && n%mb == 0:
		return strconv.FormatInt(n/mb, 10) + " MB"
	case n >= kb && n%kb == 0:
		return strconv.FormatInt(n/kb, 10) + " KB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
