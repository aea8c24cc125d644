package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/subagent/external"
)

// Bounds of what a server offers.
const (
	maxTools       = 1000
	maxList        = 4 << 20 // bytes of all definitions
	maxPages       = 100
	maxDescription = 16 << 10 // bytes of one
)

// toolName is what a tool may be called, as the protocol has it.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,128}$`)

// offer is what a server offers: tools by name, and the names of those that cannot be used.
type offer struct {
	tools   map[string]external.Definition
	refused []string
}

// list asks a server for its tools. A list that is too long is an error.
func list(ctx context.Context, server string, session *mcp.ClientSession) (offer, error) {
	o, ctx := offer{tools: map[string]external.Definition{}}, context.WithValue(ctx, toolList{}, true)
	total, size, cursor := 0, 0, ""
	duplicates := map[string]bool{}
	for page := 1; ; page++ {
		result, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return o, err
		}
		if total += len(result.Tools); total > maxTools {
			return o, fmt.Errorf("%w: it offers more than %d tools", errUnusable, maxTools)
		}
		for _, t := range result.Tools {
			d, err := define(server, t)
			if size += len(d.Description) + len(d.Parameters); size > maxList {
				return o, fmt.Errorf("%w: its list of tools has more than %d MiB", errUnusable, maxList>>20)
			}
			if _, duplicate := o.tools[d.Name]; duplicate || err != nil {
				duplicates[d.Name] = true
				continue
			}
			o.tools[d.Name] = d
		}
		if result.NextCursor == "" {
			break
		}
		if result.NextCursor == cursor || page == maxPages {
			return o, fmt.Errorf("%w: its list of tools does not end", errUnusable)
		}
		cursor = result.NextCursor
	}
	for name := range duplicates {
		delete(o.tools, name)
		o.refused = append(o.refused, clip(name))
	}
	slices.Sort(o.refused)
	return o, nil
}

// define is a tool as a server describes it. The error says why it cannot be used; the name is
// there nevertheless.
func define(server string, t *mcp.Tool) (external.Definition, error) {
	d := external.Definition{Server: server, Name: t.Name, Description: visible(t.Description)}
	if !toolName.MatchString(t.Name) {
		return d, errors.New("its name is none")
	}
	if len(d.Description) > maxDescription {
		return d, errors.New("its description is too long")
	}
	var err error
	if d.Parameters, err = json.Marshal(t.InputSchema); err != nil {
		return d, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(d.Parameters, &schema); err != nil {
		return d, err
	}
	if schema.Type != "object" {
		return d, errors.New("its parameters are no object")
	}
	if _, err := schema.Resolve(nil); err != nil {
		return d, err
	}
	if a := t.Annotations; a != nil {
		d.Hints = external.Hints{
			Destructive: a.DestructiveHint != nil && *a.DestructiveHint, ReadOnly: a.ReadOnlyHint, Idempotent: a.IdempotentHint,
		}
	}
	return d, nil
}

// visible is a text without characters that a reader does not see, but a model does.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// clip is a name that a server gave, for a log or a status.
func clip(name string) string {
	name = visible(name)
	return strings.ToValidUTF8(name[:min(len(name), 128)], "")
}
