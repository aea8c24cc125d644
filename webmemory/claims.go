package webmemory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about calls of tools outside: an agent claims each before it makes it, by routes
// that take its run's token. A claim is granted once (set-if-absent) for all attempts at the
// run's post, under the fencing token of the chat's lease: so a call is made once or never. A run
// without a chat has no lease; see ownCalls.

// maxTool bounds the name of a tool, in bytes.
const maxTool = 256

// PostClaim is POST /internal/v1/runs/{run}/calls.
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
	err := r.Log.Reach(ctx, req.Seq) // what is in the log is stored
	if errors.Is(err, context.DeadlineExceeded) && c.Request.Context().Err() == nil {
		return problem.BadRequest("Event %d of the run has not come: emit the event of a call before the call is claimed.",
			req.Seq)
	}
	if err != nil {
		return err
	}
	id := callID(r.FirstRun(), req)
	call := redisstore.Call{Run: r.Id, Subagent: req.Subagent, Tool: req.Tool, N: req.N, ClaimedAt: time.Now().UnixMilli()}
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

// claim asks for a call by its id where the run's calls are.
func (s *ToolCalls) claim(ctx context.Context, r *Run, id string, c redisstore.Call, repeatable bool) (word string,
	result []byte, err error) {
	if r.OwnCalls == nil {
		return s.claimOnce(ctx, r, id, c, repeatable)
	}
	word, result = r.OwnCalls.claim(id, repeatable)
	return word, result, nil
}

// settle keeps what a call returned where the run's calls are.
func (s *ToolCalls) settle(ctx context.Context, r *Run, id string, result []byte) (granted bool, err error) {
	if r.OwnCalls == nil {
		return s.settleOnce(ctx, r, id, result)
	}
	return r.OwnCalls.settle(id, result), nil
}

// OwnCalls are the calls of a one-shot. Only this process runs it.
type OwnCalls struct {
	mu      sync.Mutex
	results map[string][]byte // by the call's id, nil for one that has none; guarded by mu
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

// PostSettle is POST /internal/v1/runs/{run}/calls/{call}.
func (s *ToolCalls) PostSettle(c *gin.Context, r *Run, req api.SettleRequest) error {
	if len(req.Result) > MaxResult {
		return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("A result may have %d bytes; this one has %d.", MaxResult, len(req.Result))}
	}
	raw, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), StoreTimeout)
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

// FirstRun is the run of the first attempt at what was posted.
func (r *Run) FirstRun() string {
	if r.First != "" {
		return r.First
	}
	return r.Id
}

// holder is the token of the lease that the run has, and its turn; empty once it is over.
func (r *Run) holder() (token string, turn int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.token == "" {
		return "", r.Turn.Load()
	}
	return r.LeaseToken, r.Turn.Load()
}

// callID follows from what is called, so that it is the same in every attempt at the call.
func callID(first string, c memory.ClaimRequest) string {
	h := sha256.New()
	for _, part := range []string{first, string(c.Subagent), c.Tool, string(canonical(c.Arguments)), strconv.Itoa(c.N)} {
		fmt.Fprintf(h, "%d\x00%s", len(part), part)
	}
	return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
}

// canonical is JSON with the members of objects in their order and numbers as they stand.
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
