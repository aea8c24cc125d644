package loader

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/ledongthuc/pdf"
)

// readPDF reads the text of a PDF's pages, each a section "page 3". Pages that
// cannot be read are named in the metadata; if none can, the file is refused.
func readPDF(b *builder, f file) error {
	objects, err := scanPDF(b.ctx, f.data, b.limits.Unpacked)
	if err != nil {
		return err
	}
	if objects.encrypted {
		return refuse(Encrypted, "the PDF is encrypted: save it without a password or other protection")
	}
	plain, err := objects.rebuild()
	if err != nil {
		return err
	}
	r, err := pdf.NewReader(watchedAt{b.ctx, bytes.NewReader(plain)}, int64(len(plain)))
	if err != nil {
		return damaged(labelPDF, err)
	}
	p := pdfReader{builder: b, unpacked: objects.unpacked, fonts: map[string]*pdfFont{}, mappings: pdfMappings, nodes: 10*b.limits.Pages + 1000}
	b.doc.Title = pdfTitle(r)
	if err := p.tree(r.Trailer().Key("Root").Key("Pages"), nil, 0); err != nil {
		return err
	}
	switch {
	case p.pages == 0:
		return damaged(labelPDF, fmt.Errorf("it has no pages"))
	case len(p.failed) == p.pages:
		return damaged(labelPDF, p.cause)
	case len(p.failed) > 0:
		b.meta("unreadable_pages", strings.Join(p.failed[:min(len(p.failed), 100)], ", "))
	}
	return nil
}

var fileName = regexp.MustCompile(`^\S+\.[A-Za-z]{2,5}$`)

// pdfTitle is the title that the file gives itself, unless it is what programs
// write for want of one.
func pdfTitle(r *pdf.Reader) string {
	title := ""
	_ = guard(labelPDF, func() error {
		title = oneLine(r.Trailer().Key("Info").Key("Title").Text())
		return nil
	})
	title = strings.TrimPrefix(title, "Microsoft Word - ")
	if strings.EqualFold(title, "untitled") || fileName.MatchString(title) {
		return ""
	}
	return title
}

// watchedAt is a file that fails once its context has ended.
type watchedAt struct {
	ctx context.Context
	r   io.ReaderAt
}

func (w watchedAt) ReadAt(p []byte, at int64) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.r.ReadAt(p, at)
}

// pdfReader goes through the pages.
type pdfReader struct {
	*builder
	unpacked int64 // bytes that may still be unpacked
	nodes    int   // of the tree that may still be visited
	pages    int
	failed   []string // numbers of pages that could not be read
	cause    error    // of the last of them
	fonts    map[string]*pdfFont
	mappings int // of characters and widths that may still be kept
}

const (
	// pdfTreeDepth bounds the tree of pages, which may be a circle.
	pdfTreeDepth = 50
	// pdfStream is how many bytes one content stream may have.
	pdfStream = 16 << 20
	// pdfMappings bounds what is known of all fonts together: a few bytes in the
	// file can map a great many characters.
	pdfMappings = 2_000_000
)

// tree reads the pages below a node. resources are the nearest above it.
func (p *pdfReader) tree(node pdf.Value, resources *pdf.Value, depth int) error {
	if p.nodes--; p.nodes < 0 || p.pages > p.limits.Pages {
		return refuse(TooLarge, "the PDF has more than %d pages", p.limits.Pages)
	}
	if err := p.check(0); err != nil {
		return err
	}
	if own := node.Key("Resources"); own.Kind() == pdf.Dict {
		resources = &own
	}
	kids := node.Key("Kids")
	if kids.Kind() != pdf.Array {
		if node.Kind() != pdf.Dict {
			return nil
		}
		if p.pages++; p.pages > p.limits.Pages {
			return refuse(TooLarge, "the PDF has more than %d pages", p.limits.Pages)
		}
		return p.page(node, resources)
	}
	if depth > pdfTreeDepth {
		return nil
	}
	for i := range kids.Len() {
		if err := p.tree(kids.Index(i), resources, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// page reads one page.
func (p *pdfReader) page(page pdf.Value, resources *pdf.Value) error {
	if resources == nil {
		resources = &pdf.Value{}
	}
	t := pdfText{pdfReader: p}
	err := guard(labelPDF, func() error { return t.content(page.Key("Contents"), *resources, 0) })
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case CodeOf(err) == TooLarge:
		return err
	case err != nil:
		p.failed, p.cause = append(p.failed, strconv.Itoa(p.pages)), err
		return nil
	}
	p.open(1, "page "+strconv.Itoa(p.pages))
	return p.paragraph(squeeze(clean(joinHyphens(t.out.String()))))
}

// stream reads what a stream holds, or the streams of an array one behind the
// other. Data that breaks off gives what there is of it.
func (p *pdfReader) stream(v pdf.Value) ([]byte, error) {
	if v.Kind() == pdf.Array {
		var all []byte
		for i := range min(v.Len(), 10_000) {
			data, err := p.stream(v.Index(i))
			if err != nil {
				return nil, err
			}
			all = append(append(all, data...), '\n')
		}
		return all, nil
	}
	if v.Kind() != pdf.Stream {
		return nil, nil
	}
	limit := min(p.unpacked, pdfStream)
	data, err := io.ReadAll(io.LimitReader(v.Reader(), limit+1))
	if int64(len(data)) > limit && limit == pdfStream {
		return nil, fmt.Errorf("a stream unpacks to more than %s", size(pdfStream)) // a map or drawing
	}
	if p.unpacked -= int64(len(data)); p.unpacked < 0 {
		return nil, refuse(TooLarge, "the PDF unpacks to far more than its size")
	}
	if len(data) == 0 && err != nil {
		return nil, err
	}
	return data, nil
}

// joinHyphens joins words that a line's end divides.
func joinHyphens(text string) string {
	return hyphen.ReplaceAllString(text, "$1$2")
}
