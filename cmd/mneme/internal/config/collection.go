package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"mneme/subagent/rag"
)

// Collection is a collection of documents that a subagent searches: a
// name, or a name with a filter: {name: news, where: {lang: ru}}.
type Collection struct {
	Name  string    `yaml:"name"`
	Where rag.Where `yaml:"where,omitempty"` // which of its documents; nil for all
}

// UnmarshalYAML reads an entry. Errors are an *Error.
func (c *Collection) UnmarshalYAML(node ast.Node) error {
	*c = Collection{}
	if _, block := node.(ast.MapNode); !block {
		name, ok := scalarText(node)
		c.Name = name
		return when(!ok, pathOf(node), "a collection's name is needed, or a block with name and where")
	}
	return eachPair(node, func(key, path string, value ast.Node) error {
		switch key {
		case "name":
			name, ok := scalarText(value)
			c.Name = name
			return when(!ok, path, "text is needed")
		case "where":
			return c.filter(path, value)
		}
		return bad(path, "unknown key; an entry of collections has name and where")
	})
}

// filter reads where. Scalars are given on as the texts that stand there, so that a
// version such as 1.10 stays what it is.
func (c *Collection) filter(path string, node ast.Node) (err error) {
	var text strings.Builder
	if err := writeJSON(&text, node, true); err != nil {
		return err
	}
	if text.String() == "null" {
		return bad(path, "may not be empty; remove the key to search all documents")
	}
	c.Where, err = rag.ParseWhere([]byte(text.String()))
	if wrong, ok := errors.AsType[*rag.WhereError](err); ok {
		for _, step := range wrong.Path {
			path = join(path, step)
		}
		return bad(path, "%s", wrong.Sentence)
	}
	return err
}

// scalarText is a single value as it is written.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	}
	return "", false
}

// pathOf is where a node stands, as errors name it.
func pathOf(node ast.Node) string {
	return strings.TrimPrefix(strings.TrimPrefix(node.GetPath(), "$"), ".")
}

// MarshalYAML writes an entry as UnmarshalYAML reads it.
func (c Collection) MarshalYAML() (any, error) {
	if len(c.Where) == 0 {
		return c.Name, nil
	}
	type plain Collection
	return plain(c), nil
}

// checkCollections checks the collections of a subagent.
func (s Subagent) checkCollections(key string) error {
	used := map[string]bool{}
	for i, c := range s.Collections {
		path := fmt.Sprintf("%s.collections[%d]", key, i)
		if err := cmp.Or(formed(path, c.Name, forms["collection"]), when(used[c.Name], path,
			"%q is listed twice; keep one, whose where may ask for one of several values with in", c.Name)); err != nil {
			return err
		}
		used[c.Name] = true
	}
	return nil
}

// CollectionNames are the names of the collections that the subagent searches.
func (s Subagent) CollectionNames() (names []string) {
	for _, c := range s.Collections {
		names = append(names, c.Name)
	}
	return names
}
