package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// sum is a SHA-256, cut to its first half.
type sum [16]byte

func (s sum) String() string { return hex.EncodeToString(s[:]) }

// digest collects the input of a hash. Each field has its length before it, so that no two
// sequences of fields give the same input.
type digest struct{ collected []byte }

// digests pools the buffers, since most would grow to a content's size each time.
var digests = sync.Pool{New: func() any { return &digest{make([]byte, 0, 4096)} }}

// maxDigest bounds a buffer that goes back to the pool, in bytes.
const maxDigest = 64 << 10

func newDigest() *digest { return digests.Get().(*digest) }

// sum finishes a digest and returns it to the pool, so it must not be used afterwards.
func (d *digest) sum() sum {
	full := sha256.Sum256(d.collected)
	d.drop()
	return sum(full[:16])
}

// drop returns a digest to the pool without a sum.
func (d *digest) drop() {
	if cap(d.collected) <= maxDigest {
		d.collected = d.collected[:0]
		digests.Put(d)
	}
}

func (d *digest) add(field string) *digest {
	d.collected = append(binary.AppendUvarint(d.collected, uint64(len(field))), field...)
	return d
}

func (d *digest) addBytes(field []byte) *digest {
	d.collected = append(binary.AppendUvarint(d.collected, uint64(len(field))), field...)
	return d
}

// addSum adds a field of fixed length, which needs no length before it.
func (d *digest) addSum(s sum) {
	d.collected = append(d.collected, s[:]...)
}

func sumOf(text []byte) sum { return newDigest().addBytes(text).sum() }

// kind says what a key is made of.
type kind byte

const (
	bySignature kind = 's'
	byData      kind = 'd' // of redacted or encrypted thinking
	byLongID    kind = 'i' // of a tool use, random, so that it never recurs
	byShortID   kind = 'r' // of a tool use, possibly recurring
	byThought   kind = 't' // a thinking text, normalised
	byVisible   kind = 'v' // the visible part
	byRecord    kind = 'n' // all of a turn but its time
	byBlock     kind = 'b' // a thinking block that was refused, which has a signature or data
	byResponse  kind = 'p' // the id of a stored response, or of an item of its output
)

// key is one of the properties by which a turn is found.
type key struct {
	kind kind
	sum  sum
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), bytes.Compare(k.sum[:], other.sum[:]))
}

// unique reports that two different turns do not have the same key by chance, whatever they say.
func (k key) unique() bool { return k.kind == bySignature || k.kind == byData || k.kind == byLongID }

// opaque reports that only the vendor can have produced the key.
func (k key) opaque() bool { return k.kind == bySignature || k.kind == byData }

func (k key) String() string { return string(rune(k.kind)) + k.sum.String() }

// texts are keys as a Remote has them.
func texts(keys []key) (out []string) {
	for _, k := range keys {
		out = append(out, k.String())
	}
	return out
}

// toolKey is the key of a tool id.
func toolKey(id string) key {
	k := key{byLongID, newDigest().add(id).sum()}
	if CanRecur(id) {
		k.kind = byShortID
	}
	return k
}

// shortID is the length below which a tool id cannot be a random one.
const shortID = 16

// CanRecur reports whether a tool id has a form in which its vendor may give the same id again: it
// is short, has a colon (functions.search:0) or ends in a counter (call_search_1).
func CanRecur(id string) bool {
	if len(id) < shortID || strings.Contains(id, ":") {
		return true
	}
	letters := strings.TrimRight(id, "0123456789")
	digits := len(id) - len(letters)
	return digits > 0 && digits <= 3 && strings.ContainsAny(letters[len(letters)-1:], "_-.")
}

// BlockKey is the identity of a thinking or redacted_thinking block, or of the reasoning members of
// a chat message: equal for equal blocks, empty for anything else. It does not depend on
// cache_control, members that are null, an empty signature, the order of members, or how strings
// are escaped.
func BlockKey(block jsontext.Value) string {
	o, err := wire.ReadContent(slices.Concat([]byte("["), block, []byte("]")))
	if err != nil || len(o.Messages[0].Blocks) != 1 {
		return ""
	}
	b := o.Messages[0].Blocks[0]
	if wire.IsThinking(b.Type) {
		return thinkingKey(o, b)
	}
	return readReasoning(o, b.Members).key
}

// The first byte of a BlockKey says what makes the block recognisable.
const (
	sealed = "s" // a signature or encrypted data
	bare   = "t" // only its text
)

