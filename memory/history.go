package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrDamaged indicates that a stored value was not written by mneme: a history is not a JSON array of messages, or an
// event cannot be decoded.
var ErrDamaged = errors.New("the stored data is damaged")

// DamagedError is an ErrDamaged that names the key in Redis.
type DamagedError struct {
	Key   string
	Cause error
}

func (e *DamagedError) Error() string        { return fmt.Sprintf("%s: %v: %v", e.Key, ErrDamaged, e.Cause) }
func (e *DamagedError) Unwrap() error        { return e.Cause }
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Sum identifies the content of a history, see History.Sum.
type Sum [sha256.Size]byte

// ParseSum reads what String writes.
func ParseSum(text string) (sum Sum, err error) {
	n, err := hex.Decode(sum[:], []byte(text))
	if err != nil || n != len(sum) {
		return Sum{}, fmt.Errorf("%q is not the hex of a sum", text)
	}
	return sum, nil
}

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
	standing standing          // guarded by mu
	claim    *claim            // what was read without being proven; nil if there is none
}

// standing is what a store said of a history beside its content.
type standing struct {
	turn    int64  // newest turn in which the content was proven
	cut     int64  // turn of the last deliberate change that it is known to follow
	first   string // id of the first message that a trim kept
	revoked bool   // proven no more, and never again
	own     bool   // see OfOneTurn
}

// claim is a sum that was read beside its messages and not computed from them.
type claim struct {
	n      int // messages
	sum    Sum
	readAt time.Time // when it was read

	proveOnce sync.Once
	proven    bool // written in once
}

// Empty is the history of key with nothing in it.
func Empty(key Key) *History { return &History{key: key, log: &sharedLog{}} }

// ParseHistory reads a stored value. Any JSON array of objects with a role is
// one, however it is laid out; anything else is ErrDamaged.
func ParseHistory(key Key, value []byte) (*History, error) {
	messages, err := split(value, hasRole)
	if err != nil {
		return nil, &DamagedError{key.String(), err}
	}
	h := &History{key: key, log: &sharedLog{messages: messages}, n: len(messages), size: len(value)}
	for _, m := range messages {
		h.sum = h.sum.next(m)
	}
	return h, nil
}

// ReadHistory takes a value that a store keeps with its sum and count, at the cost
// of finding where the messages begin; Proven computes the sum when there is
// time. Values that are laid out in another way are parsed.
func ReadHistory(key Key, value []byte, sum Sum, count int) (*History, error) {
	messages := seams(value)
	if len(messages) != count {
		return ParseHistory(key, value)
	}
	log := &sharedLog{messages: messages, claim: &claim{n: count, sum: sum, readAt: time.Now()}}
	return &History{key: key, log: log, n: count, size: len(value), sum: sum}, nil
}

// seam stands between two messages of a compact array. It cannot stand inside a
// JSON string, where its quotes would be escaped.
var seam = []byte(`},{"role":"`)

// seams cuts a compact array of messages at its seams; nil if it is none. A
// message that holds a list of objects with roles would be cut wrongly; the count,
// and in the end the sum, tell.
func seams(value []byte) []json.RawMessage {
	if !bytes.HasPrefix(value, []byte(`[{"role":"`)) || !bytes.HasSuffix(value, []byte("}]")) {
		return nil
	}
	rest := value[1 : len(value)-1]
	messages := make([]json.RawMessage, 0, len(value)/256+1)
	for {
		i := bytes.Index(rest, seam)
		if i < 0 {
			return append(messages, json.RawMessage(rest))
		}
		messages = append(messages, json.RawMessage(rest[:i+1:i+1]))
		rest = rest[i+2:]
	}
}

// ReadAt is when the history was read without being proven; zero if it never was.
func (h *History) ReadAt() time.Time {
	if c := h.log.claim; c != nil {
		return c.readAt
	}
	return time.Time{}
}

// Proven computes, once, whether the sum that the history was read with is that
// of its messages.
func (h *History) Proven() bool {
	c := h.log.claim
	if c == nil {
		return true
	}
	c.proveOnce.Do(func() {
		var sum Sum
		line := &History{log: h.log, n: c.n}
		for _, m := range line.Raw(0) {
			sum = sum.next(m)
		}
		c.proven = sum == c.sum
	})
	return c.proven
}

// space is what may stand between the parts of JSON.
const space = " \t\r\n"

// Elements are the messages of an array that is known, by a sum, to be one that was stored as such: that each is
// valid JSON and has a role is not looked at once more.
func Elements(value []byte) ([]json.RawMessage, error) {
	return split(value, func([]byte) error { return nil })
}

