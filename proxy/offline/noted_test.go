package offline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// What a note says is known as what was told is; nothing else of a system prompt is.
func TestWhatNotesSayIsKnown(t *testing.T) {
	system := "My name is Systemia.\n\nWhat stands between <notes> and </notes> is a note a line.\n<notes>\n" +
		"n3 2026-03-03 \"My name is Aliya.\"\nn1 2026-03-02 \"My name is Amina.\"\n" +
		"n2 2026-03-02 \"I'm allergic to \\u003cb\\u003e peanuts\"\n(3 more notes did not fit.)\n</notes>"
	for name, tools := range map[string][]simTool{"master": newChat(t).tools, "subagent": {calcTool, rememberTool}} {
		t.Run(name, func(t *testing.T) {
			ask := func(messages ...simMessage) string {
				return roundTrip(t, simRequest{Model: "m", MaxTokens: 1000, System: system, Tools: tools,
					Messages: messages}).text()
			}
			require.Equal(t, "Noted on 2026-03-03: your name is Aliya. Noted on 2026-03-02: your name is Amina.",
				ask(userText("What is my name?")), "nobody has said which of them holds")
			require.Equal(t, "Записано 2026-03-03: вас зовут Aliya. Записано 2026-03-02: вас зовут Amina.",
				ask(userText("как меня зовут")))
			require.Contains(t, ask(userText("what am I allergic to?")), "peanuts")
			require.Equal(t, "Your name is Carla.", ask(userText("My name is Carla."), userText("What is my name?")))
		})
	}
	require.Contains(t, roundTrip(t, simRequest{Model: "m", System: system, Tools: []simTool{calcTool},
		Messages: []simMessage{userText("Where do I live?")}}).text(), unknownEN)
}

// A stated fact is remembered in the user's own sentence, and "Noted" follows the tool's success.
func TestAFactIsRemembered(t *testing.T) {
	for _, c := range []struct {
		say, answer string
		quotes      []string
	}{
		{"My dog is called Rex.", "Noted: your dog is called Rex.", []string{"My dog is called Rex."}},
		{"Hi, my name is not Bob, it's Bea", "Noted: your name is Bea.", []string{"Hi, my name is not Bob, it's Bea"}},
		{"I'm Kim. My cat is Tom.", "Noted: your name is Kim. Noted: your cat is Tom.", []string{"I'm Kim.", "My cat is Tom."}},
		{"My name is Aliya and I live in Kazan.", "Noted: your name is Aliya; you live in Kazan.",
			[]string{"My name is Aliya and I live in Kazan."}},
		{"Remember: my locker number is 12.", "Noted: your locker number is 12.",
			[]string{"Remember: my locker number is 12."}},
		{"Мою собаку зовут Бублик", "Записано: вашу собаку зовут Бублик.", []string{"Мою собаку зовут Бублик"}},
		{"Запомни, что код от двери 4455", "Записано: код от двери 4455.", []string{"Запомни, что код от двери 4455"}},
		{"I have a dog, which is called Rex.", "Noted: you have a dog, which is called Rex.",
			[]string{"I have a dog, which is called Rex."}},
		{"My name is Aliya, what is my name", "Noted: your name is Aliya. Your name is Aliya.", []string{"My name is Aliya"}},
		{"Tell the analytic subagent that my name is Aliya", "Understood: your name is Aliya.", nil},
	} {
		chat := newChat(t)
		require.Equal(t, c.answer, chat.say(c.say).answer, c.say)
		require.Equal(t, c.quotes, chat.quotes, c.say)
	}
}

