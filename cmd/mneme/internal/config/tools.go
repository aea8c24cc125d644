package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"mneme/subagent/external"
	"mneme/subagent/httptool"
	"mneme/subagent/note"
	"mneme/subagent/rag"
	"mneme/subagent/recall"
)

// Tools that an agent may be given by name.
const (
	ToolCalculator = "calculator"
	ToolDate       = "date"
	ToolDocuments  = "documents"
)

// ToolEntry is an entry of an agent's tools: one that is built in, by its name, which is all that
// the environment can hold; one REST call; or tools of an MCP server.
type ToolEntry struct {
	Name string // of a built-in one
	HTTP *HTTPTool
	MCP  string // a server of Config.MCP

	Allow   []string // names of the server's tools, * for any letters; none for all
	Approve []Approval
	Pass    []string // PassChat, PassUser
}

// What tools may be told beside their arguments.
const (
	PassChat = "chat"
	PassUser = "user"
)

// Approval is when a person is asked before calls of some tools.
type Approval struct {
	Name   string // * stands for any letters
	Policy external.Policy
}

// HTTPTool is a REST call.
type HTTPTool struct {
	httptool.Config
	HeadersEnv map[string]string // header → the variable that holds its whole value
	Timeout    time.Duration     // 0: external.DefaultTimeout
	Idempotent bool              // a call may be made again where it is not known whether it was
	Values     map[string]Secret // header → what that variable holds
}

// MCPServer says where a server of the Model Context Protocol is: URL or Command.
type MCPServer struct {
	URL        string            `yaml:"url" env:"URL"`
	Headers    map[string]string `yaml:"headers" env:"HEADERS" envKeyValSeparator:"="`
	HeadersEnv map[string]string `yaml:"headers_env" env:"HEADERS_ENV" envKeyValSeparator:"="` // as of an HTTPTool
	Command    []string          `yaml:"command" env:"COMMAND"`                                // a program and its arguments
	Env        []string          `yaml:"env" env:"ENV"`                                        // variables that it gets
	Timeout    time.Duration     `yaml:"timeout" env:"TIMEOUT"`                                // of a call; 0: external.DefaultTimeout
	Pin        *bool             `yaml:"pin,omitempty" env:"PIN"`                              // nil: its tools are pinned

	Values      map[string]Secret `yaml:"-"` // header → what its variable holds
	Environment map[string]Secret `yaml:"-"` // variable of Env → value
}

// Approvals are the waits for persons.
type Approvals struct {
	Expiry  time.Duration `yaml:"expiry" env:"EXPIRY"` // then the answer is no
	Webhook Webhook       `yaml:"webhook" envPrefix:"WEBHOOK_"`
}

// Webhook is the endpoint that is told that a run waits for a person.
type Webhook struct {
	URL       string `yaml:"url" env:"URL"`
	SecretEnv string `yaml:"secret_env" env:"SECRET_ENV"` // names the variable that holds the key of the signature
	Secret    Secret `yaml:"-"`                           // what that variable holds
}

// UnmarshalText reads a name of a variable.
func (t *ToolEntry) UnmarshalText(text []byte) error {
	*t = ToolEntry{Name: string(text)}
	return nil
}

// UnmarshalYAML reads an entry of a file. Errors are an *Error.
func (t *ToolEntry) UnmarshalYAML(node ast.Node) error {
	*t = ToolEntry{}
	path := pathOf(node)
	entry, ok := node.(ast.MapNode)
	if !ok {
		if t.Name, ok = scalarText(node); !ok {
			return bad(path, "the name of a tool is needed, or a block with http or mcp")
		}
		return nil
	}
	return members(path, entry, func(key, at string, value ast.Node) (err error) {
		switch key {
		case "http":
			t.HTTP = &HTTPTool{}
			block, ok := value.(ast.MapNode)
			if !ok {
				return bad(at, "a block of keys is needed: name, description, url and what else the call has")
			}
			return members(at, block, t.HTTP.set)
		case "mcp":
			t.MCP, err = textOf(at, value)
		case "allow":
			t.Allow, err = textsOf(at, value)
		case "approve":
			t.Approve, err = approvals(at, value)
		case "pass":
			t.Pass, err = textsOf(at, value)
		default:
			err = bad(at, "unknown key; an entry of tools has http or mcp, and allow, approve and pass")
		}
		return err
	})
}

