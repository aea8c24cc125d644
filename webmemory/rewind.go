package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
)

// This file is about going back: what was said behind a message is taken back, in every history of the
// chat, and set aside for a day, in which it can be put back. It is a deliberate change: no older copy
// brings it back, and what a run that was taken back has left in a spool stays away.

var (
	errUnknownMessage = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
		Message: "The chat's memory has no message with this id."}
	errUnknownSetAside = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownSetAside,
		Message: "Nothing is set aside for this chat under this id; it is kept for a day."}
	errMessagesSince = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeMessagesSince,
		Message: "The chat's memory has changed since; what was set aside is put back only where it was taken."}
)

// postRewind is POST …/rewind. It stops what runs, as an erasure does.
func (s *Server) postRewind(c *gin.Context) error {
	chat, err := chatOf(c)
	if err != nil {
		return err
	}
	var body struct {
		To json.RawMessage `json:"to"`
	}
	if err := api.DecodeKnown(c.Writer, c.Request, maxBody, &body); err != nil {
		return err
	}
	to := ""
	if body.To == nil {
		return badRequest("to is missing: the id of the last message that stays, or null for none.")
	}
	if string(body.To) != "null" && (json.Unmarshal(body.To, &to) != nil || to == "") {
		return badRequest("to is the id of a message or null, not %.80s.", body.To)
	}
	// Before anything is stopped for it.
	known := heads{}
	seen, err := s.look(c.Request.Context(), chat, known)
	if err == nil && len(seen) == 0 {
		err = errUnknownChat
	}
	if err == nil {
		_, err = s.locate(c.Request.Context(), chat, seen, to)
	}
	if err != nil {
		return err
	}
	return takeAway(s, c, chat, scanTimeout, func(ctx context.Context, w *writer) (webapi.SetAside, error) {
		return s.rewindUnder(ctx, w, to, known)
	})
}

// look is a view without a turn, of the histories that hold something.
func (s *Server) look(ctx context.Context, chat memory.Chat, known heads) (view, error) {
	histories, err := s.currentAll(ctx, chat)
	if err != nil {
		return nil, err
	}
	return s.pin(ctx, histories, known)
}

// currentAll are a chat's histories without a turn, and further ones.
func (s *Server) currentAll(ctx context.Context, chat memory.Chat, further ...memory.Key) (
	map[memory.Key]*memory.History, error) {
	keys, err := s.store.Chats.Keys(ctx, chat, s.cfg.Agents...)
	if err != nil {
		return nil, err
	}
	histories := map[memory.Key]*memory.History{}
	for _, key := range append(keys, further...) {
		if histories[key], _, err = s.current(ctx, key); err != nil {
			return nil, err
		}
	}
	return histories, nil
}

func (s *Server) pin(ctx context.Context, histories map[memory.Key]*memory.History, known heads) (view, error) {
	v := view{}
	for key, h := range histories {
		segments, err := s.store.Archives.Segments(ctx, key)
		if err != nil {
			return nil, err
		}
		if h.Len()+len(segments) > 0 {
			v[key] = pinned{h, segments, known, func(_ webapi.HistoryGap, why error) error {
				if errors.Is(why, memory.ErrDamaged) { // a change could not take it along
					return why
				}
				return nil
			}}
		}
	}
	return v, nil
}

// boundary says what stays of a chat's memory that goes back to a message: what stands before it, and all of
// the runs that began before it.
type boundary struct {
	start bool    // nothing stays
	at    int     // messages of the chat's own history up to this one stay; -1 for none
	ts    float64 // the message's time, 0 if nobody knows
	runs  map[string]*spoken

	newest int     // the newest message of a user in that history, -1 for none
	asked  float64 // its time
}

// spoken is what a run left in the chat's own history.
type spoken struct {
	questions   int // messages of a user
	asked       int // the first of them
	first, last int
}

