package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/external"
)

// withTools is a file with a subagent that has tools, from line 4 on, and with servers.
func withTools(tools string) string {
	return "agents:\n  subagents:\n  - {name: poet, description: d, tools: [date]}\n  - name: desk\n    description: d\n" +
		"    tools:\n" + strings.ReplaceAll("\n"+strings.Trim(tools, "\n"), "\n", "\n    ")[1:] +
		"\nmcp:\n  crm: {url: \"https://crm.example.com/mcp\", headers_env: {Authorization: CRM_TOKEN}}\n" +
		"  files: {command: [npx, server], env: [HOME_OF_FILES], pin: false, timeout: 5s}\n"
}

func TestTools(t *testing.T) {
	text := withTools(`
- calculator
- http:
    name: weather
    description: The weather of a city.
    parameters: {type: object, properties: {city: {type: string}, z: {type: integer, minimum: 1.5}, a: {enum: [null, yes, "1"]}}, required: [city]}
    method: post
    url: https://api.example.com/v1/{city}
    query: {units: "{z}", n: 1}
    headers: {X-Version: 2}
    headers_env: {Authorization: WEATHER}
    body: {q: "{a}", list: [1, true, null]}
    timeout: 5s
    response: main.temp
    idempotent: true
  approve: first_in_chat
  pass: [chat, user]
- {mcp: crm, allow: [find_customer, "order_*", refund], approve: {refund: first_in_chat, "order_*": always, order_list: never}}
- mcp: files
  approve: [write_file]
`)
	environ := []string{"WEATHER=Bearer sesame-weather\n", "CRM_TOKEN=Bearer sesame-crm", "HOME_OF_FILES=/sesame/files",
		"HOOK=sesame-hook", "MNEME_APPROVALS_WEBHOOK_URL=https://hooks.example.com/x", "MNEME_APPROVALS_WEBHOOK_SECRET_ENV=HOOK",
		"MNEME_MAX_TOOLS=7", "MNEME_APPROVALS_EXPIRY=1h", "MNEME_AGENTS_MASTER_TOOLS=[date, calculator]"}
	check := func(c Config) {
		require.Equal(t, builtins("date", "calculator"), c.Agents.Master.Tools)
		require.Equal(t, builtins("date"), c.Agents.Subagents[0].Tools)
		tools := c.Agents.Subagents[1].Tools
		require.Len(t, tools, 4)
		h := tools[1].HTTP
		require.Equal(t, `{"type":"object","properties":{"city":{"type":"string"},"z":{"type":"integer","minimum":1.5},`+
			`"a":{"enum":[null,"yes","1"]}},"required":["city"]}`, string(h.Parameters), "in its order")
		require.Equal(t, `{"q":"{a}","list":[1,true,null]}`, string(h.Body))
		require.Equal(t, Texts{"units": "{z}", "n": "1"}, h.Query)
		require.Equal(t, 5*time.Second, h.Timeout)
		require.True(t, h.Idempotent)
		require.Equal(t, external.FirstInChat, tools[1].Policy("weather"))
		require.Equal(t, []string{PassChat, PassUser}, tools[1].Pass)
		crm, files := tools[2], tools[3]
		require.True(t, crm.Allows("order_x") && crm.Allows("refund") && !crm.Allows("delete") && !crm.Allows("xorder_"))
		require.True(t, files.Allows("anything/at.all"))
		for name, want := range map[string]external.Policy{
			"refund": "first_in_chat", "order_x": "always",
			"order_list":    "never",
			"find_customer": ""} {
			require.Equal(t, want, crm.Policy(name), name)
		}
		require.Equal(t, external.Always, files.Policy("write_file"))
		require.Equal(t, map[string]string{"Authorization": "Bearer sesame-crm"}, c.MCP["crm"].AllHeaders())
		require.Equal(t, []string{"HOME_OF_FILES=/sesame/files"}, c.MCP["files"].Environ())
		require.True(t, c.MCP["crm"].Pinned() && !c.MCP["files"].Pinned())
		require.Equal(t, 5*time.Second, c.MCP["files"].Timeout)
		require.Equal(t, 7, c.MaxTools)
		require.Equal(t, time.Hour, c.Approvals.Expiry)
		require.Equal(t, "sesame-hook", c.Approvals.Webhook.SecretEnv.Reveal())
		require.ElementsMatch(t, []string{"Bearer sesame-weather", "Bearer sesame-crm",
			"/sesame/files", "sesame-hook"}, c.Secrets())
		require.NoError(t, c.RequireSecrets("mcp.", "agents."))
		require.NoError(t, c.RequireSecrets("approvals.webhook."))
	}
	c, err := load(t, text, environ...)
	require.NoError(t, err)
	check(c)
	// What is shown can be used again, and holds no secret.
	shown, err := c.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(shown)+fmt.Sprintf("%v %+v %#v", c, c, c.Agents.Subagents[1].Tools[1].HTTP), "sesame")
	c, err = load(t, string(shown), environ...)
	require.NoError(t, err)
	check(c)

	// Variables that are not set are reported by the service that needs them.
	for at, want := range map[int]string{
		0: "subagents[1].tools[1].http.headers_env.Authorization", 1: "crm.headers_env.Auth", 2: "files.env[0]",
	} {
		less := append([]string{}, environ...)
		less[at] = "X=1"
		c, err = load(t, text, less...)
		require.NoError(t, err)
		require.ErrorContains(t, c.RequireSecrets("mcp.", "agents."), want)
		require.Regexp(t, `^mneme.yaml:\d+: .* is not set; export`, c.RequireSecrets("mcp.", "agents.").Error())
	}
	environ[3] = "X=1"
	c, err = load(t, text, environ...)
	require.NoError(t, err)
	require.ErrorContains(t, c.RequireSecrets("approvals.webhook."), "HOOK is not set")
}

