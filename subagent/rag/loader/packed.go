package loader

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
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

// archive is a ZIP archive that is unpacked within limits. Its errors are the builder's.
type archive struct {
	b         *builder
	label     string               // what it is read as
	remaining int64                // bytes that may still be unpacked
	parts     map[string]*zip.File // by name in lower case
}

// unpack opens the file as a ZIP archive and looks at what it claims to hold.
func (b *builder) unpack(f file, label string) (*archive, error) {
	z, err := zip.NewReader(bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		return nil, damaged(label, err)
	}
	a := &archive{b: b, label: label, remaining: b.limits.Unpacked, parts: map[string]*zip.File{}}
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
func (a *archive) read(name string, use func(io.Reader) error) {
	part := a.parts[partKey(name)]
	if part == nil || a.b.err != nil {
		return
	}
	unpacked, err := part.Open()
	if err != nil {
		a.b.fail(damaged(a.label, err))
		return
	}
	defer unpacked.Close()
	limit := min(a.remaining, max(ratioFrom, int64(min(part.CompressedSize64, 1<<40))*maxRatio))
	counted := &io.LimitedReader{R: watched{a.b.ctx, unpacked}, N: limit + 1}
	defer func() { a.remaining -= limit + 1 - counted.N }()
	err = use(counted)
	if _, refused := errors.AsType[*Error](err); err != nil && !refused {
		err = damaged(a.label, fmt.Errorf("%s: %w", name, err))
	}
	if counted.N <= 0 { // what came until the limit may look damaged
		err = refuse(TooLarge, "the archive unpacks to far more than its size: %s is more than %s", name, size(limit))
	}
	a.b.fail(err)
}

// bytes are those of a part.
func (a *archive) bytes(name string) (data []byte) {
	a.read(name, func(r io.Reader) (err error) {
		data, err = io.ReadAll(r)
		return err
	})
	return data
}

// tokens reads a part of XML as a stream. Entities of its own are not expanded.
func (a *archive) tokens(name string, each func(xml.Token)) {
	a.read(name, func(r io.Reader) error {
		d := xml.NewDecoder(&tags{r: r})
		d.CharsetReader = charset.NewReaderLabel
		d.Strict = false
		for depth := 0; a.b.err == nil; {
			token, err := d.RawToken()
			if errors.Is(err, io.EOF) && depth <= 0 {
				return nil
			}
			if err != nil {
				return err
			}
			switch token.(type) {
			case xml.StartElement:
				if depth++; depth > a.b.limits.Nesting {
					return refuse(TooLarge, "the document's elements lie more than %d deep in each other", a.b.limits.Nesting)
				}
			case xml.EndElement:
				depth--
			}
			each(token)
		}
		return nil
	})
}

// xmlReader makes text of the elements of a part, in their order.
type xmlReader interface {
	// start says whether the element counts: one that does not is left out with all
	// that is in it.
	start(xml.StartElement) bool
	end(name string)
	write(text string)
}

// walk reads a part of XML with r.
func (a *archive) walk(part string, r xmlReader) {
	out := 0 // open elements that do not count
	a.tokens(part, func(t xml.Token) {
		switch t := t.(type) {
		case xml.StartElement:
			if out > 0 || !r.start(t) {
				out++
			}
		case xml.EndElement:
			if out > 0 {
				out--
			} else {
				r.end(t.Name.Local)
			}
		case xml.CharData:
			if out == 0 {
				r.write(string(t))
			}
		}
	})
}

// tags is a reader of XML that fails at a tag that is too long, before the parser keeps it:
// encoding/xml holds a whole tag with its attributes in memory, whatever it is.
type tags struct {
	r     io.Reader
	open  bool
	bytes int // of the open tag
}

func (t *tags) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		i := bytes.IndexAny(rest, "<>")
		if t.open {
			if t.bytes += max(i, 0); i < 0 {
				t.bytes += len(rest)
			}
			if t.bytes > longestTag {
				return 0, refuse(TooLarge, "the document has a tag of more than %s", size(longestTag))
			}
		}
		if i < 0 {
			break
		}
		t.open, t.bytes = rest[i] == '<', 0
		rest = rest[i+1:]
	}
	return n, err
}

