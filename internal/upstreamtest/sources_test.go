package upstreamtest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/proxy/wire"
)

var update = flag.Bool("update", false, "rewrite the table of docs/conformance.md")

var (
	thread = regexp.MustCompile(`^([\w.-]+/[\w.-]+)#(\d+)$`)
	page   = regexp.MustCompile(`^https://[\w.-]+/\S+$`)
)

// sourceLink returns a word of a source in Markdown. It reports whether the word is a source.
func sourceLink(word string) (markdown string, valid bool) {
	if m := thread.FindStringSubmatch(word); m != nil {
		return fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", word, m[1], m[2]), true
	}
	if page.MatchString(word) {
		return fmt.Sprintf("[%s](%s)", strings.SplitN(word, "/", 4)[2], word), true
	}
	return unsourced, word == unsourced
}

// ruleTable returns the table of docs/conformance.md: one line per rule and source, with all vendors that share it.
func ruleTable(t *testing.T) string {
	type line struct{ rule, refuses, source string }
	var order []line
	owners := map[line][]string{}
	add := func(owner string, rules []rule) {
		for _, r := range rules {
			require.NotEmpty(t, r.refuses, r.name)
			require.NotEmpty(t, r.source, "%s of %s has no source", r.name, owner)
			var words []string
			for word := range strings.FieldsSeq(r.source) {
				markdown, valid := sourceLink(word)
				require.True(t, valid, "%s of %s: %q is no source", r.name, owner, word)
				words = append(words, markdown)
			}
			l := line{r.name, r.refuses, strings.Join(words, ", ")}
			if len(owners[l]) == 0 {
				order = append(order, l)
			}
			owners[l] = append(owners[l], owner)
		}
	}
	for _, d := range []wire.Dialect{wire.Messages, wire.Chat, wire.Responses, wire.Interactions} {
		for _, v := range []Vendor{Anthropic, Kimi, DeepSeek, GLM, Chat, OpenAI, Google} {
			add(fmt.Sprint(v, "/", d), vendorRules[d][v])
		}
	}
	add("all", otherRules)
	slices.SortStableFunc(order, func(a, b line) int { return cmp.Compare(owners[a][0], owners[b][0]) })
	table := "| vendor | rule | rejects | source |\n|---|---|---|---|\n"
	for _, l := range order {
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", strings.Join(owners[l], ", "), l.rule, l.refuses, l.source)
	}
	return table
}

// Every rule has a source, and docs/conformance.md lists them.
func TestRulesHaveSources(t *testing.T) {
	const begin, end = "<!-- made by go test ./internal/upstreamtest -update -->\n", "<!-- end -->\n"
	path := filepath.Join(outsidedata.Root(t), "docs", "conformance.md")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, begun := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	require.True(t, begun && closed, "docs/conformance.md has no place for the table")
	now := ruleTable(t)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+now+end+after), 0o644))
		return
	}
	require.Equal(t, now, was, "run: go test ./internal/upstreamtest -run Sources -update")
}