// locate finds a message, "" for the start.
func (s *Server) locate(ctx context.Context, chat memory.Chat, v view, to string) (*boundary, error) {
	l := &boundary{start: to == "", at: -1, newest: -1, runs: map[string]*spoken{}}
	var times []float64
	n := 0
	for one, err := range s.parts(ctx, v[memory.ChatKey(chat)], noID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.heads {
			if h.ID == to {
				l.at, l.ts = n, h.Timestamp
			}
			if h.Role == memory.RoleUser {
				l.newest, l.asked = n, h.Timestamp
			}
			times = append(times, h.Timestamp)
			if run := runOf(h.ID); run != "" {
				of := l.runs[run]
				if of == nil {
					of = &spoken{first: n}
					l.runs[run] = of
				}
				if of.last = n; h.Role == memory.RoleUser {
					if of.questions++; of.questions == 1 {
						of.asked = n
					}
				}
			}
			n++
		}
	}
	if l.at < 0 && !l.start {
		if err := s.locateBeside(ctx, v, to, l, times); err != nil {
			return nil, err
		}
	}
	for i := 0; l.ts == 0 && i <= l.at; i++ {
		l.ts = max(l.ts, times[l.at-i])
	}
	return l, nil
}

// locateBeside finds a message of a subagent's: the place is that of its run in the chat's own history,
// or by its time. times are those of the messages there.
func (s *Server) locateBeside(ctx context.Context, v view, to string, l *boundary, times []float64) error {
	for _, key := range v.keys() {
		if key.Agent() == "" {
			continue
		}
		for one, err := range s.parts(ctx, v[key], noID) {
			if err != nil {
				return err
			}
			found := slices.IndexFunc(one.heads, func(h head) bool { return h.ID == to })
			if found < 0 {
				continue
			}
			h := one.heads[found]
			l.ts = h.Timestamp
			if of := l.runs[runOf(to)]; of != nil {
				l.at = of.last
				return nil
			}
			for i, at := range times {
				if at <= h.Timestamp {
					l.at = i
				}
			}
			return nil
		}
	}
	return errUnknownMessage
}

// goes says whether a message goes: message n of the chat's own history, or one of a subagent's behind one
// of which before says whether it went.
func (l *boundary) goes(own bool, n int, h head, before bool) bool {
	if l.start {
		return true
	}
	of := l.runs[runOf(h.ID)]
	switch {
	case of != nil && of.questions == 1: // a run
		return of.asked > l.at
	case own:
		return n > l.at
	case of != nil && of.questions == 0 && (of.first > l.at || of.last <= l.at): // a further try at a question
		return of.first > l.at
	case h.Timestamp == 0 || l.ts == 0:
		return before
	}
	return h.Timestamp > l.ts
}

// staying walks what stays of a history.
func (s *Server) staying(ctx context.Context, p pinned, l *boundary) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		n, went := 0, false
		for raw, err := range s.walk(ctx, p) {
			if err == nil {
				h, _ := headOf(raw)
				went = l.goes(p.Key().Agent() == "", n, h, went)
			}
			if !went && !yield(raw, err) || err != nil {
				return
			}
			n++
		}
	}
}

// Bounds of a piece that is set aside.
const (
	pieceMessages = 256
	pieceBytes    = 1 << 20
)

// rewindUnder takes back what was said behind a message, under the chat's lease. Nothing changes before all
// of that is set aside; from then on the rewind is brought to its end, whatever happens to this process.
func (s *Server) rewindUnder(ctx context.Context, w *writer, to string, known heads) (out webapi.SetAside,
	err error) {
	v, err := s.pin(ctx, w.histories, known)
	if err != nil {
		return out, err
	}
	l, err := s.locate(ctx, w.chat, v, to)
	if err != nil {
		return out, err
	}
	a := redisstore.SetAside{ID: strconv.FormatInt(w.Number, 10), TS: float64(time.Now().UnixMilli()) / 1000, To: to}
	if err := s.store.Rewinds.Drop(ctx, w.chat, w.Number, redisstore.MaxSetAside-1); err != nil {
		return out, err
	}
	runs := map[string]bool{}
	for _, key := range v.keys() {
		of, err := s.setAside(ctx, w, a.ID, v[key], l, runs)
		if err != nil {
			return out, errors.Join(err, s.store.Rewinds.Remove(ctx, w.chat, a.ID))
		}
		a.Histories = append(a.Histories, of)
	}
	if a.Taken() == 0 {
		out = setAsideEntry(a)
		out.ID, out.Until = "", 0
		return out, nil
	}
	a.Runs = slices.Sorted(maps.Keys(runs))
	if err := s.eraseConversations(ctx, w.chat, w.Number); err != nil {
		return out, errors.Join(err, s.store.Rewinds.Remove(ctx, w.chat, a.ID))
	}
	if err := s.store.Rewinds.Begin(ctx, w.chat, pendingRewind+a.ID, a, s.cfg.Lease); err != nil {
		return out, err
	}
	a.Until = time.Now().Add(redisstore.SetAsideLife)
	return setAsideEntry(a), s.finishRewind(ctx, w, &a, known)
}

