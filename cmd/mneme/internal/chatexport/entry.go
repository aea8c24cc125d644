package chatexport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/memory"
)

// entry is a conversation of ChatGPT's export or of Claude's, or a memory of mem0, or a page of these.
type entry struct {
	// ChatGPT's, with times in Unix seconds.
	Title          string
	ID             string
	ConversationID string                     `json:"conversation_id"`
	CreateTime     float64                    `json:"create_time"`
	CurrentNode    string                     `json:"current_node"`
	Mapping        map[string]json.RawMessage // of gptNode
	// Claude's.
	Name     string
	UUID     string
	Leaf     string            `json:"current_leaf_message_uuid"`
	Messages []json.RawMessage `json:"chat_messages"` // of claudeMessage
	// Mem0's.
	Memory  *string
	Updated time.Time `json:"updated_at"`
	User    string    `json:"user_id"`
	Agent   string    `json:"agent_id"`
	Run     string    `json:"run_id"`
	Results []json.RawMessage

	Created time.Time `json:"created_at"` // Claude's and mem0's
}

// gptNode is a node of ChatGPT's tree of messages.
type gptNode struct {
	Parent  string
	Message gptMessage // of nothing where it is null, as at the root
}

// claudeMessage is a message of Claude's export.
type claudeMessage struct {
	UUID    string
	Parent  string `json:"parent_message_uuid"` // in newer exports
	Sender  string
	Text    string
	Content []struct{ Type, Text string }
	// Attachments have the text of files, and of long texts that were pasted.
	Attachments []struct {
		Name string `json:"file_name"`
		Text string `json:"extracted_content"`
	}
	Created time.Time `json:"created_at"`
}

type gptMessage struct {
	Author     struct{ Role string }
	CreateTime float64 `json:"create_time"`
	Recipient  string  // a tool's name, if it is a call
	Channel    string
	Content    struct {
		Type  string `json:"content_type"`
		Parts []json.RawMessage
	}
	Metadata struct {
		Hidden bool `json:"is_visually_hidden_from_conversation"`
	}
}

// message is what the service shows of a message: no system prompts, thoughts, calls of tools and their results. A voice
// chat is its transcription.
func (m gptMessage) message() memory.Message {
	visible := m.Content.Type == "text" || m.Content.Type == "multimodal_text"
	if !visible || m.Metadata.Hidden || m.Channel == "analysis" || cmp.Or(m.Recipient, "all") != "all" {
		return memory.Message{}
	}
	var text []string
	for _, raw := range m.Content.Parts {
		var part struct {
			Text  string
			Image string `json:"asset_pointer"`
			Type  string `json:"content_type"`
		}
		if json.Unmarshal(raw, &part.Text) != nil {
			_ = json.Unmarshal(raw, &part) // what is neither text nor an object says nothing
		}
		if part.Type == "image_asset_pointer" {
			part.Text = "[image: " + part.Image + "]"
		}
		text = append(text, part.Text)
	}
	return newMessage(m.Author.Role, "ChatGPT", text, m.CreateTime)
}

// newMessage returns a message. It has no role if the role is unknown or the text is empty.
func newMessage(role, service string, text []string, timestamp float64) (m memory.Message) {
	text = slices.DeleteFunc(text, func(part string) bool { return part == "" })
	m.Timestamp, m.Content = timestamp, strings.TrimSpace(strings.Join(text, "\n\n"))
	switch {
	case m.Content == "":
	case role == memory.RoleUser || role == "human":
		m.Role, m.Origin = memory.RoleUser, memory.Origin{Authority: memory.FromUser}
	case role == memory.RoleAssistant:
		m.Role, m.Origin = role, memory.Origin{Authority: memory.FromAgent, Source: service}
	}
	return m
}

// message is a memory of mem0: a model's words, as old as these, since an update writes them anew.
func (e entry) message() memory.Message {
	return newMessage(memory.RoleAssistant, mem0, []string{*e.Memory}, cmp.Or(unix(e.Updated), unix(e.Created)))
}

// cutMark ends an attachment that does not fit in memory.MaxMessage with its message.
const cutMark = "\n[cut]"

// message returns the text of a message with its attached files.
func (m claudeMessage) message() memory.Message {
	text := []string{m.Text} // with a placeholder for each other part
	if len(m.Content) > 0 {
		text = nil
	}
	for _, part := range m.Content {
		if part.Type == "text" {
			text = append(text, part.Text)
		}
	}
	room := memory.MaxMessage - len(strings.Join(text, "\n\n"))
	for _, a := range m.Attachments {
		if a.Text == "" {
			continue
		}
		file := "[file: " + cmp.Or(memory.OneLine(a.Name), "pasted text") + "]\n" + a.Text
		if room -= len(file) + 2; room < 0 {
			file = memory.Shorten(file, max(0, room+len(file)-len(cutMark))) + cutMark
			room = 0
		}
		text = append(text, file)
	}
	return newMessage(m.Sender, "Claude", text, unix(m.Created))
}

// maxNodes bounds the messages of a conversation, including replaced ones. Even an empty message takes memory.
const maxNodes = 200_000

// branch is what leads to the leaf of a conversation: the messages that the user saw last, and not those that an edit
// or a new answer replaced. What has no time has that of the one before it, the first one that of the conversation.
func (e entry) branch() (list []memory.Message, err error) {
	if len(e.Mapping)+len(e.Messages) > maxNodes {
		return nil, fmt.Errorf("it has more than %d messages", maxNodes)
	}
	// node reads a message and the id of the one before it. Only messages of the branch are read whole.
	node := func(id string) (parent string, m memory.Message, err error) {
		var n gptNode
		err = json.Unmarshal(e.Mapping[id], &n)
		return n.Parent, n.Message.message(), err
	}
	last, unvisited := "", map[string]bool{}
	for id := range e.Mapping {
		unvisited[id] = true
	}
	if e.Mapping == nil {
		place, parents := map[string]int{}, map[string]string{}
		for i, raw := range e.Messages {
			var meta struct {
				UUID   string
				Parent string `json:"parent_message_uuid"`
			}
			if err := json.Unmarshal(raw, &meta); err != nil {
				return nil, err
			}
			id := cmp.Or(meta.UUID, strconv.Itoa(i))
			place[id], unvisited[id], parents[id] = i, true, cmp.Or(meta.Parent, last)
			last = id
		}
		node = func(id string) (string, memory.Message, error) {
			var m claudeMessage
			err := json.Unmarshal(e.Messages[place[id]], &m)
			return parents[id], m.message(), err
		}
	}
	last = cmp.Or(e.CurrentNode, e.Leaf, last)
	if last == "" && len(unvisited) > 0 {
		return nil, errors.New("it does not say which of its messages is the last one (current_node)")
	}
	for id := last; id != "" && !strings.HasPrefix(id, "00000000-0000-"); { // Claude's name for no message
		if !unvisited[id] {
			return nil, fmt.Errorf("its message %.60q is missing, or stands behind itself", id)
		}
		delete(unvisited, id)
		parent, m, err := node(id)
		if err != nil {
			return nil, fmt.Errorf("its message %.60q cannot be read (%w)", id, err)
		}
		if m.Role != "" {
			list = append(list, m)
		}
		id = parent
	}
	slices.Reverse(list)
	timestamp := cmp.Or(e.CreateTime, unix(e.Created))
	for i := range list {
		timestamp = cmp.Or(list[i].Timestamp, timestamp)
		list[i].Timestamp = timestamp
	}
	return list, nil
}

// unix is a time in Unix seconds; 0 for none.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}
