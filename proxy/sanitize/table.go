package sanitize

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed profiles.yaml
var profiles []byte

// table is that of profiles.yaml by vendor, read when a profile is first asked for.
var table = sync.OnceValue(func() map[string]vendorRules {
	t, err := readTable(profiles)
	if err != nil {
		panic("profiles.yaml: " + err.Error()) // a test reads it
	}
	return t
})

// vendorRules are the table's for one vendor.
type vendorRules struct {
	base   Profile // of all models
	layers []Rule  // that base was made of
	rows   []row   // of which the first that fits a model counts
}

// entry is one of the file's, whose head says what each member means.
type entry struct {
	Vendors []string  `yaml:"vendors"`
	Source  string    `yaml:"source"`
	Profile Overrides `yaml:"profile"`
	Models  []row     `yaml:"models"`
}

type row struct {
	Name        string         `yaml:"name"`
	Names       []string       `yaml:"names"`
	Generations []generations  `yaml:"generations"`
	Pattern     *regexp.Regexp `yaml:"pattern"`
	Source      string         `yaml:"source"`
	Profile     Overrides      `yaml:"profile"`
}

// readTable reads the file. Every entry must have a source, and every row a way to fit.
func readTable(text []byte) (map[string]vendorRules, error) {
	var entries []entry
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.Strict()); err != nil {
		return nil, err
	}
	out := map[string]vendorRules{}
	for i, e := range entries {
		faults := []error{e.Profile.Validate()}
		if e.Source == "" {
			faults = append(faults, errors.New("it needs a source: a public address, or default"))
		}
		for j := range e.Models {
			r := &e.Models[j]
			r.Source = cmp.Or(r.Source, e.Source)
			faults = append(faults, r.Profile.Validate())
			if len(r.Names) == 0 && len(r.Generations) == 0 && (r.Pattern == nil || r.Name == "") {
				faults = append(faults, fmt.Errorf("row %d of its models needs names, generations, or a pattern with a name", j+1))
			}
		}
		faults = append(faults, allOf("vendors", e.Vendors, Vendors()...))
		if err := errors.Join(faults...); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		for _, v := range Vendors() {
			if r := out[v]; e.Vendors == nil || slices.Contains(e.Vendors, v) {
				r.base.Vendor = v
				r.base, r.layers = e.Profile.Apply(r.base), append(r.layers, Rule{Source: e.Source, Profile: e.Profile})
				r.rows = append(r.rows, e.Models...)
				out[v] = r
			}
		}
	}
	return out, nil
}

// fits reports whether a model is one of the row's, and what it is called.
func (r *row) fits(m *modelName) (name string, ok bool) {
	for _, part := range r.Names {
		if strings.Contains(m.full, part) {
			return cmp.Or(r.Name, r.Names[0]), true
		}
	}
	for _, g := range r.Generations {
		if g.family == m.family && !versionLess(m.version, g.first) && !versionLess(g.last, m.version) {
			return cmp.Or(r.Name, m.generation), true
		}
	}
	return r.Name, r.Pattern != nil && r.Pattern.MatchString(m.full)
}

// lookUp is what the table has for a model. A vendor that it does not know is "generic"; row is nil for a model that is
// not listed.
func lookUp(vendor, model string) (ruleSet vendorRules, match *row, name string) {
	ruleSet, ok := table()[vendor]
	if !ok {
		ruleSet = table()["generic"]
	}
	m := nameOf(strings.ToLower(model))
	for i := range ruleSet.rows {
		if name, ok := ruleSet.rows[i].fits(&m); ok {
			return ruleSet, &ruleSet.rows[i], name
		}
	}
	return ruleSet, nil, ""
}

// For is the profile of a model, by its vendor's name for it.
func For(vendor, model string) Profile {
	ruleSet, row, name := lookUp(vendor, model)
	p := ruleSet.base
	if row != nil {
		p = row.Profile.Apply(p)
		p.Model = name
	}
	return p
}

// modelName is the name of a model, in lower case.
type modelName struct {
	full string

	// Of Claude, GPT and GLM, empty for any other.
	generation string // family and version
	family     string
	version    version
}

var versioned = regexp.MustCompile(`(gpt|glm)-(\d+)(?:\.(\d+))?`)

func nameOf(model string) modelName {
	m := modelName{full: model}
	if family, v, ok := generation(model); ok {
		m.generation, m.family, m.version = family+" "+v.String(), family, v
	} else if groups := versioned.FindStringSubmatch(model); groups != nil {
		m.generation, m.family, m.version = groups[0], groups[1], version{number(groups[2]), number(groups[3])}
		if groups[0] == "gpt-35" { // Azure's name for 3.5
			m.version = version{3, 5}
		}
	}
	return m
}

// generations are the versions of a family from one to another.
type generations struct {
	family      string
	first, last version
}

var generationsForm = regexp.MustCompile(`^([a-z]+) (?:(preview)|(\d+)(?:\.(\d+))?)?(-?)(?:(\d+)(?:\.(\d+))?)?$`)

// UnmarshalText reads what the head of the file describes.
func (g *generations) UnmarshalText(text []byte) error {
	m := generationsForm.FindStringSubmatch(string(text))
	if m == nil || m[2]+m[3]+m[6] == "" {
		return fmt.Errorf("generations are such as opus 4.8, gpt 5.2-5.3, glm 4.7- or opus -4.5, not %q", text)
	}
	*g = generations{m[1], version{number(m[3]), number(m[4])}, version{number(m[6]), number(m[7])}}
	switch {
	case m[5] == "":
		g.last = g.first
	case m[6] == "":
		g.last.major = math.MaxInt
	case m[3] == "":
		g.first.minor = 1 // no preview
	}
	return nil
}

// version is a generation; {0, 0} is a preview or none.
type version struct{ major, minor int }

func (v version) String() string {
	switch {
	case v == version{}:
		return "preview"
	case v.minor == 0:
		return strconv.Itoa(v.major)
	}
	return strconv.Itoa(v.major) + "." + strconv.Itoa(v.minor)
}

func versionLess(a, b version) bool {
	return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor)) < 0
}

var families = []string{"fable", "mythos", "opus", "sonnet", "haiku"}

// generation reads the name of a Claude model, whatever a platform puts around
// it: claude-opus-4-8, us.anthropic.claude-opus-4-8-20260101-v1:0,
// claude-3-7-sonnet@20250219, anthropic/claude-opus-4.8.
func generation(model string) (family string, v version, ok bool) {
	words := strings.FieldsFunc(model, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	index := slices.IndexFunc(words, func(w string) bool { return slices.Contains(families, w) })
	if index < 0 || !slices.Contains(words, "claude") {
		return "", version{}, false
	}
	trailing := numbers(words[index+1:])
	if len(trailing) > 0 {
		return words[index], version{trailing[0], nth(trailing, 1)}, true
	}
	first := index
	for first > 0 && len(numbers(words[first-1:first])) == 1 {
		first--
	}
	leading := numbers(words[first:index])
	if len(leading) == 0 {
		return words[index], version{}, slices.Contains(words[index+1:], "preview")
	}
	return words[index], version{leading[0], nth(leading, 1)}, true
}

// numbers are the first words as far as they are numbers of a version: dates are
// longer.
func numbers(words []string) []int {
	var out []int
	for _, w := range words {
		if len(w) > 2 || w[0] < '0' || w[0] > '9' || w[len(w)-1] < '0' || w[len(w)-1] > '9' {
			break
		}
		out = append(out, number(w))
	}
	return out
}

func nth(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// number is 0 for what is none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
