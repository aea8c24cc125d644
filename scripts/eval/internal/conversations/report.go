package conversations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"mneme/scripts/eval/internal/embedding"
)

// Report is what a run measured.
type Report struct {
	// Embedded is what an endpoint of embeddings was asked; nil for none.
	Embedded *embedding.Report

	results   []result
	kinds     []string // ascending
	byMeaning bool     // it was measured what finds by meaning, too
}

func (r *Report) count() {
	for _, a := range r.results {
		if !slices.Contains(r.kinds, a.question.Kind) {
			r.kinds = append(r.kinds, a.question.Kind)
		}
	}
	slices.Sort(r.kinds)
}

// The ways that a report compares.
func own(a result) outcome         { return a.own }
func meaning(a result) outcome     { return a.meaning }
func vectorsOnly(a result) outcome { return a.vectorsOnly }
func bm25(a result) outcome        { return a.bm25 }
func ofWindow(a result) outcome    { return a.window }

// fits says that no answer was longer than its budget.
func (a result) fits() bool { return !a.own.overdrew && !a.meaning.overdrew && !a.vectorsOnly.overdrew }

// byKind are the questions of a kind, all for "".
func (r *Report) byKind(kind string) []result {
	if kind == "" {
		return r.results
	}
	return slices.DeleteFunc(slices.Clone(r.results), func(a result) bool { return a.question.Kind != kind })
}

// mean is what one way reached over some questions.
func mean(list []result, way func(result) outcome) (f figures) {
	for i := range f {
		for _, a := range list {
			f[i] += way(a).figures[i]
		}
		f[i] /= float64(len(list))
	}
	return f
}

// ranks are the measures of a ranking by their names in JSON.
func (f figures) ranks() map[string]any {
	return map[string]any{"r1": f[r1], "r5": f[r5], "mrr": f[mrr]}
}

func (f figures) byBudget() map[string]any {
	shares := map[string]any{}
	for i, budget := range budgets {
		shares[strconv.Itoa(budget)] = f.share(i)
	}
	return shares
}

// summary are all figures of one way, also by kind of question.
func (r *Report) summary(way func(result) outcome) map[string]any {
	summarize := func(list []result) map[string]any {
		f := mean(list, way)
		values := f.ranks()
		values["questions"], values["budgets"] = len(list), f.byBudget()
		return values
	}
	kinds := map[string]any{}
	for _, kind := range r.kinds {
		kinds[kind] = summarize(r.byKind(kind))
	}
	f := summarize(r.results)
	f["kinds"] = kinds
	return f
}

// The names of the ways that use vectors.
const (
	wayMeaning     = "recall + vectors"
	wayVectorsOnly = "vectors alone"
)

// MarshalJSON gives the means: of all questions, by kind, and of the baselines.
func (r *Report) MarshalJSON() ([]byte, error) {
	f := r.summary(own)
	if r.byMeaning {
		f["vectors"], f["vectors_alone"], f["embedded"] = r.summary(meaning), r.summary(vectorsOnly), r.Embedded
	}
	plain := mean(r.results, bm25).ranks()
	maps.Copy(plain, mean(r.results, bm25).byBudget())
	f["baselines"] = map[string]any{"window": mean(r.results, ofWindow).byBudget(), "bm25": plain}
	return json.Marshal(f)
}

// WriteText prints the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "QUESTIONS\tN\tWAY")
	for _, budget := range budgets {
		fmt.Fprintf(t, "\tANY/ALL@%d", budget)
	}
	fmt.Fprintln(t, "\tR@1\tR@5\tMRR")
	line := func(name string, list []result, way string, pick func(result) outcome) {
		fmt.Fprintf(t, "%s\t%d\t%s", name, len(list), way)
		f := mean(list, pick)
		for i := range budgets {
			fmt.Fprintf(t, "\t%.3f/%.3f", f.share(i).AnyFound, f.share(i).AllFound)
		}
		fmt.Fprintf(t, "\t%.3f\t%.3f\t%.3f\n", f[r1], f[r5], f[mrr])
	}
	for _, kind := range append([]string{""}, r.kinds...) {
		name := kind
		if kind == "" {
			name = "all"
		}
		list := r.byKind(kind)
		line(name, list, "recall", own)
		if r.byMeaning {
			line(name, list, wayMeaning, meaning)
			line(name, list, wayVectorsOnly, vectorsOnly)
		}
		line(name, list, "bm25", bm25)
		line(name, list, "window", ofWindow)
	}
	t.Flush() // into memory
	r.writeIntervals(&b, "Recall", own, "textbook BM25", bm25)
	if r.byMeaning {
		r.writeIntervals(&b, "Recall with vectors", meaning, "recall by words alone", own)
	}
	if n := len(slices.DeleteFunc(slices.Clone(r.results), result.fits)); n > 0 {
		fmt.Fprintf(&b, "\n%d answers were longer than their budget.\n", n)
	}
	fmt.Fprintf(&b, `
A message is found if its whole text, or %d characters of a longer one, stands in a hit. ANY, ALL: questions of which some, all of the evidence is found in so many tokens of four characters.
R@k: share of the evidence in the first k hits; MRR: of the first hit with evidence; both in the answer to the largest budget.
bm25: textbook BM25 over messages, up to the first that does not fit. window: the newest messages that fit.
`, pieceLength)
	if r.byMeaning {
		fmt.Fprintf(&b, "%s: the index with the vectors of all messages (recall.vectors). %s: the same index without the "+
			"words of the question.\n%v", wayMeaning, wayVectorsOnly, r.Embedded)
	}
	_, err := b.WriteTo(out)
	return err
}

// writeIntervals prints how sure the means of a way and their distances from another one's are.
func (r *Report) writeIntervals(b *bytes.Buffer, name string, way func(result) outcome, other string,
	base func(result) outcome) {
	fmt.Fprintf(b, "\n%s, and how much it is above %s, with intervals of 95 %% (bootstrap over questions)\n", name, other)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for k, name := range names() {
		mine, diff := make([]float64, len(r.results)), make([]float64, len(r.results))
		for i, a := range r.results {
			mine[i] = way(a).figures[k]
			diff[i] = mine[i] - base(a).figures[k]
		}
		i, j := interval(mine), interval(diff)
		fmt.Fprintf(t, "  %s\t%.3f\t[%.3f, %.3f]\t%+.3f\t[%+.3f, %+.3f]\n", name, mean(r.results, way)[k], i[0], i[1],
			mean(r.results, way)[k]-mean(r.results, base)[k], j[0], j[1])
	}
	t.Flush()
}
