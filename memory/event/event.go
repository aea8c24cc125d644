// Package event defines what happens in a run. An event is the record of a
// change to a memory: the apiserver's copy of a chat's histories inside a run and
// the histories that webmemory stores are the same fold (Histories.Apply) of the
// same events.
//
// On the wire an event is one line of JSON in which "role" names it; run_id, seq and ts
// stand in every event, subagent and call_id in those of a delegation:
//
//	{"role":"subagent_delegation","run_id":"…","seq":2,"ts":1763711157.25,"subagent":"analytic","call_id":"…","task":"…","calls":"serial"}
//
// It owns the table of failures (failure.go): code, status and sentence. It does no input or output and has no goroutine.
// A member of an event that it does not know is kept and never dropped.
package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/memory"
)

// Event is one entry of a run's log. It is made by New, where it happens, or by
// Decode, and does not change after that: its line of JSON goes with it.
type Event struct {
	Head
	Payload

	line []byte
}

// Head is what every event has.
type Head struct {
	RunID    string       `json:"run_id"`
	Seq      int64        `json:"seq"` // 1, 2, 3 … within the run
	TS       float64      `json:"ts"`  // Unix seconds
	Subagent memory.Agent `json:"subagent,omitempty"`
	CallID   string       `json:"call_id,omitempty"` // one delegation
}

// Payload is what one kind of event says; the types below are all of them.
type Payload interface {
	// Role is the event's name on the wire.
	Role() string
}

// Outcomes of a run, and with MaxSteps the statuses of a delegation.
const (
	Completed = "completed"
	Stopped   = "stopped"
	Failed    = "failed"
	MaxSteps  = "max_steps" // a delegation only: it ran out of steps
)

// How the calls of one subagent within a run relate, see Delegation.
const (
	Serial   = "serial"   // one after the other, each sees the ones before
	Isolated = "isolated" // each starts with nothing and is not remembered
)

// Usage counts tokens of model calls. InputTokens are all of the prompts', whatever dialect the vendor speaks:
// those that it read from its cache, CachedTokens, and those that it wrote to it are among them. OutputTokens are all
// that the models wrote, with their thinking, ReasoningTokens, as far as vendors tell those apart.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Estimated    bool  `json:"estimated,omitempty"` // part of it is, since a call was cut short

	CachedTokens    int64 `json:"cached_tokens,omitempty"`    // of InputTokens, those that the vendor had cached
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"` // of OutputTokens, those of thinking

	// CostMicroUSD is what the tokens cost, in millionths of a USD; nil if that is not known of all of them.
	CostMicroUSD *int64 `json:"cost_micro_usd,omitempty"`
}

// Add is the sum of both. Its cost is known where that of both is.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens,
		Estimated:    u.Estimated || v.Estimated,
		CachedTokens: u.CachedTokens + v.CachedTokens, ReasoningTokens: u.ReasoningTokens + v.ReasoningTokens,
		CostMicroUSD: cost(u, v),
	}
}

// cost is what both cost together.
func cost(u, v Usage) *int64 {
	switch {
	case u.free():
		return v.CostMicroUSD
	case v.free():
		return u.CostMicroUSD
	case u.CostMicroUSD == nil || v.CostMicroUSD == nil:
		return nil
	}
	sum := *u.CostMicroUSD + *v.CostMicroUSD
	return &sum
}

// free says that nothing was used, so that nothing was to be paid.
func (u Usage) free() bool { return u.InputTokens == 0 && u.OutputTokens == 0 && u.CostMicroUSD == nil }

// Citation names the passage that a marker [n] in an answer stands for.
type Citation struct {
	N         int    `json:"n"`
	PassageID string `json:"passage_id,omitempty"`
	DocID     string `json:"doc_id,omitempty"`
	Title     string `json:"title,omitempty"`
	Source    string `json:"source,omitempty"`
	Section   string `json:"section,omitempty"` // the headings above the passage, outermost first
	Page      int    `json:"page,omitempty"`    // of the document, from 1
	Quote     string `json:"quote,omitempty"`   // a piece of the passage, to the letter
	// Start and End are the quote's place in the document's text, in bytes; both are
	// left out if the place is not known.
	Start int `json:"start,omitempty"`
	End   int `json:"end,omitempty"`
}

