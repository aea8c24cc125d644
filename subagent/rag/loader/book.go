package loader

import (
	"encoding/xml"
	"net/url"
	"path"
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
	if err := a.protected(); err != nil {
		return err
	}
	main := ""
	err = a.elements("META-INF/container.xml", func(e xml.StartElement) error {
		if e.Name.Local == "rootfile" && main == "" {
			main = attribute(e, "full-path")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !a.has(main) {
		return refuse(Damaged, "the file is damaged: it is an e-book without a list of its chapters")
	}
	title, err := a.textOf(main, "title")
	if err != nil {
		return err
	}
	author, err := a.textOf(main, "creator")
	if err != nil {
		return err
	}
	b.meta("author", author)
	chapters, err := a.chapters(b, main)
	if err != nil {
		return err
	}
	for i, chapter := range chapters {
		page, err := a.bytes(chapter)
		if err != nil {
			return err
		}
		b.open(1, "chapter "+strconv.Itoa(i+1))
		if err := readHTML(b, file{name: chapter, data: page}); err != nil && CodeOf(err) != Empty {
			return err
		}
	}
	b.doc.Title = title // and not that of a chapter
	return nil
}

// protected refuses a book whose chapters are encrypted. Fonts may be disguised,
// which hinders nobody.
func (a *archive) protected() error {
	return a.elements("META-INF/encryption.xml", func(e xml.StartElement) error {
		method := attribute(e, "Algorithm")
		if e.Name.Local == "EncryptionMethod" && method != "http://www.idpf.org/2008/embedding" &&
			method != "http://ns.adobe.com/pdf/enc#RC" {
			return refuse(Encrypted, "the e-book is protected against copying (DRM): only one without protection can be read")
		}
		return nil
	})
}

// chapters are the parts that the package document lists for reading, each once.
func (a *archive) chapters(b *builder, main string) (list []string, err error) {
	parts, seen := map[string]string{}, map[string]bool{}
	err = a.elements(main, func(e xml.StartElement) error {
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
			if part := parts[attribute(e, "idref")]; part != "" && !seen[part] {
				seen[part] = true
				list = append(list, part)
			}
		}
		if len(list) > b.limits.Pages {
			return refuse(TooLarge, "the e-book has more than %d chapters", b.limits.Pages)
		}
		return nil
	})
	return list, err
}
