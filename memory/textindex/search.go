package textindex

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// The parameters of BM25: how soon repetitions of a term stop to count, and how
// much a long text is discounted.
const (
	K1 = 1.2
	B  = 0.75
)

// Snapshot is a Collection as it was at one time; it does not change.
type Snapshot struct {
	shared    *shared
	parts     []part
	bases     []int // the number of each part's first passage among all parts'
	size      int   // passages, dead ones too
	live      int   // passages
	length    int   // terms of the live ones
	documents int
	version   uint64
	weak      float64 // strength
	stats     *Statistics
}

// Statistics are those of a collection of which a Snapshot has some passages only.
type Statistics struct {
	Passages  int
	Length    float64        // of a passage on average, in terms
	Frequency map[string]int // by term, how many passages have it; terms that are not in it count for nothing
}

// WithStatistics is the Snapshot with the statistics of the collection that its passages are candidates of.
func (s *Snapshot) WithStatistics(stats Statistics) *Snapshot {
	part := *s
	part.stats, part.live = &stats, max(stats.Passages, s.live)
	part.length = int(max(stats.Length, 1) * float64(part.live))
	return &part
}

func newSnapshot(shared *shared, parts []part, documents int, version uint64) *Snapshot {
	s := &Snapshot{shared: shared, parts: parts, bases: make([]int, len(parts)), documents: documents, version: version}
	for i, p := range parts {
		s.bases[i] = s.size
		s.size += len(p.lengths)
		s.live += p.live
		s.length += p.length
	}
	return s
}

// Version is the version that the change before gave the collection.
func (s *Snapshot) Version() uint64 { return s.version }

// Len is how many documents and passages there are.
func (s *Snapshot) Len() (documents, passages int) { return s.documents, s.live }

// Status is how far a result can be trusted.
type Status string

// The values of a Status.
const (
	StatusOK    Status = "ok"
	StatusWeak  Status = "weak"  // the best passage has less of the query than is usual here
	StatusEmpty Status = "empty" // no passage has a word of the query
)

// Result is what a Snapshot has for a Query.
type Result struct {
	Status Status
	Hits   []Hit // best first; among equals the smaller id, then the earlier passage
	// Strength is how much of the query the best passage has, whatever the Limit:
	// its score divided by the weighted sum of the terms' idf. About 1 is all of it.
	Strength  float64
	Threshold float64 // the Strength below which a result is weak here
	// FromHistory are the words that the query has only from the conversation before
	// it and that the collection knows, the weightiest first.
	FromHistory []string
	Version     uint64 // of the snapshot
}

// Search gives the passages that match a query best. A passage that shares no term
// with it is no hit.
func (s *Snapshot) Search(q Query) Result {
	a := anAnalyzer()
	defer analyzers.Put(a)
	refused := s.refused(q.Filter)
	terms := s.look(a.query(q.Text, s.related(a, q.Text, priorTurns(q.History), refused), s.language()))
	slices.SortStableFunc(terms, func(a, b sought) int { return cmp.Compare(b.gain, a.gain) })
	if q.MaxFrequency > 0 {
		terms = slices.DeleteFunc(terms, func(t sought) bool { return t.frequency > q.MaxFrequency })
	}
	if q.Terms > 0 {
		terms = telling(terms, q.Terms)
	}
	keep := 0
	if q.Duplicates { // else it is unknown how many passages have equal texts
		keep = max(q.Limit, 1)
	}
	scores := s.score(terms, refused, keep, 0)
	defer scores.release()
	result := Result{Status: StatusOK, Strength: scores.strength(), Threshold: s.weak, Version: s.version}
	switch {
	case result.Strength == 0:
		result.Status = StatusEmpty
	case result.Strength < s.weak:
		result.Status = StatusWeak
	}
	for _, t := range terms {
		if t.history && t.frequency > 0 {
			result.FromHistory = append(result.FromHistory, t.word.text)
		}
	}
	scale := 1.0
	if f := q.Feedback; f != nil && result.Status != StatusEmpty &&
		(f.MaxStrength == 0 || result.Strength < f.MaxStrength) {
		scale = scores.widen(a, terms, f)
	}
	result.Hits = scores.best(q.Limit, q.Duplicates)
	for i := range result.Hits {
		result.Hits[i].Score *= scale
	}
	return result
}

// hasWord is the share of a word's terms that a passage with a form of the word has.
const hasWord = 0.3

