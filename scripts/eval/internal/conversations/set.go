// Package conversations measures how well recall finds the messages that answer a question, on
// conversations with questions that name their evidence.
package conversations

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"mneme/scripts/eval/internal/judged"
)

// Set is conversations and the questions about them.
type Set struct {
	Conversations []Conversation
	Questions     []Question // those that name evidence
}

// Conversation is messages, oldest first.
type Conversation struct {
	ID       string
	Messages []Message
}

// Message is one line of a conversation.
type Message struct {
	ID   string  `json:"id"`
	TS   float64 `json:"ts"` // Unix seconds
	Role string  `json:"role"`
	Name string  `json:"name"` // the speaker's, may be empty
	Text string  `json:"text"`
}

// Question is one line of questions.jsonl.
type Question struct {
	Conversation string   `json:"conversation"`
	ID           string   `json:"id"`
	Kind         string   `json:"kind"`
	Question     string   `json:"question"`
	AskedAt      float64  `json:"asked_at"` // Unix seconds; 0: when the conversation ended
	Evidence     []string `json:"evidence"` // ids of messages
}

// Load reads a set: conversations/<id>.jsonl and questions.jsonl below a folder.
func Load(dir string) (*Set, error) {
	files, err := filepath.Glob(filepath.Join(judged.Escape(dir), "conversations", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no conversations/*.jsonl: %w", dir, fs.ErrNotExist)
	}
	slices.Sort(files)
	s := &Set{}
	messageIDs := map[string]map[string]bool{}
	for _, file := range files {
		c := Conversation{ID: strings.TrimSuffix(filepath.Base(file), ".jsonl")}
		ids := map[string]bool{}
		err := lines(file, func(m Message) error {
			if m.ID == "" || m.Role == "" || ids[m.ID] {
				return errors.New("a message needs a role and an id of its own")
			}
			ids[m.ID] = true
			c.Messages = append(c.Messages, m)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(c.Messages) == 0 {
			return nil, fmt.Errorf("%s has no messages", file)
		}
		messageIDs[c.ID] = ids
		s.Conversations = append(s.Conversations, c)
	}
	err = lines(filepath.Join(dir, "questions.jsonl"), func(q Question) error {
		for _, id := range q.Evidence {
			if !messageIDs[q.Conversation][id] {
				return fmt.Errorf("conversation %q has no message %q", q.Conversation, id)
			}
		}
		if len(q.Evidence) > 0 {
			s.Questions = append(s.Questions, q)
		}
		return nil
	})
	if err == nil && len(s.Questions) == 0 {
		err = fmt.Errorf("%s has no question that names evidence", dir)
	}
	return s, err
}

// askedAt is the time of a question: what it says, or the end of its conversation.
func (q Question) askedAt(c *Conversation) float64 {
	return cmp.Or(q.AskedAt, c.Messages[len(c.Messages)-1].TS)
}

// lines decodes each line of a file.
func lines[T any](path string, do func(T) error) error {
	return judged.Lines(path, func(line []byte) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		return do(v)
	})
}