// setAside sets aside what goes of one history, and notes the runs of it.
func (s *Server) setAside(ctx context.Context, w *writer, id string, p pinned, l *boundary,
	runs map[string]bool) (of redisstore.AsideHistory, err error) {
	of.Key, of.IDs = p.Key().String(), map[string]bool{}
	n, went := 0, false
	for one, err := range s.parts(ctx, p, noID) {
		if err != nil {
			return of, err
		}
		for _, h := range one.heads {
			if went = l.goes(p.Key().Agent() == "", n, h, went); went {
				of.IDs[h.ID] = true
			}
			n++
		}
	}
	var piece redisstore.Piece
	size, last := 0, ""
	flush := func() error {
		if len(piece.Messages) == 0 {
			return nil
		}
		err := s.store.Rewinds.SetAside(ctx, w.Number, w.chat, id, p.Key(), of.Pieces, piece)
		of.Pieces, piece, size = of.Pieces+1, redisstore.Piece{}, 0
		return err
	}
	oldest := float64(time.Now().Add(-erasures.Life).Unix())
	gone := func(after string, h head, raw json.RawMessage) error {
		if len(piece.Messages) > 0 && (last != after || len(piece.Messages) >= pieceMessages || size > pieceBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(piece.Messages) == 0 {
			piece.After = after
		}
		of.Messages, last, size = of.Messages+1, h.ID, size+len(raw)
		piece.Messages = append(piece.Messages, raw)
		if run := runOf(h.ID); run != "" && (h.Timestamp == 0 || h.Timestamp > oldest) {
			runs[run] = true
		}
		return nil
	}
	after := ""
	for one, err := range s.parts(ctx, p, func(id string) bool { return of.IDs[id] }) {
		for i := 0; i < len(one.heads) && err == nil; i++ {
			h := one.heads[i]
			if of.IDs[h.ID] {
				err = gone(after, h, one.raw[i])
			} else {
				of.Kept, of.Last = of.Kept+1, h.ID
			}
			after = h.ID
		}
		if err != nil {
			return of, err
		}
	}
	return of, flush()
}

// What a chat's meta may say to have begun and not to be over; a redaction is there by its name among the erasures.
const (
	pendingRewind  = "rewind:"  // and its id
	pendingRestore = "restore:" // and the id of the rewind
	pendingImport  = "import"   // of all that is there, or a fork
	pendingErase   = "erase:"   // and of what, see wanted.String
)

// finishPending brings to its end what a holder of the chat's lease began that has died: an erasure, a redaction, a
// rewind or its restoring is done to its end, an import is undone.
func (s *Server) finishPending(ctx context.Context, w *writer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrubWait)
	defer cancel()
	s.log.Warn().Str("chat", w.chat.String()).Str("change", w.Pending).Msg("finishing what another process left")
	s.metrics.faults.WithLabelValues(halfChange).Inc()
	if of, erasing := strings.CutPrefix(w.Pending, pendingErase); erasing {
		return finishErasure(ctx, s, w, wantedOf(of))
	}
	if what, redacting := erasures.RedactionOf(w.Pending); redacting && what.Chat == w.chat {
		return finishRedaction(ctx, s, w, what)
	}
	if w.Pending == pendingImport {
		return s.undoImport(ctx, w, slices.Collect(maps.Keys(w.histories))...)
	}
	id, rewind := strings.CutPrefix(w.Pending, pendingRewind)
	if !rewind {
		id = strings.TrimPrefix(w.Pending, pendingRestore)
	}
	a, err := s.store.Rewinds.Read(ctx, w.chat, id)
	switch {
	case err != nil:
		return err
	case a == nil: // it is done, or erased
		return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
	case rewind:
		return s.finishRewind(ctx, w, a, nil)
	}
	return s.finishRestore(ctx, w, a)
}