// RareWords returns about how many rare words of a text the passage has that has most of them: a word that this passage
// alone has is 1, more frequent words are less.
func (s *Snapshot) RareWords(text string, most int) (best float64) {
	a := anAnalyzer()
	defer analyzers.Put(a)
	var words []string
	terms := map[string][]sought{}
	for _, t := range s.look(a.query(text, nil, s.language())) {
		switch w := t.word.text; {
		case t.word.other:
		case terms[w] != nil:
			terms[w] = append(terms[w], t)
		case len(words) < most:
			words, terms[w] = append(words, w), []sought{t}
		}
	}
	sums := s.score(nil, nil, 0, 0)
	defer sums.release()
	for _, w := range words {
		r := s.score(terms[w], s.dead(), 0, hasWord)
		sums.scored = append(sums.scored, r.scored...)
		for _, i := range r.scored {
			sums.scores[i] += s.idf(len(r.scored)) / s.idf(1)
			best = max(best, sums.scores[i])
		}
		r.release()
	}
	return best
}

// A term that more than common passages have is not told apart by when it would add less
// than a part in commonGain of what the best term adds.
const (
	common     = 8192
	commonGain = 8
)

// sought is a term with its postings in each part.
type sought struct {
	term
	lists     []postings
	frequency int     // live passages that have it
	gain      float64 // weight and idf; it adds less than K1+1 times that to a score
}

// look looks terms up, and leaves out other spellings that no passage has.
func (s *Snapshot) look(terms []term) []sought {
	list := make([]sought, 0, len(terms))
	for _, t := range terms {
		lists, frequency := s.lists(t.text)
		if s.stats != nil {
			freq, ok := s.stats.Frequency[t.text]
			if frequency = max(frequency, freq); !ok {
				lists, frequency, t.weight = nil, 0, 0
			}
		}
		if frequency > 0 || !t.word.other {
			list = append(list, sought{t, lists, frequency, t.weight * s.idf(frequency)})
		}
	}
	return list
}

// telling are the at most n terms of the greatest gains, which are in front.
func telling(terms []sought, n int) []sought {
	return slices.DeleteFunc(terms[:min(n, len(terms))], func(t sought) bool {
		return t.frequency > common && t.gain*commonGain < terms[0].gain
	})
}

// dead are the passages that are no longer there, by part.
func (s *Snapshot) dead() []bitset {
	dead := make([]bitset, len(s.parts))
	for i, p := range s.parts {
		dead[i] = p.dead
	}
	return dead
}

// tally is what a search needs that is as large as the collection, to be used again.
type tally struct {
	scores []float64 // by the passage's number; all 0 between searches
	scored []int32   // numbers of the passages that have a score, each once: most searches find few of many
}

// scoring is what the passages score.
type scoring struct {
	*Snapshot
	*tally
	refused []bitset
	closed  bool    // to passages without a score
	most    float64 // the weighted sum of the terms' idf
	gain    float64 // the most that a term adds to it
	highest float64 // of the scores
}

// score scores the passages that are not refused for some terms, by BM25. If keep is above 0, only the keep best passages
// have a score, with any that equal the last. If part is above 0, only passages with at least this part of the terms'
// gains have one. Terms with the least gains should come last: they add only to passages that can still be among the best
// (MaxScore, Turtle and Flood 1995). Searches share the room for the scores, so it must be released.
func (s *Snapshot) score(terms []sought, refused []bitset, keep int, part float64) *scoring {
	r := &scoring{Snapshot: s, refused: refused, tally: s.shared.tallies.Get().(*tally)}
	if len(r.scores) < s.size {
		r.scores = make([]float64, s.size+s.size/8) // it will grow
	}
	rest := 0.0
	for _, t := range terms {
		rest += t.gain * (K1 + 1)
	}
	floor := part * rest / (K1 + 1)
	for i, t := range terms {
		r.add(t)
		if rest -= t.gain * (K1 + 1); i == len(terms)-1 {
			rest = 0 // to the last bit
		}
		switch {
		case rest >= r.highest/2: // so is the least of the best scores, probably, and it takes long to find
		case keep > 0:
			r.prune(r.least(keep), rest)
		case part > 0:
			r.prune(floor, rest)
		}
	}
	return r
}

// prune takes the scores of passages that further terms, which add less than rest, do not lift to the least wanted score.
// If they do not lift a passage without a score to it either, it closes the scoring to those.
func (r *scoring) prune(least, rest float64) {
	if r.closed = r.closed || rest < least; !r.closed {
		return
	}
	r.scored = slices.DeleteFunc(r.scored, func(i int32) bool {
		out := r.scores[i]+rest*(1+1e-9) < least
		if out {
			r.scores[i] = 0
		}
		return out
	})
}

