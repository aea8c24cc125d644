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

// Registry holds the active and the recently finished runs of this process. Other processes can request their events
// from it. It writes nothing.
//
// A run stays in it while readers may request it here. It removes rewound and erased runs, so readers get no events of
// a deleted run.
type Registry struct {
	*node.Core

	Mu       sync.Mutex
	Live     map[string]*Run // guarded by Mu: active and recently finished runs, by id
	finished finished        // guarded by Mu: the finished runs in Live
	OneShots map[string]*Run // guarded by Mu: active one-shot runs, by id; never in Live or stored
	Draining bool            // guarded by Mu
}

// Run is one message while it is answered and for a while after. It has the run's events and the data for repeated
// posts.
type Run struct {
	ID   string
	Chat memory.Chat
	Body string   // hash of the post; the same key with another body is rejected
	Log  *api.Log // events, each stored before it is added

	Trail telemetry.Trail // trail of the post that began the run, or the run's own
	span  *tracing.Span   // span of Trail; nil if none; set before Turn
	Began time.Time

	remote   bool // another process has or had it, and may have shown events that are missing here
	finished bool // it had ended before this copy was made

	User    memory.User    // user of the post; zero without a user who has notes; set before Turn
	Images  []memory.Image // images of the post
	Keyed   bool           // a post with the same Idempotency-Key may repeat it
	Attempt int            // number of the attempt at the post: 1, 2 …
	First   string         // run of the first attempt; empty in the first attempt
	RetryOf string         // run of the previous attempt; empty in the first attempt
	// GoesBack is node.Rewinds or node.Regenerates if the post takes something back.
	GoesBack string
	Refused  error // reason why it never ran; set before Posted is closed
	// StartPayloads holds the run's first events, as this process sent them to the apiserver.
	StartPayloads []event.Payload
	// ReportsLoss is set if the run reports a loss of data. Epoch is the store's mark for it.
	ReportsLoss bool
	Epoch       string

	Posted chan struct{} // closed once the apiserver has accepted the run or never will
	Done   chan struct{} // closed when this process has finished with the run

	// Counted is the run's entry in the concurrency limits of its key, tenant and user; nil if none. Set before Turn.
	Counted *limit.Run

	Turn  atomic.Int64  // turn of the run; 0 before it has one
	place *list.Element // guarded by Registry.Mu: position in finished; nil if absent
	size  int           // guarded by Registry.Mu: share of finished.bytes

	Mu         sync.Mutex
	token      string                  // guarded by Mu: token for the agents' access to the memory; empty after the end
	LeaseToken string                  // guarded by Mu: token of the chat's lease
	windows    map[memory.Key]Windowed // guarded by Mu: parts of the memory shown to the agents
	Client     *api.Client             // guarded by Mu: client of the run's apiserver; nil before the post
	endTime    time.Time               // guarded by Mu: time of the end; zero while it runs
	// OwnCalls holds the granted external tool calls of a run without a chat; nil for other runs.
	OwnCalls *OwnCalls
	// conversation is the gateway's conversation of the run; guarded by Mu.
	conversation string
	// dismiss cancels the wait for the chat's lease; guarded by Mu, nil without such a wait.
	dismiss context.CancelCauseFunc
}

// NewRun returns a run of chat. body is the hash of its post.
func NewRun(id string, chat memory.Chat, body string) *Run {
	trail := telemetry.New()
	trail.Run, trail.Chat = id, chat.String()
	return &Run{
		Trail: trail, Began: time.Now(),
		ID: id, Chat: chat, Body: body, Log: api.NewLog(id, api.Limits{}),
		Posted: make(chan struct{}), Done: make(chan struct{}),
	}
}

// SetDismiss sets the function that cancels the wait for the chat's lease; nil after the wait.
func (r *Run) SetDismiss(dismiss context.CancelCauseFunc) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.dismiss = dismiss
}

// accepted reports whether Posted is closed. Until then, it may turn out that another process has the run.
func (r *Run) accepted() bool {
	select {
	case <-r.Posted:
		return true
	default:
		return false
	}
}

// Expired reports whether the run ended at least keep ago.
func (r *Run) Expired(keep time.Duration) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return !r.endTime.IsZero() && time.Since(r.endTime) >= keep
}

// Close marks the run as ended. Call it before the lease is released: an erasure or a rewind that takes the lease next
// drops only ended runs.
func (r *Run) Close() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.endTime = time.Now()
	r.token, r.windows = "", nil
}

