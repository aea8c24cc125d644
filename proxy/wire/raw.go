package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrBadJSON is wrapped by every refusal of a body that is not the JSON object
// it should be. Its text says where.
var ErrBadJSON = errors.New("the body cannot be read")

// lenient takes what vendors take: clients cut strings inside a surrogate pair,
// and a tool's input may repeat a name. Raw values keep their escapes.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))

// Marshal encodes v; a string with broken Unicode gets U+FFFD where it breaks.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, lenient) }

// Unmarshal decodes b into v. Names are case-sensitive, unknown ones are
// skipped. A failure wraps ErrBadJSON.
func Unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v, lenient); err != nil {
		return badJSON(err)
	}
	return nil
}

// badJSON says what is wrong and where in words for the one who sent it.
func badJSON(err error) error {
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case err == io.EOF:
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

// Span is where a value lies in a body: body[Start:End]. The zero Span is none.
type Span struct{ Start, End int }

// Found is false for the zero Span.
func (s Span) Found() bool { return s.End > 0 }

// Members finds the values of the named members of the object that body is and
// checks the whole of body on the way. A name that is missing has the zero Span;
// one that comes twice is refused, since two readers could disagree on it.
func Members(body []byte, names ...string) ([]Span, error) {
	spans := make([]Span, len(names))
	err := read(body, '{', func(r *outliner) error {
		_, err := r.object(func(m Member) (Span, error) {
			at, err := r.value()
			i := slices.Index(names, m.Name)
			if err != nil || i < 0 {
				return at, err
			}
			if spans[i].Found() {
				return at, fmt.Errorf("%w: %q comes twice", ErrBadJSON, names[i])
			}
			spans[i] = at
			return at, nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return spans, nil
}

// Splice gives body with the value at s replaced and every other byte kept. It
// does not write into body.
func Splice(body []byte, s Span, value []byte) []byte {
	return slices.Concat(body[:s.Start], value, body[s.End:])
}

// Quote is s as a JSON string.
func Quote(s string) []byte {
	// The error only reports that broken UTF-8 was replaced.
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}
