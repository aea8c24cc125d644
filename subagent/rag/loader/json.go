package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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
	j := jsonReader{limits: b.limits, d: jsonDecoder(watched{b.ctx, strings.NewReader(text)})}
	many := false
	return j.values(func(v jsonValue) error {
		record, ok, err := v.record()
		if err != nil {
			return err
		}
		if v.last && !many && ok {
			return record.into(b)
		}
		many = true
		if !ok {
			return v.flatten(b)
		}
		name := record.title
		if name == "" {
			name = "record " + strconv.Itoa(v.number)
		}
		title := b.doc.Title
		err = b.heading(1, name)
		b.doc.Title = title // of one record, not of the file
		if err != nil {
			return err
		}
		return b.paragraph(squeeze(record.text))
	})
}

// jsonOptions take what other readers take too.
var jsonOptions = jsontext.AllowDuplicateNames(true)

func jsonDecoder(r io.Reader) *jsontext.Decoder { return jsontext.NewDecoder(r, jsonOptions) }

// jsonReader finds the values of a file that may be documents of their own.
type jsonReader struct {
	limits Limits
	d      *jsontext.Decoder
	number int
}

// jsonValue is one of them.
type jsonValue struct {
	jsontext.Value
	nesting int
	number  int    // from 1
	path    string // "[3]" for an element of an array, else ""
	last    bool   // nothing follows it
}

// values gives the file's values; of an array, its elements.
func (j *jsonReader) values(each func(jsonValue) error) error {
	for {
		switch j.d.PeekKind() {
		case '[':
			if err := j.elements(each); err != nil {
				return err
			}
			continue
		case 0:
			_, err := j.d.ReadToken()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return badJSON(err)
		}
		if err := j.value("", each); err != nil {
			return err
		}
	}
}

func (j *jsonReader) elements(each func(jsonValue) error) error {
	if _, err := j.d.ReadToken(); err != nil {
		return badJSON(err)
	}
	for i := 0; j.d.PeekKind() != ']'; i++ {
		if err := j.value("["+strconv.Itoa(i)+"]", each); err != nil {
			return err
		}
	}
	_, err := j.d.ReadToken()
	return badJSON(err)
}

func (j *jsonReader) value(path string, each func(jsonValue) error) error {
	raw, err := j.d.ReadValue()
	if err != nil {
		return badJSON(err)
	}
	if j.number++; j.number > j.limits.Rows {
		return refuse(TooLarge, "the file holds more than %d documents", j.limits.Rows)
	}
	raw = bytes.Clone(raw) // the decoder's own buffer, and what follows is looked at
	return each(jsonValue{Value: raw, nesting: j.limits.Nesting, number: j.number, path: path, last: path == "" &&
		j.d.PeekKind() == 0})
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
func (v jsonValue) record() (r record, ok bool, err error) {
	if v.Kind() != '{' {
		return record{}, false, nil
	}
	fields := map[string]string{}
	var order []string
	err = v.scalars("", v.Value, func(name, value string) {
		if _, twice := fields[name]; !twice {
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
		if value, left := fields[name]; left {
			r.metadata = append(r.metadata, [2]string{strings.TrimPrefix(name, "metadata."), value})
		}
	}
	return r, r.text != "", err
}

// scalars gives the members of an object that are strings, numbers or booleans,
// and those of its member "metadata".
func (v jsonValue) scalars(prefix string, object jsontext.Value, member func(name, value string)) error {
	d := jsonDecoder(bytes.NewBuffer(object))
	if _, err := d.ReadToken(); err != nil {
		return badJSON(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return badJSON(err)
		}
		key := prefix + name.String()
		switch d.PeekKind() {
		case '"', '0', 't', 'f':
			value, err := d.ReadToken()
			if err != nil {
				return badJSON(err)
			}
			member(key, value.String())
			continue
		}
		inner, err := d.ReadValue()
		if err != nil {
			return badJSON(err)
		}
		if key == "metadata" && inner.Kind() == '{' {
			if err := v.scalars("metadata.", inner, member); err != nil {
				return err
			}
		}
	}
	return nil
}

// into makes the document of the record.
func (r record) into(b *builder) error {
	b.doc.Title = oneLine(r.title)
	if r.source != "" {
		b.doc.Source = oneLine(r.source)
	}
	for _, m := range r.metadata {
		b.meta(m[0], m[1])
	}
	return b.paragraph(squeeze(clean(r.text)))
}

// place is where a flattened value lies: a member of an object or an element.
type place struct {
	name  string
	index int
	array bool
}

// flatten writes the value as lines "path: value", without what is empty.
func (v jsonValue) flatten(b *builder) error {
	d := jsonDecoder(watched{b.ctx, bytes.NewReader(v.Value)})
	var stack []place
	var out strings.Builder
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return b.paragraph(out.String())
		}
		if err != nil {
			return badJSON(err)
		}
		n := len(stack) - 1
		switch kind := t.Kind(); kind {
		case '{', '[':
			if n+2 > v.nesting {
				return refuse(TooLarge, "the file's values lie more than %d deep in each other", v.nesting)
			}
			stack = append(stack, place{array: kind == '[', index: -1})
			enter(stack[:n+1])
			continue
		case '}', ']':
			stack = stack[:n]
			continue
		case '"':
			if _, length := d.StackIndex(d.StackDepth()); n >= 0 && !stack[n].array && length%2 == 1 {
				stack[n].name = t.String()
				continue
			}
		}
		enter(stack)
		value := strings.TrimSpace(t.String())
		if value == "" || t.Kind() == 'n' {
			continue
		}
		path := pathOf(v.path, stack)
		if err := b.check(out.Len() + len(path) + len(value)); err != nil {
			return err
		}
		if path != "" {
			out.WriteString(path + ": ")
		}
		out.WriteString(squeeze(value))
		out.WriteByte('\n')
	}
}

// enter counts an element of the innermost array.
func enter(stack []place) {
	if n := len(stack) - 1; n >= 0 && stack[n].array {
		stack[n].index++
	}
}

// pathOf writes where a value lies, as in "a.b[2].c".
func pathOf(start string, stack []place) string {
	var out strings.Builder
	out.WriteString(start)
	for _, p := range stack {
		switch {
		case p.array:
			out.WriteString("[" + strconv.Itoa(p.index) + "]")
		case out.Len() > 0:
			out.WriteString("." + oneLine(p.name))
		default:
			out.WriteString(oneLine(p.name))
		}
	}
	return out.String()
}

// item makes a document of the value's own.
func (v jsonValue) item(b *builder, file string) (Item, error) {
	r, ok, err := v.record()
	if err == nil && ok {
		err = r.into(b)
	} else if err == nil {
		err = v.flatten(b)
	}
	if err != nil {
		return Item{}, err
	}
	d := b.document()
	if strings.TrimSpace(d.Text) == "" {
		return Item{}, refuse(Empty, "the document holds no text")
	}
	id := oneLine(r.id)
	if id == "" {
		id = strconv.Itoa(v.number)
	}
	if d.Title == "" {
		d.Title = chunk.TitleOf(file) + " " + id
	}
	return Item{ID: id, Document: d}, nil
}

// looksLikeJSON says whether all of data is JSON values.
func looksLikeJSON(data []byte) bool {
	d := jsonDecoder(bytes.NewReader(data))
	for {
		if err := d.SkipValue(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
