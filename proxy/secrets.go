package proxy

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// struck stands for a credential that was taken out of an answer.
const struck = "***"

const (
	minSecret = 8  // a shorter one may be a word; in bytes
	sureOne   = 16 // one of this length stands in no answer by chance; in bytes
	probe     = 16 // how much of a long one is looked for first, in bytes: short needles are found faster
)

// secrets are this process's own credentials. A backend that repeats its request,
// as some do in errors, must not show them to clients, logs and histories.
//
// Errors and headers are searched for all of them in every form. Answers are
// searched for long ones as they are: they stand in none by chance, so that every
// other answer passes byte for byte.
type secrets struct {
	forms [][]byte // of all of them, the longest first
	sure  [][]byte // the long ones, as JSON has them
	signs [][]byte // a piece of each of those
}

// newSecrets is nil if none of the values is long enough to be told from a word.
func newSecrets(values ...string) *secrets {
	var s secrets
	for _, value := range values {
		if len(value) < minSecret {
			continue
		}
		if len(value) >= sureOne {
			quoted := wire.Quote(value)
			s.sure = append(s.sure, quoted[1:len(quoted)-1])
			s.signs = append(s.signs, signOf(quoted[1:len(quoted)-1]))
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

// formsOf are the ways in which a value may be written: as it is, escaped for JSON
// or a URL, and in base64, whatever stands before it there ("Bearer ", "user:").
func formsOf(value string) [][]byte {
	quoted := wire.Quote(value)
	forms := [][]byte{
		[]byte(value), quoted[1 : len(quoted)-1], []byte(url.QueryEscape(value)), []byte(url.PathEscape(value)),
	}
	for before := range 3 {
		padded := append(make([]byte, before), value...)
		whole := len(padded) * 8 / 6 // characters that the value alone decides
		first := (before*8 + 5) / 6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, []byte(encoding.EncodeToString(padded)[first:whole]))
		}
	}
	return forms
}

// strike takes every form of every secret out of b; b itself is not written to.
func (s *secrets) strike(b []byte) []byte {
	if s == nil {
		return b
	}
	for _, form := range s.forms {
		if bytes.Contains(b, form) {
			b = bytes.ReplaceAll(b, form, []byte(struck))
		}
	}
	return b
}

// shows reports whether a long secret is in b, which is JSON.
func (s *secrets) shows(b []byte) bool {
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

// hider takes credentials out of a backend's answer: the process's, and out of
// errors the caller's too, which a backend may have been given in place of one.
type hider struct {
	own    *secrets
	caller http.Header
}

// header cleans the header of an answer in place.
func (h hider) header(from http.Header) {
	if h.own == nil {
		return
	}
	for _, values := range from {
		for i, value := range values {
			if clean := h.own.strike([]byte(value)); len(clean) != len(value) || string(clean) != value {
				values[i] = string(clean)
			}
		}
	}
}

// error cleans the body or the event of an error.
func (h hider) error(b []byte) []byte {
	b = h.own.strike(b)
	return newSecrets(credentials(h.caller)...).strike(b)
}

// answer cleans a body that is no error.
func (h hider) answer(b []byte) []byte {
	if h.own.shows(b) {
		return h.own.strike(b)
	}
	return b
}

// frame cleans an event of a stream.
func (h hider) frame(f wire.Frame) wire.Frame {
	switch {
	case len(f.Data) == 0 && !h.own.shows(f.Raw):
	case bytes.Contains(f.Data, []byte(`"error"`)):
		return wire.Frame{Raw: h.error(f.Raw), Data: h.error(f.Data)}
	case h.own.shows(f.Raw):
		return wire.Frame{Raw: h.own.strike(f.Raw), Data: h.own.strike(f.Data)}
	}
	return f
}

// credentials are what a request's header presents.
func credentials(h http.Header) []string {
	out := slices.Clone(h["X-Api-Key"])
	for _, value := range h["Authorization"] {
		_, token, _ := strings.Cut(value, " ")
		out = append(out, token)
	}
	return out
}

// secrets are all credentials that the gateway knows.
func (c Config) secrets() *secrets {
	values := slices.Clone(c.Secrets)
	for _, b := range c.Backends {
		values = append(values, b.APIKey)
	}
	return newSecrets(values...)
}
