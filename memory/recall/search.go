package recall

import (
	"cmp"
	"hash/maphash"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/textindex"
)

// Query is what is looked for.
type Query struct {
	// Text is a question or a task; of a very long one the front and the back count.
	Text string
	// AskedAt is when it is asked, which "yesterday" and its like are relative to; zero for now.
	AskedAt time.Time
	// From and To bound the times of what may be found, To itself left out; zero for no
	// bound. They hold before anything is ranked.
	From, To time.Time
	// Budget bounds the tokens of all hits: ⌈characters ÷ 4⌉ of each text and of Overhead. 0 or less means 800.
	Budget int
	// Overhead is how many characters the asker adds to each hit.
	Overhead int
	// OldestFirst orders the hits by time instead of by score.
	OldestFirst bool
	// Floor is the least Strength with which anything is found: below it what is found would
	// hardly answer, also where a Vector is near to something, as one always is. A query that speaks of a time has none.
	Floor float64
	// Needed finds something only for a text that seems to need it: one that asks, orders or hints at what the histories
	// know better than everybody does.
	Needed bool
	// Visible says which messages the asker has before it anyway: they are not shown, though
	// what stands near them may be. Nil for none.
	Visible func(key memory.Key, id string) bool
	// Quarantine is what is not found at all.
	Quarantine memory.Quarantine
	// Vector is the query as the model places it that the messages were placed by, see
	// Index.Place; nil for a search by words alone. VectorWeight is its part against that
	// of the words; 0 for 0.5.
	Vector       []float32
	VectorWeight float64

	speaker speaker // that the text asks about
	words   wordSet // of the text
	length  int     // of the text, in bytes
}

const defaultBudget = 800 // tokens

// Hit is a literal piece of a message. A short message is one piece; of a long one it has at least 600 characters around
// the match.
type Hit struct {
	Key  memory.Key // of the history that has it
	ID   string     // of the message
	TS   float64    // Unix seconds
	Role string
	Name string
	memory.Origin
	Score    float64 // more is better; hits of one Result compare
	Text     string
	Exchange []string // the ids of the messages around it, see the package comment
	// Newer reports that the message is later than one of the best hits and has a rare name in common with it, or corrects
	// it.
	Newer bool
}

// pieceLength is how many characters of a message are shown at least, if it has as many; they
// are a little more where that ends with a word.
const pieceLength = 600

// Result is what was found.
type Result struct {
	Hits []Hit
	// Strength is how much of the query's words the best message has, see
	// textindex.Result.
	Strength float64
	// Partial says that a history is not known to its beginning, see Index.MarkComplete.
	Partial bool
}

// How candidates are scored. The values were chosen on judged conversations; around each
// of them the results are flat, and none is better for all of the conversations.
const (
	// pool is how many passages of each history are looked at closer.
	pool = 400
	// maxTerms bounds the words that are looked for, since a task may have hundreds.
	maxTerms = 24

	// A message lends of its score to those around it, since an answer often has none of
	// the question's words: to the one beside it in its exchange, to the one beside it in
	// another, and to the second next. A message of dampLength bytes borrows the half: the
	// longer it is, the more it speaks for itself.
	lendExchange = 0.7
	lendNext     = 0.4
	lendSecond   = 0.2
	dampLength   = 300
	// sitting is the longest silence, in seconds, that messages lend across.
	sitting = 3600

	// userFavor is for what the user said: it is what a model knows from nowhere else.
	userFavor = 0.25
	// emptyFavor is the factor for acknowledgements and repetitions of the query.
	emptyFavor = 0.1
	// recentFavor is for a message of this moment; it halves in recentHalf days.
	recentFavor = 0.03
	recentHalf  = 30
	// timeFavor is for a message from the time that a question speaks of, lateFavor for one
	// from the lateDays behind it: things are told after they happen.
	timeFavor = 1
	lateFavor = 0.7
	lateDays  = 4
	// earlierShare is the part of both for the same time in an earlier year.
	earlierShare = 0.8
	// timeAlone is the score, before favors, of a message that only its time speaks for.
	timeAlone = 0.02
	// maxTimed bounds how many of those are looked at, the newest.
	maxTimed = 200
	// A query of less than this strength is asked again with words of the passages that it
	// finds first, which have this weight.
	vague    = 0.3
	feedback = 0.1
	// mostShown is how many characters of a message are shown at most.
	mostShown = pieceLength + 40
)

