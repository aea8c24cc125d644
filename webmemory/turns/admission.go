package turns

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Admission checks posts, and finds or starts the run of each. If a post has an idempotency key, its run's id is
// derived from the key. A repeated post therefore finds the first post's run. It joins that run or replays its answer.
// If that run failed and a retry may succeed, the repeated post starts another attempt with its own run.
//
// Admission writes nothing itself. It rejects an invalid post before it registers a run.
type Admission struct {
	*node.Core
	Registry *runs.Registry
	Streams  *runs.Streams
	Starter  *Starter
}

// Answering returns a handler that admits a request with post, and answers with an event stream or the run's result.
// Thousands of handlers wait here. post has returned by then, so the stack of each waiting goroutine is small.
func (s *Admission) Answering(post func(*gin.Context) (*Admitted, error)) func(*gin.Context) error {
	return func(c *gin.Context) error {
		a, err := post(c)
		switch {
		case err != nil:
			return err
		case a.answer == nil && prefersAsync(c.Request):
			c.Header("Preference-Applied", respondAsync)
			return api.Answer(c.Writer, http.StatusAccepted, webapi.Started{
				Outcome: webapi.OutcomeStarted, RunID: a.run.ID, Events: webapi.RunPath(a.run.Chat, a.run.ID) + "/events",
			}, nil)
		case a.stream:
			return s.Streams.ServeEvents(c, a.run)
		}
		return s.answerWhole(c, a)
	}
}

// respondAsync is the preference (RFC 7240) of a client that does not wait for the run.
const respondAsync = "respond-async"

func prefersAsync(r *http.Request) bool {
	for _, list := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(name), respondAsync) {
				return true
			}
		}
	}
	return false
}

// Admitted is the run that answers a post.
type Admitted struct {
	run    *runs.Run
	answer *runs.Final // the final answer, if it is stored already
	stream bool        // the client wants an event stream
}

// MessagePosted handles POST /v1/chats/{chat}/messages.
func (s *Admission) MessagePosted(c *gin.Context) (*Admitted, error) {
	chat, err := problem.ChatOf(c)
	if err != nil {
		return nil, err
	}
	var p webapi.MessageRequest
	if err := api.DecodeKnown(c.Writer, c.Request, node.MaxPost, &p); err != nil {
		return nil, err
	}
	if p.ChatID != nil && p.ChatID.ID() != chat.ID() {
		return nil, problem.BadRequest("chat_id in the body (%s) is not the chat of the path (%s).", p.ChatID.ID(), chat.ID())
	}
	return s.admit(c, chat, p, p.Stream || problem.AcceptsSSE(c.Request))
}

// ChatPosted handles POST /chat, the request format of the original service. It always streams.
func (s *Admission) ChatPosted(c *gin.Context) (*Admitted, error) {
	var p webapi.ChatRequest
	if err := api.DecodeKnown(c.Writer, c.Request, node.MaxPost, &p); err != nil {
		return nil, err
	}
	if p.CustomSystemPrompt != "" && p.Instructions != "" {
		return nil, problem.BadRequest("custom_system_prompt is instructions by its older name; send one of the two.")
	}
	if err := api.CheckInstructions("custom_system_prompt", p.CustomSystemPrompt); err != nil {
		return nil, err
	}
	p.Instructions = cmp.Or(p.Instructions, p.CustomSystemPrompt)
	if p.ChatID == nil {
		return nil, problem.BadRequest("chat_id is missing: it is a string or an integer.")
	}
	chat, err := problem.TenantOf(c).Chat(p.ChatID.ID())
	if err == nil {
		err = s.Tier.Wake(c.Request.Context(), chat)
	}
	if err != nil {
		return nil, err
	}
	return s.admit(c, chat, p.MessageRequest, true)
}

// admit checks a post and starts its run, or joins the run of an earlier post with the same idempotency key.
func (s *Admission) admit(c *gin.Context, chat memory.Chat, p webapi.MessageRequest, stream bool) (*Admitted, error) {
	images, err := s.check(&p)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(c.Request)
	if err != nil {
		return nil, err
	}
	r, answer, fresh, err := s.begin(c.Request.Context(), chat, p, images, key)
	if err != nil {
		return nil, err
	}
	c.Header(webapi.RunID, r.ID)
	if fresh || r.Attempt > 1 {
		// The client's stream position belongs to an earlier attempt or to a lost run.
		c.Request.Header.Del("Last-Event-ID")
		c.Request.URL.RawQuery = ""
	}
	return &Admitted{r, answer, stream}, nil
}

// answerWhole waits for the run's end and answers with its result.
//
//go:noinline
func (s *Admission) answerWhole(c *gin.Context, a *Admitted) error {
	if a.answer != nil {
		c.Data(a.answer.Status, "application/json; charset=utf-8", a.answer.Encoded())
		return nil
	}
	out, waiting, err := a.run.Collect(c.Request.Context())
	switch {
	case err != nil:
		return abandonedError(err)
	case waiting != nil:
		api.WriteJSON(c.Writer, http.StatusAccepted, waiting)
	default:
		api.WriteJSON(c.Writer, http.StatusOK, out)
	}
	return nil
}

