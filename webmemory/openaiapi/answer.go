package openaiapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/proxy/wire"
	webapi "mneme/webmemory/api"
)

// This file is about how a run's events become an answer: a chat completion, which is one object or a stream of chunks,
// or what responses.go makes of it.

const (
	// writeTime is how long a client may take for a piece of a stream.
	writeTime = 30 * time.Second
	// stopTime bounds the request that stops the run of a client that left.
	stopTime = 10 * time.Second
	// maxLine bounds what a line of progress says, in bytes.
	maxLine = 200
)

// Reasons why an answer ends.
const (
	finishStop  = "stop"
	finishTools = "tool_calls"
)

// usageOf is what the calls of models took since a moment of their run: clients add up what answers say, so what the
// run used before its last wait is that of the answer before.
func usageOf(total, base event.Usage) (out wire.Usage) {
	out.CacheRead = max(0, total.CachedTokens-base.CachedTokens)
	out.InputTokens = max(0, total.InputTokens-base.InputTokens-out.CacheRead)
	out.OutputTokens = max(0, total.OutputTokens-base.OutputTokens)
	out.OutputDetails.ThinkingTokens = max(0, total.ReasoningTokens-base.ReasoningTokens)
	return out
}

// chatUsage is the usage of an answer with all of its members.
func chatUsage(a *answer) *wire.ChatUsage {
	usage := usageOf(a.collected.Usage, a.baseUsage)
	out := usage.Chat()
	out.PromptDetails = &wire.PromptDetails{CachedTokens: usage.CacheRead}
	out.CompletionDetails = &wire.CompletionDetails{ReasoningTokens: usage.OutputDetails.ThinkingTokens}
	return out
}

// annotation is a citation in OpenAI's shape, with all that is known of it beside.
type annotation struct {
	Type        string         `json:"type"`
	URLCitation urlCitation    `json:"url_citation"`
	Citation    event.Citation `json:"citation"`
}

// urlCitation says where its marker stands in the text, in characters.
type urlCitation struct {
	StartIndex int    `json:"start_index"`
	EndIndex   int    `json:"end_index"`
	Title      string `json:"title"`
	URL        string `json:"url"`
}

// delta is what a chunk adds to the message.
type delta struct {
	Role        string       `json:"role,omitempty"`
	Content     *string      `json:"content,omitempty"`
	Reasoning   string       `json:"reasoning_content,omitempty"`
	ToolCalls   []toolCall   `json:"tool_calls,omitempty"`
	Annotations []annotation `json:"annotations,omitempty"`
}

type toolCall struct {
	Index *int `json:"index,omitempty"` // in a delta
	memory.ToolCall
}

// completion is a whole answer, or an event of a stream.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   any      `json:"usage,omitempty"` // a *wire.ChatUsage, nil where it comes in the last chunk
}

