package sanitize_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

func FuzzMessages(f *testing.F) {
	for _, list := range []string{
		conversation(hi, says("assistant", unsigned, text, use), says("user", text, gives, gives)),
		conversation(says("assistant", use, use),
			says("user", `{"type":"tool_result","content":[{"type":"text","text":""}]}`)),
		`,"thinking":true,"tool_choice":{"type":"any"},"max_tokens":1e3` + conversation(`{"role":"user"}`, `7`, `{}`),
		`,"thinking":{"type":"enabled","budget_tokens":31999},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]},"output_config":7` + conversation(hi),
		conversation(`{"role":"assistant","content":"x","content":[` + unsigned + `]}`),
		`,"messages":{"content":[]},"system":[{"text":""}],"tools":[]}`,
	} {
		f.Add(`{"model":"`+sonnet+`"`+list, uint8(0))
		f.Add(`{"model":"`+opus+`"`+list, uint8(3))
	}
	fuzz(f, wire.Messages)
}

func FuzzChat(f *testing.F) {
	for _, list := range []string{
		conversation(sys, hi, calls, tool, hi, calls, sys, tool, tool),
		conversation(`{"role":"assistant","tool_calls":[7,{"id":1},{}],"reasoning_content":null}`, `{"role":"tool"}`),
		`,"thinking":null,"reasoning_effort":"max","tool_choice":"required"` + conversation(reply),
	} {
		f.Add(`{"model":"m"`+list, uint8(8))
		f.Add(`{"model":"gemini-3"`+list, uint8(2))
	}
	fuzz(f, wire.Chat)
}

// fuzz holds any request to what TestAnything holds the drawn ones to.
func fuzz(f *testing.F, d wire.Dialect) {
	f.Fuzz(func(t *testing.T, body string, vendor uint8) {
		o, err := wire.ReadOutline([]byte(body))
		if err != nil || strings.Count(body, `"messages"`) > 1 {
			return
		}
		in := sanitize.Input{Outline: o, Dialect: d, Profile: sanitize.For(vendors[int(vendor)%len(vendors)], o.Model)}
		out := sanitize.Sanitize(in)
		require.True(t, jsontext.Value(out.Body).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)),
			"%s\nbecame\n%s", body, out.Body)
		if len(out.Changes) == 0 {
			require.Same(t, &o.Body[0], &out.Body[0])
		}
		h := http.Header{}
		out.Header(h)
		in.Betas = h.Values("Anthropic-Beta")
		in.Outline, err = wire.ReadOutline(out.Body)
		require.NoError(t, err)
		again := sanitize.Sanitize(in)
		require.Equal(t, string(out.Body), string(again.Body), "%s\n%v", body, again.Changes)
	})
}
