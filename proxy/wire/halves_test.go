package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// An emoji may come in two events, cut as UTF-16 or as UTF-8: github.com/ggml-org/llama.cpp/issues/1798 and the like.
func TestHalvesOfACharacterAreJoined(t *testing.T) {
	const grin = "\U0001F600"
	cases := map[string][]string{
		"escapes":              {`{"text":"a\ud83d"}`, `{"text":"\ude00b"}`},
		"upper case":           {`{"text":"a\uD83D"}`, `{"text":"\uDE00b"}`},
		"an event between":     {`{"text":"a\ud83d"}`, `{"type":"ping"}`, `{"text":"\ude00b"}`},
		"whole":                {`{"text":"a\ud83d\ude00"}`, `{"text":"b"}`},
		"a half of its own":    {`{"text":"a"}`, `{"text":"\ud83d"}`, `{"text":"\ude00"}`, `{"text":"b"}`},
		"other members":        {`{"id":"x","text":"a\ud83d","n":1}`, `{"id":"x","text":"\ude00b","n":2}`},
		"an escaped backslash": {`{"text":"a` + grin + `b"}`, `{"other":"\\ud83d"}`},
	}
	for cut := 1; cut < len(grin); cut++ {
		cases[fmt.Sprint("bytes cut at ", cut)] = []string{`{"text":"a` + grin[:cut] + `"}`, `{"text":"` + grin[cut:] + `b"}`}
	}
	cases["a large event"] = []string{`{"text":"a\ud83d"}`, `{"text":"\ude00b","rest":"` + strings.Repeat("\xe9x", 2<<20) + `"}`}
	for name, events := range cases {
		t.Run(name, func(t *testing.T) {
			f := NewFrameReader(strings.NewReader("data: " + strings.Join(events, "\n\ndata: ") + "\n\n"))
			defer f.Release()
			text, count := "", 0
			for ; ; count++ {
				frame, err := f.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				require.True(t, gjson.ValidBytes(frame.Data), string(frame.Data))
				require.Equal(t, "data: "+string(frame.Data)+"\n\n", string(frame.Raw))
				text += gjson.GetBytes(frame.Data, "text").Str
			}
			require.Equal(t, len(events), count)
			require.Equal(t, "a"+grin+"b", text)
		})
	}
}
