package runs

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/limit"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// This file is about a run as this process holds it, and about the list of those: the
// running ones, and, as a cache, those that ended lately.

// Registry holds the runs that this process has in memory, running and lately finished ones, and says what it knows of
// them to other processes. It writes nothing. A run is in it for as long as its readers may come here, and leaves it
// when it was taken back or erased: a reader gets no event of a run that is gone.
type Registry struct {
	*node.Core

	Mu       sync.Mutex
	Live     map[string]*Run // guarded by mu: running and lately finished, by run id
	finished finished        // guarded by mu: those of live that are over
	OneShots map[string]*Run // guarded by mu: running ones, which are not in live: nothing is kept of them
	Draining bool            // guarded by mu
}

// Run is one message while it is answered, and for a while after: its events, and what
// posts that repeat it have to know.
type Run struct {
	ID   string
	Chat memory.Chat
	Body string   // hash of what was posted; the same key with another body is refused
	Log  *api.Log // its events, each stored before it is here

	Trail telemetry.Trail // of the post that began it, or of its own
	span  *tracing.Span   // that trail stands for; nil for none. Set before turn
	Began time.Time

	remote   bool // another process had it, or has it, and may have shown events that are not here yet
	finished bool // it was over when this copy of it was begun

	User    memory.User    // under whom it was posted; zero for nobody who has notes. Set before turn
	Images  []memory.Image // that came with the post
	Keyed   bool           // a post may repeat it, by its Idempotency-Key
	Attempt int            // at what was posted: 1, 2 …
	First   string         // run of the first attempt, if this is another one
	RetryOf string         // run of the attempt before, if this is another one
	// GoesBack is what its post does if it takes something back: rewinds or regenerates.
	GoesBack string
	Refused  error // why it never ran; set before posted is closed
	// StartPayloads is how the run begins, as the apiserver was asked for it here.
	StartPayloads []event.Payload
	// ReportsLoss says that the run tells of a loss, under the store's mark in epoch.
	ReportsLoss bool
	Epoch       string

	Posted chan struct{} // closed once the apiserver has the run, or never will
	Done   chan struct{} // closed when nothing more happens here

	// Counted is its place among the runs at once of its key, its tenant and its user; nil for none. Set before turn
	Counted *limit.Run

	Turn  atomic.Int64  // in which it runs; 0 before it has one
	place *list.Element // guarded by registry.mu: among the finished ones; nil if it is not there
	size  int           // guarded by registry.mu: what it takes of them, in bytes

	Mu         sync.Mutex
	token      string                  // guarded by mu: what its agents show to reach the memory; empty once it is over
	LeaseToken string                  // guarded by mu: token of the chat's lease
	windows    map[memory.Key]Windowed // guarded by mu: what its agents were shown of the memory
	Client     *api.Client             // guarded by mu: where the run is; nil before it is posted
	endTime    time.Time               // guarded by mu; zero while it runs
	// OwnCalls are the calls of tools outside that a run without a chat was granted; nil for one of a chat.
	OwnCalls *OwnCalls
	// conversation is the gateway's, in which it runs; guarded by mu.
	conversation string
	// dismiss ends the wait for the chat's turn; guarded by mu, nil unless it waits.
	dismiss context.CancelCauseFunc
}

// NewRun returns a run of a chat with an id and the hash of its post.
func NewRun(id string, chat memory.Chat, body string) *Run {
	trail := telemetry.New()
	trail.Run, trail.Chat = id, chat.String()
	return &Run{
		Trail: trail, Began: time.Now(),
		ID: id, Chat: chat, Body: body, Log: api.NewLog(id, api.Limits{}),
		Posted: make(chan struct{}), Done: make(chan struct{}),
	}
}

// SetDismiss notes what cancels the run's wait for the chat's lease; nil once it does not wait.
func (r *Run) SetDismiss(dismiss context.CancelCauseFunc) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.dismiss = dismiss
}

// accepted says whether a run's post is past the point where it may still turn out that
// another process has the run.
func (r *Run) accepted() bool {
	select {
	case <-r.Posted:
		return true
	default:
		return false
	}
}

// Expired says whether the run ended longer than keep ago.
func (r *Run) Expired(keep time.Duration) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return !r.endTime.IsZero() && time.Since(r.endTime) >= keep
}

// Close marks the run as over. Call it before its lease is returned: an erasure or a rewind that takes the lease next
// drops only runs that are over.
func (r *Run) Close() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.endTime = time.Now()
	r.token, r.windows = "", nil
}

// End closes the run and reports to waiters that nothing more happens to it in this process.
func (r *Run) End() {
	r.Close()
	r.Counted.Leave()
	endSpan(r)
	close(r.Done)
}

// Windowed is a history and the messages of it that an agent was shown.
type Windowed struct {
	History *memory.History
	Window  []json.RawMessage
}

// lend lets the run's agents reach the memory of its chat by a token, until it is over.
func (r *Run) lend(token string, windows map[memory.Key]Windowed) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.token, r.windows = token, windows
}

// lends says whether a token is the one of lend.
func (r *Run) lends(token string) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(r.token)) == 1
}

