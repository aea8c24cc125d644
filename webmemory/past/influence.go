package past

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// GetInfluence handles GET …/messages/{id}/influence. It returns the answers of a chat that had the message in their
// prompt.
func (s *HistoryRoutes) GetInfluence(c *gin.Context, chat memory.Chat) error {
	id, places := c.Param("id"), map[string]int{}
	out := webapi.Influence{Answers: []webapi.Influenced{}}
	onGap := func(webapi.HistoryGap, error) error { out.Partial = true; return nil }
	n := 0
	for raw, err := range s.Histories.Remembered(c.Request.Context(), memory.ChatKey(chat), onGap) {
		if err != nil {
			return err
		}
		_, msgID := HeadOf(raw)
		places[msgID] = n
		n++
		var m memory.Message
		if json.Unmarshal(raw, &m) != nil || m.Role != memory.RoleAssistant || msgID == id {
			continue
		}
		var record event.Record
		_ = json.Unmarshal(m.Run, &record) // answers of older versions have no record
		place, hasPlace := places[id]
		start, hasStart := places[record.Window]
		kind := ""
		switch {
		case slices.Contains(record.RecalledIDs, id):
			kind = webapi.InfluenceRecall
		case hasPlace && (memory.RunOf(id) == memory.RunOf(msgID) || hasStart && start <= place):
			kind = webapi.InfluenceWindow
		default:
			continue
		}
		out.Answers = append(out.Answers, webapi.Influenced{ID: msgID, RunID: memory.RunOf(msgID), TS: m.Timestamp,
			Kind: kind})
	}
	if n == 0 {
		return problem.ErrUnknownChat
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// GetQuarantine handles GET …/quarantine. The other quarantine routes return the same response.
func (s *HistoryRoutes) GetQuarantine(c *gin.Context, chat memory.Chat) error {
	entries, err := s.Store.Chats.Quarantined(c.Request.Context(), chat)
	return api.Answer(c.Writer, http.StatusOK, webapi.Quarantine{Entries: append([]string{}, entries...)}, err)
}

// PostQuarantine handles POST …/quarantine. It adds entries to the existing ones.
func (s *HistoryRoutes) PostQuarantine(c *gin.Context, chat memory.Chat, body webapi.Quarantine) error {
	if len(body.Entries) == 0 {
		return problem.BadRequest("entries is empty: name messages by their ids, or sources as messages have them.")
	}
	if err := CheckQuarantine(body.Entries); err != nil {
		return err
	}
	histories, err := s.Histories.Look(c.Request.Context(), chat, Heads{})
	if err == nil && len(histories) == 0 {
		err = problem.ErrUnknownChat // otherwise the quarantine would be the chat's only data
	}
	if err != nil {
		return err
	}
	conversation, err := s.Histories.Quarantine(c.Request.Context(), chat, body.Entries...)
	if err == nil && conversation != "" {
		err = s.Runs.EraseConversation(c.Request.Context(), chat.Tenant(), conversation)
	}
	if err != nil {
		return err
	}
	return s.GetQuarantine(c, chat)
}

// CheckQuarantine returns an error if an entry is empty or too long.
func CheckQuarantine(entries []string) *api.Problem {
	for _, entry := range entries {
		if entry == "" || len(entry) > memory.MaxQuarantined {
			return problem.BadRequest("an entry has 1 to %d bytes, %.40q has %d.", memory.MaxQuarantined, entry, len(entry))
		}
	}
	return nil
}

// Quarantine adds entries to a chat's quarantine. It also gives the chat a new conversation at the gateway, because the
// gateway would restore hidden calls in the old one. It returns the old conversation, or "". The caller must erase it.
func (s *Histories) Quarantine(ctx context.Context, chat memory.Chat,
	entries ...string) (conversation string, err error) {
	full, err := s.Store.Chats.Quarantine(ctx, chat, false, entries...)
	if err != nil {
		return "", err
	}
	if full {
		return "", problem.BadRequest("the quarantine of a chat has %d entries at most: release some, or redact the "+
			"messages.", memory.MaxQuarantine)
	}
	return s.Store.Turns.ChangeConversation(ctx, chat, rand.Text())
}

// DeleteQuarantine handles DELETE …/quarantine?entry=. It releases the entry.
func (s *HistoryRoutes) DeleteQuarantine(c *gin.Context, chat memory.Chat) error {
	entry := c.Query("entry")
	if entry == "" {
		return problem.BadRequest("entry is missing: name what is released, as GET …/quarantine has it.")
	}
	if _, err := s.Store.Chats.Quarantine(c.Request.Context(), chat, true, entry); err != nil {
		return err
	}
	return s.GetQuarantine(c, chat)
}
