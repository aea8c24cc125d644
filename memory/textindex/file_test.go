package textindex

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// What was written is read as the same collection: it ranks alike, and changes as the
// one it was written from.
func TestACollectionIsReadAsItWasWritten(t *testing.T) {
	testtier.Slow(t)
	c := NewCollection()
	var prepared []*Prepared
	for i := range 20 {
		var some []Document
		for n := range 50 {
			some = append(some, Document{ID: fmt.Sprintf("d%d-%d", i, n), Title: fmt.Sprintf("Title %d", n), Passages: []Passage{
				{Section: "A > B", Text: fmt.Sprintf("Fruit%d and number%d. And more of it.", n%7, i)},
				{Text: fmt.Sprintf("second of %d", n%3)},
			}})
		}
		prepared = append(prepared, c.Prepare(some))
	}
	c.Apply(Change{Prepared: prepared, Version: 7})
	c.Delete("d3-3", "d4-4")
	c.Put(Document{ID: "d5-5", Passages: []Passage{{Text: "replaced by a pear"}}})
	one := NewCollection() // the same, put as it comes
	for i := range 20 {
		for n := range 50 {
			one.Put(Document{ID: fmt.Sprintf("d%d-%d", i, n), Title: fmt.Sprintf("Title %d", n), Passages: []Passage{
				{Section: "A > B", Text: fmt.Sprintf("Fruit%d and number%d. And more of it.", n%7, i)},
				{Text: fmt.Sprintf("second of %d", n%3)},
			}})
		}
	}
	one.Delete("d3-3", "d4-4")
	one.Put(Document{ID: "d5-5", Passages: []Passage{{Text: "replaced by a pear"}}})

	var b bytes.Buffer
	require.NoError(t, c.Freeze().Write(&b))
	whole := b.Bytes()
	read, err := Read(bytes.NewReader(whole), int64(len(whole)))
	require.NoError(t, err)
	same := func(d *Collection) {
		t.Helper()
		for _, q := range []string{"fruit3 number7", "second", "pear", "title 12 more", "absent"} {
			want, got := c.Search(Query{Text: q, Limit: 40}), d.Search(Query{Text: q, Limit: 40})
			require.Equal(t, want.Hits, got.Hits, q)
			require.Equal(t, want.Strength, got.Strength)
		}
	}
	same(read)
	same(one)
	require.Equal(t, c.Snapshot().Version(), read.Snapshot().Version())
	require.Equal(t, c.Search(Query{Text: "pear"}).Threshold, read.Search(Query{Text: "pear"}).Threshold)
	documents, passages := read.Snapshot().Len()
	require.Equal(t, []int{998, 1995}, []int{documents, passages})
	for _, d := range []*Collection{c, read} {
		d.Delete("d5-5", "d6-6", "d3-3")
		d.Put(Document{ID: "d7-7", Passages: []Passage{{Text: "a pear again"}}})
	}
	same(read)

	for cut := 0; cut < len(whole); cut += 997 {
		_, err := Read(bytes.NewReader(whole[:cut]), int64(len(whole)))
		require.Error(t, err)
	}
	for at := 0; at < len(whole); at += 61 { // what the checksum would have told must at least not crash
		broken := bytes.Clone(whole)
		broken[at] ^= 0xff
		_, _ = Read(bytes.NewReader(broken), int64(len(broken)))
	}
}
