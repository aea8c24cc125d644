package rag

import (
	"cmp"
	"slices"

	"mneme/memory/number"
)

// Version is a passage with other figures, of a document that is older.
type Version struct {
	DocID string `json:"doc_id"`
	Title string `json:"title"`
	Date  string `json:"date,omitempty"` // of the document's metadata
}

// mergeVersions keeps, of passages that differ only in figures, the one of the newest document, in the place of the best
// of them, and lists the others there. Their documents begin alike, too, so that two contracts in one form stay apart.
// Passages of one document stay, and so do those that a figure of the query tells from the newest.
func (r *Result) mergeVersions() {
	alike := map[[4]string][]int{}
	for i, p := range r.Passages {
		form := [4]string{p.Collection, number.Without(cmp.Or(p.Title, p.DocID)), number.Without(p.opening),
			number.Without(p.Text)}
		alike[form] = append(alike[form], i)
	}
	asked := number.Claims(r.Query)
	for _, places := range alike {
		group := make([]Passage, len(places))
		dated, documents := true, map[string]bool{}
		for i, at := range places {
			group[i], documents[r.Passages[at].DocID] = r.Passages[at], true
			dated = dated && group[i].date != ""
		}
		slices.SortStableFunc(group, func(a, b Passage) int {
			if dated && a.date != b.date {
				return cmp.Compare(b.date, a.date)
			}
			return cmp.Compare(b.version, a.version)
		})
		told := slices.ContainsFunc(asked, func(n number.Number) bool {
			return !group[0].has(n) && slices.ContainsFunc(group, func(p Passage) bool { return p.has(n) })
		})
		if told || len(documents) < len(group) {
			continue
		}
		for i, p := range group[1:] {
			group[0].OtherVersions = append(group[0].OtherVersions, Version{p.DocID, p.Title, p.date})
			r.Passages[places[i+1]].DocID = "" // to be left out
		}
		r.Passages[places[0]] = group[0]
	}
	r.Passages = slices.DeleteFunc(r.Passages, func(p Passage) bool { return p.DocID == "" })
}

// has reports whether the passage or its title has a number.
func (p Passage) has(n number.Number) bool {
	figures := number.Set{}
	figures.Add(p.Title+"\n"+p.Text, true)
	found, _ := figures.Has(n)
	return found
}
