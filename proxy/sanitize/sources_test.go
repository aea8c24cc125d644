package sanitize_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"mneme/scripts/outsidedata"
)

var (
	threadSource    = regexp.MustCompile(`^https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)$`)
	pageSource      = regexp.MustCompile(`^https://([\w.-]+)/\S+$`)
	certifiedSource = regexp.MustCompile(`^certified:(\d{4}-\d\d-\d\d)$`)
)

// toldSource is a source of the table of profiles in Markdown.
func toldSource(t *testing.T, source string) string {
	words := strings.Fields(source)
	for i, word := range words {
		thread, page := threadSource.FindStringSubmatch(word), pageSource.FindStringSubmatch(word)
		switch day := certifiedSource.FindStringSubmatch(word); {
		case thread != nil:
			words[i] = fmt.Sprintf("[%s#%s](%s)", thread[1], thread[2], word)
		case page != nil:
			words[i] = fmt.Sprintf("[%s](%s)", page[1], word)
		case day != nil:
			words[i] = "certified on " + day[1]
		default:
			require.Equal(t, "belief", word, "a source is an address, certified:YYYY-MM-DD, or belief")
		}
	}
	return strings.Join(words, ", ")
}

// What the gateway takes for a vendor's rule makes requests fit, or unfit. So each says where it is known from, and users
// can read it.
func TestTheDocumentTellsTheSourcesOfProfiles(t *testing.T) {
	var entries []struct {
		Vendors []string
		Source  string
		Profile yaml.MapSlice
		Models  []struct {
			Name, Source       string
			Names, Generations []string
			Profile            yaml.MapSlice
		}
	}
	text, err := os.ReadFile("profiles.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &entries))
	now := &strings.Builder{}
	now.WriteString("| vendors | models | profile | source |\n|---|---|---|---|\n")
	line := func(vendors []string, models string, profile yaml.MapSlice, source string) {
		said, err := yaml.MarshalWithOptions(profile, yaml.Flow(true))
		require.NoError(t, err)
		fmt.Fprintf(now, "| %s | %s | `%s` | %s |\n", cmp.Or(strings.Join(vendors, ", "), "all"), models,
			strings.TrimSpace(string(said)), toldSource(t, source))
	}
	for _, e := range entries {
		if len(e.Profile) > 0 {
			line(e.Vendors, "all", e.Profile, e.Source)
		}
		for _, m := range e.Models {
			models := cmp.Or(strings.Join(append(m.Names, m.Generations...), ", "), m.Name)
			line(e.Vendors, models, m.Profile, cmp.Or(m.Source, e.Source))
		}
	}

	const begin, end = "<!-- made by go test ./proxy/sanitize -update -->\n", "<!-- end -->\n"
	path := filepath.Join(outsidedata.Root(t), "docs", "conformance.md")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "docs/conformance.md has no place for the table of profiles")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+now.String()+end+after), 0o644))
		return
	}
	require.Equal(t, now.String(), was, "run: go test ./proxy/sanitize -run Sources -update")
}
