package thinking

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/outsidedata"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

func outline(t testing.TB, body string) *wire.Outline {
	t.Helper()
	o, err := wire.ReadOutline([]byte(body))
	require.NoError(t, err, body)
	return o
}

// asks is a request with these messages.
func asks(messages ...string) string {
	return `{"model":"m","messages":[` + strings.Join(messages, ", ") + `], "x" : 1e3}`
}

const (
	hi     = `{"role":"user","content":"hi"}`
	signed = `{"type":"thinking","thinking":"hm","signature":"sig1"}`
	said1  = `{"type":"text","text":"a"}`
	calls1 = `{"type":"tool_use","id":"toolu_01","name":"f","input":{"content":[{"type":"thinking"}]}}`
)

func assistant(blocks ...string) string {
	return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
}

func TestStrip(t *testing.T) {
	for name, c := range map[string]struct {
		dialect wire.Dialect
		in, out string // the assistant message
		keys    []string
	}{
		"a block": {wire.Messages, assistant(signed, said1), assistant(said1), []string{signed}},
		"interleaved": {wire.Messages, assistant(signed, said1, `{"type":"redacted_thinking","data":"d"}`, calls1),
			assistant(said1, calls1), []string{signed, `{"type":"redacted_thinking","data":"d"}`}},
		"spaces stay": {wire.Messages, `{ "content" : [ ` + signed + ` , ` + said1 + ` ] , "role":"assistant"}`,
			`{ "content" : [ ` + said1 + ` ] , "role":"assistant"}`, []string{signed}},
		"left empty": {wire.Messages, assistant(signed), assistant(`{"type":"text","text":"(no text)"}`), []string{
			signed,
		}},
		"stray": {wire.Messages, assistant(`{"type":"tool_use","signature":"x","id":"i"}`),
			assistant(`{"type":"tool_use","id":"i"}`), nil},
		"a placeholder": {wire.Messages, assistant(`{"type":"thinking","thinking":"","signature":""}`, said1),
			assistant(said1), nil},
		"nothing":        {wire.Messages, assistant(said1, calls1), "", nil},
		"no blocks":      {wire.Messages, assistant(), "", nil},
		"a string":       {wire.Messages, `{"role":"assistant","content":"thinking"}`, "", nil},
		"another's role": {wire.Messages, `{"role":"user","content":[` + signed + `]}`, "", nil},

		"reasoning_content": {wire.Chat, `{"role":"assistant","reasoning_content":"r","content":"a"}`,
			`{"role":"assistant","content":"a"}`,
			[]string{`{"reasoning_content":"r"}`}},
		"empty reasoning": {wire.Chat, `{"role":"assistant","content":"a","reasoning_content":""}`,
			`{"role":"assistant","content":"a"}`, nil},
		"all fields": {wire.Chat,
			`{"reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r"}],"role":"assistant","thinking_blocks":[],"content":"a"}`,
			`{"role":"assistant","content":"a"}`, []string{
				`{"reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r"}]}`,
			}},
		"left without content": {wire.Chat, `{"reasoning_content":"r","role":"assistant"}`,
			`{"content":"(no text)","role":"assistant"}`, []string{`{"reasoning_content":"r"}`}},
		"left with null": {wire.Chat, `{"role":"assistant","content":null,"reasoning_content":"r"}`,
			`{"role":"assistant","content":"(no text)"}`, []string{`{"reasoning_content":"r"}`}},
		"calls need no content": {wire.Chat,
			`{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"c"}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}`, []string{`{"reasoning_content":"r"}`}},
		"thinking parts": {wire.Chat, assistant(`{"type":"thinking","thinking":"x"}`, said1), assistant(said1), []string{
			`{"type":"thinking","thinking":"x"}`,
		}},
		"only parts": {wire.Chat, assistant(signed), `{"role":"assistant","content":"(no text)"}`, []string{signed}},
		"parts and calls": {wire.Chat, `{"role":"assistant","tool_calls":[{}],"content":[` + signed + `]}`,
			`{"role":"assistant","tool_calls":[{}],"content":null}`, []string{signed}},
		"thought signatures": {wire.Chat,
			`{"role":"assistant","tool_calls":[{"id":"c","extra_content":{"google":{"thought_signature":"s"}}},{"extra_content":{"google":{"thought_signature":"s","more":1},"x":2}},{"extra_content":{"x":1,"google":{"thought_signature":"s"}}},{"extra_content":{"x":1}}]}`,
			`{"role":"assistant","tool_calls":[{"id":"c"},{"extra_content":{"google":{"more":1},"x":2}},{"extra_content":{"x":1}},{"extra_content":{"x":1}}]}`,
			[]string{
				`{"tool_calls":[{"extra_content":{"google":{"thought_signature":"s"}}},{"extra_content":{"google":{"thought_signature":"s","more":1},"x":2}},{"extra_content":{"x":1,"google":{"thought_signature":"s"}}},{"extra_content":{"x":1}}]}`,
			}},
		"a bypass": {wire.Chat,
			`{"role":"assistant","content":"a","tool_calls":[{"extra_content":{"google":{"thought_signature":"` +
				BypassSignature + `"}},"id":"i"}]}`,
			`{"role":"assistant","content":"a","tool_calls":[{"id":"i"}]}`, nil},
		"chat without": {
			wire.Chat, `{"role":"assistant","content":"reasoning_content","tool_calls":[{"id":"c","extra_content":null}]}`, "",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := outline(t, asks(hi, c.in, hi))
			var keys []string
			for _, block := range c.keys {
				keys = append(keys, ledger.BlockKey(jsontext.Value(block)))
			}
			body, removed := Strip(o, c.dialect)
			require.Equal(t, keys, removed)
			require.NotContains(t, removed, "")
			if c.out == "" {
				require.False(t, HasThinking(o, c.dialect))
				require.Same(t, &o.Body[0], &body[0], "the identical slice")
				return
			}
			require.True(t, HasThinking(o, c.dialect))
			require.Equal(t, asks(hi, c.out, hi), string(body))
			again := outline(t, string(body))
			require.False(t, HasThinking(again, c.dialect))
		})
	}
}

