package webmemory

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
	"mneme/webmemory/problem"
)

// This file is about a run as this process holds it, and about the list of those: the
// running ones, and, as a cache, those that ended lately.

// registry holds the runs that this process has in memory, running and lately finished ones, and says what it knows of
// them to other processes. It writes nothing. A run is in it for as long as its readers may come here, and leaves it
// when it was taken back or erased: a reader gets no event of a run that is gone.
type registry struct {
	*core

	mu       sync.Mutex
	live     map[string]*run // guarded by mu: running and lately finished, by run id
	finished finished        // guarded by mu: those of live that are over
	oneShots map[string]*run // guarded by mu: running ones, which are not in live: nothing is kept of them
	draining bool            // guarded by mu
}

// run is one message while it is answered, and for a while after: its events, and what
// posts that repeat it have to know.
type run struct {
	id   string
	chat memory.Chat
	body string   // hash of what was posted; the same key with another body is refused
	log  *api.Log // its events, each stored before it is here

	trail telemetry.Trail // of the post that began it, or of its own
	span  *tracing.Span   // that trail stands for; nil for none. Set before turn
	began time.Time

	remote   bool // another process had it, or has it, and may have shown events that are not here yet
	finished bool // it was over when this copy of it was begun

	user    memory.User    // under whom it was posted; zero for nobody who has notes. Set before turn
	images  []memory.Image // that came with the post
	keyed   bool           // a post may repeat it, by its Idempotency-Key
	attempt int            // at what was posted: 1, 2 …
	first   string         // run of the first attempt, if this is another one
	retryOf string         // run of the attempt before, if this is another one
	// goesBack is what its post does if it takes something back: rewinds or regenerates.
	goesBack string
	refused  error // why it never ran; set before posted is closed
	// startPayloads is how the run begins, as the apiserver was asked for it here.
	startPayloads []event.Payload
	// reportsLoss says that the run tells of a loss, under the store's mark in epoch.
	reportsLoss bool
	epoch       string

	posted chan struct{} // closed once the apiserver has the run, or never will
	done   chan struct{} // closed when nothing more happens here

	// counted is its place among the runs at once of its key, its tenant and its user; nil for none. Set before turn
	counted *limit.Run

	turn  atomic.Int64  // in which it runs; 0 before it has one
	place *list.Element // guarded by registry.mu: among the finished ones; nil if it is not there
	size  int           // guarded by registry.mu: what it takes of them, in bytes

	mu         sync.Mutex
	token      string                  // guarded by mu: what its agents show to reach the memory; empty once it is over
	leaseToken string                  // guarded by mu: token of the chat's lease
	windows    map[memory.Key]windowed // guarded by mu: what its agents were shown of the memory
	client     *api.Client             // guarded by mu: where the run is; nil before it is posted
	endTime    time.Time               // guarded by mu; zero while it runs
	// ownCalls are the calls of tools outside that a run without a chat was granted; nil for one of a chat.
	ownCalls *ownCalls
	// conversation is the gateway's, in which it runs; guarded by mu.
	conversation string
	// dismiss ends the wait for the chat's turn; guarded by mu, nil unless it waits.
	dismiss context.CancelCauseFunc
}

func newRun(id string, chat memory.Chat, body string) *run {
	trail := telemetry.New()
	trail.Run, trail.Chat = id, chat.String()
	return &run{
		trail: trail, began: time.Now(),
		id: id, chat: chat, body: body, log: api.NewLog(id, api.Limits{}),
		posted: make(chan struct{}), done: make(chan struct{}),
	}
}

// setDismiss notes what cancels the run's wait for the chat's lease; nil once it does not wait.
func (r *run) setDismiss(dismiss context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dismiss = dismiss
}

// accepted says whether a run's post is past the point where it may still turn out that
// another process has the run.
func (r *run) accepted() bool {
	select {
	case <-r.posted:
		return true
	default:
		return false
	}
}

// expired says whether the run ended longer than keep ago.
func (r *run) expired(keep time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.endTime.IsZero() && time.Since(r.endTime) >= keep
}

// close marks the run as over. Call it before its lease is returned: an erasure or a rewind that takes the lease next
// drops only runs that are over.
func (r *run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endTime = time.Now()
	r.token, r.windows = "", nil
}

// end closes the run and reports to waiters that nothing more happens to it in this process.
func (r *run) end() {
	r.close()
	r.counted.Leave()
	endSpan(r)
	close(r.done)
}

// windowed is a history and the messages of it that an agent was shown.
type windowed struct {
	history *memory.History
	window  []json.RawMessage
}

// lend lets the run's agents reach the memory of its chat by a token, until it is over.
func (r *run) lend(token string, windows map[memory.Key]windowed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token, r.windows = token, windows
}