// Place is the document for a person, with the page: "invoice.pdf p. 3".
func (c Citation) Place() string { return Place(cmp.Or(c.Title, c.DocID), c.Page) }

// Place is a document's title with a page; 0 for none.
func Place(title string, page int) string {
	if page > 0 {
		title = fmt.Sprintf("%s p. %d", title, page)
	}
	return memory.Shorten(title, memory.MaxSource)
}

// Answer is what a subagent that reads documents concluded, as it was checked.
type Answer struct {
	Status string `json:"status"` // one of the statuses below
	Answer string `json:"answer"` // every marker [n] in it has its citation
	// Citations are ascending by number.
	Citations []Citation `json:"citations"`
	Missing   []string   `json:"missing"` // what was asked for and is not in the documents
	Flags     []Flag     `json:"flags,omitempty"`
	// InjectionSignals counts what in the passages looked like an attempt to give
	// orders to the model.
	InjectionSignals int `json:"injection_signals,omitempty"`
}

// Statuses of an Answer.
const (
	Answered       = "answered"
	Partial        = "partial"        // Missing says what the documents do not answer
	NotFound       = "not_found"      // it rests on no passage
	Underspecified = "underspecified" // it asks back
)

// Flag is one thing that was found wrong with an answer, and the piece of it that
// it was found in.
type Flag struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// RunStarted opens a run with the user's message.
type RunStarted struct {
	ChatID       memory.Chat    `json:"chat_id"`
	AgentVersion string         `json:"agent_version"` // "master", or the subagent talked to
	Subagents    []memory.Agent `json:"subagents"`
	Message      string         `json:"message"`
	// RetryOf is the failed run whose message this run tries to answer. The chat's
	// history ends with the message and its failure already.
	RetryOf string `json:"retry_of,omitempty"`
	// Metadata is stored with the message.
	Metadata map[string]string `json:"metadata,omitempty"`
	Pasted   []memory.Span     `json:"pasted,omitzero"` // see memory.Message
	// Images are those that came with the message; Message says that they were there.
	Images []memory.Image `json:"images,omitempty"`
}

// MemoryReset follows RunStarted when the store was found to have lost its data
// since the chat's run before.
type MemoryReset struct{}

// Recalled says what an agent found of what was said before: once for each search that its
// prompt got something from or that failed, and for each call of its tool.
type Recalled struct {
	Messages []RecalledMessage `json:"recalled"`
	Partial  bool              `json:"partial,omitempty"` // the oldest messages were not searched yet
	Failed   string            `json:"failed,omitempty"`  // MemoryUnreachable, or empty
}

// String says it in a line.
func (r *Recalled) String() string {
	if r.Failed != "" {
		return "the memory could not be searched (" + r.Failed + ")"
	}
	ids := make([]string, len(r.Messages))
	for i, m := range r.Messages {
		ids[i] = m.ID
	}
	return strings.TrimRight(fmt.Sprintf("recalled %d messages: %s", len(ids), strings.Join(ids, " ")), ": ")
}

// RecalledMessage is a message that was found.
type RecalledMessage struct {
	ID    string  `json:"id"`
	TS    float64 `json:"ts"`
	Score float64 `json:"score"` // more is better; only those of one event compare
}

// MemoryUnreachable is why a search failed: the webmemory that holds the memory gave no answer.
const MemoryUnreachable = "memory_unreachable"

// AssistantDelta is a piece of the answer while it is written.
type AssistantDelta struct {
	Text string `json:"text"`
}

// Delegation gives a task to a subagent.
type Delegation struct {
	Task  string `json:"task"`
	Calls string `json:"calls"` // Serial or Isolated
	memory.Origin
	Pasted []memory.Span `json:"pasted,omitzero"` // of a task in the user's words, see memory.Message
}

// SubagentDelta is a piece of a subagent's answer while it is written.
type SubagentDelta struct {
	Text string `json:"text"`
}

// AssistantWithTools is a subagent's message that calls tools.
type AssistantWithTools struct {
	Content   string            `json:"content"`
	ToolCalls []memory.ToolCall `json:"tool_calls"`
	memory.Origin
}

// ToolProgress shows a tool of a subagent at work; it is remembered nowhere.
type ToolProgress struct {
	Tool   string `json:"tool"`
	Status string `json:"status"` // running, done, failed
	Detail string `json:"detail,omitempty"`
}

