// Package outsidedata finds, for tests, the recorded data that is not part of the
// repository: requests of coding agents, errors of vendors, judged sets. Such data
// lies in a folder of its own, by default shared/data beside the repository.
//
// Every test that uses it is named …OutsideData, which Path holds it to, so that CI
// can run these tests apart from those that a clone alone can run.
package outsidedata

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Variable names the folder, if it is elsewhere. Where it is set the data must be
// there: a test fails instead of being skipped.
const Variable = "OUTSIDE_DATA"

// Suffix ends the name of every test that uses outside data.
const Suffix = "OutsideData"

// Path is the path of a file or folder of the outside data. Where there is none the
// test is skipped, so call this before anything is started.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	if top, _, _ := strings.Cut(t.Name(), "/"); !strings.HasSuffix(top, Suffix) {
		t.Fatalf("%s uses outside data, so its name must end with %s: .ci/run finds it by that", top, Suffix)
	}
	folder, set := os.LookupEnv(Variable)
	if !set {
		folder = filepath.Join(Root(t), "..", "shared", "data")
	}
	path := filepath.Join(append([]string{folder}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if set {
			t.Fatalf("%s is set, but the data is not there: %v", Variable, err)
		}
		t.Skipf("../shared/data/%s is not here, and %s names no other folder: the recorded data is not tried",
			filepath.Join(elem...), Variable)
	}
	return path
}

// Root returns the repository's root: the nearest folder above with the go.mod of mneme itself.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if bytes.HasPrefix(mod, []byte("module mneme\n")) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no folder above the working directory has the go.mod of mneme")
		}
		dir = up
	}
}