// End closes the run and signals waiters that this process has finished with it.
func (r *Run) End() {
	r.Close()
	r.Counted.Leave()
	endSpan(r)
	close(r.Done)
}

// Windowed is a history and the messages of it that were shown to an agent.
type Windowed struct {
	History *memory.History
	Window  []json.RawMessage
}

// lend lets the run's agents reach the memory of its chat with token, until the run ends.
func (r *Run) lend(token string, windows map[memory.Key]Windowed) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.token, r.windows = token, windows
}

// lends reports whether token is the current token of lend.
func (r *Run) lends(token string) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(r.token)) == 1
}

// VisibleIDs returns the ids of the history's messages that were shown to the run's agents.
func (r *Run) VisibleIDs(key memory.Key) map[string]bool {
	r.Mu.Lock()
	w, ids := r.windows[key], map[string]bool{}
	r.Mu.Unlock()
	if w.History == nil {
		return ids
	}
	raw, i := w.History.Raw(0), w.History.Len()-1
	rawIDs := memory.IDs(raw)
	for _, m := range slices.Backward(w.Window) { // a subset of all messages, in their order
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

// head returns the data that is stored with a run's events.
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

// Logged returns the run's events as its log in Redis holds them.
func (r *Run) Logged() (entries []redisstore.Logged) {
	for i, line := range r.Log.Lines(0) {
		entries = append(entries, redisstore.Logged{Seq: int64(i) + 1, Line: line})
	}
	return entries
}

// Collect waits until the run ends or needs an answer. It returns the combined result of the run's events, or the
// pending waits. The error of a failed run is an *api.Problem.
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

// finished is a cache of ended runs by end time, bounded in time and bytes. Removed runs are read from Redis, like runs
// of other processes. Guarded by Registry.Mu.
type finished struct {
	runs  list.List // of *Run, earliest end at the front
	bytes int       // approximate size of the runs
}

// runSize is the approximate size of a run without its events, in bytes.
const runSize = 2 << 10

// ForgetRun removes r from the registry.
func (s *Registry) ForgetRun(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Unlist(r)
}

// retire moves an ended run to the finished runs. Above Cfg.KeepBytes, it removes the runs that ended first. A run that
// was left to another process is deleted.
func (s *Registry) retire(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Live[r.ID] != r {
		return // erased, or replaced by a newer copy
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

// Enlist adds r to the registry and replaces a run with the same id.
func (s *Registry) Enlist(r *Run) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if old := s.Live[r.ID]; old != nil {
		s.Unlist(old)
	}
	s.Live[r.ID] = r
}

// Unlist removes r from the registry. Current readers of r continue. The caller holds s.Mu.
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

// Expire removes the runs that ended at least Cfg.KeepRuns ago.
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

// Find returns the chat and the run of a path. r is nil if the run is not in the registry or is outdated.
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

// Outdated reports whether a run in the registry must not be shown any more. Another process has the run, the run was
// rewound, or another process erased its chat. If Redis is unavailable, an erasure by another process is not noticed.
func (s *Registry) Outdated(ctx context.Context, r *Run) bool {
	if r.Log.Aborted() {
		return true
	}
	if !r.Expired(0) {
		return false
	}
	erased, err := s.Store.Erasures.Erased(ctx, memory.ChatKey(r.Chat))
	if !s.RewoundSince(r.Chat, r.ID, r.Turn.Load()) && (err != nil || erased <= r.Turn.Load()) {
		return false // a run missing in Redis proves nothing: Redis may have lost it
	}
	s.ForgetRun(r)
	return true
}

// RunsHere returns the runs of a chat that this process, or a dead process on its disk, has recently shown.
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

// DropRuns removes a chat's ended runs from the registry.
func (s *Registry) DropRuns(chat memory.Chat) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.Live {
		if r.Chat == chat && r.Expired(0) {
			s.Unlist(r)
		}
	}
}

// Dismiss rejects all posts of this process that wait for the chat's lease, because the chat was erased meanwhile.
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

// Register adds r to the registry. If a run with the same id exists, Register returns that run instead.
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

// EndedRuns returns the runs that ended in this process, or in another process on its disk, oldest first.
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

// ToAgents returns a handler for the agents of a run while this process holds it. The driver, the log or the store may
// be first to notice that another process has the chat's lease. The agents always get problem.ErrNotHeld.
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

// GetKnown handles GET /internal/v1/chats/{chat}/runs/{run}.
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

// KnownEvents returns a run's events from this process's memory or disk. The disk also has ended runs of this process
// and of dead processes.
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

// Measure registers the gauges of waiting posts and finished runs in this process.
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
