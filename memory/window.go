package memory

import (
	"bytes"
	"encoding/json"
	"slices"
)

// WindowBytes bounds what Window returns, in bytes of stored JSON.
const WindowBytes = 1 << 20

// Window is the end of the history that a model is shown, as stored. It holds n
// to 2n-1 messages: it starts at a multiple of n, so that the front of a prompt
// stays the same for n messages and vendors' prompt caches hit. It begins with a
// user message: the first one inside, or, where there is none, the last one
// before. Above WindowBytes whole exchanges leave from the front; the last stays.
//
// Exchanges that failed, see Repair, take no place in it: older ones stand in for
// them, so that an hour of failures does not hide what was said before. The last
// exchange stays in any case, since a run may try it once more.
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
	raw = withoutFailed(raw, first)
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

// failureMark is in every message that has a failure.
var failureMark = []byte(`"failure":"`)

func marked(raw json.RawMessage) bool { return bytes.Contains(raw, failureMark) }

// withoutFailed is the messages from first on without the exchanges that failed, and
// before them as many older messages, in whole exchanges, as that took away.
func withoutFailed(raw []json.RawMessage, first int) []json.RawMessage {
	if !slices.ContainsFunc(raw[first:], marked) {
		return raw[first:]
	}
	var exchanges [][]json.RawMessage // the last one first
	remaining := len(raw) - first
	for end := len(raw); end > 0 && (end > first || remaining > 0); {
		start := end
		for start > 0 && !isUser(raw[start-1]) {
			start--
		}
		for start > 0 && isUser(raw[start-1]) {
			start--
		}
		if exchange := raw[start:end]; end == len(raw) || isUser(exchange[0]) && !failedExchange(exchange) {
			exchanges = append(exchanges, exchange)
			remaining -= len(exchange)
		}
		end = start
	}
	slices.Reverse(exchanges)
	return slices.Concat(exchanges...)
}

// failedExchange says whether Repair leaves an exchange out.
func failedExchange(exchange []json.RawMessage) bool {
	if !slices.ContainsFunc(exchange, marked) {
		return false
	}
	messages, err := Decode(exchange)
	return err == nil && len(new(Repairs).answered(messages)) == 0
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
