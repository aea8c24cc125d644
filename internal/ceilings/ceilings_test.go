package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

var (
	update = flag.Bool("update", false, "lower the ceilings to what there is, add those of new packages")
	raise  = flag.String("raise", "", "a package's folder: set its ceilings to what there is, or those of all packages")
)

const header = `# Ceilings, which no package may exceed: "go test ./internal/ceilings" compares, and with "-update" lowers them
# to what there is. Raising one, by "-raise PACKAGE", is a commit of its own that says why. main.go says what is measured.
# package, code lines, methods of the largest type, fields of the largest struct, % arrows up
`

// The sources are read by this test itself: what another program read would not renew a result that is cached.
func TestNoPackageExceedsItsCeilings(t *testing.T) {
	testtier.Slow(t)
	now, err := measure(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.Greater(t, len(now.packages), 50, "the packages were found")
	raw, err := os.ReadFile("ceilings.txt")
	require.NoError(t, err)
	ceilings := parse(t, string(raw))
	if *update || *raise != "" {
		require.NoError(t, os.WriteFile("ceilings.txt", []byte(renewed(now, ceilings, *raise)), 0o644))
		return
	}
	above, below := compare(now, ceilings)
	if len(below) > 0 {
		t.Logf("These can be lowered by 'go test ./internal/ceilings -update':\n%s", strings.Join(below, "\n"))
	}
	if len(above) > 0 {
		t.Error(strings.Join(above, "\n"))
	}
}

type ceiling [len(measures)]float64

func parse(t *testing.T, text string) map[string]ceiling {
	ceilings := map[string]ceiling{}
	for line := range strings.Lines(text) {
		var folder string
		var c ceiling
		if !strings.HasPrefix(line, "#") {
			_, err := fmt.Sscan(line, &folder, &c[lines], &c[methods], &c[fields], &c[upward])
			require.NoError(t, err, "%q is no folder with four numbers", line)
			ceilings[folder] = c
		}
	}
	return ceilings
}

func row(folder string, c ceiling) string {
	return fmt.Sprintf("%-32s %6g %4g %4g %5g\n", folder, c[lines], c[methods], c[fields], c[upward])
}

// renewed is the file with the ceilings of a tree, none of them raised but those of one package, or of "all".
func renewed(now *tree, ceilings map[string]ceiling, raise string) string {
	text := header
	for _, folder := range slices.Sorted(maps.Keys(now.packages)) {
		c, ok := ceilings[folder]
		for m, f := range now.packages[folder] {
			if !ok || raise == folder || raise == "all" || f.is < c[m] {
				c[m] = f.is
			}
		}
		text += row(folder, c)
	}
	return text
}

// compare says what exceeds its ceiling, or has none, and what stays below it.
func compare(now *tree, ceilings map[string]ceiling) (above, below []string) {
	for _, folder := range slices.Sorted(maps.Keys(now.packages)) {
		c, ok := ceilings[folder]
		var is ceiling
		for m, f := range now.packages[folder] {
			is[m] = f.is
			name := ""
			if f.of != "" {
				name = " (" + f.of + ")"
			}
			what := fmt.Sprintf("%s: %g %s%s, and its ceiling is %g", folder, f.is, measures[m], name, c[m])
			switch {
			case ok && f.is > c[m]:
				above = append(above, fmt.Sprintf("%s, which is exceeded by %.4g. Make it smaller, or raise the ceiling by "+
					"'go test ./internal/ceilings -raise %s' in a commit of its own that says why.", what, f.is-c[m], folder))
			case ok && f.is < c[m]:
				below = append(below, what)
			}
		}
		if !ok {
			above = append(above, folder+" has no ceilings. Add its line to internal/ceilings/ceilings.txt, as "+
				"'go test ./internal/ceilings -update' does:\n"+row(folder, is))
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(ceilings)) {
		if now.packages[folder] == nil {
			above = append(above, folder+" has ceilings and is no package: take its line out of "+
				"internal/ceilings/ceilings.txt, as 'go test ./internal/ceilings -update' does.")
		}
	}
	return above, below
}

// sources are two packages. In p, low.go and high.go use each other, by several names.
var sources = map[string]string{
	"p/low.go": `// Package p is measured.
package p

import "example.com/other"

/* A comment
of two lines. */
type Low struct {
	a, b int // two fields
	other.Embedded
}

func (l *Low) One() string { return "a // b" }
func (Low) Two()           {}

var text = ` + "`of\n\nthree lines`" + `

func up() { high() }
`, "p/high.go": `package p

func high() { up(); l := &Low{}; l.One(); l.Two() }

type wire struct {
	A, B, C int ` + "`json:\"a\"`" + `
	D, E int
}

type someOptions struct{ a, b, c, d, e int }
`, "p/alone.go": `package p

type List[T any] struct{ items []T }

func (l *List[T]) Three() { l.Four() }
func (l List[T]) Four()   {}
func (l List[T]) Five()   {}

func use(l List[int], of Low) { l.Three() }
`, "p/p_test.go": `package p

// Tests count apart.
func high() {}
`, "p/testdata/x.go": "no package", ".hidden/x.go": "no package", "q/q.go": "package q\n",
}

func TestWhatIsMeasured(t *testing.T) {
	root := t.TempDir()
	for path, source := range sources {
		path = filepath.Join(root, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
	}
	now, err := measure(root)
	require.NoError(t, err)
	require.Equal(t, 2, now.tests)
	require.Len(t, now.packages, 2)
	require.Equal(t, [len(measures)]figure{{1, ""}, {}, {}, {}}, *now.packages["q"])
	require.Equal(t, [len(measures)]figure{{24, ""}, {3, "List"}, {3, "Low"}, {33.3, ""}}, *now.packages["p"])

	var out strings.Builder
	now.print(&out)
	require.Regexp(t, `code lines of Go, without comments, blanks and tests +25\n`, out.String())
	require.Regexp(t, `  p List +3\n`, out.String())

	ceilings := parse(t, header+row("q", ceiling{2, 0, 0, 0})+row("p", ceiling{24, 2, 9, 33})+row("gone", ceiling{}))
	above, below := compare(now, ceilings)
	require.Len(t, above, 3)
	require.Contains(t, above[0],
		"p: 3 methods of the largest type (List), and its ceiling is 2, which is exceeded by 1. Make it smaller, or raise")
	require.Contains(t, above[1], "p: 33.3 % arrows up, and its ceiling is 33, which is exceeded by 0.3. ")
	require.Contains(t, above[2], "gone has ceilings and is no package")
	require.Equal(t, []string{"p: 3 fields of the largest struct (Low), and its ceiling is 9",
		"q: 1 code lines, and its ceiling is 2"}, below)
	delete(ceilings, "q")
	above, _ = compare(now, ceilings)
	require.Contains(t, strings.Join(above, "\n"), "q has no ceilings. Add its line")

	lowered := parse(t, renewed(now, ceilings, ""))
	require.Equal(t, map[string]ceiling{"q": {1}, "p": {24, 2, 3, 33}}, lowered)
	require.Equal(t, ceiling{24, 3, 3, 33.3}, parse(t, renewed(now, lowered, "p"))["p"])
}

// A cycle of files has an arrow up in every order.
func TestArrowsUp(t *testing.T) {
	of := func(pairs ...string) int {
		arrows := map[[2]string]bool{}
		for _, pair := range pairs {
			arrows[[2]string{pair[:1], pair[1:]}] = true
		}
		return arrowsUp(arrows)
	}
	require.Zero(t, of())
	require.Zero(t, of("zy", "yx", "xa", "za"), "what has no cycle has an order")
	require.Equal(t, 1, of("ab", "bc", "ca"))
	require.Equal(t, 2, of("ab", "ba", "bc", "cb", "ac"))
}