// Recorded requests of a coding agent pass as they are, and keep everything but the
// thinking when they are stripped.
func TestRecordedRequestsOutsideData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	with := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		o := outline(t, gjson.GetBytes(raw, "body").Raw)
		k := newTalk(t, wire.Messages)
		untouched, _ := Begin(t.Context(), k.ledger, ledger.Request{Scope: k.scope, Target: claude, Dialect: wire.Messages,
			Outline: o}, Policy{}).Filter()
		require.Same(t, &o.Body[0], &untouched[0], "nothing is known, so nothing changes")
		before := gjson.GetBytes(o.Body, `messages.#.content.#(type!="thinking")#|@flatten`).Raw
		body, removed := Strip(o, wire.Messages)
		if len(removed) > 0 {
			with++
		}
		stripped := outline(t, string(body))
		require.False(t, HasThinking(stripped, wire.Messages))
		require.Len(t, stripped.Messages, len(o.Messages))
		if !strings.Contains(before, "redacted_thinking") && !strings.Contains(string(body), noText) {
			require.Equal(t, before, gjson.GetBytes(body, `messages.#.content.#(type!="thinking")#|@flatten`).Raw, file)
		}
	}
	require.NotZero(t, with)
}

// drawMessage is any assistant message of a dialect, with spaces anywhere.
func drawMessage(t *rapid.T, d wire.Dialect) string {
	space := rapid.SampledFrom([]string{"", " ", "\n  "})
	list := func(of []string, label string) string {
		chosen := rapid.SliceOfN(rapid.SampledFrom(of), 0, 5).Draw(t, label)
		return "[" + space.Draw(t, "space") + strings.Join(chosen, space.Draw(t, "space")+","+space.Draw(t, "space")) + "]"
	}
	parts := []string{
		signed, said1, calls1, `{"type":"redacted_thinking","data":"d"}`, `{"type":"text","signature":"s","text":""}`,
		`{"signature":"s"}`, `{"thinking":"","type":"thinking"}`, `7`, `null`, `{}`,
		`{"type":"image","source":{"signature":"x"}}`,
	}
	content := rapid.SampledFrom([]string{`"hi"`, `null`, `""`, "list"}).Draw(t, "content")
	if content == "list" {
		content = list(parts, "blocks")
	}
	members := []string{`"role":"assistant"`}
	if rapid.Bool().Draw(t, "has content") {
		members = append(members, `"content":`+content)
	}
	if d == wire.Chat {
		calls := []string{`{"id":"a"}`, `{"extra_content":{"google":{"thought_signature":"s"}}}`,
			`{"id":"b","extra_content":{"google":{"thought_signature":"s","y":1},"z":2}}`, `5`}
		more := []string{
			`"reasoning_content":"r"`, `"reasoning_content":null`, `"reasoning":"r"`, `"thinking_blocks":[` + signed + `]`,
			`"name":"n"`,
			`"extra_content":{"google":{"thought_signature":"s"}}`, `"reasoning_details":[]`,
		}
		members = append(members, rapid.SliceOfNDistinct(rapid.SampledFrom(more), 0, 4, func(m string) string {
			return strings.Split(m, ":")[0]
		}).Draw(t, "fields")...)
		if rapid.Bool().Draw(t, "has calls") {
			members = append(members, `"tool_calls":`+list(calls, "calls"))
		}
	}
	members = rapid.Permutation(members).Draw(t, "order")
	return "{" + strings.Join(members, space.Draw(t, "space")+","+space.Draw(t, "space")) + space.Draw(t, "space") + "}"
}

