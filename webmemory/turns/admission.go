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

// This file is about admission: what a post may hold, and idempotency. A post with an
// idempotency key gives its run an id that follows from the key, so a repeated post finds
// the run of the first one: it joins it, replays its end, or, if it failed in a way that
// may pass, tries once more in a run of its own.

// Admission checks posts and gives each its run: the one that a post with the same key began, or a new one. It writes
// nothing itself; a post is refused before its run is registered, or is answered from the run.
type Admission struct {
	*node.Core
	Registry *runs.Registry
	Streams  *runs.Streams
	Starter  *Starter
}

// Answering is a handler of posts: post admits one, and it is answered by a stream of events, or
// with its run's result. Thousands wait in here while their runs go on; post has returned by
// then, so that each waiting goroutine's stack is small.
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

// Admitted is a run that answers a post.
type Admitted struct {
	run    *runs.Run
	answer *runs.Final // the answer, if it is known already
	stream bool        // of events is what the client wants
}

// MessagePosted is POST /v1/chats/{chat}/messages.
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

// ChatPosted is POST /chat, the shape of the original service; it always streams.
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

// admit checks a post, has it run, or joins the run of an earlier post with the same
// idempotency key.
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
		// The position is one in an earlier attempt, or in a run that is lost.
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

// places are what on_busy may say, and where each puts the post in the chat's line.
var places = map[string]runs.Place{"": runs.PlaceLast, webapi.Queue: runs.PlaceLast, webapi.Reject: runs.PlaceIdle, webapi.Interrupt: runs.PlaceFirst}

// check validates a post as far as no lease is needed for it, and fills in defaults. It gives the
// references of the post's images, and has its message say that they are there.
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

// versions are the values that agent_version may have.
func (s *Admission) versions() []string {
	versions := []string{webapi.Master}
	for _, a := range s.Cfg.Agents() {
		versions = append(versions, string(a))
	}
	return versions
}

// idempotencyKey is the request's idempotency key, empty if it has none.
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

// begin gives the run of a post: a new one, or the one that an earlier post with the same
// idempotency key began, here or in another process, with its final answer if that was
// kept. It returns once the apiserver has accepted the run; a post refused before that has
// left nothing behind. fresh: the run began for this very post.
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

// runID follows from the chat, the idempotency key and the number of the attempt, so that
// a repeated post finds its run; without a key it is random.
func runID(chat memory.Chat, key string, attempt int) string {
	if key == "" {
		return rand.Text()
	}
	name := chat.String() + "\x00" + key // no header can hold the separator
	if attempt > 1 {
		name += "\x00" + strconv.Itoa(attempt)
	}
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// try is one attempt at a post: it joins the run of the attempt's id, or starts it. The
// number of a newer attempt instead: this one has failed in a way that may pass, or there
// is a newer one already.
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
		// The earlier post was refused; this one may still run.
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

// findOrStart gives the record of a run that another process has, with the number of a
// newer attempt if there is one or should be. Without a record the run was started here.
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
	// One that is found here was begun by a post that came at the same time.
	if record, err = s.Starter.start(ctx, r, p); err != nil || record == nil {
		return record, 0, err
	}
	if record.Rewound {
		newer = r.Attempt + 1
	}
	return record, newer, sameBody(record, r)
}

// findRecord gives the record in Redis of a run that another process, or this one before its
// last start, began for the same idempotency key; nil for none. A run that is over, as its
// client knows already, is waited for until its answer is kept.
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
			return record, nil // it goes on
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
			return record, nil // the process that has it did not come to keep its answer
		}
	}
}

func sameBody(record *redisstore.Record, repeat *runs.Run) error {
	if record.Body != "" && record.Body != repeat.Body { // "": Redis lost it before it was told how the run ended
		return problem.ErrKeyReused
	}
	return nil
}

// abandonedError is the error of a run that this process left, as a waiting client is told: 409 and
// 503 would say that nothing ran, but it has, and goes on in another process.
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

// storedAnswer is the final answer in a record; nil while the run goes on.
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
