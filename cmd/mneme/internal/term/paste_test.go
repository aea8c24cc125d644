package term

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

type closing struct{ bytes.Buffer }

func (*closing) Close() error { return nil }

// keys gives what the line editor sees of typed keys, in whatever pieces they come.
func keys(t *testing.T, p *pastes, typed string) string {
	t.Helper()
	var whole, pieces closing
	p.filter(&whole, strings.NewReader(typed))
	(&pastes{}).filter(&pieces, iotest.OneByteReader(strings.NewReader(typed)))
	require.Equal(t, whole.String(), pieces.String())
	return whole.String()
}

func TestAPasteIsOnePartOfALine(t *testing.T) {
	for typed, want := range map[string]string{
		"plain ж\r\x1b[A\x1b[20~\x03":                  "plain ж\r\x1b[A\x1b[20~\x03",
		"a\x1b[200~one\r\ntwo\rthree\n\x1b[201~b\r":    "aone␤two␤threeb\r",
		"\x1b[200~if x {\n\ty()\n}\x1b[201~":           "if x {␤␉y()␤}",
		"\x1b[200~\x1b[31m\x03\x04\u202e\xff\x1b[201~": "[31m",
		"\x1b[200~1\x1b[201~\x1b[200~2\x1b[201~":       "12",
		"\x1b[200~never ended":                         "",
	} {
		require.Equal(t, want, keys(t, &pastes{}, typed), "%q", typed)
	}
}

func TestALongPasteHasAName(t *testing.T) {
	p := &pastes{}
	text := strings.Repeat("строка\n", 50_000) + "end"
	line := keys(t, p, "see \x1b[200~"+strings.ReplaceAll(text, "\n", "\r")+"\x1b[201~ ok")
	require.Equal(t, "see [pasted text 1: 350003 characters] ok", line)
	require.Equal(t, "see "+text+" ok", p.expand(line))
	require.Equal(t, line, p.collapse(p.expand(line)))
	require.Equal(t, "a\nb\tc", p.expand("a␤b␉c"))
	require.Equal(t, "a␤b␉c", p.collapse("a\nb\tc"))
}

func TestPastesAreBounded(t *testing.T) {
	p := &pastes{}
	endless := io.LimitReader(iotest.DataErrReader(zeros{}), 2*maxPaste)
	var out closing
	p.filter(&out, io.MultiReader(strings.NewReader(pasteBegin), endless, strings.NewReader(pasteEnd+"x")))
	require.Equal(t, "[pasted text 1: 4194304 characters]x", out.String())
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

func TestTheHistoryIsTheOwnersAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "mneme", "chat_history")
	h := &lineHistory{path}
	require.Empty(t, h.load())
	for i := range 2*maxHistory + 5 {
		h.add(strings.Repeat("x", i%7) + "ж")
	}
	h.add(strings.Repeat("x", 5000))
	require.Len(t, h.load(), maxHistory)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, maxHistory, bytes.Count(raw, []byte("\n")), "an old file is shortened")
	(&lineHistory{}).add("nowhere")
	require.Empty(t, (&lineHistory{}).load())
}

func TestStateFile(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	require.Equal(t, "/state/mneme/f", StateFile("f"))
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/home/u")
	require.Equal(t, "/home/u/.local/state/mneme/f", StateFile("f"))
}
