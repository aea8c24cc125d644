package rag

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// texts lists passages as "section: text".
func texts(passages []passage) []string {
	var list []string
	for _, p := range passages {
		list = append(list, p.section+": "+p.text)
	}
	return list
}

func TestSplitMarkdown(t *testing.T) {
	passages := split("docs/guide.md", strings.Join([]string{
		"Before all.", "",
		"# The Guide #", "",
		"First paragraph,", "second line.", "", "Second paragraph.", "",
		"## Install", "Run it.", "",
		"```sh", "# not a heading", "", "make install", "```", "",
		"### Linux", "Use apt.", "",
		"## Use", "Ask.", "#hashtag is text",
		"## Empty",
	}, "\n"), true)
	require.Equal(t, []string{
		": Before all.",
		"The Guide: First paragraph,\nsecond line.\n\nSecond paragraph.",
		"The Guide > Install: Run it.\n\n```sh\n# not a heading\n\nmake install\n```",
		"The Guide > Install > Linux: Use apt.",
		"The Guide > Use: Ask.\n#hashtag is text",
	}, texts(passages))
	require.Equal(t, "docs/guide.md#1", passages[0].id)
	require.Equal(t, "docs/guide.md#5", passages[4].id)
	for _, p := range passages {
		require.Equal(t, "The Guide", p.title)
		require.Equal(t, "docs/guide.md", p.doc)
	}
}

func TestSplitText(t *testing.T) {
	passages := split("holiday_rules-2026.txt", "# one\n\ntwo", false)
	require.Equal(t, []string{": # one\n\ntwo"}, texts(passages))
	require.Equal(t, "holiday rules 2026", passages[0].title)
	require.Empty(t, split("empty.txt", " \n\n\t\n", false))
}

func TestSplitLongParagraphs(t *testing.T) {
	sentences := strings.Repeat("Это одно предложение о погоде в горах. ", 60)
	passages := split("a.txt", sentences, false)
	require.Len(t, passages, 3)
	for _, p := range passages {
		require.LessOrEqual(t, utf8.RuneCountInString(p.text), maxPassage)
		require.True(t, strings.HasSuffix(p.text, "горах."), "ends with a sentence: %q", p.text)
	}
	word := split("a.txt", strings.Repeat("x", 2*maxPassage+1), false)
	require.Len(t, word, 3, "a word without end is cut inside")
	words := split("a.txt", strings.Repeat("abc ", maxPassage), false)
	for _, p := range words {
		require.NotContains(t, strings.ReplaceAll(p.text, "abc", ""), "c", "cut between words")
	}
}

// Nothing but white space is lost or reordered, and no passage is too long.
func TestSplitKeepsTheText(t *testing.T) {
	pieces := []string{"word ", "слово. ", "\n", "\n\n", "# ", "```\n", "x", "😀", strings.Repeat("y", 500), "\t"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(t, "pieces"), "")
		var all strings.Builder
		for _, p := range split("a.txt", text, false) {
			require.NotEmpty(t, p.text)
			require.LessOrEqual(t, utf8.RuneCountInString(p.text), maxPassage)
			all.WriteString(p.text)
		}
		require.Equal(t, strings.Join(strings.Fields(text), ""), strings.Join(strings.Fields(all.String()), ""))
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("# A\n\ntext\n## B ##\n```\n# c\n```", true)
	f.Add("~~~\nopen fence", true)
	f.Add("a\u202eb\x1b[31m\r\n", false)
	f.Fuzz(func(t *testing.T, text string, markdown bool) {
		if !utf8.ValidString(text) {
			return // refused before
		}
		for _, p := range split("a.md", clean(text), markdown) {
			require.NotEmpty(t, strings.TrimSpace(p.text))
			require.LessOrEqual(t, utf8.RuneCountInString(p.text), maxPassage)
			require.False(t, strings.ContainsFunc(p.text+p.section+p.title, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t'
			}))
		}
	})
}

func TestClean(t *testing.T) {
	require.Equal(t, "a\nb\tc", clean("\ufeffa\r\nb\tc\x00\x1b\u202e\u200b\u00ad"))
	require.Equal(t, "👨\u200d👩", clean("👨\u200d👩"))
	require.Equal(t, "a b\ufffd", cleanName("a\nb\xff\x07"))
}
