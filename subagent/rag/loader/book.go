package loader

import (
	"encoding/xml"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// readBook reads an .epub: its chapters in the order of its spine (EPUB 3.3, 5.6).
// Each is a section unless it has headings of its own.
func readBook(b *builder, f file) error {
	a, err := b.unpack(f, labelBook)
	if err != nil {
		return err
	}
	a.refuseProtected()
	main := ""
	a.elements("META-INF/container.xml", func(e xml.StartElement) {
		if e.Name.Local == "rootfile" && main == "" {
			main = attribute(e, "full-path")
		}
	})
	if !a.has(main) {
		return refuse(Damaged, "the file is damaged: it is an e-book without a list of its chapters")
	}
	title := a.textOf(main, "title")
	b.meta("author", a.textOf(main, "creator"))
	sheets := map[string]string{}
	for i, chapter := range a.chapters(main) {
		page := a.bytes(chapter)
		b.linked = func(name string) string {
			name = path.Join(path.Dir(chapter), name)
			if _, ok := sheets[name]; !ok {
				sheets[name] = string(a.bytes(name))
			}
			return sheets[name]
		}
		b.open(1, "chapter "+strconv.Itoa(i+1))
		if err := readHTML(b, file{name: chapter, data: page}); err != nil {
			return err
		}
	}
	b.doc.Title = title // and not that of a chapter
	return nil
}

// refuseProtected refuses a book with encrypted chapters. Fonts may be disguised, which
// does not hinder reading.
func (a *archive) refuseProtected() {
	a.elements("META-INF/encryption.xml", func(e xml.StartElement) {
		method := attribute(e, "Algorithm")
		if e.Name.Local == "EncryptionMethod" && method != "http://www.idpf.org/2008/embedding" &&
			method != "http://ns.adobe.com/pdf/enc#RC" {
			a.b.fail(refuse(Encrypted,
				"the e-book is protected against copying (DRM): only one without protection can be read"))
		}
	})
}

// chapters are the parts that the package document lists for reading, each once.
func (a *archive) chapters(main string) (list []string) {
	parts := map[string]string{}
	a.elements(main, func(e xml.StartElement) {
		switch e.Name.Local {
		case "item":
			// The table of contents only repeats the headings.
			if strings.Contains(attribute(e, "media-type"), "html") && attribute(e, "properties") != "nav" {
				href, _, _ := strings.Cut(attribute(e, "href"), "#")
				if plain, err := url.PathUnescape(href); err == nil {
					href = plain
				}
				parts[attribute(e, "id")] = path.Join(path.Dir(main), href)
			}
		case "itemref":
			if part := parts[attribute(e, "idref")]; part != "" && !slices.Contains(list, part) {
				list = append(list, part)
			}
		}
		if len(list) > a.b.limits.Pages {
			a.b.fail(refuse(TooLarge, "the e-book has more than %d chapters", a.b.limits.Pages))
		}
	})
	return list
}
