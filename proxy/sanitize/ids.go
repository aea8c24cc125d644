package sanitize

import (
	"crypto/sha256"
	"math/big"
	"strconv"
	"unicode/utf8"

	"mneme/proxy/wire"
)

const (
	// callPrefix and callLength form generated ids where the vendor has no rule of its own: 24
	// letters and digits behind the prefix.
	callPrefix = "call_"
	callLength = 24
)

// ids assigns the ids of calls, in the order of the calls. A legal and unused id stays. Any other
// is replaced by a hash of itself and of how often it came before, which is the same in every
// request of a conversation.
type ids struct {
	rule    ToolIDs
	dialect wire.Dialect
	counts  map[string]int // how often an id came or was assigned
}

func newIDs(rule ToolIDs, dialect wire.Dialect) *ids {
	return &ids{rule: rule, dialect: dialect, counts: map[string]int{}}
}

// turn begins another message.
func (s *ids) turn() {
	if s.rule.Recurring {
		clear(s.counts)
	}
}

// next is the id of the next call.
func (s *ids) next(id string) string {
	n := s.counts[id]
	s.counts[id]++
	if n == 0 && s.legal(id) {
		return id
	}
	for ; ; n++ {
		if fresh := s.minted(id, n); s.counts[fresh] == 0 {
			s.counts[fresh]++
			return fresh
		}
	}
}

func (s *ids) legal(id string) bool {
	if id == "" || !utf8.ValidString(id) || s.rule.Length > 0 && len(id) != s.rule.Length || s.rule.Max > 0 &&
		len(id) > s.rule.Max {
		return false
	}
	for _, c := range []byte(id) {
		word := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		dash := c == '_' || c == '-'
		switch {
		case word, dash && !s.rule.Alphanumeric:
		case s.rule.Alphanumeric, s.dialect == wire.Messages && !s.rule.Recurring:
			return false
		}
	}
	return true
}

// minted is a generated id.
func (s *ids) minted(id string, n int) string {
	sum := sha256.Sum256([]byte(id + "\x00" + strconv.Itoa(n)))
	word := new(big.Int).SetBytes(sum[:]).Text(62)
	prefix, length := callPrefix, callLength
	if s.rule.Alphanumeric {
		prefix = ""
	}
	most := s.rule.Max
	if s.rule.Length > 0 {
		most = s.rule.Length
		length = most - len(prefix)
	}
	if most > 0 && len(prefix)+length > most || length < 1 {
		prefix, length = "", most
	}
	// 256 bits in base 62 almost always have 41 digits or more.
	for len(word) < length {
		word += word
	}
	return prefix + word[len(word)-length:]
}
