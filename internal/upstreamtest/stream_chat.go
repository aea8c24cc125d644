package upstreamtest

import "cmp"

// created is when every answer of chat completions was made, in Unix seconds.
const created = 1750000000

// finishReasons are the words of chat completions for those of the messages dialect.
var finishReasons = map[string]string{"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}

func (v rendering) finish() string { return cmp.Or(finishReasons[v.stop], "stop") }

// field is where the vendor holds its reasoning.
func (v rendering) field() string { return cmp.Or(v.config.Chat.ReasoningField, reasoningField) }

// joined is all text, or all thinking, of the answer.
func (v rendering) joined(kind string) (s string) {
	for _, b := range v.blocks {
		if b.Type == kind {
			s += b.Text
		}
	}
	return s
}

func (v rendering) calls() (list []issued) {
	for _, b := range v.blocks {
		if b.Type == useBlock {
			list = append(list, b)
		}
	}
	return list
}

// call is the nth call with these arguments; index tells whether it has its number.
func (v rendering) call(b issued, n int, arguments string, index bool) []byte {
	o := object(nil)
	if index {
		o = o.number("index", n)
	}
	f := object(nil).text("name", b.Name).text("arguments", arguments).end()
	o = o.text("id", b.ID).text("type", "function").raw("function", f)
	if v.config.Chat.ThoughtSignatures && n == 0 {
		signature := object(nil).text("thought_signature", v.server.signer.thought(v.Model, b.Name, b.Input)).end()
		o = o.raw("extra_content", object(nil).raw("google", signature).end())
	}
	return o.end()
}

func (v rendering) usage() []byte {
	fresh, read, _ := v.input()
	in := fresh + read
	o := object(nil).number("prompt_tokens", in).number("completion_tokens", v.output).number("total_tokens", in+v.output)
	switch {
	case !v.config.PromptCache:
	case v.config.vendor() == Kimi:
		o = o.number("cached_tokens", read)
	case read > 0 || v.config.vendor() == OpenAI: // Google leaves out what is none
		o = o.raw("prompt_tokens_details", object(nil).number("cached_tokens", read).end())
	}
	return o.end()
}

// head begins a body or a chunk.
func (v rendering) head(kind string) object {
	return object(nil).text("id", "chatcmpl-"+v.id).text("object", kind).number("created", created).text("model", v.Model)
}

// chat is the answer as chat completions have it.
func (v rendering) chat() []byte {
	m := object(nil).text("role", assistant)
	if s, calls := v.joined(textBlock), v.calls(); s == "" && len(calls) > 0 {
		m = m.raw("content", []byte("null"))
	} else {
		m = m.text("content", s)
	}
	if s := v.joined(thinkingBlock); s != "" {
		m = m.text(v.field(), s)
	}
	var calls [][]byte
	for i, b := range v.calls() {
		calls = append(calls, v.call(b, i, b.Input, false))
	}
	if len(calls) > 0 {
		m = m.raw("tool_calls", array(calls))
	}
	choice := object(nil).number("index", 0).raw("message", m.end()).text("finish_reason", v.finish()).end()
	return v.head("chat.completion").raw("choices", array([][]byte{choice})).raw("usage", v.usage()).end()
}

// chatFrames is the answer as chunks.
func (v rendering) chatFrames() (frames [][]byte) {
	add := func(delta []byte, finish string) {
		reason := []byte("null")
		if finish != "" {
			reason = quoted(finish)
		}
		choice := object(nil).number("index", 0).raw("delta", delta).raw("finish_reason", reason).end()
		frames = append(frames, v.frame(v.head("chat.completion.chunk").raw("choices", array([][]byte{choice})).end()))
	}
	add(object(nil).text("role", assistant).text("content", "").end(), "")
	for _, p := range pieces(v.joined(thinkingBlock), v.chunk) {
		add(object(nil).text(v.field(), p).end(), "")
	}
	for _, p := range pieces(v.joined(textBlock), v.chunk) {
		add(object(nil).text("content", p).end(), "")
	}
	for i, b := range v.calls() {
		add(object(nil).raw("tool_calls", array([][]byte{v.call(b, i, "", true)})).end(), "")
		for _, p := range pieces(b.Input, v.chunk) {
			f := object(nil).text("arguments", p).end()
			more := object(nil).number("index", i).raw("function", f).end()
			add(object(nil).raw("tool_calls", array([][]byte{more})).end(), "")
		}
	}
	add(object(nil).end(), v.finish())
	if string(v.at("stream_options")["include_usage"]) == "true" {
		frames = append(frames,
			v.frame(v.head("chat.completion.chunk").raw("choices", []byte("[]")).raw("usage", v.usage()).end()))
	}
	return append(frames, v.frame([]byte("[DONE]")))
}

func (v rendering) frame(data []byte) []byte { return frame("", data, v.config.vendor() == Kimi) }
