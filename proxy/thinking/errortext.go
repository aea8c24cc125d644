package thinking

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/lazyregexp"
)

const (
	maxErrorBody  = 256 << 10 // of an error's body, in bytes; the rest is ignored
	maxErrorText  = 64 << 10  // of its text that is matched, in bytes
	maxErrorDepth = 8         // of nested objects, arrays and JSON within strings
)

var (
	// speaking are the names of members with strings that describe the error.
	speaking = []string{"message", "msg", "raw", "detail", "details", "reason", "error"}
	// echoing are the names of members in which an error repeats the request; their text must not
	// be matched: it may quote any error.
	echoing = []string{"input", "input_value", "prompt", "request"}
)

// errorText is the text of an error, normalised for matching: in lower case, and without the
// quotes, backslashes, asterisks and white space that gateways, terminals and masks put anywhere.
// What the error repeats of the request is left out.
func errorText(body []byte) string {
	body = body[:min(len(body), maxErrorBody)]
	var buf texts
	if !buf.json(body, 0, false) || len(buf) == 0 {
		buf = append(buf[:0], body...)
	}
	text := withoutEcho(string(buf))
	return fold(text[:min(len(text), maxErrorText)])
}

// texts collects the strings of an error, each ended by a semicolon, so that no pattern matches
// across two of them.
type texts []byte

// json collects the strings of one JSON value; inside says that every string counts, not only those
// of speaking members. If b is not one JSON value it collects nothing and returns false.
func (t *texts) json(b []byte, depth int, inside bool) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	n := len(*t)
	if t.value(d, depth, inside) == nil {
		if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
			return true
		}
	}
	*t = (*t)[:n]
	return false
}

// value collects the strings of the decoder's next value.
func (t *texts) value(d *jsontext.Decoder, depth int, inside bool) error {
	kind := d.PeekKind()
	if depth > maxErrorDepth || kind != '"' && kind != '{' && kind != '[' {
		return d.SkipValue()
	}
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if kind == '"' {
		t.text(token.String(), depth, inside)
		return nil
	}
	for next := d.PeekKind(); next != '}' && next != ']'; next = d.PeekKind() {
		include := inside
		if kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return err
			}
			if slices.Contains(echoing, name.String()) {
				if err := d.SkipValue(); err != nil {
					return err
				}
				continue
			}
			include = inside || slices.Contains(speaking, name.String())
			if name.String() == "param" && d.PeekKind() == '"' {
				param, err := d.ReadToken()
				if err != nil {
					return err
				}
				// Xiaomi says there what is wrong (https://github.com/decolua/9router/issues/1210).
				t.text(param.String(), depth+1, inside || strings.Contains(param.String(), " "))
				continue
			}
		}
		if err := t.value(d, depth+1, include); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// text collects a string, or the strings of the JSON that it contains: gateways wrap errors in
// strings.
func (t *texts) text(s string, depth int, inside bool) {
	trimmed := strings.TrimSpace(s)
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if t.json([]byte(trimmed), depth+1, inside) {
			return
		}
	}
	if inside {
		*t = append(append(*t, s...), ';')
	}
}

// echo finds where a text that is not JSON repeats a part of the request: a member of JSON or of a
// Python dictionary, possibly escaped, or input_value=.
var echo = lazyregexp.New(`['"](?:input|input_value|prompt|request)\\*['"]\s*:\s*|\binput_value=`)

// withoutEcho cuts quoted and bracketed values out of s that repeat the request.
func withoutEcho(s string) string {
	var out strings.Builder
	for {
		loc := echo().FindStringIndex(s)
		if loc == nil {
			break
		}
		out.WriteString(s[:loc[1]])
		s = s[loc[1]+valueLength(s[loc[1]:]):]
	}
	if out.Len() == 0 {
		return s
	}
	out.WriteString(s)
	return out.String()
}

// valueLength is the length of the quoted or bracketed value at the start of s. It is len(s) if the
// value is not closed, and 0 if s starts with neither.
func valueLength(s string) int {
	escapes := len(s) - len(strings.TrimLeft(s, `\`))
	if escapes == len(s) {
		return 0
	}
	switch open := s[escapes]; open {
	case '"', '\'':
		return quotedLength(s, escapes, open)
	case '{', '[':
		return bracketedLength(s)
	}
	return 0
}

// quotedLength is valueLength for a quoted value, which ends at a quote that is escaped as often as
// the first one.
func quotedLength(s string, escapes int, quote byte) int {
	run := 0
	for i := escapes + 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			run++
			continue
		case s[i] == quote && run == escapes:
			return i + 1
		}
		run = 0
	}
	return len(s)
}

// bracketedLength is valueLength for a value in brackets. Brackets inside strings are counted too,
// which is good enough for text that is only cut out.
func bracketedLength(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// fold normalises s for matching. Escape sequences that are still in it count as the characters
// that they stand for.
func fold(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case ' ', '\t', '\r', '\n', '\v', '\f', '`', '\'', '"', '*':
		case '\\':
			i += escapeLength(s[i+1:])
		default:
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			out = append(out, c)
		}
	}
	return string(out)
}

// escapeLength is how many bytes of s form an escape sequence with the backslash before it that
// stands for white space or a quote.
func escapeLength(s string) int {
	switch {
	case s == "":
		return 0
	case strings.IndexByte("nrt", s[0]) >= 0:
		return 1
	}
	for _, quote := range []string{"u0022", "u0027", "u0060"} {
		if strings.HasPrefix(s, quote) {
			return len(quote)
		}
	}
	return 0
}
