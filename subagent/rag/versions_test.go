package rag_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
)

// Of documents that differ only in figures the newest is shown, and names the others. What differs in names stays apart.
func TestVersionsOfADocument(t *testing.T) {
	t.Parallel()
	const prices = "Prices from 1 January 2023. Green tea 100 g: 4.50 EUR. Black tea 250 g: 6.00 EUR."
	const contract = "Contract 17 between Tea Ltd and Ann Novak. The monthly fee is 300 EUR."
	type doc struct{ id, title, text, date string }
	newer := strings.NewReplacer("1 January 2023", "15 March 2024", "4.50", "5.10").Replace(prices)
	newest := strings.NewReplacer("2023", "2025", "4.50", "5.90", "6.00", "1,200.00").Replace(prices)
	for name, tc := range map[string]struct {
		documents []doc
		query     string
		found     []string
		versions  []rag.Version
	}{
		"by upload": {[]doc{{"a", "Prices 2023", prices, ""}, {"b", "Prices 2024", newer, ""}, {"c", "Prices 2025", newest, ""}},
			"green tea", []string{"c"}, []rag.Version{{"b", "Prices 2024", ""}, {"a", "Prices 2023", ""}}},
		"by date": {[]doc{{"c", "Prices 2025", newest, "2025-01-01"}, {"a", "Prices 2023", prices, "2023-01-01"}},
			"green tea", []string{"c"}, []rag.Version{{"a", "Prices 2023", "2023-01-01"}}},
		"the query has the figure": {[]doc{{"a", "Prices 2023", prices, ""}, {"b", "Prices 2025", newest, ""}},
			"green tea in 2023", []string{"a", "b"}, nil},
		"other names": {[]doc{{"a", "Contract 17", contract, ""},
			{"b", "Contract 18", strings.NewReplacer("17", "18", "Ann Novak", "Ben Marsh", "300", "350").Replace(contract), ""}},
			"monthly fee", []string{"a", "b"}, nil},
		"other titles": {[]doc{{"a", "Prices of Paris", prices, ""}, {"b", "Prices of Berlin", newest, ""}},
			"green tea", []string{"a", "b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := library(redistest.Start(t).Client())
			c := collection(t, l, "shop")
			for _, d := range tc.documents {
				in := rag.Input{ID: d.id, Document: chunk.Document{Title: d.title, Text: d.text}}
				if d.date != "" {
					in.Document.Metadata = map[string]string{"date": d.date}
				}
				_, err := l.Put(ctx, c, in)
				require.NoError(t, err)
			}
			r := search(t, l, tc.query, c)
			require.ElementsMatch(t, tc.found, documents(r))
			require.Equal(t, tc.versions, r.Passages[0].OtherVersions)
			session, err := l.NewSession(rag.SessionOptions{Collections: []string{"shop"}, Chat: memory.MustChat("c")})
			require.NoError(t, err)
			whole, _, err := searchWith(session, `{"query":"`+tc.query+`"}`)
			require.NoError(t, err)
			require.Equal(t, len(tc.versions), strings.Count(whole, `"doc_id"`)-len(tc.found))
		})
	}
}

// Rows of one document that differ only in figures are all shown.
func TestRowsOfADocumentStay(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "shop")
	row := "# Year 2023\n\n" + strings.Repeat("Green tea costs 4 euros for each package of the shop. ", 20)
	put(t, l, c, "a", row+"\n\n"+strings.ReplaceAll(row, "2023", "2024")+"\n\n"+strings.ReplaceAll(row, " 4 ", " 5 "))
	r := search(t, l, "green tea", c)
	require.Greater(t, len(r.Passages), 2)
	for _, p := range r.Passages {
		require.Empty(t, p.OtherVersions)
	}
}
