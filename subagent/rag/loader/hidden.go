package loader

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// hides reports whether a browser does not show an element: by the attribute hidden, its own style, or a plain rule of
// the page's style sheets. It counts the element. The page itself is shown: a script or an animation does it.
func (r *htmlReader) hides(n *html.Node) bool {
	if r.includeHidden || n.DataAtom == atom.Html || n.DataAtom == atom.Body ||
		r.sheet.resolve(n.Data, n.Attr).on&hidden == 0 {
		return false
	}
	r.skip("hidden pieces of text", 1)
	return true
}

// formulaParts are the marks of the parts of a MathML element.
var formulaParts = map[string][3]mark{"msup": {1: raised}, "msub": {1: lowered}, "msubsup": {1: lowered, 2: raised}}

// local returns the name of an element without a prefix.
func local(n *html.Node) string { return n.Data[strings.LastIndexByte(n.Data, ':')+1:] }

// place returns the number of elements before n in its parent, at most 2.
func place(n *html.Node) (count int) {
	for s := n.PrevSibling; s != nil && count < 2; s = s.PrevSibling {
		if s.Type == html.ElementNode {
			count++
		}
	}
	return count
}

// marks returns the marks of an element in text with marks m.
func (r *htmlReader) marks(n *html.Node, m mark) (own, combined mark) {
	style := r.sheet.resolve(n.Data, n.Attr)
	own = tagMarks[n.DataAtom] | style.on&^hidden
	if n.Parent != nil {
		own |= formulaParts[local(n.Parent)][place(n)]
	}
	return own, m&^(style.decided&tiny) | own
}

// zero matches a value that leaves nothing to be seen.
var zero = regexp.MustCompile(`^(?:0+(?:\.0*)?|\.0+)(?:px|pt|em|rem|%)?\s*(?:!important)?$`)

// declare adds what declarations say of marks. It reports whether they make an element transparent for good: many
// pages move or fade in what they show.
func (s *marking) declare(style string) bool {
	faded, moves := false, false
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
			word := strings.TrimSpace(strings.TrimSuffix(value, "!important"))
			s.put(hidden, s.on&hidden != 0 || word == "none" || word == "hidden" || word == "collapse")
		case "font", "font-size":
			s.put(tiny, zero.MatchString(value))
		case "opacity":
			faded = zero.MatchString(value)
		case "transform", "transition", "animation", "will-change":
			moves = true
		}
	}
	return faded && !moves
}

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// cssName is a class or id in a selector; cssPlain a selector that is a tag, class or id, or a tag with one.
	cssName  = regexp.MustCompile(`[.#][\w-]+`)
	cssPlain = regexp.MustCompile(`^(?:[a-z][a-z0-9]*)?([.#][\w-]+)?$`)
)

// styleSheet has the marks that a page's style sheets set by plain selectors: "p", ".name", "p.name" and "#name".
type styleSheet struct {
	source string
	rules  map[string]cssRule
}

// cssRule merges the rules with one selector. The last rule that applies wins.
type cssRule struct {
	marking
	order int
}

// newStyleSheet reads style sheets. A name is not hidden if a longer selector shows it again, as menus and tabs do.
func newStyleSheet(source string) *styleSheet {
	s := &styleSheet{source, map[string]cssRule{}}
	visible := map[string]bool{}
	depth, count := 0, 0
	for rule := range strings.SplitSeq(cssComment.ReplaceAllString(source, ""), "}") {
		brace := strings.LastIndexByte(rule, '{')
		if brace < 0 {
			depth = max(0, depth-1)
			continue
		}
		selectors := rule[:brace]
		// Rules for media and animations contain other rules.
		if outer := strings.LastIndexByte(selectors, '{'); outer >= 0 {
			depth += strings.Count(selectors, "{")
			selectors = selectors[outer+1:]
		}
		var declared marking
		declared.declare(rule[brace+1:])
		declared.on &^= tiny                                            // a rule for more may size what is inside
		selectors = selectors[strings.LastIndexByte(selectors, ';')+1:] // behind @import
		for selector := range strings.SplitSeq(selectors, ",") {
			selector = strings.TrimSpace(selector)
			plain := cssPlain.FindStringSubmatch(selector)
			switch {
			case declared.decided == 0:
			case depth == 0 && plain != nil && selector != "":
				count++
				merged := s.rules[selector]
				merged.on, merged.decided = declared.apply(merged.on), merged.decided|declared.decided
				merged.order = count + strings.Count(selector, ".")<<25 + strings.Count(selector, "#")<<26
				if plain[1] != selector {
					merged.order += 1 << 24
				}
				s.rules[selector] = merged
			case declared.decided&^declared.on&hidden != 0:
				for _, name := range cssName.FindAllString(selector, -1) {
					visible[name] = true
				}
			}
		}
	}
	for selector, rule := range s.rules {
		if visible[cssName.FindString(selector)] {
			rule.on &^= hidden
			s.rules[selector] = rule
		}
	}
	return s
}

// screens matches the media of style sheets that apply to any screen.
var screens = regexp.MustCompile(`(?i)^[a-z, ]*\b(?:all|screen)\b[a-z, ]*$`)

// mostStyles bounds the style sheets of a page, in bytes; later ones are not read.
const mostStyles = 1 << 20

// styles reads the style sheets of a page for screens.
func (b *builder) styles(root *html.Node) {
	var out strings.Builder
	linked := map[string]bool{}
	for n := range root.Descendants() {
		if out.Len() > mostStyles || !b.room(0) {
			break
		}
		media, _ := htmlAttribute(n, "media")
		rel, _ := htmlAttribute(n, "rel")
		switch {
		case media != "" && !screens.MatchString(media):
		case n.DataAtom == atom.Style && n.FirstChild != nil:
			out.WriteString(n.FirstChild.Data + "\n")
		case n.DataAtom == atom.Link && rel == "stylesheet" && b.linked != nil:
			if href, _ := htmlAttribute(n, "href"); !linked[href] {
				linked[href] = true
				out.WriteString(b.linked(href) + "\n")
			}
		}
	}
	source := out.String()
	if b.sheet == nil || b.sheet.source != source {
		b.sheet = newStyleSheet(source)
	}
}

// resolve returns what an element's attributes say of marks.
func (s *styleSheet) resolve(tag string, attributes []html.Attribute) (result marking) {
	var rules []cssRule
	find := func(name string) {
		for _, selector := range []string{name, tag + name} {
			if rule, ok := s.rules[selector]; ok {
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
				own.put(hidden, true)
			}
		case "style":
			if own.declare(a.Val) {
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
	for _, rule := range append(rules, cssRule{marking: own}) {
		result.on, result.decided = rule.apply(result.on), result.decided|rule.decided
	}
	return result
}