type choice struct {
	Index        int           `json:"index"`
	Delta        *delta        `json:"delta,omitempty"`   // in a stream
	Message      *wholeMessage `json:"message,omitempty"` // in a whole answer
	Logprobs     *string       `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type wholeMessage struct {
	Role        string       `json:"role"`
	Content     *string      `json:"content"`
	Refusal     *string      `json:"refusal"`
	Reasoning   string       `json:"reasoning_content,omitempty"`
	ToolCalls   []toolCall   `json:"tool_calls,omitempty"`
	Annotations []annotation `json:"annotations"`
}

// answer is a completion or a response while it is made.
type answer struct {
	h      *Handler
	w      http.ResponseWriter
	call   *call
	memory string       // a value of memoryHeader
	chat   *memory.Chat // that it is of; nil for none

	run       string        // once it is known
	first     int64         // number of the first event that it is of
	created   int64         // Unix seconds; 0 before the first event
	newest    int64         // Unix seconds of the newest event
	buffering bool          // nothing is shown yet, since a failure is to be told by the status
	buffered  []event.Event // while it is held
	collected *webapi.Collected
	baseUsage event.Usage     // of the run, before this answer
	output    strings.Builder // the text of the stream so far, in paragraphs
	raw       strings.Builder // the same as the run told it
	piece     strings.Builder // its part since the last break
	progress  strings.Builder // lines
	finish    string
	calls     []toolCall
	response  *response // nil for a chat completion
	stream    *Stream   // empty for a whole answer
}

// reader understands a request of one dialect.
type reader func(h *Handler, w http.ResponseWriter, r *http.Request) (*call, error)

// answerTo is POST /v1/chat/completions and POST /v1/responses.
func answerTo(h *Handler, w http.ResponseWriter, r *http.Request, read reader) {
	var c *call
	err := fair.Share(r.Context(), func(ctx context.Context) (err error) {
		c, err = read(h, w, r.WithContext(ctx))
		return err
	})
	if err != nil {
		Refuse(w, err)
		return
	}
	ctx, end := h.Bound(r.Context())
	defer end()
	a := &answer{h: h, w: w, stream: h.NewStream(w), call: c, memory: MemoryNone, collected: webapi.NewCollected("")}
	defer a.stream.Close()
	for e, err := range h.run(ctx, r, c, a) {
		if err != nil {
			a.stopAbandoned(r)
			if h.life.Err() != nil {
				err = errShutdown
			}
			a.fail(err)
			return
		}
		a.add(e)
		if r.Context().Err() != nil && a.stopAbandoned(r) {
			return
		}
	}
	if err := a.collected.Err(); err != nil {
		a.fail(err)
		return
	}
	a.end()
}

// stopAbandoned stops the run of a client that has left, and reports whether the client has.
func (a *answer) stopAbandoned(r *http.Request) bool {
	if r.Context().Err() == nil {
		return false
	}
	if a.run != "" {
		a.h.abandoned.add(a.run)
	}
	if a.chat != nil && a.run != "" && a.collected.Outcome == "" && a.h.OnDisconnect == Stop {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), stopTime)
		defer cancel()
		if err := a.h.Memory.Stop(ctx, *a.chat, a.run); err != nil {
			a.h.Log.Warn().Err(err).Str("run", a.run).Msg("the run of a client that left could not be stopped")
		}
	}
	return true
}

// runSet holds the ids of the newest runs that were added to it.
type runSet struct {
	mu   sync.Mutex
	runs []string // guarded by mu
}

// maxAbandoned bounds a runSet. A retry comes within seconds.
const maxAbandoned = 256

func (s *runSet) add(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs = append(s.runs, run); len(s.runs) > maxAbandoned {
		s.runs = slices.Delete(s.runs, 0, 1)
	}
}

func (s *runSet) has(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.runs, run)
}

// begin begins the answer. The head of a stream waits until there is something to show, or the run has ended: clients
// try again after a status, and never after an error in a stream.
func (a *answer) begin(e event.Event) {
	a.run, a.first, a.created = e.RunID, e.Seq, int64(e.TS)
	head := a.w.Header()
	head.Set(webapi.RunID, a.run)
	head.Set(memoryHeader, a.memory)
	if a.chat != nil {
		head.Set(chatHeader, a.chat.ID())
	}
	if a.h.Answered != nil {
		a.h.Answered(a.memory)
	}
	if a.call.options != nil {
		a.response = newResponse(a)
	}
	if !a.call.Stream {
		return
	}
	a.buffering = true
	a.stream.Start()
}

// open begins the stream.
func (a *answer) open() {
	empty := ""
	a.send(delta{Role: memory.RoleAssistant, Content: &empty}, "")
	a.buffering = false
	for _, e := range a.buffered {
		a.show(e)
	}
	a.buffered = nil
}

// Stream writes server-sent events to one client, and comments while there are none. It sends the HTTP head with the
// first of them.
type Stream struct {
	h      *Handler
	w      http.ResponseWriter
	mu     sync.Mutex
	out    *sse.Writer // guarded by mu; nil before the head
	quiet  *time.Timer // guarded by mu; nil before Start and after Close
	unsent bool        // guarded by mu: something was written since the last flush
}

// NewStream returns a stream that has sent nothing.
func (h *Handler) NewStream(w http.ResponseWriter) *Stream { return &Stream{h: h, w: w} }

// Start begins the comments. The first one comes after Config.Hold, because a proxy may cut a connection without
// traffic. It sends the head, so the status is decided then.
func (s *Stream) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(s.h.Hold, s.ping)
}

// SetHeader sets a header of the head. It has no effect if a comment has sent the head.
func (s *Stream) SetHeader(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.Header().Set(name, value)
}

// head begins the head. The caller holds mu.
func (s *Stream) head() {
	if s.out == nil {
		s.out = sse.NewWriter(s.w, writeTime)
	}
}

func (s *Stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet == nil {
		return
	}
	s.head()
	_, _ = s.out.Comment("ping"), s.out.Flush() // a client that has left ends the request
	s.quiet.Reset(s.h.Heartbeat)
}

// Close flushes the stream and ends its comments. It reports whether the head is sent. Close is idempotent.
func (s *Stream) Close() (headSent bool) {
	s.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet != nil {
		s.quiet.Stop()
		s.quiet = nil
	}
	return s.out != nil
}

// Data writes an event with data. The next flush sends it.
func (s *Stream) Data(data []byte) { s.write(data, (*sse.Writer).Data) }

// Frames writes events that are encoded already. The next flush sends them.
func (s *Stream) Frames(frames []byte) { s.write(frames, (*sse.Writer).Frames) }

func (s *Stream) write(data []byte, emit func(*sse.Writer, []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head()
	_ = emit(s.out, data) // a client that has left ends the request
	s.unsent = true
}

// Flush sends what was written.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsent {
		return
	}
	_ = s.out.Flush()
	s.unsent = false
	if s.quiet != nil {
		s.quiet.Reset(s.h.Heartbeat)
	}
}

// send sends a chunk of a stream; finish is empty but for the last one.
func (a *answer) send(d delta, finish string) {
	if a.response != nil {
		a.response.take(d)
		return
	}
	if !a.call.Stream {
		return
	}
	one := choice{Delta: &d}
	if finish != "" {
		one.FinishReason = &finish
	}
	a.stream.Data(a.encode(completion{Choices: []choice{one}}))
}

// encode is a chunk in one line.
func (a *answer) encode(c completion) []byte {
	c.ID, c.Object, c.Created, c.Model = a.id(), "chat.completion.chunk", a.created, a.call.Model
	if c.Usage == nil && a.call.StreamOptions.IncludeUsage {
		c.Usage = (*wire.ChatUsage)(nil)
	}
	return line(c)
}

// id is one of this answer alone: clients would take two answers of one run, before and behind calls
// of their tools, for one message.
func (a *answer) id() string {
	if a.first <= 1 {
		return "chatcmpl-" + a.run
	}
	return fmt.Sprintf("chatcmpl-%s-%d", a.run, a.first)
}

// line is a value's JSON in one line, without HTML escaping.
func line(v any) []byte {
	text, _ := memory.EncodeJSON(v) // plain structs of ours
	return text
}

// add takes in the run's next event.
func (a *answer) add(e event.Event) {
	a.newest = int64(e.TS)
	if a.created == 0 {
		a.begin(e)
	}
	a.collected.Add(e)
	switch {
	case !a.buffering:
		a.show(e)
	case a.isAnswerStart(e):
		a.buffered = append(a.buffered, e)
		a.open()
	default:
		a.buffered = append(a.buffered, e)
	}
}

// show gives an event to the client.
func (a *answer) show(e event.Event) {
	switch p := e.Payload.(type) {
	case *event.AssistantDelta:
		if a.response == nil || len(a.call.wishes.ResponseFormat) == 0 { // clients read each text as the JSON
			a.say(p.Text)
		}
	case *event.Assistant:
		a.complement(p.Content)
	case *event.Delegation:
		a.tell("%s is asked: %s", e.Subagent, p.Task)
	case *event.ToolProgress:
		a.tellTool(string(e.Subagent), *p)
	case *event.MasterTool:
		a.tellTool(webapi.Master, event.ToolProgress(*p))
	case *event.RunWaiting:
		a.wait(p.Pending)
	case *event.RunResumed:
		a.baseUsage = p.Usage
	}
}

// isAnswerStart says whether a model has begun to answer with an event. Of a subagent that the user talks to the delegation
// does not say so.
func (a *answer) isAnswerStart(e event.Event) bool {
	switch e.Payload.(type) {
	case *event.Delegation:
		return a.call.agent == webapi.Master
	case *event.RunStarted, *event.MemoryReset, *event.Recalled, *event.Completion, *event.Error, *event.RunFinished:
		return false
	}
	return true
}

// say shows a piece of the answer.
func (a *answer) say(text string) {
	if text == "" {
		return
	}
	newParagraph := a.piece.Len() == 0 && a.output.Len() > 0
	a.raw.WriteString(text)
	a.piece.WriteString(text)
	if newParagraph {
		text = "\n\n" + text
	}
	a.output.WriteString(text)
	a.send(delta{Content: &text}, "")
}

// complement shows what is missing of the whole answer.
func (a *answer) complement(content string) {
	switch rest, ok := strings.CutPrefix(content, a.piece.String()); {
	case a.raw.String() == content:
	case ok:
		a.say(rest)
	default:
		a.piece.Reset()
		a.say(content)
	}
}

// tell shows a line of progress. What is said behind it is another paragraph.
func (a *answer) tell(format string, args ...any) {
	a.piece.Reset()
	if a.h.Progress == NoReasoning {
		return
	}
	text := wire.Clip(strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "), maxLine) + "\n"
	a.progress.WriteString(text)
	a.send(delta{Reasoning: text}, "")
}

// tellTool shows the beginning of a tool's work, and its failure.
func (a *answer) tellTool(who string, p event.ToolProgress) {
	switch p.Status {
	case "running":
		a.tell("%s, %s: %s", who, p.Tool, cmp.Or(p.Detail, p.Status))
	case "failed":
		a.tell("%s, %s failed: %s", who, p.Tool, p.Detail)
	}
}

// wait ends an answer with calls of the client's own tools, or says that a person is waited for:
// a run goes on only when all that it waits for is answered.
func (a *answer) wait(pending []event.Wait) {
	var people []event.Wait
	for _, w := range pending {
		if w.Kind != event.ClientResult {
			people = append(people, w)
			continue
		}
		a.calls = append(a.calls, toolCall{ToolCall: memory.ToolCall{ID: callID(a, w.ID), Type: "function",
			Function: memory.FunctionCall{Name: w.Tool, Arguments: string(w.Arguments)}}})
	}
	if len(people) == 0 {
		a.finish = finishTools
		return
	}
	a.calls = nil
	a.piece.Reset()
	a.say(a.waitText(people))
}

// waitText says which answers are waited for, and where the answer is given.
func (a *answer) waitText(people []event.Wait) string {
	var b strings.Builder
	b.WriteString("There is no answer yet: a person is waited for.")
	for _, w := range people {
		fmt.Fprintf(&b, "\n- %s: %s (until %s)", w.Tool, w.Reason,
			time.Unix(int64(w.ExpiresAt), 0).UTC().Format("2006-01-02 15:04 MST"))
	}
	if a.chat != nil {
		fmt.Fprintf(&b, "\n\nAnswer it on the page, with `mneme chat --chat %s`, or with POST %s. The chat then gets the answer. "+
			"A new message counts as a no.", a.chat, webapi.ResumePath(*a.chat, a.run))
	}
	return b.String()
}

// annotations are the citations of a text.
func annotations(citations []event.Citation, text string) []annotation {
	out := []annotation{}
	for _, c := range citations {
		n := annotation{Type: "url_citation", Citation: c}
		n.URLCitation.Title, n.URLCitation.URL = cmp.Or(c.Title, c.Source, c.DocID), cmp.Or(c.Source, c.DocID)
		marker := fmt.Sprintf("[%d]", c.N)
		if i := strings.Index(text, marker); i >= 0 {
			n.URLCitation.StartIndex = utf8.RuneCountInString(text[:i])
			n.URLCitation.EndIndex = n.URLCitation.StartIndex + len(marker)
		}
		out = append(out, n)
	}
	return out
}

// end completes the answer.
func (a *answer) end() {
	finish := cmp.Or(a.finish, a.collected.FinishReason, finishStop)
	if a.buffering {
		a.open()
	}
	switch {
	case a.response != nil:
		endResponse(a)
		return
	case a.call.Stream:
		a.endStream(finish)
		return
	}
	content := a.collected.Content
	if a.collected.Outcome == webapi.OutcomeWaiting {
		content = a.output.String()
	}
	m := wholeMessage{Role: memory.RoleAssistant, Content: &content, Reasoning: a.progress.String(), ToolCalls: a.calls,
		Annotations: annotations(a.collected.Citations, content)}
	if content == "" && len(a.calls) > 0 {
		m.Content = nil
	}
	api.WriteJSON(a.w, http.StatusOK, completion{ID: a.id(), Object: "chat.completion", Created: a.created,
		Model: a.call.Model, Choices: []choice{{Message: &m, FinishReason: &finish}}, Usage: chatUsage(a)})
}

func (a *answer) endStream(finish string) {
	if len(a.calls) > 0 {
		for i := range a.calls {
			a.calls[i].Index = &i
		}
		a.send(delta{ToolCalls: a.calls}, "")
	}
	last := delta{}
	if len(a.collected.Citations) > 0 {
		last.Annotations = annotations(a.collected.Citations, a.output.String())
	}
	a.send(last, finish)
	if a.call.StreamOptions.IncludeUsage {
		a.stream.Data(a.encode(completion{Choices: []choice{}, Usage: chatUsage(a)}))
	}
	a.stream.Data([]byte("[DONE]"))
}

// fail ends the answer with an error: as a status, or inside of a stream that has begun.
func (a *answer) fail(err error) {
	headSent := a.stream.Close() // no ping comes before the status, or behind the error
	if a.call.options != nil {
		err = inResponses(err)
	}
	switch f := failureOf(err); {
	case !headSent:
		Refuse(a.w, err)
	case a.response != nil:
		shows(a, a.response.answer.Fail(nil, wire.Failure{Status: f.Status, Code: f.Code, Param: f.Param,
			Message: f.Message}))
	default:
		a.stream.Data(line(f.body()))
	}
}
