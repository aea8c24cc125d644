package memory

import "encoding/json"

// WindowBytes bounds what Window returns, in bytes of stored JSON.
const WindowBytes = 1 << 20

// Window is the end of the history that a model is shown, as stored. It holds n
// to 2n-1 messages: it starts at a multiple of n, so that the front of a prompt
// stays the same for n messages and vendors' prompt caches hit. It begins with a
// user message: the first one inside, or, where there is none, the last one
// before. Above WindowBytes whole exchanges leave from the front; the last stays.
func (h *History) Window(n int) []json.RawMessage {
	n = max(n, 1)
	raw := h.Raw(0)
	start := 0
	if len(raw) >= n {
		start = (len(raw)/n - 1) * n
	}
	first := nextUser(raw, start)
	if first == len(raw) {
		for first = start - 1; first >= 0 && !isUser(raw[first]); first-- {
		}
		if first < 0 {
			return nil
		}
	}
	raw = raw[first:]
	size := 0
	for _, m := range raw {
		size += len(m)
	}
	for size > WindowBytes {
		next := nextUser(raw, 1)
		if next == len(raw) {
			break
		}
		for _, m := range raw[:next] {
			size -= len(m)
		}
		raw = raw[next:]
	}
	return raw
}

// nextUser is the index of the first user message at or after i, or len(raw).
func nextUser(raw []json.RawMessage, i int) int {
	for i < len(raw) && !isUser(raw[i]) {
		i++
	}
	return i
}

func isUser(raw json.RawMessage) bool {
	var head struct {
		Role string `json:"role"`
	}
	return json.Unmarshal(raw, &head) == nil && head.Role == RoleUser
}
