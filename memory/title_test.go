package memory_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

func TestTitle(t *testing.T) {
	word := strings.Repeat("ё", 79)
	for text, want := range map[string]string{
		"":                "",
		" \n\t ":          "",
		"Hello":           "Hello",
		"fix __init__.py": "fix __init__.py",
		"What is this?\n\n[image: image/png, 70 B]\n[image]": "What is this?",
		"[image: image/png, 70 B]":                           "[image: image/png, 70 B]",
		"  What\r\n is\x00 my\u0085name ":                    "What is my name",
		"\x1b[31mred":                                        "[31mred",
		word + "ж":                                           word + "ж",
		word + "жж":                                          word + "…",
		word + " жж":                                         word + "…",
		strings.Repeat("seven c ", 20):                       strings.TrimSpace(strings.Repeat("seven c ", 10)) + "…",
		"a " + strings.Repeat("b", 100):                      "a " + strings.Repeat("b", 77) + "…",
		strings.Repeat("x", 80) + "  \n ":                    strings.Repeat("x", 80),
	} {
		got := memory.Title(text)
		require.Equal(t, want, got, "%q", text)
		require.LessOrEqual(t, utf8.RuneCountInString(got), 80)
	}
}
