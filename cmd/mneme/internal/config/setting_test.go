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

func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/configuration.md")
	require.NoError(t, err)
	var documented []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") && strings.Contains(line, envRoot) {
			documented = append(documented, strings.Join(strings.Split(line, "|")[:4], "|")+"|")
		}
	}
	defaults := leaves(reflect.ValueOf(Default()), "")
	var want []string
	for _, k := range allKeys() {
		path := strings.Replace(k.path, "*", "NAME", 1)
		shown := defaults[k.path]
		if shown != "" {
			shown = "`" + shown + "` "
		}
		want = append(want, fmt.Sprintf("| `%s` | %s| `%s` |", path, shown, envRoot+envName(path)))
	}
	slices.Sort(want)
	slices.Sort(documented)
	require.Equal(t, strings.Join(want, "\n"), strings.Join(documented, "\n"))
}

// leaves gives the default of every key that has one short enough for a table.
func leaves(v reflect.Value, prefix string) map[string]string {
	all := map[string]string{}
	for f, value := range v.Fields() {
		if !f.IsExported() {
			continue
		}
		name := prefix + f.Tag.Get("yaml")
		switch d := value.Interface().(type) {
		case time.Duration:
			all[name] = strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(d.String())
			continue
		case string:
			if !strings.Contains(d, "\n") {
				all[name] = d
			}
			continue
		}
		switch value.Kind() {
		case reflect.Struct:
			for k, text := range leaves(value, name+".") {
				all[k] = text
			}
		case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
			all[name] = fmt.Sprint(value.Interface())
		}
	}
	return all
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
	require.Len(t, files, 10)
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
