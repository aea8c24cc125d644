package loader

import (
	"context"
	"maps"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"mneme/subagent/rag/loader/pdfium"
)

// version identifies the output of the built-in readers. Raise it with every change
// that may alter the text of a file.
const version = "5"

// Loader reads files. The zero value reads the built-in formats within the default
// limits. It is not changed while it is used, which many goroutines may do.
type Loader struct {
	Limits Limits
	// Extractors read the files of an extension, as ".pdf" or ".png", in place of
	// what is built in, if anything is.
	Extractors map[string]Extractor
	// PDF is the engine that reads PDFs; nil for one that all loaders share, with its
	// machine code in the user's cache.
	PDF *pdfium.Engine
}

// Extractor gets the text out of a file: a reader that is built in, a Command or a
// Service.
type Extractor interface {
	// Identity changes when the same file may give another text.
	Identity() string
	extract(*builder, file) error
	// patience is how long it may take beyond Limits.Time.
	patience() time.Duration
}

// Identity of a built-in reader.
func (f *format) Identity() string { return version }

func (f *format) extract(b *builder, file file) error { return f.into(b, file) }

func (f *format) patience() time.Duration { return 0 }

// Identity names what reads files of this name. Documents that carry another one
// were read otherwise, and are better read again.
func (l Loader) Identity(name string) string {
	if e := l.Extractors[extensionOf(name)]; e != nil {
		return version + "+" + e.Identity()
	}
	return version
}

// Extensions are those of the files that are read, in their order, in lower case and
// with their dot.
func (l Loader) Extensions() []string {
	extensions := slices.Collect(maps.Keys(l.Extractors))
	for _, f := range formats {
		extensions = append(extensions, f.extensions...)
	}
	slices.Sort(extensions)
	return slices.Compact(extensions)
}

func extensionOf(name string) string { return strings.ToLower(path.Ext(name)) }

// reader is what reads a file: the extractor for its extension or for the type
// that it is of, else the reader that is built in.
func (l Loader) reader(f file) (Extractor, string, error) {
	if len(f.data) == 0 {
		return nil, "", refuse(Empty, "the file is empty")
	}
	if e := l.Extractors[extensionOf(f.name)]; e != nil {
		return e, "", nil
	}
	kind, _, _ := mime.ParseMediaType(f.contentType)
	match, err := f.format()
	for extension, e := range l.Extractors {
		if match != nil && slices.Contains(match.extensions, extension) || kind != "" && extensionOf(f.name) == "" &&
			typeOf(extension) == kind {
			return e, "", nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	return match, match.label, nil
}

// typeOf is the MIME type of an extension, without parameters.
func typeOf(extension string) string {
	kind, _, _ := mime.ParseMediaType(mime.TypeByExtension(extension))
	return kind
}

// limits are those for a file of this name.
func (l Loader) limits(name string) Limits {
	limits := l.Limits.orDefault()
	if e := l.Extractors[extensionOf(name)]; e != nil && limits.Time > 0 {
		limits.Time += e.patience()
	}
	return limits
}

// builder is one for a document of this loader.
func (l Loader) builder(ctx context.Context) *builder {
	b := newBuilder(ctx, l.Limits.orDefault())
	b.loader = l
	return b
}
