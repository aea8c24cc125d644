package offline

import (
	"regexp"
	"slices"
	"strings"
)

// threshold is the least score by which a fact answers a question.
const threshold = 0.6

// bestFact is the fact that answers q best, -1 when there is none at all. Facts that fit about as well as the best
// are taken for older and newer words on one subject, of which the newest stands.
func bestFact(q query, facts []fact) (int, float64) {
	best, top := -1, 0.0
	scores := make([]float64, len(facts))
	for i, f := range facts {
		if scores[i] = q.score(f); scores[i] > top {
			top = scores[i]
		}
	}
	for i, s := range scores {
		if s > 0 && s >= 0.88*top && (best < 0 || facts[i].order >= facts[best].order) {
			best = i
		}
	}
	return best, top
}

// score is how well f answers q, 0 to 1.
func (q query) score(f fact) float64 {
	if len(q.terms) == 0 {
		if q.self && f.mentionsSelf() {
			return threshold
		}
		return 0
	}
	if !q.admits(f.keys) || q.entangled(f) {
		return 0
	}
	s := q.coverage(f.keys)
	if s == 0 || q.onlyWeak() && !slices.ContainsFunc(f.terms, func(t term) bool { return possession[t.low] }) {
		return 0
	}
	s *= q.ownership(f) * q.focus(f)
	if q.reversed(f) {
		s *= 0.3
	}
	if !q.fits(f) {
		s *= 0.8
		if q.expects == colour || q.expects == person {
			s *= 0.6
		}
	}
	if q.negated != f.negated() {
		s *= 0.8
	}
	return s
}

// onlyWeak says whether q names no subject of its own: "how much money do I have?".
func (q query) onlyWeak() bool {
	return !slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.weight > 0.3 })
}

var possession = words("have i've has got own use у есть имею")

// negated says whether f denies; "not Bo but Bea" does not.
func (f fact) negated() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool { return negations[t.low] }) && !contrast.MatchString(f.text)
}

var contrast = regexp.MustCompile(`(?i)\bnot\s[^.!?]*,?\s(but|it's|it is|he's|she's)\s|(^|\s)не\s[^.!?]*,\s*а\s|,\s*(and )?not\s|,\s*а\s+не\s`)

// pairsOf finds who has whom: (sister, husband) in "my sister's husband", "the husband of my sister" and «муж моей
// сестры», (bob, wife) in "Bob's wife", "Bob has a wife" and «у Боба есть жена».
func pairsOf(terms []term) [][2]string {
	var pairs [][2]string
	for i, t := range terms {
		if !t.holder {
			continue
		}
		for j := i - 1; j >= 0 && j >= i-3; j-- {
			owner := terms[j]
			possessed := strings.HasSuffix(owner.low, "'s") || possession[terms[j+1].low] || j > 0 && terms[j-1].low == "у"
			if possessed && (owner.holder || isCapitalized(owner.raw) && !owner.stop) {
				pairs = append(pairs, [2]string{owner.key, t.key})
				break
			}
		}
		for j := i + 1; j < len(terms) && j <= i+3 && (terms[j].self || terms[j].low == "of" || terms[j].low == "the" || terms[j].holder); j++ {
			between := terms[i+1 : j]
			linked := isCyrillic(t.low) && isCyrillic(terms[j].low) || len(between) > 0 && between[0].low == "of"
			if terms[j].holder && linked {
				pairs = append(pairs, [2]string{terms[j].key, t.key})
				break
			}
		}
	}
	return pairs
}

// entangled says whether every holder of f that q asks for is there only as half of a pair whose other half q does
// not speak of: my sister's husband is neither my husband nor my sister. "The dog" is anybody's.
func (q query) entangled(f fact) bool {
	if slices.ContainsFunc(f.pairs, func(p [2]string) bool { return q.asksFor(p[0]) && q.asksFor(p[1]) }) {
		return false
	}
	for _, p := range f.pairs {
		for k := range p {
			if !q.asksFor(p[k]) || k == 1 && !q.self || q.asksFor(kindsOf[p[1-k]]) {
				continue
			}
			paired, all := 0, 0
			for _, o := range f.pairs {
				if o[0] == p[k] || o[1] == p[k] {
					paired++
				}
			}
			for _, t := range f.terms {
				if t.key == p[k] {
					all++
				}
			}
			if paired >= all {
				return true
			}
		}
	}
	return false
}

