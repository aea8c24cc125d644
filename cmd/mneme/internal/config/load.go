package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
)

// DefaultFile is read from the working directory when no file is named.
const DefaultFile = "mneme.yaml"

// Load reads the file at path and the variables in environ ("NAME=value", as
// os.Environ has them), completes what is left open and checks the whole. An
// empty path means DefaultFile, which may be missing; a named file may not.
// Whatever is wrong is an *Error about the first thing found.
//
// The variables that hold secrets are read here; that they are set is checked by RequireSecrets, since not every
// service needs all of them.
func Load(path string, environ []string) (Config, error) { return loaded(path, environ, false) }

// LoadGateway is Load for a gateway alone, which does not know which apiserver's subagents call it: any of them may
// have a backend of its own.
func LoadGateway(path string, environ []string) (Config, error) { return loaded(path, environ, true) }

func loaded(path string, environ []string, gatewayOnly bool) (Config, error) {
	c := Default()
	c.origin = origin{places: map[string]string{}, vars: map[string]string{}, gatewayOnly: gatewayOnly}
	vars := Environ(environ)
	if path == "" {
		if _, err := os.Stat(DefaultFile); err == nil {
			path = DefaultFile
		}
	}
	if path != "" {
		if err := c.readFile(path); err != nil {
			return Config{}, err
		}
	}
	if c.Agents.Subagents == nil { // an empty list means no subagents
		c.Agents.Subagents = builtinSubagents()
	}
	if err := c.readEnviron(vars); err != nil {
		return Config{}, err
	}
	c.completeTLS()
	c.completeWindows()
	c.completeSubagents()
	c.completePanel()
	c.completeProxy()
	c.readSecrets(vars)
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Reload reads what c was read from once more.
func Reload(c Config, environ []string) (Config, error) {
	return loaded(c.origin.file, environ, c.origin.gatewayOnly)
}

// adopted are the blocks that services take over while they run.
var adopted = []string{"agents.", "limits.", "prices."}

// Adopt is c with the agents, limits and prices of another one, and the settings, by their paths, in which that differs
// beside them. The error is about a setting of that other one which does not go with the rest of c.
func Adopt(c, other Config) (adopts Config, unapplied []string, err error) {
	adopts = c
	adopts.Agents, adopts.Limits, adopts.Prices, adopts.origin = other.Agents, other.Limits, other.Prices, other.origin
	if err := adopts.validate(); err != nil {
		return c, nil, fmt.Errorf("without a restart, which it needs: %w", err)
	}
	was, is := values(c), values(other)
	union := maps.Clone(was)
	maps.Copy(union, is)
	for path := range sorted(union) {
		inside := func(block string) bool { return strings.HasPrefix(path, block) }
		if !slices.ContainsFunc(adopted, inside) && !reflect.DeepEqual(was[path], is[path]) {
			unapplied = append(unapplied, path)
		}
	}
	return adopts, unapplied, nil
}

// values are those of all settings by their paths, without blocks and what has blocks in it.
func values(c Config) map[string]any {
	byPath := map[string]any{}
	_ = c.each(func(s setting) error {
		t := s.value.Type()
		if s.tag != "" && !isBlock(t) && !(hasElements(t) && isBlock(t.Elem())) {
			byPath[s.path] = s.value.Interface()
		}
		return nil
	})
	return byPath
}

// File is the file that was read; empty for none.
func (c Config) File() string { return c.origin.file }

// ChoosesModel reports whether the user configured something that settles which model
// answers: a file, or backends by a variable.
func (c Config) ChoosesModel() bool {
	return c.origin.file != "" || c.origin.vars["proxy.backends"] != ""
}

// HasModel says whether there is a backend that is not the offline model.
func (c Config) HasModel() bool {
	for _, b := range c.Proxy.Backends {
		if b.Kind != KindOffline {
			return true
		}
	}
	return false
}

// RequireEmbeddings says that retrieval.embeddings has no backend to ask. A process
// that runs both apiserver and proxy calls it before it starts; an apiserver alone
// need not know the proxy's backends.
func (c Config) RequireEmbeddings() error {
	if c.Retrieval.Embeddings.Model == "" || c.Proxy.EmbeddingsBackend != "" {
		return nil
	}
	return c.origin.locate(bad("retrieval.embeddings.model",
		"no backend gives embeddings; set proxy.embeddings_backend to a backend of kind %s", KindOpenAI))
}

// Error is a value that cannot be used. Its message is one sentence.
type Error struct {
	Where   string // "mneme.yaml:12", or the name of an environment variable
	Key     string // "webmemory.listen"; empty when the place says it all
	Problem string // what is wrong and how to mend it
}

func (e *Error) Error() string {
	parts := []string{cmp.Or(e.Where, "configuration"), e.Key, e.Problem}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

func bad(key, format string, args ...any) error {
	return &Error{Key: key, Problem: fmt.Sprintf(format, args...)}
}