// VisibleIDs gives the ids of the messages of a history that the run's agents were shown.
func (r *Run) VisibleIDs(key memory.Key) map[string]bool {
	r.Mu.Lock()
	w, ids := r.windows[key], map[string]bool{}
	r.Mu.Unlock()
	if w.History == nil {
		return ids
	}
	raw, i := w.History.Raw(0), w.History.Len()-1
	rawIDs := memory.IDs(raw)
	for _, m := range slices.Backward(w.Window) { // which is a part of all, in its order
		for i >= 0 && !bytes.Equal(raw[i], m) {
			i--
		}
		if i < 0 {
			break
		}
		ids[rawIDs[i]] = true
		i--
	}
	return ids
}

// head is what is kept of a run beside its events.
func (r *Run) head() node.EndHead {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	head := node.EndHead{Chat: memory.StoredChat{Chat: r.Chat}, Run: r.ID, Turn: r.Turn.Load(), Body: r.Body,
		Conversation: r.conversation, Unkeyed: !r.Keyed, First: r.First}
	if r.Client != nil {
		head.Events = r.Client.EventsURL(r.ID)
	}
	return head
}

// Logged are the run's events as its log in Redis holds them.
func (r *Run) Logged() (entries []redisstore.Logged) {
	for i, line := range r.Log.Lines(0) {
		entries = append(entries, redisstore.Logged{Seq: int64(i) + 1, Line: line})
	}
	return entries
}

// Collect waits for the run's end and gives what its events add up to; for a run that waits, what
// it waits for. A failed run is an *api.Problem.
func (r *Run) Collect(ctx context.Context) (webapi.Result, *webapi.Waiting, error) {
	out := webapi.NewCollected(r.ID)
	for e, err := range r.Log.Follow(ctx, 0, "assistant", "subagent_completion", "error", "run_waiting", "run_finished") {
		if err != nil {
			return out.Result, nil, err
		}
		out.Add(e)
	}
	if out.Outcome == webapi.OutcomeWaiting {
		return out.Result, &webapi.Waiting{Outcome: out.Outcome, RunID: r.ID, Pending: out.Pending}, nil
	}
	return out.Result, nil, out.Err()
}

// finished are the runs that are over and still held here, by when they ended: a cache,
// bounded in time and bytes. A request for one that has left reads it from Redis, as a
// run of another process. Guarded by registry.mu.
type finished struct {
	runs  list.List // of *run, the one that ended first at the front
	bytes int       // that they take, about
}

// runSize is about what a run takes in memory beside its events, in bytes.
const runSize = 2 << 10

// ForgetRun takes a run off the list of this process.
func (s *Registry) ForgetRun(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Unlist(r)
}

// retire moves a run that has ended to the finished ones. Those that ended first
// leave while they take more than KeepBytes. What was left to another process is of
// no use here.
func (s *Registry) retire(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Live[r.ID] != r {
		return // erased, or taken up again
	}
	if r.Log.Aborted() {
		delete(s.Live, r.ID)
		return
	}
	r.size = r.Log.Size() + runSize
	r.place = s.finished.runs.PushBack(r)
	s.finished.bytes += r.size
	for s.finished.bytes > s.Cfg.KeepBytes {
		s.Unlist(s.finished.runs.Front().Value.(*Run))
	}
}

// Enlist puts a run on the list of this process, in the place of one with its id.
func (s *Registry) Enlist(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if old := s.Live[r.ID]; old != nil {
		s.Unlist(old)
	}
	s.Live[r.ID] = r
}

// Unlist takes a run off the list of this process; readers that have it go on. The
// caller holds mu.
func (s *Registry) Unlist(r *Run) {
	if s.Live[r.ID] == r {
		delete(s.Live, r.ID)
	}
	if r.place != nil {
		s.finished.runs.Remove(r.place)
		s.finished.bytes -= r.size
		r.place = nil
	}
}

// Expire lets go of what ended longer than KeepRuns ago.
func (s *Registry) Expire() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for first := s.finished.runs.Front(); first != nil; first = s.finished.runs.Front() {
		r := first.Value.(*Run)
		if !r.Expired(s.Cfg.KeepRuns) {
			return
		}
		s.Unlist(r)
	}
}

// Find gives the run of a path, nil if it neither is nor lately was in this process.
func (s *Registry) Find(c *gin.Context) (chat memory.Chat, r *Run, err error) {
	chat, err = problem.ChatOf(c)
	if err != nil {
		return memory.Chat{}, nil, err
	}
	s.Mu.Lock()
	r = s.Live[c.Param("run")]
	s.Mu.Unlock()
	if r != nil && (r.Chat != chat || s.Outdated(c.Request.Context(), r)) {
		r = nil
	}
	return chat, r, nil
}

// Outdated says whether a run that is held here must not be shown any more: it was left to
// another process, it was taken back, or its chat was erased through another one. While Redis is away that
// cannot be known.
func (s *Registry) Outdated(ctx context.Context, r *Run) bool {
	if r.Log.Aborted() {
		return true
	}
	if !r.Expired(0) {
		return false
	}
	erased, err := s.Store.Erasures.Erased(ctx, memory.ChatKey(r.Chat))
	if !s.RewoundSince(r.Chat, r.ID, r.Turn.Load()) && (err != nil || erased <= r.Turn.Load()) {
		return false // that Redis does not know the run says nothing: it may have lost it
	}
	s.ForgetRun(r)
	return true
}

