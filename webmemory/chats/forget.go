package chats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"golang.org/x/text/unicode/norm"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/number"
	"mneme/memory/textindex"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/telling"
)

// maxForgotten limits the earlier messages that one call of the tool forget hides.
const maxForgotten = 50

// PostForget handles POST …/forget of a run's agents, see memory.ForgetRequest. It deletes nothing because a model
// chooses the words. A person redacts or releases the hidden messages.
func (s *NoteRoutes) PostForget(c *gin.Context, r *runs.Run, req memory.ForgetRequest) error {
	started, out := r.StartEvent(), memory.Forgotten{}
	if started == nil || r.OwnCalls != nil || r.Turn.Load() == 0 {
		return problem.ErrNotHeld
	}
	order := telling.AsksToForget(memory.Own(started.Message, started.Pasted).Typed)
	f := forgetting{part: wordsOf(req.Text), terms: textindex.Terms(order)}
	if n := utf8.RuneCountInString(f.part.letters); n < 2 || n > memory.MaxNote || len(textindex.Terms(req.Text)) == 0 {
		return problem.BadRequest("text has the words to be forgotten, with 2 to %d letters and digits. Words such as "+
			"\"the\" are not enough.", memory.MaxNote)
	}
	if out.Requested = order != ""; !out.Requested {
		return api.Answer(c.Writer, http.StatusOK, out, nil)
	}
	f.explicit = wordsOf(order).contain(f.part)
	err := s.forget(c.Request.Context(), r, f, &out)
	return api.Answer(c.Writer, http.StatusOK, out, err)
}

// forgetting selects the messages and notes that a user asks to forget.
type forgetting struct {
	part     words
	explicit bool     // the order contains part
	terms    []string // search terms of the order
}

// has reports whether a text contains f.part and, unless f.explicit is set, a term of the order. So a model cannot hide
// texts that are unrelated to the order.
func (f forgetting) has(text string) bool {
	return wordsOf(text).contain(f.part) && (f.explicit || slices.ContainsFunc(textindex.Terms(text),
		func(term string) bool {
			return slices.Contains(f.terms, term)
		}))
}

// forget hides the messages and notes that f selects, except the operator's notes. If there are any, or the order
// contains the words, it also hides the run, whose further messages may repeat the words.
func (s *NoteRoutes) forget(ctx context.Context, r *runs.Run, f forgetting, out *memory.Forgotten) error {
	ids, err := s.containing(ctx, r, f)
	if err != nil {
		return err
	}
	if out.Messages = len(ids); len(ids) > maxForgotten {
		return problem.BadRequest("more than %d messages contain these words: name longer words.", maxForgotten)
	}
	hidden := map[string]bool{} // ids of notes
	propose := func(notes []memory.Note) ([]memory.Note, error) {
		for i, n := range notes {
			if n.State == memory.NoteActive && n.Author != memory.ByOperator && f.has(n.Text) {
				notes[i].State, hidden[n.ID] = memory.NoteProposed, true
			}
		}
		return notes, nil
	}
	keys, err := s.Store.Chats.Keys(ctx, r.Chat, s.Cfg.Agents()...)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = s.Store.Notes.Change(ctx, r.Turn.Load(), keys[i], propose)
	}
	if err == nil && !r.User.IsZero() {
		err = s.Store.Users.ChangeNotes(ctx, r.User, propose)
	}
	if out.Notes = len(hidden); err != nil || len(ids)+len(hidden) == 0 && !f.explicit {
		return err
	}
	entries := []string{memory.ForgetEntry + r.ID}
	for _, id := range ids {
		entries = append(entries, memory.ForgetEntry+id)
	}
	conversation, err := s.Histories.Quarantine(ctx, r.Chat, entries...)
	if err != nil {
		return err
	}
	out.Exchange = true
	s.WriteAudit(ctx, r.Chat.Tenant(), "chat.forget", "chats/"+r.Chat.ID()+"/runs/"+r.ID)
	if conversation != "" {
		s.Workers.Go(func() { s.eraseAfter(r, conversation) })
	}
	return nil
}

// eraseAfter erases a conversation of the gateway after r ends. If that fails or the process stops, the conversation
// expires at the gateway.
func (s *NoteRoutes) eraseAfter(r *runs.Run, conversation string) {
	select {
	case <-r.Done:
	case <-s.Life.Done():
		return
	}
	ctx, cancel := context.WithTimeout(s.Life, node.StoreTimeout)
	defer cancel()
	if err := s.Runs.EraseConversation(ctx, r.Chat.Tenant(), conversation); err != nil {
		s.Log.Warn().Err(err).Msg("the gateway still has hidden messages until they expire")
	}
}

// containing returns the ids of earlier runs' messages that f selects, by text or tool call arguments. It stops after
// maxForgotten+1 ids.
func (s *NoteRoutes) containing(ctx context.Context, r *runs.Run, f forgetting) (ids []string, err error) {
	v, err := s.Histories.Look(ctx, r.Chat, nil)
	for _, key := range v.Keys() {
		for raw, err := range s.Histories.Walk(ctx, v[key]) {
			if err != nil || len(ids) > maxForgotten {
				return ids, err
			}
			var m memory.Message
			_ = json.Unmarshal(raw, &m) // models never get unreadable messages
			for _, call := range m.ToolCalls {
				var arguments any
				_ = json.Unmarshal([]byte(call.Function.Arguments), &arguments)
				m.Content += fmt.Sprint("\n", arguments, "\n", call.Function.Arguments)
			}
			if _, id := past.HeadOf(raw); memory.RunOf(id) != r.ID && f.has(m.Content) {
				ids = append(ids, id)
			}
			fair.Yield(ctx)
		}
	}
	return ids, err
}

// words is the normalized text that forget compares.
type words struct {
	letters string // letters and digits in lower case, without accents, spaces and punctuation
	edges   []bool // by byte offset in letters, and its end: a word begins or ends there
}

func wordsOf(text string) words {
	var letters strings.Builder
	w, edge := words{}, true
	for _, r := range norm.NFD.String(strings.ToLower(number.Fold(text))) {
		if unicode.IsMark(r) {
			continue
		}
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			edge = true
			continue
		}
		for range utf8.RuneLen(r) {
			w.edges, edge = append(w.edges, edge), false
		}
		letters.WriteRune(r)
	}
	return words{letters.String(), append(w.edges, true)}
}

// contain reports whether w has the letters and digits of part in one piece between word edges. "4711" is in "47 11"
// and "4,711" but not in "47110".
func (w words) contain(part words) bool {
	bounded := !memory.Unspaced.MatchString(part.letters) // Chinese has no word edges
	for pos := 0; ; pos++ {
		next := strings.Index(w.letters[pos:], part.letters)
		if next < 0 {
			return false
		}
		pos += next
		if !bounded || w.edges[pos] && w.edges[pos+len(part.letters)] {
			return true
		}
	}
}
