package loader

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// removeHidden takes the elements out of a page that a browser does not show: by the
// attribute hidden, their own style, or a plain rule of the page's style sheets.
// What a script may show later counts as hidden too, unless nothing else is there.
func removeHidden(b *builder, root *html.Node) {
	var hidden []*html.Node
	visible := false
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch {
		case n.Type == html.ElementNode && b.sheet.hides(n):
			hidden = append(hidden, n)
			return
		case n.Type == html.ElementNode && (unseen[n.DataAtom] || n.DataAtom == atom.Head):
			return
		case n.Type == html.TextNode && strings.ContainsFunc(n.Data, func(r rune) bool {
			return unicode.In(r, unicode.L, unicode.N)
		}):
			visible = true
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(root) // its parser has bounded the depth
	if !visible {
		return
	}
	for _, n := range hidden {
		n.Parent.RemoveChild(n)
	}
	b.skip("hidden pieces of text", len(hidden))
}

// formulaParts are the marks of the parts of a MathML element.
var formulaParts = map[string][3]mark{"msup": {1: raised}, "msub": {1: lowered}, "msubsup": {1: lowered, 2: raised}}

// place returns the number of elements before n in its parent, at most 2.
func place(n *html.Node) (count int) {
	for s := n.PrevSibling; s != nil && count < 2; s = s.PrevSibling {
		if s.Type == html.ElementNode {
			count++
		}
	}
	return count
}

// marks returns the marks of an element, of its own style and of the style sheets.
func (s *styleSheet) marks(n *html.Node) mark {
	m := tagMarks[n.DataAtom]
	if n.Namespace == "math" && n.Parent != nil {
		m |= formulaParts[n.Parent.Data][place(n)]
	}
	return m | s.of(n.Data, n.Attr)
}

var (
	// An element's own style may leave nothing to be seen of it too.
	faded    = regexp.MustCompile(`(?i)(?:^|[;\s])opacity\s*:` + nothing)
	small    = regexp.MustCompile(`(?i)(?:^|[;\s])font-size\s*:` + nothing)
	fontSize = regexp.MustCompile(`(?i)font(?:-size)?\s*:`)
	moving   = regexp.MustCompile(`(?i)transform|transition|animation|will-change`)
)

// nothing is a value of zero.
const nothing = `\s*(?:0+(?:\.0*)?|\.0+)(?:px|pt|em|rem|%)?\s*(?:!important\s*)?(?:$|;)`

// declare adds what declarations say of marks.
func (s *marking) declare(style string) {
	for declaration := range strings.SplitSeq(style, ";") {
		name, value, _ := strings.Cut(declaration, ":")
		value = strings.ToLower(strings.TrimSpace(value))
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "vertical-align":
			s.put(raised, strings.HasPrefix(value, "super"))
			s.put(lowered, strings.HasPrefix(value, "sub"))
		case "text-decoration", "text-decoration-line":
			s.put(struck, strings.Contains(value, "line-through"))
		case "display", "visibility":
			word, _, _ := strings.Cut(value, "!")
			word = strings.TrimSpace(word)
			s.put(hidden, s.on&hidden != 0 || word == "none" || word == "hidden" || word == "collapse")
		}
	}
}

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// cssName is a class or id in a selector; cssPlain a selector that is a tag, class or id, or a tag with one.
	cssName  = regexp.MustCompile(`[.#][\w-]+`)
	cssPlain = regexp.MustCompile(`^(?:[a-z][a-z0-9]*)?([.#][\w-]+)?$`)
)

// styleSheet is what the style sheets of a page say of marks by plain selectors, as "p", ".name", "p.name" and "#name".
type styleSheet struct {
	source string
	rules  map[string]cssRule
}

// cssRule is what the rules with a selector say. Of those that apply, the last one wins.
type cssRule struct {
	marking
	order int
}

