package sanitize_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What holds for the models of each vendor. The first line of the file lists the models. Each of the others is what
// some of them have with a vendor: the star's whole profile, which all models have that stand in no other line of the
// vendor, and of the others the members that differ from it.
func TestProfilesAreThoseOfTheGoldenFile(t *testing.T) {
	const name = "testdata/profiles.golden"
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(want), "\n")
	got := bytes.NewBufferString(first + "\n")
	for _, vendor := range append(sanitize.Vendors(), "nobody") {
		star := members(t, sanitize.For(vendor, "m"))
		fmt.Fprintf(got, "%s *: %s\n", vendor, line(t, star))
		models, order := map[string][]string{}, []string{}
		for _, model := range strings.Fields(first)[1:] {
			differ := members(t, sanitize.For(vendor, model))
			maps.DeleteFunc(differ, func(name string, v json.RawMessage) bool { return bytes.Equal(v, star[name]) })
			if len(differ) == 0 {
				continue
			}
			text := line(t, differ)
			if models[text] == nil {
				order = append(order, text)
			}
			models[text] = append(models[text], model)
		}
		for _, text := range order {
			fmt.Fprintf(got, "%s %s: %s\n", vendor, strings.Join(models[text], " "), text)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(name, got.Bytes(), 0o644))
		return
	}
	require.Equal(t, string(want), got.String())
}

var zeroMember = regexp.MustCompile(`"\w+":(null|false|0|""),?`)

// members are those of a profile as JSON, each without what is zero in it. An empty list, which means none, stays.
func members(t *testing.T, p sanitize.Profile) (m map[string]json.RawMessage) {
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &m))
	for name, value := range m {
		m[name] = json.RawMessage(strings.ReplaceAll(zeroMember.ReplaceAllString(string(value), ""), ",}", "}"))
	}
	return m
}

func line(t *testing.T, m map[string]json.RawMessage) string {
	text, err := json.Marshal(m)
	require.NoError(t, err)
	return string(text)
}
