package openaiapi_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
)

// messagesOf is a request with these messages, written as JSON.
func messagesOf(messages ...string) string {
	return `{"model":"mneme","messages":[` + strings.Join(messages, ",") + `]}`
}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func userSaid(text string) string { return `{"role":"user","content":` + quoted(text) + `}` }

func textPart(text string) string { return `{"type":"text","text":` + quoted(text) + `}` }

const picture = `{"type":"image_url","image_url":{"url":"data:,"}}`

func userParts(parts ...string) string {
	return `{"role":"user","content":[` + strings.Join(parts, ",") + `]}`
}

// mangled is a transcript of the user's words as some client might make it: answers dropped, emptied or doubled, system
// messages anywhere, parts for strings, white space, messages merged, doubled, or of those that were refused.
func mangled(random *rand.Rand, words []string) string {
	var messages []string
	for i, word := range words {
		last := i == len(words)-1
		if random.IntN(8) == 0 {
			messages = append(messages, `{"role":"system","content":"x"}`)
		}
		if random.IntN(8) == 0 {
			messages = append(messages, userParts(picture))
		}
		if i > 0 && random.IntN(8) == 0 {
			word = words[i-1] + "\n\n" + word
		}
		said := userSaid(word)
		switch random.IntN(4) {
		case 0:
			said = userParts(textPart(word))
		case 1:
			said = userSaid(" " + word + "\n")
		}
		messages = append(messages, said)
		if last {
			break
		}
		if random.IntN(8) == 0 {
			messages = append(messages, said)
		}
		for range random.IntN(3) {
			messages = append(messages, []string{`{"role":"assistant","content":"…"}`, `{"role":"assistant","content":""}`,
				`{"role":"tool","tool_call_id":"c","content":"1"}`}[random.IntN(3)])
		}
	}
	return messagesOf(messages...)
}

// What clients make of a transcript on its way, without a word of the user's changed: the chat goes on, and every
// message is stored once.
func TestOpenAIMangledTranscriptsGoOn(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := openaiWorld(t, repeats())
	const first, second = "  Caf\u00e9 \u1112\u1161 number one\n", "number two"
	one, two, three := userSaid(first), userSaid(second), userSaid("number three")
	const answered, emptied = `{"role":"assistant","content":"…"}`, `{"role":"assistant","content":""}`
	const system, developer = `{"role":"system","content":"x"}`, `{"role":"developer","content":"y"}`
	calls := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",` +
		`"function":{"name":"f","arguments":"{}"}}]}`
	torn := userParts(textPart("number"), textPart("two"))
	const result = `{"role":"tool","tool_call_id":"c1","content":"1"}`
	for name, sent := range map[string][]string{
		"as it is":                            {system, one, answered, two, answered, three},
		"system messages reordered":           {one, developer, answered, system, two, answered, three, system},
		"another spelling in Unicode":         {userSaid("Cafe\u0301 \ud558 number one"), answered, two, answered, three},
		"leading white space trimmed":         {userSaid(strings.TrimSpace(first)), answered, two, answered, three},
		"an answer removed in the middle":     {one, two, answered, three},
		"all answers removed":                 {one, two, three},
		"an answer twice":                     {one, answered, answered, two, answered, three},
		"empty answers":                       {one, emptied, two, `{"role":"assistant"}`, three},
		"the same as parts":                   {userParts(textPart(first)), answered, two, answered, three},
		"parts torn in two":                   {one, answered, torn, answered, three},
		"calls of tools without their result": {one, calls, two, answered, three},
		"results of tools without their call": {one, result, two, answered, three},
		"a picture that was refused":          {one, answered, two, answered, userParts(picture), three},
		"a message that failed, twice":        {one, answered, userSaid("lost"), userSaid("lost"), two, answered, three},
		"the first one failed":                {userSaid("lost"), one, answered, two, answered, three},
	} {
		chat := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		require.Equal(t, 200, postCompletion(w, chat, messagesOf(one)).Status)
		require.Equal(t, 200, postCompletion(w, chat, messagesOf(one, answered, two)).Status)
		got := postCompletion(w, chat, messagesOf(sent...))
		require.Equal(t, 200, got.Status, "%s: %s", name, got.Body)
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"), name)
		require.Equal(t, first+" "+second+" number three", userWords(w, chat), name)
		require.Nil(t, asideSizes(w, chat), name)
	}
}

// postOpenWebUI posts as Open WebUI does with the headers that it can fill in: the ids of the chat, of the user's
// message, of the answer and of the parent message, and the task. Each may be empty.
func postOpenWebUI(w *webmemorytest.World, chat, message, answer, parent, task, body string) webmemorytest.Response {
	return w.Do("POST", "/v1/chat/completions", body, "X-OpenWebUI-Chat-Id", chat, "X-OpenWebUI-User-Message-Id", message,
		"X-OpenWebUI-Message-Id", answer, "X-OpenWebUI-User-Message-Parent-Id", parent, "X-OpenWebUI-Task", task)
}

// found is a message as Open WebUI sends it when it has found documents for it.
func found(text string) string { return userSaid(documentsSaid + "\n" + text) }

const documentsSaid = "### Task:\nRespond to the user query using the provided context, incorporating inline " +
	"citations.\n\n<context>\n<source id=\"1\">Ferries cost <context>4</context> crowns.</source>\n</context>"

