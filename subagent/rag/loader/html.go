package loader

import (
	"maps"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// readHTML reads a web page by its elements.
func readHTML(b *builder, f file) error {
	source, err := decode(f.data, f.htmlCharset())
	if err != nil {
		return err
	}
	if strings.Contains(source[:min(len(source), 1024)], "xmlns") {
		source = hypertextOf(source)
	}
	b.hypertext(source, true)
	return b.err
}

var (
	cdata   = regexp.MustCompile(`(?s)<!\[CDATA\[.*?\]\]>`)
	lastTag = regexp.MustCompile(`^<([A-Za-z][^\s<>/]*)`)
)

// hypertextOf returns HTML that means what a page of XML does: elements without content have an end tag.
func hypertextOf(page string) string {
	page = cdata.ReplaceAllStringFunc(page, func(text string) string { return html.EscapeString(text[9 : len(text)-3]) })
	var out strings.Builder
	for {
		text, rest, ok := strings.Cut(page, "/>")
		out.WriteString(text)
		if !ok {
			return out.String()
		}
		tag := lastTag.FindStringSubmatch(text[max(0, strings.LastIndexAny(text, "<>")):])
		if page = rest; tag == nil || unclosed[atom.Lookup([]byte(tag[1]))] { // an end tag would be another element
			out.WriteString("/>")
		} else {
			out.WriteString("></" + tag[1] + ">")
		}
	}
}

// hypertext adds the visible text of HTML. If titled is set, its title names the document.
func (b *builder) hypertext(source string, titled bool) {
	root, err := html.Parse(watched{b.ctx, strings.NewReader(source)})
	if err != nil && b.room(0) { // too deep
		root, err = html.Parse(watched{b.ctx, strings.NewReader(shallow(source))})
	}
	if b.room(0); err != nil || b.err != nil {
		b.fail(damaged(labelHTML, err))
		return
	}
	if titled {
		b.doc.Title = oneLine(titleOf(root))
	}
	b.styles(root)
	start, skipped := b.text.Len(), maps.Clone(b.doc.Skipped)
	r := htmlReader{builder: b}
	for range 2 {
		r.children(root, 0)
		r.flush()
		if r.endList(); r.includeHidden || b.text.Len() > start {
			break
		}
		r.includeHidden, b.doc.Skipped = true, skipped // a script shows it
	}
}

// deepestHTML bounds the open elements of a deep page, and the hidden or marked ones below them.
const deepestHTML = 100

// shallow removes the tags that are nested too deep.
func shallow(source string) string {
	z := html.NewTokenizer(strings.NewReader(source))
	var out strings.Builder
	var retained []bool // the open elements
	special := 0        // elements kept below the limit
	for {
		kind, raw := z.Next(), string(z.Raw())
		token := z.Token()
		n := len(retained) - 1
		switch {
		case kind == html.ErrorToken:
			return out.String()
		case kind != html.StartTagToken && kind != html.EndTagToken || unclosed[token.DataAtom]:
		case kind == html.StartTagToken:
			exempt := n >= deepestHTML && special < deepestHTML &&
				(unseen[token.DataAtom] || tagMarks[token.DataAtom] != 0 || (&styleSheet{}).resolve(token.Data, token.Attr).on != 0)
			if exempt {
				special++
			}
			if retained = append(retained, n < deepestHTML || exempt); !retained[n+1] {
				continue
			}
		case n >= 0:
			keep := retained[n]
			if retained = retained[:n]; !keep {
				continue
			}
			if n > deepestHTML {
				special--
			}
		}
		out.WriteString(raw)
	}
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*encoding=["']([A-Za-z0-9._-]+)["']`)

// htmlCharset is the encoding that the page or its sender names.
func (f file) htmlCharset() string {
	if name := f.charset(); name != "" {
		return name
	}
	head := f.data[:min(len(f.data), 1024)]
	if m := xmlEncoding.FindSubmatch(head); m != nil {
		return string(m[1])
	}
	// Of the package's own guesses, only UTF-8 is one; windows-1252 is its default.
	if _, name, _ := charset.DetermineEncoding(head, ""); name != "windows-1252" ||
		strings.Contains(strings.ToLower(string(head)), name) {
		return name
	}
	return ""
}

// titleOf is the text of the first title element.
func titleOf(root *html.Node) string {
	for n := range root.Descendants() {
		if n.DataAtom == atom.Title && n.Namespace == "" && n.FirstChild != nil {
			return n.FirstChild.Data
		}
	}
	return ""
}

// unseen are elements with text that is none of the page's.
var unseen = map[atom.Atom]bool{atom.Script: true, atom.Style: true, atom.Template: true, atom.Svg: true,
	atom.Noscript: true, atom.Iframe: true, atom.Textarea: true}

// inlineTags do not divide a text.
var inlineTags = map[atom.Atom]bool{atom.A: true, atom.Abbr: true, atom.B: true, atom.Bdi: true, atom.Cite: true,
	atom.Code: true, atom.Del: true, atom.Dfn: true, atom.Em: true, atom.Font: true, atom.I: true, atom.Ins: true,
	atom.Kbd: true, atom.Mark: true, atom.Q: true, atom.Rb: true, atom.Rp: true, atom.Rt: true, atom.Rtc: true,
	atom.Ruby: true, atom.S: true, atom.Samp: true, atom.Small: true, atom.Span: true, atom.Strike: true,
	atom.Strong: true, atom.Sub: true, atom.Sup: true, atom.Time: true, atom.Tt: true, atom.U: true, atom.Var: true,
	atom.Wbr: true, atom.Img: true, atom.Acronym: true, atom.Bdo: true, atom.Big: true, atom.Button: true, atom.Data: true,
	atom.Label: true, atom.Nobr: true, atom.Output: true, atom.Picture: true, atom.Slot: true, atom.Select: true,
	atom.Input: true, atom.Br: true}

// unclosed are elements whose end tag is optional or missing.
var unclosed = func() map[atom.Atom]bool {
	set := map[atom.Atom]bool{}
	for name := range strings.FieldsSeq(`p li td th tr dt dd option optgroup thead tbody tfoot rt rp html head body br img hr
		input meta link wbr col area base embed source track`) {
		set[atom.Lookup([]byte(name))] = true
	}
	return set
}()