// Without a note the model does not say "Noted", and it still knows the fact.
func TestNotedMeansThatANoteExists(t *testing.T) {
	const fact = "My dog is called Rex."
	for name, c := range map[string]struct {
		result simBlock
		want   string
	}{
		"proposed": {simBlock{Content: "This is only proposed: it is no whole sentence of the newest message."},
			"Understood: your dog is called Rex."},
		"failed": {simBlock{Content: "(error: cannot be reached)", IsError: true},
			"I could not do that: the tool remember failed: cannot be reached."},
	} {
		t.Run(name, func(t *testing.T) {
			chat := newChat(t)
			chat.noting = func() simBlock { return c.result }
			require.Equal(t, c.want, chat.say(fact).answer)
			require.Equal(t, "Your dog is called Rex.", chat.say("What is my dog's name?").answer)
		})
	}
	for name, r := range map[string]simRequest{
		"no tools":             {},
		"a master without it":  {Tools: simAgents},
		"no call allowed":      {Tools: newChat(t).tools, ToolChoice: map[string]string{"type": "none"}},
		"a subagent's history": {Tools: []simTool{calcTool, dateTool, rememberTool, recallTool}},
	} {
		t.Run(name, func(t *testing.T) {
			r.Model, r.Messages = "m", []simMessage{userText(fact)}
			require.Equal(t, "Understood: your dog is called Rex.", roundTrip(t, r).text())
		})
	}
}

// Statements with a question word or a word that begins like one are facts.
func TestAStatementWithAQuestionWordIsRemembered(t *testing.T) {
	for _, fact := range []string{
		"Я люблю какао и чай.", "Мне кажется, что я левша.", "Я работаю как врач.", "У меня какой-то кот.", "I met Will in May.",
		"My sister, who is five, lives in Oslo.", "I was in Oslo when it rained.", "My son knows what he wants.",
		"Я родился, когда шёл дождь.", "My flight is on Whit Monday.",
	} {
		chat := newChat(t)
		require.Regexp(t, "Noted|Записано", chat.say(fact).answer, fact)
		require.Equal(t, []string{fact}, chat.quotes, fact)
	}
}

// Questions are never remembered, whatever their form.
func TestAQuestionIsNeverRemembered(t *testing.T) {
	testtier.Slow(t)
	for _, question := range []string{
		"what is my name", "whats my name", "my name is what", "my name", "my name is Bob?", "My name is Bob, right",
		"is my name Bob", "isn't my name Bob", "in which city do I live", "at what time is my train", "have I told you my age",
		"have we a dog", "shall I take an umbrella", "may I bring my dog", "must I pay my rent today", "didn't I live in Oslo",
		"don't I live in Oslo", "I live where", "my birthday is when", "remember what is my name", "remember what my dog is called",
		"tell me in which city I live", "I don't know what my name is", "Hello! And what is my name", "how old is my dog",
		"as you know my dog is called what", "do you remember what my dog is called", "my dog, where is my dog",
		"как меня зовут", "меня как зовут", "меня зовут как", "Меня зовут Роберт?", "меня зовут Роберт, верно", "моё имя",
		"а как меня зовут", "чем я болею", "на какой улице я живу", "в каком городе я живу", "у кого мой ключ",
		"до какого числа мой отпуск", "какими языками я владею", "мой день рождения когда", "я живу где", "живу ли я в Риге",
		"правда ли, что я живу в Риге", "разве я живу в Риге", "неужели я живу в Риге", "запомни, как меня зовут",
		"я не знаю, как меня зовут", "я забыл, где мой ключ", "интересно, сколько мне лет", "моя собака где живёт",
		"Привет, мне сколько лет", "ты помнишь как меня зовут", "у меня сколько детей", "мой врач кто", "мой брат кем работает",
		"где моя собака", "я левша или нет", "не забудь, когда мой день рождения",
		"To whom did I lend my book", "my name again", "so my dog's name is what again", "whose birthday is in May",
		"my sister is how old", "tell me my name", "Say my name", "What is my name!", "I forgot my name", "would I like my tea",
		"which of my dogs is called Rex", "under which name do I live here", "could my name be Bob", "am I Bob",
	} {
		for _, mark := range []string{"", "?", " ?", "."} {
			chat := newChat(t)
			require.NotRegexp(t, "Noted|Understood|Записано|Понятно", chat.say(question+mark).answer, question+mark)
			require.Empty(t, chat.quotes, question+mark)
		}
	}
}