// release gives the scores back, all zero, to be used again.
func (r *scoring) release() {
	for _, i := range r.scored {
		r.scores[i] = 0
	}
	r.scored = r.scored[:0]
	r.shared.tallies.Put(r.tally)
}

// strength is that of the query.
func (r *scoring) strength() float64 {
	if r.highest == 0 {
		return 0 // also without any term, when most is 0
	}
	return r.highest / r.most
}

// add adds what a term scores to the passages that have it.
func (r *scoring) add(t sought) {
	r.most += t.gain
	r.gain = max(r.gain, t.gain)
	average := float64(r.length) / float64(max(r.live, 1))
	most, highest := t.gain*(K1+1), r.highest
	for i, list := range t.lists {
		if list == "" {
			continue
		}
		scores, refused, lengths := r.scores[r.bases[i]:], r.refused[i], r.parts[i].lengths
		passage, list := -1, string(list)
		for _, pos := varint(list, 0); pos < len(list); {
			var step, n uint64
			if step, pos = varint(list, pos); step&1 == 0 {
				n, pos = varint(list, pos)
			} else {
				n = 1
			}
			passage += int(step >> 1)
			score := scores[passage]
			if score == 0 {
				if r.closed || refused.has(passage) {
					continue
				}
				r.scored = append(r.scored, int32(r.bases[i]+passage))
			}
			times := float64(n)
			score += most * times / (times + K1*(1-B) + K1*B/average*float64(lengths[passage]))
			scores[passage] = score
			if score > highest { // no term takes from a score
				highest = score
			}
		}
	}
	r.highest = highest
}

// idf is the inverse document frequency of a term that so many live passages have.
func (s *Snapshot) idf(frequency int) float64 {
	return math.Log(1 + (float64(s.live-frequency)+0.5)/(float64(frequency)+0.5))
}

// lists gives a term's postings in each part and how many live passages have it.
func (s *Snapshot) lists(term string) (lists []postings, frequency int) {
	lists = make([]postings, len(s.parts))
	for i, p := range s.parts {
		lists[i] = p.find(term)
		switch {
		case lists[i] == "":
		case p.dead == nil:
			frequency += lists[i].count()
		default:
			for _, post := range lists[i].decode(nil) {
				if !p.dead.has(int(post.passage)) {
					frequency++
				}
			}
		}
	}
	return lists, frequency
}

// Frequency is how many passages have a term, one of Terms.
func Frequency(s *Snapshot, term string) int {
	_, n := s.lists(term)
	return n
}

// best gives the best hits in their order. Passages with equal texts may fall out of what top gives, so that it asks for
// more until there are enough or no others.
func (r *scoring) best(limit int, duplicates bool) []Hit {
	limit = max(limit, 0)
	for n := limit; ; n *= 2 {
		hits := r.top(n)
		exhausted := len(hits) < n
		if !duplicates {
			hits = distinct(hits)
		}
		if exhausted || len(hits) >= limit {
			return hits[:min(limit, len(hits))]
		}
	}
}

// top gives the n best hits in their order, equal texts and all.
func (r *scoring) top(n int) []Hit {
	best := []Hit{}
	if n == 0 {
		return best
	}
	least := r.least(n)
	for _, i := range r.scored {
		if score := r.scores[i]; score >= least {
			best = append(best, r.hit(int(i), score))
		}
	}
	slices.SortFunc(best, Hit.compare)
	return best[:min(n, len(best))]
}

// least is the n-th highest score, or less if there are fewer. It collects up to 2n scores and then keeps the better half:
// from there on a score below the worst that was kept is passed over, so that sorting costs little.
func (r *scoring) least(n int) float64 {
	var best []float64
	least := math.Inf(-1)
	for _, i := range r.scored {
		score := r.scores[i]
		if score <= least {
			continue
		}
		if best = append(best, score); len(best) == 2*n {
			slices.Sort(best)
			best = append(best[:0], best[n:]...)
			least = best[0]
		}
	}
	if len(best) < n {
		return math.Inf(-1)
	}
	slices.Sort(best)
	return best[len(best)-n]
}

// hit is the passage of a number with its score.
func (s *Snapshot) hit(number int, score float64) Hit {
	i := sort.Search(len(s.bases), func(i int) bool { return s.bases[i] > number }) - 1
	p, passage := s.parts[i], number-s.bases[i]
	doc := p.document(passage)
	return Hit{Document: p.docs[doc].id, Passage: passage - int(p.docs[doc].first), Score: score, text: p.hashes[passage]}
}

// Size is about how many bytes the snapshot takes, with what its Collection keeps of each
// document.
func (s *Snapshot) Size() int {
	size := 0
	for _, p := range s.parts {
		size += p.bytes
	}
	return size
}
