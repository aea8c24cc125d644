package loader

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"mneme/subagent/rag/chunk"
)

// Load reads one document. Its type follows from contentType, a MIME type that
// may be "", the extension of name and the content itself; name is also the
// document's source, and its title if the document has none of its own. Of a file
// that holds many documents, it makes one with a section for each.
//
// A refusal is an *Error. Other errors are those of r and of ctx.
func (l Loader) Load(ctx context.Context, name, contentType string, r io.Reader) (chunk.Document, error) {
	limits := l.limits(name)
	ctx, cancel := limits.deadline(ctx)
	defer cancel()
	data, err := readAll(ctx, r, limits.Bytes)
	if err != nil {
		return chunk.Document{}, err
	}
	return l.load(ctx, file{name: name, contentType: contentType, data: data})
}

// Text is the document of a text that came as text: cleaned of invisible characters, and
// else to the letter. It has no structure.
func Text(text string) (chunk.Document, error) {
	text = clean(text)
	if strings.TrimSpace(text) == "" {
		return chunk.Document{}, refuse(Empty, "the document holds no text")
	}
	return chunk.Document{Text: text}, nil
}

// file is what is to be read.
type file struct {
	name        string
	contentType string
	data        []byte
	depth       int // of a message's part that it is; 0 for a file of its own
}

// load reads a file that is in memory.
func (l Loader) load(ctx context.Context, f file) (chunk.Document, error) {
	b := l.builder(ctx)
	b.doc.Source = f.name
	reader, label, err := l.reader(f)
	if err == nil {
		err = guard(label, func() error { return reader.extract(b, f) })
	}
	if ctx.Err() != nil {
		b.err = context.Cause(ctx) // whatever a reader made of it
	}
	if err = cmp.Or(b.err, err); err != nil {
		return chunk.Document{}, err
	}
	b.meta("unread_pages", list(b.doc.Unread))
	d := b.document()
	switch {
	case strings.TrimSpace(d.Text) == "" && b.illegible > 0,
		b.pages == 0 && !legible(d.Text):
		return chunk.Document{}, refuse(Illegible, illegibleSentence)
	case strings.TrimSpace(d.Text) == "":
		return chunk.Document{}, refuse(Empty, "%s", emptySentence(reader))
	}
	d.Title = cmp.Or(d.Title, oneLine(chunk.TitleOf(f.name)))
	return d, nil
}

// list writes the first of some numbers.
func list(numbers []int) string {
	const most = 100
	var parts []string
	for _, n := range numbers[:min(len(numbers), most)] {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ", ")
}

const illegibleSentence = "the text of the file is not legible: its characters are not those that a reader sees. " +
	"Save it again from the program it comes from, with its fonts or as UTF-8, or have its pages recognized (OCR)"

// emptySentence says that a file holds no text.
func emptySentence(reader Extractor) string {
	if reader == pdfFile {
		return "the PDF holds no text: it may be a scan, whose pages are pictures"
	}
	return "the file holds no text"
}

// guard runs a reader and turns its panic into a refusal: a library that fails on a
// stranger's file must not end the process. It catches panics of this goroutine only.
func guard(label string, read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged(label, fmt.Errorf("panic: %v", p))
		}
	}()
	return read()
}

// readAll reads at most limit bytes.
func readAll(ctx context.Context, r io.Reader, limit int64) ([]byte, error) {
	var buffer bytes.Buffer
	n, err := io.Copy(&buffer, io.LimitReader(watched{ctx, r}, limit+1))
	var refusal *Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &refusal):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read the file: %w", err)
	case n > limit:
		return nil, refuse(TooLarge, "the file is larger than %s", size(limit))
	}
	return buffer.Bytes(), nil
}

// watched is a reader that fails once its context has ended. Libraries know no context:
// this is how a deadline reaches them.
type watched struct {
	ctx context.Context
	r   io.Reader
}

func (w watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.r.Read(p)
}
