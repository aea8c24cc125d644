package responseswire

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// MessagesAnswer translates one answer of a Responses backend into the messages dialect. Event or Body take what the
// backend sent, in whichever form it came, and End finishes.
//
// Items become blocks, which come one after another: what is added to an item streams while no other is open. An
// item's last event has all of it, so that nothing is kept of the others until then.
type MessagesAnswer struct {
	options chatwire.AnswerOptions
	out     wire.AnswerWriter

	started   bool
	done      bool
	open      *growing     // the item that streams; nil for none
	completed map[int]bool // items that have come to their end, by index
	waiting   []item       // of them, those that came while another one streamed

	called bool
	usage  wire.Usage
	stop   wire.NullString

	keepRaw bool // the items' bytes
	native  bool // the client gets the vendor's own answer
	tail    tail
}

// growing is an item of which parts have been sent.
type growing struct {
	index  int
	block  string // type of its block
	via    string // the event by which thinking comes: some vendors send it as it is and in a summary, too
	part   int    // of the summary, which grows
	prefix strings.Builder
}

// blocks are the types of blocks that items become.
var blocks = map[string]string{
	messageItem: wire.TextBlock, reasoningItem: wire.ThinkingBlock, callItem: wire.ToolUseBlock,
	customItem: wire.ToolUseBlock,
}

// pieces are the events that add to an item, by the names that vendors use, with the type of its block.
var pieces = map[string]string{
	"response.output_text.delta":             wire.TextBlock,
	"response.refusal.delta":                 wire.TextBlock,
	"response.function_call_arguments.delta": wire.ToolUseBlock,
	"response.reasoning_summary_text.delta":  wire.ThinkingBlock,
	"response.reasoning_summary.delta":       wire.ThinkingBlock,
	"response.reasoning_text.delta":          wire.ThinkingBlock,
	"response.reasoning.delta":               wire.ThinkingBlock,
}

// NewMessagesAnswer begins an answer.
func NewMessagesAnswer(a chatwire.AnswerOptions) *MessagesAnswer {
	return &MessagesAnswer{options: a, completed: map[int]bool{}}
}

// SetSink has to take each event of the answer.
func (a *MessagesAnswer) SetSink(sink func(*wire.Event)) { a.out.Sink = sink }

// Keep has the answer keep what the items say beyond their blocks, for ResponsesRequest: of reasoning all of it, in
// the signature of its block. With native, for a client that gets the vendor's answer itself, items that have no
// counterpart are kept too, in place of a text. It returns a.
func (a *MessagesAnswer) Keep(native bool) *MessagesAnswer {
	a.keepRaw, a.native = true, native
	return a
}

// Complete reports whether the vendor has finished the answer, so that End can follow.
func (a *MessagesAnswer) Complete() bool { return a.stop != "" }

// Event takes the data of one server-sent event. An error is returned as a wire.Failure.
func (a *MessagesAnswer) Event(data []byte) error {
	if len(data) == 0 || string(data) == "[DONE]" || a.done {
		return nil
	}
	var e event
	if err := wire.Unmarshal(data, &e); err != nil {
		return err
	}
	if a.keepRaw && e.Item != nil {
		e.Item.raw = gjson.GetBytes(data, "item").Raw
	}
	if a.keepRaw && e.Response != nil && len(a.completed) < len(e.Response.Output) {
		e.Response.keep(gjson.GetBytes(data, "response.output"))
	}
	return a.step(e)
}

// keep notes the bytes of the items.
func (r *response) keep(output gjson.Result) {
	for i, it := range output.Array() {
		if i < len(r.Output) {
			r.Output[i].raw = it.Raw
		}
	}
}

// Body takes an answer that came as one JSON body.
func (a *MessagesAnswer) Body(body []byte) error {
	var r response
	if err := wire.Unmarshal(body, &r); err != nil {
		return err
	}
	switch {
	case r.Status == statusFailed || len(r.Error) > 0 && r.Error.Kind() != 'n':
		return wire.ReadError(r.Error)
	case r.Status != statusCompleted && r.Status != statusIncomplete:
		return chatwire.ErrCut
	}
	if a.keepRaw {
		r.keep(gjson.GetBytes(body, "output"))
	}
	return a.step(event{Type: "response." + r.Status, Response: &r})
}

// End finishes the answer. It fails with chatwire.ErrCut if the backend did not finish it.
func (a *MessagesAnswer) End() error {
	if a.stop == "" {
		return chatwire.ErrCut
	}
	a.done = true
	a.out.CloseBlock()
	if signature := a.tail.signature(a.out.Blocks()); a.keepRaw && signature != "" {
		a.out.Signature(signature)
	}
	a.out.End(a.stop, a.usage)
	return nil
}

// step translates one event.
func (a *MessagesAnswer) step(e event) error {
	switch e.Type {
	case "error":
		if e.Error.Kind() != '{' {
			e.Error, _ = wire.Marshal(struct {
				Code    jsontext.Value `json:"code,omitzero"`
				Message string         `json:"message"`
			}{e.Code, e.Message})
		}
		return wire.ReadError(e.Error)
	case "response.failed", "response.cancelled":
		if e.Response == nil {
			return wire.ReadError(nil)
		}
		return wire.ReadError(e.Response.Error)
	case "response.created", "response.in_progress":
		a.start(e.Response)
	case "response.output_item.added":
		a.start(nil)
		if e.Item != nil && e.Item.Type == callItem && a.open == nil && !a.completed[e.OutputIndex] {
			a.call(e.OutputIndex, *e.Item)
		}
	case "response.output_item.done":
		a.start(nil)
		if e.Item != nil {
			a.finish(e.OutputIndex, *e.Item)
		}
	case "response.completed", "response.incomplete":
		a.start(e.Response)
		a.end(e)
	default:
		a.start(nil)
		a.grow(e)
	}
	return nil
}