// RunsHere are the runs of a chat that this process, or a dead one of its disk, has
// lately shown.
func (s *Registry) RunsHere(chat memory.Chat) []string {
	runs := s.EndStore.Runs(chat)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for id, r := range s.Live {
		if r.Chat == chat && !slices.Contains(runs, id) {
			runs = append(runs, id)
		}
	}
	return runs
}

// DropRuns forgets the events of a chat's finished runs.
func (s *Registry) DropRuns(chat memory.Chat) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.Live {
		if r.Chat == chat && r.Expired(0) {
			s.Unlist(r)
		}
	}
}

// Dismiss refuses all posts of this process that wait for a chat's lease: the chat was
// erased meanwhile.
func (s *Registry) Dismiss(chat memory.Chat) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.Live {
		if r.Chat == chat {
			r.Mu.Lock()
			if r.dismiss != nil {
				r.dismiss(problem.ErrErased)
			}
			r.Mu.Unlock()
		}
	}
}

// Register puts a run on the list of this process. If one with its id is there already,
// it gives that one instead.
func (s *Registry) Register(r *Run) (other *Run, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Draining {
		return nil, &api.Problem{
			Status: http.StatusServiceUnavailable, Code: webapi.CodeShuttingDown, Retryable: true,
			Message: "The service is shutting down; please send the message again.",
		}
	}
	if other := s.Live[r.ID]; other != nil {
		return other, nil
	}
	s.Live[r.ID] = r
	return nil, nil
}

// EndedRuns are those that ended here, or in a process with the same disk, oldest
// first.
func (s *Registry) EndedRuns() []node.EndHead {
	heads := s.EndStore.Heads()
	s.Mu.Lock()
	for _, r := range s.Live {
		if r.Log.Done() {
			heads = append(heads, r.head())
		}
	}
	s.Mu.Unlock()
	slices.SortFunc(heads, func(a, b node.EndHead) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Run, b.Run))
	})
	return slices.CompactFunc(heads, func(a, b node.EndHead) bool { return a.Run == b.Run })
}

// ToAgents answers the agents of a run while this process holds it. That the chat's lease went to another process may
// be noticed by the run's driver, by its log or by the store first; the agents are told of it in one way.
func ToAgents[T any](s *Registry, answer func(c *gin.Context, r *Run, req T) error) func(c *gin.Context) error {
	return func(c *gin.Context) error {
		s.Mu.Lock()
		r := s.Live[c.Param("run")]
		if r == nil {
			r = s.OneShots[c.Param("run")]
		}
		s.Mu.Unlock()
		token, _ := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
		if r == nil || !r.lends(token) {
			return problem.ErrNotHeld
		}
		telemetry.Concerns(c.Request.Context(), r.Chat.String(), r.ID)
		err := problem.Body(api.DecodeBody, node.MaxBody, func(c *gin.Context, req T) error { return answer(c, r, req) })(c)
		if err != nil && problem.FromError(err).Code == webapi.CodeTurnMoved {
			err = errors.Join(problem.ErrNotHeld, err)
		}
		return err
	}
}

// GetKnown is GET /internal/v1/chats/{chat}/runs/{run}.
func (s *Registry) GetKnown(c *gin.Context, chat memory.Chat) error {
	head, lines := s.KnownEvents(chat, c.Param("run"))
	if len(lines) == 0 {
		return problem.ErrUnknownRun
	}
	out := node.KnownRun{Run: head, Events: make([]json.RawMessage, len(lines))}
	for i, l := range lines {
		out.Events[i] = l
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// KnownEvents is what this process knows of a run's events, from its memory or from its
// disk: also of one that it, or a dead process on the same disk, has brought to its end.
func (s *Registry) KnownEvents(chat memory.Chat, run string) (head node.EndHead, lines [][]byte) {
	s.Mu.Lock()
	r := s.Live[run]
	s.Mu.Unlock()
	if r != nil && r.Chat == chat {
		head, lines = r.head(), r.Log.Lines(0)
	}
	if r == nil || !r.Log.Done() || lines == nil {
		if storedHead, storedLines := s.EndStore.Find(chat, run); len(storedLines) > len(lines) ||
			len(storedLines) == len(lines) && storedHead.Waiting != nil {
			head, lines = storedHead, storedLines
		}
	}
	return head, lines
}

// Measure registers the gauges of the runs and posts in this process.
func Measure(gauge func(name, help string, value func() float64), live *Registry, waiting *Queue) {
	gauge("mneme_waiting_messages", "Messages that wait for their chat's turn.", func() float64 {
		return float64(waiting.length())
	})
	gauge("mneme_finished_run_bytes", "Memory that finished runs take; what is over webmemory.finished_bytes leaves.",
		func() float64 {
			live.Mu.Lock()
			defer live.Mu.Unlock()
			return float64(live.finished.bytes)
		})
}