// set reads one key of a REST call.
func (h *HTTPTool) set(key, at string, value ast.Node) (err error) {
	switch key {
	case "name":
		h.Name, err = textOf(at, value)
	case "description":
		h.Description, err = textOf(at, value)
	case "method":
		h.Method, err = textOf(at, value)
	case "url":
		h.URL, err = textOf(at, value)
	case "response":
		h.Response, err = textOf(at, value)
	case "parameters":
		h.Parameters, err = jsonOf(at, value)
	case "body":
		h.Body, err = jsonOf(at, value)
	case "query":
		h.Query, err = pairsOf(at, value)
	case "headers":
		h.Headers, err = pairsOf(at, value)
	case "headers_env":
		h.HeadersEnv, err = pairsOf(at, value)
	case "timeout":
		var text string
		if text, err = textOf(at, value); err == nil {
			if h.Timeout, err = time.ParseDuration(text); err != nil {
				err = bad(at, "a duration such as 90s, 10m or 24h is needed, not %q", text)
			}
		}
	case "idempotent":
		flag, ok := value.(*ast.BoolNode)
		if !ok {
			return bad(at, "true or false is needed")
		}
		h.Idempotent = flag.Value
	default:
		return bad(at, "unknown key; a REST call has name, description, parameters, method, url, query, headers, "+
			"headers_env, body, timeout, response and idempotent")
	}
	return err
}

// members walks a block of keys.
func members(path string, block ast.MapNode, each func(key, at string, value ast.Node) error) error {
	for pairs := block.MapRange(); pairs.Next(); {
		key := pairs.Key().GetToken().Value
		if err := each(key, join(path, key), pairs.Value()); err != nil {
			return err
		}
	}
	return nil
}

func textOf(path string, node ast.Node) (string, error) {
	text, ok := scalarText(node)
	return text, when(!ok, path, "text is needed")
}

func textsOf(path string, node ast.Node) (all []string, err error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, bad(path, "a list is needed")
	}
	for i, one := range list.Values {
		text, err := textOf(fmt.Sprintf("%s[%d]", path, i), one)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

func pairsOf(path string, node ast.Node) (map[string]string, error) {
	block, ok := node.(ast.MapNode)
	if !ok {
		return nil, bad(path, "pairs of name and value are needed")
	}
	all := map[string]string{}
	return all, members(path, block, func(key, at string, value ast.Node) (err error) {
		all[key], err = textOf(at, value)
		return err
	})
}

// approvals reads approve: a policy for all, names that are always approved, or a policy for each
// name.
func approvals(path string, node ast.Node) (all []Approval, err error) {
	if policy, ok := scalarText(node); ok {
		return []Approval{{"*", external.Policy(policy)}}, nil
	}
	if block, ok := node.(ast.MapNode); ok {
		return all, members(path, block, func(key, at string, value ast.Node) error {
			policy, err := textOf(at, value)
			all = append(all, Approval{key, external.Policy(policy)})
			return err
		})
	}
	names, err := textsOf(path, node)
	for _, name := range names {
		all = append(all, Approval{name, external.Always})
	}
	return all, err
}

// jsonOf is a value of the file as JSON, its members in their order.
func jsonOf(path string, node ast.Node) (json.RawMessage, error) {
	var b strings.Builder
	if err := writeJSON(&b, path, node); err != nil {
		return nil, err
	}
	return json.RawMessage(b.String()), nil
}

func writeJSON(b *strings.Builder, path string, node ast.Node) error {
	switch n := node.(type) {
	case *ast.NullNode:
		b.WriteString("null")
		return nil
	case *ast.SequenceNode:
		b.WriteByte('[')
		for i, one := range n.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, fmt.Sprintf("%s[%d]", path, i), one); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case ast.MapNode:
		b.WriteByte('{')
		first := true
		err := members(path, n, func(key, at string, value ast.Node) error {
			if !first {
				b.WriteByte(',')
			}
			first = false
			name, _ := json.Marshal(key) // strings always marshal
			b.Write(append(name, ':'))
			return writeJSON(b, at, value)
		})
		b.WriteByte('}')
		return err
	}
	var value any
	err := yaml.NodeToValue(node, &value)
	raw, wrong := json.Marshal(value)
	if err != nil || wrong != nil {
		return bad(path, "a value that JSON has is needed: text, a number, true, false, null, a list or a block")
	}
	b.Write(raw)
	return nil
}

