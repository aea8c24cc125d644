package offline

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// agent is a delegation tool seen as what it stands for.
type agent struct {
	name   string
	parts  []string        // the words of the name, folded
	stems  map[string]bool // of name and description
	topics map[string]bool
}

func newAgent(t tool) agent {
	a := agent{name: t.Name, stems: map[string]bool{}, topics: map[string]bool{}}
	a.parts = strings.FieldsFunc(fold(t.Name), func(r rune) bool { return !isWordRune(r) })
	for _, w := range append(tokenize(t.Description), tokenize(strings.Join(a.parts, " "))...) {
		for _, p := range wordParts(w.low) {
			if stopWords[p] {
				continue
			}
			stem := stemOf(p)
			a.stems[stem] = true
			if topic, ok := topicOf[stem]; ok {
				a.topics[topic] = true
			}
		}
	}
	return a
}

// wordParts is a word and, if it has hyphens or the like, its pieces.
func wordParts(w string) []string {
	parts := strings.FieldsFunc(w, func(r rune) bool { return r == '-' || r == '_' || r == '/' || r == '.' })
	if len(parts) > 1 {
		return append(parts, w)
	}
	return []string{w}
}

// matchAgent finds the agent that toks begin with and the number of words its name takes, 0 for none. Unless exact,
// one word may be an inflected, related or transliterated form of a one-word name.
func (sp speech) matchAgent(toks []token, exact bool) (index, n int) {
	for i, a := range sp.agents {
		if k := nameLength(toks, a); k > n {
			index, n = i, k
		}
	}
	if n > 0 || len(toks) == 0 {
		return index, n
	}
	best := 0
	for i, a := range sp.agents {
		if len(a.parts) != 1 {
			continue
		}
		if k := likeness(toks[0].low, a.parts[0]); k > best && (!exact || isCyrillic(toks[0].low)) {
			index, n, best = i, 1, k
		}
	}
	return index, n
}

// nameLength is how many words at the start of toks spell the agent's name, hyphenated or apart.
func nameLength(toks []token, a agent) int {
	if len(a.parts) == 0 {
		return 0
	}
	i := 0
	for k := 0; k < len(toks) && i < len(a.parts); k++ {
		pieces := strings.FieldsFunc(strings.TrimSuffix(toks[k].low, "'s"), func(r rune) bool { return !isWordRune(r) })
		if len(pieces) == 0 || len(pieces) > len(a.parts)-i || !slices.Equal(pieces, a.parts[i:i+len(pieces)]) {
			return 0
		}
		if i += len(pieces); i == len(a.parts) {
			return k + 1
		}
	}
	return 0
}

// likeness is the length of the common beginning of a word and a name in one alphabet, 0 when it is too short to mean
// the name.
func likeness(word, name string) int {
	if isCyrillic(word) != isCyrillic(name) || isCyrillic(word) {
		word = rootOf(word)
	}
	a, b := []rune(phonetic(word)), []rune(phonetic(name))
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	if k < 4 || 10*k < 6*len(b) || len(a)-k > 5 {
		return 0
	}
	return k
}

// phonetic writes a word in a coarse Latin spelling, so that «аналитик» and "analytic" begin alike.
func phonetic(w string) string {
	var sb strings.Builder
	for _, r := range w {
		if s, ok := translit[r]; ok {
			sb.WriteString(s)
		} else {
			sb.WriteRune(r)
		}
	}
	return phoneticSpelling.Replace(sb.String())
}

var phoneticSpelling = strings.NewReplacer("ck", "k", "ch", "h", "ph", "f", "th", "t", "c", "k", "y", "i", "x", "ks", "w", "v", "q", "k")

var translit = map[rune]string{
	'а': "a", 'б': "b", 'в': "v", 'г': "g", 'д': "d", 'е': "e", 'ж': "j", 'з': "z", 'и': "i", 'й': "i", 'к': "k", 'л': "l", 'м': "m",
	'н': "n", 'о': "o", 'п': "p", 'р': "r", 'с': "s", 'т': "t", 'у': "u", 'ф': "f", 'х': "h", 'ц': "k", 'ч': "h", 'ш': "sh", 'щ': "sh",
	'ъ': "", 'ы': "i", 'ь': "", 'э': "e", 'ю': "u", 'я': "a",
}

