package loader

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
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

var (
	// front matches the lines between --- at the very beginning that start with a name.
	front     = regexp.MustCompile(`^---[ \t]*\n((?:[ \t]*(?:#.*)?\n)*[\w-]+[ \t]*:(?:.*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|$)`)
	frontName = regexp.MustCompile(`^([\w-]+)[ \t]*:(.*)`)
)

// frontMatter stores the front matter as metadata and returns the rest. It reads only lines "name: value".
func (b *builder) frontMatter(source string) string {
	head := front.FindStringSubmatch(source)
	if head == nil {
		return source
	}
	for line := range strings.Lines(head[1]) {
		m := frontName.FindStringSubmatch(strings.TrimRight(line, "\n"))
		value := ""
		if m != nil {
			value = strings.Trim(strings.TrimSpace(m[2]), `"'`)
		}
		switch {
		case value == "" && m == nil && strings.TrimSpace(line) != "" && line[0] != '#':
			b.skip("lines of front matter", 1)
		case value == "":
		case m[1] == "title":
			b.doc.Title = oneLine(value)
		default:
			b.meta(m[1], value)
		}
	}
	return source[len(head[0]):]
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
	marks    = regexp.MustCompile(fmt.Sprintf(`^(?:[ \t]*(?:[>*+-]|\d{1,9}[.)])){%d}`, mostMarks))
	deepLine = regexp.MustCompile(`^[ \t]{200}`)
)

// definition matches the start of a link definition, or a block of code. A footnote and a line with a bracketed word look
// like a definition.
var definition = regexp.MustCompile("(?m)^[ \t]*(?:```(?s:.*?)\n[ \t]*```|~~~(?s:.*?)\n[ \t]*~~~)|" + `^( {0,3})\[([^\[\]\n]{1,200})\]:[ \t]*(\S*)`)

// address matches a link's target that is more than a word.
var address = regexp.MustCompile(`[/#:@<]|\.\w`)

// markdown converts Markdown to HTML and adds its text.
func (b *builder) markdown(source string) {
	md := goldmark.New(goldmark.WithExtensions(extension.Linkify, extension.Table, extension.TaskList),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(struckParser{extension.NewStrikethroughParser()},
			500))), goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(
			extension.NewStrikethroughHTMLRenderer(), 500), util.Prioritized(rawRenderer{}, 500))))
	links, count := parser.NewContext(), 0
	define := func(line string) string {
		m := definition.FindStringSubmatch(line)
		if m[2] == "" { // code
			return line
		}
		if strings.HasPrefix(m[2], "^") || !address.MatchString(m[3]) && m[3] != "" {
			return m[1] + `\` + line[len(m[1]):]
		}
		if count++; count <= mostReferences && m[3] != "" {
			links.AddReference(parser.NewReference([]byte(m[2]), []byte("#"), nil))
		}
		return line
	}
	if strings.Contains(source, "]:") {
		source = definition.ReplaceAllStringFunc(source, define)
	}
	for source != "" && b.room(0) {
		piece := source[:pieceEnd(source)]
		source = carryOver(piece, source[len(piece):])
		var page bytes.Buffer
		if hostile(piece) || md.Convert([]byte(piece), &page, parser.WithContext(links)) != nil {
			b.paragraph(squeeze(piece))
			continue
		}
		b.hypertext(page.String(), false)
	}
}

// rawRenderer writes the HTML in Markdown. A tag that is never closed must not take the text after it along.
type rawRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (rawRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, rawInline)
	r.Register(ast.KindHTMLBlock, rawBlock)
}

// rawInline writes a tag within a paragraph. A tag that cannot stand there is text, as in "the <title> of the page".
func rawInline(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkSkipChildren, nil
	}
	raw := n.(*ast.RawHTML).Segments.Value(source)
	z := html.NewTokenizer(bytes.NewReader(raw))
	kind := z.Next()
	token := z.Token()
	switch {
	case kind == html.CommentToken || kind == html.DoctypeToken:
	case !inlineTags[token.DataAtom] || token.DataAtom == atom.Select:
		raw = util.EscapeHTML(raw)
	case tagMarks[token.DataAtom] == struck: // which ends with its paragraph
		raw = []byte(map[bool]string{true: "<del>", false: "</del>"}[kind == html.StartTagToken])
	}
	_, err := w.Write(raw)
	return ast.WalkSkipChildren, err
}

// swallowing matches the start of an element that has all text up to its end tag.
var swallowing = regexp.MustCompile(`(?i)<(title|textarea|style|xmp|iframe|noembed|noframes|script|plaintext|select|template|svg|` +
	`noscript|object|video|audio|canvas|s|strike)\b`)

// rawBlock writes a block of HTML.
func rawBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.HTMLBlock)
	raw := string(block.Lines().Value(source))
	if block.HasClosure() {
		raw += string(block.ClosureLine.Value(source))
	}
	lower := strings.ToLower(raw)
	_, err := w.WriteString(swallowing.ReplaceAllStringFunc(raw, func(tag string) string {
		if strings.Contains(lower, "</"+strings.ToLower(tag[1:])) {
			return tag
		}
		return "&lt;" + tag[1:]
	}))
	return ast.WalkContinue, err
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

// namedRows matches the end of a piece in a table: its names, the line below them, and rows.
var namedRows = regexp.MustCompile(`(?m)^(.*\|.*\n[ \t]*[|:-][ \t|:-]*-[ \t|:-]*\n)(?:.*\|.*\n)+\z`)

// carryOver returns the Markdown behind a piece. If it begins in a table, the table's header is repeated.
func carryOver(piece, rest string) string {
	row, _, _ := strings.Cut(rest, "\n")
	if m := namedRows.FindStringSubmatch(piece); m != nil && strings.Contains(row, "|") && len(m[1]) < pieceSize/4 {
		return m[1] + rest
	}
	return rest
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
	heading, blank, lineEnd, offset, fence := 0, 0, 0, 0, ""
	for line := range strings.Lines(source) {
		if offset+len(line) > pieceSize {
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
		case strings.HasPrefix(line, "#") && offset > 0:
			heading = offset
		case trimmed == "":
			blank = offset + len(line)
		}
		offset += len(line)
		lineEnd = offset
	}
	for _, end := range []int{heading, blank, lineEnd} {
		if end > pieceSize/4 || end > 0 && end == lineEnd {
			return end
		}
	}
	end := pieceSize
	for end > 0 && source[end]&0xc0 == 0x80 { // inside a character
		end--
	}
	return end
}
