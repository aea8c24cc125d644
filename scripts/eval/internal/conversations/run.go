package conversations

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// Recall is what is measured: a memory that takes conversations and is asked.
type Recall interface {
	// Import stores a conversation, each under its own id.
	Import(ctx context.Context, c Conversation) error
	// Ask gives hits for a question, best first, that fit into a budget of tokens.
	Ask(ctx context.Context, q Question, askedAt float64, budget int) ([]Hit, error)
}

// Hit is a literal piece of a message.
type Hit struct {
	ID   string // of the message
	Text string
}

// budgets are the tokens that are asked for; one token is four characters. Ranks are
// measured on the answer to the largest.
var budgets = [...]int{500, 800, 1500, 4000}

// pieceLength is how many literal characters of a longer message count as found.
const pieceLength = 600

// Share is how often some and how often all of the evidence was found.
type Share struct {
	AnyFound float64 `json:"any"`
	AllFound float64 `json:"all"`
}

// The measures of an outcome: for each of the budgets whether some and whether all of the evidence was found, and
// behind these the share of it in the first hit and in the first five, whether some is in these, and the reciprocal
// rank of the first hit with evidence, 0 for none.
const (
	r1 = 2*len(budgets) + iota
	r5
	any5
	mrr
	measures
)

// names are those of the measures.
func names() (labels []string) {
	for _, budget := range budgets {
		labels = append(labels, fmt.Sprintf("any@%d", budget), fmt.Sprintf("all@%d", budget))
	}
	return append(labels, "R@1", "R@5", "any@5 hits", "MRR")
}

// figures are measures of one question, or their means.
type figures [measures]float64

// share is what was found in one of the budgets.
func (f figures) share(budget int) Share { return Share{f[2*budget], f[2*budget+1]} }

// outcome is what came of one question, by one way.
type outcome struct {
	figures
	overdrew bool // hits were longer than a budget
}

// record enters what was found in one of the budgets.
func (o *outcome) record(budget int, s Share) {
	o.figures[2*budget], o.figures[2*budget+1] = s.AnyFound, s.AllFound
}

// judge says what hits found.
type judge struct {
	evidence []string // texts
}

// count returns the evidence that the texts of hits contain.
func (j judge) count(hits []Hit) (n int) {
	for _, text := range j.evidence {
		if slices.ContainsFunc(hits, func(h Hit) bool { return matches(text, h.Text) }) {
			n++
		}
	}
	return n
}

// matches says whether a message is found in a text: as a whole, or at least pieceLength
// characters of it in one piece.
func matches(message, text string) bool {
	if strings.Contains(text, message) {
		return true
	}
	runes := utf8.RuneCountInString(message)
	if runes <= pieceLength || utf8.RuneCountInString(text) < pieceLength {
		return false
	}
	if strings.Contains(message, text) {
		return true
	}
	// A piece of the message somewhere in a longer text. It holds one of the message's
	// blocks of half its length, by which most texts are told apart soon.
	offsets := make([]int, 0, runes+1)
	for i := range message {
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(message))
	const half = pieceLength / 2
	shared := false
	for i := 0; i+half < len(offsets) && !shared; i += half {
		shared = strings.Contains(text, message[offsets[i]:offsets[i+half]])
	}
	if !shared {
		return false
	}
	for i := 0; i+pieceLength < len(offsets); i++ {
		if strings.Contains(text, message[offsets[i]:offsets[i+pieceLength]]) {
			return true
		}
	}
	return false
}

func (j judge) share(hits []Hit) (s Share) {
	n := j.count(hits)
	if n > 0 {
		s.AnyFound = 1
	}
	if n == len(j.evidence) {
		s.AllFound = 1
	}
	return s
}

