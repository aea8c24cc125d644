package offline

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"mneme/proxy/lazyregexp"
)

// Chat pages ask for a chat's title, tags and the like by a message that begins with "### Task:". It may show the JSON
// object that is wanted, and has the chat between tags, each message behind its role.
var taskShape, taskChat = lazyregexp.New(`JSON format:\s*`), lazyregexp.New(`(?s)<chat_history>(.*)</chat_history>`)

// mostTitle bounds a title, in characters.
const mostTitle = 60

// task answers what a chat page asks about a chat: its title are the user's own first words, and of tags, questions and
// queries there are none. false: the message is no such request, or there is no chat in it.
func task(text string) (answer string, ok bool) {
	chat := taskChat.FindStringSubmatch(text)
	if !strings.HasPrefix(text, "### Task:") || chat == nil {
		return "", false
	}
	_, said, _ := strings.Cut("\n"+chat[1], "\nUSER: ")
	said, _, _ = strings.Cut(said, "\nASSISTANT: ")
	title := ""
	for word := range strings.FieldsSeq(said) {
		if title != "" && utf8.RuneCountInString(title+word) > mostTitle-2 {
			title += "…"
			break
		}
		title = strings.TrimLeft(title+" "+word, " ")
	}
	at := taskShape.FindStringIndex(text)
	shape := map[string]any{}
	if at == nil || json.NewDecoder(strings.NewReader(text[at[1]:])).Decode(&shape) != nil {
		return title, title != ""
	}
	for name, value := range shape {
		switch value.(type) {
		case string:
			if shape[name] = ""; name == "title" {
				shape[name] = title
			}
		case []any:
			shape[name] = []any{}
		}
	}
	raw, err := json.Marshal(shape)
	return string(raw), err == nil
}