// finishRewind takes back what is set aside. First it is a fact, for all processes: they drop what they
// have of the runs, and no older copy counts.
func (s *Server) finishRewind(ctx context.Context, w *writer, a *redisstore.SetAside, known heads) error {
	fact := rewound{Chat: memory.StoredChat{Chat: w.chat}, Turn: w.Number, Rewind: a.Turn(), Runs: a.Runs}
	for _, of := range a.Histories {
		if of.Messages > 0 {
			fact.Keys = append(fact.Keys, of.Key)
		}
	}
	if err := s.tellRewound(ctx, fact); err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, of := range a.Histories {
		key, _ := memory.ParseKey(of.Key)
		ids := of.IDs
		if ids == nil {
			ids = map[string]bool{}
			for p, err := range s.store.Rewinds.Pieces(ctx, w.chat, a.ID, of) {
				if err != nil {
					return err
				}
				for _, h := range headsOf(p.Messages) {
					ids[h.ID] = true
				}
			}
		}
		has := func(id string) bool { return ids[id] }
		h, err := s.store.Rewinds.TakeBack(ctx, w.Number, w.Number, w.history(key), s.cfg.MaxHistory,
			func(id string, _ json.RawMessage) bool { return ids[id] }, known.without(has), known.within(has))
		if err != nil {
			return err
		}
		w.histories[key] = h
		s.cache.Put(h)
		maps.Copy(taken, ids)
	}
	keys, err := s.store.Chats.Keys(ctx, w.chat, s.cfg.Agents...)
	if err != nil {
		return err
	}
	void := func(n memory.Note) bool {
		return taken[n.Message] || n.Message != "" && slices.Contains(a.Runs, runOf(n.Message))
	}
	if err := takeBackBeside(ctx, s, w.Number, w.chat, keys, void, a.Runs); err != nil {
		return err
	}
	return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", a.ID, 0)
}

// takeBackBeside takes back what lies beside the messages of a chat's histories: the notes, the chat's and its users',
// of which void says so, and what is kept of runs.
func takeBackBeside(ctx context.Context, s *Server, turn int64, chat memory.Chat, keys []memory.Key,
	void func(memory.Note) bool, runs []string) error {
	for _, key := range keys {
		if _, err := s.store.Notes.Void(ctx, turn, key, void); err != nil {
			return err
		}
	}
	if _, err := s.store.Users.VoidNotes(ctx, chat, void); err != nil {
		return err
	}
	return s.store.Runs.TakeBack(ctx, chat, runs...)
}

// rewound is a rewind as a fact, and the body of POST /internal/v1/rewinds.
type rewound struct {
	Chat   memory.StoredChat `json:"chat"`
	Turn   int64             `json:"turn"`   // in which the histories change
	Rewind int64             `json:"rewind"` // in which the rewind began
	Runs   []string          `json:"runs"`   // that it takes back
	Keys   []string          `json:"keys"`   // histories that change
}

// tellRewound notes a rewind here and in Redis, and tells the other processes, of which those that cannot be
// reached find it there.
func (s *Server) tellRewound(ctx context.Context, fact rewound) error {
	if err := s.applyRewound(ctx, fact); err != nil {
		return err
	}
	var cuts []string
	for _, key := range fact.Keys {
		k, _ := memory.ParseKey(key)
		cuts = append(cuts, erasures.HandCut(k))
	}
	if err := s.noteAll(ctx, fact.Turn, cuts); err != nil {
		return err
	}
	var names []string
	for _, run := range fact.Runs {
		names = append(names, erasures.Rewound(fact.Chat.Chat, run))
	}
	if err := s.noteAll(ctx, fact.Rewind, names); err != nil {
		return err
	}
	for runs := fact.Runs; ; {
		part := fact
		part.Runs = runs[:min(len(runs), 10_000)]
		err := askAll(ctx, s, http.MethodPost, "/rewinds", part, func(struct{}) {}, func(p redisstore.Process, err error) {
			s.log.Warn().Err(err).Str("process", p.ID).Msg("another process has not applied a rewind yet; it does when it looks")
		})
		if err != nil {
			s.log.Warn().Err(err).Msg("other processes are not known; they apply a rewind when they look")
		}
		if runs = runs[len(part.Runs):]; len(runs) == 0 {
			return nil
		}
	}
}