// places maps each value of on_busy to the post's place in the chat's queue.
var places = map[string]runs.Place{"": runs.PlaceLast, webapi.Queue: runs.PlaceLast, webapi.Reject: runs.PlaceIdle, webapi.Interrupt: runs.PlaceFirst}

// check validates everything of a post that needs no lease, and fills in defaults. It returns the references of the
// post's images, and adds a line for each image to p.Message.
func (s *Admission) check(p *webapi.MessageRequest) (images []memory.Image, err error) {
	if strings.TrimSpace(p.Message) == "" && len(p.Images) == 0 {
		return nil, problem.BadRequest("message is missing or empty.")
	}
	if images, err = api.CheckImages(p.Images, p.ImagesBefore); err != nil {
		return nil, err
	}
	if p.Message = memory.WithImages(p.Message, images); len(p.Message) > memory.MaxMessage {
		return nil, &api.Problem{
			Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("A message may have %d bytes; this one has %d.", memory.MaxMessage, len(p.Message)),
		}
	}
	if _, ok := places[p.OnBusy]; !ok {
		return nil, problem.BadRequest("on_busy is queue, reject or interrupt, not %.80q.", p.OnBusy)
	}
	if err := checkBeside(p); err != nil {
		return nil, err
	}
	p.AgentVersion = cmp.Or(p.AgentVersion, webapi.Master)
	if !slices.Contains(s.versions(), p.AgentVersion) {
		return nil, &api.Problem{
			Status: http.StatusBadRequest, Code: webapi.CodeUnknownAgent,
			Message: fmt.Sprintf("There is no agent_version %.80q; there are: %s.", p.AgentVersion,
				strings.Join(s.versions(), ", ")),
		}
	}
	return images, nil
}

// versions returns the valid values of agent_version.
func (s *Admission) versions() []string {
	versions := []string{webapi.Master}
	for _, a := range s.Cfg.Agents() {
		versions = append(versions, string(a))
	}
	return versions
}

// idempotencyKey returns the request's idempotency key, or "" if it has none.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values(webapi.IdempotencyKey)
	if len(values) > 1 {
		return "", problem.BadRequest("There are %d Idempotency-Key headers; send one.", len(values))
	}
	key := r.Header.Get(webapi.IdempotencyKey)
	if len(key) > webapi.MaxKey {
		return "", problem.BadRequest("An Idempotency-Key has at most %d bytes; this one has %d.", webapi.MaxKey, len(key))
	}
	if strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", problem.BadRequest("An Idempotency-Key is printable ASCII, such as a UUID; %.40q is not.", key)
	}
	return key, nil
}

// begin returns the run of a post. fresh reports that this post started it. Otherwise an earlier post with the same
// idempotency key did, in this or another process. answer is the run's final answer, if it is stored.
//
// begin returns after the apiserver has accepted the run. A post that is refused before that leaves nothing stored.
func (s *Admission) begin(
	ctx context.Context, chat memory.Chat, p webapi.MessageRequest, images []memory.Image, key string,
) (result *runs.Run, answer *runs.Final, fresh bool, err error) {
	sum := sha256.Sum256([]byte(p.AgentVersion + "\x00" + p.Message + hashedBeside(p) + hashedImages(images)))
	for attempt := 1; ; {
		r := runs.NewRun(runID(chat, key, attempt), chat, hex.EncodeToString(sum[:]))
		telemetry.Concerns(ctx, chat.String(), r.ID)
		r.Trail = telemetry.FromContext(ctx)
		r.Keyed, r.Images = key != "", images
		if r.Attempt = attempt; attempt > 1 {
			r.First, r.RetryOf = runID(chat, key, 1), runID(chat, key, attempt-1)
		}
		result, answer, newer, err := s.try(ctx, r, p, key)
		if newer <= attempt || err != nil {
			return result, answer, result == r, err
		}
		attempt = newer
	}
}

