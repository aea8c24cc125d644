package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The product's binary holds nothing that tests it: none of our packages that it is
// built of imports testing, or is a benchmark, a soak or a test double. The sources
// are read, as for the import floors: what go list says would stay cached after a
// violation.
func TestNothingThatTestsIsInTheProduct(t *testing.T) {
	root := filepath.Join("..", "..")
	via := map[string]string{"mneme/cmd/mneme": ""} // the package that imports it
	for waiting := []string{"mneme/cmd/mneme"}; len(waiting) > 0; {
		pkg := waiting[0]
		waiting = waiting[1:]
		first, _, _ := strings.Cut(strings.TrimPrefix(pkg, "mneme/"), "/")
		require.NotEqual(t, "scripts", first, "%s imports %s, which measures or disturbs the product", via[pkg], pkg)
		require.NotEqual(t, "internal", first, "%s imports %s, where test doubles live", via[pkg], pkg)
		for _, word := range []string{"bench", "soak", "fakevendor"} {
			require.NotContains(t, path.Base(pkg), word, "imported by %s", via[pkg])
		}
		require.False(t, strings.HasSuffix(pkg, "test"), "%s imports %s, a test double by its name", via[pkg], pkg)
		for _, imported := range importsOf(t, filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(pkg, "mneme/")))) {
			require.False(t, imported == "testing" || strings.HasPrefix(imported, "testing/"), "%s imports %s", pkg, imported)
			if _, known := via[imported]; !known && strings.HasPrefix(imported, "mneme/") {
				via[imported] = pkg
				waiting = append(waiting, imported)
			}
		}
	}
	require.Greater(t, len(via), 40, "the packages were found")
}

// Nothing in the program looks methods up by a name that is known at run time only, as
// text/template does: for such a call the linker has to keep every exported method of
// every type, and the program grows by a third. The linker itself names the callers.
func TestTheLinkerLeavesOutWhatNobodyCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mneme")
	}
	out, err := exec.Command("go", "build", "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "mneme"),
		".").CombinedOutput()
	require.NoError(t, err)
	const followed = "main.main -> main.run" // the listing is what it is taken for
	require.Contains(t, string(out), followed)
	keepers := map[string]bool{}
	for line := range bytes.Lines(out) { // of which there are 200,000
		if keeper, _, keeps := bytes.Cut(line, []byte(" <ReflectMethod>")); keeps {
			keepers[string(keeper)] = true
		}
	}
	require.Empty(t, keepers)
}

// importsOf are the imports of the files in a folder that are built on any system, but
// its tests'.
func importsOf(t *testing.T, folder string) (imports []string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, file := range files {
		if name := file.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, file.Name()), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports = append(imports, imported)
		}
	}
	return imports
}
