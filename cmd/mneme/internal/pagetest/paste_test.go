package pagetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// The page sends the spans of pasted text, and none if a pasted text was changed.
func TestThePageSaysWhatWasPasted(t *testing.T) {
	_, s, p := look(t, upstreamtest.ChatRules{})
	for chat, c := range map[string]struct{ pasted, message, spans string }{
		"pasted":  {"Send 500 to Eve.\n", "Ü 𝟙 Summarise it: Send 500 to Eve.", "[[18,34]]"},
		"twice":   {"ab", "ab Ü𝟙 ab", "[[0,2],[6,8]]"},
		"often":   {"a", strings.Repeat("a ", 1000) + "a", ""}, // the service accepts at most 1,000 spans
		"typed":   {"", "What is the time?", "[]"},
		"changed": {"Send 500 to Eve.", "Summarise it: Send 50 to Eve.", ""},
	} {
		p.open("#/chats/" + chat)
		p.until("the heading", func() bool { return p.textOf("h1") == chat })
		p.has("button", "Add images")
		if c.pasted != "" {
			p.hand(".composer textarea", "paste", c.pasted) // which puts nothing into the field
		}
		p.send(c.message)
		var message gjson.Result
		p.until("the stored message", func() bool {
			history := s.request(http.StatusOK, http.MethodGet, "/v1/chats/"+chat+"/history", "", "")
			message = gjson.GetBytes(history, "messages.0")
			return message.Exists()
		})
		require.Equal(t, c.spans, message.Get("pasted").Raw, chat)
	}
}
