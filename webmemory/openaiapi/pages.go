package openaiapi

import (
	"net/http"
	"regexp"
	"strings"

	"mneme/apiserver/api"
	"mneme/memory"
)

// taskPrompt matches a sentence of the prompts with which chat pages request titles, tags, follow-ups, search queries and
// the like, if a page sends no header for them. The prompts are from Open WebUI 0.10 (backend/open_webui/config.py), whose
// tasks have a heading and the chat between tags, of LibreChat's agents 3 (src/utils/title.ts), and of LangChain's
// summarizationMiddleware 1.5 (src/agents/middleware/summarization.ts).
var taskPrompt = regexp.MustCompile(`(?s)### Task:.*<chat_history>` +
	`|Your task is to reflect the speaker's likely facial expression` +
	`|You have been provided with a set of responses from various models to the latest user query` +
	`|Provide a concise, 5-word-or-less title for the conversation` +
	`|extract the highest quality/most relevant context from the conversation history below` +
	`|Analyze this conversation and provide:\s+1\. The detected language of the conversation`)

// toolTask is a sentence of the system message with which Open WebUI selects among its own tools.
const toolTask = "Your task is to choose and return the correct tool(s) from the list of available tools"

// Open WebUI puts the documents that it found between these, before the user's words.
const (
	documentsBegin = "### Task:\nRespond to the user query using the provided context"
	documentsEnd   = "</context>"
)

// openWebUIChat is Open WebUI's header for the chat. A temporary chat has the id of the browser's connection, which the
// next temporary chat has too.
const openWebUIChat, temporaryChat = "X-OpenWebUI-Chat-Id", "local:"

// isTask reports whether a request is a task of the client, such as a title: by its header or, if the client sends no such
// header, by a sentence of the user's last message.
func (h *Handler) isTask(r *http.Request, c *call) bool {
	if task, _ := firstOf(r, h.TaskHeaders); task != "" {
		return true
	}
	for _, name := range h.TaskHeaders {
		if values := r.Header.Values(name); len(values) > 0 && strings.TrimSpace(values[0]) == "" {
			return false // the client marks its tasks, and has not marked this request
		}
	}
	last := c.last()
	return last.Role == memory.RoleUser && (taskPrompt.MatchString(last.Content.Text) ||
		len(c.dialog) == 1 && strings.Contains(c.instructions, toolTask))
}

// splitDocuments moves documents before the user's newest words to the instructions of this run, because they are not the
// user's words. Documents that are too long stay.
func (c *call) splitDocuments() {
	last := &c.dialog[len(c.dialog)-1]
	text := strings.TrimSpace(last.Content.Text)
	end := strings.LastIndex(text, documentsEnd) + len(documentsEnd)
	if last.Role != memory.RoleUser || !strings.HasPrefix(text, documentsBegin) || end < len(documentsEnd) {
		return
	}
	words, orders := strings.TrimSpace(text[end:]), strings.TrimSpace(c.instructions+"\n\n"+text[:end])
	if words != "" && len(orders) <= api.MaxInstructions {
		last.Content.Text, last.Content.Pasted, c.instructions = words, nil, orders
	}
}