// thinkingKey is BlockKey for a thinking block that is parsed already.
func thinkingKey(o *wire.Outline, b wire.BlockOutline) string {
	prefix := bare
	for _, name := range []string{"signature", "data"} {
		if v := o.Raw(b.Members.Get(name)); v.Kind() == '"' && len(v) > len(`""`) {
			prefix = sealed
		}
	}
	d := newDigest().members(o, b.Members, func(name string, v jsontext.Value) bool {
		return name == "signature" && string(v) == noSignature
	})
	return prefix + d.sum().String()
}

const noSignature = `""`

// emptySignature is the part of a block that thinkingKey leaves out, nil if the block does not have
// it.
func emptySignature(o *wire.Outline, b wire.BlockOutline) []byte {
	if v := o.Raw(b.Members.Get("signature")); string(v) == noSignature {
		return v
	}
	return nil
}

// members adds an object's members in the order of their names, without null ones, cache_control
// and those for which skip is true.
func (d *digest) members(o *wire.Outline, members wire.Object, skip func(name string, v jsontext.Value) bool) *digest {
	var room [8]wire.Member // for as many as most objects have
	members = append(room[:0], members...)
	slices.SortStableFunc(members, func(a, b wire.Member) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range members {
		v := o.Raw(m.Value)
		if m.Name != wire.CacheControl && v.Kind() != 'n' && !skip(m.Name, v) {
			d.add(m.Name).addBytes(plain(v))
		}
	}
	return d
}

// nothing skips no member.
func nothing(string, jsontext.Value) bool { return false }

// plain is v in a canonical form in which numbers keep their digits.
func plain(v jsontext.Value) []byte {
	return rewritten(v, jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
}

// canonical is v in a canonical form in which numbers are rounded to doubles, as clients do that
// have no other numbers. So an input in which such a client has rounded a number is recognised as
// the same input, and the stored turn goes back with the number as the model gave it.
func canonical(v jsontext.Value) []byte { return rewritten(v) }

func rewritten(v jsontext.Value, opts ...jsontext.Options) []byte {
	if v.Kind() == '"' && bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return v // most strings are canonical already, and some are long
	}
	c := v.Clone()
	if c.Canonicalize(append(opts, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))...) != nil {
		return v
	}
	return c
}

// ContextKey is a hash of what precedes the conversation: system, tools and the system messages at
// the front, without cache_control.
func ContextKey(o *wire.Outline) string {
	h := contexts.Get().(*contextHash)
	defer contexts.Put(h)
	h.Reset()
	for _, name := range []string{"system", "tools"} {
		hashWithoutCacheControl(h, o.Raw(o.Members.Get(name)))
	}
	for _, m := range o.Messages {
		if !wire.IsSystem(m.Role) {
			break
		}
		hashWithoutCacheControl(h, o.Raw(m.Content))
	}
	return sum(h.Sum(h.room[:0])[:len(sum{})]).String()
}

// contextHash is a hash with room for what goes into it and comes out of it.
type contextHash struct {
	hash.Hash
	room [sha256.Size]byte
}

var contexts = sync.Pool{New: func() any { return &contextHash{Hash: sha256.New()} }}

// hashWithoutCacheControl hashes the bytes of v without members named cache_control and their
// commas, at any depth, and then the number of these bytes. It searches for the name instead of
// parsing, since v may be most of a request.
func hashWithoutCacheControl(h *contextHash, v []byte) {
	size := 0
	write := func(b []byte) {
		size += len(b)
		h.Write(b)
	}
	for {
		i := bytes.Index(v, []byte(`"`+wire.CacheControl+`"`))
		if i < 0 {
			write(v)
			break
		}
		end := i + len(wire.CacheControl) + 2
		head := bytes.TrimRight(v[:i], space)
		tail := bytes.TrimLeft(v[end:], space)
		// Otherwise it is a string value; inside a string its quotes would be escaped.
		isMember := len(head) > 0 && (head[len(head)-1] == ',' || head[len(head)-1] == '{') && len(tail) > 0 &&
			tail[0] == ':'
		if !isMember {
			write(v[:end])
			v = v[end:]
			continue
		}
		rest := bytes.TrimLeft(skipValue(tail[1:]), space)
		if head[len(head)-1] == ',' {
			head = head[:len(head)-1]
		} else if len(rest) > 0 && rest[0] == ',' {
			rest = rest[1:]
		}
		write(head)
		v = rest
	}
	h.Write(binary.BigEndian.AppendUint64(h.room[:0], uint64(size)))
}

const space = " \t\r\n"

// skipValue is what follows the JSON value at the start of v.
func skipValue(v []byte) []byte {
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.SkipValue() != nil {
		return nil
	}
	return v[d.InputOffset():]
}
