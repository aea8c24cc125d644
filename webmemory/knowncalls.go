package webmemory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// This file is about calls of tools outside, and answers to waits, that Redis has forgotten, as after a failover or a
// restart from an older state: a call must not be made once more then. What a process grants is on its disk before it
// tells so, and other processes are asked for theirs before a call is granted, or a run goes on that waits, for a while
// after each loss. Where neither the process is left that granted a call nor its disk, nothing tells of the call.

// ToolCalls grants calls of tools outside and keeps what they returned, in Redis and on this disk. A call is granted
// once: while Redis may have forgotten one, the other processes are asked first.
type ToolCalls struct {
	*Core
	Peers      *Peers
	StoreWatch *StoreWatch
}

// callsFile begins the names of files of calls; an id of a run does not begin with it.
const CallsFile = "calls-"

// CallLine is a line of a file of calls: a field of the calls in Redis, or answers.
type CallLine struct {
	Chat    memory.StoredChat `json:"chat"`
	Run     string            `json:"run"` // that was granted the call, or answered
	Field   string            `json:"field,omitempty"`
	Value   string            `json:"value,omitempty"`
	Seq     int64             `json:"seq,omitempty"`     // number of the run's newest event when the call was granted
	Answers map[string]string `json:"answers,omitempty"` // by the wait's id
	Until   int64             `json:"until,omitempty"`   // Unix ms until which the answers are kept
}

// KnownCalls is what is known of the calls of a post's runs.
type KnownCalls struct {
	Fields map[string]string   `json:"fields"` // as in Redis: calls by their ids, results by redisstore.ResultOf
	Runs   map[string]runCalls `json:"runs"`
}

// runCalls is what is known of one of the runs.
type runCalls struct {
	Answers map[string]string `json:"answers"` // to its waits, by the wait's id
	Until   int64             `json:"until"`   // Unix ms until which they are kept
	Called  int64             `json:"called"`  // number of its newest event when it was granted its newest call; 0 for none
}

// with is what two processes, or two lines, know of a run together.
func (r runCalls) with(other runCalls) runCalls {
	answers := map[string]string{}
	maps.Copy(answers, r.Answers)
	maps.Copy(answers, other.Answers)
	return runCalls{answers, max(r.Until, other.Until), max(r.Called, other.Called)}
}

// NoteCall appends a line to the file of a post's calls, which it keeps for life. first is the run of the post's first
// attempt.
func (e *EndStore) NoteCall(first string, l CallLine, life time.Duration) {
	path := e.path(l.Chat.Chat, CallsFile+first)
	text, err := json.Marshal(l)
	if e.Dir == "" || path == "" || err != nil {
		return
	}
	until := time.Now().Add(life)
	e.put(l.Chat.Chat, len(text)+1, func() error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(append(text, '\n'))
		return errors.Join(err, f.Close(), os.Chtimes(path, until, until))
	})
}

// Calls reads what noteCall kept. A line that is not whole, or another chat's, is passed over, and so is a call that a
// run was granted which was taken back since, with its result.
func (e *EndStore) Calls(chat memory.Chat, first string) KnownCalls {
	calls := KnownCalls{Fields: map[string]string{}, Runs: map[string]runCalls{}}
	path := e.path(chat, CallsFile+first)
	if e.Dir == "" || path == "" {
		return calls
	}
	text, _ := os.ReadFile(path) // absent in most cases
	for line := range bytes.Lines(text) {
		var l CallLine
		if json.Unmarshal(line, &l) != nil || l.Chat.Chat != chat {
			continue
		}
		if l.Field != "" {
			calls.Fields[l.Field] = l.Value
			delete(calls.Fields, redisstore.ResultOf(l.Field)) // a call that has one is not granted
		}
		calls.Runs[l.Run] = calls.Runs[l.Run].with(runCalls{l.Answers, l.Until, l.Seq})
	}
	for id, value := range calls.Fields {
		var c redisstore.Call
		if json.Unmarshal([]byte(value), &c) == nil && c.Run != "" && e.TakenBack(chat, c.Run, c.ClaimedAt) {
			delete(calls.Fields, id)
			delete(calls.Fields, redisstore.ResultOf(id))
		}
	}
	return calls
}

// Add takes what another process knows.
func (k KnownCalls) Add(other KnownCalls) {
	maps.Copy(k.Fields, other.Fields)
	for run, theirs := range other.Runs {
		k.Runs[run] = k.Runs[run].with(theirs)
	}
}

// Get is GET /internal/v1/chats/{chat}/calls/{run}.
func (e *EndStore) Get(c *gin.Context, chat memory.Chat) error {
	return api.Answer(c.Writer, http.StatusOK, e.Calls(chat, c.Param("run")), nil)
}

