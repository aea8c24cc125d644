package upstreamtest

import (
	"cmp"
	"slices"
)

// created is the time of every answer of chat completions, in Unix seconds.
const created = 1750000000

// finishReasons translate stop reasons of the messages dialect.
var finishReasons = map[string]string{"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}

func (v rendering) finish() string { return cmp.Or(finishReasons[v.stop], "stop") }

// field returns the name of the reasoning in answers.
func (v rendering) field() string { return cmp.Or(v.config.Chat.ReasoningField, reasoningField) }

// joined returns all texts of this kind.
func (v rendering) joined(kind string) (s string) {
	for _, b := range v.blocks {
		if b.Type == kind {
			s += b.Text
		}
	}
	return s
}

func (v rendering) calls() []issued {
	return slices.DeleteFunc(slices.Clone(v.blocks), func(b issued) bool { return b.Type != useBlock })
}

// call returns the nth call, appended to o.
func (v rendering) call(o object, b issued, n int, arguments string) object {
	o = o.with("id", b.ID, "type", "function", "function", obj("name", b.Name, "arguments", arguments))
	if v.config.Chat.ThoughtSignatures && n == 0 {
		signature := v.server.signer.thought(v.Model, b.Name, b.Input)
		o = o.with("extra_content", obj("google", obj("thought_signature", signature)))
	}
	return o
}

func (v rendering) usage() object {
	fresh, read, _ := v.input()
	in := fresh + read
	o := obj("prompt_tokens", in, "completion_tokens", v.output, "total_tokens", in+v.output)
	switch {
	case !v.config.PromptCache:
	case v.config.vendor() == Kimi:
		return o.with("cached_tokens", read)
	case read > 0 || v.config.vendor() == OpenAI: // Google leaves out what is none
		return o.with("prompt_tokens_details", obj("cached_tokens", read))
	}
	return o
}

// choices returns an answer or a chunk. more follows its choices.
func (v rendering) choices(kind string, list []byte, pairs ...any) object {
	return obj("id", "chatcmpl-"+v.id, "object", kind, "created", created, "model", v.Model, "choices",
		list).with(pairs...)
}

// chat returns the answer of chat completions.
func (v rendering) chat() object {
	m := obj("role", assistant, "content", v.joined(textBlock))
	var calls []object
	for i, b := range v.calls() {
		calls = append(calls, v.call(obj(), b, i, b.Input))
	}
	if len(calls) > 0 && v.joined(textBlock) == "" {
		m = obj("role", assistant, "content", nil)
	}
	if s := v.joined(thinkingBlock); s != "" {
		m = m.with(v.field(), s)
	}
	if len(calls) > 0 {
		m = m.with("tool_calls", array(calls))
	}
	choice := obj("index", 0, "message", m, "finish_reason", v.finish())
	return v.choices("chat.completion", array([]object{choice}), "usage", v.usage())
}

// chatFrames returns the answer as chunks.
func (v rendering) chatFrames() (frames [][]byte) {
	add := func(data []byte) { frames = append(frames, frame("", data, v.config.vendor() == Kimi)) }
	delta := func(finish string, pairs ...any) {
		choice := obj("index", 0, "delta", obj(pairs...), "finish_reason", orNull(finish))
		add(v.choices("chat.completion.chunk", array([]object{choice})))
	}
	call := func(o object) { delta("", "tool_calls", array([]object{o})) }
	delta("", "role", assistant, "content", "")
	for _, p := range pieces(v.joined(thinkingBlock), v.chunk) {
		delta("", v.field(), p)
	}
	for _, p := range pieces(v.joined(textBlock), v.chunk) {
		delta("", "content", p)
	}
	for i, b := range v.calls() {
		call(v.call(obj("index", i), b, i, ""))
		for _, p := range pieces(b.Input, v.chunk) {
			call(obj("index", i, "function", obj("arguments", p)))
		}
	}
	delta(v.finish())
	if string(v.bodyObject("stream_options")["include_usage"]) == "true" {
		add(v.choices("chat.completion.chunk", emptyArray, "usage", v.usage()))
	}
	add([]byte("[DONE]"))
	return frames
}
