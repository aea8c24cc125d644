package loader

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/net/html/charset"
)

const (
	// mostEntries is how many files an archive may hold.
	mostEntries = 10_000
	// A part that unpacks to more than ratioFrom bytes and maxRatio times its size
	// is a bomb: the XML of real documents is packed to about a tenth.
	ratioFrom = 4 << 20
	maxRatio  = 200
	// longestTag bounds one tag of XML: its parser keeps many times its bytes.
	longestTag = 1 << 20
)

// archive is a ZIP archive that is unpacked within limits.
type archive struct {
	ctx   context.Context
	label string // what it is read as
	left  int64  // bytes that may still be unpacked
	depth int
	parts map[string]*zip.File // by name in lower case
}

// unpack opens the file as a ZIP archive and looks at what it claims to hold.
func (b *builder) unpack(f file, label string) (*archive, error) {
	z, err := zip.NewReader(bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		return nil, damaged(label, err)
	}
	a := &archive{ctx: b.ctx, label: label, left: b.limits.Unpacked, depth: b.limits.Nesting,
		parts: map[string]*zip.File{}}
	if len(z.File) > mostEntries {
		return nil, refuse(TooLarge, "the archive holds more than %d files", mostEntries)
	}
	total := uint64(0)
	for _, entry := range z.File {
		if entry.Flags&1 != 0 {
			return nil, refuse(Encrypted, "the archive is encrypted: save it without a password")
		}
		if total += min(entry.UncompressedSize64, 1<<62); total > uint64(b.limits.Unpacked) {
			return nil, refuse(TooLarge, "the archive unpacks to more than %s", size(b.limits.Unpacked))
		}
		if key := partKey(entry.Name); a.parts[key] == nil {
			a.parts[key] = entry
		}
	}
	return a, nil
}

