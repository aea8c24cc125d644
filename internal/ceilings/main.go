// Command ceilings measures each package of a tree of Go sources, this one or another, and prints the totals and the
// largest:
//
//	go run ./internal/ceilings [DIR]
//
// It measures code lines, which hold more than a comment, of all but tests; the methods of the largest type; the
// fields of the largest struct, but those of the wire and of configuration, which fieldsOf tells; and the share of the
// arrows between the files that go up. A file has an arrow to each file of its package that has package-level names
// or methods which it uses; arrowsUp says in which order of the files an arrow goes up.
//
// The test of this folder holds each package below its ceilings, which ceilings.txt names.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	flag.Parse()
	t, err := measure(cmp.Or(flag.Arg(0), "."))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	t.print(os.Stdout)
}

func (t *tree) print(out io.Writer) {
	say := func(what string, value any) { fmt.Fprintf(out, "%-64s %v\n", what, value) }
	whole, tops := 0.0, map[string]float64{}
	for folder, p := range t.packages {
		top, _, _ := strings.Cut(folder, "/")
		tops[top] += p[lines].is
		whole += p[lines].is
	}
	say("code lines of Go, without comments, blanks and tests", whole)
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		say("  "+top, tops[top])
	}
	say("  tests, besides", t.tests)
	say("arrows between the files of a package", t.arrows)
	say("  up", fmt.Sprintf("%d (%.1f %%)", t.up, 100*float64(t.up)/float64(max(1, t.arrows))))
	for m, what := range measures {
		say("packages with the most "+what, "")
		most := slices.SortedFunc(maps.Keys(t.packages), func(a, b string) int {
			return cmp.Or(cmp.Compare(t.packages[b][m].is, t.packages[a][m].is), cmp.Compare(a, b))
		})
		for _, folder := range most[:min(10, len(most))] {
			say("  "+strings.TrimSpace(folder+" "+t.packages[folder][m].of), t.packages[folder][m].is)
		}
	}
}
