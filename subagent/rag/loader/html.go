package loader

import (
	"context"
	"io"
	"iter"
	"regexp"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// readHTML reads a web page: as Markdown, and by its tags alone if it is too
// deep for a tree.
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
	removeHidden(b, root)
	if flatten(root, 0) > htmlDepth {
		b.tags(source)
		return nil
	}
	var text flow
	b.marks(&text, root, 0)
	if text, err := toMarkdown(b, root); err != nil {
		b.tags(source)
	} else if b.room(0) {
		b.markdown(clean(text))
	}
	return nil
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

// toMarkdown gives the page without what is no text of it.
func toMarkdown(b *builder, root *html.Node) (string, error) {
	c := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(
			table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal),
			table.WithNewlineBehavior(table.NewlineBehaviorPreserve),
			table.WithHeaderPromotion(true),
			table.WithSkipEmptyRows(true),
		),
	))
	for _, tag := range []string{"nav", "svg", "template", "button", "select", "object", "canvas", "audio", "video"} {
		c.Register.TagType(tag, converter.TagTypeRemove, converter.PriorityEarly)
	}
	// The converter itself looks at no context.
	c.Register.Renderer(func(converter.Context, converter.Writer, *html.Node) converter.RenderStatus {
		if b.ctx.Err() != nil {
			panic(stop{context.Cause(b.ctx)}) // guard takes it
		}
		return converter.RenderTryNext
	}, converter.PriorityEarly-1)
	text, err := c.ConvertNode(root)
	return string(text), err
}

const (
	// htmlDepth is how deep elements may lie in each other. A converter copies the
	// text once for each level.
	htmlDepth = 100
	// htmlLists is how deep lists and quotes may: with each level, every line of
	// Markdown gets longer.
	htmlLists = 8
)

// flatten makes plain blocks of lists and quotes that lie too deep, in so many lists
// around n, and gives the depth of the tree, which its parser has bounded.
func flatten(n *html.Node, lists int) (depth int) {
	switch n.DataAtom {
	case atom.Ul, atom.Ol, atom.Li, atom.Blockquote, atom.Pre:
		if lists++; lists > 2*htmlLists { // a list's item is one more level
			n.Data, n.DataAtom = "div", atom.Div
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		depth = max(depth, flatten(c, lists))
	}
	return depth + 1
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
			b.heading(block.level, block.text)
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
	atom.Wbr: true, atom.Img: true}

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