// MarshalYAML writes an entry as UnmarshalYAML reads it.
func (t ToolEntry) MarshalYAML() ([]byte, error) {
	if t.HTTP == nil && t.MCP == "" {
		return yaml.Marshal(t.Name)
	}
	entry := yaml.MapSlice{}
	put := func(key string, value any, there bool) {
		if there {
			entry = append(entry, yaml.MapItem{Key: key, Value: value})
		}
	}
	if t.HTTP != nil {
		put("http", t.HTTP.plain(), true)
	}
	put("mcp", t.MCP, t.MCP != "")
	put("allow", t.Allow, t.Allow != nil)
	rules := yaml.MapSlice{}
	for _, a := range t.Approve {
		rules = append(rules, yaml.MapItem{Key: a.Name, Value: string(a.Policy)})
	}
	put("approve", rules, len(rules) > 0)
	put("pass", t.Pass, t.Pass != nil)
	return yaml.MarshalWithOptions(entry, yaml.Flow(true))
}

// plain is a REST call as it stands in a file.
func (h *HTTPTool) plain() yaml.MapSlice {
	var call yaml.MapSlice
	for _, m := range []struct {
		key   string
		value any
		there bool
	}{
		{"name", h.Name, true}, {"description", h.Description, true},
		{"parameters", ordered(h.Parameters), len(h.Parameters) > 0},
		{"method", h.Method, h.Method != ""}, {"url", h.URL, true}, {"query", h.Query, h.Query != nil},
		{"headers", h.Headers, h.Headers != nil}, {"headers_env", h.HeadersEnv, h.HeadersEnv != nil},
		{"body", ordered(h.Body), len(h.Body) > 0}, {"timeout", h.Timeout.String(), h.Timeout != 0},
		{"response", h.Response, h.Response != ""}, {"idempotent", h.Idempotent, h.Idempotent},
	} {
		if m.there {
			call = append(call, yaml.MapItem{Key: m.key, Value: m.value})
		}
	}
	return call
}

// ordered is JSON as a value of YAML, its members in their order.
func ordered(raw json.RawMessage) (value any) {
	_ = yaml.UnmarshalWithOptions(raw, &value, yaml.UseOrderedMap()) // JSON is YAML
	return value
}

// Has says whether an agent has a built-in tool.
func Has(tools []*ToolEntry, name string) bool {
	return slices.ContainsFunc(tools, func(t *ToolEntry) bool { return t != nil && t.Name == name })
}

func builtins(names ...string) (all []*ToolEntry) {
	for _, name := range names {
		all = append(all, &ToolEntry{Name: name})
	}
	return all
}

// Allows says whether an agent may have a tool of the entry's server.
func (t *ToolEntry) Allows(name string) bool {
	return len(t.Allow) == 0 || slices.ContainsFunc(t.Allow, func(pattern string) bool { return fits(pattern, name) })
}

// Policy is when a person is asked before calls of a tool. A name counts before a pattern.
func (t *ToolEntry) Policy(name string) (policy external.Policy) {
	for _, a := range t.Approve {
		if a.Name == name {
			return a.Policy
		}
		if policy == "" && fits(a.Name, name) {
			policy = a.Policy
		}
	}
	return policy
}