// ToolResult is what a subagent's tool returned.
type ToolResult struct {
	ToolCallID string `json:"tool_call_id"`
	Name       string `json:"name"`
	Content    string `json:"content"`
	memory.Origin
}

// Completion ends a delegation; every delegation has exactly one.
type Completion struct {
	Response  string     `json:"response"` // never empty
	Status    string     `json:"status"`   // Completed, Failed, Stopped or MaxSteps
	Citations []Citation `json:"citations,omitempty"`
	Answer    *Answer    `json:"answer,omitempty"` // of a subagent that reads documents
	Usage     Usage      `json:"usage"`
	Failure   string     `json:"failure,omitempty"` // code of the error, where Status is Failed
	// FinishReason is memory.FinishLength or memory.FinishFilter, where Status is Completed but the model did not
	// complete Response.
	FinishReason string `json:"finish_reason,omitempty"`
	memory.Origin
}

// Assistant is the answer to the user.
type Assistant struct {
	Content   string     `json:"content"`
	Citations []Citation `json:"citations,omitempty"`
	Flags     []Flag     `json:"flags,omitempty"`   // what was found wrong with it, where it was checked against documents
	Partial   bool       `json:"partial,omitempty"` // the run was stopped or failed; this is what had been shown
	Failure   string     `json:"failure,omitempty"` // code of the error that cut a partial answer short
	Run       *Record    `json:"run,omitempty"`     // of the run until here, which is stored with the answer

	FinishReason string `json:"finish_reason,omitempty"` // that of memory.Message
	memory.Origin
}

// Error says what went wrong; with Head.Subagent set the run goes on.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is how many seconds after this trying again may help, where that is known.
	RetryAfter int64 `json:"retry_after,omitempty"`
	// Run is the run's record where this is its end, stored with the message that stands for the answer.
	Run *Record `json:"run,omitempty"`
}

// MasterTool shows a tool of the master's own at work: what ToolProgress is for a subagent. It
// stands in no history.
type MasterTool ToolProgress

// RunWaiting says that the run goes on only after each of its waits has a WaitAnswer. Nothing
// follows it until then: it ends streams of events, and who reads on later begins behind it.
type RunWaiting struct {
	Pending []Wait `json:"waits"`
	// State is what the run goes on from. The apiserver gives it to the webmemory that holds the
	// run, which keeps it and shows the event without.
	State json.RawMessage `json:"state,omitempty"`
	Usage Usage           `json:"usage,omitzero"` // of the run so far
}

// Wait is what a run waits for: somebody outside of it.
type Wait struct {
	ID         string          `json:"id"`   // unique
	Kind       string          `json:"kind"` // one of the kinds below
	Subagent   memory.Agent    `json:"subagent,omitempty"`
	CallID     string          `json:"call_id,omitempty"` // of the delegation; empty for a tool of the master's
	ToolCallID string          `json:"tool_call_id"`      // the model's, in the message that calls the tool
	Tool       string          `json:"tool"`              // as its agent knows it
	Arguments  json.RawMessage `json:"arguments"`         // an object
	Reason     string          `json:"reason"`            // a sentence for who is to answer
	ExpiresAt  float64         `json:"expires_at"`        // Unix seconds; after that the answer is no
	Schema     json.RawMessage `json:"schema,omitempty"`  // JSON schema of a Question's result
	// Approves is the tool, by server, name and a hash of its definition, whose calls need no other Approval
	// in the chat once this one is given; empty where it is for this call alone.
	Approves string `json:"approves,omitempty"`
	// Origins say where the values of an Approval's Arguments are from.
	Origins []ArgumentOrigin `json:"origins,omitempty"`
}

// ArgumentOrigin says where one value of a call's arguments is from: the least trusted source that has it, unless the
// user said it; an agent where it stands nowhere.
type ArgumentOrigin struct {
	// Argument is its name; those of nested values are joined by dots. It and Value are empty for a call without values:
	// that it is made at all is what the origin is of.
	Argument string `json:"argument"`
	Value    string `json:"value"` // shortened
	memory.Origin
}

// Kinds of a Wait.
const (
	Approval     = "approval"      // of a call that a person is to allow
	Question     = "question"      // that a tool asks a person
	ClientResult = "client_result" // of a tool that the client of the run has
)

