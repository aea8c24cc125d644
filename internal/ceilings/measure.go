package main

import (
	"bytes"
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// figure is what a measure is for one package, and the type of the package that has it.
type figure struct {
	is float64
	of string // empty for what is not of one type
}

var measures = [...]string{"code lines", "methods of the largest type", "fields of the largest struct", "% arrows up"}

const lines, methods, fields, upward = 0, 1, 2, 3

// tree is what was measured.
type tree struct {
	packages   map[string]*[len(measures)]figure // by folder
	tests      int                               // code lines of all tests
	up, arrows int                               // between the files of all packages: those that go up, and all
}

// measure reads all packages below a folder.
func measure(root string) (*tree, error) {
	t := &tree{packages: map[string]*[len(measures)]figure{}}
	positions, files := token.NewFileSet(), map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && (d.Name()[0] == '.' || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") || err != nil {
			t.tests += codeLines(source)
			return err
		}
		file, err := parser.ParseFile(positions, path, source, parser.SkipObjectResolution)
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		folder = filepath.ToSlash(folder)
		if t.packages[folder] == nil {
			t.packages[folder] = &[len(measures)]figure{}
		}
		t.packages[folder][lines].is += float64(codeLines(source))
		files[folder] = append(files[folder], file)
		return err
	})
	for folder, p := range t.packages {
		t.add(p, positions, files[folder])
	}
	return t, err
}

// codeLines counts the lines that hold more than comments.
func codeLines(source []byte) (count int) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	text, counted := bytes.Split(source, []byte("\n")), 0
	for at, kind, literal := s.Scan(); kind != token.EOF; at, kind, literal = s.Scan() {
		if literal == "\n" {
			continue // a semicolon, which the scanner made of the line's end
		}
		first := file.Line(at)
		for line := max(first, counted+1); line <= first+strings.Count(literal, "\n"); line++ {
			if counted = line; len(bytes.TrimSpace(text[line-1])) > 0 {
				count++
			}
		}
	}
	return count
}

// none imports nothing, so that a method is not seen where a value's type comes out of another package's function.
type none struct{}

func (none) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// add measures the types and the arrows of one package.
func (t *tree) add(p *[len(measures)]figure, positions *token.FileSet, files []*ast.File) {
	uses := map[*ast.Ident]types.Object{}
	lenient := types.Config{Importer: none{}, Error: func(error) {}} // each import is an error
	pkg, _ := lenient.Check("p", positions, files, &types.Info{Uses: uses})
	for _, name := range pkg.Scope().Names() {
		if declared, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok {
			if named, ok := declared.Type().(*types.Named); ok {
				for m, is := range map[int]int{methods: named.NumMethods(), fields: fieldsOf(named)} {
					if float64(is) > p[m].is {
						p[m] = figure{float64(is), name}
					}
				}
			}
		}
	}
	arrows := map[[2]string]bool{} // from a file to another one, by their paths
	for ident, used := range uses {
		_, isFunc := used.(*types.Func)
		if used.Pkg() == pkg && (isFunc || used.Parent() == pkg.Scope()) {
			if a := [2]string{positions.File(ident.Pos()).Name(), positions.File(used.Pos()).Name()}; a[0] != a[1] {
				arrows[a] = true
			}
		}
	}
	up := arrowsUp(arrows)
	p[upward].is = float64(1000*up/max(1, len(arrows))) / 10
	t.up, t.arrows = t.up+up, t.arrows+len(arrows)
}

var wireTag = regexp.MustCompile(`\b(json|yaml|env):"`)

// fieldsOf counts a struct's fields. A struct of the wire or of configuration has none that count: more than half of
// its fields have a tag of json, yaml or env, or its name ends in config or options.
func fieldsOf(named *types.Named) int {
	shape, ok := named.Underlying().(*types.Struct)
	name := strings.ToLower(named.Obj().Name())
	if !ok || strings.HasSuffix(name, "config") || strings.HasSuffix(name, "options") {
		return 0
	}
	tagged := 0
	for i := range shape.NumFields() {
		if wireTag.MatchString(shape.Tag(i)) {
			tagged++
		}
	}
	if 2*tagged > shape.NumFields() {
		return 0
	}
	return shape.NumFields()
}

// arrowsUp puts files into an order and counts the arrows that go up in it. First are those that use the most others
// and are used by the fewest, of equals the first by name; then files are moved, one at a time, to where fewer arrows
// go up, until no move makes them fewer.
func arrowsUp(arrows map[[2]string]bool) int {
	surplus := map[string]int{} // by file: how many it uses, less how many use it
	for a := range arrows {
		surplus[a[0]]++
		surplus[a[1]]--
	}
	order := slices.SortedFunc(maps.Keys(surplus), func(a, b string) int {
		return cmp.Or(cmp.Compare(surplus[b], surplus[a]), cmp.Compare(a, b))
	})
	up := countUp(order, arrows)
	for moved := true; moved; {
		moved = false
		for _, name := range slices.Clone(order) {
			for to := range order {
				other := slices.DeleteFunc(slices.Clone(order), func(n string) bool { return n == name })
				other = slices.Insert(other, to, name)
				if fewer := countUp(other, arrows); fewer < up {
					order, up, moved = other, fewer, true
				}
			}
		}
	}
	return up
}

// countUp counts the arrows to a file that comes earlier in the order.
func countUp(order []string, arrows map[[2]string]bool) (up int) {
	place := map[string]int{}
	for i, name := range order {
		place[name] = i
	}
	for a := range arrows {
		if place[a[0]] > place[a[1]] {
			up++
		}
	}
	return up
}