// newStyleSheet reads style sheets. A name is not hidden if a rule for more than it shows it again, as those of menus
// and tabs do.
func newStyleSheet(source string) *styleSheet {
	s := &styleSheet{source, map[string]cssRule{}}
	shown := map[string]bool{}
	depth, count := 0, 0
	for rule := range strings.SplitSeq(cssComment.ReplaceAllString(source, ""), "}") {
		at := strings.LastIndexByte(rule, '{')
		if at < 0 {
			depth = max(0, depth-1)
			continue
		}
		selectors := rule[:at]
		// A rule for some media, or of an animation, lies in another one.
		if outer := strings.LastIndexByte(selectors, '{'); outer >= 0 {
			depth += strings.Count(selectors, "{")
			selectors = selectors[outer+1:]
		}
		var declared marking
		if declared.declare(rule[at+1:]); declared.decided == 0 {
			continue
		}
		selectors = selectors[strings.LastIndexByte(selectors, ';')+1:] // behind @import
		for selector := range strings.SplitSeq(selectors, ",") {
			selector = strings.TrimSpace(selector)
			plain := cssPlain.FindStringSubmatch(selector)
			switch {
			case depth == 0 && plain != nil && selector != "":
				count++
				all := s.rules[selector]
				all.on, all.decided = declared.over(all.on), all.decided|declared.decided
				all.order = count + strings.Count(selector, ".")<<25 + strings.Count(selector, "#")<<26
				if plain[1] != selector {
					all.order += 1 << 24
				}
				s.rules[selector] = all
			case declared.decided&^declared.on&hidden != 0:
				for _, name := range cssName.FindAllString(selector, -1) {
					shown[name] = true
				}
			}
		}
	}
	for selector, rule := range s.rules {
		if shown[cssName.FindString(selector)] {
			rule.on &^= hidden
			s.rules[selector] = rule
		}
	}
	return s
}

// styles reads the style sheets of a page for screens.
func (b *builder) styles(root *html.Node) {
	source := ""
	for n := range root.Descendants() {
		media, _ := htmlAttribute(n, "media")
		rel, _ := htmlAttribute(n, "rel")
		switch {
		case media != "" && (!strings.Contains(media, "screen") && !strings.Contains(media, "all") || strings.Contains(media, "(")):
		case n.DataAtom == atom.Style && n.FirstChild != nil:
			source += n.FirstChild.Data + "\n"
		case n.DataAtom == atom.Link && rel == "stylesheet" && b.linked != nil:
			href, _ := htmlAttribute(n, "href")
			source += b.linked(href) + "\n"
		}
	}
	if b.sheet == nil || b.sheet.source != source {
		b.sheet = newStyleSheet(source)
	}
}

// hides says whether an element is hidden. The page itself never is: a script or an
// animation shows it.
func (s *styleSheet) hides(n *html.Node) bool {
	return n.DataAtom != atom.Html && n.DataAtom != atom.Body && (s.of(n.Data, n.Attr)&hidden != 0 || sizeless(n))
}

// of returns the marks of an element with these attributes.
func (s *styleSheet) of(tag string, attributes []html.Attribute) mark {
	var rules []cssRule
	find := func(name string) {
		for _, selector := range []string{name, tag + name} {
			if rule, found := s.rules[selector]; found {
				rules = append(rules, rule)
			}
		}
	}
	var own marking
	find("")
	for _, a := range attributes {
		switch a.Key {
		case "hidden":
			if a.Val != "until-found" {
				return hidden
			}
		case "style":
			// Many pages move or fade in what they show.
			if own.declare(a.Val); faded.MatchString(a.Val) && !moving.MatchString(a.Val) {
				own.put(hidden, true)
			}
		case "id":
			find("#" + a.Val)
		case "class":
			for class := range strings.FieldsSeq(a.Val) {
				find("." + class)
			}
		}
	}
	slices.SortFunc(rules, func(a, b cssRule) int { return a.order - b.order })
	m := mark(0)
	for _, rule := range rules {
		m = rule.over(m)
	}
	return own.over(m)
}

// sizeless says whether an element's letters have no size, and none in it has an own
// one.
func sizeless(n *html.Node) bool {
	sized := func(n *html.Node, style *regexp.Regexp) bool {
		return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool {
			return a.Key == "style" && style.MatchString(a.Val)
		})
	}
	if !sized(n, small) {
		return false
	}
	for inner := range n.Descendants() {
		if sized(inner, fontSize) {
			return false
		}
	}
	return true
}
