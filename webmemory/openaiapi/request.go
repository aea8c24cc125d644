package openaiapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/proxy/responseswire"
	webapi "mneme/webmemory/api"
)

// MaxBody bounds a request's body, in bytes: a transcript, with the images that it may hold.
const MaxBody = 32 << 20

// request is the body of POST /v1/chat/completions, as far as it is read. What else clients send,
// such as temperature, is the business of the operator that configures the agents, and ignored.
type request struct {
	Model         string        `json:"model"`
	Messages      []ChatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N          *float64        `json:"n"`
	User       string          `json:"user"`
	Metadata   json.RawMessage `json:"metadata"`
	Tools      []tool          `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`

	ResponseFormat json.RawMessage `json:"response_format"`
}

// ChatMessage is one message of a request.
type ChatMessage struct {
	Role       string            `json:"role"`
	Content    Content           `json:"content"`
	ToolCalls  []memory.ToolCall `json:"tool_calls"`
	ToolCallID string            `json:"tool_call_id"`
	index      int               // its place in the request
}

// Content is a message's text, of all of its parts, its images, its files, of which the text has a line each, and the
// type of the first part that is none of these.
type Content struct {
	Text   string
	Pasted []memory.Span // as of a webapi.MessageRequest
	Images []string
	Files  []FilePart
	Other  string
}

// UnmarshalJSON reads a string, null or a list of parts.
func (c *Content) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" || json.Unmarshal(raw, &c.Text) == nil {
		return nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
		// An address, alone or as the member url of an object.
		ImageURL json.RawMessage `json:"image_url"`
		// Of chat completions; Responses have its members beside the type.
		File *FilePart `json:"file"`
		FilePart
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return fmt.Errorf("content is a string or a list of parts")
	}
	var texts []string
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "refusal":
			texts = append(texts, cmp.Or(p.Text, p.Refusal))
		case "image_url", "input_image":
			var image struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(p.ImageURL, &image.URL) != nil {
				_ = json.Unmarshal(p.ImageURL, &image) // one without an address is refused as such
			}
			c.Images = append(c.Images, image.URL)
		case "file", "input_file":
			f := *cmp.Or(p.File, &p.FilePart)
			f.index = i
			c.Files = append(c.Files, f)
		default:
			c.Other = cmp.Or(c.Other, p.Type, "unknown")
		}
	}
	c.Text, c.Pasted = JoinTexts(texts)
	c.Text = WithFiles(c.Text, c.Files)
	return nil
}

