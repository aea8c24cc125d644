package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"mneme/memory"
)

// Prefix begins the text of every key, mn_<id>_<32 random bytes in base64url>, so that scanners
// for secrets know it.
const Prefix = "mn_"

var (
	// ErrBadKey says what of a key to be made is wrong, in a sentence for its maker.
	ErrBadKey = errors.New("not a key")
	// ErrUnknownKey says that there is no key with this id, or it is another tenant's.
	ErrUnknownKey = errors.New("there is no key with this id")
)

// Key is what is kept of a key: everything but its text, of which there is a hash. The text has 32
// random bytes, so that one round of SHA-256 is enough: nobody guesses it.
type Key struct {
	ID     string        `json:"id" yaml:"id"`
	Name   string        `json:"name" yaml:"name"` // for people
	Tenant memory.Tenant `json:"tenant" yaml:"tenant"`
	Scopes []Scope       `json:"scopes" yaml:"scopes"`
	Limits `yaml:",inline"`

	Created time.Time `json:"created,omitzero" yaml:"created"`
	Expires time.Time `json:"expires,omitzero" yaml:"expires"` // zero: never
	Revoked time.Time `json:"revoked,omitzero" yaml:"-"`       // zero: it is not
	Used    time.Time `json:"used,omitzero" yaml:"-"`          // the minute of its last use
	// Overlap is until when the text before the last rotation is taken, too.
	Overlap time.Time `json:"overlap,omitzero" yaml:"-"`

	hash, previous string // SHA-256 of the text, and of the one before the last rotation, in hex
}

// Principal is the principal of a request with the key.
func (k Key) Principal() Principal {
	return Principal{Key: k.ID, Tenant: k.Tenant, Scopes: k.Scopes, Limits: k.Limits}
}

// keyID is what an id may be: without _, which ends it in the text of a key.
var keyID = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// idOf is the id in a key's text.
func idOf(text string) (id string, ok bool) {
	rest, ours := strings.CutPrefix(text, Prefix)
	id, secret, hasSecret := strings.Cut(rest, "_")
	return id, ours && hasSecret && len(secret) >= 32 && len(text) <= 256 && keyID.MatchString(id)
}

// newText makes a text for the key of an id.
func newText(id string) string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return Prefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret)
}

// newID is an id of 10 characters.
func newID() string { return strings.ToLower(rand.Text()[:10]) }

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// opens says whether the text of a hash is the key's at a moment, and if not, why.
func (k Key) opens(hash string, now time.Time) (why string) {
	is := subtle.ConstantTimeCompare([]byte(hash), []byte(k.hash)) == 1
	was := subtle.ConstantTimeCompare([]byte(hash), []byte(k.previous)) == 1 && now.Before(k.Overlap)
	if !is && !was {
		return wrongKey
	}
	return k.inactiveReason(now)
}

// inactiveReason says why a key opens nothing at a moment, whichever caller has its text; "" if it does.
func (k Key) inactiveReason(now time.Time) (why string) {
	switch {
	case !k.Revoked.IsZero():
		return "This key was revoked; ask for another one."
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "This key has expired; ask for another one."
	}
	return ""
}

// check says what of a key is wrong; errors are ErrBadKey.
func (k Key) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadKey, fmt.Sprintf(format, args...))
	}
	if n := len([]rune(k.Name)); n == 0 || n > 64 || strings.ContainsFunc(k.Name, unicode.IsControl) {
		return bad("a name of 1 to 64 characters is needed, by which people know the key")
	}
	if len(k.Scopes) == 0 {
		return bad("no scopes are given; name some of %s", scopeList())
	}
	for _, s := range k.Scopes {
		if !slices.Contains(Scopes, s) {
			return bad("%.40q is no scope; they are %s", string(s), scopeList())
		}
	}
	return nil
}

func scopeList() string { return strings.ReplaceAll(scopeNames(Scopes), ",", ", ") }
