// Package secrets takes credentials out of texts that others wrote: of a backend that repeats its request in an
// error, of a tool that answers with the header that it was given. It owns the values that it was told, in memory,
// and never shows one. It imports nothing of ours, so that every tower can share it.
package secrets

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// struck stands for a credential that was taken out.
const struck = "***"

const (
	minSecret = 8  // a shorter one may be a word; in bytes
	sureOne   = 16 // one of this length stands in no text by chance; in bytes
	probe     = 16 // how much of a long one is looked for first, in bytes: short needles are found faster
)

// Set is some credentials. A nil Set finds nothing.
type Set struct {
	forms [][]byte // of all of them, the longest first
	sure  [][]byte // the long ones, as JSON has them
	signs [][]byte // a piece of each of those
}

// New makes a set of values of headers, of variables, and of keys; of "Bearer …" the token is one
// by itself. It is nil if none of them is long enough to be told from a word.
func New(values ...string) *Set {
	var s Set
	for _, value := range values {
		if _, token, ok := strings.Cut(value, " "); ok {
			values = append(values, token)
		}
	}
	for _, value := range values {
		if len(value) < minSecret {
			continue
		}
		if len(value) >= sureOne {
			s.sure = append(s.sure, quoted(value))
			s.signs = append(s.signs, signOf(quoted(value)))
		}
		s.forms = append(s.forms, formsOf(value)...)
	}
	if s.forms == nil {
		return nil
	}
	slices.SortFunc(s.forms, func(a, b []byte) int { return len(b) - len(a) })
	s.forms = slices.CompactFunc(s.forms, bytes.Equal)
	return &s
}

// quoted is a value as JSON has it, without the quotes.
func quoted(value string) []byte {
	text, _ := jsontext.AppendQuote(nil, value) // the error only says that invalid UTF-8 was replaced
	return text[1 : len(text)-1]
}

// formsOf are the ways in which a value may be written: as it is, escaped for JSON
// or a URL, and in base64, whatever stands before it there ("Bearer ", "user:").
func formsOf(value string) [][]byte {
	forms := [][]byte{
		[]byte(value), quoted(value), []byte(url.QueryEscape(value)), []byte(url.PathEscape(value)),
	}
	for pad := range 3 {
		padded := append(make([]byte, pad), value...)
		end := len(padded) * 8 / 6 // characters that the value alone decides
		first := (pad*8 + 5) / 6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, []byte(encoding.EncodeToString(padded)[first:end]))
		}
	}
	return forms
}

// Strike takes every form of every secret out of b; b itself is not written to.
func (s *Set) Strike(b []byte) []byte {
	if s == nil {
		return b
	}
	b = s.strike(b)
	if bytes.ContainsAny(b, `%\`) {
		// Also characters that need no escape may have one.
		if plain := unescaped(b); s.holds(plain) {
			return s.strike(plain)
		}
	}
	return b
}

// Text is Strike of a text.
func (s *Set) Text(text string) string { return string(s.Strike([]byte(text))) }

func (s *Set) strike(b []byte) []byte {
	for _, form := range s.forms {
		if bytes.Contains(b, form) {
			b = bytes.ReplaceAll(b, form, []byte(struck))
		}
	}
	return b
}

func (s *Set) holds(b []byte) bool {
	return slices.ContainsFunc(s.forms, func(form []byte) bool { return bytes.Contains(b, form) })
}

// escape is a printable character of ASCII, written as JSON or a URL may write it, or escaped for nothing.
var escape = regexp.MustCompile(`\\u00([2-7][0-9a-fA-F])|%([2-7][0-9a-fA-F])|\\/`)

// unescaped is a text with such characters as they are; those that end or escape a string of JSON as it has them.
func unescaped(b []byte) []byte {
	return escape.ReplaceAllFunc(b, func(m []byte) []byte {
		code, _ := strconv.ParseUint(string(m[len(m)-2:]), 16, 8) // no number in \/
		switch {
		case m[len(m)-1] == '/':
			return []byte("/")
		case code == '"' || code == '\\':
			return []byte{'\\', byte(code)}
		}
		return []byte{byte(code)}
	})
}

// Shows reports whether a long secret is in b, which is JSON, as it is.
func (s *Set) Shows(b []byte) bool {
	if s == nil {
		return false
	}
	for i, sign := range s.signs {
		if bytes.Contains(b, sign) && bytes.Contains(b, s.sure[i]) {
			return true
		}
	}
	return false
}

// signOf is a piece of a secret that begins with a byte that is rare in text, if
// there is one: it is found the fastest, or rather not found.
func signOf(secret []byte) []byte {
	start := 0
	for _, rare := range []string{"QXZJVKUY", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789_-"} {
		if i := bytes.IndexAny(secret[:len(secret)-probe+1], rare); i >= 0 {
			start = i
			break
		}
	}
	return secret[start : start+probe]
}
