package wire

import "cmp"

// ChatUsage counts tokens as the chat dialect does: PromptTokens includes those read
// from the vendor's cache.
type ChatUsage struct {
	PromptTokens      int64              `json:"prompt_tokens"`
	CompletionTokens  int64              `json:"completion_tokens"`
	TotalTokens       int64              `json:"total_tokens"`
	PromptDetails     *PromptDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionDetails *CompletionDetails `json:"completion_tokens_details,omitzero"`

	// The same as PromptDetails.CachedTokens under the names of Moonshot and DeepSeek; only read.
	Cached   int64 `json:"cached_tokens,omitzero"`
	CacheHit int64 `json:"prompt_cache_hit_tokens,omitzero"`
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

// Messages is u in the messages dialect. What the total has beyond prompt and completion is thinking, which some
// vendors (Google, xAI) leave out of the completion.
func (u ChatUsage) Messages() Usage {
	out := Usage{InputTokens: u.PromptTokens, OutputTokens: max(u.CompletionTokens, u.TotalTokens-u.PromptTokens)}
	out.CacheRead = cmp.Or(u.Cached, u.CacheHit)
	if d := u.PromptDetails; d != nil {
		out.CacheRead = cmp.Or(d.CachedTokens, out.CacheRead)
	}
	out.InputTokens = max(0, out.InputTokens-out.CacheRead)
	thinking := out.OutputTokens - u.CompletionTokens
	if d := u.CompletionDetails; d != nil {
		thinking = cmp.Or(d.ReasoningTokens, thinking)
	}
	out.OutputDetails.ThinkingTokens = min(thinking, out.OutputTokens)
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

// Messages is u in the messages dialect.
func (u ResponsesUsage) Messages() Usage {
	return ChatUsage{
		PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.TotalTokens,
		PromptDetails: &PromptDetails{u.InputDetails.CachedTokens}, CompletionDetails: &u.OutputDetails,
	}.Messages()
}
