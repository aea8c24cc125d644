package chatexport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mneme/memory"
)

// chatGPT reads a conversation of ChatGPT's export.
func chatGPT(raw json.RawMessage) (Chat, error) {
	var c struct {
		Title          string
		ID             string
		ConversationID string  `json:"conversation_id"`
		CreateTime     float64 `json:"create_time"` // Unix seconds, as all of them
		CurrentNode    string  `json:"current_node"`
		Mapping        map[string]struct {
			Parent  string
			Message gptMessage // of nothing where it is null, as at the root
		}
	}
	err := json.Unmarshal(raw, &c)
	nodes := map[string]node{}
	for id, n := range c.Mapping {
		nodes[id] = node{n.Parent, n.Message.said()}
	}
	chat := Chat{ID: cmp.Or(c.ConversationID, c.ID), Title: c.Title}
	if err == nil && c.CurrentNode == "" && len(nodes) > 0 {
		err = errors.New("it does not say which of its messages is the last one (current_node)")
	}
	if err == nil {
		chat.Messages, err = branch(nodes, c.CurrentNode, c.CreateTime)
	}
	return chat, err
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
		Hidden      bool `json:"is_visually_hidden_from_conversation"`
		Attachments []struct {
			Name string
			Type string `json:"mime_type"`
		}
	}
}

// said is what the service shows of a message: no system prompts, thoughts, calls of tools and their results. A voice
// chat is its transcription.
func (m gptMessage) said() memory.Message {
	shown := m.Content.Type == "text" || m.Content.Type == "multimodal_text"
	if !shown || m.Metadata.Hidden || m.Channel == "analysis" || cmp.Or(m.Recipient, "all") != "all" {
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
	for _, file := range m.Metadata.Attachments {
		if !strings.HasPrefix(file.Type, "image/") { // which is a part, too
			text = append(text, "[file: "+file.Name+"]")
		}
	}
	return said(m.Author.Role, "ChatGPT", text, m.CreateTime)
}

// claude reads a conversation of Claude's export.
func claude(raw json.RawMessage) (Chat, error) {
	type file struct {
		Name string `json:"file_name"`
	}
	var c struct {
		UUID     string
		Name     string
		Created  moment `json:"created_at"`
		Leaf     string `json:"current_leaf_message_uuid"`
		Messages []struct {
			UUID    string
			Parent  string `json:"parent_message_uuid"` // in newer exports
			Sender  string
			Text    string
			Content []struct{ Type, Text string }
			Created moment `json:"created_at"`

			Attachments, Files []file
		} `json:"chat_messages"`
	}
	err := json.Unmarshal(raw, &c)
	nodes, last, tree := map[string]node{}, "", false
	for _, m := range c.Messages {
		tree = tree || m.Parent != ""
	}
	for i, m := range c.Messages {
		role := map[string]string{"human": memory.RoleUser, "assistant": memory.RoleAssistant}[m.Sender]
		text := []string{m.Text} // with a placeholder for each part that is no text
		if len(m.Content) > 0 {
			text = nil
		}
		for _, part := range m.Content {
			if part.Type == "text" {
				text = append(text, part.Text)
			}
		}
		for _, f := range append(m.Attachments, m.Files...) {
			text = append(text, "[file: "+f.Name+"]")
		}
		id := m.UUID
		if !tree { // in the order of the list, whatever the ids are
			m.Parent, id = last, strconv.Itoa(i)
		}
		nodes[id], last = node{m.Parent, said(role, "Claude", text, float64(m.Created))}, id
	}
	chat := Chat{ID: c.UUID, Title: c.Name}
	if tree {
		last = cmp.Or(c.Leaf, last)
	}
	if err == nil {
		chat.Messages, err = branch(nodes, last, float64(c.Created))
	}
	return chat, err
}

// remember takes a memory of mem0. It is a model's words, and as old as these: an update writes them anew.
func (r *reader) remember(raw json.RawMessage) error {
	var m struct {
		Memory  string
		Created moment `json:"created_at"`
		Updated moment `json:"updated_at"`
		User    string `json:"user_id"`
		Agent   string `json:"agent_id"`
		Run     string `json:"run_id"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	one := said(memory.RoleAssistant, "mem0", []string{m.Memory}, float64(cmp.Or(m.Updated, m.Created)))
	if one.Role == "" {
		return errors.New("it has no text")
	}
	user := cmp.Or(m.User, m.Agent, m.Run, "unnamed")
	r.users[user] = append(r.users[user], one)
	return nil
}

// moment is a time in Unix seconds, written as RFC 3339 has it, or without a zone, which is UTC. Null is zero.
type moment float64

func (m *moment) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || text == "" {
		return err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05", strings.Replace(text, " ", "T", 1)) // also with a fraction
	}
	if err != nil {
		return fmt.Errorf("%.40q is no time", text)
	}
	*m = moment(float64(at.UnixMicro()) / 1e6)
	return nil
}