// split cuts an array into its elements without copying them, of which check says why one is no message. It looks at
// each byte once to find where an element ends, beside what check does: an array may have tens of megabytes.
func split(value []byte, check func(raw []byte) error) ([]json.RawMessage, error) {
	rest := bytes.TrimLeft(value, space)
	if len(rest) == 0 || rest[0] != '[' {
		return nil, errors.New("it is not a JSON array")
	}
	var messages []json.RawMessage
	rest = bytes.TrimLeft(rest[1:], space)
	for hasMore := !bytes.HasPrefix(rest, []byte("]")); hasMore; {
		raw := rest[:objectEnd(rest)]
		if err := check(raw); err != nil {
			return nil, fmt.Errorf("element %d: %w", len(messages), err)
		}
		messages = append(messages, json.RawMessage(raw[:len(raw):len(raw)]))
		rest = bytes.TrimLeft(rest[len(raw):], space)
		if hasMore = bytes.HasPrefix(rest, []byte(",")); hasMore {
			rest = bytes.TrimLeft(rest[1:], space)
		}
	}
	if !bytes.HasPrefix(rest, []byte("]")) {
		return nil, errors.New("the array does not end")
	}
	if len(bytes.TrimLeft(rest[1:], space)) > 0 {
		return nil, errors.New("something follows the array")
	}
	return messages, nil
}

// objectEnd is how long the object is with which text begins. Of what is no object,
// or no JSON, it gives some length within text.
func objectEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		n := bytes.IndexAny(text[i:], `"{}`)
		if n < 0 {
			break
		}
		switch i += n; text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth <= 0 {
				return i + 1
			}
		case '"':
			i = stringEnd(text, i)
		}
	}
	return len(text)
}

// stringEnd is where the string ends that begins at i: at its closing quote, or
// where text does.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			break
		}
		i += n
		start := i // of the backslashes before the quote, which the opening one ends: it is escaped if they are odd
		for text[start-1] == '\\' {
			start--
		}
		if (i-start)%2 == 0 {
			return i
		}
	}
	return len(text)
}

