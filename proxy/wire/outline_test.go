package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const outlined = ` {"model" : "m","x":[1,{"type":"thinking"}], "stream":true,
 "messages":[ {"role":"user","content":"hi"},
  {"content":[{"thinking":"a\"b","type":"thinking","signature":"s"} , {"type":"tool_use","input":{"content":[{"type":"thinking"}]}}, 5],"role":"assistant"},
  {"role":"user","content":[]}, {}, 7 ] } `

func TestOutline(t *testing.T) {
	o, err := ReadOutline([]byte(outlined))
	require.NoError(t, err)
	require.Equal(t, "m", o.Model)
	require.True(t, o.Stream)
	require.Len(t, o.Messages, 5)
	require.Equal(t, "user", o.Messages[0].Role)
	text, ok := o.Text(o.Messages[0].Content)
	require.True(t, ok)
	require.Equal(t, "hi", text)
	require.Nil(t, o.Messages[0].Blocks)

	blocks := o.Messages[1].Blocks
	require.Len(t, blocks, 3)
	require.Equal(t, "assistant", o.Messages[1].Role)
	require.Equal(t, "thinking", blocks[0].Type)
	require.Equal(t, `{"thinking":"a\"b","type":"thinking","signature":"s"}`, string(o.Raw(blocks[0].Span)))
	require.Equal(t, `{"content":[{"type":"thinking"}]}`, string(o.Raw(blocks[1].Members.Get("input"))))
	require.Equal(t, "5", string(o.Raw(blocks[2].Span)))
	require.Equal(t, `[]`, string(o.Raw(o.Messages[2].Content)))
	require.NotNil(t, o.Messages[2].Blocks)
	require.Equal(t, "{}", string(o.Raw(o.Messages[3].Span)))
	require.Equal(t, "7", string(o.Raw(o.Messages[4].Span)))

	elements := o.Elements(o.Members.Get("x"))
	require.Len(t, elements, 2)
	require.Equal(t, `"thinking"`, string(o.Raw(o.Object(elements[1]).Get("type"))))
}

func TestOfTwoContentsTheFirstCounts(t *testing.T) {
	o,
		err := ReadOutline(
		[]byte(`{"model":"m","messages":[{"content":"a","content":[{"type":"text"}]},{"content":[1],"content":[2,3]}]}`),
	)
	require.NoError(t, err)
	require.Equal(t, `"a"`, string(o.Raw(o.Messages[0].Content)))
	require.Nil(t, o.Messages[0].Blocks)
	require.Equal(t, `[1]`, string(o.Raw(o.Messages[1].Content)))
	require.Len(t, o.Messages[1].Blocks, 1)
}

func TestOutlineRefuses(t *testing.T) {
	for body, why := range map[string]string{
		``: "empty", `[]`: "must be a JSON object", `{"model":"m"`: "not valid JSON", `{"model":"m"} x`: "follows",
		`{"model":"m","messages":[],"messages":[]}`: "comes twice", `{"stream":true}`: `"model" is missing`,
		`{"model":""}`: "non-empty string", `{"model":"m","stream":1}`: "true or false",
		`{"model":"m","messages":[{"content":[{]}]}`: "not valid JSON",
	} {
		_, err := ReadOutline([]byte(body))
		require.ErrorIs(t, err, ErrBadJSON, body)
		require.ErrorContains(t, err, why, body)
	}
}

// Whatever is removed, what remains is valid, and the rest keeps its bytes.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "n")
		var body bytes.Buffer
		var spans []Span
		space := func() string { return rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space") }
		body.WriteString("[" + space())
		for i := range n {
			if i > 0 {
				body.WriteString(space() + "," + space())
			}
			start := body.Len()
			body.WriteString(strings.Repeat("1", i+1))
			spans = append(spans, Span{start, body.Len()})
		}
		body.WriteString(space() + "]")
		mask := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "keep")
		var e Edits
		e.Keep(spans, func(i int) bool { return mask[i] })
		out := e.Apply(body.Bytes())
		require.True(t, jsontext.Value(out).IsValid(), "%s", out)
		want := "["
		for i, s := range spans {
			if mask[i] {
				want += body.String()[s.Start:s.End] + ","
			}
		}
		v := jsontext.Value(out)
		require.NoError(t, v.Compact())
		require.Equal(t, strings.TrimSuffix(want, ",")+"]", string(v))
	})
}

func TestEdits(t *testing.T) {
	var e Edits
	body := []byte("0123456789")
	require.Equal(t, &body[0], &e.Apply(body)[0])
	e.Replace(Span{2, 6}, []byte("x"))
	e.Replace(Span{3, 4}, []byte("void"))
	e.Replace(Span{2, 2}, []byte("a"))
	e.Replace(Span{2, 2}, []byte("b"))
	e.Replace(Span{10, 10}, []byte("end"))
	require.Equal(t, "01abx6789end", string(e.Apply(body)))
}

// What is cut out of a request may be kept for long.
func TestACutHasNoRoomForWhatItWasCutFrom(t *testing.T) {
	body := []byte(strings.Repeat("x", 1<<16))
	var e Edits
	e.Replace(Span{0, 100}, []byte("["))
	e.Replace(Span{50, 60}, []byte("void"))
	e.Replace(Span{110, len(body)}, []byte("]"))
	cut := e.Apply(body)
	require.Equal(t, "[xxxxxxxxxx]", string(cut))
	require.Equal(t, len(cut), cap(cut))
}

func FuzzOutline(f *testing.F) {
	f.Add([]byte(outlined))
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := ReadOutline(body)
		if err != nil {
			require.ErrorIs(t, err, ErrBadJSON)
			return
		}
		renamed := o.WithModel("another \"name\"")
		again, err := ReadOutline(renamed.Body)
		require.NoError(t, err)
		require.Equal(t, again, renamed)
		for _, m := range o.Messages {
			require.True(t, o.Raw(m.Span).IsValid(lenient))
			for _, b := range m.Blocks {
				require.True(t, o.Raw(b.Span).IsValid(lenient))
				if b.Members != nil {
					require.Equal(t, b.Members, o.Object(b.Span))
				}
			}
		}
	})
}

// BenchmarkOutline reads a long conversation: 60 messages, 115 kB.
func BenchmarkOutline(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"model":"m","max_tokens":1000,"messages":[`)
	for i := range 30 {
		if i > 0 {
			body.WriteByte(',')
		}
		text := strings.Repeat("some words of a conversation, \\\"quoted\\\" at times\\n", 25)
		body.WriteString(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"` + text +
			`"}]},`)
		body.WriteString(`{"role":"assistant","content":[{"type":"thinking","thinking":"` + text + `","signature":"` +
			strings.Repeat("EqQB", 100) +
			`"},{"type":"text","text":"` + text + `"},{"type":"tool_use","id":"toolu_01","name":"read","input":{"path":"a"}}]}`)
	}
	body.WriteString(`]}`)
	b.SetBytes(int64(body.Len()))
	for b.Loop() {
		if _, err := ReadOutline(body.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}
