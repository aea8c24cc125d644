package sanitize

import (
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Rule is something that is known of what a backend takes: by the table, by the configuration, or since it refused a
// request. It is a part of a profile, or about one member of requests.
type Rule struct {
	// Source is a public address, "default", "configuration", or what the refusal said.
	Source string `yaml:"source"`
	// Model is the vendor's name of the model that it holds for; empty for all of the backend's. The table's rules are
	// looked up by the model and have none.
	Model string `yaml:"model"`

	// Profile is applied over what is known without the rule.
	Profile Overrides `yaml:"profile"`
	// Schemas are the Keys of tools whose schemas go in the plain form.
	Schemas []string `yaml:"plain_schemas,flow"`

	// Name is the path of the member that is removed; empty for none. Steps are separated by dots. A step that ends in []
	// is an array, and the path continues in each element. "*." matches in the request, its tools, its system texts, its
	// messages and their blocks. BetaHeader is the header of that name.
	Name string `yaml:"member"`
	// Value is the one value, as JSON, that is left out; empty for any.
	Value string `yaml:"value"`
	// ConflictsWith is the member whose presence removes this one; empty for any request.
	ConflictsWith string `yaml:"beside"`
	// Replacement is the member that takes over its value; empty for none.
	Replacement string `yaml:"instead"`
	// Set is the value, as JSON, that the member has instead, also where the request has none; empty for none.
	Set string `yaml:"set"`
	// Accepted are the accepted values. Any other value becomes the nearest accepted one, or is removed.
	Accepted []string `yaml:"takes,flow"`
	// Most: the member stays, and is at most this, or has at most as many elements; 0 for any.
	Max int64 `yaml:"most"`
}

// String is the rule as YAML in one line.
func (f Rule) String() string {
	text, err := yaml.MarshalWithOptions(f, yaml.OmitZero(), yaml.Flow(true))
	if err != nil {
		panic(err) // it is a struct of plain values
	}
	return strings.TrimSpace(string(text))
}

// Same reports whether two rules say the same, whatever they are known from.
func (f Rule) Same(other Rule) bool {
	f.Source = other.Source
	return f.Model == other.Model && f.Name == other.Name && reflect.DeepEqual(f, other)
}

// Learn returns p as rules have it.
func (p Profile) Learn(rules []Rule) Profile {
	for i := range rules {
		p = rules[i].Profile.Apply(p)
	}
	return p
}

// LeavesOut reports whether one of the rules is about a member. Rules are large, so that they are not copied.
func LeavesOut(rules []Rule, name string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Name == name })
}
