package upstreamtest

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"mneme/proxy/wire"
)

// stopFailed is the status, and the StopReason, of a response that failed.
const stopFailed = "failed"

// sealItems gives the blocks of an answer what they have as items, and remembers them; whole says that the
// response will be there to go on from.
func (x *exchange) sealItems(blocks []issued, whole bool) {
	x.responseID = itemID("resp")
	answer, items := &given{}, map[string]*made{}
	unit, first, compaction := "", false, x.compaction
	context := slices.Clone(x.items)
	for i := range blocks {
		b := &blocks[i]
		kind := x.itemType(b.Block)
		b.item = itemID(itemRules[kind].id)
		m := &made{reasoning: unit, first: first, compaction: compaction, answer: answer}
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
			panic(err) // it was written here
		}
		if context = append(context, item); x.persists() {
			m.stored = item
		}
	}
	x.server.items.add(answer, items)
	if whole && x.persists() {
		x.server.items.persist(x.responseID, context, bytesOf(context[x.input:]))
	}
}

// persists says whether the vendor keeps the response.
func (x *exchange) persists() bool {
	return x.config.vendor() == OpenAI && string(x.body["store"]) != "false"
}

// itemType is what a block is as an item.
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

// tool is the tool of this name that the request offers.
func (x *exchange) tool(name string) (t Tool) {
	if i := slices.IndexFunc(x.Tools, func(t Tool) bool { return t.Name == name }); i >= 0 {
		t = x.Tools[i]
	}
	return t
}

// parts are the parts of an item's content or summary, each with a text.
func (x *exchange) parts(b issued) (kind, member string, there bool) {
	switch {
	case b.Type == textBlock && x.stop == "refusal":
		return "refusal", "refusal", true
	case b.Type == textBlock:
		return "output_text", "text", true
	case b.Type != thinkingBlock || b.Text == "" && x.config.vendor() == OpenAI:
		return "", "", false
	case x.config.vendor() == DeepSeek:
		return "reasoning_text", "text", true
	}
	return "summary_text", "text", x.at("reasoning").has("summary")
}

// part is a part of an item with this text.
func (x *exchange) part(b issued, text string) []byte {
	kind, member, _ := x.parts(b)
	o := object(nil).text("type", kind).text(member, text)
	if kind == "output_text" {
		o = o.raw("annotations", []byte("[]")).raw("logprobs", []byte("[]"))
	}
	return o.end()
}

// item is a block as an item; without content, as response.output_item.added has it.
func (x *exchange) item(b issued, status string, content bool) []byte {
	kind := x.itemType(b.Block)
	o := object(nil).text("id", b.item).text("type", kind)
	var parts [][]byte
	part, _, there := x.parts(b)
	if there && content {
		parts = append(parts, x.part(b, b.Text))
	}
	input := b.Input
	if !content {
		input = ""
	}
	switch kind {
	case messageItem:
		o = o.text("status", status).text("role", assistant).raw("content", array(parts))
	case reasoningItem:
		if part == "reasoning_text" {
			o = o.raw("summary", []byte("[]")).raw("content", array(parts))
		} else {
			o = o.raw("summary", array(parts))
		}
		if content && b.signature != "" {
			o = o.text("encrypted_content", b.signature)
		}
	case compactionItem:
		o = o.text("encrypted_content", b.signature)
	case callItem, customItem:
		member := map[string]string{callItem: "arguments", customItem: "input"}[kind]
		o = o.text("status", status).text("call_id", b.ID).text("name", b.Name).text(member, input)
		if t := x.tool(b.Name); t.namespace != "" {
			o = o.text("namespace", t.namespace)
		}
	}
	return o.end()
}

// statusOf is how a response ends that stops for this reason, and why it is incomplete.
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

// lastStatus is the status of item i of the answer.
func (v rendering) lastStatus(i int) string {
	if status, _ := statusOf(v.stop); status == "incomplete" && i == len(v.blocks)-1 {
		return status
	}
	return "completed"
}

// response is the answer as Responses have it; one in progress has no output yet.
func (v rendering) response(status string, failure refusal) []byte {
	null := []byte("null")
	var output [][]byte
	usage, details, failed := null, null, null
	switch end, reason := statusOf(v.stop); status {
	case end:
		for i, b := range v.blocks {
			output = append(output, v.item(b, v.lastStatus(i), true))
		}
		usage = v.itemUsage()
		if reason != "" {
			details = object(nil).text("reason", reason).end()
		}
	}
	if status == stopFailed {
		failed = object(nil).text("code", cmp.Or(failure.code, responseCode(failure.status))).text("message",
			failure.message).end()
	}
	o := object(nil).text("id", v.responseID).text("object", "response").number("created_at", created).
		text("status", status).raw("error", failed).raw("incomplete_details", details).text("model", v.Model).
		raw("output", array(output))
	for _, echo := range []struct{ name, usual string }{
		{"background", "false"}, {"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"},
		{"metadata", "{}"}, {"parallel_tool_calls", "true"}, {"previous_response_id", "null"},
		{"prompt_cache_key", "null"}, {"reasoning", `{"effort":null,"summary":null}`}, {"safety_identifier", "null"},
		{"service_tier", `"default"`}, {"store", "true"}, {"temperature", "1"}, {"text", `{"format":{"type":"text"}}`},
		{"tool_choice", `"auto"`}, {"tools", "[]"}, {"top_logprobs", "0"}, {"top_p", "1"}, {"truncation", `"disabled"`},
		{"user", "null"},
	} {
		value := []byte(echo.usual)
		if v.body.has(echo.name) {
			value = v.body[echo.name]
		}
		o = o.raw(echo.name, value)
	}
	return o.raw("usage", usage).end()
}