// candidate is a message that may be shown.
type candidate struct {
	*entry
	ix       *Index
	position int
	own      float64 // by its own words
	score    float64
	passage  int  // that matched best
	order    int  // among the candidates of all histories
	newer    bool // see Hit.Newer
}

// Search finds in several histories of one chat what answers a query, best first or
// oldest first. Their scores are made comparable: each is a share of what a message with
// all words of the query would have.
func Search(indexes []*Index, q Query) Result {
	if q.AskedAt.IsZero() {
		q.AskedAt = time.Now()
	}
	q.Text = edges(q.Text)
	q.Budget = cmp.Or(max(q.Budget, 0), defaultBudget)
	if q.Needed {
		switch n := need(indexes, q.Text); {
		case n < 1:
			return Result{}
		case n < clearNeed:
			q.Budget = min(q.Budget, weakBudget)
		}
	}
	q.VectorWeight = cmp.Or(q.VectorWeight, 0.5)
	when := times(q.Text, q.AskedAt)
	timeOnly := when.timeOnly()
	q.speaker, q.words, q.length = speakerOf(indexes, q.Text), wordsOf(q.Text), len(q.Text)
	q.Text = subjectOf(q.Text, when.loose)
	var r Result
	var candidates []*candidate
	for _, ix := range indexes {
		result, batch := ix.search(q, when.spans, timeOnly)
		r.Strength = max(r.Strength, result.Strength)
		r.Partial = r.Partial || !ix.isComplete()
		candidates = append(candidates, batch...)
	}
	if r.Strength < q.Floor && len(when.spans) == 0 {
		return r
	}
	for i, c := range candidates {
		c.order = i
	}
	slices.SortFunc(candidates, func(a, b *candidate) int {
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return cmp.Or(cmp.Compare(b.ts, a.ts), cmp.Compare(b.position, a.position), cmp.Compare(a.order, b.order))
	})
	if len(when.spans) == 0 { // a question about a time is not about what came after it
		candidates = withLater(candidates, q)
	}
	if !timeOnly { // a message of another time is no answer
		candidates = withCorrections(candidates, q)
	}
	r.Hits = fill(candidates, q)
	if q.OldestFirst {
		slices.SortStableFunc(r.Hits, func(a, b Hit) int { return cmp.Compare(a.TS, b.TS) })
	}
	return r
}

// fill takes the best candidates that fit into the budget. One that is too long for what
// is left leaves its place to the next.
func fill(candidates []*candidate, q Query) []Hit {
	var hits []Hit
	var used []wordSet
	remaining := 4 * q.Budget
	for _, c := range candidates {
		if remaining <= q.Overhead {
			break
		}
		text, length := c.text, c.length()
		n := q.Overhead + length
		if length > mostShown && remaining >= q.Overhead+pieceLength {
			text = c.around(pieceLength, mostShown)
			n = q.Overhead + utf8.RuneCountInString(text)
		}
		if n > remaining || q.hides(c) {
			continue
		}
		words := wordsOf(text)
		if slices.ContainsFunc(used, words.repeats) {
			continue
		}
		used = append(used, words)
		remaining -= n
		hits = append(hits, Hit{c.ix.key, c.id, c.ts, c.role, c.name, c.written(text), c.score, text,
			c.ix.exchange(c.position), c.newer})
	}
	return hits
}

// hides says whether a message is not to be shown.
func (q Query) hides(c *candidate) bool {
	return q.Visible != nil && q.Visible(c.ix.key, c.id) || q.Quarantine.Has(c.id, c.origin)
}

// written is the origin of a piece of the message.
func (c *candidate) written(piece string) memory.Origin {
	o := memory.Message{Role: c.role, Name: c.name, Origin: c.origin}.Written(c.ix.key.Agent() != "")
	if o.Authority == memory.FromUser {
		w := memory.Own(c.text, c.pasted)
		if strings.TrimSpace(w.Pasted) != "" && !strings.Contains(w.Own, strings.TrimSpace(piece)) {
			return memory.Pasted
		}
	}
	return o
}

