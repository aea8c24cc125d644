package upstreamtest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// firstByte makes the base64 text of a seal begin with "E".
const firstByte = 0x12

const (
	idSize   = 8
	hashSize = 16
	macSize  = sha256.Size
	// headSize is what a seal has before the model's name: first byte, flags, the
	// length of the name.
	headSize = 3
	// maxPadding is the most that a seal is longer than it must be. Real ones are a
	// few hundred to a few thousand characters long.
	maxPadding = 1024
)

// blockID names a thinking block, or an answer. The zero value is none.
type blockID [idSize]byte

// contextHash is what stood before something.
type contextHash [hashSize]byte

// seal is what a signature, or the data of a redacted block, says. All of it is readable
// to a client that knows the form; the MAC at its end also covers the text.
type seal struct {
	id     blockID
	answer blockID
	// before is the thinking block before it, in the conversation as the model saw
	// it; zero if there was none.
	before blockID
	// first says that its answer has no thinking before it.
	first bool
	// said is the conversation before the answer, thinking left out; place is the
	// answer before the block, likewise.
	said, place contextHash
	redacted    bool
	omitted     bool // the block was issued without text: whatever is put in counts for nothing
	model       string
}

// Flags of a seal.
const (
	flagRedacted = 1 << iota
	flagOmitted
	flagFirst
)

// signer makes and reads the seals of one backend.
type signer struct{ key []byte }

func newSigner(backend string) signer {
	key := sha256.Sum256([]byte("signatures of " + backend))
	return signer{key[:]}
}

// sign gives the signature of a block with this text, or the data of a redacted one.
func (s signer) sign(v seal, text string) string {
	var flags byte
	for flag, on := range map[byte]bool{flagRedacted: v.redacted, flagOmitted: v.omitted, flagFirst: v.first} {
		if on {
			flags |= flag
		}
	}
	b := []byte{firstByte, flags, byte(len(v.model))}
	b = append(b, v.model[:b[2]]...)
	for _, part := range [][]byte{v.id[:], v.answer[:], v.before[:], v.said[:], v.place[:]} {
		b = append(b, part...)
	}
	b = append(b, padding(text)...)
	return base64.StdEncoding.EncodeToString(append(b, s.mac(b, v, text)...))
}

func (s signer) mac(sealed []byte, v seal, text string) []byte {
	if v.omitted || v.redacted {
		text = ""
	}
	return s.sum(string(sealed), text)
}

// sum is the MAC of parts one after the other.
func (s signer) sum(parts ...string) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, part := range parts {
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// padding makes what is sealed as long as that of this text may be.
func padding(text string) []byte {
	b := make([]byte, 128+min(len(text)/2, maxPadding))
	_, _ = rand.Read(b) // it never fails
	return b
}

// verify reads a signature, or data, that came back with this text. ok is false
// if this backend never gave it, or gave it to another text.
func (s signer) verify(signature, text string) (v seal, ok bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(signature)
	if err != nil || len(b) < headSize+macSize || b[0] != firstByte {
		return seal{}, false
	}
	sealed, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	rest := sealed[headSize:]
	n := int(b[2])
	if len(rest) < n+3*idSize+2*hashSize {
		return seal{}, false
	}
	v = seal{model: string(rest[:n]), redacted: b[1]&flagRedacted != 0, omitted: b[1]&flagOmitted != 0,
		first: b[1]&flagFirst != 0}
	rest = rest[n:]
	for _, part := range [][]byte{v.id[:], v.answer[:], v.before[:], v.said[:], v.place[:]} {
		rest = rest[copy(part, rest):]
	}
	return v, hmac.Equal(mac, s.mac(sealed, v, text))
}

func newID() (id blockID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

const alphanumerics = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// randomText is n letters and digits.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = alphanumerics[int(b[i])%len(alphanumerics)]
	}
	return string(b)
}

// randomBase64 is n characters of base64 that mean nothing.
func randomBase64(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return base64.RawStdEncoding.EncodeToString(b)[:n]
}
