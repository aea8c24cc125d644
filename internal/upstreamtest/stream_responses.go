package upstreamtest

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"mneme/proxy/wire"
)

// stopFailed is the StopReason, and the status, of a failed response.
const stopFailed = "failed"

// sealItems adds the ids and encrypted contents of items to the blocks of an answer and remembers them. whole stores
// the response, so that a request can continue it.
func (x *exchange) sealItems(blocks []issued, store bool) {
	x.responseID = itemID("resp")
	answer, items := &answerReasoning{}, map[string]*issuedItem{}
	unit, first, compaction := "", false, x.compaction
	context := slices.Clone(x.items)
	for i := range blocks {
		b := &blocks[i]
		kind := x.itemType(b.Block)
		b.item = itemID(itemShapes[kind].id)
		m := &issuedItem{reasoning: unit, first: first, compaction: compaction, answer: answer}
		first = false
		switch kind {
		case reasoningItem:
			unit, first = b.item, true
			m.reasoning = unit
			if x.config.vendor() == DeepSeek {
				answer.own = append(answer.own, byText(b.Text))
				break
			}
			answer.own = append(answer.own, b.item)
			if slices.Contains(x.includes(), encryptedContent) {
				b.signature = x.server.signer.encrypt(kind, b.item, b.Text)
			}
		case compactionItem:
			b.signature = x.server.signer.encrypt(kind, b.item, b.Text)
			compaction = b.item
		case callItem, customItem:
			items[b.ID] = m
		}
		items[b.item] = m
		item, err := read(x.item(*b, "completed", true))
		if err != nil {
			panic(err) // the body was written here
		}
		if context = append(context, item); x.persists() {
			m.stored = item
		}
	}
	x.server.items.add(items, 0)
	if store && x.persists() {
		x.server.responses.add(map[string][]members{x.responseID: context}, bytesOf(context[x.input:]))
	}
}

// persists reports whether the vendor stores the response.
func (x *exchange) persists() bool {
	return x.config.vendor() == OpenAI && string(x.body["store"]) != "false"
}

// itemType returns the item type of a block.
func (x *exchange) itemType(b Block) string {
	switch b.Type {
	case thinkingBlock:
		return reasoningItem
	case compactionBlock:
		return compactionItem
	case useBlock:
		if x.tool(b.Name).custom {
			return customItem
		}
		return callItem
	}
	return messageItem
}

// tool returns the offered tool of this name.
func (x *exchange) tool(name string) (t Tool) {
	if i := slices.IndexFunc(x.Tools, func(t Tool) bool { return t.Name == name }); i >= 0 {
		t = x.Tools[i]
	}
	return t
}

// part returns the type of an item's part and the member with its text, or "".
func (x *exchange) part(b issued) (kind, member string) {
	switch {
	case b.Type == textBlock && x.stop == "refusal":
		return "refusal", "refusal"
	case b.Type == textBlock:
		return "output_text", "text"
	case b.Type != thinkingBlock || b.Text == "" && x.config.vendor() == OpenAI:
		return "", ""
	case x.config.vendor() == DeepSeek:
		return "reasoning_text", "text"
	case x.bodyObject("reasoning").has("summary"):
		return "summary_text", "text"
	}
	return "", ""
}

// partOf returns a part of an item with this text.
func (x *exchange) partOf(b issued, text string) object {
	kind, member := x.part(b)
	o := obj("type", kind, member, text)
	if kind == "output_text" {
		o = o.with("annotations", emptyArray, "logprobs", emptyArray)
	}
	return o
}

// item returns a block as an item. Without content it is as in response.output_item.added.
func (x *exchange) item(b issued, status string, content bool) object {
	kind := x.itemType(b.Block)
	o := obj("id", b.item, "type", kind)
	parts, input := emptyArray, ""
	if content {
		if input = b.Input; first(x.part(b)) != "" {
			parts = array([]object{x.partOf(b, b.Text)})
		}
	}
	switch kind {
	case messageItem:
		return o.with("status", status, "role", assistant, "content", parts)
	case reasoningItem:
		if first(x.part(b)) == "reasoning_text" {
			o = o.with("summary", emptyArray, "content", parts)
		} else {
			o = o.with("summary", parts)
		}
		if !content || b.signature == "" {
			return o
		}
		fallthrough
	case compactionItem:
		return o.with("encrypted_content", b.signature)
	}
	member := map[string]string{callItem: "arguments", customItem: "input"}[kind]
	o = o.with("status", status, "call_id", b.ID, "name", b.Name, member, input)
	if t := x.tool(b.Name); t.namespace != "" {
		o = o.with("namespace", t.namespace)
	}
	return o
}

func first(a, _ string) string { return a }

// statusOf returns the status of a response with this stop reason, and the reason of an incomplete one.
func statusOf(stop string) (status, reason string) {
	switch stop {
	case "max_tokens":
		return "incomplete", "max_output_tokens"
	case "content_filter":
		return "incomplete", stop
	case stopFailed:
		return stopFailed, ""
	}
	return "completed", ""
}

// lastStatus returns the status of item i of the answer.
func (v rendering) lastStatus(i int) string {
	if status, _ := statusOf(v.stop); status == "incomplete" && i == len(v.blocks)-1 {
		return status
	}
	return "completed"
}

// echoes are the members of a request that a response repeats, and their default values.
var echoes = []struct{ name, usual string }{
	{"background", "false"}, {"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"},
	{"metadata", "{}"}, {"parallel_tool_calls", "true"}, {"previous_response_id", "null"},
	{"prompt_cache_key", "null"}, {"reasoning", `{"effort":null,"summary":null}`}, {"safety_identifier", "null"},
	{"service_tier", `"default"`}, {"store", "true"}, {"temperature", "1"}, {"text", `{"format":{"type":"text"}}`},
	{"tool_choice", `"auto"`}, {"tools", "[]"}, {"top_logprobs", "0"}, {"top_p", "1"}, {"truncation", `"disabled"`},
	{"user", "null"},
}

