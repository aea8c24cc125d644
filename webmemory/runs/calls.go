package runs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// maxTool bounds the name of a tool, in bytes.
const maxTool = 256

// PostClaim handles POST /internal/v1/runs/{run}/calls.
func (s *ToolCalls) PostClaim(c *gin.Context, r *Run, req memory.ClaimRequest) error {
	if req.Subagent != "" {
		if _, err := memory.ParseAgent(string(req.Subagent)); err != nil {
			return err
		}
	}
	if req.Tool == "" || len(req.Tool) > maxTool {
		return problem.BadRequest("tool is the name of a tool, of 1 to %d bytes.", maxTool)
	}
	if !IsObject(req.Arguments) {
		return problem.BadRequest("arguments is missing or no object.")
	}
	if req.N < 1 || req.Seq < 0 {
		return problem.BadRequest("n is a whole number from 1 on, and after one from 0 on.")
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.Cfg.ResumeWait)
	defer cancel()
	err := r.Log.Reach(ctx, req.Seq) // events in the log are stored
	if errors.Is(err, context.DeadlineExceeded) && c.Request.Context().Err() == nil {
		return problem.BadRequest("Event %d of the run has not come: emit the event of a call before the call is claimed.",
			req.Seq)
	}
	if err != nil {
		return err
	}
	id := callID(r.FirstRun(), req)
	call := redisstore.Call{Run: r.ID, Subagent: req.Subagent, Tool: req.Tool, N: req.N, ClaimedAt: time.Now().UnixMilli()}
	word, result, err := s.claim(ctx, r, id, call, req.Repeatable)
	if err != nil {
		return err
	}
	out := memory.Claimed{CallID: id, State: word}
	if word == memory.CallDone {
		var stored api.SettleRequest
		if err := json.Unmarshal(result, &stored); err != nil {
			out.State = memory.CallUnknown
		}
		out.Result, out.Failed = stored.Result, stored.Failed
	}
	s.Metrics.Claims.WithLabelValues(out.State).Inc()
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// claim claims call id in Redis, or in r.OwnCalls for a run without a chat.
func (s *ToolCalls) claim(ctx context.Context, r *Run, id string, c redisstore.Call, repeatable bool) (word string,
	result []byte, err error) {
	if r.OwnCalls == nil {
		return s.claimOnce(ctx, r, id, c, repeatable)
	}
	word, result = r.OwnCalls.claim(id, repeatable)
	return word, result, nil
}

// settle stores the result of call id in Redis, or in r.OwnCalls for a run without a chat.
func (s *ToolCalls) settle(ctx context.Context, r *Run, id string, result []byte) (granted bool, err error) {
	if r.OwnCalls == nil {
		return s.settleOnce(ctx, r, id, result)
	}
	return r.OwnCalls.settle(id, result), nil
}

// OwnCalls holds the calls of a one-shot run. Only this process runs it.
type OwnCalls struct {
	mu      sync.Mutex
	results map[string][]byte // guarded by mu: results by call id; nil without a result
}

func (o *OwnCalls) claim(id string, repeatable bool) (word string, result []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	result, granted := o.results[id]
	switch {
	case result != nil:
		return memory.CallDone, result
	case granted && !repeatable:
		return memory.CallUnknown, nil
	case o.results == nil:
		o.results = map[string][]byte{}
	}
	o.results[id] = nil
	return memory.CallGranted, nil
}

func (o *OwnCalls) settle(id string, result []byte) (granted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	previous, granted := o.results[id]
	if granted && previous == nil {
		o.results[id] = result
	}
	return granted
}

// PostSettle handles POST /internal/v1/runs/{run}/calls/{call}.
func (s *ToolCalls) PostSettle(c *gin.Context, r *Run, req api.SettleRequest) error {
	if len(req.Result) > MaxResult {
		return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("A result may have %d bytes; this one has %d.", MaxResult, len(req.Result))}
	}
	raw, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), node.StoreTimeout)
	defer cancel()
	granted, err := s.settle(ctx, r, c.Param("call"), raw)
	switch {
	case err == nil && !granted:
		err = &api.Problem{Status: http.StatusNotFound, Code: "unknown_call",
			Message: fmt.Sprintf("The run was granted no call %.80q.", c.Param("call"))}
	case err == nil:
		c.Status(http.StatusNoContent)
	}
	return err
}

// FirstRun returns the run of the first attempt at the post.
func (r *Run) FirstRun() string {
	if r.First != "" {
		return r.First
	}
	return r.ID
}

// holder returns the token and turn of the run's lease. After the run's end, token is empty.
func (r *Run) holder() (token string, turn int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.token == "" {
		return "", r.Turn.Load()
	}
	return r.LeaseToken, r.Turn.Load()
}

// callID derives the id from the call's content, so all attempts at the call share it.
func callID(first string, c memory.ClaimRequest) string {
	h := sha256.New()
	for _, part := range []string{first, string(c.Subagent), c.Tool, string(canonical(c.Arguments)), strconv.Itoa(c.N)} {
		fmt.Fprintf(h, "%d\x00%s", len(part), part)
	}
	return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
}

