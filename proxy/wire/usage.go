package wire

import (
	"cmp"

	"github.com/tidwall/gjson"
)

// ChatUsage counts tokens as the chat dialect does: PromptTokens includes those read
// from the vendor's cache.
type ChatUsage struct {
	PromptTokens      int64              `json:"prompt_tokens"`
	CompletionTokens  int64              `json:"completion_tokens"`
	TotalTokens       int64              `json:"total_tokens"`
	PromptDetails     *PromptDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionDetails *CompletionDetails `json:"completion_tokens_details,omitzero"`
}

// PromptDetails says how many tokens of a prompt were read from the vendor's cache.
type PromptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

// CompletionDetails says how many tokens of an answer are thinking.
type CompletionDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// Chat is c in the chat dialect.
func (c Usage) Chat() *ChatUsage {
	prompt := c.InputTokens + c.CacheCreation + c.CacheRead
	out := &ChatUsage{PromptTokens: prompt, CompletionTokens: c.OutputTokens, TotalTokens: prompt + c.OutputTokens}
	if c.CacheRead > 0 {
		out.PromptDetails = &PromptDetails{CachedTokens: c.CacheRead}
	}
	if n := c.OutputDetails.ThinkingTokens; n > 0 {
		out.CompletionDetails = &CompletionDetails{ReasoningTokens: n}
	}
	return out
}

// ResponsesUsage counts tokens as the Responses dialect does: InputTokens includes those read from the vendor's cache.
type ResponsesUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	InputDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int64             `json:"output_tokens"`
	OutputDetails CompletionDetails `json:"output_tokens_details"`
	TotalTokens   int64             `json:"total_tokens"`
}

// Responses is c in the Responses dialect.
func (c Usage) Responses() (out ResponsesUsage) {
	chat := c.Chat()
	out.InputTokens, out.OutputTokens, out.TotalTokens = chat.PromptTokens, chat.CompletionTokens, chat.TotalTokens
	out.InputDetails.CachedTokens = c.CacheRead
	out.OutputDetails.ReasoningTokens = c.OutputDetails.ThinkingTokens
	return out
}

// ReadUsage reads what a vendor counts in a dialect; ok is false for what is no count. OpenAI's dialects count what
// came from the cache in the prompt, under one of several names. What the total has beyond prompt and completion is
// thinking, which some vendors (Google, xAI) leave out of the completion. Some have zeros in all chunks but the last,
// and mean nothing by them.
func ReadUsage(d Dialect, raw []byte) (c Usage, ok bool) {
	u := gjson.ParseBytes(raw)
	if !u.IsObject() {
		return c, false
	}
	first := func(names ...string) int64 {
		for _, name := range names {
			if n := count(u.Get(name)); n > 0 {
				return n
			}
		}
		return 0
	}
	if d == Messages {
		return Usage{first("input_tokens"), first("output_tokens"), first("cache_creation_input_tokens"),
			first("cache_read_input_tokens"), OutputDetails{first("output_tokens_details.thinking_tokens")}}, true
	}
	prompt, completion := first("prompt_tokens", "input_tokens", "total_input_tokens"),
		first("completion_tokens", "output_tokens", "total_output_tokens")
	c.CacheRead = min(prompt, first("prompt_tokens_details.cached_tokens", "cached_tokens", "prompt_cache_hit_tokens",
		"input_tokens_details.cached_tokens", "total_cached_tokens"))
	c.InputTokens, c.OutputTokens = prompt-c.CacheRead, max(completion, first("total_tokens")-prompt)
	thinking := first("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
		"total_thought_tokens")
	c.OutputDetails.ThinkingTokens = min(cmp.Or(thinking, c.OutputTokens-completion), c.OutputTokens)
	return c, prompt+completion > 0
}

// mostTokens bounds what is believed of a vendor's count, so that sums stay sound.
const mostTokens = 1e12

// count is 0 for what is no count.
func count(v gjson.Result) int64 {
	if v.Type != gjson.Number || v.Num < 0 || v.Num > mostTokens {
		return 0
	}
	return int64(v.Num)
}