// Whatever is wrong is one sentence with its place.
func TestWrongTools(t *testing.T) {
	call := func(more string) string {
		return "- http: {name: weather, description: d, url: \"https://api.example.com/{city}\", parameters: {type: object, " +
			"properties: {city: {type: string}}}" + more + "}"
	}
	for name, c := range map[string]struct{ tools, want string }{
		"no such tool": {"- calculater", `mneme.yaml:7: agents.subagents[1].tools[0]: "calculater" is none of: calculator, date`},
		"twice":        {"- date\n- date", `tools[1]: "date" is listed twice; keep one`},
		"nothing":      {"- ", "tools[0]: is empty; a name is needed"},
		"a list":       {"- [date]", "tools[0]: the name of a tool is needed, or a block with http or mcp"},
		"a wrong key":  {"- {mpc: crm}", "mneme.yaml:7: agents.subagents[1].tools[0].mpc: unknown key; did you mean mcp?"},
		"an empty map": {"- {pass: [chat]}", "tools[0].pass: is for tools outside"},
		"no server":    {"- {mcp: crn}", `tools[0].mcp: there is no MCP server "crn"; mcp has: crm, files`},
		"both": {call("") + "\n  mcp: crm",
			"tools[0].mcp: http is there too; write two entries"},
		"a server twice":  {"- {mcp: crm}\n- {mcp: crm}", `mneme.yaml:8: agents.subagents[1].tools[1].mcp: "crm" is listed twice`},
		"a call twice":    {call("") + "\n" + call(""), `mneme.yaml:8: agents.subagents[1].tools[1].http.name: the agent has a tool "weather" already`},
		"a name of ours":  {strings.Replace(call(""), "weather", "recall", 1), `tools[0].http.name: the agent has a tool "recall"`},
		"a built-in name": {"- date\n" + strings.Replace(call(""), "weather", "date", 1), `"date"`},
		"a bad name":      {strings.Replace(call(""), "weather", "the weather", 1), "http.name: a tool's name is 1 to 64 characters of a-z A-Z 0-9 _ -, not"},
		"no name":         {"- http: {url: \"https://x.y/\"}", "http.name: is empty or missing; a tool's name is"},
		"no block":        {"- http: https://x.y/", "http: a block of keys is needed"},
		"no description":  {"- http: {name: a, url: \"https://x.y/\"}", "http.description: is missing; it tells the model"},
		"no url":          {"- http: {name: a, description: d}", "http.url: is missing"},
		"an unknown key":  {call(", headres: {}"), "http.headres: unknown key; did you mean headers?"},
		"a bad url":       {strings.Replace(call(""), "https://api.example.com", "https://{city}.example.com", 1), "http.url: arguments may fill"},
		"no parameter":    {call(", query: {x: \"{y}\"}"), `http.query: there is no parameter "y" for {y}`},
		"a bad schema":    {strings.Replace(call(""), "type: object", "type: [5]", 1), "http.parameters: a JSON schema of an object is needed"},
		"a circle":        {strings.Replace(call(""), "type: object", "\"$ref\": \"#\"", 1), "http.parameters: a JSON schema"},
		"a bad method":    {call(", method: fetch"), `http.method: "fetch" is none of: GET`},
		"a bad time":      {call(", timeout: 5"), `http.timeout: a duration such as 90s, 10m or 24h is needed, not "5"`},
		"a bad flag":      {call(", idempotent: maybe"), "http.idempotent: true or false is needed"},
		"a bad body":      {call(", body: {x: .inf}"), "body.x: a value that JSON has is needed"},
		"bad pairs":       {call(", headers: [a]"), "http.headers: pairs of name and value are needed"},
		"a secret header": {call(", headers: {Authorization: x}"), "headers.Authorization: a secret does not belong in the file"},
		"a secret":        {call(", headers: {X: sk-0123456789abcdef0123}"), "headers.X: a secret does not belong in the file"},
		"no variable":     {call(", headers_env: {Authorization: \"Bearer sesame\"}"), "headers_env.Authorization: this looks like a secret itself"},
		"in the clear": {strings.Replace(call(", headers_env: {Authorization: T}"), "https", "http", 1),
			"http.url: the values of headers_env would go through the internet in the clear"},
		"a header twice":     {call(", headers: {X: a}, headers_env: {X: T}"), "headers_env.X: headers has it too"},
		"a header of ours":   {call(", headers: {Mneme-User: a}"), "http.headers: Mneme-User is set by the service itself"},
		"allow of a call":    {call("") + "\n  allow: [x]", "tools[0].allow: is for the tools of an MCP server"},
		"approve another":    {call("") + "\n  approve: [x]", `approve.x: the tool is "weather"; write approve: always`},
		"a bad policy":       {call("") + "\n  approve: sometimes", `"sometimes" is none of: always, first_in_chat, when_tainted, never`},
		"a value of nothing": {call("") + "\n  from_user: [town]", `tools[0].from_user[0]: weather has no parameter "town"`},
		"a value of ours":    {"- {from_user: [x]}", "tools[0].from_user: is for tools outside"},
		"asks and does not": {call("") + "\n  from_user: [city]\n  approve: never",
			"approve.'*': from_user asks a person where the user did not say a value, and never asks none; remove one of them"},
		"trusts another":       {call("") + "\n  trust: all", `tools[0].trust: "all" is none of: own`},
		"trusts itself":        {"- {trust: own}", "tools[0].trust: is for tools outside"},
		"a policy of nothing":  {"- {mcp: crm, allow: [a], approve: [b]}", `approve.b: "b" is no tool that allow lets in`},
		"a bad policy of one":  {"- {mcp: crm, approve: {b: yes}}", `approve.b: "yes" is none of: always`},
		"an empty name":        {"- {mcp: crm, allow: [\"\"]}", "allow[0]: is empty or missing; it is the name of a tool"},
		"allow is text":        {"- {mcp: crm, allow: x}", "allow: a list is needed"},
		"passes on":            {"- {mcp: crm, pass: [chats]}", `pass[0]: "chats" is none of: chat, user`},
		"documents of nowhere": {"- {mcp: [crm]}", "mcp: text is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, withTools(c.tools))
			require.ErrorContains(t, err, c.want)
			require.Regexp(t, `^mneme.yaml:\d+: [^\n]*$`, err.Error())
			require.NotContains(t, err.Error(), "sesame")
		})
	}
	for text, want := range map[string]string{
		"mcp: {crm: {}}": "mneme.yaml:1: mcp.crm: says nothing; give a url",
		"mcp:\n  crm: {url: \"https://x.y\", command: [a]}":         "mneme.yaml:2: mcp.crm.command: url is set too",
		"mcp: {CRM: {url: \"https://x.y\"}}":                        "mcp.CRM: the name of a server is",
		"mcp: {http: {url: \"https://x.y\"}}":                       "the name of a server is not http",
		"mcp: {crm: {url: \"x.y\"}}":                                "mcp.crm.url: an http:// or https:// URL is needed",
		"mcp: {crm: {url: \"https://a:sesame@x.y\"}}":               "may hold a host and a path only",
		"mcp: {crm: {uri: x}}":                                      "mcp.crm.uri: unknown key; did you mean url?",
		"mcp: {crm: {command: [a], headers: {a: b}}}":               "mcp.crm.headers: is for a url",
		"mcp: {crm: {command: [a], headers_env: {a: B}}}":           "mcp.crm.headers_env: is for a url",
		"mcp: {crm: {url: \"https://x.y\", env: [A]}}":              "mcp.crm.env: is for a command",
		"mcp: {crm: {command: [\"\"]}}":                             "mcp.crm.command[0]: is empty or missing; it is a program",
		"mcp: {crm: {command: [a], env: [\"A=sesame\"]}}":           "mcp.crm.env[0]: this looks like a secret itself",
		"mcp: {crm: {command: [a], timeout: 5}}":                    "mcp.crm.timeout: a duration such as",
		"mcp: {crm: {command: [a], timeout: -5s}}":                  "mcp.crm.timeout: must be more than 0",
		"mcp: {crm: {url: \"http://x.y\", headers_env: {A: B}}}":    "in the clear; write https://",
		"mcp: {crm: {url: \"https://x.y\", headers: {Api-Key: a}}}": "headers.Api-Key: a secret does not belong",
		"max_tools: 0":                                  "max_tools: must be more than 0",
		"approvals: {expiry: 0s}":                       "approvals.expiry: must be more than 0",
		"approvals: {webhook: {url: \"https://x.y\"}}":  "approvals.webhook.secret_env: is missing",
		"approvals: {webhook: {url: x, secret_env: A}}": "approvals.webhook.url: an http:// or https://",
		"agents: {master: {tools: [documents]}}":        "documents is for subagents",
		"agents: {master: {tools: [{http: {name: analytic, description: d, url: \"https://x.y\"}}]}}": `the agent has a tool "analytic"`,
		"max_tools: 1\nagents:\n  master:\n    tools:\n    - http: {name: a, description: d, url: \"https://x.y\"}\n" +
			"    - http: {name: b, description: d, url: \"https://x.y\"}": "mneme.yaml:4: agents.master.tools: 2 REST calls are more than max_tools (1): a, b",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := load(t, text)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "sesame")
		})
	}
	for _, host := range []string{"http://127.0.0.1:1", "http://localhost", "http://crm:8000", "http://10.1.2.3", "http://[::1]:9",
		"http://crm.prod.svc", "http://crm.internal"} {
		_, err := load(t, "mcp: {crm: {url: \""+host+"\", headers_env: {A: B}}}")
		require.NoError(t, err, host)
	}
	_, err := load(t, "", "MNEME_MCP={crm: {uri: x}}")
	require.EqualError(t, err, "MNEME_MCP: mcp.crm.uri: unknown key; did you mean url?")
}
