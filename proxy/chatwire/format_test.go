package chatwire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// An answer by a call of the tool is the same text, streamed in any pieces or whole.
func TestFormatIsOneForAllWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		answers := 0
		for i := range r.Content {
			if b := &r.Content[i]; b.Type == wire.ToolUseBlock && rapid.Bool().Draw(t, "answers") {
				b.Name = "answer"
				answers++
			}
		}
		body, err := wire.Marshal(r)
		require.NoError(t, err)
		var want wire.Response
		require.NoError(t, wire.Unmarshal(chatwire.NewFormat("answer").Body(body), &want))

		f, together := chatwire.NewFormat("answer"), wire.Assembler{}
		for _, e := range shred(t, r) {
			read, err := wire.ReadEvent([]byte(e))
			require.NoError(t, err)
			for _, event := range f.Event(nil, read) {
				require.NoError(t, together.Add(&event), "blocks are numbered without a gap")
			}
		}
		gotJSON, complete := together.JSON()
		require.True(t, complete)
		wantJSON, err := wire.Marshal(want)
		require.NoError(t, err)
		var got wire.Response
		require.NoError(t, wire.Unmarshal(gotJSON, &got))
		require.JSONEq(t, string(wantJSON), string(gotJSON))

		texts := 0
		for _, b := range got.Content {
			require.NotEqual(t, "answer", b.Name)
			if b.Type == wire.TextBlock && answers > 0 {
				texts++
			}
		}
		require.LessOrEqual(t, texts, 2)
		if calls := strings.Count(string(body), `"tool_use","id"`); answers == calls && calls > 0 {
			require.Equal(t, 1, texts)
			require.True(t, gjson.Valid(got.Content[len(got.Content)-1].Text))
			require.EqualValues(t, wire.StopEndTurn, got.StopReason)
		}
	})
}

func TestAnAnswerWithoutPieces(t *testing.T) {
	for input, want := range map[string]string{`{}`: "{}", `{"a":1}`: `{"a":1}`} {
		f := chatwire.NewFormat("answer")
		read := func(data string) wire.Event {
			e, err := wire.ReadEvent([]byte(data))
			require.NoError(t, err)
			return e
		}
		events := f.Event(nil, read(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t",`+
			`"name":"answer","input":`+input+`}}`))
		events = f.Event(events, read(`{"type":"content_block_stop","index":0}`))
		require.Len(t, events, 3)
		require.Equal(t, want, gjson.GetBytes(events[1].JSON(), "delta.text").Str)
	}
}

// An answer of the client's own dialect keeps all but the name of the model, streamed or whole.
func TestSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		body, err := wire.Marshal(r)
		require.NoError(t, err)
		same := fromMessages{chatwire.NewSameAnswer(chatwire.AnswerOptions{Model: "mine", Stream: true})}
		_, err = same.End(nil)
		require.ErrorIs(t, err, chatwire.ErrCut)
		var stream []byte
		for _, e := range shred(t, r) {
			stream, err = same.Event(stream, []byte(e))
			require.NoError(t, err)
		}
		_, err = same.End(stream)
		require.NoError(t, err)
		together, frames := wire.Assembler{}, wire.NewFrameReader(strings.NewReader(string(stream)))
		for {
			frame, err := frames.Next()
			if err != nil {
				break
			}
			var event wire.Event
			require.NoError(t, wire.Unmarshal(frame.Data, &event))
			require.NoError(t, together.Add(&event))
		}
		got, complete := together.JSON()
		require.True(t, complete)
		require.Equal(t, "mine", gjson.GetBytes(got, "model").Str)
		inJSON := fromMessages{chatwire.NewSameAnswer(chatwire.AnswerOptions{Model: "mine"})}
		whole, err := inJSON.Body(nil, body)
		require.NoError(t, err)
		whole, err = inJSON.End(whole)
		require.NoError(t, err)
		r.Model = "mine"
		want, err := wire.Marshal(r)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(whole))
	})
}
