package upstreamtest

import (
	"cmp"
	"slices"
)

// sealSteps signs the thoughts of an answer and remembers it. An answer always begins with a thought. The first call
// after a thought has the thought's signature.
func sealSteps(x *exchange, blocks []issued) []issued {
	if len(blocks) == 0 || blocks[0].Type != thinkingBlock {
		blocks = slices.Insert(blocks, 0, issued{Block: Think("")})
	}
	answer, items, newest := &answerReasoning{}, map[string]*issuedItem{}, ""
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case thinkingBlock:
			if !x.bodyObject("generation_config").is("thinking_summaries", "auto") {
				b.Text = ""
			}
			b.item = itemID("thought")
			b.signature = x.server.signer.encrypt(thoughtStep+b.Text, b.item, b.Text)
			answer.own, newest = append(answer.own, b.item), b.signature
		case useBlock:
			b.signature, newest = newest, ""
			items[b.ID] = &issuedItem{answer: answer}
		}
	}
	x.responseID = itemID("v1")
	x.server.items.add(items, 0)
	return blocks
}

// step returns a block as a complete step, or as in step.start.
func (b issued) step(complete bool) object {
	switch {
	case b.Type == thinkingBlock && !complete:
		return obj("type", thoughtStep)
	case b.Type == thinkingBlock:
		o := obj("type", thoughtStep, "signature", b.signature)
		if b.Text != "" {
			o = o.with("summary", array([]object{obj("type", "text", "text", b.Text)}))
		}
		return o
	case b.Type == useBlock:
		o := obj("type", callItem, "id", b.ID, "name", b.Name, "arguments", []byte(map[bool]string{true: b.Input,
			false: "{}"}[complete]))
		if b.signature != "" {
			o = o.with("signature", b.signature)
		}
		return o
	case !complete:
		return obj("type", outputStep)
	}
	return obj("type", outputStep, "content", array([]object{obj("type", "text", "text", b.Text)}))
}

// interaction returns the answer. A stream with calls is completed. A JSON answer with calls requires action.
func (v rendering) interaction(stream bool) object {
	status := map[string]string{"max_tokens": "incomplete", "tool_use": "requires_action", stopFailed: "failed",
		"content_filter": "failed"}[v.stop]
	if stream && v.stop == "tool_use" {
		status = ""
	}
	fresh, read, _ := v.input()
	in, thoughts := fresh+read, reasoningTokens(v.blocks)
	o := obj("id", v.responseID, "status", cmp.Or(status, "completed"), "object", "interaction", "model", v.Model, "usage",
		obj("total_tokens", in+v.output+thoughts, "total_input_tokens", in, "total_cached_tokens", read,
			"total_output_tokens", v.output, "total_tool_use_tokens", 0, "total_thought_tokens", thoughts))
	if stream {
		return o
	}
	var steps []object
	for _, b := range v.blocks {
		steps = append(steps, b.step(true))
	}
	if o = o.with("steps", array(steps)); badEnds[v.stop] != "" {
		return o.with("errors", array([]object{obj("code", badEnds[v.stop], "message", "The model gave no answer.")}))
	}
	return o
}

// badEnds are the error codes of failed interactions by stop reason.
var badEnds = map[string]string{stopFailed: "api_error", "content_filter": "safety"}

// interactionFrames returns the answer as events.
func (v rendering) interactionFrames() (frames [][]byte) {
	add := func(kind string, pairs ...any) {
		frames = append(frames, frame(kind, obj(pairs...).with("event_type", kind), false))
	}
	add("interaction.created", "interaction", obj("id", v.responseID, "status", "in_progress", "object", "interaction",
		"model", v.Model))
	add("interaction.status_update", "interaction_id", v.responseID, "status", "in_progress")
	for i, b := range v.blocks {
		add("step.start", "index", i, "step", b.step(false))
		text, kind, member := b.Text, "text", "text"
		if b.Type == useBlock {
			text, kind, member = b.Input, "arguments_delta", "arguments"
		}
		for _, p := range pieces(text, v.chunk) {
			delta := obj("type", kind, member, p)
			if b.Type == thinkingBlock {
				delta = obj("type", "thought_summary", "content", obj("type", "text", "text", p))
			}
			add("step.delta", "index", i, "delta", delta)
		}
		if b.Type == thinkingBlock {
			add("step.delta", "index", i, "delta", obj("type", "thought_signature", "signature", b.signature))
		}
		add("step.stop", "index", i)
	}
	if code := badEnds[v.stop]; code != "" {
		return append(frames, googleFailure(0, code, "The model gave no answer."))
	}
	add("interaction.completed", "interaction", v.interaction(true))
	return append(frames, frame("done", []byte("[DONE]"), false))
}

// googleError returns an error as an answer or an event.
func googleError(status int, code, message string) object {
	return obj("error", obj("message", message, "code", cmp.Or(code, googleCodes[status], "api_error")))
}

func googleFailure(status int, code, message string) []byte {
	return frame("error", googleError(status, code, message).with("event_type", "error"), false)
}
