package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite docs/commands.md")

// docs/commands.md is what the commands say of themselves.
func TestThePageOfCommands(t *testing.T) {
	path, err := filepath.Abs("../../docs/commands.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir()) // where no configuration changes a default
	var b strings.Builder
	b.WriteString("# Commands\n\nEach command with its flags, as `mneme <command> --help` explains them with examples. " +
		"This page is made of them by\n`go test ./cmd/mneme -run TestThePageOfCommands -update`.\n\n" +
		"| command | what it does | flags |\n|---|---|---|\n")
	all := leaves(rootCommand(&console{}), nil)
	for _, line := range slices.Sorted(maps.Keys(all)) {
		c, flags := all[line], []string(nil)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			placeholder, _ := pflag.UnquoteUsage(f)
			if f.Value.Type() == "bool" || f.Value.Type() == "boolfunc" {
				placeholder = ""
			}
			flags = append(flags, "`"+strings.TrimSpace("--"+f.Name+" "+placeholder)+"`")
		})
		_, arguments, _ := strings.Cut(c.Use, " ")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimSpace("mneme "+line+" "+arguments), c.Short,
			strings.Join(flags, " "))
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(page), "make it anew: go test ./cmd/mneme -run TestThePageOfCommands -update")
}
