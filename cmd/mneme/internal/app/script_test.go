package app_test

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// task is what a master hands to a subagent.
type task struct{ to, text string }

// scriptedModel is a model for every agent of a mneme. As the master it delegates what the
// script says for a message, one task after the other, or else the message itself to
// the subagent otherwise, and answers with what came back. As a subagent with a search
// it searches for its task and repeats the first passage found; as another one it
// repeats all that it was told in its history.
type scriptedModel struct {
	tasks     map[string][]task
	otherwise string
}

func (s scriptedModel) answer(r *upstreamtest.Request) *upstreamtest.Answer {
	use := func(tool, property, value string) *upstreamtest.Answer {
		input, _ := json.Marshal(map[string]string{property: value})
		a := upstreamtest.Reply(upstreamtest.Use(tool, string(input)))
		return &a
	}
	say := func(text string) *upstreamtest.Answer {
		a := upstreamtest.Reply(upstreamtest.Say(text))
		return &a
	}
	offers := func(name string) bool {
		return slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == name })
	}
	tasks, scripted := s.tasks[r.User]
	if !scripted {
		tasks = []task{{s.otherwise, r.User}}
	}
	done := len(r.Results)
	switch {
	case offers("search_documents") && done == 0:
		return use("search_documents", "query", r.User)
	case offers("search_documents"):
		return say(firstPassage(r.Results[0]))
	case !offers("analytic"):
		return say("I was told: " + strings.Join(userTexts(r.Body), " "))
	case done < len(tasks):
		return use(tasks[done].to, "task", tasks[done].text)
	}
	return say(strings.Join(r.Results, " "))
}

// userTexts are the texts of the user's messages of a request in either dialect.
func userTexts(body []byte) (texts []string) {
	var request struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(body, &request) // the vendor has accepted it
	for _, m := range request.Messages {
		var text string
		var blocks []struct{ Text string }
		if m.Role != "user" || json.Unmarshal(m.Content, &text) != nil && json.Unmarshal(m.Content, &blocks) != nil {
			continue
		}
		for _, b := range blocks {
			text += b.Text
		}
		texts = append(texts, text)
	}
	return texts
}

var envelope = regexp.MustCompile(`</?passage[^>]*>`)

// firstPassage is the best passage of a search, cited.
func firstPassage(result string) string {
	var found struct {
		Status   string
		Passages []struct{ Text string }
	}
	if json.Unmarshal([]byte(result), &found) != nil || found.Status != "ok" {
		return "I don't know.\nstatus: not_found"
	}
	return strings.TrimSpace(envelope.ReplaceAllString(found.Passages[0].Text, "")) + " [1]"
}

// environ starts the model behind a vendor of chat completions, and makes it the backend.
func (s scriptedModel) environ(t *testing.T, more ...string) []string {
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: s.answer})
	server := httptest.NewServer(vendor)
	t.Cleanup(func() {
		server.Close()
		require.Empty(t, vendor.Rejections())
	})
	return append([]string{
		"MNEME_PROXY_ACTIVE=scripted", backend("scripted", "openai", server.URL+"/v1"),
	}, more...)
}

// introduction is a master that tells the analytic subagent a name and asks for it.
func introduction(name string) scriptedModel {
	return scriptedModel{otherwise: "analytic", tasks: map[string][]task{
		"Introduce me": {{"analytic", "My name is " + name + "."}, {"analytic", "What is my name?"}},
	}}
}
