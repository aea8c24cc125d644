package api

import (
	"cmp"
	"slices"
)

// Nearest picks the candidate that a mistyped name was most likely meant to be;
// empty when none is close.
func Nearest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/4)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Closest gives up to n candidates, those that are most like name first.
func Closest(name string, candidates []string, n int) []string {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	return sorted[:min(n, len(sorted))]
}

// distance counts the single-byte edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