// side is the part that the speaker has in what is said.
type side int

const (
	unclear   side = iota
	agentive       // "I owe Bob"
	receptive      // "Bob owes me"
)

// sideOf reads the speaker's part from the pronouns; a sentence with both tells none.
func sideOf(terms []term) side {
	var s side
	for i, t := range terms {
		var here side
		switch t.low {
		case "i", "we", "я", "мы", "i've":
			here = agentive
		case "me", "us", "мне", "меня", "нам", "нас":
			if i > 0 && (terms[i-1].low == "tell" || ruPrepositions[terms[i-1].low]) {
				continue
			}
			here = receptive
		default:
			continue
		}
		if s != unclear && s != here {
			return unclear
		}
		s = here
	}
	return s
}

// reversed says whether f has the speaker, or the one named, in the other part of the same verb: who owes whom.
func (q query) reversed(f fact) bool {
	if first := slices.IndexFunc(f.terms, term.content); q.doer && first >= 0 && !f.passive() && q.asksFor(f.terms[first].key) &&
		!strings.HasSuffix(f.terms[first].low, "'s") && slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required && t.key == f.terms[first].key }) {
		return true // "who likes Bob?" is not answered by whom Bob likes
	}
	mine := sideOf(f.terms)
	if mine == unclear || q.side == unclear || mine == q.side {
		return false
	}
	verb := slices.ContainsFunc(f.terms, func(t term) bool {
		return t.content() && !t.concept && !t.holder && !t.capital && q.asksFor(t.key)
	})
	// The receiver is named together with a giver, else «мне нужно …» is only another way to say "I need …".
	if mine == receptive {
		first := f.terms[0]
		return verb && (isCapitalized(first.raw) && !first.stop && !first.concept || slices.ContainsFunc(f.terms, func(t term) bool { return t.holder || t.capital }))
	}
	return verb && (q.who || slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required }))
}

// passive says whether f names the doer behind "by": "The company was founded by Ivan".
func (f fact) passive() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool { return t.low == "by" })
}

// admits says whether keys hold every holder, name and identifier of q.
func (q query) admits(keys map[string]bool) bool {
	return !slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required && !keys[t.key] })
}

func (f fact) mentionsSelf() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool { return t.self })
}

// coverage is the share of the question's words that keys hold. The kind of the answer ("which colour …") counts little
// where a fact holds the thing asked about, but liking something is no answer to "which film do I like?".
func (q query) coverage(keys map[string]bool) float64 {
	hit, all, kinds := 0.0, 0.0, 0.0
	thing := false
	for _, t := range q.terms {
		switch {
		case keys[t.key]:
			hit += t.weight
			all += t.weight
			thing = thing || !attitudes[t.key]
		case t.category && len(q.terms) > 1:
			kinds += t.weight
		default:
			all += t.weight
		}
	}
	if thing {
		kinds *= 0.35
	}
	if all += kinds; all == 0 {
		return 0
	}
	return hit / all
}

// attitudes are verbs of which everybody has many objects.
var attitudes = words("like hate drink study eat watch read play want need")

// ownership lowers a fact whose attribute belongs to somebody else than the one asked about.
func (q query) ownership(f fact) float64 {
	if slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required }) {
		return 1
	}
	personalOnly := true
	owner := nobodys
	for i, t := range f.terms {
		if !q.asksFor(t.key) || !t.content() {
			continue
		}
		personalOnly = personalOnly && personal[t.key]
		if o := q.ownerAt(f.terms, i); owner == nobodys || o == selfs {
			owner = o
		}
	}
	switch {
	case !q.self && owner == others && personalOnly:
		return 0.9
	case q.third && !q.self && owner == selfs:
		return 0.3
	case !q.self:
		return 1
	case owner == others:
		return 0.3
	case owner == nobodys && personalOnly:
		return 0.5
	case owner == selfs && q.single && f.ours():
		return 0.7 // "our support email" is hardly "my email"
	case owner == nobodys:
		return 0.95
	}
	return 1
}

// ours says whether f speaks of what several have together and of nothing that is the speaker's alone.
func (f fact) ours() bool {
	plural := false
	for _, t := range f.terms {
		if t.self && !pluralSelf[t.low] {
			return false
		}
		plural = plural || pluralPossessives[t.low]
	}
	return plural
}

