package webmemory

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/textindex"
	webapi "mneme/webmemory/api"
)

// This file is about notes that the agents of a run make. A model may have been talked into
// anything by what it read; so what it asks for becomes an active note only if it is a piece
// of what the user wrote in the very message that the run answers. Anything else is proposed
// to a person.

// postRemember is POST …/notes of a run's agents, see api.RememberRequest. The run's driver
// holds the chat's turn, under whose number the note is written.
func (s *Server) postRemember(c *gin.Context, r *run) error {
	var asked api.RememberRequest
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &asked); err != nil {
		return err
	}
	text, err := memory.NoteText(asked.Quote)
	if err != nil {
		return err
	}
	if r.alone != nil {
		return badRequest("Nothing is noted in a run without a chat.")
	}
	key := memory.ChatKey(r.chat)
	if asked.Subagent != "" {
		if !slices.Contains(s.cfg.Agents, asked.Subagent) {
			return badRequest("There is no subagent %.80q.", string(asked.Subagent))
		}
		key = memory.SubagentKey(asked.Subagent, r.chat)
	}
	turn := r.turn.Load()
	if turn == 0 {
		return errNotHeld
	}
	if asked.OfUser && (r.user.IsZero() || asked.Subagent != "") {
		return badRequest("Only the master of a run that has a user makes notes of the user's.")
	}
	ctx := c.Request.Context()
	n, said := newNote(text, memory.NoteProposed, memory.ByModel), r.said()
	if said == nil {
		return errNotHeld
	}
	if isTellingPiece(said.Message, text) {
		n.State, n.By = memory.NoteActive, memory.ByUser
	}
	if n.Message, err = s.messageOf(ctx, r, said); err != nil { // also of a proposal, which may repeat what it says
		return err
	}
	n.Replaces = asked.Replaces
	if asked.OfUser {
		n.Chat = r.chat.ID()
	}
	made := n
	change := func(all []memory.Note) ([]memory.Note, error) {
		n = made // also in a second attempt
		if i := noteAt(all, n.Replaces); i >= 0 && all[i].By == memory.ByOperator && n.State == memory.NoteActive {
			return nil, errOperatorsNote
		}
		return addNote(all, &n)
	}
	if asked.OfUser {
		err = s.rememberOfUser(ctx, r, turn, &n, change)
	} else {
		err = s.store.ChangeNotes(ctx, turn, key, change)
	}
	if err == nil {
		api.WriteJSON(c.Writer, http.StatusCreated, n)
	}
	return err
}

// rememberOfUser makes a note of the run's user. What takes the message away does so under a newer turn of the chat
// and looks there whose notes came from it: so the chat knows before the note is there, and a note that came too
// late for that goes again.
func (s *Server) rememberOfUser(ctx context.Context, r *run, turn int64, n *memory.Note,
	change func([]memory.Note) ([]memory.Note, error)) error {
	if err := s.store.NoteOfUser(ctx, turn, r.chat, r.user); err != nil {
		return err
	}
	made := n.ID
	if err := s.store.ChangeUserNotes(ctx, r.user, change); err != nil {
		return err
	}
	err := s.store.NoteOfUser(ctx, turn, r.chat, r.user)
	if errors.Is(err, memory.ErrMoved) && n.ID == made { // else it was there already
		void := func(all []memory.Note) ([]memory.Note, error) {
			return slices.DeleteFunc(all, func(n memory.Note) bool { return n.ID == made }), nil
		}
		err = errors.Join(err, s.store.ChangeUserNotes(ctx, r.user, void))
	}
	return err
}

var errOperatorsNote = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeOperatorsNote,
	Message: "That note is the operator's: only a person replaces it. Leave replaces out."}

// said is what the user wrote to the run, as the apiserver was asked for it here; nil in a
// process that took the run over.
func (r *run) said() *event.RunStarted {
	for _, p := range r.asked {
		if said, ok := p.(*event.RunStarted); ok {
			return said
		}
	}
	return nil
}