// start begins the answer, once.
func (a *MessagesAnswer) start(r *response) {
	if a.started {
		return
	}
	a.started = true
	r = cmp.Or(r, new(response))
	a.out.Start(cmp.Or(r.ID, NewID()), cmp.Or(a.options.Model, r.Model))
}

// grow adds a piece to an item.
func (a *MessagesAnswer) grow(e event) {
	block := pieces[e.Type]
	if block == "" || e.Delta == "" || a.completed[e.OutputIndex] {
		return
	}
	if a.open == nil && block != wire.ToolUseBlock {
		a.open = &growing{index: e.OutputIndex, block: block, via: e.Type, part: e.SummaryIndex}
	}
	g := a.open
	if g == nil || g.index != e.OutputIndex || g.block != block || block == wire.ThinkingBlock && g.via != e.Type {
		return
	}
	if g.part != e.SummaryIndex {
		g.part = e.SummaryIndex
		a.send("\n\n")
	}
	a.send(string(e.Delta))
}

// send adds to the block of the open item.
func (a *MessagesAnswer) send(piece string) {
	a.open.prefix.WriteString(piece)
	switch a.open.block {
	case wire.ToolUseBlock:
		a.out.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: piece})
	case wire.ThinkingBlock:
		a.out.Thinking(piece)
	default:
		a.out.Text(piece)
	}
}

// call opens the call of a tool.
func (a *MessagesAnswer) call(index int, it item) {
	a.called = true
	a.open = &growing{index: index, block: wire.ToolUseBlock}
	a.out.OpenCall(it.CallID, flat(it.Namespace, it.Name))
}

// finish takes an item that is whole.
func (a *MessagesAnswer) finish(index int, it item) {
	if a.completed[index] {
		return
	}
	a.completed[index] = true
	if a.open != nil && a.open.index != index {
		a.waiting = append(a.waiting, it)
		return
	}
	a.rest(it)
	a.release()
}

// release sends the items that waited.
func (a *MessagesAnswer) release() {
	for _, it := range a.waiting {
		a.rest(it)
	}
	a.waiting = nil
}

// rest sends what of an item has not been sent, and closes it.
func (a *MessagesAnswer) rest(it item) {
	block := blocks[it.Type]
	if a.open != nil && a.open.block != block {
		a.close()
	}
	switch {
	case block == "":
		if a.native && it.raw != "" {
			a.out.CloseBlock()
			a.out.Text(wire.Seal([]byte(it.raw)))
			a.out.CloseBlock()
		}
		return
	case a.open == nil && block == wire.ToolUseBlock:
		a.call(0, it)
	case a.open == nil:
		a.open = &growing{block: block}
	}
	prefix, full := a.open.prefix.String(), it.Content.text("")
	switch block {
	case wire.ToolUseBlock:
		if full = string(it.Arguments); it.Type == customItem {
			full = customArguments(it)
		}
	case wire.ThinkingBlock:
		full = it.thought(prefix)
	}
	if suffix, ok := strings.CutPrefix(full, prefix); ok && suffix != "" {
		a.send(suffix)
	}
	index := a.out.Blocks()
	if block == wire.ThinkingBlock && a.keepRaw && it.raw != "" {
		a.out.Signature(wire.Seal([]byte(it.raw)))
		a.tail.Thoughts++
	}
	a.close()
	if block != wire.ThinkingBlock && a.keepRaw && it.raw != "" && a.out.Blocks() > index {
		a.tail.add(index, it.raw)
	}
}

// thought is the text of reasoning that goes on from what was sent: its summary, if it does.
func (it item) thought(prefix string) string {
	if summary := it.Summary.text("\n\n"); summary != "" && strings.HasPrefix(summary, prefix) {
		return summary
	}
	return it.Content.text("")
}

// customArguments is the text that is a custom call's input, as the input of a tool use.
func customArguments(it item) string { return `{"input":` + string(wire.Quote(string(it.Input))) + `}` }

// close closes the open item. A call has an input in any case.
func (a *MessagesAnswer) close() {
	if a.open.block == wire.ToolUseBlock && strings.TrimSpace(a.open.prefix.String()) == "" {
		a.send("{}")
	}
	a.out.CloseBlock()
	a.open = nil
}

// end takes the last event. The items in it are those that came before, unless the vendor left out events.
func (a *MessagesAnswer) end(e event) {
	r := e.Response
	r = cmp.Or(r, new(response))
	for i, it := range r.Output {
		a.finish(i, it)
	}
	if a.open != nil { // its end did not come
		a.close()
	}
	a.release()
	a.usage, _ = wire.ReadUsage(wire.Responses, r.Usage)
	switch {
	case r.Incomplete.Reason == reasonFilter:
		a.stop = wire.StopRefusal
	case e.Type == "response.incomplete":
		a.stop = wire.StopMaxTokens
	case a.called:
		a.stop = wire.StopToolUse
	default:
		a.stop = wire.StopEndTurn
	}
}
