package erase

import (
	"context"
	"encoding/json"
	"errors"
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
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Rewinder removes the messages after a given message from every history of a chat. It sets them aside for a day, and
// can restore them during that day. Its caller holds the chat's turn. It also applies the rewinds of other processes.
//
// A rewind is a deliberate change: no older copy restores the messages, and spool entries of a rewound run are dropped.
// All processes know of the rewind from its record, which is written before the first history changes.
type Rewinder struct {
	*node.Core
	Registry  *runs.Registry
	Peers     *node.Peers
	Histories *past.Histories
}

// ErrUnknownSetAside indicates that the id of set-aside messages is unknown or expired.
var ErrUnknownSetAside = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownSetAside,
	Message: "Nothing is set aside for this chat under this id; it is kept for a day."}

// RewindRequest is the body of POST …/rewind.
type RewindRequest struct {
	Target json.RawMessage `json:"to"`
}

// Limits of one piece of set-aside messages.
const (
	pieceMessages = 256
	pieceBytes    = 1 << 20
)

// RewindUnder removes the messages after target under the chat's lease. It sets all of them aside before anything
// changes. From then on the rewind will be finished, even if this process dies.
func (s *Rewinder) RewindUnder(ctx context.Context, w *runs.Writer, target string,
	headCache past.Heads) (out webapi.SetAside, err error) {
	v, err := s.Histories.Pin(ctx, w.Histories, headCache)
	if err != nil {
		return out, err
	}
	l, err := s.Histories.Locate(ctx, w.Chat, v, target)
	if err != nil {
		return out, err
	}
	a := redisstore.SetAside{ID: strconv.FormatInt(w.Number, 10), TS: float64(time.Now().UnixMilli()) / 1000,
		Target: target}
	if err := s.Store.Rewinds.Drop(ctx, w.Chat, w.Number, redisstore.MaxSetAside-1); err != nil {
		return out, err
	}
	runs := map[string]bool{}
	for _, key := range v.Keys() {
		history, err := s.setAside(ctx, w, a.ID, v[key], l, runs)
		if err != nil {
			return out, errors.Join(err, s.Store.Rewinds.Remove(ctx, w.Chat, a.ID))
		}
		a.Histories = append(a.Histories, history)
	}
	if a.MessageCount() == 0 {
		out = SetAsideEntry(a)
		out.ID, out.Until = "", 0
		return out, nil
	}
	a.Runs = slices.Sorted(maps.Keys(runs))
	if err := s.EraseConversations(ctx, w.Chat, w.Number); err != nil {
		return out, errors.Join(err, s.Store.Rewinds.Remove(ctx, w.Chat, a.ID))
	}
	if err := s.Store.Rewinds.Begin(ctx, w.Chat, PendingRewind+a.ID, a, s.Cfg.Lease); err != nil {
		return out, err
	}
	a.Until = time.Now().Add(redisstore.SetAsideLife)
	return SetAsideEntry(a), s.FinishRewind(ctx, w, &a, headCache)
}