// messageOf is the id of the run's user message. A run that tries a failed one once more has
// none of its own.
func (s *Server) messageOf(ctx context.Context, r *run, said *event.RunStarted) (string, error) {
	own := memory.MessageID(r.id, 1)
	if said.RetryOf == "" {
		return own, nil
	}
	h, _, err := s.current(ctx, memory.ChatKey(r.chat))
	if err != nil {
		return "", err
	}
	messages, err := h.Messages(0)
	if err != nil {
		return "", err
	}
	ids := h.IDs()
	for i, m := range slices.Backward(messages) {
		if m.Role == memory.RoleUser && m.Content == said.Message {
			return ids[i], nil
		}
	}
	return own, nil
}

// isTellingPiece says whether a text, whose white space is normalised, is a literal piece of
// what was said, of whole words, and says something by itself.
func isTellingPiece(said, text string) bool {
	said = memory.OneLine(said)
	for from := 0; ; {
		at := strings.Index(said[from:], text)
		if at < 0 || text == "" {
			return false
		}
		at += from
		before, behind := said[:at], said[at+len(text):]
		if !joined(before, text) && !joined(text, behind) && tells(before, text, behind) {
			return true
		}
		_, size := utf8.DecodeRuneInString(said[at:])
		from = at + size
	}
}

// joined says whether one word reaches over the place between two texts: a piece of a word
// may say the contrary of it.
func joined(left, right string) bool {
	end, size := utf8.DecodeLastRuneInString(left)
	begin, width := utf8.DecodeRuneInString(right)
	if size > 0 && strings.ContainsRune(joiners, end) {
		end, _ = utf8.DecodeLastRuneInString(left[:len(left)-size])
	} else if width > 0 && strings.ContainsRune(joiners, begin) {
		begin, _ = utf8.DecodeRuneInString(right[width:])
	}
	return ofWord(end) && ofWord(begin)
}

// joiners make one word of two: "non-smoker", "don't", "1.5".
const joiners = "-'’‐‑.,_@/"

// ofWord says whether a character is one of a word in a script that puts spaces between
// words. An invisible one counts, since nobody sees that it parts any.
func ofWord(r rune) bool {
	return r != utf8.RuneError && !unspaced(r) && unicode.In(r, unicode.L, unicode.N, unicode.M, unicode.Cf)
}

func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer,
		unicode.Myanmar)
}

// tells says whether a piece of a message holds two content words, or a name or a number.
func tells(before, text, behind string) bool {
	terms := textindex.Terms(text)
	slices.Sort(terms)
	if len(slices.Compact(terms)) >= 2 {
		return true
	}
	letters := 0
	for _, r := range text {
		if unicode.IsDigit(r) {
			return true
		}
		if unspaced(r) {
			letters++
		}
	}
	if letters >= 4 || len(terms) == 0 {
		return letters >= 4
	}
	for at, word := range wordsOf(text) {
		if first, _ := utf8.DecodeRuneInString(word); unicode.IsUpper(first) && utf8.RuneCountInString(word) > 1 &&
			len(textindex.Terms(word)) > 0 && !interjections[strings.ToLower(word)] &&
			(!beginsSentence(before+text[:at]) || !says(before+behind)) {
			return true
		}
	}
	return false
}

// wordsOf are the words of a text with their places.
func wordsOf(text string) map[int]string {
	words, begin := map[int]string{}, -1
	for i, r := range text + " " {
		switch {
		case begin < 0 && unicode.IsLetter(r):
			begin = i
		case begin >= 0 && !unicode.In(r, unicode.L, unicode.M):
			words[begin] = text[begin:i]
			begin = -1
		}
	}
	return words
}

// beginsSentence says whether what follows a text begins a sentence, where any word has a
// capital letter.
func beginsSentence(before string) bool {
	before = strings.TrimRight(before, " \"'«“„(")
	return before == "" || strings.HasSuffix(before, ".") || strings.HasSuffix(before, "!") ||
		strings.HasSuffix(before, "?") || strings.HasSuffix(before, "…")
}

// says tells whether a text has any letter or digit.
func says(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// interjections are no names, though a message may consist of one.
var interjections = map[string]bool{}

func init() {
	for word := range strings.FieldsSeq(`yes no ok okay sure right thanks thank please hi hello hey bye sorry stop
continue go help great good cool done agreed да нет ок окей ладно спасибо пожалуйста привет здравствуйте пока хорошо
отлично стоп дальше помоги согласен согласна ja nein danke hallo oui non merci`) {
		interjections[word] = true
	}
}
