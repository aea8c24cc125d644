package loader

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"mneme/subagent/rag/chunk"

	"golang.org/x/text/transform"

	utf16 "golang.org/x/text/encoding/unicode"
)

// Item is one document of a file.
type Item struct {
	// ID is unlike others in the file if its author took care: the object's own id,
	// else its number from 1. It is "" if the file is one document.
	ID       string
	Document chunk.Document
}

// Documents reads the documents of a file one by one: the objects of a JSON array
// or of JSON lines; any other file is one. It takes what Load takes.
//
// JSON lines are read as a stream, which may be longer than Limits.Bytes and take
// longer than Limits.Time. A line or object that is refused is an *Error, with
// its Line, and the next ones follow; after any other error there is nothing more.
func (l Loader) Documents(ctx context.Context, name, contentType string, r io.Reader) iter.Seq2[Item, error] {
	limits := l.limits(name)
	f := file{name: name, contentType: contentType}
	if l.Streamed(name, contentType) {
		return func(yield func(Item, error) bool) { lines(ctx, f, r, limits, yield) }
	}
	return func(yield func(Item, error) bool) {
		limited, cancel := limits.deadline(ctx)
		defer cancel()
		var err error
		if f.data, err = readAll(limited, r, limits.Bytes); err != nil {
			yield(Item{}, err)
			return
		}
		if extractor, _, err := l.reader(f); err == nil && (extractor == jsonFile || extractor == jsonLines) {
			objects(ctx, f, limits, yield)
			return
		}
		d, err := l.load(limited, f)
		yield(Item{Document: d}, err)
	}
}

// Streamed says whether Documents reads such a file as a stream, and not into memory
// first.
func (l Loader) Streamed(name, contentType string) bool {
	return l.Extractors[extensionOf(name)] == nil && file{name: name,
		contentType: contentType}.declaredFormat() == jsonLines
}

// objects gives the documents of a JSON file. An object that is the whole file
// is one document without an ID.
func objects(ctx context.Context, f file, limits Limits, yield func(Item, error) bool) {
	text, err := decode(f.data, f.charset())
	if err != nil {
		yield(Item{}, err)
		return
	}
	empty := true
	for v, err := range jsonValues(watched{ctx, strings.NewReader(text)}, limits.Rows) {
		if err != nil {
			yield(Item{}, err)
			return
		}
		item, err := itemOf(ctx, f, v, limits)
		if refusal, refused := errors.AsType[*Error](err); refused {
			refusal.Sentence = fmt.Sprintf("document %d: %s", v.number, refusal.Sentence)
		}
		if v.last && v.number == 1 {
			item.ID = ""
		}
		if empty = false; !yield(item, err) || err != nil && ctx.Err() != nil {
			return
		}
	}
	if empty {
		yield(Item{}, refuse(Empty, "%s", emptySentence(jsonFile)))
	}
}

// itemOf is the document of one value.
func itemOf(ctx context.Context, f file, v jsonValue, limits Limits) (item Item, err error) {
	b := newBuilder(ctx, limits)
	b.doc.Source = f.name
	err = guard(labelJSON, func() (err error) {
		item, err = v.item(b, f.name)
		return err
	})
	return item, err
}

// lines gives the documents of JSON lines.
func lines(ctx context.Context, f file, r io.Reader, limits Limits, yield func(Item, error) bool) {
	in := bufio.NewReaderSize(transform.NewReader(watched{ctx, r}, utf16.BOMOverride(transform.Nop)), 64<<10)
	documents := 0
	for number := 1; ; number++ {
		line, err := readLine(in, limits.Bytes)
		end := errors.Is(err, io.EOF)
		if ctx.Err() != nil {
			yield(Item{}, context.Cause(ctx))
			return
		}
		refusal, refused := errors.AsType[*Error](err)
		if err != nil && !end && !refused {
			yield(Item{}, fmt.Errorf("read the file: %w", err))
			return
		}
		if refused || len(bytes.TrimSpace(line)) > 0 {
			if documents++; documents > limits.Rows {
				yield(Item{}, refuse(TooLarge, "the file holds more than %d documents", limits.Rows))
				return
			}
			var item Item
			if !refused {
				item, err = lineItem(ctx, f, line, number, limits)
				refusal, refused = errors.AsType[*Error](err)
			}
			if refused {
				refusal.Line = number
				refusal.Sentence = fmt.Sprintf("line %d: %s", number, refusal.Sentence)
				err = refusal
			}
			if !yield(item, err) || err != nil && !refused {
				return
			}
		}
		if end {
			if documents == 0 {
				yield(Item{}, refuse(Empty, "the file is empty"))
			}
			return
		}
	}
}

// lineItem is the document of one line.
func lineItem(ctx context.Context, f file, line []byte, number int, limits Limits) (Item, error) {
	text, err := decode(line, f.charset())
	if err != nil {
		return Item{}, err
	}
	value := jsonValue{Value: []byte(text), number: number}
	if !value.IsValid(jsonOptions) {
		return Item{}, damaged(labelJSON, nil)
	}
	return itemOf(ctx, f, value, limits)
}

// readLine gives a line without its end. One of more than limit bytes is read to
// its end and refused. The last line comes with io.EOF.
func readLine(in *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := in.ReadSlice('\n')
		if long = long || int64(len(line)+len(piece)) > limit+1; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long && (err == nil || err == io.EOF) {
			return nil, refuse(TooLarge, "it is longer than %s", size(limit))
		}
		return line, err
	}
}
