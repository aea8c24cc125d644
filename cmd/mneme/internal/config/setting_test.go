package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tables of the settings say of each what it takes, its default and its variable, as its tags have them; the last
// column is written by hand.
func TestEveryKeyIsDocumented(t *testing.T) {
	const name = "../../../../docs/configuration.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	defaults := map[string]string{}
	require.NoError(t, Default().each(func(s setting) error {
		switch s.value.Kind() {
		case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.String:
			text := fmt.Sprint(s.value)
			if s.value.Type() == reflect.TypeFor[time.Duration]() {
				text = strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(text)
			}
			if !strings.Contains(s.tag.Get("yaml"), "omitempty") {
				defaults[s.path] = text
			}
		}
		return nil
	}))
	want := map[string]string{}
	for _, k := range allKeys() {
		path := strings.Replace(k.path, "*", "NAME", 1)
		_, variable := k.variable()
		row := fmt.Sprintf("| `%s` | %s | `%s` | `%s` |", path, takes(k), defaults[k.path], variable)
		want[path] = strings.Replace(row, "| `` |", "| |", 1)
	}
	var made strings.Builder
	documented := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `") || !strings.Contains(line, "| `"+envRoot) {
			made.WriteString(line)
			continue
		}
		path := strings.Trim(cells[1], " `")
		require.Contains(t, want, path, "is documented, and there is no such key")
		documented[path] = true
		meaning := slices.IndexFunc(cells, func(cell string) bool { return strings.HasPrefix(cell, " `"+envRoot) }) + 1
		made.WriteString(want[path] + strings.Join(cells[meaning:], "|"))
	}
	for path := range want {
		require.True(t, documented[path], "%s is in no table of docs/configuration.md", path)
	}
	if *update {
		page = []byte(made.String())
		require.NoError(t, os.WriteFile(name, page, 0o600))
	}
	require.Equal(t, made.String(), string(page), "go test -update writes it")
}

// takes says of a key what its values are, for a table.
func takes(k key) string {
	kind := strings.TrimPrefix(strings.TrimSuffix(wants(k.kind), " is needed"), "a ")
	kind, _, _ = strings.Cut(kind, " such as")
	if k.kind == reflect.TypeFor[Variable]() {
		kind = "name of a variable"
	}
	limits := ""
	for rule := range strings.SplitSeq(strings.TrimPrefix(k.tag.Get("check"), "dive,"), ",") {
		name, arg, _ := strings.Cut(rule, "=")
		switch name {
		case "positive":
			limits = ", more than 0"
		case "min":
			limits = ", " + arg + " or more"
		case "range":
			limits = ", " + strings.Replace(arg, "..", " to ", 1)
		case "oneof":
			kind = "`" + strings.Join(strings.Fields(arg), "`, `") + "`"
		case "address":
			kind = strings.TrimPrefix(kind+" of host:port", "text of ")
		case "url":
			kind = "URL"
		case "effort":
			kind = "`auto`, `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`"
		}
	}
	if limits != "" && strings.Contains(k.tag.Get("check"), "omitempty") {
		limits += ", or 0"
	}
	return kind + limits
}

// An operator that adds to the master's prompt, or replaces it, reads there what it says.
func TestTheMastersPromptIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/configuration.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "\n```text\n"+masterSystem+"\n```\n")
}

func TestTheFilesThatPeopleCopyAreValid(t *testing.T) {
	pages := ""
	for _, name := range []string{"configuration.md", "panel.md", "tools.md"} {
		page, err := os.ReadFile("../../../../docs/" + name)
		require.NoError(t, err)
		pages += string(page)
	}
	deployed, err := os.ReadFile("../../../../deploy/mneme.yaml")
	require.NoError(t, err)
	files := []string{string(deployed), uncommented(string(deployed))}
	for i, block := range strings.Split(pages, "```") {
		if text, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 {
			files = append(files, text)
		}
	}
	require.Len(t, files, 11)
	for _, text := range files {
		c, err := load(t, text, "KIMI_API_KEY=k", "GLM_API_KEY=k", "ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k",
			"SHOP_TOKEN=k", "CRM_TOKEN=k", "NODE_EXTRA_CA_CERTS=k")
		require.NoError(t, err, text)
		require.NoError(t, c.RequireKeys(), text)
		require.NoError(t, c.RequireSecrets("mcp.", "agents."), text)
	}
}

// uncommented is a file with its commented-out settings ("#key: value") in force.
func uncommented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(rest, " ") {
			line = rest
		}
		b.WriteString(line)
	}
	return b.String()
}
