package wire

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However an event is written, what is read of it is what JSON says.
func TestReadTextPiece(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		"a", " ", "ж", "\\n", "\\\"", "\\\\", "\\/", "\\u0041", "\\ud83d", "\\", "\"", "\x00", "\n", "\x7f", "\xff", "\u2028",
		"}", `"}}`, `","text":"`,
	})
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"text", "thinking", "signature"}).Draw(t, "kind")
		name := rapid.SampledFrom([]string{kind, "text"}).Draw(t, "name")
		text := ""
		for _, p := range rapid.SliceOfN(pieces, 0, 6).Draw(t, "text") {
			text += p
		}
		index := rapid.SampledFrom([]string{"0", "7", "12", "1.5", "1e0", "-1", ""}).Draw(t, "index")
		end := rapid.SampledFrom([]string{"", "   ", "}", "\n", ` "`}).Draw(t, "end")
		data := []byte(fmt.Sprintf(`{"type":"content_block_delta","index":%s,"delta":{"type":"%s_delta","%s":"%s"}}%s`, index,
			kind, name, text, end))

		d, ok := ReadTextPiece(data)
		if !ok {
			return
		}
		var e Event
		require.NoError(t, Unmarshal(data, &e))
		require.Equal(t, e.Index, d.Index)
		require.Equal(t, e.Delta.Type == ThinkingDelta, d.Thinking)
		require.Equal(t, string(Quote(e.Delta.Text+e.Delta.Thinking)), `"`+string(d.Text)+`"`)
	})
}

func TestReadTextPieceTakesNoMemory(t *testing.T) {
	data := []byte(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello,\n\"you\" ж"}}  `)
	d, ok := ReadTextPiece(data)
	require.True(t, ok)
	require.Equal(t, TextPiece{Index: 1, Text: []byte(`Hello,\n\"you\" ж`)}, d)
	require.Zero(t, testing.AllocsPerRun(100, func() { ReadTextPiece(data) }))
}

func TestEventType(t *testing.T) {
	for data, want := range map[string]string{
		`{"type":"message_stop"}`: MessageStop, `{ "type": "error", "error": {}}`: ErrorEvent,
		`{"index":0,"type":"content_block_stop"}`: BlockStop,
		`{"type":"message_st\u006fp"}`:            MessageStop, `{"type":"new"}`: "new", `{"type":7}`: "", `{"type":"`: "",
		`{"type":""}`: "", "": "", "x": "",
		`{"delta":{"type":"message_stop"}}`: "",
	} {
		require.Equal(t, want, EventType([]byte(data)), data)
	}
}
