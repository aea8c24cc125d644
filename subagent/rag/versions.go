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

// mergeVersions replaces passages that differ only in figures by the passage of the newest document, at the best rank, and
// lists the others in it. The documents must begin alike, so that two contracts in one form stay apart. Passages of one
// document stay. If the query has a figure that only older versions have, all versions stay.
func (r *Result) mergeVersions() {
	claims := number.Claims(r.Query)
	for _, places := range r.alike() {
		group := make([]Passage, len(places))
		dated, documents := true, map[string]bool{}
		for i, j := range places {
			group[i], documents[r.Passages[j].DocID] = r.Passages[j], true
			dated = dated && group[i].date != ""
		}
		slices.SortStableFunc(group, func(a, b Passage) int {
			if dated && a.date != b.date {
				return cmp.Compare(b.date, a.date)
			}
			return cmp.Compare(b.version, a.version)
		})
		keepAll := slices.ContainsFunc(claims, func(n number.Number) bool {
			return !group[0].has(n) && slices.ContainsFunc(group, func(p Passage) bool { return p.has(n) })
		})
		if keepAll || len(documents) < len(group) {
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

// alike returns the places of passages that differ only in figures, for each form that several have. Few have the title
// in common, so the longer texts of few are compared.
func (r *Result) alike() [][]int {
	indices := make([]int, len(r.Passages))
	for i := range indices {
		indices[i] = i
	}
	groups := [][]int{indices}
	for _, form := range []func(Passage) string{
		func(p Passage) string { return p.Collection + "\n" + number.Mask(cmp.Or(p.Title, p.DocID)) },
		func(p Passage) string { return number.Mask(p.opening) },
		func(p Passage) string { return number.Mask(p.Text) },
	} {
		var finer [][]int
		for _, group := range groups {
			byText := map[string][]int{}
			for _, i := range group {
				text := form(r.Passages[i])
				byText[text] = append(byText[text], i)
			}
			for _, places := range byText {
				if len(places) > 1 {
					finer = append(finer, places)
				}
			}
		}
		groups = finer
	}
	return groups
}

// has reports whether the passage or its title has a number.
func (p Passage) has(n number.Number) bool {
	figures := number.Set{}
	figures.Add(p.Title+"\n"+p.Text, true)
	ok, _ := figures.Has(n)
	return ok
}
