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
	// headSize is the length of a seal before the model's name: first byte, flags, length of the name.
	headSize = 3
	// maxPadding is the maximum padding of a seal. Real signatures have a few hundred to a few thousand characters.
	maxPadding = 1024
)

// blockID identifies a thinking block or an answer. The zero value is none.
type blockID [idSize]byte

// contextHash is the hash of a context.
type contextHash [hashSize]byte

// seal is the content of a signature or of a redacted block's data. Clients that know the form can read it. The MAC
// at its end also covers the text.
type seal struct {
	id     blockID
	answer blockID
	// previous is the previous thinking block in the conversation that the model saw, or zero.
	previous blockID
	// first is set if the answer has no earlier thinking.
	first bool
	// context is the hash of the conversation before the answer, place that of the answer before the block. Both leave
	// thinking out.
	context, place contextHash
	redacted       bool
	omitted        bool // the block was issued without text, so its text is ignored
	model          string
}

// Flags of a seal.
const (
	flagRedacted = 1 << iota
	flagOmitted
	flagFirst
)

// signer makes and verifies the seals of one backend.
type signer struct{ key []byte }

func newSigner(backend string) signer {
	key := sha256.Sum256([]byte("signatures of " + backend))
	return signer{key[:]}
}

// sign returns the signature of a block with this text, or the data of a redacted block.
func (s signer) sign(v seal, text string) string {
	var flags byte
	for flag, on := range map[byte]bool{flagRedacted: v.redacted, flagOmitted: v.omitted, flagFirst: v.first} {
		if on {
			flags |= flag
		}
	}
	b := []byte{firstByte, flags, byte(len(v.model))}
	b = append(b, v.model[:b[2]]...)
	for _, part := range [][]byte{v.id[:], v.answer[:], v.previous[:], v.context[:], v.place[:]} {
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

// sum returns the MAC of the concatenated parts.
func (s signer) sum(parts ...string) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, part := range parts {
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// padding returns random bytes whose number depends on the text.
func padding(text string) []byte {
	b := make([]byte, 128+min(len(text)/2, maxPadding))
	_, _ = rand.Read(b) // it never fails
	return b
}

// verify reads the signature, or the data, of a block with this text. ok is false if this backend did not make it for
// this text.
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
	for _, part := range [][]byte{v.id[:], v.answer[:], v.previous[:], v.context[:], v.place[:]} {
		rest = rest[copy(part, rest):]
	}
	return v, hmac.Equal(mac, s.mac(sealed, v, text))
}

func newID() (id blockID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

const alphanumerics = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// randomText returns n letters and digits.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = alphanumerics[int(b[i])%len(alphanumerics)]
	}
	return string(b)
}

// randomBase64 returns n random characters of base64.
func randomBase64(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return base64.RawStdEncoding.EncodeToString(b)[:n]
}