// response returns the answer of Responses. A response in progress has no output.
func (v rendering) response(status string, failure refusal) object {
	var output []object
	var usage, details, failed any
	if end, reason := statusOf(v.stop); status == end {
		for i, b := range v.blocks {
			output = append(output, v.item(b, v.lastStatus(i), true))
		}
		if usage = v.itemUsage(); reason != "" {
			details = obj("reason", reason)
		}
	}
	if status == stopFailed {
		failed = obj("code", cmp.Or(failure.code, responseCode(failure.status)), "message", failure.message)
	}
	o := obj("id", v.responseID, "object", "response", "created_at", created, "status", status, "error", failed,
		"incomplete_details", details, "model", v.Model, "output", array(output))
	for _, echo := range echoes {
		value := []byte(echo.usual)
		if v.body.has(echo.name) {
			value = v.body[echo.name]
		}
		o = o.with(echo.name, value)
	}
	return o.with("usage", usage)
}

func (v rendering) itemUsage() object {
	fresh, read, _ := v.input()
	in, reasoning := fresh+read, reasoningTokens(v.blocks)
	out := v.output + reasoning
	return obj("input_tokens", in, "input_tokens_details", obj("cached_tokens", read), "output_tokens", out,
		"output_tokens_details", obj("reasoning_tokens", reasoning), "total_tokens", in+out)
}

// bytesOf returns the total size of the members.
func bytesOf(list []members) (n int) {
	for _, m := range list {
		for _, value := range m {
			n += len(value)
		}
	}
	return n
}

const serverError = "server_error"

// responseCode returns the error code of Responses for a status.
func responseCode(status int) string {
	codes := map[int]string{429: "rate_limit_exceeded", 503: "server_is_overloaded", 529: "server_is_overloaded"}
	return cmp.Or(codes[status], serverError)
}

// numbered numbers the events of a stream.
type numbered int

func (n *numbered) event(kind string, rest ...any) []byte {
	*n++
	return frame(kind, obj("type", kind, "sequence_number", int(*n)-1).with(rest...), false)
}

// failed returns the events of a failed stream, from number n.
func (v rendering) failed(n numbered, r refusal) []byte {
	if r.code == "" && r.status != http.StatusBadRequest {
		r.code = responseCode(r.status)
	}
	detail := []any{"error", r.detailIn(wire.Responses)}
	if v.config.Responses.FlatErrors {
		detail = []any{"message", r.message, "param", orNull(r.param), "code", orNull(r.code)}
	}
	first := n.event("error", detail...)
	return append(first, n.event("response."+stopFailed, "response", v.response(stopFailed, r))...)
}

// responseFrames returns the answer as events.
func (v rendering) responseFrames() (frames [][]byte) {
	var n numbered
	add := func(kind string, pairs ...any) { frames = append(frames, n.event("response."+kind, pairs...)) }
	add("created", "response", v.response("in_progress", refusal{}))
	add("in_progress", "response", v.response("in_progress", refusal{}))
	for i, b := range v.blocks {
		add("output_item.added", "output_index", i, "item", v.item(b, "in_progress", false))
		v.deltas(b, func(kind string, pairs ...any) {
			add(kind, append([]any{"output_index", i, "item_id", b.item}, pairs...)...)
		})
		add("output_item.done", "output_index", i, "item", v.item(b, v.lastStatus(i), true))
	}
	status, _ := statusOf(v.stop)
	add(status, "response", v.response(status, stopped))
	return frames
}

// refuseInStream refuses a request with events of a stream if the vendor does so. It reports whether it did.
func (x *exchange) refuseInStream(w http.ResponseWriter, err error, settle func(int, string)) bool {
	var r refusal
	if !errors.As(err, &r) || !r.inStream || !x.Stream {
		return false
	}
	settle(http.StatusOK, r.message)
	x.responseID = itemID("resp")
	v := rendering{exchange: x}
	frames := v.responseFrames()
	w.Header().Set("Content-Type", eventStream)
	for _, f := range append(frames[:2], v.failed(2, r)) {
		x.flush(w, f)
	}
	return true
}

// stopped is the refusal of a failed response.
var stopped = refusal{status: http.StatusInternalServerError, message: faultText(http.StatusInternalServerError)}

// deltas adds the events between the first and the last event of an item.
func (v rendering) deltas(b issued, add func(kind string, pairs ...any)) {
	kind, member := v.part(b)
	name, open, text := kind, "content_part", b.Text
	index := []any{"content_index", 0}
	switch {
	case b.Type == useBlock && v.tool(b.Name).custom:
		name, member, text, index = "custom_tool_call_input", "input", b.Input, nil
	case b.Type == useBlock:
		name, member, text, index = "function_call_arguments", "arguments", b.Input, nil
	case kind == "":
		return
	case kind == "summary_text":
		name, open, index[0] = "reasoning_summary_text", "reasoning_summary_part", "summary_index"
	}
	say := func(kind string, pairs ...any) { add(kind, slices.Concat(index, pairs)...) }
	if index != nil {
		say(open+".added", "part", v.partOf(b, ""))
	}
	for _, p := range pieces(text, v.chunk) {
		say(name+".delta", "delta", p)
	}
	say(name+".done", member, text)
	if index != nil {
		say(open+".done", "part", v.partOf(b, text))
	}
}