func (s *Server) noteAll(ctx context.Context, turn int64, names []string) error {
	for some := range slices.Chunk(names, 1000) {
		if err := s.store.Erasures.Note(ctx, turn, some...); err != nil {
			return err
		}
	}
	return nil
}

// postRewound is POST /internal/v1/rewinds: another process takes something back.
func (s *Server) postRewound(c *gin.Context) error {
	var fact rewound
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &fact); err != nil {
		return err
	}
	if fact.Chat.Chat.IsZero() || fact.Turn <= 0 || fact.Rewind <= 0 {
		return badRequest("A rewind has a chat, a turn and the turn in which it began.")
	}
	if err := s.applyRewound(c.Request.Context(), fact); err != nil {
		return err
	}
	api.WriteJSON(c.Writer, http.StatusOK, struct{}{})
	return nil
}

// applyRewound drops what this process and its disk hold of runs that are taken back, and what was said to
// models; the cuts, if it has some, are noted first.
func (s *Server) applyRewound(ctx context.Context, fact rewound) error {
	if err := s.eraseConversations(ctx, fact.Chat.Chat, fact.Turn); err != nil {
		return err
	}
	cuts := map[string]int64{}
	for _, name := range fact.Keys {
		key, ok := memory.ParseKey(name)
		if !ok || key.Chat() != fact.Chat.Chat {
			return badRequest("%.200q is no history of the chat.", name)
		}
		cuts[name] = fact.Turn
	}
	names := map[string]int64{}
	for _, run := range fact.Runs {
		names[erasures.Rewound(fact.Chat.Chat, run)] = fact.Rewind
	}
	if err := errors.Join(s.cfg.Cuts.Add(cuts), s.follower.file.Add(names)); err != nil {
		return err
	}
	for name := range cuts {
		key, _ := memory.ParseKey(name)
		s.cache.Forget(key)
	}
	for _, run := range fact.Runs {
		s.mu.Lock()
		if r := s.live[run]; r != nil && r.chat == fact.Chat.Chat && r.over(0) && r.turn.Load() < fact.Rewind {
			s.unlist(r)
		}
		s.mu.Unlock()
		if head, lines := s.ends.find(fact.Chat.Chat, run); len(lines) > 0 && head.Turn < fact.Rewind {
			err := errors.Join(s.ends.removeRun(fact.Chat.Chat, run), s.ends.removeRun(fact.Chat.Chat, callsFile+run))
			if err != nil {
				return err
			}
		}
	}
	if err := s.sessions.remove(fact.Chat.Chat); err != nil {
		return err
	}
	s.follower.mu.Lock()
	defer s.follower.mu.Unlock()
	maps.Copy(s.follower.applied, names)
	return nil
}

// followRewinds applies the rewinds of other processes that this one was not told of.
func (s *Server) followRewinds(ctx context.Context, turns map[string]int64) error {
	facts := map[memory.Chat]map[int64]*rewound{}
	s.follower.mu.Lock()
	for name, turn := range turns {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn <= s.follower.applied[name] {
			continue
		}
		if facts[chat] == nil {
			facts[chat] = map[int64]*rewound{}
		}
		if facts[chat][turn] == nil {
			facts[chat][turn] = &rewound{Chat: memory.StoredChat{Chat: chat}, Turn: turn, Rewind: turn}
		}
		facts[chat][turn].Runs = append(facts[chat][turn].Runs, run)
	}
	s.follower.mu.Unlock()
	for _, of := range facts {
		for _, fact := range of {
			if err := s.applyRewound(ctx, *fact); err != nil {
				return err
			}
		}
	}
	return nil
}

// rewoundSince says whether a run of a turn was taken back later on.
func (s *Server) rewoundSince(chat memory.Chat, run string, turn int64) bool {
	run = strings.TrimSuffix(run, memory.ClosingSuffix)
	return s.follower.file.Turn(erasures.Rewound(chat, run)) > turn
}

