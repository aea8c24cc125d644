package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However an event is written, what is read of it is what JSON says.
func TestReadAText(t *testing.T) {
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

		var e Event
		wrong := Unmarshal(data, &e)
		read, err := ReadEvent(data)
		if wrong != nil || err != nil {
			require.True(t, wrong != nil, "%s", data)
			return
		}
		require.Equal(t, e.Delta.Type, read.Delta.Type)
		// Of two members of one name the one counts the first and the other the last.
		if e.Delta.Type == kind+"_delta" && name == kind && strings.Count(string(data), `":"`) == 3 {
			require.Equal(t, e.Index, read.Index)
			require.Equal(t, string(e.Delta.Inner()), string(Inner(stringOf([]byte(`"`+string(read.Delta.Inner())+`"`)))))
		}
	})
}

func TestReadingATextTakesNoMemory(t *testing.T) {
	data := []byte(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello,\n\"you\" ж"}}  `)
	e, err := ReadEvent(data)
	require.NoError(t, err)
	require.Equal(t, Event{Type: BlockDelta, Index: 1, Data: data,
		Delta: Delta{Type: TextDelta, Raw: []byte(`Hello,\n\"you\" ж`)}}, e)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ReadEvent(data) }))
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