func (v rendering) itemUsage() []byte {
	fresh, read, _ := v.input()
	in, reasoning := fresh+read, reasoningTokens(v.blocks)
	out := v.output + reasoning
	return object(nil).number("input_tokens", in).
		raw("input_tokens_details", object(nil).number("cached_tokens", read).end()).
		number("output_tokens", out).
		raw("output_tokens_details", object(nil).number("reasoning_tokens", reasoning).end()).
		number("total_tokens", in+out).end()
}

// bytesOf is how many bytes the members of objects have.
func bytesOf(list []members) (n int) {
	for _, m := range list {
		for _, value := range m {
			n += len(value)
		}
	}
	return n
}

const serverError = "server_error"

// responseCode is what Responses call a failure of this status.
func responseCode(status int) string {
	codes := map[int]string{429: "rate_limit_exceeded", 503: "server_is_overloaded", 529: "server_is_overloaded"}
	return cmp.Or(codes[status], serverError)
}

// numbered makes the events of a stream from the number it stands at.
type numbered int

func (n *numbered) event(kind string, rest object) []byte {
	o := object(nil).text("type", kind).number("sequence_number", int(*n))
	if len(rest) > 0 {
		o = append(append(o, ','), rest[1:]...)
	}
	*n++
	return frame(kind, o.end(), false)
}

// failed are the events by which a stream fails that stands at n.
func (v rendering) failed(n numbered, r refusal) []byte {
	if r.code == "" && r.status != http.StatusBadRequest {
		r.code = responseCode(r.status)
	}
	detail := object(nil).raw("error", r.detailIn(wire.Responses).end())
	if v.config.Responses.FlatErrors {
		detail = r.named(object(nil).text("message", r.message))
	}
	first := n.event("error", detail)
	return append(first, n.event("response."+stopFailed, object(nil).raw("response", v.response(stopFailed, r)))...)
}

// responseFrames is the answer as events.
func (v rendering) responseFrames() (frames [][]byte) {
	var n numbered
	add := func(kind string, o object) { frames = append(frames, n.event(kind, o)) }
	for _, kind := range []string{"created", "in_progress"} {
		add("response."+kind, object(nil).raw("response", v.response("in_progress", refusal{})))
	}
	for i, b := range v.blocks {
		at := func() object { return object(nil).number("output_index", i) }
		add("response.output_item.added", at().raw("item", v.item(b, "in_progress", false)))
		v.deltas(b, func(kind string, o object) {
			add(kind, append(append(at().text("item_id", b.item), ','), o[1:]...))
		})
		add("response.output_item.done", at().raw("item", v.item(b, v.lastStatus(i), true)))
	}
	status, _ := statusOf(v.stop)
	add("response."+status, object(nil).raw("response", v.response(status, v.stopped())))
	return frames
}

// refuseInStream refuses a request by events of a stream where the vendor does that, and says whether it did.
func (x *exchange) refuseInStream(w http.ResponseWriter, err error) bool {
	var r refusal
	if !errors.As(err, &r) || !r.inStream || !x.Stream {
		return false
	}
	x.responseID = itemID("resp")
	v := rendering{exchange: x}
	frames := v.responseFrames()
	w.Header().Set("Content-Type", eventStream)
	for _, f := range append(frames[:2], v.failed(2, r)) {
		x.flush(w, f)
	}
	return true
}

// stopped is why a response failed.
func (v rendering) stopped() refusal {
	return refusal{status: 500, message: faultText(500)}
}

// deltas are the events between the first and the last one of an item.
func (v rendering) deltas(b issued, add func(kind string, o object)) {
	part, member, there := v.parts(b)
	name, open, index := part, "response.content_part.", "content_index"
	text := b.Text
	switch {
	case b.Type == useBlock:
		name, member, text = "function_call_arguments", "arguments", b.Input
		if v.tool(b.Name).custom {
			name, member = "custom_tool_call_input", "input"
		}
		for _, p := range pieces(text, v.chunk) {
			add("response."+name+".delta", object(nil).text("delta", p))
		}
		add("response."+name+".done", object(nil).text(member, text))
		return
	case !there:
		return
	case part == "summary_text":
		name, open, index = "reasoning_summary_text", "response.reasoning_summary_part.", "summary_index"
	}
	at := func() object { return object(nil).number(index, 0) }
	add(open+"added", at().raw("part", v.part(b, "")))
	for _, p := range pieces(text, v.chunk) {
		add("response."+name+".delta", at().text("delta", p))
	}
	add("response."+name+".done", at().text(member, text))
	add(open+"done", at().raw("part", v.part(b, text)))
}
