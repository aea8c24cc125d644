package wire

// ChatUsage counts tokens as the chat dialect does: PromptTokens includes those read
// from the vendor's cache.
type ChatUsage struct {
	PromptTokens     int64          `json:"prompt_tokens"`
	CompletionTokens int64          `json:"completion_tokens"`
	TotalTokens      int64          `json:"total_tokens"`
	PromptDetails    *PromptDetails `json:"prompt_tokens_details,omitzero"`
}

// PromptDetails says how many tokens of a prompt were read from the vendor's cache.
type PromptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

// Chat is c in the chat dialect.
func (c Usage) Chat() *ChatUsage {
	prompt := c.InputTokens + c.CacheCreation + c.CacheRead
	out := &ChatUsage{PromptTokens: prompt, CompletionTokens: c.OutputTokens, TotalTokens: prompt + c.OutputTokens}
	if c.CacheRead > 0 {
		out.PromptDetails = &PromptDetails{CachedTokens: c.CacheRead}
	}
	return out
}

// Messages is u in the messages dialect.
func (u ChatUsage) Messages() Usage {
	out := Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens}
	if u.PromptDetails != nil {
		out.CacheRead = u.PromptDetails.CachedTokens
		out.InputTokens = max(0, out.InputTokens-out.CacheRead)
	}
	return out
}
