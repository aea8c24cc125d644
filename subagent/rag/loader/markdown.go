package loader

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// readMarkdown reads Markdown with tables and front matter.
func readMarkdown(b *builder, f file) error {
	source, err := decode(f.data, f.charset())
	if err != nil {
		return err
	}
	b.markdown(b.frontMatter(source))
	return nil
}

// frontMatter takes the lines between --- at the very beginning as metadata and
// gives what follows. Only "name: value" is read of it.
func (b *builder) frontMatter(source string) string {
	rest, ok := strings.CutPrefix(source, "---\n")
	if !ok {
		return source
	}
	head, body, ok := strings.Cut("\n"+rest, "\n---\n")
	if !ok {
		return source
	}
	for line := range strings.Lines(head) {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if !ok || value == "" || strings.TrimLeft(name, " \t-#") != name {
			continue
		}
		if name == "title" {
			b.doc.Title = oneLine(value)
		} else {
			b.meta(name, value)
		}
	}
	return body
}

const (
	// pieceSize is how much Markdown is parsed at once. The parser's cost can grow
	// with the square of its input, its stack with the depth of it, and it does not
	// look at a context.
	pieceSize = 32 << 10
	// mostMarks is how many quotes and list items a line may open inside each
	// other; a line with more is hostile, and is read as plain text.
	mostMarks = 64
	// mostReferences bounds the definitions of links that are kept.
	mostReferences = 10_000
)

var (
	reference = regexp.MustCompile(`(?m)^ {0,3}\[([^\[\]\n]{1,200})\]:[ \t]*\S`)
	marks     = regexp.MustCompile(fmt.Sprintf(`^(?:[ \t]*(?:[>*+-]|\d{1,9}[.)])){%d}`, mostMarks))
	deepLine  = regexp.MustCompile(`^[ \t]{200}`)
)

// markdown adds Markdown to the document.
func (b *builder) markdown(source string) {
	parse := goldmark.New(goldmark.WithExtensions(extension.Linkify, extension.Table, extension.TaskList),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(struckParser{extension.NewStrikethroughParser()},
			500)))).Parser()
	links := parser.NewContext()
	for _, r := range reference.FindAllStringSubmatch(source, mostReferences) {
		links.AddReference(parser.NewReference([]byte(r[1]), []byte("#"), nil))
	}
	for source != "" && b.room(0) {
		piece := source[:pieceEnd(source)]
		source = source[len(piece):]
		if hostile(piece) {
			b.paragraph(squeeze(piece))
			continue
		}
		w := mdWriter{builder: b, source: []byte(piece)}
		w.blocks(parse.Parse(text.NewReader(w.source), parser.WithContext(links)))
	}
}

// struckParser parses text between two tildes as struck. A single one is text, as in "5~10".
type struckParser struct{ parser.InlineParser }

func (p struckParser) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if line, _ := block.PeekLine(); !bytes.HasPrefix(line, []byte("~~")) {
		return nil
	}
	return p.InlineParser.Parse(parent, block, pc)
}

// hostile says whether a piece nests deeper than people write.
func hostile(piece string) bool {
	for line := range strings.Lines(piece) {
		if marks.MatchString(line) || deepLine.MatchString(line) && strings.TrimSpace(line) != "" {
			return true
		}
	}
	return false
}

// pieceEnd is where the first piece of Markdown ends: at the end of all if that is short.
// Else it ends where a cut changes least of what the parser sees: before the last heading
// that is not too near the start, or behind the last blank line, or behind the last line
// that fits, or within a line that is longer than a piece. Headings and blank lines in
// fenced code are no places to cut.
func pieceEnd(source string) int {
	if len(source) <= pieceSize {
		return len(source)
	}
	heading, blank, any, at, fence := 0, 0, 0, 0, ""
	for line := range strings.Lines(source) {
		if at+len(line) > pieceSize {
			break
		}
		trimmed := strings.TrimSpace(line)
		mark := trimmed[:min(3, len(trimmed))]
		switch {
		case fence != "":
			if mark == fence {
				fence = ""
			}
		case mark == "```" || mark == "~~~":
			fence = mark
		case strings.HasPrefix(line, "#") && at > 0:
			heading = at
		case trimmed == "":
			blank = at + len(line)
		}
		at += len(line)
		any = at
	}
	for _, end := range []int{heading, blank, any} {
		if end > pieceSize/4 || end > 0 && end == any {
			return end
		}
	}
	end := pieceSize
	for end > 0 && source[end]&0xc0 == 0x80 { // inside a character
		end--
	}
	return end
}