// router chooses agents for the steps of one conversation, in order.
type router struct {
	sp   speech
	last int // the agent spoken to last, -1 for none
	told []told
}

// told is a statement that an agent was given.
type told struct {
	agent int
	fact  fact
}

// assign returns the agents for st and remembers what they were told.
func (r *router) assign(st step) []int {
	to := r.choose(st)
	if len(to) == 0 {
		return to
	}
	r.last = to[len(to)-1]
	if st.kind == statement {
		for _, f := range factsOf(st.sentence(), "", len(r.told)) {
			for _, a := range to {
				r.told = append(r.told, told{agent: a, fact: f})
			}
		}
		r.told = r.told[max(0, len(r.told)-maxFacts):]
	}
	return to
}

func (r *router) choose(st step) []int {
	if len(r.sp.agents) == 0 {
		return nil
	}
	switch st.to.whom {
	case named:
		return st.to.agents
	case everyone:
		all := make([]int, len(r.sp.agents))
		for i := range all {
			all[i] = i
		}
		return all
	case earlier, generic:
		if r.last >= 0 {
			return []int{r.last}
		}
	case another:
		for i := range r.sp.agents {
			if i != r.last {
				return []int{i}
			}
		}
	case described:
		return []int{r.best(st.to.words, map[string]float64{})}
	}
	if r.last >= 0 && (st.cont || pronominal(st)) {
		return []int{r.last}
	}
	about := topicsOf(st)
	if !strongTopic(about) {
		if a, ok := r.knower(st); ok {
			return []int{a}
		}
	}
	return []int{r.best(st.text, about)}
}

// pronominal says whether st is a question that names nothing but by a pronoun, so that who heard of it is asked.
func pronominal(st step) bool {
	q := newQuery(st.text)
	return st.kind == question && q.third && !slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required })
}

// procedures open questions that name the speaker but ask how things are done.
var procedures = phrases(`how do i|how can i|how should i|how do we|how can we|how should we|where can i|where can we|who can i|who should i|what should i do|
	can i|may i|как мне|где мне|кому мне|могу ли я|как я могу|где я могу`)

func strongTopic(about map[string]float64) bool {
	return about[topicMath] >= 3 || about[topicDates] >= 3 || about[topicDocs] >= 3
}

// knower is the agent that was told what st asks or updates.
func (r *router) knower(st step) (int, bool) {
	facts := make([]fact, len(r.told))
	for i, t := range r.told {
		facts[i] = t.fact
	}
	need := threshold
	if st.kind == statement {
		need = threshold * 0.7
	}
	if i, score := bestFact(newQuery(st.text), facts); score >= need {
		return r.told[i].agent, true
	}
	return 0, false
}

// best is the agent whose name and description fit the words and topics best; of equals, the first offered.
func (r *router) best(text string, about map[string]float64) int {
	stems := map[string]bool{}
	for _, t := range tokenize(text) {
		for _, p := range wordParts(t.low) {
			if !stopWords[p] && utf8.RuneCountInString(p) > 1 {
				stems[stemOf(p)] = true
			}
		}
	}
	best, top := 0, -1.0
	for i, a := range r.sp.agents {
		score := 0.0
		for s := range stems {
			if a.stems[s] {
				score++
			}
			if topic, ok := topicOf[s]; ok && a.topics[topic] {
				score++
			}
		}
		for topic, weight := range about {
			if a.topics[topic] {
				score += weight
			}
		}
		if score > top {
			best, top = i, score
		}
	}
	return best
}

// topicsOf weighs what a step is about.
func topicsOf(st step) map[string]float64 {
	about := map[string]float64{}
	if st.kind != statement {
		if _, ok := arithmetic(st.text, calculatorAny); ok {
			about[topicMath] = 3
		}
		if dateWork(st.text) != nil {
			about[topicDates] = 3
		}
	}
	self := false
	for _, t := range tokenize(st.text) {
		self = self || selfWords[t.low]
		if docWords[t.low] && st.kind != statement {
			about[topicDocs] = 3
		}
	}
	switch {
	case self && st.kind != statement && longestPhrase(tokenize(st.text), procedures) > 0:
		about[topicDocs] += 2
	case self:
		about[topicPersonal] += 2
	case st.kind == statement:
		about[topicPersonal]++
	case len(about) == 0:
		about[topicDocs] = 1.5 // a single word such as "weekdays" does not outweigh it
	}
	return about
}
