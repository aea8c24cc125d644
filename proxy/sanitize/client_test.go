package sanitize_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// recorded are the requests of a coding agent, by the number of their file.
func recorded(t *testing.T) map[string]sanitize.Input {
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]sanitize.Input{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var r struct {
			Headers map[string]string `json:"headers"`
			Body    json.RawMessage   `json:"body"`
		}
		require.NoError(t, json.Unmarshal(raw, &r))
		number, _, _ := strings.Cut(filepath.Base(file), "-")
		all[number] = input(t, wire.Messages, string(r.Body), "anthropic", r.Headers["anthropic-beta"])
	}
	return all
}

// Anthropic gets what a coding agent sends byte for byte, but for the one request
// that it refused: the current tool loop does not begin with thinking.
func TestCodingAgentOutsideData(t *testing.T) {
	for number, in := range recorded(t) {
		out := sanitize.Sanitize(in)
		require.Empty(t, out.AddBetas, number)
		require.Empty(t, out.RemoveBetas, number)
		if number != "17" {
			require.Empty(t, out.Changes, number)
			require.Same(t, &in.Outline.Body[0], &out.Body[0], number)
			continue
		}
		require.Equal(t, []sanitize.Change{
			{Kind: sanitize.KindLoop, Path: "thinking"}, {Kind: sanitize.KindEdits, Path: "context_management.edits"},
		}, out.Changes)
		var before, after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(in.Outline.Body, &before))
		require.NoError(t, json.Unmarshal(out.Body, &after))
		delete(before, "thinking")
		delete(before, "context_management")
		require.Equal(t, before, after)
	}
}

// The same requests to other vendors: what changes is how thinking is asked for
// and what stands for thinking that the vendor misses.
func TestCodingAgentElsewhereOutsideData(t *testing.T) {
	all := recorded(t)
	for _, c := range []struct {
		number, vendor, model string
		changes               []sanitize.Change
	}{
		{"03", "kimi", "kimi-k2.6", []sanitize.Change{{Kind: sanitize.KindMode, Path: "thinking.type"},
			{Kind: sanitize.KindMode, Path: "thinking.budget_tokens"}}},
		{"03", "deepseek", "deepseek-v4", nil},
		{"05", "deepseek", "deepseek-v4", []sanitize.Change{{Kind: sanitize.KindEffort, Path: "output_config.effort"}}},
		{"19", "deepseek", "deepseek-v4", []sanitize.Change{{Kind: sanitize.KindThinking, Path: "messages.2.content.0"},
			{Kind: sanitize.KindPlaceholder, Path: "messages.2"}}},
		{"17", "kimi", "kimi-k2.6", []sanitize.Change{{Kind: sanitize.KindPlaceholder, Path: "messages.1"},
			{Kind: sanitize.KindPlaceholder, Path: "messages.9"}}},
		{"03", "anthropic", "claude-haiku-4-5", []sanitize.Change{
			{Kind: sanitize.KindMode, Path: "thinking.type"}, {Kind: sanitize.KindMode, Path: "thinking.budget_tokens"},
			{Kind: sanitize.KindEffort, Path: "output_config.effort"},
		}},
		{"15", "anthropic", "claude-opus-4-8", []sanitize.Change{
			{Kind: sanitize.KindMode, Path: "thinking.type"}, {Kind: sanitize.KindMode, Path: "thinking.budget_tokens"},
			{Kind: sanitize.KindMode, Path: "output_config.effort"},
		}},
		{"03", "generic", "m", nil},
		{"17", "generic", "m", nil},
	} {
		in := all[c.number]
		in.Profile = sanitize.For(c.vendor, c.model)
		if c.vendor != "anthropic" {
			c.changes = slices.Insert(c.changes, 0, sanitize.Change{Kind: sanitize.KindClient, Path: "system"})
		}
		changes := slices.DeleteFunc(sanitize.Sanitize(in).Changes, func(c sanitize.Change) bool {
			return c.Kind == sanitize.KindRole // has tests of its own
		})
		if len(c.changes) == 0 {
			require.Empty(t, changes, "%s to %s", c.number, c.vendor)
			continue
		}
		require.Equal(t, c.changes, changes, "%s to %s", c.number, c.vendor)
	}
}
