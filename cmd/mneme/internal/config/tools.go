package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/tidwall/gjson"

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

// ToolEntry is an entry of an agent's tools: one that is built in, by its name; one REST call; or tools of an MCP server.
type ToolEntry struct {
	Name string    `yaml:"-"` // of a built-in one
	HTTP *HTTPTool `yaml:"http,omitempty"`
	MCP  string    `yaml:"mcp,omitempty"` // a server of Config.MCP

	// names of the server's tools, * for any letters; none for all
	Allow   []string  `yaml:"allow,omitempty" check:"dive,pattern"`
	Approve Approvers `yaml:"approve,omitempty"`
	Pass    []string  `yaml:"pass,omitempty" check:"dive,oneof=chat user"` // PassChat, PassUser
	// arguments whose values the user has to have said, or a person is asked
	FromUser []string `yaml:"from_user,omitempty"`
	Trust    string   `yaml:"trust,omitempty" check:"omitempty,oneof=own"` // own: results count as this service's own words
}

// What tools may be told beside their arguments.
const (
	PassChat = "chat"
	PassUser = "user"
)

// Approvers say when a person is asked before calls of which tools.
type Approvers []Approval

// Approval is when a person is asked before calls of some tools.
type Approval struct {
	Name   string // * stands for any letters
	Policy external.Policy
}

// HTTPTool is a REST call, see httptool.Config.
type HTTPTool struct {
	Name        string              `yaml:"name" check:"tool"`
	Description string              `yaml:"description"`
	Parameters  JSON                `yaml:"parameters,omitempty"`
	Method      string              `yaml:"method,omitempty"`
	URL         string              `yaml:"url"`
	Query       Texts               `yaml:"query,omitempty"`
	Headers     Texts               `yaml:"headers,omitempty"`
	HeadersEnv  map[string]Variable `yaml:"headers_env,omitempty"` // header → the variable that holds its whole value
	Body        JSON                `yaml:"body,omitempty"`
	// 0: external.DefaultTimeout
	Timeout  time.Duration `yaml:"timeout,omitempty" check:"omitempty,positive"`
	Response string        `yaml:"response,omitempty"`
	// a call may be made again where it is not known whether it was
	Idempotent bool `yaml:"idempotent,omitempty"`
}

// MCPServer says where a server of the Model Context Protocol is: URL or Command.
type MCPServer struct {
	URL        string              `yaml:"url" check:"omitempty,url"`
	Headers    map[string]string   `yaml:"headers"`
	HeadersEnv map[string]Variable `yaml:"headers_env"`               // as of an HTTPTool
	Command    []string            `yaml:"command" check:"dive,word"` // a program and its arguments
	Env        []Variable          `yaml:"env"`                       // that it gets
	// of a call; 0: external.DefaultTimeout
	Timeout time.Duration `yaml:"timeout" check:"omitempty,positive"`
	Pin     *bool         `yaml:"pin,omitempty"` // nil: its tools are pinned
}

// Approvals are the waits for persons.
type Approvals struct {
	Expiry  time.Duration `yaml:"expiry" default:"24h" check:"positive"` // then the answer is no
	Webhook Webhook       `yaml:"webhook"`
}

// Webhook is the endpoint that is told that a run waits for a person.
type Webhook struct {
	URL       string   `yaml:"url" check:"omitempty,url"`
	SecretEnv Variable `yaml:"secret_env"` // the key of the signature
}

// UnmarshalYAML reads an entry.
func (t *ToolEntry) UnmarshalYAML(node ast.Node) error {
	*t = ToolEntry{}
	if _, block := node.(ast.MapNode); block {
		type plain ToolEntry
		return yaml.NodeToValue(node, (*plain)(t), yaml.Strict())
	}
	name, ok := scalarText(node)
	t.Name = name
	return when(!ok, pathOf(node), "the name of a tool is needed, or a block with http or mcp")
}

// MarshalYAML writes an entry as UnmarshalYAML reads it.
func (t ToolEntry) MarshalYAML() (any, error) {
	if t.HTTP == nil && t.MCP == "" {
		return t.Name, nil
	}
	type plain ToolEntry
	return plain(t), nil
}

