package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// Collection is a collection of documents that a subagent searches. In a file it is a
// name, or a name with a filter: {name: news, where: {lang: ru}}. In the environment it
// is a name.
type Collection struct {
	Name  string
	Where rag.Where // which of its documents; nil for all
}

// UnmarshalText reads a name of a variable.
func (c *Collection) UnmarshalText(text []byte) error {
	*c = Collection{Name: string(text)}
	return nil
}

// UnmarshalYAML reads an entry of a file. Errors are an *Error.
func (c *Collection) UnmarshalYAML(node ast.Node) error {
	*c = Collection{}
	path := pathOf(node)
	entry, ok := node.(ast.MapNode)
	if !ok {
		c.Name, ok = scalarText(node)
		if !ok {
			return bad(path, "a collection's name is needed, or a block with name and where")
		}
		return nil
	}
	for pairs := entry.MapRange(); pairs.Next(); {
		key, value := pairs.Key().GetToken().Value, pairs.Value()
		switch key {
		case "name":
			if c.Name, ok = scalarText(value); !ok {
				return bad(join(path, key), "text is needed")
			}
		case "where":
			if err := c.filter(join(path, key), value); err != nil {
				return err
			}
		default:
			return bad(join(path, key), "unknown key; an entry of collections has name and where")
		}
	}
	return nil
}

// filter reads where. Scalars are given on as the texts that stand there, so that a
// version such as 1.10 stays what it is.
func (c *Collection) filter(path string, node ast.Node) error {
	plain, err := plainValue(node)
	if err != nil {
		return bad(path, "%v", err)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return bad(path, "%v", err)
	}
	if string(text) == "null" {
		return bad(path, "may not be empty; remove the key to search all documents")
	}
	c.Where, err = rag.ParseWhere(text)
	var wrong *rag.WhereError
	if errors.As(err, &wrong) {
		for _, step := range wrong.Path {
			path = join(path, step)
		}
		return bad(path, "%s", wrong.Sentence)
	}
	return err
}

// plainValue is a node as encoding/json takes it.
func plainValue(node ast.Node) (any, error) {
	switch n := node.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.SequenceNode:
		list := []any{}
		for _, one := range n.Values {
			value, err := plainValue(one)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case ast.MapNode:
		members := map[string]any{}
		for pairs := n.MapRange(); pairs.Next(); {
			value, err := plainValue(pairs.Value())
			if err != nil {
				return nil, err
			}
			members[pairs.Key().GetToken().Value] = value
		}
		return members, nil
	}
	if text, ok := scalarText(node); ok {
		return text, nil
	}
	return nil, fmt.Errorf("a filter consists of keys, lists and values, not of %s", strings.ToLower(node.Type().String()))
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
func (c Collection) MarshalYAML() ([]byte, error) {
	if len(c.Where) == 0 {
		return yaml.Marshal(c.Name)
	}
	return yaml.MarshalWithOptions(struct {
		Name  string    `yaml:"name"`
		Where rag.Where `yaml:"where"`
	}(c), yaml.Flow(true))
}

// validateCollections checks the collections of a subagent.
func (s Subagent) validateCollections(key string) error {
	seen := map[string]bool{}
	for i, c := range s.Collections {
		at := fmt.Sprintf("%s.collections[%d]", key, i)
		if c == nil {
			return bad(at, "is empty; a collection's name is needed")
		}
		if _, err := docstore.Named(memory.Tenant{}, c.Name); err != nil {
			return bad(at, "a collection's name is 1 to 64 characters of a-z 0-9 _ -, not %q", c.Name)
		}
		if seen[c.Name] {
			return bad(at, "%q is listed twice; keep one, whose where may ask for one of several values with in", c.Name)
		}
		seen[c.Name] = true
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
