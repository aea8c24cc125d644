package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The glossary's third column names types by their package's folder; each of them is
// declared there.
func TestTheGlossaryNamesTypesThatExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/glossary.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-z][a-z/]*)\\.([A-Za-z]+)`")
	found := 0
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(line, "|")
		if len(columns) != 6 {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(columns[3], -1) {
			require.True(t, declares(t, filepath.Join("../..", m[1]), m[2]), "%s.%s", m[1], m[2])
			found++
		}
	}
	require.Greater(t, found, 20)
}

// declares reports whether the package in a folder declares a type.
func declares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if typed, ok := s.(*ast.TypeSpec); ok && typed.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}