var (
	pluralPossessives = words("our ours наш наша наше наши нашего нашей нашему нашу нашем")
	pluralSelf        = words("we us our ours we're we've мы нас нам нами наш наша наше наши нашего нашей нашему нашу нашем")
)

func (q query) asksFor(key string) bool {
	return slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.key == key })
}

type owner int

const (
	nobodys owner = iota
	selfs
	others
)

// ownerAt tells whose the attribute at terms[i] is, by the nearest holder around it: to the left in "my sister's
// name", to the right in "the name of my sister" and «имя моей сестры».
func (q query) ownerAt(terms []term, i int) owner {
	if terms[i].self {
		return selfs
	}
	for j := i - 1; j >= 0 && j >= i-4; j-- {
		t := terms[j]
		switch {
		case (t.holder || t.third || t.capital) && (terms[0].low == "we" || terms[0].low == "мы"):
			return selfs
		case t.holder || t.third:
			return others
		case t.capital && j == i-1 && (j == 0 || !terms[j-1].self):
			return others
		case t.capital && j == i-2 && terms[i-1].copula:
			return others // "… that Bob is sick"
		case t.self:
			return selfs
		}
	}
	for j := i + 1; j < len(terms) && j <= i+3 && !terms[j].copula; j++ {
		if terms[j].holder || terms[j].capital && terms[j-1].low == "for" {
			return others
		}
	}
	for j := i + 1; j < len(terms) && j <= i+2; j++ {
		if terms[j].self {
			return selfs
		}
	}
	switch {
	case i == 0 && terms[i].concept:
		return selfs // "Live in …", «Работаю …», "Name: …"
	case i > 0 && isCapitalized(terms[0].raw) && !terms[0].stop && !terms[0].concept && i <= 2 && !q.asksFor(terms[0].key):
		return others // "Dana lives in …"
	}
	return nobodys
}

// focus lowers a fact for every word that its subject has and the question lacks: the words up to the copula after
// the first one asked for, or, with no copula, the words before that one, which count less unless they are about
// another attribute.
func (q query) focus(f fact) float64 {
	asked := func(t term) bool {
		return t.content() && (q.asksFor(t.key) || q.asksFor(kindsOf[t.key]))
	}
	first := slices.IndexFunc(f.terms, asked)
	from, to, mild := 0, first, 0.91
	if copula := slices.IndexFunc(f.terms, func(t term) bool { return t.copula }); copula > first {
		to, mild = copula, 0.8
	} else if copula >= 0 {
		from = copula
	}
	s, extra := 1.0, 0
	for _, t := range f.terms[from:max(from, to)] {
		if t.content() && !asked(t) && !timeWords[t.low] && t.raw != "" && extra < 3 {
			extra++
			if personal[t.key] {
				s *= 0.8
			} else {
				s *= mild
			}
		}
	}
	return s
}

// fits says whether f holds the kind of thing that q expects.
func (q query) fits(f fact) bool {
	if q.expects == anything {
		return true
	}
	return slices.ContainsFunc(f.terms, func(t term) bool {
		switch q.expects {
		case place:
			return placeWords[t.low] || t.key == "live" && t.low == "address" || t.low == "адрес"
		case moment:
			return isMoment(t.low)
		case person:
			return t.capital && !isMoment(t.low) || t.copula || t.key == "name"
		case colour:
			return t.key == "colour" || colours[t.key]
		default:
			return strings.ContainsAny(t.low, "0123456789") || numberWords[t.low]
		}
	})
}

// colours are stems of the usual ones; a fact that says "colour" may hold any other.
var colours = func() map[string]bool {
	m := map[string]bool{}
	for w := range words(`red blue green yellow orange purple violet pink brown black white grey gray beige silver gold golden teal turquoise navy
		cyan magenta maroon olive lime cream dark light striped красный синий зеленый желтый оранжевый фиолетовый розовый коричневый черный белый
		серый бежевый серебристый золотой бирюзовый голубой рыжий темный светлый полосатый бордовый`) {
		m[stemOf(w)] = true
	}
	return m
}()

func isMoment(low string) bool {
	_, month := monthOf(low)
	return month || whenWords[low] || strings.ContainsAny(low, "0123456789")
}