// lends says whether a token is the one of lend.
func (r *run) lends(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(r.token)) == 1
}

// visibleIDs gives the ids of the messages of a history that the run's agents were shown.
func (r *run) visibleIDs(key memory.Key) map[string]bool {
	r.mu.Lock()
	w, ids := r.windows[key], map[string]bool{}
	r.mu.Unlock()
	if w.history == nil {
		return ids
	}
	raw, i := w.history.Raw(0), w.history.Len()-1
	rawIDs := memory.IDs(raw)
	for _, m := range slices.Backward(w.window) { // which is a part of all, in its order
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
func (r *run) head() endHead {
	r.mu.Lock()
	defer r.mu.Unlock()
	head := endHead{Chat: memory.StoredChat{Chat: r.chat}, Run: r.id, Turn: r.turn.Load(), Body: r.body,
		Conversation: r.conversation, Unkeyed: !r.keyed, First: r.first}
	if r.client != nil {
		head.Events = r.client.EventsURL(r.id)
	}
	return head
}

// logged are the run's events as its log in Redis holds them.
func (r *run) logged() (entries []redisstore.Logged) {
	for i, line := range r.log.Lines(0) {
		entries = append(entries, redisstore.Logged{Seq: int64(i) + 1, Line: line})
	}
	return entries
}

// collect waits for the run's end and gives what its events add up to; for a run that waits, what
// it waits for. A failed run is an *api.Problem.
func (r *run) collect(ctx context.Context) (webapi.Result, *webapi.Waiting, error) {
	out := webapi.NewCollected(r.id)
	for e, err := range r.log.Follow(ctx, 0, "assistant", "subagent_completion", "error", "run_waiting", "run_finished") {
		if err != nil {
			return out.Result, nil, err
		}
		out.Add(e)
	}
	if out.Outcome == webapi.OutcomeWaiting {
		return out.Result, &webapi.Waiting{Outcome: out.Outcome, RunID: r.id, Pending: out.Pending}, nil
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

// forgetRun takes a run off the list of this process.
func (s *registry) forgetRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlist(r)
}

// retire moves a run that has ended to the finished ones. Those that ended first
// leave while they take more than KeepBytes. What was left to another process is of
// no use here.
func (s *registry) retire(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[r.id] != r {
		return // erased, or taken up again
	}
	if r.log.Aborted() {
		delete(s.live, r.id)
		return
	}
	r.size = r.log.Size() + runSize
	r.place = s.finished.runs.PushBack(r)
	s.finished.bytes += r.size
	for s.finished.bytes > s.cfg.KeepBytes {
		s.unlist(s.finished.runs.Front().Value.(*run))
	}
}

// enlist puts a run on the list of this process, in the place of one with its id.
func (s *registry) enlist(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.live[r.id]; old != nil {
		s.unlist(old)
	}
	s.live[r.id] = r
}

// unlist takes a run off the list of this process; readers that have it go on. The
// caller holds mu.
func (s *registry) unlist(r *run) {
	if s.live[r.id] == r {
		delete(s.live, r.id)
	}
	if r.place != nil {
		s.finished.runs.Remove(r.place)
		s.finished.bytes -= r.size
		r.place = nil
	}
}

// expire lets go of what ended longer than KeepRuns ago.
func (s *registry) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := s.finished.runs.Front(); first != nil; first = s.finished.runs.Front() {
		r := first.Value.(*run)
		if !r.expired(s.cfg.KeepRuns) {
			return
		}
		s.unlist(r)
	}
}

// find gives the run of a path, nil if it neither is nor lately was in this process.
func (s *registry) find(c *gin.Context) (chat memory.Chat, r *run, err error) {
	chat, err = problem.ChatOf(c)
	if err != nil {
		return memory.Chat{}, nil, err
	}
	s.mu.Lock()
	r = s.live[c.Param("run")]
	s.mu.Unlock()
	if r != nil && (r.chat != chat || s.outdated(c.Request.Context(), r)) {
		r = nil
	}
	return chat, r, nil
}

// outdated says whether a run that is held here must not be shown any more: it was left to
// another process, it was taken back, or its chat was erased through another one. While Redis is away that
// cannot be known.
func (s *registry) outdated(ctx context.Context, r *run) bool {
	if r.log.Aborted() {
		return true
	}
	if !r.expired(0) {
		return false
	}
	erased, err := s.store.Erasures.Erased(ctx, memory.ChatKey(r.chat))
	if !s.rewoundSince(r.chat, r.id, r.turn.Load()) && (err != nil || erased <= r.turn.Load()) {
		return false // that Redis does not know the run says nothing: it may have lost it
	}
	s.forgetRun(r)
	return true
}

// runsHere are the runs of a chat that this process, or a dead one of its disk, has
// lately shown.
func (s *registry) runsHere(chat memory.Chat) []string {
	runs := s.endStore.runs(chat)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.live {
		if r.chat == chat && !slices.Contains(runs, id) {
			runs = append(runs, id)
		}
	}
	return runs
}

// dropRuns forgets the events of a chat's finished runs.
func (s *registry) dropRuns(chat memory.Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.live {
		if r.chat == chat && r.expired(0) {
			s.unlist(r)
		}
	}
}

// dismiss refuses all posts of this process that wait for a chat's lease: the chat was
// erased meanwhile.
func (s *registry) dismiss(chat memory.Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.live {
		if r.chat == chat {
			r.mu.Lock()
			if r.dismiss != nil {
				r.dismiss(problem.ErrErased)
			}
			r.mu.Unlock()
		}
	}
}

// register puts a run on the list of this process. If one with its id is there already,
// it gives that one instead.
func (s *registry) register(r *run) (other *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, &api.Problem{
			Status: http.StatusServiceUnavailable, Code: webapi.CodeShuttingDown, Retryable: true,
			Message: "The service is shutting down; please send the message again.",
		}
	}
	if other := s.live[r.id]; other != nil {
		return other, nil
	}
	s.live[r.id] = r
	return nil, nil
}

// endedRuns are those that ended here, or in a process with the same disk, oldest
// first.
func (s *registry) endedRuns() []endHead {
	heads := s.endStore.heads()
	s.mu.Lock()
	for _, r := range s.live {
		if r.log.Done() {
			heads = append(heads, r.head())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(heads, func(a, b endHead) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Run, b.Run))
	})
	return slices.CompactFunc(heads, func(a, b endHead) bool { return a.Run == b.Run })
}

