package webmemory

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
	"mneme/webmemory/problem"
	"mneme/webmemory/telling"
)

// maxForgotten is how many earlier messages may contain the words that a user asks to forget.
const maxForgotten = 50

// postForget is POST …/forget of a run's agents, see memory.ForgetRequest. It deletes nothing, because a model chooses
// the words: a person redacts the messages, or releases them.
func (s *noteRoutes) postForget(c *gin.Context, r *run, asked memory.ForgetRequest) (err error) {
	part := wordsOf(asked.Text)
	if n := utf8.RuneCountInString(part.letters); n < 2 || n > memory.MaxNote {
		return problem.BadRequest("text has the words to be forgotten, with 2 to %d letters and digits.", memory.MaxNote)
	}
	said, out := r.said(), memory.Forgotten{}
	if said == nil || r.alone != nil || r.turn.Load() == 0 {
		return errNotHeld
	}
	if request := telling.AsksToForget(memory.Own(said.Message, said.Pasted).Typed); request != "" {
		err = s.forget(c.Request.Context(), r, part, request, &out)
	}
	return api.Answer(c.Writer, http.StatusOK, out, err)
}

// forget hides what contains some words: messages, and notes that are not the operator's. A request has the words
// itself, or a word of a message with them ("my PIN"): a model cannot hide what the user does not speak of.
func (s *noteRoutes) forget(ctx context.Context, r *run, part words, request string, out *memory.Forgotten) error {
	ids, asked, err := s.histories.containing(ctx, r, part, textindex.Terms(request))
	if err != nil {
		return err
	}
	if out.Asked = len(ids) == 0 || asked || wordsOf(request).contain(part); !out.Asked {
		return nil
	}
	if out.Messages = len(ids); len(ids) > maxForgotten {
		return problem.BadRequest("%d messages contain these words, more than %d: name longer words.", len(ids), maxForgotten)
	}
	entries := []string{memory.ForgetEntry + r.id} // its next messages may repeat the words
	for _, id := range ids {
		entries = append(entries, memory.ForgetEntry+id)
	}
	if err := s.histories.quarantine(ctx, r.chat, entries...); err != nil {
		return err
	}
	s.did(ctx, r.chat.Tenant(), "chat.forget", "chats/"+r.chat.ID()+"/runs/"+r.id)
	hidden := map[string]bool{} // ids of notes
	propose := func(all []memory.Note) ([]memory.Note, error) {
		for i, n := range all {
			if n.State == memory.NoteActive && n.By != memory.ByOperator && wordsOf(n.Text).contain(part) {
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

// containing returns the ids of the messages of earlier runs of a chat whose text or tool arguments contain some words,
// and whether one of them has one of some terms.
func (s *histories) containing(ctx context.Context, r *run, part words, terms []string) (ids []string, named bool,
	err error) {
	v, err := s.look(ctx, r.chat, nil)
	for _, key := range v.keys() {
		for raw, err := range s.walk(ctx, v[key]) {
			if err != nil {
				return nil, false, err
			}
			var m memory.Message
			_ = json.Unmarshal(raw, &m) // no model is shown what cannot be read
			for _, call := range m.ToolCalls {
				var arguments any
				_ = json.Unmarshal([]byte(call.Function.Arguments), &arguments)
				m.Content += fmt.Sprint("\n", arguments, "\n", call.Function.Arguments)
			}
			if _, id := headOf(raw); memory.RunOf(id) != r.id && wordsOf(m.Content).contain(part) {
				has := func(term string) bool { return slices.Contains(terms, term) }
				ids, named = append(ids, id), named || slices.ContainsFunc(textindex.Terms(m.Content), has)
			}
			fair.Yield(ctx)
		}
	}
	return ids, named, err
}

// words is a text as forget compares it.
type words struct {
	letters string // and digits, in lower case, without accents and without what stands between them
	edges   []bool // by byte of letters, and at its end: a word begins or ends there
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

// contain reports whether w has all letters and digits of part in one piece that begins and ends where words do. So
// "4711" is in "47 11" and "4,711", and not in "47110".
func (w words) contain(part words) bool {
	bounded := !memory.Unspaced.MatchString(part.letters) // as in Chinese
	for at := 0; ; at++ {
		next := strings.Index(w.letters[at:], part.letters)
		if next < 0 {
			return false
		}
		at += next
		if !bounded || w.edges[at] && w.edges[at+len(part.letters)] {
			return true
		}
	}
}