// elements calls start for each element of a part.
func (a *archive) elements(name string, start func(xml.StartElement)) {
	a.tokens(name, func(t xml.Token) {
		if e, ok := t.(xml.StartElement); ok {
			start(e)
		}
	})
}

// textOf is the text of the first elements of that local name in a part.
func (a *archive) textOf(part, name string) string {
	var out strings.Builder
	inside, done := 0, false
	a.tokens(part, func(t xml.Token) {
		switch t := t.(type) {
		case xml.StartElement:
			if t.Name.Local == name {
				inside++
			}
		case xml.EndElement:
			if t.Name.Local == name && inside > 0 {
				inside--
				done = done || out.Len() > 0
			}
		case xml.CharData:
			if inside > 0 && !done && out.Len() < 1<<20 {
				out.Write(t)
			}
		}
	})
	return oneLine(out.String())
}

// attribute is that of an element, by its name without a prefix. If one is given, as in "r:id", the attribute must have
// a prefix, which programs choose freely.
func attribute(e xml.StartElement, name string) string {
	_, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		local = name
	}
	for _, a := range e.Attr {
		if a.Name.Local == local && (!prefixed || a.Name.Space != "") {
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
func (a *archive) relations(part string) (list []relation) {
	dir, base := path.Split(part)
	a.elements(dir+"_rels/"+base+".rels", func(e xml.StartElement) {
		if e.Name.Local != "Relationship" {
			return
		}
		r := relation{id: attribute(e, "Id"), kind: path.Base(attribute(e, "Type"))}
		if target := attribute(e, "Target"); attribute(e, "TargetMode") != "External" {
			if !strings.HasPrefix(target, "/") {
				target = "/" + dir + target
			}
			r.target = strings.TrimPrefix(path.Clean(target), "/")
		}
		list = append(list, r)
	})
	return list
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
	top := a.relations("")
	if main = targetOf(top, "officeDocument", usual); !a.has(main) {
		return nil, "", nil, refuse(Damaged, "the file is damaged: it is %s without its text", label)
	}
	b.doc.Title = a.textOf(targetOf(top, "core-properties", "docProps/core.xml"), "title")
	return a, main, a.relations(main), b.err
}

// leftOut names parts that are no text, by the kind of relation to them.
var leftOut = map[string]string{
	"image": "pictures", "chart": "charts", "chartEx": "charts", "video": "films", "audio": "sounds",
	"oleObject": "embedded files", "package": "embedded files", "control": "form controls", "ctrlProp": "form controls",
}

// skipRelated counts what a part leads to that is no text of the document.
func (a *archive) skipRelated(list []relation) {
	for _, r := range list {
		switch r.kind {
		case "comments":
			a.elements(r.target, func(e xml.StartElement) {
				if name := e.Name.Local; name == "comment" || name == "cm" {
					a.b.skip("comments", 1)
				}
			})
		case "header", "footer":
			if a.textOf(r.target, "p") != "" {
				a.b.skip("headers and footers", 1)
			}
		default:
			if what := leftOut[r.kind]; what != "" {
				a.b.skip(what, 1)
			}
		}
	}
}

// pictureFile matches the name of a picture's file, which some programs write as its description.
var pictureFile = regexp.MustCompile(`(?i)^\S+\.[a-z]{3,4}$|[\\/][^\\/]*\.[a-z]{3,4}$`)

// description returns the alternative text of a picture.
func description(e xml.StartElement) string {
	if text := attribute(e, "descr"); !pictureFile.MatchString(text) {
		return " " + text + " "
	}
	return ""
}
