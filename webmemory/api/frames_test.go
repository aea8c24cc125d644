package api

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	f := newFrames(strings.NewReader("\n: beat\n\nid: 1\nevent: x\ndata: one\r\n\r\ndata:two\ndata:  three\n\nretry: 5\n\ndata: cut off"))
	for _, want := range []string{"one", "two\n three"} {
		data, err := f.next()
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	_, err := f.next()
	require.ErrorIs(t, err, io.EOF)
}

func TestFramesAreBounded(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat("x", maxFrame+(64<<10))))
	_, err := newFrames(endless).next()
	require.ErrorContains(t, err, "longer than")
	_, err = newFrames(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 20))).next()
	require.ErrorContains(t, err, "larger than")
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("id: 1\ndata: x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames := newFrames(bytes.NewReader(b))
		total := 0
		for {
			data, err := frames.next()
			if err != nil {
				return
			}
			total += len(data)
			require.LessOrEqual(t, total, len(b))
		}
	})
}