// rewindsOf is rewoundSince for the runs of a chat, with what Redis knows and this process was not told yet.
func (s *Server) rewindsOf(ctx context.Context, chat memory.Chat) (func(run string, turn int64) bool, error) {
	s.follower.mu.Lock()
	since := s.follower.since
	s.follower.mu.Unlock()
	turns, err := s.store.Erasures.Since(ctx, since)
	return func(run string, turn int64) bool {
		name := erasures.Rewound(chat, strings.TrimSuffix(run, memory.ClosingSuffix))
		return turns[name] > turn || s.rewoundSince(chat, run, turn)
	}, err
}

// restoreRewinds takes back once more what rewinds took back of which Redis does not know any more.
func (s *Server) restoreRewinds(ctx context.Context) error {
	known, err := s.follower.file.All()
	if err != nil {
		return err
	}
	stored, err := s.store.Erasures.Since(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	forgotten := map[memory.Chat]map[string]int64{}
	for name, turn := range known {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn < oldest || turn <= stored[name] {
			continue
		}
		if known[erasures.Restored(chat, strconv.FormatInt(turn, 10))] > 0 {
			continue
		}
		if forgotten[chat] == nil {
			forgotten[chat] = map[string]int64{}
		}
		forgotten[chat][run] = turn
	}
	for chat, runs := range forgotten {
		if err := s.rewindAgain(ctx, chat, runs); err != nil {
			return err
		}
	}
	return nil
}

// rewindAgain takes back what runs said before a turn.
func (s *Server) rewindAgain(ctx context.Context, chat memory.Chat, runs map[string]int64) error {
	keys, err := s.store.Chats.Keys(ctx, chat, s.cfg.Agents...)
	if err != nil {
		return err
	}
	loaded := make([]*memory.History, 0, len(keys))
	for _, key := range keys {
		loaded = append(loaded, memory.Empty(key))
	}
	if loaded, err = s.store.Load(ctx, 0, loaded...); err != nil {
		return err
	}
	cut, byTurn := int64(0), map[int64][]string{}
	for run, turn := range runs {
		cut = max(cut, turn)
		byTurn[turn] = append(byTurn[turn], erasures.Rewound(chat, run))
	}
	for _, h := range loaded {
		_, err := s.store.Rewinds.TakeBack(ctx, 0, cut, h, s.cfg.MaxHistory, func(id string, raw json.RawMessage) bool {
			of, _ := headOf(raw)
			return runs[runOf(id)] > 0 && of.Timestamp*1000 < float64(runs[runOf(id)])
		}, heads(nil).without(noID), heads(nil).within(noID))
		if err != nil {
			return err
		}
	}
	err = takeBackBeside(ctx, s, redisstore.NoTurn, chat, keys, func(n memory.Note) bool {
		return runs[runOf(n.Message)] > 0 && n.TS*1000 < float64(runs[runOf(n.Message)])
	}, slices.Collect(maps.Keys(runs)))
	if err != nil {
		return err
	}
	for turn, some := range byTurn {
		if err := s.noteAll(ctx, turn, some); err != nil {
			return err
		}
	}
	return nil
}

// getSetAside is GET …/set-aside.
func (s *Server) getSetAside(c *gin.Context) error {
	chat, err := chatOf(c)
	if err != nil {
		return err
	}
	all, err := s.store.Rewinds.List(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	out := webapi.SetAsides{SetAside: []webapi.SetAside{}}
	for _, a := range all {
		out.SetAside = append(out.SetAside, setAsideEntry(a))
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

func setAsideEntry(a redisstore.SetAside) webapi.SetAside {
	out := webapi.SetAside{ID: a.ID, TS: a.TS, Until: float64(a.Until.UnixMilli()) / 1000, Messages: a.Taken(),
		Histories: []webapi.SetAsideHistory{}}
	if a.To != "" {
		out.To = &a.To
	}
	for _, h := range a.Histories {
		if key, ok := memory.ParseKey(h.Key); ok && h.Messages > 0 {
			out.Histories = append(out.Histories, webapi.SetAsideHistory{Subagent: key.Agent(), Messages: h.Messages})
		}
	}
	return out
}

// postRestore is POST …/set-aside/{id}/restore. It waits for a run that goes on, and is refused then.
func (s *Server) postRestore(c *gin.Context) error {
	chat, err := chatOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	known := func(ctx context.Context) (*redisstore.SetAside, error) {
		a, err := s.store.Rewinds.Read(ctx, chat, c.Param("id"))
		if err == nil && a == nil {
			err = errUnknownSetAside
		}
		return a, err
	}
	if _, err := known(ctx); err != nil {
		return err
	}
	var out webapi.SetAside
	err = s.underTurn(context.WithoutCancel(ctx), chat, func(ctx context.Context, w *writer) error {
		a, err := known(ctx)
		if err != nil {
			return err
		}
		if err := s.unchangedSince(ctx, w.histories, a); err != nil {
			return err
		}
		out = setAsideEntry(*a)
		return s.restoreUnder(ctx, w, a)
	})
	if err != nil {
		return err
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// restoreUnder puts back what is set aside, under the chat's lease.
func (s *Server) restoreUnder(ctx context.Context, w *writer, a *redisstore.SetAside) error {
	if err := s.store.Rewinds.Pending(ctx, w.Number, w.chat, pendingRestore+a.ID, a.ID, s.cfg.Lease); err != nil {
		return err
	}
	return s.finishRestore(ctx, w, a)
}

// unchangedSince is errMessagesSince unless the chat's histories end as a rewind left them.
func (s *Server) unchangedSince(ctx context.Context, histories map[memory.Key]*memory.History,
	a *redisstore.SetAside) error {
	left := map[string]redisstore.AsideHistory{}
	for _, of := range a.Histories {
		left[of.Key] = of
	}
	for key, h := range histories {
		n, err := s.store.Archives.Remembered(ctx, h)
		if err != nil {
			return err
		}
		last := ""
		if h.Len() > 0 {
			_, last = headOf(h.Identified().Raw(h.Len() - 1)[0])
		}
		if of := left[key.String()]; of.Kept != n || of.Last != last {
			return errMessagesSince
		}
		delete(left, key.String())
	}
	for _, of := range left {
		if of.Kept > 0 {
			return errMessagesSince
		}
	}
	return nil
}

// finishRestore puts back what is set aside, of which some may be there already. Late entries of the runs
// in spools stay away: they may be here.
func (s *Server) finishRestore(ctx context.Context, w *writer, a *redisstore.SetAside) error {
	name := map[string]int64{erasures.Restored(w.chat, a.ID): w.Number}
	if err := s.follower.file.Add(name); err != nil {
		return err
	}
	if err := s.noteAll(ctx, w.Number, slices.Collect(maps.Keys(name))); err != nil {
		return err
	}
	for _, of := range a.Histories {
		key, _ := memory.ParseKey(of.Key)
		if of.Messages == 0 {
			continue
		}
		// From here on copies that end where the rewind did are old ones.
		s.noteCut(key, w.Number)
		there := map[string]bool{}
		v, err := s.pin(ctx, map[memory.Key]*memory.History{key: w.history(key)}, nil)
		if err != nil {
			return err
		}
		for raw, err := range s.walk(ctx, v[key]) {
			if err != nil {
				return err
			}
			_, id := headOf(raw)
			there[id] = true
		}
		for p, err := range s.store.Rewinds.Pieces(ctx, w.chat, a.ID, of) {
			if err != nil {
				return err
			}
			if _, id := headOf(p.Messages[0]); there[id] {
				continue
			}
			h, err := s.store.Rewinds.PutBack(ctx, w.Number, w.history(key), s.cfg.MaxHistory, p)
			if err != nil {
				return err
			}
			w.histories[key] = h
			s.cache.Put(h)
		}
	}
	err := s.store.Runs.PutBack(ctx, w.chat, encodeFinal(api.ErrGone.Status, api.ErrGone), a.Runs...)
	if err == nil {
		err = s.store.Rewinds.Remove(ctx, w.chat, a.ID)
	}
	if err != nil {
		return err
	}
	return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
}

// dropRewound deletes all that is set aside of a chat, which holds words of any of its histories.
func (s *Server) dropRewound(ctx context.Context, chat memory.Chat) error {
	return s.store.Rewinds.Drop(ctx, chat, math.MaxInt64, 0)
}