// setAside sets aside the messages of one history that l removes, and adds their runs to runs.
func (s *Rewinder) setAside(ctx context.Context, w *runs.Writer, id string, p past.Pinned, l *past.Boundary,
	runs map[string]bool) (history redisstore.AsideHistory, err error) {
	history.Key, history.IDs = p.Key().String(), map[string]bool{}
	n, removing := 0, false
	for one, err := range s.Histories.Parts(ctx, p, past.NoID) {
		if err != nil {
			return history, err
		}
		for _, h := range one.Heads {
			if removing = l.Removes(p.Key().Agent() == "", n, h, removing); removing {
				history.IDs[h.ID] = true
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
		err := s.Store.Rewinds.SetAside(ctx, w.Number, w.Chat, id, p.Key(), history.Pieces, piece)
		history.Pieces, piece, size = history.Pieces+1, redisstore.Piece{}, 0
		return err
	}
	oldest := float64(time.Now().Add(-erasures.Life).Unix())
	add := func(prevID string, h past.Head, raw json.RawMessage) error {
		if len(piece.Messages) > 0 && (last != prevID || len(piece.Messages) >= pieceMessages || size > pieceBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(piece.Messages) == 0 {
			piece.PrevID = prevID
		}
		history.Messages, last, size = history.Messages+1, h.ID, size+len(raw)
		piece.Messages = append(piece.Messages, raw)
		if run := memory.RunOf(h.ID); run != "" && (h.Timestamp == 0 || h.Timestamp > oldest) {
			runs[run] = true
		}
		return nil
	}
	prevID := ""
	for one, err := range s.Histories.Parts(ctx, p, func(id string) bool { return history.IDs[id] }) {
		for i := 0; i < len(one.Heads) && err == nil; i++ {
			h := one.Heads[i]
			if history.IDs[h.ID] {
				err = add(prevID, h, one.Raw[i])
			} else {
				history.Remaining, history.Last = history.Remaining+1, h.ID
			}
			prevID = h.ID
		}
		if err != nil {
			return history, err
		}
	}
	return history, flush()
}

// Pending changes in a chat's meta. A pending redaction is recorded by its name in package erasures.
const (
	PendingRewind  = "rewind:"  // followed by the rewind's id
	PendingRestore = "restore:" // followed by the rewind's id
	PendingImport  = "import"   // of the whole chat, or a fork
	PendingErase   = "erase:"   // followed by Scope.String()
)

// FinishRewind removes the set-aside messages from the histories. It first records the rewind for all processes. They
// drop what they hold of the runs. After that no older copy is valid.
func (s *Rewinder) FinishRewind(ctx context.Context, w *runs.Writer, a *redisstore.SetAside,
	headCache past.Heads) error {
	fact := rewound{Chat: memory.StoredChat{Chat: w.Chat}, Turn: w.Number, Rewind: a.Turn(), Runs: a.Runs}
	for _, history := range a.Histories {
		if history.Messages > 0 {
			fact.Keys = append(fact.Keys, history.Key)
		}
	}
	if _, err := s.Tier.Forget(ctx, w.Chat, w.Number, false); err != nil {
		return err
	}
	if err := s.tellRewound(ctx, fact); err != nil {
		return err
	}
	removed := map[string]bool{}
	for _, history := range a.Histories {
		key, _ := memory.ParseKey(history.Key)
		ids := history.IDs
		if ids == nil {
			ids = map[string]bool{}
			for p, err := range s.Store.Rewinds.Pieces(ctx, w.Chat, a.ID, history) {
				if err != nil {
					return err
				}
				for _, h := range past.HeadsOf(p.Messages) {
					ids[h.ID] = true
				}
			}
		}
		has := func(id string) bool { return ids[id] }
		h, err := s.Store.Rewinds.TakeBack(ctx, w.Number, w.Number, w.History(key), s.Cfg.MaxHistory,
			func(id string, _ json.RawMessage) bool { return ids[id] }, headCache.ContainsNone(has), headCache.ContainsOnly(has))
		if err != nil {
			return err
		}
		w.Histories[key] = h
		s.Cache.Put(h)
		maps.Copy(removed, ids)
	}
	keys, err := s.Store.Chats.Keys(ctx, w.Chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	void := func(n memory.Note) bool {
		return removed[n.Message] || n.Message != "" && slices.Contains(a.Runs, memory.RunOf(n.Message))
	}
	if err := s.takeBackBeside(ctx, w.Number, w.Chat, keys, void, a.Runs); err != nil {
		return err
	}
	return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", a.ID, 0)
}

// takeBackBeside removes the data that belongs to rewound messages: the notes that void selects, of the chat and its
// users, and the stored data of runs.
func (s *Rewinder) takeBackBeside(ctx context.Context, turn int64, chat memory.Chat, keys []memory.Key,
	void func(memory.Note) bool, runs []string) error {
	for _, key := range keys {
		if _, err := s.Store.Notes.Void(ctx, turn, key, void); err != nil {
			return err
		}
	}
	if _, err := s.Store.Users.VoidNotes(ctx, chat, void); err != nil {
		return err
	}
	return s.Store.Runs.TakeBack(ctx, chat, runs...)
}

// SetAsideEntry returns set-aside messages in their API form.
func SetAsideEntry(a redisstore.SetAside) webapi.SetAside {
	out := webapi.SetAside{ID: a.ID, TS: a.TS, Until: float64(a.Until.UnixMilli()) / 1000, Messages: a.MessageCount(),
		Histories: []webapi.SetAsideHistory{}}
	if a.Target != "" {
		out.Target = &a.Target
	}
	for _, h := range a.Histories {
		if key, ok := memory.ParseKey(h.Key); ok && h.Messages > 0 {
			out.Histories = append(out.Histories, webapi.SetAsideHistory{Subagent: key.Agent(), Messages: h.Messages})
		}
	}
	return out
}

// RestoreUnder restores set-aside messages under the chat's lease.
func (s *Rewinder) RestoreUnder(ctx context.Context, w *runs.Writer, a *redisstore.SetAside) error {
	if err := s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, PendingRestore+a.ID, a.ID, s.Cfg.Lease); err != nil {
		return err
	}
	return s.FinishRestore(ctx, w, a)
}

// FinishRestore restores set-aside messages. Some of them may be restored already. Spool entries of the runs that
// arrive late stay dropped, because the restored messages may include them.
func (s *Rewinder) FinishRestore(ctx context.Context, w *runs.Writer, a *redisstore.SetAside) error {
	name := map[string]int64{erasures.Restored(w.Chat, a.ID): w.Number}
	if err := s.Follower.File.Add(name); err != nil {
		return err
	}
	if err := s.NoteAll(ctx, w.Number, slices.Collect(maps.Keys(name))); err != nil {
		return err
	}
	for _, history := range a.Histories {
		key, _ := memory.ParseKey(history.Key)
		if history.Messages == 0 {
			continue
		}
		// From here on, a copy that ends at the rewind's target is outdated.
		s.NoteCut(key, w.Number)
		present := map[string]bool{}
		v, err := s.Histories.Pin(ctx, map[memory.Key]*memory.History{key: w.History(key)}, nil)
		if err != nil {
			return err
		}
		for raw, err := range s.Histories.Walk(ctx, v[key]) {
			if err != nil {
				return err
			}
			_, id := past.HeadOf(raw)
			present[id] = true
		}
		for p, err := range s.Store.Rewinds.Pieces(ctx, w.Chat, a.ID, history) {
			if err != nil {
				return err
			}
			if _, id := past.HeadOf(p.Messages[0]); present[id] {
				continue
			}
			h, err := s.Store.Rewinds.PutBack(ctx, w.Number, w.History(key), s.Cfg.MaxHistory, p)
			if err != nil {
				return err
			}
			w.Histories[key] = h
			s.Cache.Put(h)
		}
	}
	err := s.Store.Runs.PutBack(ctx, w.Chat, runs.EncodeFinal(api.ErrGone.Status, api.ErrGone), a.Runs...)
	if err == nil {
		err = s.Store.Rewinds.Remove(ctx, w.Chat, a.ID)
	}
	if err != nil {
		return err
	}
	return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
}

// rewound describes a rewind to other processes. It is the body of POST /internal/v1/rewinds.
type rewound struct {
	Chat   memory.StoredChat `json:"chat"`
	Turn   int64             `json:"turn"`   // turn of the change to the histories
	Rewind int64             `json:"rewind"` // turn of the rewind's start
	Runs   []string          `json:"runs"`   // runs that the rewind removes
	Keys   []string          `json:"keys"`   // histories that change
}

// tellRewound records a rewind here and in Redis, and sends it to the other processes. Unreachable processes find it in
// Redis.
func (s *Rewinder) tellRewound(ctx context.Context, fact rewound) error {
	if err := s.applyRewound(ctx, fact); err != nil {
		return err
	}
	var cuts []string
	for _, key := range fact.Keys {
		k, _ := memory.ParseKey(key)
		cuts = append(cuts, erasures.HandCut(k))
	}
	if err := s.NoteAll(ctx, fact.Turn, cuts); err != nil {
		return err
	}
	var names []string
	for _, run := range fact.Runs {
		names = append(names, erasures.Rewound(fact.Chat.Chat, run))
	}
	if err := s.NoteAll(ctx, fact.Rewind, names); err != nil {
		return err
	}
	for runs := fact.Runs; ; {
		part := fact
		part.Runs = runs[:min(len(runs), 10_000)]
		err := node.AskAll(ctx, s.Peers, http.MethodPost, "/rewinds", part, func(struct{}) {}, func(p redisstore.Process,
			err error) {
			s.Log.Warn().Err(err).Str("process", p.ID).Msg("another process has not applied a rewind yet; it does when it looks")
		})
		if err != nil {
			s.Log.Warn().Err(err).Msg("other processes are not known; they apply a rewind when they look")
		}
		if runs = runs[len(part.Runs):]; len(runs) == 0 {
			return nil
		}
	}
}

// PostRewound handles POST /internal/v1/rewinds. Another process sends it to announce a rewind.
func (s *Rewinder) PostRewound(c *gin.Context, fact rewound) error {
	if fact.Chat.Chat.IsZero() || fact.Turn <= 0 || fact.Rewind <= 0 {
		return problem.BadRequest("A rewind has a chat, a turn and the turn in which it began.")
	}
	return api.Answer(c.Writer, http.StatusOK, struct{}{}, s.applyRewound(c.Request.Context(), fact))
}

// applyRewound drops what this process and its disk hold of rewound runs. It also erases the chat's conversations at
// the gateway. It records the cuts of fact, if there are any, before it drops runs.
func (s *Rewinder) applyRewound(ctx context.Context, fact rewound) error {
	if err := s.EraseConversations(ctx, fact.Chat.Chat, fact.Turn); err != nil {
		return err
	}
	cuts := map[string]int64{}
	for _, name := range fact.Keys {
		key, ok := memory.ParseKey(name)
		if !ok || key.Chat() != fact.Chat.Chat {
			return problem.BadRequest("%.200q is no history of the chat.", name)
		}
		cuts[name] = fact.Turn
	}
	names := map[string]int64{}
	for _, run := range fact.Runs {
		names[erasures.Rewound(fact.Chat.Chat, run)] = fact.Rewind
	}
	if err := errors.Join(s.Cfg.Cuts.Add(cuts), s.Follower.File.Add(names)); err != nil {
		return err
	}
	for name := range cuts {
		key, _ := memory.ParseKey(name)
		s.Cache.Forget(key)
	}
	for _, run := range fact.Runs {
		s.Registry.Mu.Lock()
		if r := s.Registry.Live[run]; r != nil && r.Chat == fact.Chat.Chat && r.Expired(0) && r.Turn.Load() < fact.Rewind {
			s.Registry.Unlist(r)
		}
		s.Registry.Mu.Unlock()
		if head, lines := s.EndStore.Find(fact.Chat.Chat, run); len(lines) > 0 && head.Turn < fact.Rewind {
			err := errors.Join(s.EndStore.RemoveRun(fact.Chat.Chat, run),
				s.EndStore.RemoveRun(fact.Chat.Chat, node.CallsFile+run))
			if err != nil {
				return err
			}
		}
	}
	if err := s.Sessions.Remove(fact.Chat.Chat); err != nil {
		return err
	}
	s.Follower.Mu.Lock()
	defer s.Follower.Mu.Unlock()
	maps.Copy(s.Follower.Applied, names)
	return nil
}

// followRewinds applies the rewinds of other processes that this process has not received.
func (s *Rewinder) followRewinds(ctx context.Context, turns map[string]int64) error {
	facts := map[memory.Chat]map[int64]*rewound{}
	s.Follower.Mu.Lock()
	for name, turn := range turns {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn <= s.Follower.Applied[name] {
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
	s.Follower.Mu.Unlock()
	for _, byTurn := range facts {
		for _, fact := range byTurn {
			if err := s.applyRewound(ctx, *fact); err != nil {
				return err
			}
		}
	}
	return nil
}

// RewindsOf returns a function like RewoundSince for the runs of a chat. It also covers rewinds that only Redis knows
// yet.
func (s *Rewinder) RewindsOf(ctx context.Context, chat memory.Chat) (func(run string, turn int64) bool, error) {
	s.Follower.Mu.Lock()
	startTurn := s.Follower.StartTurn
	s.Follower.Mu.Unlock()
	turns, err := s.Store.Erasures.ListSince(ctx, startTurn)
	return func(run string, turn int64) bool {
		name := erasures.Rewound(chat, strings.TrimSuffix(run, memory.ClosingSuffix))
		return turns[name] > turn || s.RewoundSince(chat, run, turn)
	}, err
}

// restoreRewinds repeats the rewinds that this disk knows and Redis has lost.
func (s *Rewinder) restoreRewinds(ctx context.Context) error {
	recorded, err := s.Follower.File.Turns()
	if err != nil {
		return err
	}
	stored, err := s.Store.Erasures.ListSince(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	forgotten := map[memory.Chat]map[string]int64{}
	for name, turn := range recorded {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn < oldest || turn <= stored[name] {
			continue
		}
		if recorded[erasures.Restored(chat, strconv.FormatInt(turn, 10))] > 0 {
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

// rewindAgain removes what each run wrote before the turn of its rewind. runs maps a run to that turn.
func (s *Rewinder) rewindAgain(ctx context.Context, chat memory.Chat, runs map[string]int64) error {
	keys, err := s.Store.Chats.Keys(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	loaded := make([]*memory.History, 0, len(keys))
	for _, key := range keys {
		loaded = append(loaded, memory.Empty(key))
	}
	if loaded, err = s.Store.Load(ctx, 0, loaded...); err != nil {
		return err
	}
	cut, byTurn := int64(0), map[int64][]string{}
	for run, turn := range runs {
		cut = max(cut, turn)
		byTurn[turn] = append(byTurn[turn], erasures.Rewound(chat, run))
	}
	for _, h := range loaded {
		_, err := s.Store.Rewinds.TakeBack(ctx, 0, cut, h, s.Cfg.MaxHistory, func(id string, raw json.RawMessage) bool {
			msg, _ := past.HeadOf(raw)
			return runs[memory.RunOf(id)] > 0 && msg.Timestamp*1000 < float64(runs[memory.RunOf(id)])
		}, past.Heads(nil).ContainsNone(past.NoID), past.Heads(nil).ContainsOnly(past.NoID))
		if err != nil {
			return err
		}
	}
	err = s.takeBackBeside(ctx, redisstore.NoTurn, chat, keys, func(n memory.Note) bool {
		return runs[memory.RunOf(n.Message)] > 0 && n.TS*1000 < float64(runs[memory.RunOf(n.Message)])
	}, slices.Collect(maps.Keys(runs)))
	if err != nil {
		return err
	}
	for turn, names := range byTurn {
		if err := s.NoteAll(ctx, turn, names); err != nil {
			return err
		}
	}
	return nil
}

// dropRewound deletes all set-aside messages of a chat, because they may contain text of any history.
func (s *Rewinder) dropRewound(ctx context.Context, chat memory.Chat) error {
	return s.Store.Rewinds.Drop(ctx, chat, math.MaxInt64, 0)
}
