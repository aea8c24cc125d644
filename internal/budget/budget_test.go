// Package budget limits the size of the product.
package budget

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "lower the numbers of budget.txt to the measured ones")

// size is what budget.txt limits.
type size struct {
	lines   int // of the product, without comments and blank lines
	methods int // of the type with the most methods
	fields  int // of the struct with the most fields, without settings and JSON objects
	long    int // number of functions with more than longFunction lines
}

const (
	format       = "product-lines %d\nmethods %d\nfields %d\nlong-functions %d\n"
	longFunction = 60
)

// A number of budget.txt goes down in the commit that earns it. Raise one only with an equal cut in the same commit,
// or for a bug fix that cannot be smaller.
func TestTheProductStaysInItsBudget(t *testing.T) {
	now := measure(t, filepath.Join("..", ".."))
	raw, err := os.ReadFile("budget.txt")
	require.NoError(t, err)
	var limit size
	_, err = fmt.Sscanf(string(raw), format, &limit.lines, &limit.methods, &limit.fields, &limit.long)
	require.NoError(t, err)
	lowest := size{min(limit.lines, now.lines), min(limit.methods, now.methods), min(limit.fields, now.fields),
		min(limit.long, now.long)}
	if *update {
		text := fmt.Sprintf(format, lowest.lines, lowest.methods, lowest.fields, lowest.long)
		require.NoError(t, os.WriteFile("budget.txt", []byte(text), 0o644))
	}
	require.Equal(t, lowest, now, "the product exceeds budget.txt; delete a mechanism before you add one")
	if lowest != limit {
		t.Logf("the product is smaller than budget.txt allows: run 'go test ./internal/budget -update'")
	}
}

var (
	otherFolders = regexp.MustCompile(`^(\.[^/]+|scripts|internal|deploy/examples|webmemory/web/static/vendor)$|(^|/)testdata$`)
	lineComment  = map[string]string{".go": "//", ".lua": "--", ".js": "//", ".mjs": "//", ".css": "//"}
	wireTag      = regexp.MustCompile(`\b(json|yaml|env):"`)
)

// measure reads the product: Go, the Lua of the stores, and the page's JavaScript and CSS.
func measure(t *testing.T, root string) (total size) {
	types := map[string]int{} // methods by folder and type
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if err == nil && d.IsDir() && name != "." && otherFolders.MatchString(name) {
			return filepath.SkipDir
		}
		mark := lineComment[filepath.Ext(name)]
		if err != nil || d.IsDir() || mark == "" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		total.lines += codeLines(source, mark)
		if filepath.Ext(name) != ".go" {
			return nil
		}
		return total.addDeclarations(filepath.Dir(name), source, types)
	})
	require.NoError(t, err)
	require.Greater(t, len(types), 100, "the sources were found")
	for _, methods := range types {
		total.methods = max(total.methods, methods)
	}
	return total
}

// codeLines counts the lines that hold more than a comment.
func codeLines(source []byte, mark string) (lines int) {
	comment := false
	for line := range bytes.Lines(source) {
		line, _, _ = bytes.Cut(line, []byte(mark))
		line = bytes.TrimSpace(line)
		comment = comment || bytes.HasPrefix(line, []byte("/*"))
		if len(line) > 0 && !comment {
			lines++
		}
		comment = comment && !bytes.Contains(line, []byte("*/"))
	}
	return lines
}

func (s *size) addDeclarations(folder string, source []byte, types map[string]int) error {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "", source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if positions.Position(n.End()).Line-positions.Position(n.Pos()).Line >= longFunction {
				s.long++
			}
			if n.Recv != nil {
				types[folder+"."+receiver(n.Recv.List[0].Type)]++
			}
		case *ast.TypeSpec:
			if st, ok := n.Type.(*ast.StructType); ok {
				s.fields = max(s.fields, fields(strings.ToLower(n.Name.Name), st))
			}
		}
		return true
	})
	return nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// fields counts a struct's fields. Settings and JSON objects follow an outside format and count as 0.
func fields(name string, st *ast.StructType) (count int) {
	if strings.HasSuffix(name, "config") || strings.HasSuffix(name, "options") {
		return 0
	}
	tagged := func(f *ast.Field) bool { return f.Tag != nil && wireTag.MatchString(f.Tag.Value) }
	if slices.ContainsFunc(st.Fields.List, tagged) {
		return 0
	}
	for _, f := range st.Fields.List {
		count += max(1, len(f.Names))
	}
	return count
}