func (j judge) ranks(o *outcome, hits []Hit) {
	total := float64(len(j.evidence))
	o.figures[r1] = float64(j.count(hits[:min(1, len(hits))])) / total
	o.figures[r5] = float64(j.count(hits[:min(5, len(hits))])) / total
	o.figures[any5] = math.Ceil(o.figures[r5])
	if i := slices.IndexFunc(hits, func(h Hit) bool { return j.count([]Hit{h}) > 0 }); i >= 0 {
		o.figures[mrr] = 1 / float64(i+1)
	}
}

// Run imports the conversations of a set into r and byMeaning and asks its questions. byMeaning searches by words and
// vectors, alone by the vectors of byMeaning; both are nil if vectors are not measured.
func Run(ctx context.Context, s *Set, r, byMeaning, vectorsOnly Recall, tell func(doing string)) (*Report, error) {
	conversations := map[string]*Conversation{}
	texts := map[string]map[string]string{}
	baselines := map[string]*textbook{}
	for i := range s.Conversations {
		c := &s.Conversations[i]
		tell(fmt.Sprintf("importing %s: %d messages", c.ID, len(c.Messages)))
		err := r.Import(ctx, *c)
		if err == nil && byMeaning != nil {
			err = byMeaning.Import(ctx, *c)
		}
		if err != nil {
			return nil, fmt.Errorf("importing %s: %w", c.ID, err)
		}
		conversations[c.ID], texts[c.ID], baselines[c.ID] = c, map[string]string{}, newTextbook(c.Messages)
		for _, m := range c.Messages {
			texts[c.ID][m.ID] = m.Text
		}
	}
	report := &Report{byMeaning: byMeaning != nil}
	for n, q := range s.Questions {
		if n%100 == 0 {
			tell(fmt.Sprintf("asking: %d of %d questions", n, len(s.Questions)))
		}
		var j judge
		for _, id := range q.Evidence {
			j.evidence = append(j.evidence, texts[q.Conversation][id])
		}
		a := result{question: q}
		ranking, window := baselines[q.Conversation].rank(q.Question), baselines[q.Conversation].window()
		j.ranks(&a.bm25, ranking)
		for i, budget := range budgets {
			askedAt := q.askedAt(conversations[q.Conversation])
			err := a.own.ask(ctx, r, j, q, askedAt, i)
			if err == nil && byMeaning != nil {
				err = a.meaning.ask(ctx, byMeaning, j, q, askedAt, i)
			}
			if err == nil && vectorsOnly != nil {
				err = a.vectorsOnly.ask(ctx, vectorsOnly, j, q, askedAt, i)
			}
			if err != nil {
				return nil, fmt.Errorf("question %s: %w", q.ID, err)
			}
			a.bm25.record(i, j.share(fitting(ranking, budget)))
			a.window.record(i, j.share(fitting(window, budget)))
		}
		report.results = append(report.results, a)
	}
	report.count()
	return report, nil
}

// ask adds what a memory finds in one of the budgets.
func (o *outcome) ask(ctx context.Context, r Recall, j judge, q Question, askedAt float64, budget int) error {
	hits, err := r.Ask(ctx, q, askedAt, budgets[budget])
	o.overdrew = o.overdrew || len(fitting(hits, budgets[budget])) < len(hits)
	o.record(budget, j.share(hits))
	if budget == len(budgets)-1 {
		j.ranks(o, hits)
	}
	return err
}

// result is a question and what came of it by each way.
type result struct {
	question                                Question
	own, meaning, vectorsOnly, bm25, window outcome
}

// resamples is how often questions are drawn anew for an interval.
const resamples = 1000

// interval is the middle 95 % of a mean over questions that are drawn with replacement
// (percentile bootstrap, Efron 1979), the same on every run.
func interval(values []float64) [2]float64 {
	draw := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamples)
	for i := range means {
		for range values {
			means[i] += values[draw.IntN(len(values))]
		}
		means[i] /= float64(len(values))
	}
	slices.Sort(means)
	return [2]float64{means[resamples*25/1000], means[resamples*975/1000-1]}
}
