package openaimodel

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// collector puts a streamed answer together.
type collector struct {
	calls  []*partialCall
	usage  event.Usage
	finish openai.FinishReason
	text   bool // some has been seen
}

// partialCall is a tool call of which pieces are still coming.
type partialCall struct {
	index     int
	id, name  string
	arguments strings.Builder
}

// chunk is what is read of a part of the stream: decoding all that go-openai knows takes longer.
type chunk struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   string            `json:"content"`
			Refusal   string            `json:"refusal"`
			ToolCalls []openai.ToolCall `json:"tool_calls"`
		} `json:"delta"`
		FinishReason openai.FinishReason `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
}

// usage is what vendors count of a call: in a chunk, and read as far as it can be.
type usage struct {
	Prompt        int64 `json:"prompt_tokens"` // with those that were cached
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Cached   int64 `json:"cached_tokens"`           // the same as in PromptDetails, as Moonshot calls it
	CacheHit int64 `json:"prompt_cache_hit_tokens"` // and DeepSeek
}

// event is u as events have it. What the total has beyond prompt and completion is thinking, which some vendors
// (Google, xAI) leave out of the completion.
func (u usage) event() event.Usage {
	output := max(u.Completion, u.Total-u.Prompt)
	return event.Usage{
		InputTokens: u.Prompt, OutputTokens: output,
		CachedTokens:    min(cmp.Or(u.PromptDetails.Cached, u.Cached, u.CacheHit), u.Prompt),
		ReasoningTokens: min(cmp.Or(u.CompletionDetails.Reasoning, output-u.Completion), output),
	}
}

// receive waits for the next chunk.
func receive(stream *openai.ChatCompletionStream) (c chunk, err error) {
	line, err := stream.RecvRaw()
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	return c, err
}

// add takes a chunk and returns its text. The usage comes in a chunk without
// choices.
func (a *collector) add(c chunk) (text string) {
	if len(c.Usage) > 0 {
		var u usage
		_ = json.Unmarshal(c.Usage, &u) // a count of another type stays 0
		if u != (usage{}) {
			a.usage = u.event()
		}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		text += choice.Delta.Content + choice.Delta.Refusal
		for _, piece := range choice.Delta.ToolCalls {
			a.piece(piece)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	a.text = a.text || text != ""
	return text
}

// fail ends an answer with an error, behind what it is known to have used.
func (a *collector) fail(yield func(loop.Delta, error) bool, err error) {
	if a.usage == (event.Usage{}) || yield(loop.Delta{Usage: a.usage}, nil) {
		yield(loop.Delta{}, err)
	}
}

// piece adds to the call with its index. Some vendors give every call the index
// 0, or none: there a new id means a new call.
func (a *collector) piece(p openai.ToolCall) {
	var c *partialCall
	for _, call := range slices.Backward(a.calls) {
		if p.Index == nil || *p.Index == call.index {
			if p.ID == "" || p.ID == call.id {
				c = call
			}
			break
		}
	}
	if c == nil {
		c = &partialCall{index: len(a.calls), id: cmp.Or(p.ID, "call_"+rand.Text()[:24])}
		if p.Index != nil {
			c.index = *p.Index
		}
		a.calls = append(a.calls, c)
	}
	if c.name == "" { // some vendors repeat it with every piece
		c.name = p.Function.Name
	}
	c.arguments.WriteString(p.Function.Arguments)
}

// cut is why the model did not complete its text, empty if it did.
func (a *collector) cut() string {
	switch a.finish {
	case openai.FinishReasonLength:
		return memory.FinishLength
	case openai.FinishReasonContentFilter:
		return memory.FinishFilter
	}
	return ""
}

// end gives the complete calls, in the order of their index.
func (a *collector) end() ([]memory.ToolCall, error) {
	empty := !a.text && len(a.calls) == 0
	switch a.finish {
	case "", openai.FinishReasonNull:
		return nil, &Error{Code: event.AnswerCut, broken: true}
	case openai.FinishReasonContentFilter:
		if empty {
			return nil, &Error{Code: event.Refused}
		}
	case openai.FinishReasonLength:
		if empty {
			return nil, &Error{Code: event.AnswerCut,
				Message: "the model's answer was cut off before its first word: it reached its limit of tokens"}
		}
	case openai.FinishReasonStop, openai.FinishReasonToolCalls, openai.FinishReasonFunctionCall:
	default: // a failure that the vendor calls by a name of its own
		return nil, &Error{Code: event.AnswerCut, Message: fmt.Sprintf(
			"the model's answer was cut off: its backend ended it with the reason %.100q", string(a.finish))}
	}
	slices.SortStableFunc(a.calls, func(x, y *partialCall) int { return cmp.Compare(x.index, y.index) })
	var calls []memory.ToolCall
	for _, c := range a.calls {
		arguments := orObject(c.arguments.String())
		if a.finish == openai.FinishReasonLength && !json.Valid([]byte(arguments)) {
			return nil,
				&Error{
					Code:    event.AnswerCut,
					Message: "the model's answer was cut off inside a tool call: it reached its limit of tokens",
				}
		}
		calls = append(calls, memory.ToolCall{
			ID: c.id, Type: "function", Function: memory.FunctionCall{Name: c.name, Arguments: arguments},
		})
	}
	return calls, nil
}
