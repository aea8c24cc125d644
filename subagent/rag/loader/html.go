package loader

import (
	"context"
	"io"
	"iter"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// readHTML reads a web page by its elements, and by its tags alone if it is too deep for a tree.
func readHTML(b *builder, f file) error {
	source, err := decode(f.data, f.htmlCharset())
	if err != nil {
		return err
	}
	root, err := html.Parse(watched{b.ctx, strings.NewReader(source)})
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if err != nil {
		b.tags(source)
		return nil
	}
	b.doc.Title = oneLine(titleOf(root))
	b.elements(root)
	return nil
}

// fragment adds a piece of HTML. Rows without their table are read by their tags.
func (b *builder) fragment(source string) {
	nodes, err := html.ParseFragment(strings.NewReader(source), &html.Node{Type: html.ElementNode, Data: "body",
		DataAtom: atom.Body})
	if err != nil || tableRow.MatchString(source) && !strings.Contains(strings.ToLower(source), "<table") {
		b.tags(source)
		return
	}
	root := &html.Node{Type: html.DocumentNode}
	for _, n := range nodes {
		root.AppendChild(n)
	}
	b.elements(root)
}

var tableRow = regexp.MustCompile(`(?i)<t[rdh]\b`)

// elements adds what a browser shows of a page.
func (b *builder) elements(root *html.Node) {
	removeHidden(b, root)
	r := htmlReader{builder: b}
	r.children(root, 0)
	r.flush()
	r.endList()
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*encoding=["']([A-Za-z0-9._-]+)["']`)

// htmlCharset is the encoding that the page or its sender names.
func (f file) htmlCharset() string {
	if named := f.charset(); named != "" {
		return named
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

// tags adds HTML by its tags alone: paragraphs and headings, no tables or lists.
// It needs no tree, so no depth hurts it.
func (b *builder) tags(source string) {
	for block := range b.tagBlocks(watched{b.ctx, strings.NewReader(source)}) {
		switch {
		case block.title:
			if b.doc.Title == "" {
				b.doc.Title = oneLine(block.text)
			}
		case block.level > 0:
			b.heading(block.level, "", block.text)
		case block.code:
			b.whole(block.text)
		default:
			b.paragraph(oneLine(block.text))
		}
		if b.err != nil {
			return
		}
	}
}

// tagless is the text of a short piece of HTML.
func (b *builder) tagless(source string) string {
	var out []string
	for block := range b.tagBlocks(strings.NewReader(source)) {
		out = append(out, block.text)
	}
	return strings.Join(out, "\n")
}

// tagBlock is the text between two tags that divide blocks.
type tagBlock struct {
	text  string
	level int // of a heading, else 0
	title bool
	code  bool
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
	atom.Input: true}

// tagBlocks gives the blocks of HTML in order, until it ends or r fails.
func (b *builder) tagBlocks(r io.Reader) iter.Seq[tagBlock] {
	return func(yield func(tagBlock) bool) {
		z := html.NewTokenizer(r)
		var block tagBlock
		var text flow
		var out covered
		for {
			kind := z.Next()
			switch kind {
			case html.TextToken:
				if out.depth == 0 {
					b.run(&text, string(z.Text()), 0)
				}
				continue
			case html.CommentToken, html.DoctypeToken:
				continue
			}
			token := z.Token()
			tag := token.DataAtom
			switch {
			case kind == html.ErrorToken: // the end
			case out.covers(kind, token):
				continue
			case inlineTags[tag]:
				text.tag(kind, tag)
				continue
			case tag == atom.Td || tag == atom.Th:
				b.run(&text, " ", 0)
				continue
			}
			block.text = strings.TrimSpace(text.String())
			if block.text != "" && !yield(block) || kind == html.ErrorToken {
				return
			}
			text.Reset()
			block = tagBlock{}
			if kind == html.StartTagToken {
				block.title, block.code = tag == atom.Title, tag == atom.Pre
				if name := token.Data; len(name) == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6' {
					block.level = int(name[1] - '0')
				}
			}
		}
	}
}
