package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/proxy"
	"mneme/proxy/sanitize"
)

// profiles are what the models of each backend take, as YAML in the words of its profile: the models of its model_map
// and those that the agents call at it, or any where there are none. Behind a value stands where it is from.
func profiles(cfg config.Config) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(cfg.Proxy.Backends)) {
		fmt.Fprintf(&out, "%q:\n", name)
		b := app.BackendConfig(cfg.Proxy.Backends[name])
		models := slices.Collect(maps.Values(b.ModelMap))
		for _, m := range cfg.ModelsOf(name) {
			models = append(models, proxy.MapModel(b.ModelMap, m))
		}
		if len(models) == 0 {
			models = []string{""}
		}
		slices.Sort(models)
		for _, m := range slices.Compact(models) {
			p, why := b.ProfileOf(m)
			fmt.Fprintf(&out, "  %q: # rules of %s, %s; row of the table: %s\n", cmp.Or(m, "*"), p.Vendor, why,
				cmp.Or(p.Model, "none"))
			from := map[profileLine]string{}
			own := sanitize.Rule{Source: "configuration", Profile: b.Profile}
			for _, l := range append(sanitize.Layers(p.Vendor, m), own) {
				for _, said := range profileLines(l.Profile.Apply(sanitize.Profile{})) {
					from[said] = l.Source
				}
			}
			for _, l := range profileLines(p) {
				source := " # " + cmp.Or(from[l], "by the kind "+b.Kind)
				if strings.HasSuffix(l.text, ":") {
					source = ""
				}
				fmt.Fprintf(&out, "    %s%s\n", l.text, source)
			}
		}
	}
	return out.Bytes()
}

// profileLine is one of a profile as YAML, and the section that it is in.
type profileLine struct{ section, text string }

// profileLines are those of a profile, without what is zero.
func profileLines(p sanitize.Profile) (out []profileLine) {
	text, err := yaml.MarshalWithOptions(p, yaml.OmitZero())
	if err != nil {
		panic(err) // it is a struct of plain values
	}
	section := ""
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		if !strings.HasPrefix(line, " ") {
			section = line
		}
		out = append(out, profileLine{section, line})
	}
	return out
}
