package openaiapi

import (
	"net/http"
	"slices"
	"strings"

	"mneme/apiserver/api"
	"mneme/memory"
)

// This file is about what chat pages send that is not their user's words: tasks of their own, and documents that they
// have put in front of a message. The words are those of the prompts that Open WebUI and LibreChat come with.

// taskPrompts are how the prompts of tasks begin: titles, tags, follow-ups and queries, a face for a spoken answer, one
// answer made of several; then LibreChat's titles.
var taskPrompts = []string{
	"### Task:",
	"Your task is to reflect the speaker's likely facial expression",
	"You have been provided with a set of responses from various models to the latest user query",
	"Provide a concise, 5-word-or-less title for the conversation",
	"Analyze this conversation and provide:\n1. The detected language of the conversation",
}

// toolTask stands in the system message of the task that chooses among the page's own tools.
const toolTask = "Your task is to choose and return the correct tool(s) from the list of available tools"

// Documents that Open WebUI has found stand between these, in front of the user's words.
const (
	documentsBegin = "### Task:\nRespond to the user query using the provided context"
	documentsEnd   = "</context>"
)

// openWebUIChat names Open WebUI's chats. Those that it calls temporary are named by the browser's connection, so that
// one that is begun after another one has the same name.
const openWebUIChat, temporaryChat = "X-OpenWebUI-Chat-Id", "local:"

// isTask says whether a request is a task of the client's own, such as a title: by its header, or by its words where
// the client sends no such header at all.
func (h *Handler) isTask(r *http.Request, c *call) bool {
	if task, _ := firstOf(r, h.TaskHeaders); task != "" {
		return true
	}
	for _, name := range h.TaskHeaders {
		if values := r.Header.Values(name); len(values) > 0 && strings.TrimSpace(values[0]) == "" {
			return false // it says so of its tasks, and this is none
		}
	}
	if len(c.said) != 1 || c.said[0].Role != memory.RoleUser {
		return false
	}
	text := strings.TrimSpace(c.said[0].Content.Text)
	if strings.HasPrefix(text, documentsBegin) {
		return false
	}
	return strings.Contains(c.instructions, toolTask) ||
		slices.ContainsFunc(taskPrompts, func(begins string) bool { return strings.HasPrefix(text, begins) })
}

// splitDocuments takes documents that stand in front of the user's newest words out of the message: they are for this
// run, as the system messages are, and not what the user said. Too long ones stay.
func (c *call) splitDocuments() {
	last := &c.said[len(c.said)-1]
	text := strings.TrimSpace(last.Content.Text)
	at := strings.LastIndex(text, documentsEnd) + len(documentsEnd)
	if last.Role != memory.RoleUser || !strings.HasPrefix(text, documentsBegin) || at < len(documentsEnd) {
		return
	}
	words, orders := strings.TrimSpace(text[at:]), strings.TrimSpace(c.instructions+"\n\n"+text[:at])
	if words != "" && len(orders) <= api.MaxInstructions {
		last.Content.Text, c.instructions = words, orders
	}
}
