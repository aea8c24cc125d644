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

// Bounds of the prompt cache, in tokens, blocks and time. They are those of Anthropic and OpenAI; what others tell
// of theirs is about the same.
const (
	leastCached = 1024 // tokens of a prefix
	cacheStep   = 128  // tokens by which prefixes differ that are kept unasked
	lookBack    = 20   // blocks before a mark at which an older one is found
	cacheKept   = 5 * time.Minute
)

// promptCache is what the vendor has kept of prompts.
type promptCache struct {
	mu   sync.Mutex
	kept map[contextHash]time.Time // until when; guarded by mu
}

// boundary is where a prefix of a prompt ends.
type boundary struct {
	tokens int
	hash   contextHash
	marked bool
}

// count counts prompt and answer, and notes how much of the prompt the cache has, which has the rest from then on: of
// Anthropic up to the marks of the request, of others all of it in steps. What is kept is an
// account's, which is its key.
func count(x *exchange, answer []issued) {
	if !x.config.PromptCache {
		return
	}
	if x.Output = spokenTokens(answer); x.Endpoint.dialect() == wire.Responses {
		x.Output += reasoningTokens(answer)
	}
	byMark := x.config.vendor() == Anthropic
	ends, all := boundaries(x, byMark)
	x.Prompt = all
	now := time.Now()
	if x.config.Clock != nil {
		now = x.config.Clock()
	}
	c := x.server.prompts
	c.mu.Lock()
	defer c.mu.Unlock()
	last := 0
	for i, end := range slices.Backward(ends) {
		if !end.marked || end.tokens < leastCached {
			continue
		}
		last = max(last, end.tokens)
		for _, before := range ends[max(0, i-lookBack) : i+1] {
			if now.Before(c.kept[before.hash]) {
				x.CacheRead = max(x.CacheRead, before.tokens)
				c.kept[before.hash] = now.Add(cacheKept)
			}
		}
	}
	for _, end := range ends {
		if end.marked && end.tokens >= leastCached {
			c.kept[end.hash] = now.Add(cacheKept)
		}
	}
	if byMark {
		x.CacheWritten = max(0, last-x.CacheRead)
	}
}

// boundaries are the ends of the prefixes of the prompt, and how many tokens all of it has. Where nothing is kept
// unasked they are the ends of its blocks, else they come in steps, each as if it were marked.
func boundaries(x *exchange, byMark bool) (ends []boundary, all int) {
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
				ends = append(ends, boundary{n / 4, sum(h), true})
			}
		}
		h.Write(text)
		if n += len(text); byMark {
			ends = append(ends, boundary{n / 4, sum(h), part.has("cache_control")})
		}
	}
	return ends, n/4 + 1
}

// promptParts are the tools, the system's texts and what was said, in the order in which the model reads them.
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

// promptText is what the model reads of a part: neither marks nor what items are called and how they ended, nor what
// is empty.
func promptText(part members) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(part)) {
		said := part.has(name) && string(part[name]) != `""`
		if said && name != "cache_control" && name != "status" && (name != "id" || part.kind() == useBlock) {
			b.WriteString(name)
			b.Write(part[name])
		}
	}
	return b.String()
}

// presentedKey is the key by which a caller is known.
func presentedKey(h http.Header) string {
	return cmp.Or(h.Get("X-Api-Key"), h.Get("X-Goog-Api-Key"), strings.TrimPrefix(h.Get("Authorization"), "Bearer "))
}

// input is what an answer tells of its prompt: the tokens that the cache has not read or written, and those that it
// has. Without a cache it is an estimate, of which a vendor of Responses has read what it knew.
func (v rendering) input() (fresh, read, written int) {
	switch {
	case v.config.PromptCache:
		return v.Prompt - v.CacheRead - v.CacheWritten, v.CacheRead, v.CacheWritten
	case v.Endpoint.dialect() == wire.Responses:
		read = bytesOf(v.items[:v.reused]) / 4
	}
	return v.tokens() - read, read, 0
}