// fits says whether a name is of a pattern, in which * stands for any letters.
func fits(pattern, name string) bool {
	parts := strings.Split(regexp.QuoteMeta(pattern), `\*`)
	return regexp.MustCompile(`^(?s:` + strings.Join(parts, ".*") + `)$`).MatchString(name)
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// taken are the names of tools that agents have beside those of their entries.
var taken = []string{recall.ToolName, note.ToolName, rag.SearchSpec().Name}

// validateTools checks the tools of all agents.
func (c Config) validateTools() error {
	for name, s := range sorted(c.MCP) {
		if err := s.validate(join("mcp", name), name); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(c.Agents.Subagents))
	for _, s := range c.AgentNames() {
		names = append(names, string(s))
	}
	err := cmp.Or(
		positive("max_tools", c.MaxTools),
		positive("approvals.expiry", c.Approvals.Expiry),
		optional(baseURL, "approvals.webhook.url", c.Approvals.Webhook.URL),
		variable("approvals.webhook.secret_env", c.Approvals.Webhook.SecretEnv, c.Approvals.Webhook.Secret != ""),
		when(c.Approvals.Webhook.URL != "" && c.Approvals.Webhook.SecretEnv == "", "approvals.webhook.secret_env",
			"is missing; name the variable that holds the key with which calls of the webhook are signed"),
		when(Has(c.Agents.Master.Tools, ToolDocuments), "agents.master.tools",
			"%s is for subagents: the master asks one that has them", ToolDocuments),
		c.validateEntries("agents.master.tools", c.Agents.Master.Tools, names),
	)
	for i, s := range c.Agents.Subagents {
		err = cmp.Or(err, c.validateEntries(fmt.Sprintf("agents.subagents[%d].tools", i), s.Tools, nil))
	}
	return err
}

// validateEntries checks the tools of one agent, which has others of some names.
func (c Config) validateEntries(key string, tools []*ToolEntry, others []string) error {
	seen := map[string]bool{}
	for _, name := range append(others, taken...) {
		seen[name] = true
	}
	calls := []string{}
	for i, t := range tools {
		at := fmt.Sprintf("%s[%d]", key, i)
		if t == nil {
			return bad(at, "is empty; the name of a tool is needed, or a block with http or mcp")
		}
		if err := c.validateEntry(at, t); err != nil {
			return err
		}
		name := t.Name
		switch {
		case t.HTTP != nil:
			name = t.HTTP.Name
			at += ".http.name"
			calls = append(calls, name)
		case t.MCP != "":
			name = "mcp " + t.MCP
			at += ".mcp"
		}
		switch {
		case seen[name] && (t.HTTP == nil || Has(tools, name)):
			return bad(at, "%q is listed twice; keep one", strings.TrimPrefix(name, "mcp "))
		case seen[name]:
			return bad(at, "the agent has a tool %q already; choose another name", name)
		}
		seen[name] = true
	}
	return when(len(calls) > c.MaxTools, key,
		"%d REST calls are more than max_tools (%d): %s; remove some, or raise max_tools", len(calls), c.MaxTools,
		strings.Join(calls, ", "))
}

// validateEntry checks one tool.
func (c Config) validateEntry(key string, t *ToolEntry) error {
	if t.HTTP == nil && t.MCP == "" {
		const only = "is for tools outside; remove it, or write http or mcp beside it"
		return cmp.Or(
			when(t.Allow != nil, key+".allow", only), when(t.Approve != nil, key+".approve", only),
			when(t.Pass != nil, key+".pass", only),
			when(t.Name == "", key, "the name of a tool is needed, or a block with http or mcp"),
			oneOf(key, t.Name, ToolCalculator, ToolDate, ToolDocuments),
		)
	}
	_, known := c.MCP[t.MCP]
	var servers []string
	for name := range sorted(c.MCP) {
		servers = append(servers, name)
	}
	err := cmp.Or(
		when(t.HTTP != nil && t.MCP != "", key+".mcp", "http is there too; write two entries"),
		when(t.HTTP != nil && t.Allow != nil, key+".allow", "is for the tools of an MCP server; remove it"),
		when(t.MCP != "" && !known, key+".mcp", "there is no MCP server %q; mcp has: %s", t.MCP,
			cmp.Or(strings.Join(servers, ", "), "none, name its url or command there")),
		each(key+".allow", t.Allow, func(at, name string) error {
			return when(name == "", at, "is empty; the name of a tool is needed, such as find_customer or \"order_*\"")
		}),
		each(key+".pass", t.Pass, func(at, what string) error { return oneOf(at, what, PassChat, PassUser) }),
	)
	if err != nil {
		return err
	}
	for _, a := range t.Approve {
		at := join(key+".approve", a.Name)
		if t.HTTP != nil {
			err = when(a.Name != "*" && a.Name != t.HTTP.Name, at, "the tool is %q; write approve: always", t.HTTP.Name)
		} else {
			err = when(!strings.Contains(a.Name, "*") && !t.Allows(a.Name), at,
				"%q is no tool that allow lets in; add it there, or remove it here", a.Name)
		}
		err = cmp.Or(err, oneOf(at, string(a.Policy), string(external.Always), string(external.FirstInChat),
			string(external.Never)))
		if err != nil {
			return err
		}
	}
	if t.HTTP == nil {
		return nil
	}
	return t.HTTP.validate(key + ".http")
}

func (h *HTTPTool) validate(key string) error {
	err := cmp.Or(
		when(h.Name == "", key+".name", "is missing; models call the tool by it, 1 to 64 characters of a-z A-Z 0-9 _ -"),
		when(!toolName.MatchString(h.Name), key+".name", "1 to 64 characters of a-z A-Z 0-9 _ - are needed, not %q", h.Name),
		when(h.Description == "", key+".description", "is missing; it tells the model when to call %s", h.Name),
		when(h.URL == "", key+".url", "is missing; write an address such as https://api.example.com/v1/orders/{order}"),
		when(h.Timeout < 0, key+".timeout", "must be more than 0, is %s", h.Timeout),
		headers(key, h.Headers, h.HeadersEnv, h.Values, h.URL),
	)
	if err != nil {
		return err
	}
	_, err = h.Call(nil)
	var wrong *httptool.Error
	if errors.As(err, &wrong) {
		return bad(key+"."+wrong.Field, "%s", wrong.Problem)
	}
	return err
}

// Call is the REST call, made by a client of httptool.
func (h *HTTPTool) Call(client *http.Client) (*httptool.Call, error) {
	c := h.Config
	c.Headers, c.Secrets = revealed(h.Headers, h.Values)
	return httptool.New(c, client)
}

// revealed are headers with those that are secret, and these alone.
func revealed(plain map[string]string, hidden map[string]Secret) (all map[string]string, values []string) {
	all = map[string]string{}
	for name, value := range plain {
		all[name] = value
	}
	for name, value := range sorted(hidden) {
		all[name] = value.Reveal()
		values = append(values, value.Reveal())
	}
	return all, values
}

// secretHeaders are those in which credentials are sent.
var secretHeaders = regexp.MustCompile(`(?i)^(authorization|proxy-authorization|cookie|.*(api-?key|token|secret|password).*)$`)

// headers checks the headers of calls to a URL.
func headers(key string, plain, named map[string]string, values map[string]Secret, to string) error {
	for name := range sorted(plain) {
		if secretHeaders.MatchString(name) || secretLike(plain[name]) {
			return bad(join(key+".headers", name), "a secret does not belong in the file; put it into an environment variable "+
				"and write headers_env: {%s: NAME_OF_THE_VARIABLE}", name)
		}
	}
	for name, env := range sorted(named) {
		at := join(key+".headers_env", name)
		_, twice := plain[name]
		if err := cmp.Or(
			when(twice, at, "headers has it too; keep one"),
			when(env == "", at, "is empty; name the variable that holds the value"),
			variable(at, env, values[name] != ""),
		); err != nil {
			return err
		}
	}
	u, err := url.Parse(to)
	if err != nil { // of placeholders; the address is checked elsewhere
		scheme, rest, _ := strings.Cut(to, "://")
		host, _, _ := strings.Cut(rest, "/")
		u = &url.URL{Scheme: scheme, Host: host}
	}
	return when(len(named) > 0 && u.Scheme == "http" && !inside(u.Hostname()), key+".url",
		"the values of headers_env would go through the internet in the clear; write https://")
}

// inside says whether a host is of this machine or of a network of one's own.
func inside(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc([]string{
		".localhost", ".local", ".internal", ".svc", ".home.arpa", ".test",
	}, func(end string) bool { return strings.HasSuffix(strings.ToLower(host), end) })
}

var serverName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

func (s MCPServer) validate(key, name string) error {
	return cmp.Or(
		when(!serverName.MatchString(name) || name == "http", key,
			"the name of a server is 1 to 32 characters of a-z 0-9 _ -, and not http"),
		when(s.URL == "" && len(s.Command) == 0, key, "says nothing; give a url, such as https://mcp.example.com/mcp, or a "+
			"command, such as [node, crm.js]"),
		when(s.URL != "" && len(s.Command) > 0, key+".command", "url is set too; keep one of them"),
		optional(baseURL, key+".url", s.URL),
		when(s.URL == "" && len(s.Headers) > 0, key+".headers", "is for a url; what a command needs, name in env"),
		when(s.URL == "" && len(s.HeadersEnv) > 0, key+".headers_env", "is for a url; what a command needs, name in env"),
		when(len(s.Command) == 0 && len(s.Env) > 0, key+".env", "is for a command; a url gets headers_env"),
		when(slices.Contains(s.Command, ""), key+".command",
			"an empty word in it; a program and its arguments are needed, such as [node, crm.js]"),
		each(key+".env", s.Env, func(at, name string) error { return variable(at, name, s.Environment[name] != "") }),
		when(slices.Contains(s.Env, ""), key+".env", "an empty name in it; remove it"),
		when(s.Timeout < 0, key+".timeout", "must be more than 0, is %s", s.Timeout),
		headers(key, s.Headers, s.HeadersEnv, s.Values, s.URL),
	)
}

// Pinned says whether tools of the server that change are not used.
func (s MCPServer) Pinned() bool { return s.Pin == nil || *s.Pin }

// AllHeaders are those of each request, with those that are secret.
func (s MCPServer) AllHeaders() map[string]string {
	all, _ := revealed(s.Headers, s.Values)
	return all
}

// Environ is what the command gets, as NAME=value.
func (s MCPServer) Environ() (all []string) {
	for _, name := range s.Env {
		all = append(all, name+"="+s.Environment[name].Reveal())
	}
	return all
}

// entries are the tools of all agents, each with its path.
func (c Config) entries(each func(key string, t *ToolEntry) error) error {
	for i, t := range c.Agents.Master.Tools {
		if err := each(fmt.Sprintf("agents.master.tools[%d]", i), t); err != nil {
			return err
		}
	}
	for i, s := range c.Agents.Subagents {
		for j, t := range s.Tools {
			if err := each(fmt.Sprintf("agents.subagents[%d].tools[%d]", i, j), t); err != nil {
				return err
			}
		}
	}
	return nil
}

// readToolSecrets reads the variables that tools name.
func (c *Config) readToolSecrets(vars map[string]string) {
	read := func(named map[string]string) map[string]Secret {
		values := map[string]Secret{}
		for name, variable := range named {
			values[name] = Secret(strings.TrimSpace(vars[variable]))
		}
		return values
	}
	_ = c.entries(func(_ string, t *ToolEntry) error {
		if t != nil && t.HTTP != nil {
			t.HTTP.Values = read(t.HTTP.HeadersEnv)
		}
		return nil
	})
	for name, s := range c.MCP {
		s.Values, s.Environment = read(s.HeadersEnv), map[string]Secret{}
		for _, name := range s.Env {
			s.Environment[name] = Secret(vars[name])
		}
		c.MCP[name] = s
	}
	c.Approvals.Webhook.Secret = Secret(strings.TrimSpace(vars[c.Approvals.Webhook.SecretEnv]))
}

// toolSecrets are the values of the variables that tools name.
func (c Config) toolSecrets() (all []string) {
	add := func(values map[string]Secret) {
		for _, value := range sorted(values) {
			if value != "" {
				all = append(all, value.Reveal())
			}
		}
	}
	_ = c.entries(func(_ string, t *ToolEntry) error {
		if t.HTTP != nil {
			add(t.HTTP.Values)
		}
		return nil
	})
	for _, s := range sorted(c.MCP) {
		add(s.Values)
		add(s.Environment)
	}
	add(map[string]Secret{"": c.Approvals.Webhook.Secret})
	return all
}

// RequireToolSecrets says which variable that a tool names is not set. An apiserver calls it
// before it starts; no other service calls tools.
func (c Config) RequireToolSecrets() error {
	unset := func(key string, named map[string]string, values map[string]Secret) error {
		for name, variable := range sorted(named) {
			if values[name] == "" {
				return c.origin.locate(bad(join(key+".headers_env", name),
					"the environment variable %s is not set; export the value of the header in it, such as \"Bearer …\"", variable))
			}
		}
		return nil
	}
	for name, s := range sorted(c.MCP) {
		key := join("mcp", name)
		if err := unset(key, s.HeadersEnv, s.Values); err != nil {
			return err
		}
		for i, name := range s.Env {
			if s.Environment[name] == "" {
				return c.origin.locate(bad(fmt.Sprintf("%s.env[%d]", key, i),
					"the environment variable %s is not set; export it, or remove it here", name))
			}
		}
	}
	return c.entries(func(key string, t *ToolEntry) error {
		if t.HTTP == nil {
			return nil
		}
		return unset(key+".http", t.HTTP.HeadersEnv, t.HTTP.Values)
	})
}

// RequireWebhookSecret says that the variable of the webhook's key is not set. A webmemory calls
// it before it starts; no other service calls the webhook.
func (c Config) RequireWebhookSecret() error {
	w := c.Approvals.Webhook
	return c.origin.locate(when(w.URL != "" && w.Secret == "", "approvals.webhook.secret_env",
		"the environment variable %s is not set; export the key in it", w.SecretEnv))
}