// runID derives a run's id from the chat, the idempotency key and the attempt's number, so that a repeated post finds
// its run. Without a key the id is random.
func runID(chat memory.Chat, key string, attempt int) string {
	if key == "" {
		return rand.Text()
	}
	name := chat.String() + "\x00" + key // no header can contain the separator
	if attempt > 1 {
		name += "\x00" + strconv.Itoa(attempt)
	}
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// try makes one attempt at a post: it joins the run with the id of r, or starts r. If that run failed and a retry may
// succeed, or if a newer attempt exists, try returns no run. In both cases newer is the number of the attempt to make
// next.
func (s *Admission) try(
	ctx context.Context, r *runs.Run, p webapi.MessageRequest, key string,
) (result *runs.Run, answer *runs.Final, newer int, err error) {
	for {
		other, err := s.Registry.Register(r)
		if err != nil {
			return nil, nil, 0, err
		}
		if other == nil {
			break
		}
		if s.Registry.Outdated(ctx, other) {
			s.Registry.ForgetRun(other)
			continue
		}
		joined, err := other.Join(ctx, r)
		if err != nil {
			return nil, nil, 0, err
		}
		if joined != nil && key != "" && joined.MayPass() {
			return nil, nil, r.Attempt + 1, nil
		}
		if joined != nil {
			return joined, nil, 0, nil
		}
		// The earlier post was refused, but this one may still run.
	}
	record, newer, err := s.findOrStart(ctx, r, p, key)
	if err != nil || record != nil {
		r.Refused = err
		s.Registry.ForgetRun(r)
		r.End()
	}
	close(r.Posted)
	if err != nil || newer > r.Attempt {
		return nil, nil, newer, err
	}
	if record == nil {
		return r, nil, 0, nil
	}
	answer = storedAnswer(record)
	result = s.Streams.Mirror(ctx, r.Chat, r.ID, answer != nil)
	result.Attempt = r.Attempt
	return result, answer, 0, nil
}

// findOrStart returns the record of r if the run exists already. If a newer attempt exists, or should be made, newer is
// its number. If record is nil, findOrStart has started the run.
func (s *Admission) findOrStart(
	ctx context.Context, r *runs.Run, p webapi.MessageRequest, key string,
) (record *redisstore.Record, newer int, err error) {
	record, err = s.findRecord(ctx, r, key)
	if err != nil {
		return nil, 0, err
	}
	if record != nil {
		newer = record.Newest
		if answer := storedAnswer(record); newer == 0 && answer != nil && answer.MayPass() {
			newer = r.Attempt + 1
		}
		if record.Rewound {
			newer = max(newer, r.Attempt+1)
		}
		return record, newer, sameBody(record, r)
	}
	// A record from start belongs to a run that a concurrent post started.
	if record, err = s.Starter.start(ctx, r, p); err != nil || record == nil {
		return record, 0, err
	}
	if record.Rewound {
		newer = r.Attempt + 1
	}
	return record, newer, sameBody(record, r)
}

// findRecord returns the record in Redis of the run that an earlier post with the same idempotency key started, or nil.
// Another process may have started it, or this one before its last restart. If the run has ended, as its client may
// know, findRecord waits until the answer is stored.
func (s *Admission) findRecord(ctx context.Context, r *runs.Run, key string) (*redisstore.Record, error) {
	if key == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, node.StoreTimeout)
	defer cancel()
	for opening := time.Now().Add(time.Second); ; {
		record, err := s.Store.Runs.Record(ctx, r.Chat, r.ID)
		if err != nil || record == nil || record.Done() && !record.Torn() || record.Newest > r.Attempt {
			return record, err
		}
		line, err := s.Store.Runs.LastEvent(ctx, r.Chat, r.ID)
		if err != nil {
			return nil, err
		}
		if last, err := event.Decode(line); len(line) > 0 && (err != nil || !last.Terminal()) {
			return record, nil // the run is active
		}
		if len(line) == 0 {
			if ok, err := runs.IsNamed(ctx, s.Store, r.Chat, r.ID); err != nil || ok {
				return record, err
			}
			if time.Now().After(opening) { // until then its holder may be about to open it
				return nil, nil
			}
		}
		if node.Pause(ctx, node.Jitter(40*time.Millisecond)) != nil {
			return record, nil // the run's process did not store the answer in time
		}
	}
}

func sameBody(record *redisstore.Record, repeat *runs.Run) error {
	if record.Body != "" && record.Body != repeat.Body { // "": Redis lost the record before the answer was stored
		return problem.ErrKeyReused
	}
	return nil
}

// abandonedError returns the error that a waiting client gets if this process left its run. It replaces 409 and 503,
// which would mean that nothing ran: the run continues in another process.
func abandonedError(err error) error {
	p := *problem.FromError(err)
	if p.Status == http.StatusNotFound { // no apiserver has the run any more, and this process may not close it
		return fmt.Errorf("%w: %w", problem.ErrMayRun, err)
	}
	if p.Status == http.StatusConflict || p.Status == http.StatusServiceUnavailable {
		p.Status = http.StatusBadGateway
		p.Message = "The run was left by this process and goes on elsewhere; read the chat's history, or repeat the " +
			"message with its Idempotency-Key."
		return fmt.Errorf("%w: %w", &p, err)
	}
	return err
}

// storedAnswer returns the final answer in a record, or nil while the run is active.
func storedAnswer(record *redisstore.Record) *runs.Final {
	f := new(runs.Final)
	if len(record.Result) == 0 {
		return nil
	}
	if err := json.Unmarshal(record.Result, f); err != nil {
		return &runs.Final{Status: http.StatusInternalServerError,
			Body: json.RawMessage(`{"code":"internal","message":"The kept answer of this run is damaged; read the chat's ` +
				`history."}`)}
	}
	return f
}
