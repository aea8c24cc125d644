package offline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What visitors ask first, with the answers that they get.
func TestWhatIsAskedFirst(t *testing.T) {
	told := func(word string) string { return "Noted: your name is " + word + ". Your name is " + word + "." }
	hello := "Hello! I am the offline model: tell me something and ask me about it later, or ask what your documents say."
	for _, c := range []struct{ before, say, want string }{
		{"", "hi", hello},
		{"", "Good morning!", hello},
		{"", "привет", "Здравствуйте! Я офлайн-модель: расскажите что-нибудь и спросите об этом позже, или спросите, что " +
			"сказано в ваших документах."},
		{"", "Hi! My name is Kim.", "Noted: your name is Kim."},
		{"", "My name is Aliya, what is my name?", told("Aliya")},
		{"", "My name is Aliya, and what is my name?", told("Aliya")},
		{"", "My name is Aliya; what is my name?", told("Aliya")},
		{"", "My name is Aliya – what is my name?", told("Aliya")},
		{"", "Меня зовут Алия, как меня зовут?", "Записано: вас зовут Алия. Вас зовут Алия."},
		{"", "Меня зовут Алия – как меня зовут?", "Записано: вас зовут Алия. Вас зовут Алия."},
		{"My name is Aliya, what is my name?", "What is my name?", "Your name is Aliya."},
		{"", "My favourite colour is green, what is my favourite colour?",
			"Noted: your favourite colour is green. Your favourite colour is green."},
		{"My sister lives in Oslo.", "Where does my sister, who is five, live?", "Your sister lives in Oslo."},
		{"Мой пароль — 4711.", "Забудь пароль",
			"Забыто: пароль. Сами слова остаются в истории и записях чата, пока их не сотрут."},
		{"Запомни, что код от двери 4455.", "Забудь код от двери",
			"Забыто: код от двери. Сами слова остаются в истории и записях чата, пока их не сотрут."},
		{"The wifi password is sunshine99.", "Forget the password",
			"Forgotten: the password. The words themselves stay in the chat's history and notes until they are erased."},
		{"", "Delete the file", iAm.in(en)},
		{"I live in Riga.", "I live in Oslo, where do I live?", "Noted: you live in Oslo. You live in Oslo."},
		{"", "What is the capital of Veldoria?", "The capital of Veldoria is Tarsk. [1] (guide.md)"},
		{"", "How are messages redacted?", "I don't know: the documents found do not answer this."},
	} {
		chat := newChat(t)
		if c.before != "" {
			chat.say(c.before)
		}
		require.Equal(t, c.want, chat.say(c.say).answer, c.say)
	}
	chat := newChat(t)
	chat.say("Мой пароль — 4711.")
	chat.say("Забудь пароль")
	require.NotContains(t, chat.say("Какой у меня пароль?").answer, "4711")
}

// Notes that contradict each other are told with their days, the newest first; what was told in the chat is newer.
func TestNotesThatContradictEachOther(t *testing.T) {
	system := "<notes>\n<notes>\nn4 2026-03-04 \"The office is in Munich.\"\n" +
		"n3 2026-03-03 \"The office is in Berlin.\"\n" +
		"n2 2026-03-02 \"The office is in Berlin.\"\nn1 2026-03-01 \"The kitchen is in Riga.\"\n</notes>"
	ask := func(messages ...simMessage) string {
		return roundTrip(t, simRequest{Model: "m", MaxTokens: 1000, System: system, Tools: []simTool{calcTool},
			Messages: messages}).text()
	}
	require.Equal(t, "Noted on 2026-03-04: The office is in Munich. Noted on 2026-03-03: The office is in Berlin.",
		ask(userText("Where is the office?")))
	require.Equal(t, "The kitchen is in Riga.", ask(userText("Where is the kitchen?")))
	require.Equal(t, "The office is in Oslo.", ask(userText("The office is in Oslo."), userText("Where is the office?")))
}

// A sentence answers by a rare word: not by one that most sentences have, and a row of a table is no sentence.
func TestASentenceAnswersByARareWord(t *testing.T) {
	stove := passage{Title: "Stove", Text: "The stove is old. The stove is green. The stove stands in the hall. " +
		"The stove was lined by Osric."}
	prices := passage{Title: "Prices", Text: "| wood | price of a load | 12. The price of coal is 30 |\n" +
		"What it costs\n\nA load of peat has a price of 9 crowns."}
	require.Equal(t, "The stove was lined by Osric. [1] (a)", cited(t, "ok", "Who lined the stove?", stove))
	require.Equal(t, notInDocs.in(en), cited(t, "ok", "What is a stove?", stove))
	require.Equal(t, "A load of peat has a price of 9 crowns. [1] (a)",
		cited(t, "ok", "What is the price of a load?", prices))
	require.Equal(t, notInDocs.in(en), cited(t, "ok", "What does coal cost?", prices))
}