// canonical returns raw with sorted object members and unchanged number literals.
func canonical(raw json.RawMessage) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return raw
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return sorted
}

// ToolCalls grants external tool calls and stores their results, in Redis and on this disk. An agent claims each call
// with its run's token before it makes the call. A claim is set-if-absent under the chat's fencing token, for all
// attempts at the post. A call that is not repeatable is therefore made at most once. A run without a chat has no
// lease; see OwnCalls.
//
// Redis can lose calls and answers to waits, for example in a failover or a restart from an older state. ToolCalls
// therefore writes each grant to disk before it answers. For a while after a loss, it asks the other processes before
// it grants a call or a waiting run resumes. A call is forgotten only if its process and that process's disk are both
// lost.
type ToolCalls struct {
	*node.Core
	Peers      *node.Peers
	StoreWatch *node.StoreWatch
}

// CallsOf returns the calls of a post whose first run is first. While Redis may lack calls, it also asks the other
// processes. If a process does not answer, the error is problem.ErrMayComeBack until Cfg.GrantWait after the loss.
// Later, missing answers are ignored.
func (s *ToolCalls) CallsOf(ctx context.Context, chat memory.Chat, first string) (node.KnownCalls, error) {
	calls := s.EndStore.Calls(chat, first)
	if !s.StoreWatch.LostLately(ctx) {
		return calls, nil
	}
	var peerErr error
	err := node.AskAll(ctx, s.Peers, http.MethodGet,
		"/chats/"+url.PathEscape(chat.String())+"/calls/"+url.PathEscape(first), nil,
		calls.Add, func(_ redisstore.Process, err error) {
			if refusal := new(api.Problem); !errors.As(err, &refusal) { // a refusal comes from a version without this route
				peerErr = err
			}
		})
	if err != nil || peerErr == nil || s.StoreWatch.Losses.Newest().IsZero() { // no loss noticed, recent start
		return calls, err
	}
	if s.StoreWatch.Losses.Noticed(s.Cfg.GrantWait) {
		return calls, fmt.Errorf("%w: %w", problem.ErrMayComeBack, peerErr)
	}
	s.Metrics.Faults.WithLabelValues(node.UnsureGrant).Inc()
	s.Log.Warn().Err(peerErr).Str("chat", chat.String()).Str("run", first).
		Msg("calls of a run that this process cannot tell of may have been made; it is not waited for any longer")
	return calls, nil
}

// claimOnce claims a call of a chat's run in Redis, after it restores the calls that Redis lost. If it then notices a
// new loss, another server may have granted the call. In this case, it withdraws the grant and tries again.
func (s *ToolCalls) claimOnce(ctx context.Context, r *Run, id string, c redisstore.Call, repeatable bool) (word string,
	result []byte, err error) {
	token, turn := r.holder()
	if token == "" {
		return "", nil, problem.ErrNotHeld
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
			s.noteCall(r, node.CallLine{Field: id, Value: string(record), Seq: r.Log.Last()})
			return word, nil, err
		}
		if err := s.Store.Runs.Unclaim(ctx, r.Chat, first, id); err != nil {
			return "", nil, err
		}
	}
}

// settleOnce stores the result of a call of a chat's run. If Redis lost the call, the call and its result are restored
// from disk later.
func (s *ToolCalls) settleOnce(ctx context.Context, r *Run, id string, result []byte) (granted bool, err error) {
	_, turn := r.holder()
	granted, err = s.Store.Runs.Settle(ctx, r.Chat, turn, r.FirstRun(), id, result)
	if !granted && !errors.Is(err, memory.ErrMoved) {
		if _, granted = s.EndStore.Calls(r.Chat, r.FirstRun()).Fields[id]; granted {
			err = nil
		}
	}
	if granted {
		s.noteCall(r, node.CallLine{Field: redisstore.ResultOf(id), Value: string(result)})
	}
	return granted, err
}

// PutCallsBack restores the calls of a post and the answers of run in Redis, under l's token. first is the post's first
// run.
func (s *ToolCalls) PutCallsBack(ctx context.Context, l *Lease, run, first string, calls node.KnownCalls) error {
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

// putOwnCallsBack calls PutCallsBack for d's run with the calls on this disk.
func putOwnCallsBack(ctx context.Context, d *Driver) error {
	first := d.Run.FirstRun()
	return d.runner.ToolCalls.PutCallsBack(ctx, d.writer.Lease, d.Run.ID, first,
		d.runner.EndStore.Calls(d.Run.Chat, first))
}

// noteCall writes a line about a run to this disk. Other processes request it after Redis lost data.
func (s *ToolCalls) noteCall(r *Run, l node.CallLine) {
	l.Chat, l.Run = memory.StoredChat{Chat: r.Chat}, r.ID
	s.EndStore.NoteCall(r.FirstRun(), l, s.Cfg.RunTimeout+node.EndsLife)
}
