package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrBadJSON is wrapped by every error about a body that is not the JSON object it should be. Its
// text says where.
var ErrBadJSON = errors.New("the body cannot be read")

// lenient accepts what vendors accept: clients cut strings inside a surrogate pair, and a tool's
// input may have duplicate names. Raw values keep their escapes.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
	jsontext.PreserveRawStrings(true))

// Marshal encodes v. Invalid Unicode in a string is replaced by U+FFFD.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, lenient) }

// Unmarshal decodes b into v. Names are case-sensitive and unknown ones are skipped. Errors wrap
// ErrBadJSON.
func Unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v, lenient); err != nil {
		return badJSON(err)
	}
	return nil
}

// badJSON describes an error and its position for the author of the body.
func badJSON(err error) error {
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it is empty", ErrBadJSON)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: it is not valid JSON at byte %d: %w", ErrBadJSON, syntax.ByteOffset, syntax.Err)
	case errors.As(err, &meaning):
		return fmt.Errorf("%w: %s has the wrong type (a JSON %s)", ErrBadJSON, place(meaning.JSONPointer), meaning.JSONKind)
	}
	return fmt.Errorf("%w: %w", ErrBadJSON, err)
}

func place(p jsontext.Pointer) string {
	if p == "" {
		return "the body"
	}
	return string(p)
}

// Span is the place of a value in a body: body[Start:End]. The zero Span stands for no value.
type Span struct{ Start, End int }

// Exists is false for the zero Span.
func (s Span) Exists() bool { return s.End > 0 }

// Members finds the values of the named members of the object that body is, and checks all of body.
// A missing name has the zero Span. A duplicate one is refused, because two parsers could disagree
// about it.
func Members(body []byte, names ...string) ([]Span, error) {
	spans := make([]Span, len(names))
	err := read(body, '{', func(r *outliner) error {
		_, _, err := r.object(func(m Member) (Span, error) {
			span, err := r.value()
			i := slices.Index(names, m.Name)
			if err != nil || i < 0 {
				return span, err
			}
			if spans[i].Exists() {
				return span, fmt.Errorf("%w: %q comes twice", ErrBadJSON, names[i])
			}
			spans[i] = span
			return span, nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return spans, nil
}

// Splice returns a copy of body in which the value at s is replaced.
func Splice(body []byte, s Span, value []byte) []byte {
	return slices.Concat(body[:s.Start], value, body[s.End:])
}

// Quote is s as a JSON string.
func Quote(s string) []byte { return appendQuote(nil, s) }

// Inner is what stands between the quotes of Quote.
func Inner(s string) []byte {
	if s == "" {
		return nil
	}
	q := Quote(s)
	return q[1 : len(q)-1]
}

// appendQuote appends Quote to dst.
func appendQuote(dst []byte, s string) []byte {
	// The error only says that invalid UTF-8 was replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
