package api

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/access/fair"
	"mneme/access/jsonbound"
)

// DecodeBody reads a JSON body of at most limit bytes into v. The error is a *Problem: 413 for a body over the limit,
// 415 for another media type, 408 for a body that arrives too slowly, else 400 as from Unmarshal; or fair.ErrFull. It
// accepts unknown members, so that a newer caller can use an older server.
func DecodeBody(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	return decode(w, r, limit, jsonbound.Members, func(raw []byte) error { return Unmarshal(raw, v) })
}

// DecodeKnown is DecodeBody for bodies that people write. It rejects unknown members as UnmarshalKnown does.
func DecodeKnown(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	return decode(w, r, limit, jsonbound.Members, func(raw []byte) error { return UnmarshalKnown(raw, v) })
}

// DecodeRun is DecodeBody for a run. It accepts duplicate members, because stored messages may have them.
func DecodeRun(w http.ResponseWriter, r *http.Request, limit int64) (body RunRequest, err error) {
	err = decode(w, r, limit, jsonbound.Run, func(raw []byte) error {
		return unmarshal(raw, &body, jsontext.AllowDuplicateNames(true))
	})
	return body, err
}

// BodyError is the Problem of a request with a body that could not be read to its end.
func BodyError(err error) *Problem {
	var sizeErr *http.MaxBytesError
	switch {
	case errors.As(err, &sizeErr):
		return tooLarge(fmt.Sprintf("The body is larger than %d bytes.", sizeErr.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrBodyTimeout
	}
	return badRequest("The body ended before it was complete.")
}

// ReadBody reads a JSON body of at most limit bytes and members. It rejects a body that is costly to decode. The error
// is a *Problem, or fair.ErrFull.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, members int) (raw []byte, err error) {
	if raw, err = readAll(w, r, limit); err == nil {
		err = fair.Share(r.Context(), func(context.Context) error { return check(raw, members) })
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

func readAll(w http.ResponseWriter, r *http.Request, limit int64) (raw []byte, err error) {
	err = fair.Block(r.Context(), func() (err error) {
		if raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit)); err != nil {
			err = BodyError(err)
		}
		return err
	})
	return raw, err
}

func check(raw []byte, members int) error {
	if no := new(jsonbound.Refusal); errors.As(jsonbound.Check(raw, jsonbound.Depth, members), &no) {
		return &Problem{Status: no.Status, Code: no.Code, Message: "The body " + no.Reason + "."}
	}
	return nil
}

// decode reads a body without a place, and checks and decodes it in one.
func decode(w http.ResponseWriter, r *http.Request, limit int64, members int, into func([]byte) error) error {
	if kind := r.Header.Get("Content-Type"); !takesAsJSON(kind) {
		return &Problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: fmt.Sprintf("The body must be application/json, not %q.", kind)}
	}
	raw, err := readAll(w, r, limit)
	if err != nil {
		return err
	}
	return fair.Share(r.Context(), func(context.Context) error {
		if err := check(raw, members); err != nil {
			return err
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			return badRequest("The body is empty: send a JSON object.")
		}
		return into(raw)
	})
}

// takesAsJSON lets pass JSON, what names no type, and what curl -d calls a form.
func takesAsJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json") ||
		kind == "application/x-www-form-urlencoded")
}

// Unmarshal decodes a client's JSON object into v. Names are exact, and each is unique in its object. The error is a
// *Problem that names the member.
func Unmarshal(raw []byte, v any) error { return unmarshal(raw, v) }

// UnmarshalKnown is Unmarshal that also rejects members that the struct behind v does not have, and names the nearest
// member. Objects inside raw may have unknown members.
func UnmarshalKnown(raw []byte, v any) error {
	if err := Unmarshal(raw, v); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v, anyUnicode, json.RejectUnknownMembers(true), namesOnly); err != nil {
		return explain(err)
	}
	return nil
}

// anyUnicode accepts half a surrogate pair: clients in JavaScript cut strings inside one. It also accepts bytes that
// are not UTF-8, so unmarshal checks them.
var anyUnicode = jsontext.AllowInvalidUTF8(true)

// namesOnly decodes the names of the outermost object and skips the values.
var namesOnly = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ any) error {
	if d.StackDepth() == 0 {
		return errors.ErrUnsupported // leaves the object to the default decoder
	}
	return d.SkipValue()
}))

func unmarshal(raw []byte, v any, options ...json.Options) error {
	options = append(options, anyUnicode)
	err := json.Unmarshal(raw, v, append(options, json.RejectUnknownMembers(true))...)
	if name, names := unknownName(err); name != "" && sameLetters(name, names) == "" {
		err = json.Unmarshal(raw, v, options...)
	}
	switch {
	case err != nil:
		return explain(err)
	case !utf8.Valid(raw):
		return badRequest("The body is not valid UTF-8.")
	}
	return nil
}

// unknownName returns the unknown member that err is about, and the names that its struct has.
func unknownName(err error) (name string, names []string) {
	unknown := new(json.SemanticError)
	if !errors.As(err, &unknown) || !errors.Is(unknown.Err, json.ErrUnknownName) {
		return "", nil
	}
	for _, f := range reflect.VisibleFields(unknown.GoType) { // including those of embedded structs
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return unknown.JSONPointer.LastToken(), names
}

// sameLetters returns the known name that differs from name only in case; "" if there is none.
func sameLetters(name string, names []string) string {
	if i := slices.IndexFunc(names, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		return names[i]
	}
	return ""
}

// explain describes a decoding error for the author of the body.
func explain(err error) *Problem {
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	var kind *stdjson.UnmarshalTypeError // of a type's own UnmarshalJSON
	switch {
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return badRequest(fmt.Sprintf("The body has the member %.80q twice; send it once.", dotted(syntax.JSONPointer)))
	case errors.As(err, &syntax):
		return badRequest(fmt.Sprintf("The body is not valid JSON: %v, at byte %d.", syntax.Err, syntax.ByteOffset))
	case !errors.As(err, &meaning):
		return BadRequest(err)
	case errors.Is(meaning.Err, json.ErrUnknownName):
		name, names := unknownName(err)
		hint := "there are " + strings.Join(names, ", ")
		if nearest := cmp.Or(sameLetters(name, names), Nearest(name, names)); nearest != "" {
			hint = "the nearest one is " + nearest
		}
		return badRequest(fmt.Sprintf("The body has no member %.80q; %s.", dotted(meaning.JSONPointer), hint))
	case meaning.Err != nil && !errors.As(meaning.Err, &kind) && !errors.Is(meaning.Err, strconv.ErrSyntax) &&
		!errors.Is(meaning.Err, strconv.ErrRange):
		return BadRequest(meaning.Err)
	case meaning.JSONPointer == "":
		return badRequest(fmt.Sprintf("The body must be a JSON object, not %s.", kindName(meaning.JSONKind)))
	}
	return badRequest(fmt.Sprintf("%.80s must be %s, not %s, at byte %d.", dotted(meaning.JSONPointer),
		typeName(meaning.GoType), kindName(meaning.JSONKind), meaning.ByteOffset))
}

// dotted writes a pointer as a path such as "answers.0.id".
func dotted(p jsontext.Pointer) string { return strings.Join(slices.Collect(p.Tokens()), ".") }

// typeName describes the JSON values that a Go type accepts.
func typeName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number that fits its field"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '[':
		return "an array"
	case '{':
		return "an object"
	case '"', '0':
		return "a " + k.String()
	}
	return k.String()
}