// hasRole says why an element is no message, if it is none.
func hasRole(raw []byte) error {
	role := []byte(`{"role":"`)
	// Of one that begins with its role, and cannot name it twice, only the validity is
	// in question.
	if len(raw) > len(role) && bytes.HasPrefix(raw, role) && raw[len(role)] != '"' &&
		bytes.Count(raw, []byte(`ole"`)) == 1 && !bytes.Contains(raw, []byte(`\u`)) && json.Valid(raw) {
		return nil
	}
	var head struct {
		Role string `json:"role"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	if head.Role == "" {
		return errors.New("it has no role")
	}
	return nil
}

// next chains one message onto the sum of those before it.
func (s Sum) next(raw []byte) Sum {
	h := sha256.New()
	h.Write(s[:])
	h.Write(raw)
	return Sum(h.Sum(nil))
}

// Applied is the last event of each run that made messages of the history, newest
// run first, of the last n runs at most.
func (h *History) Applied(n int) []Mark {
	var marks []Mark
	index := map[string]int{}
	for _, id := range slices.Backward(h.IDs()) {
		run, seq, ok := SplitID(id)
		i, exists := index[run]
		switch {
		case !ok:
		case exists:
			marks[i].Seq = max(marks[i].Seq, seq)
		case len(marks) < n:
			index[run] = len(marks)
			marks = append(marks, Mark{Run: run, Seq: seq})
		}
	}
	return marks
}

func (h *History) standing() standing {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.standing
}

// stand changes what is known of the history beside its content.
func (h *History) stand(change func(*standing)) {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	change(&h.log.standing)
}

// ProvenIn notes that a store has proven the history in a turn.
func (h *History) ProvenIn(turn int64) {
	h.stand(func(s *standing) {
		if !s.revoked {
			s.turn = max(s.turn, turn)
		}
	})
}

// Revoke makes the history one that was never proven, and never will be: it is not
// written back anywhere.
func (h *History) Revoke() {
	h.stand(func(s *standing) { s.turn, s.revoked = 0, true })
}

// Turn is the newest turn in which the history was proven, 0 if it never was.
func (h *History) Turn() int64 { return h.standing().turn }

// OfOneTurn says that all messages were written in the turn that the history is proven
// in, whatever their times say: they follow every change before it.
func (h *History) OfOneTurn() { h.stand(func(s *standing) { s.own = true }) }

// DropBefore is the history without what was begun before a change that it does not follow:
// it was taken from a store that had forgotten the change.
func (h *History) DropBefore(cut int64) *History {
	if cut <= h.Cut() || h.standing().own {
		return h
	}
	list := pieces(h)
	rest := dropBefore(list, nil, cut)
	if len(rest) == len(list) {
		return h
	}
	short := Empty(h.Key()).With(raws(rest)...)
	short.Follows(cut, h.First())
	short.ProvenIn(h.Turn())
	return short
}

// Follows notes the turn of the last deliberate change (an erasure, a rewriting)
// that the content follows, and the id of the first message that a trim kept, ""
// for none.
func (h *History) Follows(cut int64, first string) {
	h.stand(func(s *standing) { s.cut, s.first = max(s.cut, cut), first })
}

// Cut is the turn of the last deliberate change that the content follows, 0 if
// there was none.
func (h *History) Cut() int64 { return h.standing().cut }

// First is the id of the first message that a trim kept, "" if none was trimmed.
func (h *History) First() string { return h.standing().first }

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
func (h *History) Raw(start int) []json.RawMessage {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages[min(max(start, 0), h.n):h.n:h.n]
}

// Messages decodes the messages from index from on.
func (h *History) Messages(start int) ([]Message, error) { return Decode(h.Raw(start)) }

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

// with is the history with one more message.
func (h *History) with(raw json.RawMessage) *History {
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
	// Another append grew another line from here: ours gets a list of its own.
	own := make([]json.RawMessage, h.n, h.n+8)
	copy(own, h.log.messages)
	grown.log = &sharedLog{messages: append(own, raw), standing: h.log.standing, claim: h.log.claim}
	return grown
}

// With is the history with more messages, whose bytes must not change afterwards. Each costs O(1) as long as h is the
// longest history of its line.
func (h *History) With(messages ...json.RawMessage) *History {
	for _, raw := range messages {
		h = h.with(raw)
	}
	return h
}

// JSON is the compact array, as it would be stored.
func (h *History) JSON() []byte { return Array(h.Raw(0)) }

// Array is the compact JSON array of messages.
func Array(raw []json.RawMessage) []byte {
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

// TrimTo is what a trim leaves that keeps the message with this id as the first one; nil if the
// history does not hold it, or begins with it.
func (h *History) TrimTo(id string) *History {
	if id == "" || id == h.First() {
		return nil
	}
	i := slices.Index(h.IDs(), id)
	if i <= 0 {
		return nil
	}
	short := h.Identified().DropFirst(i)
	short.Follows(h.Cut(), id)
	return short
}

// Excess is how many of the oldest messages a trim cuts off so that n stay at most (0 for
// any number), in bytes of JSON at most: what stays begins with a user message, and holds
// one exchange at least.
func (h *History) Excess(n, bytes int) int {
	raw := h.Raw(0)
	start := 0
	if n > 0 {
		start = max(h.n-n, 0)
	}
	size := 0
	for i := len(raw) - 1; i >= start; i-- {
		if size += len(raw[i]) + len(","); size > bytes {
			start = i + 1
		}
	}
	if start == 0 {
		return 0
	}
	if start = nextUser(raw, start); start < len(raw) {
		return start
	}
	for start--; start > 0 && !isUser(raw[start]); start-- {
	}
	return max(start, 0)
}

// DropFirst is a history of its own without the first n messages, of which the others carry
// their ids. As a trim does, it notes which message was kept first.
func (h *History) DropFirst(n int) *History {
	raw := h.Raw(n)
	short := Empty(h.key).With(raw...)
	short.Follows(h.Cut(), IDs(raw[:1])[0])
	return short
}

// HeadOf reads the role and the time of a stored message. Of one that begins as Encode writes it, it reads no more than
// that.
func HeadOf(raw json.RawMessage) (role string, timestamp float64) {
	for _, role := range [...]string{RoleUser, RoleAssistant, RoleTool} {
		content, ok := bytes.CutPrefix(raw, []byte(`{"role":"`+role+`","content":`))
		if !ok || len(content) == 0 || content[0] != '"' {
			continue
		}
		rest, ok := bytes.CutPrefix(content[stringEnd(content, 0):], []byte(`","timestamp":`))
		if end := bytes.IndexAny(rest, ",}"); ok && end > 0 {
			if ts, err := strconv.ParseFloat(string(rest[:end]), 64); err == nil {
				return role, ts
			}
		}
	}
	var m struct {
		Role      string  `json:"role"`
		Timestamp float64 `json:"timestamp"`
	}
	_ = json.Unmarshal(raw, &m) // a foreign writer may have stored a time that is none
	return m.Role, m.Timestamp
}
