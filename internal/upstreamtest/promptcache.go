package upstreamtest

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// Bounds of the prompt cache of Anthropic and OpenAI. Other vendors have similar ones.
const (
	leastCached = 1024 // minimum tokens of a prefix
	cacheStep   = 128  // tokens between the prefixes that are cached without marks
	lookBack    = 20   // blocks before a mark in which an older prefix is found
	cacheKept   = 5 * time.Minute
)

// promptCache contains the cached prefixes of prompts.
type promptCache struct {
	mu     sync.Mutex
	expiry map[contextHash]time.Time // expiry by hash; guarded by mu
}

// boundary is the end of a prefix of a prompt.
type boundary struct {
	tokens int
	hash   contextHash
	marked bool
}

// count counts the tokens of prompt and answer, and those read from the prompt cache. It then caches the prompt: at
// Anthropic up to the marks of the request, elsewhere in steps. Each API key has its own cache.
func count(x *exchange, answer []issued) {
	if !x.config.PromptCache {
		return
	}
	if x.Output = spokenTokens(answer); x.Endpoint.dialect() == wire.Responses {
		x.Output += reasoningTokens(answer)
	}
	byMark := x.config.vendor() == Anthropic
	bounds, total := boundaries(x, byMark)
	x.Prompt = total
	now := time.Now()
	if x.config.Clock != nil {
		now = x.config.Clock()
	}
	c := x.server.prompts
	c.mu.Lock()
	defer c.mu.Unlock()
	last := 0
	for i, end := range slices.Backward(bounds) {
		if !end.marked || end.tokens < leastCached {
			continue
		}
		last = max(last, end.tokens)
		for _, b := range bounds[max(0, i-lookBack) : i+1] {
			if now.Before(c.expiry[b.hash]) {
				x.CacheRead = max(x.CacheRead, b.tokens)
				c.expiry[b.hash] = now.Add(cacheKept)
			}
		}
	}
	for _, end := range bounds {
		if end.marked && end.tokens >= leastCached {
			c.expiry[end.hash] = now.Add(cacheKept)
		}
	}
	if byMark {
		x.CacheWritten = max(0, last-x.CacheRead)
	}
}

// boundaries returns the ends of the prompt's prefixes and the size of the prompt in tokens. With marks, prefixes end
// with blocks. Without, they come in steps, each of them marked.
func boundaries(x *exchange, byMark bool) (bounds []boundary, total int) {
	h := sha256.New()
	writeString(h, x.Model)
	writeString(h, presentedKey(x.Header))
	n := 0
	for _, part := range promptParts(x) {
		text := []byte(promptText(part))
		for !byMark && len(text) > 0 {
			piece := text[:min(len(text), 4*cacheStep-n%(4*cacheStep))]
			h.Write(piece)
			n, text = n+len(piece), text[len(piece):]
			if n%(4*cacheStep) == 0 {
				bounds = append(bounds, boundary{n / 4, sum(h), true})
			}
		}
		h.Write(text)
		if n += len(text); byMark {
			bounds = append(bounds, boundary{n / 4, sum(h), part.has("cache_control")})
		}
	}
	return bounds, n/4 + 1
}

// promptParts returns the tools, the system's texts and the conversation, in the order in which the model reads them.
func promptParts(x *exchange) (parts []members) {
	parts, _ = x.body.list("tools")
	for _, name := range []string{system, "instructions"} {
		if blocks, ok := x.body.list(name); ok {
			parts = append(parts, blocks...)
		} else if x.body.has(name) {
			parts = append(parts, members{"text": x.body[name]})
		}
	}
	for i, t := range x.turns {
		parts = append(parts, members{"role": []byte(`"` + t.role + `"`)})
		for _, b := range t.blocks {
			if !thinks(b) || i >= x.loop || x.config.Thinking.KeepAll || x.config.vendor() != Anthropic {
				parts = append(parts, b)
			}
		}
	}
	return slices.Concat(parts, x.messages, x.items)
}

// promptText returns the text of a part that the model reads. Marks, ids of items, statuses and empty members are
// left out.
func promptText(part members) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(part)) {
		present := part.has(name) && string(part[name]) != `""`
		if present && name != "cache_control" && name != "status" && (name != "id" || part.kind() == useBlock) {
			b.WriteString(name)
			b.Write(part[name])
		}
	}
	return b.String()
}

// presentedKey returns the caller's API key.
func presentedKey(h http.Header) string {
	return cmp.Or(h.Get("X-Api-Key"), h.Get("X-Goog-Api-Key"), strings.TrimPrefix(h.Get("Authorization"), "Bearer "))
}

// input returns the tokens of the prompt: uncached, read from the cache, and written to it. Without a cache they are
// estimates, and Responses read the items that the vendor has seen before.
func (v rendering) input() (fresh, read, written int) {
	switch {
	case v.config.PromptCache:
		return v.Prompt - v.CacheRead - v.CacheWritten, v.CacheRead, v.CacheWritten
	case v.Endpoint.dialect() == wire.Responses:
		read = bytesOf(v.items[:v.reused]) / 4
	}
	return v.tokens() - read, read, 0
}
