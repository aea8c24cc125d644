package textindex

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTerms(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"English stems", "Running horses jumped", "run hors jump"},
		{"Russian stems", "Собаки бежали по улицам", "собак бежа улиц"},
		{"ё is е", "Ёлка ёлки", "елк елк"},
		{"decomposed letters", "мои\u0306 зеленыи\u0306", "зелен"},
		{"numbers and mixed words", "GPT-4o costs 20$ in 2026", "gpt 4o cost 20 2026"},
		{"stopwords of both languages", "what is the most что это о", ""},
		{"question words in their forms", "whose, which, how; каких, которыми, кем, чьих, откуда", ""},
		{"apostrophes", "don't 'quoted' dog’s you’ve", "quot dog"},
		{"compatibility forms", "ﬁle №５", "file no5"},
		{"other scripts", "東京 ποταμός", "東京 ποταμός"},
		{"nothing", " — … !", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(Terms(c.text), " "))
		})
	}
	long := strings.Repeat("x", 1000)
	require.Equal(t, []string{long}, Terms(long))
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"don't stop", "ёлки-палки", "a''b", "’", "ss's", "y", "ь", "\xff", "İstanbul"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, term := range Terms(text) {
			require.NotEmpty(t, term)
		}
	})
}
