package responseswire

import (
	"cmp"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// AnswerOptions is the form in which the client asked for an answer.
type AnswerOptions struct {
	ID     string // of the response; empty: a new one
	Model  string // shown instead of the vendor's model, unless empty
	Stream bool   // as server-sent events; else as one JSON body
	Stored bool   // the response can be had again by its id

	Echo  jsontext.Value      // an object with what a response repeats of its request
	Names map[string]ToolName // of tools that the client calls otherwise than the model
}

// ResponsesAnswer translates one answer of a messages backend into this dialect. Event takes what the backend said, and
// End finishes, or Fail; each appends to dst what the client gets.
type ResponsesAnswer struct {
	options AnswerOptions
	clock   func() time.Time
	created int64

	started bool
	done    bool
	number  int64     // of the next event
	output  []byte    // the items that are done, with commas between them
	items   int       // in output
	open    *openItem // nil for none
	stop    string
	usage   wire.Usage
	result  string // the response, once it has ended well
}

// openItem is the item that grows. Text is raw content of a JSON string, as it came.
type openItem struct {
	*shape
	id      string // as JSON
	place   string // members that say where an event belongs
	call    string // members of a call that do not change; empty for another item
	initial string // input that came with the start of the block
	text    []byte
	notes   []string // annotations, as JSON
}

// shape is how items grow that are made of one kind of block. The events of their only part and of its text have
// names of the same beginning.
type shape struct {
	prefix    string // of the item's id
	part      string // of the events that begin and end the part; empty for an item without parts
	text      string // of the events that add to the text
	member    string // that holds the whole text
	index     string // the member that says which part it is
	partStart string // the text, in the part
	partEnd   string
	extra     string // further members of events of the text
}

var (
	textShape = &shape{
		"msg_", "response.content_part", "response.output_text", "text", `,"content_index":0`,
		`{"type":"output_text","text":"`, `","annotations":[],"logprobs":[]}`, `,"logprobs":[]`,
	}
	thinkingShape = &shape{
		"rs_", "response.reasoning_summary_part", "response.reasoning_summary_text", "text", `,"summary_index":0`,
		`{"type":"summary_text","text":"`, `"}`, "",
	}
	callShape   = &shape{prefix: "fc_", text: "response.function_call_arguments", member: "arguments"}
	customShape = &shape{prefix: "ctc_", text: "response.custom_tool_call_input", member: "input"}
)

// NewResponsesAnswer begins an answer with the clock's times.
func NewResponsesAnswer(a AnswerOptions, clock func() time.Time) *ResponsesAnswer {
	a.ID = cmp.Or(a.ID, NewID())
	return &ResponsesAnswer{options: a, clock: clock, created: clock().Unix()}
}

// NewID makes the id of a response.
func NewID() string { return "resp_" + rand.Text() }

// End finishes the answer. It fails with chatwire.ErrCut if the backend did not finish it.
func (a *ResponsesAnswer) End(dst []byte) ([]byte, error) {
	if a.stop == "" || !a.started {
		return dst, chatwire.ErrCut
	}
	if wire.EndingOf(a.stop) == wire.EndFailed {
		return dst, wire.FailedEnding(a.stop)
	}
	a.done = true
	status, reason := ending(a.stop)
	dst = a.close(dst, status)
	a.result = a.response(status, reason, "null")
	if !a.options.Stream {
		return append(dst, a.result...), nil
	}
	dst = a.event(dst, "response."+status, `,"response":`, a.result)
	return wire.AppendFrame(dst, "", []byte("[DONE]")), nil
}

// Response is the response as the client gets it; empty before End.
func (a *ResponsesAnswer) Response() []byte { return []byte(a.result) }

// Fail ends a stream by an error. A JSON body cannot say one.
func (a *ResponsesAnswer) Fail(dst []byte, f wire.Failure) []byte {
	if a.done || !a.options.Stream {
		return dst
	}
	dst = a.start(dst, "")
	a.done = true
	errObject := gjson.GetBytes(f.Body(wire.Chat), "error")
	param := "null"
	if f.Param != "" {
		param = quote(f.Param)
	}
	code, message := `"code":`+quote(errObject.Get("code").Str), `,"message":`+quote(errObject.Get("message").Str)
	// Clients look for its members in the event itself, as OpenAI has them, or in error, as Open Responses has.
	members := code + message + `,"param":` + param
	dst = a.event(dst, "error", ",", members, `,"error":{"type":`, quote(errObject.Get("type").Str), ",", members, "}")
	dst = a.event(dst, "response.failed", `,"response":`, a.response(statusFailed, "", "{"+code+message+"}"))
	return wire.AppendFrame(dst, "", []byte("[DONE]"))
}

// FailPassed ends a stream by an error of which the client has got so many events as the vendor sent them; begun is the
// first of these, with the response.
func FailPassed(options AnswerOptions, firstEvent []byte, events int64, f wire.Failure) []byte {
	a := NewResponsesAnswer(options, time.Now)
	a.options.Stream = true
	if response := gjson.GetBytes(firstEvent, "response"); response.IsObject() {
		a.started, a.number, a.created = true, events, response.Get("created_at").Int()
		a.options.ID, a.options.Model = response.Get("id").Str, cmp.Or(options.Model, response.Get("model").Str)
	}
	return a.Fail(nil, f)
}

// ending is the status of a response that ended for a reason of the messages dialect, and what made it incomplete.
func ending(stop string) (status, reason string) {
	switch wire.EndingOf(stop) {
	case wire.EndLength, wire.EndWindow:
		return statusIncomplete, reasonLength
	case wire.EndFilter:
		return statusIncomplete, reasonFilter
	case wire.EndStopped:
		return statusIncomplete, stop
	}
	return statusCompleted, ""
}

// Event takes an event of the messages dialect. Blocks come one after another, so that the open one need not be looked
// for. It is closed by what follows, since only then it is known whether it was cut off.
func (a *ResponsesAnswer) Event(dst []byte, e *wire.Event) ([]byte, error) {
	if a.done {
		return dst, nil
	}
	switch e.Type {
	case wire.MessageStart:
		if e.Message != nil {
			a.usage.Update(e.Message.Usage)
			dst = a.start(dst, e.Message.Model)
		}
	case wire.BlockStart:
		if e.Block == nil {
			return dst, nil
		}
		dst = a.close(dst, statusCompleted)
		if e.Block.Type == wire.ToolUseBlock {
			return a.call(dst, *e.Block), nil
		}
		dst = a.grow(dst, textShape, wire.Inner(e.Block.Text))
		dst = a.grow(dst, thinkingShape, wire.Inner(e.Block.Thinking))
	case wire.BlockDelta:
		switch o := a.open; {
		case e.Delta.Type == wire.TextDelta:
			dst = a.grow(dst, textShape, e.Delta.Inner())
		case e.Delta.Type == wire.ThinkingDelta:
			dst = a.grow(dst, thinkingShape, e.Delta.Inner())
		case e.Delta.Type == wire.InputDelta && o != nil && o.call != "":
			dst = a.grow(dst, o.shape, e.Delta.Inner())
		}
	case wire.MessageDelta:
		a.usage.Update(e.Usage)
		a.stop = cmp.Or(a.stop, string(e.Delta.StopReason))
	}
	return dst, nil
}

// start begins the answer, once.
func (a *ResponsesAnswer) start(dst []byte, model string) []byte {
	if a.started {
		return dst
	}
	a.started = true
	a.options.Model = cmp.Or(a.options.Model, model)
	if !a.options.Stream {
		return dst
	}
	head := a.response(statusRunning, "", "null")
	dst = a.event(dst, "response.created", `,"response":`, head)
	return a.event(dst, "response.in_progress", `,"response":`, head)
}

// Annotate adds an annotation, a JSON object, to the text that grows; without one it changes nothing.
func (a *ResponsesAnswer) Annotate(dst []byte, note jsontext.Value) []byte {
	o := a.open
	if o == nil || o.shape != textShape {
		return dst
	}
	o.notes = append(o.notes, string(note))
	return a.event(dst, "response.output_text.annotation.added", o.place, `,"annotation_index":`,
		strconv.Itoa(len(o.notes)-1), `,"annotation":`, string(note))
}

// partWithText is the only part with its text.
func (o *openItem) partWithText(text string) string {
	return o.partStart + text + strings.Replace(o.partEnd, "[]", "["+strings.Join(o.notes, ",")+"]", 1)
}

// grow adds a piece to the open item, or to a new one if that has another shape.
func (a *ResponsesAnswer) grow(dst []byte, s *shape, piece []byte) []byte {
	if len(piece) == 0 {
		return dst
	}
	if a.open == nil || a.open.shape != s {
		dst = a.begin(a.close(dst, statusCompleted), &openItem{shape: s})
	}
	o := a.open
	if o.text = append(o.text, piece...); o.shape == customShape {
		return dst // its text is within the piece's JSON
	}
	return a.delta(dst, o, piece)
}

// call begins the call of a tool.
func (a *ResponsesAnswer) call(dst []byte, b wire.Block) []byte {
	name, renamed := a.options.Names[b.Name]
	if !renamed {
		name.Name = b.Name
	}
	o := &openItem{shape: callShape, initial: string(b.Input)}
	if name.Custom {
		o.shape = customShape
	}
	o.call = `,"call_id":` + quote(b.ID) + `,"name":` + quote(name.Name)
	if name.Namespace != "" {
		o.call += `,"namespace":` + quote(name.Namespace)
	}
	return a.begin(dst, o)
}

// begin opens an item.
func (a *ResponsesAnswer) begin(dst []byte, o *openItem) []byte {
	dst = a.start(dst, "")
	index := `,"output_index":` + strconv.Itoa(a.items)
	o.id = quote(o.prefix + strings.TrimPrefix(a.options.ID, "resp_") + "_" + strconv.Itoa(a.items))
	a.open = o
	if !a.options.Stream {
		return dst
	}
	o.place = `,"item_id":` + o.id + index + o.index
	dst = a.event(dst, "response.output_item.added", index, `,"item":`, o.json(statusRunning, false))
	if o.part != "" {
		dst = a.event(dst, o.part+".added", o.place, `,"part":`, o.partStart, o.partEnd)
	}
	return dst
}

// close ends the open item with a status.
func (a *ResponsesAnswer) close(dst []byte, status string) []byte {
	o := a.open
	if o == nil {
		return dst
	}
	a.open = nil
	if o.call != "" && (len(o.text) == 0 || o.shape == customShape) {
		o.text = wire.Inner(o.arguments())
		dst = a.delta(dst, o, o.text)
	}
	itemJSON := o.json(status, true)
	if a.options.Stream {
		text := string(o.text)
		dst = a.event(dst, o.shape.text+".done", o.place, `,"`, o.member, `":"`, text, `"`, o.extra)
		if o.part != "" {
			dst = a.event(dst, o.part+".done", o.place, `,"part":`, o.partWithText(text))
		}
		dst = a.event(dst, "response.output_item.done", `,"output_index":`, strconv.Itoa(a.items), `,"item":`, itemJSON)
	}
	if a.items++; len(a.output) > 0 {
		a.output = append(a.output, ',')
	}
	a.output = append(a.output, itemJSON...)
	return dst
}

// arguments are those of a call that is complete; of a custom one, the text that is its input.
func (o *openItem) arguments() string {
	args := o.initial
	if len(o.text) > 0 {
		args = gjson.Parse(`"` + string(o.text) + `"`).Str
	}
	if o.shape == customShape && gjson.Valid(args) {
		if v := gjson.Get(args, "input"); v.Type == gjson.String {
			return v.Str
		}
	}
	return string(wire.InputObject(args))
}

// json is the item: at its beginning, without its text, or whole.
func (o *openItem) json(status string, complete bool) string {
	text, part := "", ""
	if complete {
		if text = string(o.text); o.part != "" {
			part = o.partWithText(text)
		}
	}
	head := `{"id":` + o.id + `,"type":"`
	switch o.shape {
	case textShape:
		return head + `message","status":"` + status + `","role":"assistant","content":[` + part + `]}`
	case thinkingShape: // it has no status: clients send it back, and vendors refuse that
		return head + `reasoning","summary":[` + part + `]}`
	case customShape:
		head += customItem
	default:
		head += callItem
	}
	return head + `","status":"` + status + `"` + o.call + `,"` + o.member + `":"` + text + `"}`
}

// response is the resource as it is now. Failed is its error as JSON.
func (a *ResponsesAnswer) response(status, reason, failed string) string {
	completed, incomplete, usage := "null", "null", []byte("null")
	if status == statusCompleted {
		completed = strconv.FormatInt(a.clock().Unix(), 10)
	}
	if reason != "" {
		incomplete = `{"reason":"` + reason + `"}`
	}
	if status != statusRunning {
		usage, _ = wire.Marshal(a.usage.Responses()) // numbers always encode
	}
	echo := "}"
	if len(a.options.Echo) > len("{}") {
		echo = "," + string(a.options.Echo[1:])
	}
	return `{"id":` + quote(a.options.ID) + `,"object":"response","created_at":` + strconv.FormatInt(a.created, 10) +
		`,"status":"` + status + `","completed_at":` + completed + `,"incomplete_details":` + incomplete + `,"model":` +
		quote(a.options.Model) + `,"store":` + strconv.FormatBool(a.options.Stored) + `,"error":` + failed + `,"usage":` +
		string(usage) + `,"output":[` + string(a.output) + "]" + echo
}

// event appends an event. Members are its further ones as JSON, each with a comma before it, in any pieces.
func (a *ResponsesAnswer) event(dst []byte, kind string, members ...string) []byte {
	if !a.options.Stream {
		return dst
	}
	dst = a.head(dst, kind, "")
	for _, m := range members {
		dst = append(dst, m...)
	}
	return append(dst, "}\n\n"...)
}

// delta is event for what a stream has most of.
func (a *ResponsesAnswer) delta(dst []byte, o *openItem, piece []byte) []byte {
	if !a.options.Stream {
		return dst
	}
	dst = append(append(a.head(dst, o.shape.text, ".delta"), o.place...), `,"delta":"`...)
	return append(append(append(append(dst, piece...), '"'), o.extra...), "}\n\n"...)
}

func (a *ResponsesAnswer) head(dst []byte, kind, suffix string) []byte {
	dst = append(append(append(dst, "event: "...), kind...), suffix...)
	dst = append(append(append(dst, "\ndata: {\"type\":\""...), kind...), suffix...)
	dst = strconv.AppendInt(append(dst, `","sequence_number":`...), a.number, 10)
	a.number++
	return dst
}

func quote(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r > '~' }) {
		return string(wire.Quote(s))
	}
	return `"` + s + `"`
}
