//go:build !race

// Everything here happens in one goroutine, so scripts/test runs it without the race detector, which finds nothing in
// it and takes twenty times as long.

package rag

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/ragtest"
	"mneme/internal/testtier"
)

// No trick gets through, and the cuts between the pieces of a stream make no
// difference.
func TestTricks(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(ragtest.Tricks), 30)
	s := hostile()
	for i, trick := range ragtest.Tricks {
		t.Run(trick.Name, func(t *testing.T) {
			whole, _ := pieces(s, trick.Text)
			ragtest.RequireHarmless(t, trick, whole)
			for at := range trick.Text {
				if at%2 != i%2 { // the other cuts are made byte by byte below
					continue
				}
				got, _ := pieces(s, trick.Text[:at], trick.Text[at:])
				require.Equal(t, whole, got, "cut at %d", at)
			}
			var bytes []string
			for i := range len(trick.Text) {
				bytes = append(bytes, trick.Text[i:i+1])
			}
			got, _ := pieces(s, bytes...)
			require.Equal(t, whole, got, "byte by byte")
		})
	}
}

// A text that is made to be hard to read is checked as any other, in a time that grows
// as its length.
func TestTextsThatAreHardToReadEnd(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const size = 4 << 10
	many := func(format string, count int) string {
		var b strings.Builder
		for i := range count {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return b.String()
	}
	texts := []string{many("w# [#]. ", size/10), many("He said \"a# b# c# d# e\". ", size/10), many("`a` [9] ", size/10),
		strings.Repeat("[", size/4) + "1" + strings.Repeat("]", size/4), "[1" + strings.Repeat(",1", size/2) + "]"}
	for _, s := range []string{"[", "]", "!", "`", "` ", "a`!b", "<", "<a ", "&", "&amp;", "\\", "\\[", "\\u003c", "%",
		"%3C", "![", "![a](", "![r]\n", "[a]: x\n",
		"[9", "[1]", "word ", "word 12 ", "Ж", "\"", "“", "«", ".", "a.", "https:", "a://", "\n", " ", "|", "> ", "- ", "~",
		"1", "1 000", "status: x\n", "\u200b"} {
		texts = append(texts, strings.Repeat(s, size/len(s)))
	}
	for _, text := range texts {
		for _, s := range []*scope{hostile(), {}} {
			var parts []string
			for rest := text; rest != ""; {
				n := min(1000, len(rest))
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			got, _ := pieces(s, parts...)
			require.NotEmpty(t, got, text[:20])
		}
	}
}

// For any text, and for any way in which it comes, the same is shown, and neither what
// would be loaded nor a foreign address is in it.
func TestEveryTextAndEverySplit(t *testing.T) {
	t.Parallel()
	parts := []string{"!", "[", "]", "(", ")", "<", ">", "img", " src=", "svg", "x", "evil.example/p?d=1", "https://",
		"//", "`", "``", "```", "\n", "\n\n",
		" ", "  ", "- ", "> ", "&lt;", "&#33;", "&", "amp;", "\\", "\\u003c", "%3C", "\u200b", "\u00ad", "！", "＜", "‹", "[1]",
		"[9]", "[1-3]", "1", "9", ",", ".", ". ",
		"status: x", "\"", "'", "=", "style=", "a", "word ", "Ж", "javascript:", "www.", "[r]: ", "![r]", "~~~", "    ", "|",
		":", "\n```\n", "\n```html\n", "$$", "div ", "script", "<!--", "-->", "\r", "$", "/", "&ltimg", "‼", "![a](b)",
		"<img src=x>"}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.SampledFrom(parts), 1, 30).Draw(t, "parts")
		text := strings.Join(list, "")
		for name, s := range map[string]*scope{"passages": hostile(), "none": {}} {
			whole, _ := pieces(s, text)
			split, _ := pieces(s, list...)
			if whole != split {
				t.Fatalf("%s: %q became %q in one piece and %q in several", name, text, whole, split)
			}
			var single []string
			for rest := text; rest != ""; {
				_, size := utf8.DecodeRuneInString(rest)
				single, rest = append(single, rest[:size]), rest[size:]
			}
			if got, _ := pieces(s, single...); got != whole {
				t.Fatalf("%s: %q became %q in one piece and %q by characters", name, text, whole, got)
			}
			if found := loads(t, whole); found != "" {
				t.Fatalf("%s: %q of %q is left of %q", name, found, whole, text)
			}
			if found := anyAddress.FindString(whole); name == "passages" && found != "" {
				t.Fatalf("%s: %q of %q is left of %q", name, found, whole, text)
			}
		}
	})
}
