package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Secret is a value that no log and no dump of the configuration shows.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret from JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// Variable is an environment variable that holds a secret. A configuration has its name alone.
type Variable struct {
	Name  string
	Value Secret // as the variable has it; see Reveal
}

// Reveal is what the variable holds. Files from which variables are made end in a line feed.
func (v Variable) Reveal() string { return strings.TrimSpace(v.Value.Reveal()) }

// MarshalText gives the name.
func (v Variable) MarshalText() ([]byte, error) { return []byte(v.Name), nil }

// UnmarshalYAML reads a name. Its error is an *Error, and does not repeat what stands there.
func (v *Variable) UnmarshalYAML(node ast.Node) error {
	text, ok := scalarText(node)
	*v = Variable{Name: text}
	return when(!ok && node.Type() != ast.NullType, pathOf(node), "the name of an environment variable is needed")
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// keyPrefix begins keys of vendors that could be names of variables.
var keyPrefix = regexp.MustCompile(`^(sk|pk|rk|gsk|hf|r8|xai|glpat|ghp|gho|github_pat)[-_]|^AIza`)

// check refuses what is no name. People paste the secret itself instead, so the value is not repeated unless it
// surely is a name.
func (v Variable) check(key string, _ Config) error {
	return when(v.Name != "" && v.Value == "" && (!variableName.MatchString(v.Name) || secretLike(v.Name)), key,
		"this looks like a secret itself, or is no variable's name; put the secret into an environment variable and "+
			"write its name here, such as OPENAI_API_KEY")
}

// secretLike says whether a text has the form of a key.
func secretLike(text string) bool {
	digits := 0
	for _, r := range text {
		if r >= '0' && r <= '9' {
			digits++
		}
	}
	return keyPrefix.MatchString(text) ||
		len(text) >= 20 && digits >= 3 && text != strings.ToUpper(text) ||
		len(text) >= 16 && digits >= 3 && !strings.Contains(text, "_")
}

// commandVars are what a command gets of the environment: enough to run, and
// nothing in which a key or a token may lie.
var commandVars = []string{"COPILOT_HOME", "HOME", "LANG", "PATH", "TMPDIR", "USER"}

// readSecrets reads the variables that the configuration names.
func (c *Config) readSecrets(vars map[string]string) {
	c.Auth.InternalSecret = Secret(strings.TrimSpace(vars[SecretVar]))
	_ = c.change(func(s setting) error {
		if v, ok := s.value.Addr().Interface().(*Variable); ok {
			v.Value = Secret(vars[v.Name])
		}
		return nil
	})
	for name, b := range c.Proxy.Backends {
		for _, variable := range commandVars {
			if value := vars[variable]; value != "" && len(b.Command) > 0 {
				b.CommandEnv = append(b.CommandEnv, variable+"="+value)
			}
		}
		c.Proxy.Backends[name] = b
	}
}

// variables visits all that the configuration names, each with the path at which it does.
func (c Config) variables(visit func(path string, v Variable) error) error {
	return c.each(func(s setting) error {
		if v, ok := s.value.Interface().(Variable); ok && v.Name != "" {
			return visit(s.path, v)
		}
		return nil
	})
}

// RequireSecrets says which variable is not set of those that are named where a path begins so. A service calls it
// before it starts; a configuration names variables of other services, too.
func (c Config) RequireSecrets(prefixes ...string) error {
	unused := map[string]bool{
		"retrieval.rerank.api_key_env": c.Retrieval.Rerank.URL == "",
		"retrieval.engine.api_key_env": len(c.Retrieval.Engine.URLs) == 0,
		"approvals.webhook.secret_env": c.Approvals.Webhook.URL == "",
		"cold.access_key_env":          c.Cold.Store == "",
		"cold.secret_key_env":          c.Cold.Store == "",
	}
	return c.origin.locate(c.variables(func(path string, v Variable) error {
		needed := slices.ContainsFunc(prefixes, func(root string) bool { return strings.HasPrefix(path, root) })
		return when(needed && !unused[path] && v.Reveal() == "", path, "%s", unset(path, v.Name))
	}))
}

// RequireKeys is for processes that run the proxy.
func (c Config) RequireKeys() error { return c.RequireSecrets("proxy.") }

// unset is the sentence about a variable that is not set and is named at a path.
func unset(path, name string) string {
	what := "the key in it"
	switch {
	case strings.Contains(path, ".headers_env."):
		what = `the value of the header in it, such as "Bearer …"`
	case strings.HasSuffix(path, "password_env"):
		what = "the password in it"
	case strings.HasSuffix(path, "]") && strings.HasPrefix(path, "mcp."):
		what = "it, or remove it here"
	}
	return fmt.Sprintf("the environment variable %s is not set; export %s, or write it into .env and run "+
		"docker compose up -d", name, what)
}

// Secrets are all credentials of the configuration that no backend's key is.
func (c Config) Secrets() []string {
	secrets := []string{c.Auth.InternalSecret.Reveal()}
	_ = c.variables(func(path string, v Variable) error {
		if !strings.HasPrefix(path, "proxy.") {
			secrets = append(secrets, v.Reveal())
		}
		return nil
	})
	if u, err := url.Parse(c.Redis.URL); err == nil {
		password, _ := u.User.Password()
		secrets = append(secrets, password)
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" })
}

// Environ are the variables of a process, as os.Environ has them, by their names.
func Environ(environ []string) map[string]string {
	vars := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			vars[name] = value
		}
	}
	return vars
}