// UnmarshalYAML reads a policy for all tools, names that are always approved, or a policy for each name.
func (a *Approvers) UnmarshalYAML(node ast.Node) (err error) {
	*a = nil
	switch node.(type) {
	case ast.MapNode:
		err = eachPair(node, func(name, path string, value ast.Node) error {
			policy, ok := scalarText(value)
			*a = append(*a, Approval{name, external.Policy(policy)})
			return when(!ok, path, "text is needed")
		})
	case *ast.SequenceNode:
		var names []string
		err = yaml.NodeToValue(node, &names)
		for _, name := range names {
			*a = append(*a, Approval{name, external.Always})
		}
	default:
		policy, ok := scalarText(node)
		err = when(!ok, pathOf(node), "a policy is needed, or names of tools")
		*a = Approvers{{"*", external.Policy(policy)}}
	}
	return err
}

// MarshalYAML writes a policy for each name.
func (a Approvers) MarshalYAML() (any, error) {
	rules := yaml.MapSlice{}
	for _, one := range a {
		rules = append(rules, yaml.MapItem{Key: one.Name, Value: string(one.Policy)})
	}
	return rules, nil
}

// Texts are pairs of name and value, each value as it is written: 1.10 is no number.
type Texts map[string]string

// UnmarshalYAML reads them in a file.
func (t *Texts) UnmarshalYAML(node ast.Node) error {
	*t = Texts{}
	return eachPair(node, func(name, path string, value ast.Node) (err error) {
		text, ok := scalarText(value)
		(*t)[name] = text
		return when(!ok, path, "text is needed")
	})
}

// JSON is a value of a file as JSON, its members in their order.
type JSON json.RawMessage

// UnmarshalYAML reads it.
func (j *JSON) UnmarshalYAML(node ast.Node) error {
	*j = nil
	var b strings.Builder
	err := writeJSON(&b, node, false)
	*j = JSON(b.String())
	return err
}

// MarshalYAML writes it, its members in their order. JSON is YAML.
func (j JSON) MarshalYAML() (value any, err error) {
	return value, yaml.UnmarshalWithOptions(j, &value, yaml.UseOrderedMap())
}

// writeJSON writes a value of a file as JSON; its single values as texts where texts is set.
func writeJSON(b *strings.Builder, node ast.Node, texts bool) (err error) {
	comma := ""
	switch n := node.(type) {
	case *ast.NullNode:
		b.WriteString("null")
		return nil
	case *ast.SequenceNode:
		b.WriteByte('[')
		for _, one := range n.Values {
			b.WriteString(comma)
			err = cmp.Or(err, writeJSON(b, one, texts))
			comma = ","
		}
		b.WriteByte(']')
		return err
	case ast.MapNode:
		b.WriteByte('{')
		err = eachPair(node, func(key, _ string, value ast.Node) error {
			name, _ := json.Marshal(key) // strings always marshal
			b.WriteString(comma + string(name) + ":")
			comma = ","
			return writeJSON(b, value, texts)
		})
		b.WriteByte('}')
		return err
	}
	var value any
	text, ok := scalarText(node)
	if value = text; !ok || !texts {
		err = yaml.NodeToValue(node, &value)
	}
	raw, wrong := json.Marshal(value)
	b.Write(raw)
	return when(err != nil || wrong != nil, pathOf(node),
		"a value that JSON has is needed: text, a number, true, false, null, a list or a block")
}

// eachPair walks a block of keys to the first error.
func eachPair(node ast.Node, each func(key, path string, value ast.Node) error) error {
	block, ok := node.(ast.MapNode)
	if !ok {
		return bad(pathOf(node), "pairs of name and value are needed")
	}
	for pairs := block.MapRange(); pairs.Next(); {
		key := pairs.Key().GetToken().Value
		if err := each(key, join(pathOf(node), key), pairs.Value()); err != nil {
			return err
		}
	}
	return nil
}

// Has says whether an agent has a built-in tool.
func Has(tools []*ToolEntry, name string) bool {
	return slices.ContainsFunc(tools, func(t *ToolEntry) bool { return t != nil && t.Name == name })
}

