package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The counts are those of OpenAI's tokenizers.
func TestTokensAgainstRealCounts(t *testing.T) {
	for _, c := range []struct {
		name          string
		cl100k, o200k int
		text          string
	}{
		{
			"English", 18, 18,
			"Maria asked the assistant to remember that the meeting with the supplier had been moved to Thursday.",
		},
		{
			"German", 26, 22, "Maria bat den Assistenten, sich zu merken, dass die Besprechung auf Donnerstag verschoben wurde.",
		},
		{"Russian", 39, 25, "Мария попросила ассистента запомнить, что встреча с поставщиком перенесена на четверг."},
		{"Chinese", 36, 24, "玛丽亚请助手记住，与供应商的会议已改到星期四，并且需要提前发送文件。"},
		{"Go", 17, 17, "func (h *History) Len() int {\n\treturn h.n // messages\n}\n"},
		{
			"JSON", 32, 33,
			`{"role":"user","content":"Hello","timestamp":1763801234.125,"tool_calls":[{"id":"call_1","type":"function"}]}`,
		},
		{
			"a log", 46, 46,
			"2026-11-22T09:15:15.123Z INFO [main] request_id=req_8XK2 took=12.5ms status=200 path=/v1/chats/12345/messages",
		},
		{"base64", 52, 51, "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg"},
		{"hex", 43, 43, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
		{"one word again and again", 201, 201, strings.Repeat("word ", 200)},
		{"numbers", 34, 31, "Costs: 14 crowns, 250 g, 3 pieces, 42 %, 1999-12-31 and 7.5 hours."},
	} {
		got := float64(Tokens(c.text))
		require.GreaterOrEqual(t, got, 0.88*float64(c.cl100k), c.name)
		require.LessOrEqual(t, got, 1.5*float64(c.cl100k), c.name)
		require.GreaterOrEqual(t, got, 0.99*float64(c.o200k), c.name)
	}
}

// Any bytes have a count, and more of them do not have less.
func TestTokensOfAnything(t *testing.T) {
	require.Zero(t, Tokens(""))
	for _, s := range []string{" ", "\n\n", "\xff\xfe", "🙂", "e\u0301", strings.Repeat("x", 100_000), "\x00"} {
		n := Tokens(s)
		require.GreaterOrEqual(t, n, 0)
		require.GreaterOrEqual(t, Tokens(s+" and more words"), n+1, "%.10q", s)
	}
	call := Message{
		Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "1", Function: FunctionCall{Name: "add", Arguments: `{"a":1}`}}},
	}
	require.Greater(t, call.Tokens(), Message{Role: RoleAssistant}.Tokens())
}