func partKey(name string) string {
	return strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(name, `\`, "/"), "/"))
}

func (a *archive) has(name string) bool { return a.parts[partKey(name)] != nil }

// read gives the bytes of a part to use; of one that is not there it gives none.
func (a *archive) read(name string, use func(io.Reader) error) error {
	part := a.parts[partKey(name)]
	if part == nil {
		return nil
	}
	unpacked, err := part.Open()
	if err != nil {
		return damaged(a.label, err)
	}
	defer unpacked.Close()
	limit := min(a.left, max(ratioFrom, int64(min(part.CompressedSize64, 1<<40))*maxRatio))
	counted := &io.LimitedReader{R: watched{a.ctx, unpacked}, N: limit + 1}
	defer func() { a.left -= limit + 1 - counted.N }()
	err = use(counted)
	switch {
	case a.ctx.Err() != nil:
		return context.Cause(a.ctx)
	case counted.N <= 0:
		return refuse(TooLarge, "the archive unpacks to far more than its size: %s is more than %s", name, size(limit))
	}
	return err
}

// bytes are those of a part.
func (a *archive) bytes(name string) (data []byte, err error) {
	err = a.read(name, func(r io.Reader) (err error) {
		if data, err = io.ReadAll(r); err != nil {
			return damaged(a.label, fmt.Errorf("%s: %w", name, err))
		}
		return nil
	})
	return data, err
}

// tokens reads a part of XML. Entities of its own are not expanded.
func (a *archive) tokens(name string, each func(xml.Token) error) error {
	return a.read(name, func(r io.Reader) error {
		d := xml.NewDecoder(&tags{r: r})
		d.CharsetReader = charset.NewReaderLabel
		d.Strict = false
		for depth := 0; ; {
			token, err := d.RawToken()
			var refusal *Error
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case errors.As(err, &refusal):
				return refusal
			case err != nil:
				return damaged(a.label, fmt.Errorf("%s: %w", name, err))
			}
			switch token.(type) {
			case xml.StartElement:
				if depth++; depth > a.depth {
					return refuse(TooLarge, "the document's elements lie more than %d deep in each other", a.depth)
				}
			case xml.EndElement:
				depth--
			}
			if err := each(token); err != nil {
				return err
			}
		}
	})
}

// tags is a reader of XML that fails at a tag that is too long.
type tags struct {
	r     io.Reader
	open  bool
	bytes int // of the open tag
}

func (t *tags) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		at := bytes.IndexAny(rest, "<>")
		if t.open {
			if t.bytes += max(at, 0); at < 0 {
				t.bytes += len(rest)
			}
			if t.bytes > longestTag {
				return 0, refuse(TooLarge, "the document has a tag of more than %s", size(longestTag))
			}
		}
		if at < 0 {
			break
		}
		t.open, t.bytes = rest[at] == '<', 0
		rest = rest[at+1:]
	}
	return n, err
}

// elements calls start for each element of a part.
func (a *archive) elements(name string, start func(xml.StartElement) error) error {
	return a.tokens(name, func(t xml.Token) error {
		if e, ok := t.(xml.StartElement); ok {
			return start(e)
		}
		return nil
	})
}

// textOf is the text of the first elements of that local name in a part.
func (a *archive) textOf(part, name string) (string, error) {
	var out strings.Builder
	inside, found := 0, false
	err := a.tokens(part, func(t xml.Token) error {
		switch t := t.(type) {
		case xml.StartElement:
			if t.Name.Local == name {
				inside++
			}
		case xml.EndElement:
			if t.Name.Local == name && inside > 0 {
				inside--
				found = found || out.Len() > 0
			}
		case xml.CharData:
			if inside > 0 && !found && out.Len() < 1<<20 {
				out.Write(t)
			}
		}
		return nil
	})
	return oneLine(out.String()), err
}

// attribute is that of an element, by its name without a prefix unless one is
// given, as in "r:id".
func attribute(e xml.StartElement, name string) string {
	space, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		space, local = "", name
	}
	for _, a := range e.Attr {
		if a.Name.Local == local && (!prefixed || a.Name.Space == space) {
			return a.Value
		}
	}
	return ""
}

// relation leads from one part of an Office Open XML file to another (ECMA-376
// part 2, 6.5).
type relation struct {
	id     string
	kind   string // the last element of its type: "slide", "image"
	target string // a part's name; "" outside of the file
}

// relations are those of a part; of the package itself if part is "".
func (a *archive) relations(part string) (list []relation, err error) {
	dir, base := path.Split(part)
	err = a.elements(dir+"_rels/"+base+".rels", func(e xml.StartElement) error {
		if e.Name.Local != "Relationship" {
			return nil
		}
		r := relation{id: attribute(e, "Id"), kind: path.Base(attribute(e, "Type"))}
		if target := attribute(e, "Target"); attribute(e, "TargetMode") != "External" {
			if !strings.HasPrefix(target, "/") {
				target = "/" + dir + target
			}
			r.target = strings.TrimPrefix(path.Clean(target), "/")
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// targetOf is the part of a kind among relations, otherwise if there is none.
func targetOf(list []relation, kind, otherwise string) string {
	for _, r := range list {
		if r.kind == kind && r.target != "" {
			return r.target
		}
	}
	return otherwise
}

// office opens an Office Open XML file: its main part, what that one leads to,
// and its title.
func (b *builder) office(f file, label, usual string) (a *archive, main string, list []relation, err error) {
	if a, err = b.unpack(f, label); err != nil {
		return nil, "", nil, err
	}
	top, err := a.relations("")
	if err != nil {
		return nil, "", nil, err
	}
	if main = targetOf(top, "officeDocument", usual); !a.has(main) {
		return nil, "", nil, refuse(Damaged, "the file is damaged: it is %s without its text", label)
	}
	if b.doc.Title, err = a.textOf(targetOf(top, "core-properties", "docProps/core.xml"), "title"); err != nil {
		return nil, "", nil, err
	}
	list, err = a.relations(main)
	return a, main, list, err
}

// leftOut names parts that are no text, by the kind of relation to them.
var leftOut = map[string]string{
	"image": "pictures", "chart": "charts", "chartEx": "charts", "video": "films", "audio": "sounds",
	"oleObject": "embedded files", "package": "embedded files", "aFChunk": "embedded files",
}

// skipRelated counts what a part leads to that is no text of the document.
func (a *archive) skipRelated(b *builder, list []relation) error {
	for _, r := range list {
		switch r.kind {
		case "comments":
			err := a.elements(r.target, func(e xml.StartElement) error {
				if name := e.Name.Local; name == "comment" || name == "cm" {
					b.skip("comments", 1)
				}
				return nil
			})
			if err != nil {
				return err
			}
		case "header", "footer":
			text, err := a.textOf(r.target, "p")
			if err != nil {
				return err
			}
			if text != "" {
				b.skip("headers and footers", 1)
			}
		default:
			if what := leftOut[r.kind]; what != "" {
				b.skip(what, 1)
			}
		}
	}
	return nil
}