func builtins(names ...string) (entries []*ToolEntry) {
	for _, name := range names {
		entries = append(entries, &ToolEntry{Name: name})
	}
	return entries
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

// taken are the names of tools that agents have beside those of their entries.
var reservedNames = []string{recall.ToolName, note.ToolName, rag.SearchTool}

// checkTools checks the webhook and the tools of all agents.
func (c Config) checkTools() error {
	var names []string
	for _, s := range c.AgentNames() {
		names = append(names, string(s))
	}
	err := cmp.Or(
		when(c.Approvals.Webhook.URL != "" && c.Approvals.Webhook.SecretEnv.Name == "", "approvals.webhook.secret_env",
			"is missing; name the variable that holds the key with which calls of the webhook are signed"),
		when(Has(c.Agents.Master.Tools, ToolDocuments), "agents.master.tools",
			"%s is for subagents: the master asks one that has them", ToolDocuments),
		c.checkEntries("agents.master.tools", c.Agents.Master.Tools, names),
	)
	for i, s := range c.Agents.Subagents {
		err = cmp.Or(err, c.checkEntries(fmt.Sprintf("agents.subagents[%d].tools", i), s.Tools, nil))
	}
	return err
}

// checkEntries checks the names of one agent's tools, which has others of some names.
func (c Config) checkEntries(key string, tools []*ToolEntry, others []string) error {
	used := map[string]bool{}
	for _, name := range append(others, reservedNames...) {
		used[name] = true
	}
	calls := []string{}
	for i, t := range tools {
		path, name := fmt.Sprintf("%s[%d]", key, i), t.Name
		switch {
		case t.HTTP != nil:
			name = t.HTTP.Name
			path += ".http.name"
			calls = append(calls, name)
		case t.MCP != "":
			name = "mcp " + t.MCP
			path += ".mcp"
		}
		switch {
		case used[name] && (t.HTTP == nil || Has(tools, name)):
			return bad(path, "%q is listed twice; keep one", strings.TrimPrefix(name, "mcp "))
		case used[name]:
			return bad(path, "the agent has a tool %q already; choose another name", name)
		}
		used[name] = true
	}
	return when(len(calls) > c.MaxTools, key,
		"%d REST calls are more than max_tools (%d): %s; remove some, or raise max_tools", len(calls), c.MaxTools,
		strings.Join(calls, ", "))
}

var (
	isTool   = among(ToolCalculator, ToolDate, ToolDocuments)
	isPolicy = among(string(external.Always), string(external.FirstInChat), string(external.WhenTainted),
		string(external.Never))
)

func (t ToolEntry) check(key string, c Config) error {
	if t.HTTP == nil && t.MCP == "" {
		const only = "is for tools outside; remove it, or write http or mcp beside it"
		return cmp.Or(
			when(t.Allow != nil, key+".allow", only), when(t.Approve != nil, key+".approve", only),
			when(t.Pass != nil, key+".pass", only), when(t.FromUser != nil, key+".from_user", only),
			when(t.Trust != "", key+".trust", only),
			when(t.Name == "", key, "the name of a tool is needed, or a block with http or mcp"),
			formed(key, t.Name, isTool),
		)
	}
	_, exists := c.MCP[t.MCP]
	err := cmp.Or(
		when(t.HTTP != nil && t.MCP != "", key+".mcp", "http is there too; write two entries"),
		when(t.HTTP != nil && t.Allow != nil, key+".allow", "is for the tools of an MCP server; remove it"),
		when(t.MCP != "" && !exists, key+".mcp", "there is no MCP server %q; mcp has: %s", t.MCP,
			cmp.Or(listed(c.MCP), "none, name its url or command there")),
	)
	for _, a := range t.Approve {
		path := join(key+".approve", a.Name)
		if t.HTTP != nil {
			err = cmp.Or(err, when(a.Name != "*" && a.Name != t.HTTP.Name, path, "the tool is %q; write approve: always",
				t.HTTP.Name))
		} else {
			err = cmp.Or(err, when(!strings.Contains(a.Name, "*") && !t.Allows(a.Name), path,
				"%q is no tool that allow lets in; add it there, or remove it here", a.Name))
		}
		err = cmp.Or(err, formed(path, string(a.Policy), isPolicy),
			when(a.Policy == external.Never && t.FromUser != nil, path,
				"from_user asks a person where the user did not say a value, and never asks none; remove one of them"))
	}
	for i, name := range t.FromUser {
		if t.HTTP != nil && !gjson.GetBytes(t.HTTP.Parameters, "properties."+gjson.Escape(name)).Exists() {
			err = cmp.Or(err, bad(fmt.Sprintf("%s.from_user[%d]", key, i), "%s has no parameter %q; write one that it has",
				t.HTTP.Name, name))
		}
	}
	return err
}

func (h HTTPTool) check(key string, _ Config) error {
	err := cmp.Or(
		when(h.Description == "", key+".description", "is missing; it tells the model when to call %s", h.Name),
		when(h.URL == "", key+".url", "is missing; write an address such as https://api.example.com/v1/orders/{order}"),
		headers(key, h.Headers, h.HeadersEnv, h.URL),
	)
	if err != nil {
		return err
	}
	_, err = h.Call(nil)
	if wrong, ok := errors.AsType[*httptool.Error](err); ok {
		return bad(key+"."+wrong.Field, "%s", wrong.Problem)
	}
	return err
}

// Call is the REST call, made by a client of httptool.
func (h *HTTPTool) Call(client *http.Client) (*httptool.Call, error) {
	merged, secrets := revealed(h.Headers, h.HeadersEnv)
	return httptool.New(httptool.Config{
		Name: h.Name, Description: h.Description, Parameters: json.RawMessage(h.Parameters), Method: h.Method, URL: h.URL,
		Query: h.Query, Headers: merged, Body: json.RawMessage(h.Body), Secrets: secrets, Response: h.Response,
	}, client)
}

// revealed are headers with those that are secret, and these alone.
func revealed(plain map[string]string, hidden map[string]Variable) (merged map[string]string, values []string) {
	merged = map[string]string{}
	maps.Copy(merged, plain)
	for name, v := range sorted(hidden) {
		merged[name] = v.Reveal()
		values = append(values, v.Reveal())
	}
	return merged, values
}

// secretHeaders are those in which credentials are sent.
var secretHeaders = regexp.MustCompile(`(?i)^(authorization|proxy-authorization|cookie|.*(api-?key|token|secret|password).*)$`)

// headers checks the headers of calls to a URL.
func headers(key string, plain map[string]string, hidden map[string]Variable, rawURL string) error {
	for name := range sorted(plain) {
		if secretHeaders.MatchString(name) || secretLike(plain[name]) {
			return bad(join(key+".headers", name), "a secret does not belong in the file; put it into an environment variable "+
				"and write headers_env: {%s: NAME_OF_THE_VARIABLE}", name)
		}
	}
	for name, v := range sorted(hidden) {
		path := join(key+".headers_env", name)
		_, twice := plain[name]
		if err := cmp.Or(when(twice, path, "headers has it too; keep one"),
			when(v.Name == "", path, "is empty; name the variable that holds the value")); err != nil {
			return err
		}
	}
	u, err := url.Parse(rawURL)
	if err != nil { // of placeholders; the address is checked elsewhere
		scheme, rest, _ := strings.Cut(rawURL, "://")
		host, _, _ := strings.Cut(rest, "/")
		u = &url.URL{Scheme: scheme, Host: host}
	}
	return when(len(hidden) > 0 && u.Scheme == "http" && !inside(u.Hostname()), key+".url",
		"the values of headers_env would go through the internet in the clear; write https://")
}

func (s MCPServer) check(key string, _ Config) error {
	return cmp.Or(
		when(key == "mcp.http", key, "the name of a server is not http, which stands for REST calls; choose another one"),
		when(s.URL == "" && len(s.Command) == 0, key, "says nothing; give a url, such as https://mcp.example.com/mcp, or a "+
			"command, such as [node, crm.js]"),
		when(s.URL != "" && len(s.Command) > 0, key+".command", "url is set too; keep one of them"),
		when(s.URL == "" && len(s.Headers) > 0, key+".headers", "is for a url; what a command needs, name in env"),
		when(s.URL == "" && len(s.HeadersEnv) > 0, key+".headers_env", "is for a url; what a command needs, name in env"),
		when(len(s.Command) == 0 && len(s.Env) > 0, key+".env", "is for a command; a url gets headers_env"),
		when(slices.Contains(s.Env, Variable{}), key+".env", "an empty name in it; remove it"),
		headers(key, s.Headers, s.HeadersEnv, s.URL),
	)
}

// Pinned says whether tools of the server that change are not used.
func (s MCPServer) Pinned() bool { return s.Pin == nil || *s.Pin }

// AllHeaders are those of each request, with those that are secret.
func (s MCPServer) AllHeaders() map[string]string {
	merged, _ := revealed(s.Headers, s.HeadersEnv)
	return merged
}

// Environ is what the command gets, as NAME=value.
func (s MCPServer) Environ() (env []string) {
	for _, v := range s.Env {
		env = append(env, v.Name+"="+v.Value.Reveal())
	}
	return env
}
