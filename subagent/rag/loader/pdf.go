package loader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"mneme/subagent/rag/loader/pdfium"
)

// sharedPDF reads PDFs for loaders that have no engine of their own.
var sharedPDF = sync.OnceValue(func() *pdfium.Engine { return pdfium.New(userCache()) })

// userCache is a directory for machine code in the user's own cache, "" if there is none
// or others may write to it: what is found there is run.
func userCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "mneme", "pdfium")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
		return ""
	}
	return dir
}

// readPDF reads the text of a PDF's pages, each a section "page 3".
func readPDF(b *builder, f file) error {
	d, err := b.openPDF(f.data)
	if err != nil {
		return b.pdfRefusal(err)
	}
	defer d.Close()
	return b.pdfRefusal(b.pdfPages(d))
}

func (b *builder) pdfPages(d *pdfium.Document) error {
	pages, err := d.Pages()
	switch {
	case err != nil:
		return err
	case pages == 0:
		return fmt.Errorf("%w: it has no pages", pdfium.ErrDamaged)
	case pages > b.limits.Pages:
		return refuse(TooLarge, "the PDF has more than %d pages", b.limits.Pages)
	}
	title, err := d.Title()
	if err != nil {
		return err
	}
	b.doc.Title = pdfTitle(title)
	for number := 1; number <= pages && b.err == nil; number++ {
		page, err := d.Page(number)
		if errors.Is(err, pdfium.ErrPage) {
			b.unread(number)
			continue
		}
		if err != nil {
			return err
		}
		b.skip("comments", page.Comments)
		b.skip("struck pieces of text", page.Struck)
		b.skip("options of forms", page.Options)
		b.page(number, page.Text, page.Unmapped*2 > page.Glyphs)
	}
	if b.err == nil && b.pages == 0 {
		return fmt.Errorf("%w: %w", pdfium.ErrDamaged, pdfium.ErrPage)
	}
	return nil
}

// openPDF opens a file, to be closed. The time in which the engine is not ready, or busy
// with other files, does not count.
func (b *builder) openPDF(data []byte) (*pdfium.Document, error) {
	engine := b.loader.PDF
	if engine == nil {
		engine = sharedPDF()
	}
	stand(b.ctx)
	d, err := engine.Document(b.ctx)
	resume(b.ctx)
	if err != nil {
		return nil, err
	}
	if err := d.Open(data); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// pdfRefusal makes a refusal of an error of the engine. Refusals stay, and nil.
func (b *builder) pdfRefusal(err error) error {
	_, refused := errors.AsType[*Error](err)
	switch {
	case err == nil || refused:
		return err
	case b.ctx.Err() != nil:
		return context.Cause(b.ctx)
	case errors.Is(err, pdfium.ErrPassword):
		return &Error{Code: Encrypted, Sentence: "the PDF is encrypted: save it without a password or other protection",
			Err: err}
	case errors.Is(err, pdfium.ErrMemory):
		return &Error{Code: TooLarge, Sentence: fmt.Sprintf("reading the PDF takes more than %s of memory",
			size(pdfium.Memory)), Err: err}
	case errors.Is(err, pdfium.ErrDamaged):
		return damaged(labelPDF, err)
	}
	return fmt.Errorf("read the PDF: %w", err)
}

var fileName = regexp.MustCompile(`^\S+\.[A-Za-z]{2,5}$`)

// pdfTitle is the title that a PDF gives itself, unless it is what programs write
// for want of one.
func pdfTitle(title string) string {
	title = strings.TrimPrefix(oneLine(title), "Microsoft Word - ")
	if strings.EqualFold(title, "untitled") || fileName.MatchString(title) {
		return ""
	}
	return title
}
