package loader

import (
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// htmlReader turns the elements of a page into text.
type htmlReader struct {
	*builder
	text  flow
	lists []htmlList // the open ones
	fresh bool       // nothing of the open item was read
	cells *[]string  // paragraphs of the open cell of a table, nil outside of one
}

// htmlList is an open list.
type htmlList struct {
	level numberLevel // without a format if it is not numbered
	step  int
}

// htmlCounted are elements with text that is no text of the page, or that show something else, and what they count as.
var htmlCounted = map[atom.Atom]string{atom.Nav: "menus", atom.Svg: "drawings", atom.Iframe: "embedded pages",
	atom.Object: "embedded objects", atom.Embed: "embedded objects", atom.Audio: "sounds", atom.Video: "films",
	atom.Canvas: "drawings"}

var htmlSpace = strings.NewReplacer("\n", " ", "\t", " ", "\r", " ")

func (r *htmlReader) children(n *html.Node, m mark) {
	for c := n.FirstChild; c != nil && r.err == nil; c = c.NextSibling {
		r.node(c, m)
	}
}

func (r *htmlReader) node(n *html.Node, m mark) {
	if n.Type == html.TextNode {
		r.run(&r.text, htmlSpace.Replace(n.Data), m)
		r.room(r.text.Len())
		return
	}
	tag, what := n.DataAtom, htmlCounted[n.DataAtom]
	if n.Type != html.ElementNode || tag == atom.Head || what != "" || unseen[tag] && tag != atom.Textarea ||
		n.Namespace == "math" && strings.HasPrefix(n.Data, "annotation") {
		if what != "" && (tag != atom.Nav && tag != atom.Svg || hasText(n)) {
			r.skip(what, 1)
		}
		return
	}
	own := elementMark(n)
	m |= own
	r.text.last &^= own & offLine // another element is another figure
	if n.Namespace == "math" && n.Parent.Data == "mfrac" && n.PrevSibling != nil {
		r.run(&r.text, "/", 0)
	}
	switch {
	case r.control(n, m):
	case tag == 0 || inlineTags[tag] || n.Namespace != "":
		r.children(n, m)
	default:
		r.flush()
		r.blockElement(n, m)
		r.flush()
	}
}

func hasText(n *html.Node) bool {
	for inner := range n.Descendants() {
		if inner.Type == html.TextNode && strings.TrimSpace(inner.Data) != "" &&
			inner.Parent.DataAtom != atom.Style && inner.Parent.DataAtom != atom.Title {
			return true
		}
	}
	return false
}

// control reads an element that is shown by what its attributes say.
func (r *htmlReader) control(n *html.Node, m mark) bool {
	kind, value := strings.ToLower(htmlAttribute(n, "type")), htmlAttribute(n, "value")
	switch n.DataAtom {
	case atom.Br:
		value = "\n"
	case atom.Img:
		r.skip("pictures", 1)
		value = htmlAttribute(n, "alt")
	case atom.Button:
		r.run(&r.text, " ", m)
		r.children(n, m)
		value = " "
	case atom.Select:
		value = " " + r.chosen(n) + " "
	case atom.Input:
		switch kind {
		case "hidden", "password", "image", "file", "range", "color":
			return true
		case "checkbox", "radio":
			value = map[bool]string{true: "[x]", false: "[ ]"}[htmlHas(n, "checked")]
		}
		value = " " + value + " "
	default:
		return false
	}
	r.run(&r.text, value, m)
	return true
}

// chosen returns the option that a list shows, and counts the others.
func (r *htmlReader) chosen(n *html.Node) (text string) {
	options, found := 0, false
	for option := range n.Descendants() {
		if option.DataAtom != atom.Option {
			continue
		}
		if options++; options == 1 || htmlHas(option, "selected") && !found {
			found = htmlHas(option, "selected")
			if text = ""; option.FirstChild != nil {
				text = option.FirstChild.Data
			}
		}
	}
	r.skip("options of forms", options-1)
	return text
}

func htmlAttribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func htmlHas(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

// blockElement reads an element that is a block of its own. All text before it was written.
func (r *htmlReader) blockElement(n *html.Node, m mark) {
	switch tag := n.DataAtom; tag {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		r.children(n, m)
		if r.cells == nil {
			r.endList()
			r.heading(int(n.Data[1]-'0'), "", r.text.String())
			r.text.Reset()
			r.fresh = false
		}
	case atom.Pre, atom.Textarea, atom.Listing, atom.Xmp:
		var text flow
		for inner := range n.Descendants() {
			switch {
			case inner.Type == html.TextNode:
				r.run(&text, inner.Data, m)
			case inner.DataAtom == atom.Br:
				r.run(&text, "\n", m)
			}
		}
		if r.cells != nil {
			*r.cells = append(*r.cells, oneLine(text.String()))
			return
		}
		r.endList()
		r.whole(text.String())
	case atom.Ul, atom.Ol, atom.Menu, atom.Dir:
		r.startList(n)
		r.children(n, m)
		r.flush()
		if r.lists = r.lists[:len(r.lists)-1]; len(r.lists) == 0 && r.cells == nil {
			r.endList()
		}
		r.fresh = false
	case atom.Li:
		if last := len(r.lists) - 1; last >= 0 {
			if value, err := strconv.Atoi(htmlAttribute(n, "value")); err == nil {
				r.lists[last].level.start = value
			}
		}
		r.fresh = true
		r.children(n, m)
		r.flush()
		if last := len(r.lists) - 1; last >= 0 {
			r.lists[last].level.start += r.lists[last].step
		}
	case atom.Table:
		r.tableElement(n, m)
	default:
		r.children(n, m)
	}
}

func (r *htmlReader) startList(n *html.Node) {
	list := htmlList{step: 1}
	if n.DataAtom == atom.Ol {
		list.level.format, list.level.start = formatOf(htmlAttribute(n, "type")), 1
		if list.level.format == "" {
			list.level.format = "decimal"
		}
		if htmlHas(n, "reversed") {
			list.level.start, list.step = 0, -1
			for c := n.FirstChild; c != nil; c = c.NextSibling {
				if c.DataAtom == atom.Li {
					list.level.start++
				}
			}
		}
		if start, err := strconv.Atoi(htmlAttribute(n, "start")); err == nil {
			list.level.start = start
		}
	}
	r.lists = append(r.lists, list)
}

// flush puts the text of a block where it belongs.
func (r *htmlReader) flush() {
	var lines []string
	for line := range strings.SplitSeq(r.text.String(), "\n") {
		lines = append(lines, oneLine(line))
	}
	r.text.Reset()
	text := strings.Trim(squeeze(strings.Join(lines, "\n")), "\n")
	switch last := len(r.lists) - 1; {
	case text == "":
	case r.cells != nil:
		*r.cells = append(*r.cells, text)
	case last >= 0 && r.fresh:
		number := r.lists[last].level.number(r.lists[last].level.start)
		if r.fresh = false; number != "" {
			number += "."
		}
		r.item(last, number, text)
	case last >= 0 && len(r.items) > 0:
		r.items = append(r.items, strings.Repeat("  ", min(last, 9)+1)+oneLine(text))
	default:
		r.paragraph(text)
	}
}

// tableElement reads a table, unless it only lays out the page.
func (r *htmlReader) tableElement(n *html.Node, m mark) {
	if r.cells != nil || layout(n) {
		r.children(n, m)
		return
	}
	r.endList()
	outer := *r
	var t table
	for section := n.FirstChild; section != nil; section = section.NextSibling {
		if section.DataAtom == atom.Caption {
			r.node(section, m)
		}
		for row := section.FirstChild; row != nil && r.err == nil; row = row.NextSibling {
			if row.DataAtom == atom.Tr {
				r.row(&t, row, m, section.DataAtom == atom.Thead)
			}
		}
		t.open = nil // no cell spans beyond its section
	}
	r.lists, r.fresh = outer.lists, false
	r.endTable(&t)
}

func (r *htmlReader) row(t *table, row *html.Node, m mark, header bool) {
	names := true
	for n := row.FirstChild; n != nil; n = n.NextSibling {
		if n.DataAtom != atom.Td && n.DataAtom != atom.Th {
			continue
		}
		names = names && n.DataAtom == atom.Th
		var texts []string
		r.cells, r.lists = &texts, nil
		r.children(n, m|elementMark(n))
		r.flush()
		r.cells = nil
		across, _ := strconv.Atoi(htmlAttribute(n, "colspan"))
		down, err := strconv.Atoi(htmlAttribute(n, "rowspan"))
		if err == nil && down == 0 { // to the section's end
			down = mostRows
		}
		t.cell(strings.Join(texts, " "), across, down)
	}
	r.endRow(t, header || names)
}

// layout reports whether a table has blocks in its cells that are no values.
func layout(table *html.Node) bool {
	role := htmlAttribute(table, "role")
	blocks, names, cells := false, false, 0
	for n := range table.Descendants() {
		switch n.DataAtom {
		case atom.Table, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
			return true
		case atom.Ul, atom.Ol, atom.Hr, atom.Blockquote, atom.Pre:
			blocks = true
		case atom.Th:
			names = true
		case atom.Td:
			cells++
		}
	}
	return role == "presentation" || role == "none" || !names && (blocks || cells < 2)
}