// WaitAnswer answers a Wait.
type WaitAnswer struct {
	ID       string `json:"id"`
	Decision string `json:"decision"` // one of the decisions below
	// Arguments take the place of those that were asked for, where Decision is Edit.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Result is what a tool returned, of a ClientResult; what a person filled in, of a Question.
	Result json.RawMessage `json:"result,omitempty"`
	Reason string          `json:"reason,omitempty"` // why it is denied, in words for the model
}

// Decisions. Approve goes with any kind, Edit with an Approval.
const (
	Approve = "approve"
	Deny    = "deny"
	Edit    = "edit"
)

// RunResumed is the first event after a RunWaiting: how its waits were answered. The results
// and arguments in the answers are left out; the events that follow have them.
type RunResumed struct {
	Answers []WaitAnswer `json:"answers"`
	Usage   Usage        `json:"usage,omitzero"` // of the run until it waited; that of the RunFinished has it too
}

// RunFinished is the last event of every run.
type RunFinished struct {
	Outcome string `json:"outcome"` // Completed, Stopped or Failed
	Usage   Usage  `json:"usage"`
	// FinishReason is that of the run's answer, where Outcome is Completed.
	FinishReason string `json:"finish_reason,omitempty"`
	// Calls are the run's calls of models, in the order of their beginnings, the first MaxModelCalls of them.
	Calls []ModelCall `json:"model_calls,omitempty"`
}

// MaxModelCalls bounds RunFinished.Calls.
const MaxModelCalls = 200

// ModelCall is one call of a model.
type ModelCall struct {
	Subagent memory.Agent `json:"subagent,omitempty"` // empty for the master
	CallID   string       `json:"call_id,omitempty"`  // of the delegation
	Started  float64      `json:"started"`            // Unix seconds
	Seconds  float64      `json:"seconds"`            // until its end, to the millisecond
	Model    string       `json:"model,omitempty"`    // that answered
	Backend  string       `json:"backend,omitempty"`  // of the gateway
	Attempts int          `json:"attempts,omitempty"` // of the gateway at its backends; 1 where nothing was tried again
	// Mended names what the gateway did to thinking and to chains of tools, such as "thinking_restored"; see its
	// documentation.
	Mended []string `json:"mended,omitempty"`
	Usage  Usage    `json:"usage"`
	// Error is the code of its failure, such as "model_unavailable"; "canceled" where its caller ended it.
	Error string `json:"error,omitempty"`
}

// Unknown is an event of a newer version: passed on, changing no history.
type Unknown struct{ Name string }

func (*RunStarted) Role() string         { return "run_started" }
func (*MemoryReset) Role() string        { return "memory_reset" }
func (*Recalled) Role() string           { return "recalled" }
func (*AssistantDelta) Role() string     { return "assistant_delta" }
func (*Delegation) Role() string         { return "subagent_delegation" }
func (*SubagentDelta) Role() string      { return "subagent_delta" }
func (*AssistantWithTools) Role() string { return "subagent_assistant_with_tools" }
func (*ToolProgress) Role() string       { return "subagent_tool" }
func (*ToolResult) Role() string         { return "subagent_tool_result" }
func (*Completion) Role() string         { return "subagent_completion" }
func (*Assistant) Role() string          { return "assistant" }
func (*Error) Role() string              { return "error" }
func (*MasterTool) Role() string         { return "tool" }
func (*RunWaiting) Role() string         { return "run_waiting" }
func (*RunResumed) Role() string         { return "run_resumed" }
func (*RunFinished) Role() string        { return "run_finished" }
func (u *Unknown) Role() string          { return u.Name }

// blanks makes an empty payload, by its role.
var blanks = byRole(
	blank[RunStarted], blank[MemoryReset], blank[Recalled], blank[AssistantDelta], blank[Delegation], blank[SubagentDelta],
	blank[AssistantWithTools], blank[ToolProgress], blank[ToolResult], blank[Completion], blank[Assistant], blank[Error],
	blank[MasterTool], blank[RunWaiting], blank[RunResumed], blank[RunFinished],
)

func byRole(makers ...func() Payload) map[string]func() Payload {
	index := map[string]func() Payload{}
	for _, blank := range makers {
		index[blank().Role()] = blank
	}
	return index
}

func blank[T any, P interface {
	*T
	Payload
}]() Payload {
	return P(new(T))
}