// JoinTexts joins the text parts of a message. A client that sends several has added all but the first one to what the
// user typed. If that is not certainly typed, no part is.
func JoinTexts(texts []string) (text string, pasted []memory.Span) {
	text = strings.Join(texts, "\n")
	if len(texts) < 2 {
		return text, nil
	}
	text = strings.TrimLeft(text, " \t\r\n")
	typed := strings.TrimSpace(texts[0])
	start := 0
	if memory.Own(typed, nil).Typed == typed {
		start = utf8.RuneCountInString(typed)
	}
	return text, []memory.Span{{start, utf8.RuneCountInString(strings.TrimRight(text, " \t\r\n"))}}
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// call is a request that was understood.
type call struct {
	request
	agent        string        // as agent_version
	instructions string        // the system messages, and what tool_choice says
	dialog       []ChatMessage // the others
	own          []webapi.ClientTool
	wishes       api.Wishes        // what tool_choice and response_format say to the master's model
	metadata     map[string]string // of the request, without what names the chat
	chat         *memory.Chat      // nil for none
	bare         bool              // a task of the client's own
	uploads      []upload          // the files of the newest message, which are not documents of the chat yet

	options *responseswire.AnswerOptions // how the answer is to be one of Responses; nil for a chat completion
	place                                // of a request of Responses
}

// read understands a request.
func read(h *Handler, w http.ResponseWriter, r *http.Request) (*call, error) {
	raw, err := api.ReadBody(w, r, MaxBody, jsonbound.Transcript)
	if err != nil {
		return nil, err
	}
	c := &call{}
	if err := api.Unmarshal(raw, &c.request); err != nil {
		return nil, err
	}
	if err := h.understand(r, c, ""); err != nil {
		return nil, err
	}
	return c, c.readFiles()
}

// understand finds out what a request says, in the chat of a conversation if that is not empty.
func (h *Handler) understand(r *http.Request, c *call, conversation string) (err error) {
	if c.agent, err = h.agentOf(c.Model); err != nil {
		return err
	}
	if c.N != nil && *c.N != 1 {
		return invalid("n", "One answer is given to a request: n must be 1, not %v.", *c.N)
	}
	if err := c.sort(); err != nil {
		return err
	}
	if err := c.readTools(); err != nil {
		return err
	}
	if err := c.readFormat(); err != nil {
		return err
	}
	chatID, err := c.readMetadata()
	if err != nil {
		return err
	}
	c.bare = h.isTask(r, c)
	c.chat, err = h.chatOf(r, conversation, chatID)
	return err
}

// sort tells the client's orders from what was said.
func (c *call) sort() error {
	if len(c.Messages) == 0 {
		return invalid("messages", "messages is missing or empty.")
	}
	var orders []string
	for i, m := range c.Messages {
		switch m.Role {
		case "system", "developer":
			if text := strings.TrimSpace(m.Content.Text); text != "" {
				orders = append(orders, text)
			}
		case memory.RoleUser, memory.RoleAssistant, memory.RoleTool:
			m.index = i
			c.dialog = append(c.dialog, m)
		default:
			return invalid(fmt.Sprintf("messages[%d].role", i),
				"The role of a message is system, developer, user, assistant or tool, not %.40q.", m.Role)
		}
	}
	c.instructions = strings.Join(orders, "\n\n")
	switch last := c.last(); {
	case last.Role == "" || last.Role == memory.RoleAssistant:
		return invalid("messages", "The last message must be one of the user, or the result of a tool.")
	case last.Role == memory.RoleUser && last.Content.Other != "":
		return unsupportedPart("messages", "The model %s takes text, images and files, and no part of the type %.40q.",
			c.Model, last.Content.Other)
	}
	c.splitDocuments()
	return nil
}

// last is the newest message; one without a role if nothing was said.
func (c *call) last() (m ChatMessage) {
	if len(c.dialog) > 0 {
		m = c.dialog[len(c.dialog)-1]
	}
	return m
}

// readTools reads the client's own tools, and what tool_choice says of them.
func (c *call) readTools() error {
	var choice string
	var toolChoice struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if len(c.ToolChoice) > 0 && json.Unmarshal(c.ToolChoice, &choice) != nil {
		_ = json.Unmarshal(c.ToolChoice, &toolChoice) // what it does not say is as if it were left out
	}
	if choice == "none" {
		return nil
	}
	for i, t := range c.Tools {
		if t.Type != "function" {
			return invalid(fmt.Sprintf("tools[%d].type", i), "A tool is of the type function, not %.40q.", t.Type)
		}
		f := t.Function
		if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		c.own = append(c.own, webapi.ClientTool{Name: f.Name, Description: f.Description, Parameters: f.Parameters})
	}
	order := ""
	switch {
	case len(c.own) == 0:
	case toolChoice.Function.Name != "":
		order = fmt.Sprintf("Call the tool %s before you answer.", toolChoice.Function.Name)
		if slices.ContainsFunc(c.own, func(t webapi.ClientTool) bool { return t.Name == toolChoice.Function.Name }) {
			choice = toolChoice.Function.Name
		}
	case choice == api.AnyTool:
		order = "Call one of the user's tools before you answer."
	}
	if order != "" && c.last().Role == memory.RoleUser { // behind results the call has been made
		c.wishes.ToolChoice = choice
	}
	c.instructions = strings.TrimSpace(c.instructions + "\n\n" + order)
	return nil
}

// readMetadata reads the request's metadata. Values that are no strings are left out; what names
// the chat is given.
func (c *call) readMetadata() (chat string, err error) {
	var members map[string]json.RawMessage
	if len(c.Metadata) > 0 && json.Unmarshal(c.Metadata, &members) != nil {
		return "", invalid("metadata", "metadata is an object.")
	}
	for name, raw := range members {
		var text string
		if name == "chat_id" {
			chat = string(bytes.Trim(raw, `"`)) // a string or an integer, without escapes
			continue
		}
		if json.Unmarshal(raw, &text) != nil {
			continue
		}
		if c.metadata == nil {
			c.metadata = map[string]string{}
		}
		c.metadata[name] = text
	}
	if chat == "null" {
		chat = ""
	}
	return chat, nil
}

// transcript returns the request's exchanges.
func (c *call) transcript() (t transcript) {
	for _, m := range c.dialog {
		switch m.Role {
		case memory.RoleUser:
			t.Exchanges = append(t.Exchanges, exchange{User: sight(m.Content.Text, m.images())})
			t.Content = m.Content.Text
		case memory.RoleAssistant:
			text := normal(m.Content.Text)
			if text == "" {
				continue
			}
			if len(t.Exchanges) == 0 {
				t.Exchanges = append(t.Exchanges, exchange{})
			}
			t.Exchanges[len(t.Exchanges)-1].Answer = text
		}
	}
	return t
}

// context are messages as a one-shot takes them.
func contextOf(messages []ChatMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range messages {
		text := m.Content.Text
		if m.Content.Other != "" {
			text = strings.TrimSpace(text + "\n(" + m.Content.Other + ")")
		}
		text = memory.WithImages(text, m.images())
		stored := memory.Message{Role: m.Role, Content: text, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID}
		if m.Role == memory.RoleUser {
			stored.Pasted = m.Content.Pasted
		}
		out = append(out, stored.Encode())
	}
	return out
}

// Bounds of what fitContext returns, in bytes.
const (
	maxContext        = 1 << 20
	maxContextMessage = maxContext / 4
)

// fitContext returns the newest of some messages that fit in maxContext, from a message of the user on. It shortens long
// texts, and leaves out what a run does not take: calls without an id or a name, and results without their call.
func fitContext(encoded []json.RawMessage) []json.RawMessage {
	messages, start, size := make([]memory.Message, len(encoded)), len(encoded), 0
	for i, raw := range slices.Backward(encoded) {
		m := &messages[i]
		_ = json.Unmarshal(raw, m) // which contextOf has written
		m.Content = event.Shorten(m.Content, maxContextMessage)
		unnamed := func(c memory.ToolCall) bool { return c.ID == "" || c.Function.Name == "" }
		m.ToolCalls = slices.DeleteFunc(m.ToolCalls, unnamed)
		if size += len(m.Encode()); size > maxContext {
			break
		}
		if m.Role == memory.RoleUser {
			start = i
		}
	}
	var fit []json.RawMessage
	calls := map[string]bool{}
	for _, m := range messages[start:] {
		for _, call := range m.ToolCalls {
			calls[call.ID] = true
		}
		if m.Role != memory.RoleTool || calls[m.ToolCallID] {
			fit = append(fit, m.Encode())
		}
	}
	return fit
}