// search gives what the history has, and what its words alone found. alone: a message of another time is no answer, if
// there is one of these times.
func (ix *Index) search(q Query, spans []span, timeOnly bool) (textindex.Result, []*candidate) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := scoringOf(ix, q)
	s.byPosition = make(map[int]*candidate, 4*pool)
	if timeOnly && anyIn(ix, spans) {
		s.only = spans
	}
	words := textindex.Query{
		Text: q.Text, Limit: pool, Terms: maxTerms, Duplicates: true, Filter: s.filter(),
	}
	if len(spans) == 0 { // the words of times match little
		words.Feedback = &textindex.Feedback{Text: ix.passage, Weight: feedback, MaxStrength: vague}
	}
	result := ix.words.Search(words)
	s.byWords(result)
	s.byVector(words.Filter)
	s.byTime(spans)
	s.lend()
	for _, c := range s.list {
		c.score *= s.favor(c, spans)
	}
	return result, s.list
}

// passage is a passage's text, for feedback.
func (ix *Index) passage(document string, passage int) string {
	position := positionOf(document)
	e := ix.entry(position)
	if e == nil || passage > len(e.passages) {
		return ""
	}
	start, end := e.piece(passage)
	return e.text[start:end]
}

// positionOf reads the position that a document is called by: faster than strconv.Atoi, since a
// bound asks for each.
func positionOf(document string) (position int) {
	digits := strings.TrimPrefix(document, "-")
	for i := range len(digits) {
		position = 10*position + int(digits[i]-'0')
	}
	if len(digits) < len(document) {
		return -position
	}
	return position
}

// scoring is the candidates of one history for one query.
type scoring struct {
	ix         *Index
	q          Query
	from, to   float64            // bounds of the messages' times
	only       []span             // the times of what may be found; nil for all
	byPosition map[int]*candidate // by position
	list       []*candidate
}

