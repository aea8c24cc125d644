package offline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What chat pages ask about a chat is answered in the form that they ask for.
func TestTasksOfChatPages(t *testing.T) {
	const chat = "\n### Chat History:\n<chat_history>\nUSER: My name is\nAliya.\nASSISTANT: Noted.\n</chat_history>"
	long := "Меня зовут " + strings.Repeat("Алия ", 30)
	for asked, want := range map[string]string{
		"### Task:\nWrite a title." + chat: "My name is Aliya.",
		"### Task:\nWrite a title with an emoji.\n### Output:\nJSON format: { \"title\": \"your concise title here\" }\n" +
			"### Examples:\n- { \"title\": \"Stock Market Trends\" }" + chat: `{"title":"My name is Aliya."}`,
		`### Task:
JSON format: { "tags": ["tag1", "tag2"] }` + chat: `{"tags":[]}`,
		`### Task:
Strictly return in JSON format: 
{
  "queries": ["query1", "query2"]
}` + chat: `{"queries":[]}`,
		`### Task:
JSON format: { "prompt": "Your description." }` + chat: `{"prompt":""}`,
		"### Task:\nJSON format: { broken" + chat: "My name is Aliya.",
		"### Task:\n<chat_history>\nUSER: " + long + "\n</chat_history>": "Меня зовут " +
			strings.TrimSpace(strings.Repeat("Алия ", 9)) + "…",
		"### Task:\n<chat_history>\nUSER: " + strings.Repeat("x", 80) + "\n</chat_history>": strings.Repeat("x", 80),
	} {
		got := roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText(asked)}})
		require.Equal(t, want, got.text(), asked)
	}
	for _, asked := range []string{"My name is Kim." + chat, "### Task:\nMy name is Kim.",
		"### Task:\n<chat_history>\nASSISTANT: Hello.\n</chat_history>"} {
		_, ok := task(asked)
		require.False(t, ok, asked)
	}
}