// Terminal says whether nothing follows the event in its run.
func (e Event) Terminal() bool {
	_, last := e.Payload.(*RunFinished)
	return last
}

// Blocking reports whether no event follows until an answer from outside arrives.
func (e Event) Blocking() bool {
	_, ok := e.Payload.(*RunWaiting)
	return ok
}

// Ephemeral says whether the event only shows progress: it changes no history
// and the events after it hold what it said.
func (e Event) Ephemeral() bool {
	switch e.Payload.(type) {
	case *AssistantDelta, *SubagentDelta, *ToolProgress, *MasterTool:
		return true
	}
	return false
}

// New is an event that happens here. It is encoded now, and never again.
func New(head Head, p Payload) Event {
	e := Event{Head: head, Payload: p}
	e.line = e.encode()
	return e
}

// Line is the event's JSON in one line, without HTML escaping: as it was decoded, so
// with all that only a newer version knows, or as New encoded it. Callers must not
// change it.
func (e Event) Line() []byte {
	if e.line == nil {
		return e.encode()
	}
	return e.line
}

func (e Event) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Role string `json:"role"`
		Head
	}{e.Role(), e.Head})
	head := b.Len() - len("}\n")
	if _, ok := e.Payload.(*Unknown); !ok && err == nil {
		err = enc.Encode(e.Payload)
	}
	if err != nil {
		panic(fmt.Sprintf("event: %T does not encode: %v", e.Payload, err)) // only strings, numbers and lists of them
	}
	line := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if body := line[head:]; len(body) > len("}\n{}") { // the payload's members follow the head's in one object
		body[0] = ','
		line = append(line[:head+1], body[len("}\n{"):]...)
	} else {
		line = line[:head+1]
	}
	return line
}

// Decode reads the line of an event that this version made or another. It keeps a
// copy of it; what comes in several lines is put into one.
func Decode(b []byte) (Event, error) {
	var e struct {
		Role string `json:"role"`
		Head
		Text json.RawMessage `json:"text"` // of a delta, as most events are: this is all of it
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return Event{}, fmt.Errorf("reading an event: %w: %w", memory.ErrDamaged, err)
	}
	if e.Role == "" || e.RunID == "" || e.Seq < 1 {
		return Event{}, fmt.Errorf("reading an event: %w: role, run_id and seq must be set", memory.ErrDamaged)
	}
	var p Payload = &Unknown{e.Role}
	if blank := blanks[e.Role]; blank != nil {
		p = blank()
	}
	var err error
	switch d := p.(type) {
	case *Unknown:
	case *AssistantDelta:
		err = decodeText(e.Text, &d.Text)
	case *SubagentDelta:
		err = decodeText(e.Text, &d.Text)
	default:
		err = json.Unmarshal(b, p)
	}
	if err != nil {
		return Event{}, fmt.Errorf("reading a %s event: %w: %w", e.Role, memory.ErrDamaged, err)
	}
	if bytes.ContainsAny(b, "\r\n") {
		var line bytes.Buffer
		_ = json.Compact(&line, b) // it is JSON, as was found above
		return Event{e.Head, p, line.Bytes()}, nil
	}
	return Event{e.Head, p, bytes.Clone(b)}, nil
}

// JSONSize returns how many bytes a text takes in the JSON of an event, without its quotes.
func JSONSize(text string) (size int) {
	for i, r := range text {
		switch {
		case r == '"', r == '\\', r == '\b', r == '\f', r == '\n', r == '\r', r == '\t':
			size += 2
		case r < ' ', r == '\u2028', r == '\u2029':
			size += 6
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)): // an invalid byte
			size += 6
		default:
			size += utf8.RuneLen(r)
		}
	}
	return size
}

// Shorten cuts a text to at most limit bytes of JSON, at a character.
func Shorten(text string, limit int) string {
	for i, size := 0, 0; i < len(text); {
		_, width := utf8.DecodeRuneInString(text[i:])
		if size += JSONSize(text[i : i+width]); size > limit {
			return text[:i]
		}
		i += width
	}
	return text
}

// decodeText reads a member that may be missing.
func decodeText(raw json.RawMessage, text *string) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, text)
}

// Seconds is a point in time as ts has it: Unix seconds, to the millisecond.
func Seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
