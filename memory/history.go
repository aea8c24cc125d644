package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrDamaged says that a stored value is not a JSON array of messages.
var ErrDamaged = errors.New("the stored history is damaged")

// Sum identifies the content of a history, see History.Sum.
type Sum [sha256.Size]byte

// String is the lower-case hex that is stored in Redis.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// History is the content of one stored history: its messages as raw JSON, their
// content chain and the stored size. It is immutable: With returns a longer one
// that shares the bytes, so that a turn may pin what it loaded at no cost.
// The zero History of a key (see Empty) stands for "absent" too.
type History struct {
	key  Key
	log  *sharedLog
	n    int // messages of log that are ours
	size int // bytes of the stored array; 0 if absent
	sum  Sum
}

// sharedLog is the append-only list behind all histories that grew from one.
type sharedLog struct {
	mu       sync.Mutex
	messages []json.RawMessage // guarded by mu; elements never change once appended
}

// Empty is the history of key with nothing in it.
func Empty(key Key) *History { return &History{key: key, log: &sharedLog{}} }

// ParseHistory reads a stored value. Any JSON array of objects with a role is
// one, however it is laid out; anything else is ErrDamaged.
func ParseHistory(key Key, value []byte) (*History, error) {
	messages, err := split(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, ErrDamaged, err)
	}
	h := &History{key: key, log: &sharedLog{messages: messages}, n: len(messages), size: len(value)}
	for _, m := range messages {
		h.sum = h.sum.next(m)
	}
	return h, nil
}

// split cuts an array into its elements without copying them.
func split(value []byte) ([]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('[') {
		return nil, fmt.Errorf("it is not a JSON array")
	}
	var messages []json.RawMessage
	for d.More() {
		var head struct {
			Role string `json:"role"`
		}
		start := d.InputOffset()
		if err := d.Decode(&head); err != nil {
			return nil, err
		}
		if head.Role == "" {
			return nil, fmt.Errorf("element %d has no role", len(messages))
		}
		raw := bytes.TrimLeft(value[start:d.InputOffset()], ", \t\r\n")
		messages = append(messages, json.RawMessage(raw))
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the array")
	}
	return messages, nil
}

// next chains one message onto the sum of those before it.
func (s Sum) next(raw []byte) Sum {
	h := sha256.New()
	h.Write(s[:])
	h.Write(raw)
	return Sum(h.Sum(nil))
}

// Key is the history's name.
func (h *History) Key() Key { return h.key }

// Len is the number of messages.
func (h *History) Len() int { return h.n }

// Size is the length in bytes of the stored array, 0 when nothing is stored.
func (h *History) Size() int { return h.size }

// Sum is the content chain: sum_k = SHA-256(sum_{k-1} ‖ raw bytes of message k),
// from 32 zero bytes. Two histories with one sum hold the same bytes in the same
// order, which no length or counter could prove.
func (h *History) Sum() Sum { return h.sum }

// Raw gives the messages from index from on as stored. Callers must not change
// the bytes.
func (h *History) Raw(from int) []json.RawMessage {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages[min(max(from, 0), h.n):h.n:h.n]
}

// Messages decodes the messages from index from on.
func (h *History) Messages(from int) ([]Message, error) { return Decode(h.Raw(from)) }

// Decode reads stored messages.
func Decode(raw []json.RawMessage) ([]Message, error) {
	messages := make([]Message, len(raw))
	for i, b := range raw {
		if err := json.Unmarshal(b, &messages[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w: %w", i, ErrDamaged, err)
		}
	}
	return messages, nil
}

// With is the history with one more message; raw must not change afterwards.
// It costs O(1) as long as h is the longest history of its line.
func (h *History) With(raw []byte) *History {
	grown := &History{key: h.key, log: h.log, n: h.n + 1, sum: h.sum.next(raw), size: h.size + 1 + len(raw)}
	if h.n == 0 { // absent or empty: no comma, and two brackets
		grown.size = len("[]") + len(raw)
	}
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if len(h.log.messages) == h.n {
		h.log.messages = append(h.log.messages, raw)
		return grown
	}
	// Somebody grew another line from here: ours gets a list of its own.
	own := make([]json.RawMessage, h.n, h.n+8)
	copy(own, h.log.messages)
	grown.log = &sharedLog{messages: append(own, raw)}
	return grown
}

// JSON is the compact array, as it would be stored.
func (h *History) JSON() []byte {
	raw := h.Raw(0)
	size := len("[]") + len(raw)
	for _, m := range raw {
		size += len(m)
	}
	b := append(make([]byte, 0, size), '[')
	for i, m := range raw {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	return append(b, ']')
}

// Last is a history of its own with the last n messages at most, from the first
// user message among them on; without one it is h.
func (h *History) Last(n int) *History {
	raw := h.Raw(max(h.n-n, 0))
	raw = raw[nextUser(raw, 0):]
	if len(raw) == 0 {
		return h
	}
	short := Empty(h.key)
	for _, m := range raw {
		short = short.With(m)
	}
	return short
}

// Common is the number of messages with which both begin.
func (h *History) Common(other *History) int {
	a, b := h.Raw(0), other.Raw(0)
	n := 0
	for n < min(len(a), len(b)) && bytes.Equal(a[n], b[n]) {
		n++
	}
	return n
}
