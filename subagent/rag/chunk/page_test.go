package chunk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A passage is on one page, also where several pages would fit.
func TestPassagesOfPages(t *testing.T) {
	d := Document{Text: "first page\n\nsecond page\n\nlast"}
	d.Sections = []Section{
		{Span: Span{0, 10}, Path: []string{"page 1"}, Page: 1},
		{Span: Span{12, 23}, Body: 12, Path: []string{"page 2"}, Page: 2},
		{Span: Span{25, 29}, Body: 25, Path: []string{"page 4"}, Page: 4},
	}
	type passage struct {
		text, section string
		page          int
	}
	var got []passage
	for _, p := range Split(d, Options{}) {
		got = append(got, passage{p.Text, p.Section, p.Page})
	}
	require.Equal(t, []passage{{"first page", "page 1", 1}, {"second page", "page 2", 2}, {"last", "page 4", 4}}, got)
	require.Zero(t, Split(Document{Text: "no pages"}, Options{})[0].Page)
}