// A chat of Open WebUI: documents in front of the user's words are for one answer, and no part of what was said; tasks
// leave nothing behind; an answer once more and another branch are found by their ids, whatever the words have become.
func TestOpenAIOpenWebUI(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	answered := `{"role":"assistant","content":"…"}`
	for _, headers := range []bool{true, false} {
		chat := map[bool]string{true: "named", false: "unnamed"}[headers]
		send := func(message, answer, parent, task, body string) webmemorytest.Response {
			if headers {
				return postOpenWebUI(w, chat, message, answer, parent, task, body)
			}
			return w.Do("POST", "/v1/chat/completions", body, "X-OpenWebUI-Chat-Id", chat)
		}
		got := send("u1", "a1", "", "", messagesOf(found("What does a ferry cost?")))
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"), string(got.Body))
		require.Equal(t, "to master ("+documentsSaid+"): What does a ferry cost?", content(got))
		for task, messages := range map[string][]string{
			"title_generation": {userSaid("Please:\n### Task:\nGenerate a concise title.\n<chat_history>…</chat_history>")},
			"emoji_generation": {userSaid("Your task is to reflect the speaker's likely facial expression by an emoji.")},
			"function_calling": {toolChoice, userSaid("History:\nUSER: \"\"\"What does a ferry cost?\"\"\"\nQuery: And two?")},
			"moa_response": {userSaid("You have been provided with a set of responses from various models to the latest " +
				"user query: \"x\"")},
			"function_calling_2": {toolChoice, userSaid("Query: And two?")},
		} {
			got = send("u1", "a1", "", task, messagesOf(messages...))
			require.Equal(t, "none", got.Header.Get("Mneme-Memory"), task)
			require.Contains(t, content(got), "to master bare", task)
		}
		got = send("u2", "a2", "a1", "", messagesOf(userSaid("What does a ferry cost?"), answered, found("And two?")))
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
		require.Equal(t, "What does a ferry cost? And two?", userWords(w, chat))
		got = send("u2", "a3", "a1", "", messagesOf(userSaid("What does a ferry cost?"), answered, found("And two?")))
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
		require.Equal(t, "What does a ferry cost? And two?", userWords(w, chat))
		require.Equal(t, []int{2}, asideSizes(w, chat), "its answer once more")
	}
	// Words of a page's own in the message before, such as the time, do not matter if there are ids.
	got := postOpenWebUI(w, "named", "u4", "a4", "a3", "", messagesOf(userSaid("What does a ferry cost? (noon)"),
		answered, userSaid("And two?"), answered, userSaid("### Task: is what I say.")))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.Equal(t, "What does a ferry cost? And two? ### Task: is what I say.", userWords(w, "named"))
	got = postOpenWebUI(w, "named", "u5", "a5", "a1", "", messagesOf(userSaid("What does a ferry cost?"), answered,
		userSaid("And three?")))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.Equal(t, "What does a ferry cost? And three?", userWords(w, "named"))
	// A page that says of each request whether it is a task is believed.
	got = postOpenWebUI(w, "spoken", "u1", "a1", "", "", messagesOf(userSaid("### Task: is what I say.")))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
}

const toolChoice = `{"role":"system","content":"Available Tools: []\n\nYour task is to choose and return the ` +
	`correct tool(s) from the list of available tools based on the query."}`

// Documents that are longer than instructions may be stay in the message, which is the user's all the same.
func TestOpenAILongDocuments(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	long := strings.Replace(documentsSaid, "Ferries", strings.Repeat("Ferries ", 10_000), 1)
	got := postCompletion(w, "c", messagesOf(userSaid(long+"\nWhat does a ferry cost?")))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.Equal(t, long+"\nWhat does a ferry cost?", userWords(w, "c"))
}

// Chats that Open WebUI calls temporary are named by the browser's connection, as the next one is: nothing is kept.
func TestOpenAITemporaryChat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	for range 2 {
		got := postOpenWebUI(w, "local:ab3_x-9", "u1", "a1", "", "", messagesOf(userSaid("a secret")))
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "none", got.Header.Get("Mneme-Memory"))
		require.Equal(t, "to master: a secret", content(got))
	}
	require.Empty(t, w.Redis.Keys(t.Context(), "*ab3*").Val())
	// Elsewhere it is a chat's id as any other.
	require.Equal(t, "local:ab3", postCompletion(w, "local:ab3", transcriptOf("hi")).Header.Get("Mneme-Chat-Id"))
}

// LibreChat asks for titles with the chat's own headers.
func TestOpenAILibreChatTitles(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	require.Equal(t, 200, w.Do("POST", "/v1/chat/completions", transcriptOf("hi"), "X-Conversation-Id", "c").Status)
	for _, title := range []string{
		"Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the title " +
			"itself.\n\nConversation:\nUser: hi\nAI: ho",
		"Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the " +
			"detected language (5 words or less, no punctuation or quotation)\n\nUser: hi\nAI: ho",
	} {
		got := w.Do("POST", "/v1/chat/completions", transcriptOf(title), "X-Conversation-Id", "c")
		require.Equal(t, "none", got.Header.Get("Mneme-Memory"), string(got.Body))
		require.Equal(t, "to master bare: "+title, content(got))
	}
	require.Equal(t, "hi", userWords(w, "c"))
}
