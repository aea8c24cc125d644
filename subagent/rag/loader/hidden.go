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
	rules := styleRules(root)
	var hidden []*html.Node
	visible := false
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch {
		case n.Type == html.ElementNode && rules.hides(n):
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

var (
	shifting   = regexp.MustCompile(`(?i)(?:^|[;\s])vertical-align\s*:\s*(super|sub)\b`)
	lineStruck = regexp.MustCompile(`(?i)(?:^|[;\s])text-decoration(?:-line)?\s*:[^;]*\bline-through\b`)
)

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

// elementMark returns the marks of an element and of its own style.
func elementMark(n *html.Node) mark {
	m := tagMarks[n.DataAtom]
	if n.Namespace == "math" && n.Parent != nil {
		m |= formulaParts[n.Parent.Data][place(n)]
	}
	for _, a := range n.Attr {
		if a.Key != "style" {
			continue
		}
		if at := shifting.FindStringSubmatch(a.Val); at != nil {
			m |= map[bool]mark{true: raised, false: lowered}[strings.EqualFold(at[1], "super")]
		}
		if lineStruck.MatchString(a.Val) {
			m |= struck
		}
	}
	return m
}

var (
	// hiding are declarations that make an element and all in it invisible.
	hiding  = regexp.MustCompile(`(?i)(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))\b`)
	showing = regexp.MustCompile(`(?i)(?:^|[;\s])(?:display|visibility)\s*:`)
	// An element's own style may leave nothing to be seen of it too.
	faded    = regexp.MustCompile(`(?i)(?:^|[;\s])opacity\s*:` + nothing)
	small    = regexp.MustCompile(`(?i)(?:^|[;\s])font-size\s*:` + nothing)
	fontSize = regexp.MustCompile(`(?i)font(?:-size)?\s*:`)
	moving   = regexp.MustCompile(`(?i)transform|transition|animation|will-change`)
)

// nothing is a value of zero.
const nothing = `\s*(?:0+(?:\.0*)?|\.0+)(?:px|pt|em|rem|%)?\s*(?:!important\s*)?(?:$|;)`

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// cssName is a class or id in a selector; cssPlain a selector that is just one.
	cssName  = regexp.MustCompile(`[.#][\w-]+`)
	cssPlain = regexp.MustCompile(`^([.#][\w-]+)$`)
)

// hiddenNames are classes and ids, as ".name" and "#name", of elements that the style
// sheets hide.
type hiddenNames map[string]bool

// styleRules reads the page's style sheets: a name is hidden if a rule for it alone
// says so, and no other rule that has it in its selector shows it again, as those of
// menus, tabs and other printing do.
func styleRules(root *html.Node) hiddenNames {
	names := hiddenNames{}
	shown := map[string]bool{}
	for n := range root.Descendants() {
		if n.DataAtom != atom.Style || n.FirstChild == nil {
			continue
		}
		depth := 0
		for rule := range strings.SplitSeq(cssComment.ReplaceAllString(n.FirstChild.Data, ""), "}") {
			at := strings.LastIndexByte(rule, '{')
			if at < 0 {
				depth = max(0, depth-1)
				continue
			}
			selectors, declared := rule[:at], rule[at+1:]
			// A rule for some media, or of an animation, lies in another one.
			if outer := strings.LastIndexByte(selectors, '{'); outer >= 0 {
				depth += strings.Count(selectors, "{")
				selectors = selectors[outer+1:]
			}
			selectors = selectors[strings.LastIndexByte(selectors, ';')+1:] // behind @import
			for selector := range strings.SplitSeq(selectors, ",") {
				selector = strings.TrimSpace(selector)
				switch plain := cssPlain.FindStringSubmatch(selector); {
				case hiding.MatchString(declared):
					if plain != nil && depth == 0 {
						names[plain[1]] = true
					}
				case showing.MatchString(declared):
					for _, name := range cssName.FindAllString(selector, -1) {
						shown[name] = true
					}
				}
			}
		}
	}
	for name := range shown {
		delete(names, name)
	}
	return names
}

// hides says whether an element is hidden. The page itself never is: a script or an
// animation shows it.
func (names hiddenNames) hides(n *html.Node) bool {
	return n.DataAtom != atom.Html && n.DataAtom != atom.Body && (names.hide(n.Attr) || sizeless(n))
}

// hide says whether an element with these attributes is hidden.
func (names hiddenNames) hide(attributes []html.Attribute) bool {
	for _, a := range attributes {
		switch a.Key {
		case "hidden":
			if a.Val != "until-found" {
				return true
			}
		case "style":
			// Many pages move or fade in what they show.
			if hiding.MatchString(a.Val) || faded.MatchString(a.Val) && !moving.MatchString(a.Val) {
				return true
			}
		case "id":
			if names["#"+a.Val] {
				return true
			}
		case "class":
			for class := range strings.FieldsSeq(a.Val) {
				if names["."+class] {
					return true
				}
			}
		}
	}
	return false
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
