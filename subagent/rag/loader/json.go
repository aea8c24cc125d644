package loader

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/subagent/rag/chunk"
)

// readJSON reads a JSON value or several, one behind the other. An object with a
// text is that text; of many, each becomes a section. Anything else is flattened
// to lines "path: value".
func readJSON(b *builder, f file) error {
	text, err := decode(f.data, f.charset())
	if err != nil {
		return err
	}
	many := false
	for v, err := range jsonValues(watched{b.ctx, strings.NewReader(text)}, b.limits.Rows) {
		if err != nil || b.err != nil {
			return err
		}
		record, ok := v.record()
		if v.last && !many && ok {
			record.into(b)
			continue // what follows may be broken
		}
		many = true
		if !ok {
			v.flatten(b)
			continue
		}
		title := b.doc.Title
		b.heading(1, "", cmp.Or(record.title, "record "+strconv.Itoa(v.number)))
		b.doc.Title = title // of one record, not of the file
		b.paragraph(squeeze(record.text))
	}
	return nil
}

// jsonOptions take what other readers take too.
var jsonOptions = jsontext.AllowDuplicateNames(true)

// jsonValue is a value of a file that may be a document of its own.
type jsonValue struct {
	jsontext.Value
	number int    // from 1
	path   string // "[3]" for an element of an array, else ""
	last   bool   // nothing follows it
}

// jsonValues gives the values of a file, one behind the other, and in place of an array
// its elements. After an error there is nothing more.
func jsonValues(r io.Reader, most int) iter.Seq2[jsonValue, error] {
	return func(yield func(jsonValue, error) bool) {
		d := jsontext.NewDecoder(r, jsonOptions)
		for number := 1; ; {
			if kind := d.PeekKind(); kind == ']' || kind == '[' && d.StackDepth() == 0 {
				if _, err := d.ReadToken(); err != nil {
					yield(jsonValue{}, badJSON(err))
					return
				}
				continue
			}
			raw, err := d.ReadValue()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(jsonValue{}, badJSON(err))
				return
			}
			if number > most {
				yield(jsonValue{}, refuse(TooLarge, "the file holds more than %d documents", most))
				return
			}
			raw = bytes.Clone(raw) // the decoder's own buffer, and what follows is looked at
			v := jsonValue{Value: raw, number: number}
			if _, elements := d.StackIndex(d.StackDepth()); d.StackDepth() > 0 {
				v.path = "[" + strconv.FormatInt(elements-1, 10) + "]"
			} else {
				v.last = d.PeekKind() == 0
			}
			if !yield(v, nil) {
				return
			}
			number++
		}
	}
}

// badJSON is a decoder's error as a refusal.
func badJSON(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax) && strings.Contains(syntax.Err.Error(), "max depth"):
		return refuse(TooLarge, "the file's values lie far too deep in each other")
	case errors.As(err, &syntax):
		e := damaged(labelJSON, err)
		e.Sentence += fmt.Sprintf(" behind byte %d", syntax.ByteOffset)
		return e
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(labelJSON, err)
	}
	return err
}

// record is an object that is a document.
type record struct {
	id, title, text, source string
	metadata                [][2]string
}

// What the fields of a document are called, the first choice first.
var (
	idNames     = []string{"id", "_id", "doc_id", "docid", "document_id"}
	titleNames  = []string{"title", "name", "heading", "subject"}
	textNames   = []string{"text", "content", "contents", "body", "passage"}
	sourceNames = []string{"source", "url", "link"}
)

// record reads v as a document; ok is false if it is no object with a text.
func (v jsonValue) record() (r record, ok bool) {
	if v.Kind() != '{' {
		return record{}, false
	}
	fields := map[string]string{}
	var order []string
	scalars("", gjson.ParseBytes(v.Value), func(name, value string) {
		if _, exists := fields[name]; !exists {
			order = append(order, name)
		}
		fields[name] = value
	})
	take := func(names []string) string {
		for _, name := range names {
			if value := fields[name]; strings.TrimSpace(value) != "" {
				delete(fields, name)
				return value
			}
		}
		return ""
	}
	r = record{id: take(idNames), text: take(textNames), title: take(titleNames), source: take(sourceNames)}
	for _, name := range order {
		if value, exists := fields[name]; exists {
			r.metadata = append(r.metadata, [2]string{strings.TrimPrefix(name, "metadata."), value})
		}
	}
	return r, r.text != ""
}

// scalars gives the members of an object that are strings, numbers or booleans,
// and those of its member "metadata".
func scalars(prefix string, object gjson.Result, member func(name, value string)) {
	object.ForEach(func(name, value gjson.Result) bool {
		switch key := prefix + name.String(); {
		case value.Type == gjson.String:
			member(key, value.Str)
		case value.Type == gjson.Number || value.IsBool():
			member(key, value.Raw)
		case key == "metadata" && value.IsObject():
			scalars("metadata.", value, member)
		}
		return true
	})
}

// into makes the document of the record.
func (r record) into(b *builder) {
	b.doc.Title = oneLine(r.title)
	if r.source != "" {
		b.doc.Source = oneLine(r.source)
	}
	for _, m := range r.metadata {
		b.meta(m[0], m[1])
	}
	b.paragraph(squeeze(clean(r.text)))
}

// flatten writes the value as lines "path: value", without what is empty.
func (v jsonValue) flatten(b *builder) {
	d := jsontext.NewDecoder(bytes.NewReader(v.Value), jsonOptions)
	var out strings.Builder
	for b.room(out.Len()) {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			b.paragraph(out.String())
			return
		}
		if err != nil {
			b.fail(badJSON(err))
			return
		}
		switch t.Kind() {
		case '{', '[':
			if d.StackDepth() > b.limits.Nesting {
				b.fail(refuse(TooLarge, "the file's values lie more than %d deep in each other", b.limits.Nesting))
			}
			continue
		case '}', ']', 'n':
			continue
		}
		value := strings.TrimSpace(t.String())
		if kind, length := d.StackIndex(d.StackDepth()); value == "" || kind == '{' && length%2 == 1 { // a member's name
			continue
		}
		if path := pathOf(v.path, d); path != "" {
			out.WriteString(path + ": ")
		}
		out.WriteString(squeeze(value))
		out.WriteByte('\n')
	}
}

// pathOf writes where the value lies that was just read, as in "a.b[2].c".
func pathOf(path string, d *jsontext.Decoder) string {
	depth := 0
	for name := range d.StackPointer().Tokens() {
		depth++
		switch kind, _ := d.StackIndex(depth); {
		case kind == '[':
			path += "[" + name + "]"
		case path != "":
			path += "." + oneLine(name)
		default:
			path = oneLine(name)
		}
	}
	return path
}

// item makes a document of the value's own, in a file of that name.
func (v jsonValue) item(b *builder, file string) (Item, error) {
	r, ok := v.record()
	if ok {
		r.into(b)
	} else {
		v.flatten(b)
	}
	if b.err != nil {
		return Item{}, b.err
	}
	d := b.document()
	if strings.TrimSpace(d.Text) == "" {
		return Item{}, refuse(Empty, "the document holds no text")
	}
	id := cmp.Or(oneLine(r.id), strconv.Itoa(v.number))
	d.Title = cmp.Or(d.Title, chunk.TitleOf(file)+" "+id)
	return Item{ID: id, Document: d}, nil
}

// looksLikeJSON says whether all of data is JSON values.
func looksLikeJSON(data []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsonOptions)
	for {
		if err := d.SkipValue(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