// Whatever is stripped, what leaves is valid, has no thinking, and is not empty
// where it was not; a second strip finds nothing.
func TestStripProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]wire.Dialect{wire.Messages, wire.Chat}).Draw(t, "dialect")
		messages := []string{hi}
		for range rapid.IntRange(1, 4).Draw(t, "n") {
			messages = append(messages, drawMessage(t, d))
		}
		o, err := wire.ReadOutline([]byte(asks(messages...)))
		require.NoError(t, err)
		body, _ := Strip(o, d)
		stripped, err := wire.ReadOutline(body)
		require.NoError(t, err, "%s", body)
		require.False(t, HasThinking(stripped, d), "%s", body)
		require.Len(t, stripped.Messages, len(o.Messages))
		again, removed := Strip(stripped, d)
		require.Same(t, &body[0], &again[0])
		require.Nil(t, removed)
		if !HasThinking(o, d) {
			require.Same(t, &o.Body[0], &body[0])
		}
		for i, m := range stripped.Messages {
			if m.Blocks != nil && len(m.Blocks) == 0 {
				require.Empty(t, o.Messages[i].Blocks, "%s", body)
			}
			left := slices.DeleteFunc(slices.Clone(o.Messages[i].Blocks), func(b wire.BlockOutline) bool {
				return wire.IsThinking(b.Type)
			})
			for k, b := range left {
				if b.Members.Index(signatureKey) < 0 && len(left) > 0 {
					require.Equal(t, string(o.Raw(b.Span)), string(stripped.Raw(m.Blocks[k].Span)))
				}
			}
		}
	})
}

func FuzzStrip(f *testing.F) {
	f.Add([]byte(asks(hi, assistant(signed, said1), `{"role":"assistant","reasoning_content":"x","content":[]}`)))
	f.Add(
		[]byte(
			asks(
				`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":1}}}],"content":[{"type":"thinking"}]}`,
			),
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := wire.ReadOutline(body)
		if err != nil {
			return
		}
		for _, d := range []wire.Dialect{wire.Messages, wire.Chat} {
			out, _ := Strip(o, d)
			stripped, err := wire.ReadOutline(out)
			require.NoError(t, err, "%s", out)
			require.False(t, HasThinking(stripped, d), "%s", out)
		}
	})
}
