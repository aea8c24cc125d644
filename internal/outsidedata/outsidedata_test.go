package outsidedata_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
)

// probe is a testing.TB that notes how a test would have ended.
type probe struct {
	testing.TB
	name  string
	ended string
}

type end struct{}

func (p *probe) Name() string          { return p.name }
func (p *probe) Fatalf(string, ...any) { p.ended = "failed"; panic(end{}) }
func (p *probe) Skipf(string, ...any)  { p.ended = "skipped"; panic(end{}) }

// end calls Path as the test of this name would.
func (p *probe) path(elem ...string) (path string) {
	defer func() {
		if r := recover(); r != nil && r != (end{}) {
			panic(r)
		}
	}()
	return outsidedata.Path(p, elem...)
}

func TestPath(t *testing.T) {
	for name, c := range map[string]struct {
		test, folder, want string
	}{
		"the data is there":              {"TestX" + outsidedata.Suffix + "/case", "testdata", ""},
		"the folder is named and absent": {"TestX" + outsidedata.Suffix, "nowhere", "failed"},
		"a name that CI does not find":   {"TestX", "testdata", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "testdata", "errors"), 0o700))
			t.Setenv(outsidedata.Variable, filepath.Join(dir, c.folder))
			p := &probe{TB: t, name: c.test}
			path := p.path("errors")
			require.Equal(t, c.want, p.ended)
			if c.want == "" {
				require.Equal(t, filepath.Join(dir, "testdata", "errors"), path)
			}
		})
	}
}

// Outside data is named nowhere but in this package, so that each test that uses it
// is one of those that CI runs apart, and is skipped in a clone that stands alone.
func TestOutsideDataIsFoundHereOnly(t *testing.T) {
	root := outsidedata.Root(t)
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || filepath.Base(filepath.Dir(path)) == "outsidedata" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		rel, _ := filepath.Rel(root, path)
		for _, way := range []string{`"shared", "data"`, `../shared/data`} {
			require.False(t, strings.Contains(string(source), way), "%s: outside data is found by outsidedata.Path", rel)
		}
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
			require.NoError(t, err)
			for _, spec := range file.Imports {
				require.NotEqual(t, `"mneme/internal/outsidedata"`, spec.Path.Value, "%s: only tests use outside data", rel)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, read, 50, "the sources were found")
}
