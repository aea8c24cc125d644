package webmemory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	numbers "mneme/memory/number"
	"mneme/memory/textindex"
	"mneme/webmemory/problem"
	"mneme/webmemory/telling"
)

// maxForgotten is how many earlier messages may contain the words that a user asks to forget.
const maxForgotten = 50

// postForget is POST …/forget of a run's agents, see memory.ForgetRequest. It deletes nothing, because a model chooses
// the words: a person redacts the messages, or releases them.
func (s *noteRoutes) postForget(c *gin.Context, r *run, asked memory.ForgetRequest) (err error) {
	has, n := wordsOf(asked.Text), utf8.RuneCountInString(memory.OneLine(asked.Text))
	if n < 3 || n > memory.MaxNote || has == nil {
		return problem.BadRequest("text has the words to be forgotten, 3 to %d characters with a letter or a digit.",
			memory.MaxNote)
	}
	said, out := r.said(), memory.Forgotten{}
	if said == nil || r.alone != nil || r.turn.Load() == 0 {
		return errNotHeld
	}
	if out.Asked = telling.AsksToForget(memory.Own(said.Message, said.Pasted).Typed); out.Asked {
		err = s.forget(c.Request.Context(), r, has, &out)
	}
	return api.Answer(c.Writer, http.StatusOK, out, err)
}

// forget hides what contains some words: messages, and notes that are not the operator's.
func (s *noteRoutes) forget(ctx context.Context, r *run, has func(string) bool, out *memory.Forgotten) error {
	ids, err := s.histories.containing(ctx, r, has)
	if err != nil {
		return err
	}
	if out.Messages = len(ids); len(ids) > maxForgotten {
		return problem.BadRequest("%d messages contain these words, more than %d: name longer words.", len(ids), maxForgotten)
	}
	entries := []string{memory.ForgetEntry + r.id} // its next messages may repeat the words
	for _, id := range ids {
		entries = append(entries, memory.ForgetEntry+id)
	}
	full, err := s.store.Chats.Quarantine(ctx, r.chat, false, entries...)
	if err != nil {
		return err
	}
	if full {
		return errQuarantineFull
	}
	s.did(ctx, r.chat.Tenant(), "chat.forget", "chats/"+r.chat.ID()+"/runs/"+r.id)
	hidden := map[string]bool{} // ids of notes
	propose := func(all []memory.Note) ([]memory.Note, error) {
		for i, n := range all {
			if n.State == memory.NoteActive && n.By != memory.ByOperator && has(n.Text) {
				all[i].State, hidden[n.ID] = memory.NoteProposed, true
			}
		}
		return all, nil
	}
	keys, err := s.store.Chats.Keys(ctx, r.chat, s.cfg.Agents()...)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = s.store.Notes.Change(ctx, r.turn.Load(), keys[i], propose)
	}
	if err == nil && !r.user.IsZero() {
		err = s.store.Users.ChangeNotes(ctx, r.user, propose)
	}
	out.Notes = len(hidden)
	return err
}

// containing returns the ids of the messages of earlier runs of a chat whose text or tool arguments contain some words.
func (s *histories) containing(ctx context.Context, r *run, has func(string) bool) (ids []string, err error) {
	v, err := s.look(ctx, r.chat, nil)
	for _, key := range v.keys() {
		for raw, err := range s.walk(ctx, v[key]) {
			if err != nil {
				return nil, err
			}
			var m memory.Message
			_ = json.Unmarshal(raw, &m) // no model is shown what cannot be read
			for _, call := range m.ToolCalls {
				var arguments any
				_ = json.Unmarshal([]byte(call.Function.Arguments), &arguments)
				m.Content += fmt.Sprint("\n", arguments, "\n", call.Function.Arguments)
			}
			if _, id := headOf(raw); memory.RunOf(id) != r.id && has(m.Content) {
				ids = append(ids, id)
			}
			fair.Yield(ctx)
		}
	}
	return ids, err
}

// wordsOf returns a function that reports whether a text has the words of another one, in whatever spelling, or its
// number, by value; nil for a text without words.
func wordsOf(text string) func(string) bool {
	folded := func(text string) string { return " " + strings.Join(slices.Collect(textindex.Words(text)), " ") + " " }
	words, number := folded(text), numbers.Find(numbers.Fold(text))
	if strings.TrimSpace(words) == "" {
		return nil
	}
	alone := len(number) == 1 && !number[0].Words && number[0].Text == memory.OneLine(numbers.Fold(text))
	return func(other string) (found bool) {
		if alone {
			values := numbers.Set{}
			values.Add(other, true)
			found, _ = values.Has(number[0])
		}
		return found || strings.Contains(folded(other), words) ||
			memory.Unspaced.MatchString(text) && strings.Contains(memory.OneLine(other), memory.OneLine(text))
	}
}
