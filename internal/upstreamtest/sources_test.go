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

	"mneme/proxy/wire"
	"mneme/scripts/outsidedata"
)

var update = flag.Bool("update", false, "rewrite the table of docs/conformance.md")

var (
	thread    = regexp.MustCompile(`^([\w.-]+/[\w.-]+)#(\d+)$`)
	page      = regexp.MustCompile(`^https://[\w.-]+/\S+$`)
	certified = regexp.MustCompile(`^certified:(\d{4}-\d\d-\d\d)$`)
)

// told is a word of a source in Markdown; ok is false for what is none.
func told(word string) (markdown string, ok bool) {
	if m := thread.FindStringSubmatch(word); m != nil {
		return fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", word, m[1], m[2]), true
	}
	if m := certified.FindStringSubmatch(word); m != nil {
		return "certified on " + m[1], true
	}
	if page.MatchString(word) {
		return fmt.Sprintf("[%s](%s)", strings.SplitN(word, "/", 4)[2], word), true
	}
	return belief, word == belief
}

// table is the one of docs/conformance.md: a line for each rule and source of it, with all vendors that have it so.
func table(t *testing.T) string {
	type line struct{ rule, refuses, source string }
	var order []line
	whose := map[line][]string{}
	add := func(who string, rules []rule) {
		for _, r := range rules {
			require.NotEmpty(t, r.refuses, r.name)
			require.NotEmpty(t, r.source, "%s of %s has no source", r.name, who)
			var words []string
			for _, word := range strings.Fields(r.source) {
				markdown, ok := told(word)
				require.True(t, ok, "%s of %s: %q is no source", r.name, who, word)
				words = append(words, markdown)
			}
			l := line{r.name, r.refuses, strings.Join(words, ", ")}
			if len(whose[l]) == 0 {
				order = append(order, l)
			}
			whose[l] = append(whose[l], who)
		}
	}
	for _, d := range []wire.Dialect{wire.Messages, wire.Chat, wire.Responses, wire.Interactions} {
		for _, v := range []Vendor{Anthropic, Kimi, DeepSeek, GLM, Chat, OpenAI, Google} {
			add(fmt.Sprint(v, "/", d), vendorRules[d][v])
		}
	}
	add("all", otherRules)
	slices.SortStableFunc(order, func(a, b line) int { return cmp.Compare(whose[a][0], whose[b][0]) })
	var b strings.Builder
	b.WriteString("| vendor | rule | refused is | source |\n|---|---|---|---|\n")
	for _, l := range order {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(whose[l], ", "), l.rule, l.refuses, l.source)
	}
	return b.String()
}

// A fake that refuses what its vendor was never seen to refuse, or takes what was seen to be refused, makes a gateway
// right in its own tests alone. So each rule says where it is known from, and users can read it.
func TestRulesHaveSourcesAndTheDocumentTellsThem(t *testing.T) {
	const begin, end = "<!-- made by go test ./internal/upstreamtest -update -->\n", "<!-- end -->\n"
	path := filepath.Join(outsidedata.Root(t), "docs", "conformance.md")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "docs/conformance.md has no place for the table")
	now := table(t)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+now+end+after), 0o644))
		return
	}
	require.Equal(t, now, was, "run: go test ./internal/upstreamtest -run Sources -update")
}