// toAgents answers the agents of a run while this process holds it. That the chat's lease went to another process may
// be noticed by the run's driver, by its log or by the store first; the agents are told of it in one way.
func toAgents[T any](s *registry, answer func(c *gin.Context, r *run, req T) error) func(c *gin.Context) error {
	return func(c *gin.Context) error {
		s.mu.Lock()
		r := s.live[c.Param("run")]
		if r == nil {
			r = s.oneShots[c.Param("run")]
		}
		s.mu.Unlock()
		token, _ := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
		if r == nil || !r.lends(token) {
			return errNotHeld
		}
		telemetry.Concerns(c.Request.Context(), r.chat.String(), r.id)
		err := problem.Body(api.DecodeBody, maxBody, func(c *gin.Context, req T) error { return answer(c, r, req) })(c)
		if err != nil && problem.FromError(err).Code == webapi.CodeTurnMoved {
			err = errors.Join(errNotHeld, err)
		}
		return err
	}
}

// getKnown is GET /internal/v1/chats/{chat}/runs/{run}.
func (s *registry) getKnown(c *gin.Context, chat memory.Chat) error {
	head, lines := s.knownEvents(chat, c.Param("run"))
	if len(lines) == 0 {
		return errUnknownRun
	}
	out := knownRun{Run: head, Events: make([]json.RawMessage, len(lines))}
	for i, l := range lines {
		out.Events[i] = l
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// knownEvents is what this process knows of a run's events, from its memory or from its
// disk: also of one that it, or a dead process on the same disk, has brought to its end.
func (s *registry) knownEvents(chat memory.Chat, run string) (head endHead, lines [][]byte) {
	s.mu.Lock()
	r := s.live[run]
	s.mu.Unlock()
	if r != nil && r.chat == chat {
		head, lines = r.head(), r.log.Lines(0)
	}
	if r == nil || !r.log.Done() || lines == nil {
		if storedHead, storedLines := s.endStore.find(chat, run); len(storedLines) > len(lines) ||
			len(storedLines) == len(lines) && storedHead.Waiting != nil {
			head, lines = storedHead, storedLines
		}
	}
	return head, lines
}

// measure registers the gauges of the runs and posts in this process.
func measure(gauge func(name, help string, value func() float64), live *registry, waiting *queue) {
	gauge("mneme_waiting_messages", "Messages that wait for their chat's turn.", func() float64 {
		return float64(waiting.length())
	})
	gauge("mneme_finished_run_bytes", "Memory that finished runs take; what is over webmemory.finished_bytes leaves.",
		func() float64 {
			live.mu.Lock()
			defer live.mu.Unlock()
			return float64(live.finished.bytes)
		})
}

var errNotHeld = &api.Problem{
	Status: http.StatusForbidden, Code: "run_not_held",
	Message: "This process does not hold the run: another one has taken over its chat, the run is over or unknown, or " +
		"the token is not the one that the run was posted with.",
}
