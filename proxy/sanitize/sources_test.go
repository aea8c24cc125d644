package sanitize_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

var aSource = regexp.MustCompile(`^(https://[\w.-]+/\S+|default)$`)

// What the gateway takes for a vendor's rule makes requests fit, or unfit. So each says where it is known from.
func TestEachRowOfTheProfilesHasASource(t *testing.T) {
	var entries []struct {
		Source string
		Models []struct{ Source string }
	}
	text, err := os.ReadFile("profiles.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &entries))
	require.Greater(t, len(entries), 20)
	for i, e := range entries {
		require.NotEmpty(t, strings.Fields(e.Source), "entry %d has no source", i+1)
		sources := strings.Fields(e.Source)
		for _, m := range e.Models {
			sources = append(sources, strings.Fields(m.Source)...)
		}
		for _, source := range sources {
			require.Regexp(t, aSource, source, "a source is an address, or default")
		}
	}
}
