package loader

import (
	"cmp"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// htmlReader turns the elements of a page into text.
type htmlReader struct {
	*builder
	text          flow
	lists         []htmlList // the open ones
	fresh         bool       // nothing of the open item was read
	raw           bool       // white space counts
	includeHidden bool       // hidden elements are read
	cells         *[]string  // paragraphs of the open cell of a table, nil outside of one
}

// htmlList is an open list, without a format if it is not numbered. start is the number of the next item.
type htmlList struct {
	numberLevel
	step int
}

// htmlCounted maps elements without readable text to the names that they are counted under.
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
		text := n.Data
		if !r.raw {
			text = htmlSpace.Replace(text)
		}
		r.run(&r.text, text, m)
		r.room(r.text.Len())
		return
	}
	tag, what := n.DataAtom, htmlCounted[n.DataAtom]
	if n.Type != html.ElementNode || tag == atom.Head || what != "" || unseen[tag] && tag != atom.Textarea ||
		strings.HasPrefix(local(n), "annotation") {
		r.skip(what, min(len(what), 1))
		return
	}
	if r.hides(n) {
		return
	}
	own, m := r.marks(n, m)
	r.text.last &^= own & offLine // another element is another figure
	if local(n.Parent) == "mfrac" && place(n) > 0 {
		r.run(&r.text, "/", 0)
	}
	switch {
	case r.control(n, m):
	case tag == 0 || inlineTags[tag] || n.Namespace != "":
		r.children(n, m)
	case r.raw:
		r.children(n, m)
	default:
		r.flush()
		r.blockElement(n, m)
		r.flush()
	}
}

// control reads an element whose attributes have its text.
func (r *htmlReader) control(n *html.Node, m mark) bool {
	kind, _ := htmlAttribute(n, "type")
	value, _ := htmlAttribute(n, "value")
	switch n.DataAtom {
	case atom.Br:
		value = "\n"
	case atom.Img:
		r.skip("pictures", 1)
		value, _ = htmlAttribute(n, "alt")
	case atom.Button:
		r.run(&r.text, " ", m)
		r.children(n, m)
		value = " "
	case atom.Select:
		value = r.chosen(n)
	case atom.Input:
		switch kind = strings.ToLower(kind); kind {
		case "hidden", "password", "image", "file", "range", "color":
			return true
		case "checkbox", "radio":
			_, checked := htmlAttribute(n, "checked")
			value = map[bool]string{true: "[x]", false: "[ ]"}[checked]
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
	options := 0
	for option := range n.Descendants() {
		if option.DataAtom == atom.Option && option.FirstChild != nil {
			if _, chosen := htmlAttribute(option, "selected"); chosen || options == 0 {
				text = " " + option.FirstChild.Data + " "
			}
			options++
		}
	}
	r.skip("options of forms", options-1)
	return text
}

func htmlAttribute(n *html.Node, name string) (value string, ok bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
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
		r.raw = r.cells == nil
		r.children(n, m)
		if r.raw {
			r.endList()
			r.addBlock(r.text.String())
			r.text.Reset()
		}
		r.raw = false
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
			r.lists[last].start = htmlNumber(n, "value", r.lists[last].start)
		}
		r.fresh = true
		r.children(n, m)
		r.flush()
		if last := len(r.lists) - 1; last >= 0 {
			r.lists[last].start += r.lists[last].step
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
		kind, _ := htmlAttribute(n, "type")
		first := 1
		if _, reversed := htmlAttribute(n, "reversed"); reversed {
			first, list.step = 0, -1
			for c := range n.ChildNodes() {
				first += map[atom.Atom]int{atom.Li: 1}[c.DataAtom]
			}
		}
		list.numberLevel = numberLevel{format: cmp.Or(kind, "1"), start: htmlNumber(n, "start", first)}
	}
	r.lists = append(r.lists, list)
}

// htmlNumber returns the number that an attribute has, otherwise if it has none.
func htmlNumber(n *html.Node, name string, otherwise int) int {
	value, _ := htmlAttribute(n, name)
	if number, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
		return number
	}
	return otherwise
}

// flush puts the text of a block where it belongs.
func (r *htmlReader) flush() {
	text := r.text.String()
	r.text.Reset()
	if strings.Contains(text, "\n") {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			lines[i] = oneLine(line)
		}
		text = strings.Trim(squeeze(strings.Join(lines, "\n")), "\n")
	} else {
		text = oneLine(text)
	}
	switch last := len(r.lists) - 1; {
	case text == "":
	case r.cells != nil:
		*r.cells = append(*r.cells, text)
	case last >= 0 && r.fresh:
		number := r.lists[last].number(r.lists[last].start)
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
		if r.hides(section) {
			continue
		}
		if section.DataAtom == atom.Caption {
			r.node(section, m)
		}
		for row := section.FirstChild; row != nil && r.err == nil; row = row.NextSibling {
			if row.DataAtom == atom.Tr && !r.hides(row) {
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
		if n.DataAtom != atom.Td && n.DataAtom != atom.Th || r.hides(n) {
			continue
		}
		names = names && n.DataAtom == atom.Th
		var texts []string
		r.cells, r.lists = &texts, nil
		_, own := r.marks(n, m)
		r.children(n, own)
		r.flush()
		r.cells = nil
		down := cmp.Or(htmlNumber(n, "rowspan", 1), mostRows) // 0 for all of the section
		t.cell(strings.Join(texts, " "), htmlNumber(n, "colspan", 1), down)
	}
	r.endRow(t, header || names)
}

// layout reports whether a table only lays out the page: its cells hold blocks instead of values.
func layout(table *html.Node) bool {
	role, _ := htmlAttribute(table, "role")
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