// scoringOf has no candidates yet.
func scoringOf(ix *Index, q Query) scoring {
	s := scoring{ix: ix, q: q, from: math.Inf(-1), to: math.Inf(1)}
	if !q.From.IsZero() {
		s.from = seconds(q.From)
	}
	if !q.To.IsZero() {
		s.to = seconds(q.To)
	}
	return s
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// inside says whether a message may be found at all.
func (s *scoring) inside(e *entry) bool {
	return e.text != "" && e.ts >= s.from && e.ts < s.to && (s.only == nil || inAny(s.only, e.time()))
}

// inAny says whether a time is in one of some spans, or in the same of an earlier year.
func inAny(spans []span, t time.Time) bool {
	return slices.ContainsFunc(spans, func(sp span) bool { return sp.alignYear(t).has(t) })
}

// anyIn says whether a message is of one of some times. Callers hold mu.
func anyIn(ix *Index, spans []span) bool {
	matches := func(e *entry) bool { return e.text != "" && inAny(spans, e.time()) }
	return slices.ContainsFunc(ix.tail, matches) || slices.ContainsFunc(ix.front, matches)
}

func (s *scoring) filter() *textindex.Filter {
	if math.IsInf(s.from, -1) && math.IsInf(s.to, 1) && s.only == nil {
		return nil
	}
	return textindex.NewFilter(func(document string) bool {
		position := positionOf(document)
		e := s.ix.entry(position)
		return e != nil && s.inside(e)
	})
}

// candidate is the candidate at a position, nil if there can be none.
func (s *scoring) candidate(position int) *candidate {
	c, ok := s.byPosition[position]
	if ok {
		return c
	}
	if e := s.ix.entry(position); e != nil && s.inside(e) {
		c = &candidate{entry: e, ix: s.ix, position: position}
		s.list = append(s.list, c)
	}
	s.byPosition[position] = c
	return c
}

func (s *scoring) byWords(result textindex.Result) {
	if len(result.Hits) == 0 {
		return
	}
	scale := result.Strength / result.Hits[0].Score
	if s.q.Vector != nil {
		scale *= 1 - s.q.VectorWeight
	}
	for _, h := range result.Hits {
		position := positionOf(h.Document)
		if c := s.candidate(position); c != nil && c.own == 0 && h.Passage <= len(c.passages) { // the best comes first
			c.own, c.passage = scale*h.Score, h.Passage
		}
	}
}

// byVector adds how near the messages' vectors are, stretched from 0 for the last of the
// pool to the vectors' weight for the first.
func (s *scoring) byVector(filter *textindex.Filter) {
	if s.q.Vector == nil {
		return
	}
	near := s.ix.vectors.Snapshot().Nearest(s.q.Vector, pool, filter)
	if len(near) == 0 {
		return
	}
	most, least := near[0].Score, near[len(near)-1].Score
	for _, h := range near {
		position := positionOf(h.Document)
		if c := s.candidate(position); c != nil {
			c.own += s.q.VectorWeight * (h.Score - least) / max(most-least, 1e-9)
		}
	}
}

// byTime takes in messages of the time that the question speaks of.
func (s *scoring) byTime(spans []span) {
	if len(spans) == 0 {
		return
	}
	remaining := maxTimed
	for position := len(s.ix.tail) - 1; position >= -len(s.ix.front) && remaining > 0; position-- {
		e := s.ix.entry(position)
		if !slices.ContainsFunc(spans, func(sp span) bool { return sp.has(e.time()) }) && s.only == nil {
			continue
		}
		if c := s.candidate(position); c != nil && c.own == 0 {
			c.own = timeAlone
			remaining--
		}
	}
}

// lend spreads scores to the messages around.
func (s *scoring) lend() {
	for _, c := range slices.Clone(s.list) {
		c.score += c.own
		for _, step := range []int{-1, 1} {
			share := 0.0
			e := c.entry
			position := c.position
			for n := range 2 {
				next, distance := s.ix.neighbour(position, step)
				if next == nil || math.Abs(next.ts-c.ts) > sitting {
					break
				}
				newer := next
				if step < 0 {
					newer = e
				}
				switch {
				case n == 1:
					share = lendSecond
				case newer.role == memory.RoleUser:
					share = lendNext
				default:
					share = lendExchange
				}
				position += distance
				if o := s.candidate(position); o != nil {
					o.score += share * c.own * dampLength / float64(dampLength+len(o.text))
				}
				e = next
			}
		}
	}
}

// neighbour is the next message that says something, and how far away it is; nil if it is
// too far.
func (ix *Index) neighbour(position, step int) (e *entry, distance int) {
	const far = 64
	for distance = step; distance <= far && distance >= -far; distance += step {
		if e = ix.entry(position + distance); e == nil || e.text != "" {
			return e, distance
		}
	}
	return nil, 0
}

// favor is the factor for what speaks for a message besides its words.
func (s *scoring) favor(c *candidate, spans []span) float64 {
	f := 1.0
	if c.role == memory.RoleUser {
		f += userFavor
	}
	if s.q.speaker.matches(c.entry) {
		f *= speakerFavor
	}
	if !s.q.isInformative(c.text) {
		f *= emptyFavor
	}
	days := s.q.AskedAt.Sub(c.time()).Hours() / 24
	f *= 1 + recentFavor*math.Exp2(-max(days, 0)/recentHalf)
	timely := 0.0
	for _, sp := range spans {
		share := 1.0
		if then := sp.alignYear(c.time()); then.start != sp.start {
			sp, share = then, earlierShare
		}
		switch late := c.time().Sub(sp.end); {
		case sp.has(c.time()):
			timely = max(timely, share*timeFavor)
		case late >= 0 && late < lateDays*24*time.Hour:
			timely = max(timely, share*lateFavor)
		}
	}
	return f * (1 + timely)
}

// around is a piece of a text of at least so many characters and at most as many as
// most, around the passage that matched. It begins and ends between words if it can.
func (c *candidate) around(least, most int) string {
	start, end := c.piece(c.passage)
	text := c.text
	for n := utf8.RuneCountInString(text[start:end]); n < least && (start > 0 || end < len(text)); n++ {
		if end < len(text) {
			end += width(text, end)
		} else {
			_, size := utf8.DecodeLastRuneInString(text[:start])
			start -= size
		}
	}
	if utf8.RuneCountInString(text[start:end]) <= most {
		return text[start:end]
	}
	end = start
	soft := 0
	for n := range most {
		if n >= least && strings.IndexByte(" \n", text[end]) >= 0 {
			soft = end
		}
		end += width(text, end)
	}
	if soft > 0 {
		end = soft
	}
	return text[start:end]
}

func width(text string, i int) int {
	_, size := utf8.DecodeRuneInString(text[i:])
	return size
}

// maxExchange bounds the ids of an exchange, before and behind a message.
const maxExchange = 8

// exchange are the ids of the exchange that a message is in: from a user's message up to
// the next.
func (ix *Index) exchange(position int) []string {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	first := position
	for e := ix.entry(first); e != nil && e.role != memory.RoleUser && position-first < maxExchange; e = ix.entry(first) {
		first--
	}
	if ix.entry(first) == nil {
		first++
	}
	var ids []string
	for pos := first; pos <= position+maxExchange; pos++ {
		e := ix.entry(pos)
		if e == nil || pos > position && e.role == memory.RoleUser {
			break
		}
		ids = append(ids, e.id)
	}
	return ids
}

// wordSet is the words of a text by their hashes, ascending.
type wordSet []uint64

var seed = maphash.MakeSeed()

func wordsOf(text string) wordSet {
	var set wordSet
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r)
	}) {
		set = append(set, maphash.String(seed, w))
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// alike is the share of words that two texts must have in common to say the same.
const alike = 0.9

// repeats says whether two texts say the same, but for a word in ten.
func (s wordSet) repeats(other wordSet) bool {
	most := max(len(s), len(other))
	if float64(min(len(s), len(other))) < alike*float64(most) {
		return false
	}
	shared := 0
	for i, j := 0, 0; i < len(s) && j < len(other); {
		switch {
		case s[i] == other[j]:
			shared, i, j = shared+1, i+1, j+1
		case s[i] < other[j]:
			i++
		default:
			j++
		}
	}
	return float64(shared) >= alike*float64(most)
}

// acknowledgement matches texts of one to three words of assent, thanks or completion.
var acknowledgement = regexp.MustCompile(`(?i)^\W*(?:(?:done|ok|okay|sure|alright|got it|understood|noted|thanks|thank you|` +
	`will do|erledigt|verstanden|notiert|danke|alles klar|fait|compris|noté|merci|d'accord|hecho|entendido|anotado|gracias|` +
	`vale|fatto|capito|grazie|va bene|готово|сделано|понятно|понял|поняла|записал|записала|хорошо|спасибо)(?:[^\pL\pN]+|$)){1,3}$`)

// isInformative reports whether a text says more than an acknowledgement or the query itself, which may have been asked before.
// Texts of another length do not repeat the query; to compare words takes longer.
func (q Query) isInformative(text string) bool {
	if len(text) < 60 && strings.Count(text, " ") < 6 && acknowledgement.MatchString(text) {
		return false
	}
	return len(q.words) < 3 || 3*len(text) < 2*q.length || 2*len(text) > 3*q.length || !wordsOf(text).repeats(q.words)
}

// asked are words of questions about what was said, which say nothing of it.
var questionWords = textindex.WordSet(`say said says saying tell told telling mention mentioned talk talked talking discuss discussed remember
remind recall list говорил говорила говорили сказал сказала сказали рассказывал рассказывала рассказывали рассказал рассказала
упоминал упоминала упоминали упомянул упомянула обсуждали помнишь напомни вспомни перечисли`)

// subjectOf is a question without those words and others, if some are left.
func subjectOf(question string, others map[string]bool) string {
	var words []string
	for w := range strings.FieldsSeq(question) {
		if word := strings.Trim(strings.ToLower(w), ".,?!;:'\"()"); !questionWords[word] && !others[word] {
			words = append(words, w)
		}
	}
	if subject := strings.Join(words, " "); len(textindex.Terms(subject)) > 0 {
		return subject
	}
	return question
}
