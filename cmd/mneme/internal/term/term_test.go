package term

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestCleanKeepsTextAndDropsControl(t *testing.T) {
	for in, want := range map[string]string{
		"Привет, 世界 👩‍🚀\n\tok":        "Привет, 世界 👩‍🚀\n\tok",
		"\x1b[31mred\x1b]0;title\x07": "[31mred]0;title",
		"over\rwritten\b\x7f":         "overwritten",
		"c1\u009b31m":                 "c131m",
		"abc\u202edef\u2066":          "abcdef",
		"broken\xff":                  "broken\uFFFD",
	} {
		require.Equal(t, want, Clean(in))
	}
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a b c", OneLine(" a\n\tb  c\x1b ", 10))
	require.Equal(t, "при…", OneLine("привет", 3))
	require.Equal(t, "привет", OneLine("привет", 6))
}

func TestPlainStyleAddsNothing(t *testing.T) {
	require.Equal(t, "x", Style{}.Dim("x"))
	require.Equal(t, "\x1b[2mx\x1b[0m", InColour().Dim("x"))
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[2Jtext")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Clean(s) {
			require.False(t, unicode.IsControl(r) && r != '\n' && r != '\t')
		}
	})
}

func TestUserFile(t *testing.T) {
	environ := map[string]string{"XDG_STATE_HOME": "/state"}
	file := func() string {
		return UserFile(func(name string) string { return environ[name] }, "XDG_STATE_HOME", ".local/state", "f")
	}
	require.Equal(t, "/state/mneme/f", file())
	environ["XDG_STATE_HOME"] = "relative"
	require.Empty(t, file(), "there is no home")
	environ["HOME"] = "/home/u"
	require.Equal(t, "/home/u/.local/state/mneme/f", file())
}
