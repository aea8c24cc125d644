package conversations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"mneme/scripts/eval/internal/embedding"
)

// Report is what a run measured.
type Report struct {
	// Embedded is what an endpoint of embeddings was asked; nil for none.
	Embedded *embedding.Report

	asked     []asked
	kinds     []string // ascending
	byMeaning bool     // it was measured what finds by meaning, too
}

func (r *Report) count() {
	for _, a := range r.asked {
		if !slices.Contains(r.kinds, a.question.Kind) {
			r.kinds = append(r.kinds, a.question.Kind)
		}
	}
	slices.Sort(r.kinds)
}

// The ways that a report compares.
func own(a asked) outcome      { return a.own }
func meaning(a asked) outcome  { return a.meaning }
func bm25(a asked) outcome     { return a.bm25 }
func ofWindow(a asked) outcome { return a.window }

// fits says that no answer was longer than its budget.
func (a asked) fits() bool { return !a.own.overdrew && !a.meaning.overdrew }

// of are the questions of a kind, all for "".
func (r *Report) of(kind string) []asked {
	if kind == "" {
		return r.asked
	}
	return slices.DeleteFunc(slices.Clone(r.asked), func(a asked) bool { return a.question.Kind != kind })
}

func values(list []asked, value func(asked) float64) []float64 {
	out := make([]float64, len(list))
	for i, a := range list {
		out[i] = value(a)
	}
	return out
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// share is the mean over questions at one of the Budgets.
func share(list []asked, way func(asked) outcome, budget int) Share {
	return Share{
		Any: mean(values(list, func(a asked) float64 { return way(a).shares[budget].Any })),
		All: mean(values(list, func(a asked) float64 { return way(a).shares[budget].All })),
	}
}

// figures are the means of one way over some questions.
func figures(list []asked, way func(asked) outcome) map[string]any {
	f := map[string]any{
		"r1":  mean(values(list, func(a asked) float64 { return way(a).r1 })),
		"r5":  mean(values(list, func(a asked) float64 { return way(a).r5 })),
		"mrr": mean(values(list, func(a asked) float64 { return way(a).rank })),
	}
	return f
}

func byBudget(list []asked, way func(asked) outcome) map[string]any {
	f := map[string]any{}
	for i, budget := range Budgets {
		f[strconv.Itoa(budget)] = share(list, way, i)
	}
	return f
}

// whole are all figures of one way, also by kind of question.
func (r *Report) whole(way func(asked) outcome) map[string]any {
	of := func(list []asked) map[string]any {
		f := figures(list, way)
		f["questions"], f["budgets"] = len(list), byBudget(list, way)
		return f
	}
	kinds := map[string]any{}
	for _, kind := range r.kinds {
		kinds[kind] = of(r.of(kind))
	}
	f := of(r.asked)
	f["kinds"] = kinds
	return f
}

// wayMeaning is the name of what finds by meaning, too.
const wayMeaning = "recall + vectors"

// MarshalJSON gives the means: of all questions, by kind, and of the baselines.
func (r *Report) MarshalJSON() ([]byte, error) {
	f := r.whole(own)
	if r.byMeaning {
		f["vectors"], f["embedded"] = r.whole(meaning), r.Embedded
	}
	plain := figures(r.asked, bm25)
	for budget, s := range byBudget(r.asked, bm25) {
		plain[budget] = s
	}
	f["baselines"] = map[string]any{"window": byBudget(r.asked, ofWindow), "bm25": plain}
	return json.Marshal(f)
}

// WriteText prints the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "QUESTIONS\tN\tWAY")
	for _, budget := range Budgets {
		fmt.Fprintf(t, "\tANY/ALL@%d", budget)
	}
	fmt.Fprintln(t, "\tR@1\tR@5\tMRR")
	line := func(name string, list []asked, way string, of func(asked) outcome) {
		fmt.Fprintf(t, "%s\t%d\t%s", name, len(list), way)
		for i := range Budgets {
			s := share(list, of, i)
			fmt.Fprintf(t, "\t%.3f/%.3f", s.Any, s.All)
		}
		f := figures(list, of)
		fmt.Fprintf(t, "\t%.3f\t%.3f\t%.3f\n", f["r1"], f["r5"], f["mrr"])
	}
	for _, kind := range append([]string{""}, r.kinds...) {
		name := kind
		if kind == "" {
			name = "all"
		}
		list := r.of(kind)
		line(name, list, "recall", own)
		if r.byMeaning {
			line(name, list, wayMeaning, meaning)
		}
		line(name, list, "bm25", bm25)
		line(name, list, "window", ofWindow)
	}
	t.Flush() // into memory
	r.writeIntervals(&b, "Recall", own, "textbook BM25", bm25)
	if r.byMeaning {
		r.writeIntervals(&b, "Recall with vectors", meaning, "recall by words alone", own)
	}
	if n := len(slices.DeleteFunc(slices.Clone(r.asked), asked.fits)); n > 0 {
		fmt.Fprintf(&b, "\n%d answers were longer than their budget.\n", n)
	}
	fmt.Fprintf(&b, `
A message is found if its whole text, or %d characters of a longer one, stands in a hit. ANY, ALL: questions of which some, all of the evidence is found in so many tokens of four characters.
R@k: share of the evidence in the first k hits; MRR: of the first hit with evidence; both in the answer to the largest budget.
bm25: textbook BM25 over messages, up to the first that does not fit. window: the newest messages that fit.
`, pieceLength)
	if r.byMeaning {
		fmt.Fprintf(&b, "%s: the index with its vectors, all messages of a conversation being placed (recall.vectors).\n%v",
			wayMeaning, r.Embedded)
	}
	_, err := b.WriteTo(out)
	return err
}

// writeIntervals prints how sure the means of a way and their distances from another one's are.
func (r *Report) writeIntervals(b *bytes.Buffer, name string, way func(asked) outcome, other string,
	base func(asked) outcome) {
	fmt.Fprintf(b, "\n%s, and how much it is above %s, with intervals of 95 %% (bootstrap over questions)\n", name, other)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(name string, value func(outcome) float64) {
		mine := values(r.asked, func(a asked) float64 { return value(way(a)) })
		above := values(r.asked, func(a asked) float64 { return value(way(a)) - value(base(a)) })
		i, j := interval(mine), interval(above)
		fmt.Fprintf(t, "  %s\t%.3f\t[%.3f, %.3f]\t%+.3f\t[%+.3f, %+.3f]\n", name, mean(mine), i[0], i[1], mean(above), j[0],
			j[1])
	}
	for i, budget := range Budgets {
		line(fmt.Sprintf("any@%d", budget), func(o outcome) float64 { return o.shares[i].Any })
		line(fmt.Sprintf("all@%d", budget), func(o outcome) float64 { return o.shares[i].All })
	}
	line("R@1", func(o outcome) float64 { return o.r1 })
	line("R@5", func(o outcome) float64 { return o.r5 })
	line("any@5 hits", func(o outcome) float64 { return o.any5 })
	line("MRR", func(o outcome) float64 { return o.rank })
	t.Flush()
}