// CallsOf is what is known of the calls of a post's runs: here, and, while Redis may lack it, in the other processes.
func (s *ToolCalls) CallsOf(ctx context.Context, chat memory.Chat, first string) (KnownCalls, error) {
	calls := s.EndStore.Calls(chat, first)
	if !s.StoreWatch.LostLately(ctx) {
		return calls, nil
	}
	var peerErr error
	err := AskAll(ctx, s.Peers, http.MethodGet,
		"/chats/"+url.PathEscape(chat.String())+"/calls/"+url.PathEscape(first), nil,
		calls.Add, func(_ redisstore.Process, err error) {
			if refusal := new(api.Problem); !errors.As(err, &refusal) { // as of a version that does not know the question
				peerErr = err
			}
		})
	if err != nil || peerErr == nil || s.StoreWatch.Losses.Newest().IsZero() { // which only began lately
		return calls, err
	}
	if s.StoreWatch.Losses.Noticed(s.Cfg.GrantWait) {
		return calls, fmt.Errorf("%w: %w", ErrMayComeBack, peerErr)
	}
	s.Metrics.Faults.WithLabelValues(UnsureGrant).Inc()
	s.Log.Warn().Err(peerErr).Str("chat", chat.String()).Str("run", first).
		Msg("calls of a run that this process cannot tell of may have been made; it is not waited for any longer")
	return calls, nil
}

// claimOnce asks Redis for a call of a chat's run. What Redis lost of the run's calls is put back first; was it
// another server that granted this one, with losses that are not known yet, the grant is taken back.
func (s *ToolCalls) claimOnce(ctx context.Context, r *Run, id string, c redisstore.Call, repeatable bool) (word string,
	result []byte, err error) {
	token, turn := r.holder()
	if token == "" {
		return "", nil, ErrNotHeld
	}
	first := r.FirstRun()
	for {
		lastLoss := s.StoreWatch.Losses.Newest()
		if s.StoreWatch.Losses.IsRecent() {
			calls, err := s.CallsOf(ctx, r.Chat, first)
			if err == nil {
				err = s.Store.Runs.RestoreCalls(ctx, r.Chat, token, first, calls.Fields)
			}
			if err != nil {
				return "", nil, err
			}
		}
		word, result, err = s.Store.Runs.Claim(ctx, r.Chat, token, turn, first, id, c, repeatable)
		if err != nil || word != memory.CallGranted {
			return word, result, err
		}
		if s.StoreWatch.LostLately(ctx); s.StoreWatch.Losses.Newest().Equal(lastLoss) {
			record, err := json.Marshal(c)
			s.noteCall(r, CallLine{Field: id, Value: string(record), Seq: r.Log.Last()})
			return word, nil, err
		}
		if err := s.Store.Runs.Unclaim(ctx, r.Chat, first, id); err != nil {
			return "", nil, err
		}
	}
}

// settleOnce keeps what a call of a chat's run returned. Where Redis has lost the call, its result goes back with it.
func (s *ToolCalls) settleOnce(ctx context.Context, r *Run, id string, result []byte) (granted bool, err error) {
	_, turn := r.holder()
	granted, err = s.Store.Runs.Settle(ctx, r.Chat, turn, r.FirstRun(), id, result)
	if !granted && !errors.Is(err, memory.ErrMoved) {
		if _, granted = s.EndStore.Calls(r.Chat, r.FirstRun()).Fields[id]; granted {
			err = nil
		}
	}
	if granted {
		s.noteCall(r, CallLine{Field: redisstore.ResultOf(id), Value: string(result)})
	}
	return granted, err
}

// PutCallsBack tells Redis again what is known of the calls of a run's post, of which first is the first run, and of
// the run's answers, under the token of the chat's lease.
func (s *ToolCalls) PutCallsBack(ctx context.Context, l *Lease, run, first string, calls KnownCalls) error {
	err := s.Store.Runs.RestoreCalls(ctx, l.Chat, l.Token, first, calls.Fields)
	rc := calls.Runs[run]
	if err != nil || len(rc.Answers) == 0 {
		return err
	}
	stored, err := s.Store.Suspensions.Answers(ctx, l.Chat, run)
	if err != nil {
		return err
	}
	maps.Copy(rc.Answers, stored)
	return s.Store.Suspensions.KeepAnswers(ctx, l.Chat, run, rc.Until, rc.Answers)
}

// putOwnCallsBack is putCallsBack for a run under its lease, of what this disk knows.
func putOwnCallsBack(ctx context.Context, d *Driver) error {
	first := d.Run.FirstRun()
	return d.runner.ToolCalls.PutCallsBack(ctx, d.writer.Lease, d.Run.Id, first,
		d.runner.EndStore.Calls(d.Run.Chat, first))
}

// noteCall keeps a line about a run on disk, for the processes that ask for it after Redis lost data.
func (s *ToolCalls) noteCall(r *Run, l CallLine) {
	l.Chat, l.Run = memory.StoredChat{Chat: r.Chat}, r.Id
	s.EndStore.NoteCall(r.FirstRun(), l, s.Cfg.RunTimeout+EndsLife)
}