// mdWriter writes parsed Markdown as text.
type mdWriter struct {
	*builder
	source []byte
}

// blocks writes the blocks inside n.
func (w mdWriter) blocks(n ast.Node) {
	for c := n.FirstChild(); c != nil && w.err == nil; c = c.NextSibling() {
		w.block(c)
	}
}

func (w mdWriter) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		w.heading(n.Level, "", w.inline(n))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		w.whole(w.lines(n))
	case *extast.Table:
		t := w.table(n)
		w.endTable(&t)
	case *ast.List:
		var out strings.Builder
		w.list(&out, n, "")
		w.paragraph(out.String())
	case *ast.HTMLBlock:
		w.fragment(w.lines(n))
	case *ast.Blockquote:
		w.blocks(n)
	case *ast.ThematicBreak, *ast.LinkReferenceDefinition:
	default:
		w.paragraph(w.inline(n))
	}
}

func (w mdWriter) lines(n ast.Node) string {
	return string(n.Lines().Value(w.source))
}

// list writes the items of a list and of those inside it, each on a line of its
// own.
func (w mdWriter) list(out *strings.Builder, list *ast.List, indent string) {
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "- "
		if list.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		out.WriteString(indent + mark)
		first := true
		for c := item.FirstChild(); c != nil; c = c.NextSibling() {
			if inner, ok := c.(*ast.List); ok {
				if first {
					out.WriteByte('\n')
				}
				first = false
				w.list(out, inner, indent+"  ")
				continue
			}
			if !first {
				out.WriteString(indent + "  ")
			}
			first = false
			text := strings.Trim(w.anything(c), "\n")
			out.WriteString(strings.ReplaceAll(text, "\n", "\n"+indent+"  ") + "\n")
		}
		if first {
			out.WriteByte('\n')
		}
	}
}

// anything is the text of a block inside a list's item.
func (w mdWriter) anything(n ast.Node) string {
	switch n := n.(type) {
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return squeeze(w.lines(n))
	case *extast.Table:
		t := w.table(n)
		return strings.Join(w.tableBlocks(&t), "\n")
	case *ast.HTMLBlock:
		return oneLine(w.tagless(w.lines(n)))
	case *ast.Blockquote, *ast.List, *ast.ListItem:
		var parts []string
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			parts = append(parts, w.anything(c))
		}
		return strings.Join(parts, "\n")
	}
	return w.inline(n)
}

func (w mdWriter) table(n *extast.Table) (t table) {
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			t.cell(w.inline(cell), 1, 1)
		}
		w.endRow(&t, row.Kind() == extast.KindTableHeader)
	}
	return t
}

// inline is the text inside a block: of links and pictures only what a reader
// sees.
func (w mdWriter) inline(n ast.Node) string {
	var out flow
	w.inlines(&out, n, 0)
	return strings.TrimSpace(out.String())
}

func (w mdWriter) inlines(out *flow, n ast.Node, m mark) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			w.run(out, string(w.unescaped(c)), m)
			if c.HardLineBreak() {
				w.run(out, "\n", m)
			} else if c.SoftLineBreak() {
				w.run(out, " ", m)
			}
		case *ast.String:
			w.run(out, string(c.Value), m)
		case *ast.Image:
			w.skip("pictures", 1)
			w.inlines(out, c, m)
		case *extast.Strikethrough:
			w.inlines(out, c, m|struck)
		case *ast.AutoLink:
			w.run(out, string(c.Label(w.source)), m)
		case *ast.RawHTML:
			z := html.NewTokenizer(bytes.NewReader(c.Segments.Value(w.source)))
			if kind, tag := z.Next(), z.Token().DataAtom; tag == atom.Br {
				w.run(out, "\n", m)
			} else {
				out.tag(kind, tag)
			}
		case *extast.TaskCheckBox:
			if c.IsChecked {
				w.run(out, "[x] ", m)
			} else {
				w.run(out, "[ ] ", m)
			}
		default:
			w.inlines(out, c, m)
		}
	}
}

// unescaped is a piece of text as a reader sees it.
func (w mdWriter) unescaped(t *ast.Text) []byte {
	value := t.Segment.Value(w.source)
	if t.IsRaw() || t.Parent() != nil && t.Parent().Kind() == ast.KindCodeSpan {
		return value
	}
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(value)))
}
