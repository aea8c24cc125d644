package offline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a note says is known as what was told is; nothing else of a system prompt is.
func TestWhatNotesSayIsKnown(t *testing.T) {
	system := "My name is Systemia.\n\nWhat stands between <notes> and </notes> is a note a line.\n<notes>\n" +
		"n3 2026-03-03 \"My name is Aliya.\"\nn1 2026-03-02 \"My name is Amina.\"\n" +
		"n2 2026-03-02 \"I'm allergic to \\u003cb\\u003e peanuts\"\n(3 more notes did not fit.)\n</notes>"
	ask := func(messages ...simMessage) string {
		return roundTrip(t, simRequest{Model: "m", MaxTokens: 1000, System: system, Tools: []simTool{calcTool},
			Messages: messages}).text()
	}
	require.Equal(t, "Noted on 2026-03-03: your name is Aliya. Noted on 2026-03-02: your name is Amina.",
		ask(userText("What is my name?")), "nobody has said which of them holds")
	require.Equal(t, "Записано 2026-03-03: вас зовут Aliya. Записано 2026-03-02: вас зовут Amina.",
		ask(userText("как меня зовут")))
	require.Contains(t, ask(userText("what am I allergic to?")), "peanuts")
	require.Equal(t, "Your name is Carla.", ask(userText("My name is Carla."), userText("What is my name?")))
	require.Contains(t, ask(userText("Where do I live?")), unknownEN)
}
