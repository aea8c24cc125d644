package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"mneme/memory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// load reads text as mneme.yaml in a working directory of its own.
func load(t *testing.T, text string, environ ...string) (Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(DefaultFile, []byte(text), 0o600))
	return Load("", environ)
}

// A gateway alone does not know the agents that call it; their names are checked all the same.
func TestAGatewayAloneTakesAnySubagentsName(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "proxy:\n  teammates: {reviewer: offline}\n  backends: {offline: {kind: offline, models: [a, b]}}\n"
	require.NoError(t, os.WriteFile(DefaultFile, []byte(text), 0o600))
	c, err := LoadGateway("", nil)
	require.NoError(t, err)
	require.Equal(t, "offline", c.Proxy.Teammates["reviewer"])
	require.Equal(t, []string{"a", "b"}, c.Proxy.Backends["offline"].Models)
	_, err = Load("", nil)
	require.ErrorContains(t, err, `proxy.teammates.reviewer: there is no subagent "reviewer"`)
	_, err = LoadGateway("", []string{"MNEME_PROXY_TEAMMATES={Re.viewer: offline}"})
	require.ErrorContains(t, err, `a subagent's name is 1 to 64 characters of a-z 0-9 _ -, not "Re.viewer"`)
}

func TestDefaultsNeedNoFile(t *testing.T) {
	golden, err := filepath.Abs("testdata/defaults.yaml")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	c, err := Load("", nil)
	require.NoError(t, err)
	require.NoError(t, c.RequireKeys())
	got, err := yaml.MarshalWithOptions(c, yaml.UseLiteralStyleIfMultiline(true))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestTheDefaultsAreAValidFile(t *testing.T) {
	golden, err := os.ReadFile("testdata/defaults.yaml")
	require.NoError(t, err)
	_, err = load(t, string(golden))
	require.NoError(t, err)
}

func TestAnEmptyFileIsTheDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	want, err := Load("", nil)
	require.NoError(t, err)
	for _, text := range []string{"", "\n\n", "# nothing yet\n", "---\n", "webmemory:\n"} {
		c, err := load(t, text)
		require.NoError(t, err, "%q", text)
		c.origin, want.origin = origin{}, origin{}
		require.Equal(t, want, c, "%q", text)
	}
}

func TestWrongFiles(t *testing.T) {
	const backend = "proxy:\n  backends:\n    kimi:\n      kind: anthropic\n"
	for name, test := range map[string]struct {
		text, want string
	}{
		"fusion that there is not": {
			"retrieval: {fusion: max}\n",
			`mneme.yaml:1: retrieval.fusion: "max" is none of: wsum, rrf`,
		},
		"dimensions of no model": {
			"retrieval:\n  embeddings: {dimensions: 96}\n",
			`mneme.yaml:2: retrieval.embeddings.dimensions: there is no model that they could be of; set ` +
				`retrieval.embeddings.model`,
		},
		"batches of nothing": {
			"retrieval:\n  embeddings: {model: m, batch_size: 0}\n",
			`mneme.yaml:2: retrieval.embeddings.batch_size: must be more than 0, is 0`,
		},
		"embeddings of a backend that has none": {
			"proxy:\n  backends: {off: {kind: offline}}\n  embeddings_backend: off\n",
			`mneme.yaml:3: proxy.embeddings_backend: backend "off" is of kind offline; embeddings need one of kind openai`,
		},
		"unknown key": {
			"webmemory:\n  listn: x\n",
			`mneme.yaml:2: webmemory.listn: unknown key; did you mean listen?`,
		},
		"unknown section": {
			"proxi: {}\n",
			`mneme.yaml:1: proxi: unknown key; did you mean proxy?`,
		},
		"key of another section": {
			"apiserver:\n  listen: 127.0.0.1:1\n  max_history: 4\n",
			`mneme.yaml:3: apiserver.max_history: unknown key; did you mean webmemory.max_history?`,
		},
		"key like no other": {
			"redis: {colour: red}\n",
			`mneme.yaml:1: redis.colour: unknown key; docs/configuration.md lists what there is`,
		},
		"unknown key of a backend": {
			backend + "      base_uri: https://x\n",
			`mneme.yaml:5: proxy.backends.kimi.base_uri: unknown key; did you mean base_url?`,
		},
		"unknown key of a backend whose name has a dot": {
			"proxy:\n  backends:\n    gpt-4.1: {kin: openai}\n",
			`mneme.yaml:3: proxy.backends.'gpt-4.1'.kin: unknown key; did you mean kind?`,
		},
		"unknown key of a subagent": {
			"agents:\n  subagents:\n    - name: analytic\n    - name: second\n      sistem: x\n",
			`mneme.yaml:5: agents.subagents[1].sistem: unknown key; did you mean system?`,
		},
		"key twice": {
			"data_dir: a\ndata_dir: b\n",
			`mneme.yaml:2: the key data_dir stands here a second time; keep one`,
		},
		"number in words": {
			"webmemory:\n  # how many\n  max_history: many\n",
			`mneme.yaml:3: webmemory.max_history: a whole number is needed, not "many"`,
		},
		"yes for true": {
			"session_logs: yes please\n",
			`mneme.yaml:1: session_logs: true or false is needed, not "yes please"`,
		},
		"duration in words": {
			"run_timeout: 5 parsecs\n",
			`mneme.yaml:1: run_timeout: a duration such as 90s, 10m or 24h is needed, not "5 parsecs"`,
		},
		"duration without a unit": {
			"proxy:\n  state_machine:\n    ttl: 24\n",
			`mneme.yaml:3: proxy.state_machine.ttl: a duration such as 90s, 10m or 24h is needed, not "24"`,
		},
		"a client certificate for Redis without a key": {
			"redis: {addrs: ['r:6379'], tls: {cert: a.pem}}\n",
			`mneme.yaml:1: redis.tls: a client certificate needs both redis.tls.cert and redis.tls.key`,
		},
		"TLS for a Redis without TLS": {
			"redis: {url: 'redis://r:6379', tls: {ca: a.pem}}\n",
			`mneme.yaml:1: redis.tls: TLS needs a redis.url that begins with rediss://, or redis.addrs`,
		},
		"negative duration": {
			"run_timeout: -5s\n",
			`mneme.yaml:1: run_timeout: must be more than 0, is -5s`,
		},
		"section is a value": {
			"webmemory: 8080\n",
			`mneme.yaml:1: webmemory: a block of keys is needed here, not a single value`,
		},
		"list is a block": {
			"agents:\n  subagents:\n    analytic: {}\n",
			`mneme.yaml:3: agents.subagents: a list is needed here, not a block of keys`,
		},
		"no mapping at all": {
			"- 1\n",
			`mneme.yaml:1: a block of keys is needed here, not a list`,
		},
		"not YAML": {
			"webmemory: [\n",
			`mneme.yaml:1: not valid YAML: sequence end token ']' not found`,
		},
		"two documents": {
			"data_dir: a\n---\ndata_dir: b\n",
			`mneme.yaml: holds more than one YAML document; keep one`,
		},
		"address without a port": {
			"webmemory: {listen: localhost}\n",
			`mneme.yaml:1: webmemory.listen: host:port is needed, such as 127.0.0.1:8080, not "localhost"`,
		},
		"port out of range": {
			"redis:\n  embedded_listen: 127.0.0.1:70000\n",
			`mneme.yaml:2: redis.embedded_listen: host:port is needed, such as 127.0.0.1:8080, not "127.0.0.1:70000"`,
		},
		"URL without a scheme": {
			"apiserver: {proxy: '127.0.0.1:8082'}\n",
			`mneme.yaml:1: apiserver.proxy: an http:// or https:// URL is needed, not "127.0.0.1:8082"`,
		},
		"redis URL of another kind": {
			"redis:\n  url: http://localhost:6379\n",
			`mneme.yaml:2: redis.url: redis://host:6379, rediss://host:6379 or unix:///path is needed; leave it empty for ` +
				`the embedded store`,
		},
		"redis password in the file": {
			"redis:\n  url: redis://:hush@localhost:6379\n",
			`mneme.yaml:2: redis.url: a password does not belong in the file; name its variable in redis.password_env, or ` +
				`give the whole URL in MNEME_REDIS_URL`,
		},
		"redis password not set": {
			"redis:\n  url: redis://localhost:6379\n  password_env: REDIS_SECRET\n",
			`mneme.yaml:3: redis.password_env: the environment variable REDIS_SECRET is not set; export the password in it, ` +
				`or write it into .env and run docker compose up -d`,
		},
		"redis URL and addresses": {
			"redis:\n  url: redis://localhost:6379\n  addrs: [\"localhost:7000\"]\n",
			`mneme.yaml:3: redis.addrs: redis.url is set too; keep one of them`,
		},
		"unknown log level": {
			"log: {level: loud}\n",
			`mneme.yaml:1: log.level: "loud" is none of: debug, info, warn, error`,
		},
		"backend without a kind": {
			"proxy:\n  backends:\n    kimi: {base_url: https://x}\n",
			`mneme.yaml:3: proxy.backends.kimi.kind: is missing; it is one of: anthropic, openai, responses, interactions, copilot, offline`,
		},
		"backend of unknown kind": {
			"proxy:\n  backends:\n    kimi: {kind: gemini}\n",
			`mneme.yaml:3: proxy.backends.kimi.kind: "gemini" is none of: anthropic, openai, responses, interactions, copilot, offline`,
		},
		"backend without an address": {
			backend,
			`mneme.yaml:3: proxy.backends.kimi.base_url: is missing; a backend of kind anthropic needs the address of its ` +
				`API, such as https://api.anthropic.com`,
		},
		"anthropic address with /v1": {
			backend + "      base_url: https://api.anthropic.com/v1/\n",
			`mneme.yaml:5: proxy.backends.kimi.base_url: for kind anthropic it goes without the /v1 at its end`,
		},
		"window of more than is kept": {
			"webmemory:\n  max_history: 20\n  context_window: 30\n",
			`mneme.yaml:3: webmemory.context_window: 30 messages are more than webmemory.max_history keeps (20); lower it, ` +
				`or raise max_history`,
		},
		"subagents' window of more than is kept": {
			"webmemory:\n  max_history: 20\n  subagent_context_window: 30\n",
			`mneme.yaml:3: webmemory.subagent_context_window: 30 messages are more than webmemory.max_history keeps (20); ` +
				`lower it, or raise max_history`,
		},
		"replicas of the embedded store": {
			"redis:\n  wait_replicas: 1\n",
			`mneme.yaml:2: redis.wait_replicas: the embedded store has no replicas; remove it, or set redis.url or redis.addrs`,
		},
		"shards of the embedded store": {
			"redis:\n  list_shards: 64\n",
			`mneme.yaml:2: redis.list_shards: the embedded store is no Cluster; remove it, or set redis.url or redis.addrs`,
		},
		"shards of no power of two": {
			"redis:\n  url: redis://x\n  list_shards: 1000\n",
			`mneme.yaml:3: redis.list_shards: must be a power of two, such as 1024, so that a list that gets more shards ` +
				`keeps those that it has`,
		},
		"a cold store of another kind": {
			"cold:\n  store: gs://bucket\n",
			`mneme.yaml:2: cold.store: s3://bucket or s3://bucket/prefix is needed, or a folder; where the server is says ` +
				`cold.endpoint`,
		},
		"chats that fall asleep at once": {
			"cold:\n  after: 5m\n",
			`mneme.yaml:2: cold.after: chats fall asleep after an hour or more, not 5m0s`,
		},
		"a server of the folder": {
			"cold:\n  store: ./cold\n  endpoint: http://minio:9000\n",
			`mneme.yaml:3: cold.endpoint: it goes with cold.store: s3://bucket/prefix`,
		},
		"a bucket without a key": {
			"cold:\n  store: s3://bucket\n",
			`mneme.yaml:1: cold.access_key_env: a bucket needs a key: name the variables that hold it in cold.access_key_env and ` +
				`cold.secret_key_env`,
		},
		"two system prompts": {
			"agents:\n  master:\n    system: a\n    system_replace: b\n",
			`mneme.yaml:4: agents.master.system_replace: agents.master.system is set too, which adds to the built-in prompt; ` +
				`keep one of them`,
		},
		"unknown active backend": {
			backend + "      base_url: https://x\n  active: kimmi\n",
			`mneme.yaml:6: proxy.active: there is no backend "kimmi"; proxy.backends has: kimi`,
		},
		"two backends, none active": {
			"proxy:\n  backends:\n    a: {kind: offline}\n    b: {kind: offline}\n",
			`mneme.yaml:1: proxy.active: several backends are configured; name the one for the main pipeline: a, b`,
		},
		"unknown teammate backend": {
			"proxy:\n  teammate_backend: glm\n",
			`mneme.yaml:2: proxy.teammate_backend: there is no backend "glm"; proxy.backends has: offline`,
		},
		"teammate who is no subagent": {
			"proxy:\n  teammates: {analytics: offline}\n",
			`mneme.yaml:2: proxy.teammates.analytics: there is no subagent "analytics"; there are: analytic, knowledge`,
		},
		"subagent twice": {
			"agents:\n  subagents:\n    - name: analytic\n    - name: analytic\n",
			`mneme.yaml:4: agents.subagents[1].name: "analytic" stands here already; every name stands once`,
		},
		"subagent with a bad name": {
			"agents:\n  subagents:\n    - name: The Boss\n",
			`mneme.yaml:3: agents.subagents[0].name: a subagent's name is 1 to 64 characters of a-z 0-9 _ -, not "The Boss"`,
		},
		"subagent without a name": {
			"agents:\n  subagents:\n    - description: x\n",
			`mneme.yaml:3: agents.subagents[0].name: is empty or missing; a subagent's name is 1 to 64 characters of a-z 0-9 _ -`,
		},
		"subagent named master": {
			"agents:\n  subagents:\n    - name: master\n",
			`mneme.yaml:3: agents.subagents[0].name: "master" is the master's own name; choose another`,
		},
		"subagent without a description": {
			"agents:\n  subagents:\n    - name: poet\n",
			`mneme.yaml:3: agents.subagents[0].description: is missing; it tells the master what to delegate to poet`,
		},
		"unknown tool": {
			"agents:\n  subagents:\n    - name: analytic\n      tools:\n        - date\n        - shell\n",
			`mneme.yaml:6: agents.subagents[0].tools[1]: "shell" is none of: calculator, date, documents`,
		},
		"unknown calls policy": {
			"agents:\n  subagents:\n    - {name: analytic, calls: both}\n",
			`mneme.yaml:3: agents.subagents[0].calls: "both" is none of: serial, isolated`,
		},
		"unknown key of a member": {
			"panel:\n  members:\n    - {name: a}\n    - {name: b, modle: x}\n",
			`mneme.yaml:4: panel.members[1].modle: unknown key; did you mean model?`,
		},
		"panel of one": {
			"panel:\n  members: [{name: a}]\n",
			`mneme.yaml:2: panel.members: a panel has 2 to 8 members, not 1; three are usual`,
		},
		"panel of nine": {
			"panel:\n  members: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, " +
				"{name: i}]\n",
			`mneme.yaml:2: panel.members: a panel has 2 to 8 members, not 9; three are usual`,
		},
		"member twice": {
			"panel:\n  members:\n    - {name: a, model: x}\n    - {name: a, model: y}\n",
			`mneme.yaml:4: panel.members[1].name: "a" stands here already; every name stands once`,
		},
		"member without a name": {
			"panel:\n  members:\n    - {name: a}\n    - {model: x}\n",
			`mneme.yaml:4: panel.members[1].name: is empty or missing; a member's name is 1 to 64 characters of a-z 0-9 _ -`,
		},
		"member with a bad name": {
			"panel:\n  members: [{name: GPT 5}, {name: b}]\n",
			`mneme.yaml:2: panel.members[0].name: a member's name is 1 to 64 characters of a-z 0-9 _ -, not "GPT 5"`,
		},
		"member with a subagent's name": {
			"panel:\n  members: [{name: analytic}, {name: b}]\n",
			`mneme.yaml:2: panel.members[0].name: "analytic" is a subagent, and they would share a place in proxy.teammates; ` +
				`choose another`,
		},
		"subagent with the panel's name": {
			"agents:\n  subagents: [{name: discuss, description: x}]\npanel:\n  members: [{name: a}, {name: b}]\n",
			`mneme.yaml:2: agents.subagents[0].name: "discuss" is the panel's; choose another name, or remove panel.members`,
		},
		"moderator who is nobody": {
			"panel:\n  members: [{name: a}, {name: b}]\n  moderator: {name: c}\n",
			`mneme.yaml:3: panel.moderator.model: is missing; only the name of a member may stand alone, and "c" is none`,
		},
		"moderator without a name": {
			"panel:\n  members: [{name: a}, {name: b}]\n  moderator: {model: c}\n",
			`mneme.yaml:3: panel.moderator.name: is empty or missing; a member's name is 1 to 64 characters of a-z 0-9 _ -`,
		},
		"moderator without a panel": {
			"panel:\n  moderator: {name: a, model: x}\n",
			`mneme.yaml:2: panel.moderator: there is nothing to moderate; list the models under panel.members`,
		},
		"commands without a panel": {
			"panel: {commands: true}\n",
			`mneme.yaml:1: panel.commands: there is nothing to command; list the models under panel.members`,
		},
		"panel without room for a call": {
			"panel: {limit: 0}\n",
			`mneme.yaml:1: panel.limit: must be more than 0, is 0`,
		},
		"panel without time": {
			"panel: {timeout: 0s}\n",
			`mneme.yaml:1: panel.timeout: must be more than 0, is 0s`,
		},
		"panel with more time than a run": {
			"panel:\n  members: [{name: a}, {name: b}]\n  timeout: 10m\n",
			`mneme.yaml:3: panel.timeout: 10m0s is not less than run_timeout (10m0s), so one slow model would end the whole ` +
				`run; lower it, or raise run_timeout`,
		},
		"time of a panel without a unit": {
			"panel:\n  timeout: 90\n",
			`mneme.yaml:2: panel.timeout: a duration such as 90s, 10m or 24h is needed, not "90"`,
		},
		"teammate who is no member": {
			"proxy:\n  teammates: {gpt: offline}\npanel:\n  members: [{name: a}, {name: b}]\n  moderator: {name: c, model: x}\n",
			`mneme.yaml:2: proxy.teammates.gpt: there is no subagent "gpt"; there are: analytic, knowledge, a, b, c`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.text)
			require.EqualError(t, err, test.want)
		})
	}
}

func TestANamedFileMustExist(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Load("other.yaml", nil)
	require.EqualError(t, err,
		"other.yaml: no such file; give an existing one with --config, or leave the flag out for the defaults")
	_, err = Load(".", nil)
	require.EqualError(t, err, ".: is a directory")
}

func TestBackendsChooseThemselves(t *testing.T) {
	c, err := load(t, "proxy:\n  backends:\n    glm: {kind: openai, base_url: http://localhost:1/v1}\n")
	require.NoError(t, err)
	require.Equal(t, "glm", c.Proxy.Active)
	require.Equal(t, "glm", c.Proxy.TeammateBackend)
}

func TestKeysComeFromTheEnvironmentOnly(t *testing.T) {
	const file = "proxy:\n  backends:\n    kimi:\n      kind: anthropic\n      base_url: https://x\n      api_key_env: " +
		"KIMI_API_KEY\n"
	c, err := load(t, file)
	require.NoError(t, err, "services other than the proxy run without the keys")
	require.EqualError(t, c.RequireKeys(),
		"mneme.yaml:6: proxy.backends.kimi.api_key_env: the environment variable KIMI_API_KEY is not set; export the key "+
			"in it, or write it into .env and run docker compose up -d")

	c, err = load(t, file, "KIMI_API_KEY=hush")
	require.NoError(t, err)
	require.NoError(t, c.RequireKeys())
	require.Equal(t, "hush", c.Proxy.Backends["kimi"].APIKeyEnv.Reveal())
	dump, err := yaml.Marshal(c)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, dump), "hush")
}

func TestSubagentsKeepWhatTheFileLeavesOut(t *testing.T) {
	c,
		err := load(t,
		"agents:\n  subagents:\n    - {name: analytic, model: small}\n    - {name: poet, description: Writes verse., "+
			"tools: []}\n")
	require.NoError(t, err)
	require.Len(t, c.Agents.Subagents, 2)
	analytic, poet := c.Agents.Subagents[0], c.Agents.Subagents[1]
	require.Equal(t, "small", analytic.Model)
	require.Equal(t, builtins(ToolCalculator, ToolDate), analytic.Tools)
	require.Equal(t, analyticSystem, analytic.System)
	require.Equal(t, Subagent{
		Name: "poet", Description: "Writes verse.", Model: "poet", Tools: []*ToolEntry{}, Calls: "serial",
		MaxSteps: defaultMaxSteps,
	}, poet)

	c, err = load(t, "agents:\n  subagents: []\n")
	require.NoError(t, err)
	require.Empty(t, c.Agents.Subagents)
}

func TestMembersOfAPanelAreCompleted(t *testing.T) {
	const file = "panel:\n  members: [{name: a, model: large}, {name: b}]\n"
	c, err := load(t, file)
	require.NoError(t, err)
	require.Equal(t, []Member{{"a", "large"}, {"b", "b"}}, c.Panel.Members)
	require.Equal(t, Member{"a", "large"}, c.Panel.Moderator)
	require.Equal(t, []memory.Agent{"analytic", "knowledge", "discuss", "ensemble"}, c.AgentNames())

	c, err = load(t, file+"  moderator: {name: b}\n  commands: true\n",
		"MNEME_PANEL_MEMBERS=[{name: a}, {name: b, model: small}]", "MNEME_PANEL_LIMIT=2")
	require.NoError(t, err)
	require.Equal(t, Member{"b", "small"}, c.Panel.Moderator)
	require.Equal(t, 2, c.Panel.Limit)
	require.True(t, c.Panel.Commands)

	c, err = load(t, file, "MNEME_PANEL_MODERATOR_NAME=judge", "MNEME_PANEL_MODERATOR_MODEL=x",
		"MNEME_PROXY_TEAMMATES={a: offline, judge: offline}")
	require.NoError(t, err)
	require.Equal(t, Member{"judge", "x"}, c.Panel.Moderator)

	c, err = load(t, "")
	require.NoError(t, err)
	require.False(t, c.Panel.On())
	require.Equal(t, []memory.Agent{"analytic", "knowledge"}, c.AgentNames())
}

func TestEnvironmentLiesOverTheFile(t *testing.T) {
	c, err := load(t, `
webmemory: {listen: "127.0.0.1:1", max_history: 7}
proxy:
  backends:
    my-glm: {kind: openai, base_url: http://old/v1}
  teammates: {knowledge: my-glm}
`,
		"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0",
		"MNEME_RUN_TIMEOUT=90s",
		"MNEME_SESSION_LOGS=false",
		"MNEME_OTEL_CONTENT=1",
		"MNEME_LOG_FILE=",
		"MNEME_AGENTS_MASTER_SYSTEM={You: [are: Ada",
		"MNEME_REDIS_ADDRS=[a:1, b:2]",
		"MNEME_PROXY_TEAMMATES={analytic: local}",
		"MNEME_PROXY_ACTIVE=local",
		`MNEME_PROXY_BACKENDS=local:
  kind: anthropic
  base_url: http://local
  model_map: {opus: "llama3:8b", haiku: tiny}
  thinking: {budget_tokens: 5}`,
		"MNEME_AGENTS_SUBAGENTS=[{name: analytic, max_steps: 3}]",
		"MNEME_AGENTS_MASTER_MODEL=",
		"MNEME_CONFIG=elsewhere", "MNEME_URL=http://x", "PATH=/bin",
		"MNEME_WEBMEMORY_SERVICE_HOST=10.0.0.1", "MNEME_WEBMEMORY_PORT=tcp://10.0.0.1:80",
		"MNEME_WEBMEMORY_PORT_80_TCP_ADDR=10.0.0.1",
	)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:0", c.Webmemory.Listen)
	require.Equal(t, 7, c.Webmemory.MaxHistory)
	require.Equal(t, 90*time.Second, c.RunTimeout)
	require.False(t, c.SessionLogs)
	require.Equal(t, []string{"a:1", "b:2"}, c.Redis.Addrs)
	require.True(t, c.Otel.Content)
	require.Equal(t, "{You: [are: Ada", c.Agents.Master.System, "text is no YAML")
	require.Equal(t, map[string]string{"analytic": "local"}, c.Proxy.Teammates, "without the file's entry")
	require.Equal(t, map[string]Backend{"local": {
		Kind: "anthropic", BaseURL: "http://local", Thinking: Thinking{BudgetTokens: 5},
		ModelMap: map[string]string{"opus": "llama3:8b", "haiku": "tiny"},
	}}, c.Proxy.Backends, "without the file's backend")
	require.Len(t, c.Agents.Subagents, 1)
	require.Equal(t, 3, c.Agents.Subagents[0].MaxSteps)
	require.Equal(t, analyticSystem, c.Agents.Subagents[0].System)
	require.Equal(t, "master", c.Agents.Master.Model, "an empty variable counts as not set")
}

func TestTheGatewaysOwnVariables(t *testing.T) {
	c, err := load(t, "", "GATEWAY_STATE_MACHINE_ENABLED=false", "STATE_MACHINE_TTL_SECONDS=60",
		"STATE_MACHINE_MAX_TURNS=9")
	require.NoError(t, err)
	require.Equal(t, StateMachine{Enabled: false, TTL: time.Minute, MaxTurns: 9, Wait: 50 * time.Millisecond},
		c.Proxy.StateMachine)

	c, err = load(t, "", "STATE_MACHINE_MAX_TURNS=9", "MNEME_PROXY_STATE_MACHINE_MAX_TURNS=10")
	require.NoError(t, err)
	require.Equal(t, 10, c.Proxy.StateMachine.MaxTurns)
}

func TestWrongVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"MNEME_WEBMEMORY_LISTN=x":          "no key has this name; did you mean MNEME_WEBMEMORY_LISTEN?",
		"MNEME_NOTHING_LIKE_IT_AT_ALL=x":   "no key has this name; docs/configuration.md lists what there is",
		"MNEME_RUN_TIMEOUT=24":             `a duration such as 90s, 10m or 24h is needed, not "24"`,
		"MNEME_WEBMEMORY_MAX_HISTORY=many": `a whole number is needed, not "many"`,
		"MNEME_SESSION_LOGS=sure":          `true or false is needed, not "sure"`,
		"STATE_MACHINE_TTL_SECONDS=24h": `a whole number of seconds is needed, such as 86400, not ` +
			`"24h"; MNEME_PROXY_STATE_MACHINE_TTL takes a duration with a unit`,
		"STATE_MACHINE_TTL_SECONDS=soon": `a whole number of seconds is needed, such as 86400, not "soon"; ` +
			`MNEME_PROXY_STATE_MACHINE_TTL takes a duration with a unit`,
		"MNEME_WEBMEMORY_LISTEN=localhost": `host:port is needed, such as 127.0.0.1:8080, not "localhost"`,
		"MNEME_RUN_TIMEOUT=null":           `a duration such as 90s, 10m or 24h is needed, not "null"`,
		"MNEME_SESSION_LOGS=[":             "not valid YAML: sequence end token ']' not found",
		"MNEME_PANEL_COMMANDS=often":       `true or false is needed, not "often"`,
	} {
		t.Run(variable, func(t *testing.T) {
			name, _, _ := strings.Cut(variable, "=")
			_, err := load(t, "", variable)
			require.EqualError(t, err, name+": "+want)
		})
	}
}

// The YAML of a variable gets the checks and sentences of the file.
func TestWrongYAMLInVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"MNEME_HTTP_ALLOWED_HOSTS=a.example,b.example":  "a list is needed, such as [value, …]",
		"MNEME_HTTP_ALLOWED_HOSTS=# none":               "a list is needed, such as [value, …]",
		"MNEME_HTTP_ALLOWED_HOSTS={a: b}":               "a list is needed, such as [value, …]",
		"MNEME_HTTP_ALLOWED_HOSTS=[a]\n---\n[b]":        "holds more than one YAML document; keep one",
		"MNEME_HTTP_ALLOWED_HOSTS=[a":                   "not valid YAML: sequence end token ']' not found",
		"MNEME_HTTP_ALLOWED_HOSTS=[a, {b: c}]":          `http.allowed_hosts[1]: text is needed, not "{"`,
		"MNEME_HTTP_ALLOWED_HOSTS=sk-proj-0123456789,b": "a list is needed, such as [value, …]",
		"MNEME_AGENTS_SUBAGENTS=analytic":               "a list is needed, such as [{key: value}, …]",
		"MNEME_PROXY_TEAMMATES=analytic=v,knowledge=w":  "a block of names and values is needed, such as {name: value}",
		"MNEME_PROXY_TEAMMATES=analytic":                "a block of names and values is needed, such as {name: value}",
		"MNEME_PROXY_BACKENDS=[v]":                      "a block of names and values is needed, such as {name: {key: value}}",
		"MNEME_PROXY_BACKENDS={v: openai}":              "proxy.backends.v: a block of keys is needed here, not a single value",
		"MNEME_PROXY_BACKENDS={v: {kind: gemini}}": `proxy.backends.v.kind: "gemini" is none of: anthropic, openai, ` +
			`responses, interactions, copilot, offline`,
		"MNEME_PROXY_BACKENDS={v: {kind: offline, colour: red}}":          "proxy.backends.v.colour: unknown key; docs/configuration.md lists what there is",
		"MNEME_PROXY_BACKENDS={v: {kind: offline, pass_run: x}}":          `proxy.backends.v.pass_run: true or false is needed, not "x"`,
		"MNEME_PROXY_BACKENDS={v: {kind: offline}, v: {kind: offline}}":   "the key v stands here a second time; keep one",
		"MNEME_PROXY_BACKENDS={v: {kind: openai, api_key_env: [sk-1]}}":   "proxy.backends.v.api_key_env: the name of an environment variable is needed",
		"MNEME_RETRIEVAL_EXTRACTORS={.pdf: {command: [a], timeout: 5}}":   `retrieval.extractors.'.pdf'.timeout: a duration such as 90s, 10m or 24h is needed, not "5"`,
		"MNEME_AGENTS_SUBAGENTS=[{name: analytic, tools: [date, shell]}]": `agents.subagents[0].tools[1]: "shell" is none of: calculator, date, documents`,
		"MNEME_AGENTS_MASTER_TOOLS=[{mpc: crm}]":                          "agents.master.tools[0].mpc: unknown key; did you mean mcp?",
	} {
		t.Run(variable, func(t *testing.T) {
			name, _, _ := strings.Cut(variable, "=")
			_, err := load(t, "http: {allowed_hosts: [c.example]}\n", variable)
			require.EqualError(t, err, name+": "+want)
		})
	}
}

func TestIntegersOfVariablesAreDecimal(t *testing.T) {
	c, err := load(t, "", "MNEME_WEBMEMORY_MAX_HISTORY=010")
	require.NoError(t, err)
	require.Equal(t, 10, c.Webmemory.MaxHistory)
	for _, text := range []string{"0.5", "1.9", "1e2", "ten", "99999999999999999999"} {
		_, err := load(t, "", "MNEME_WEBMEMORY_MAX_HISTORY="+text)
		require.EqualError(t, err, `MNEME_WEBMEMORY_MAX_HISTORY: a whole number is needed, not "`+text+`"`)
	}
}

// Variables of 0.2 for members of lists and maps are refused with their replacements. Values are not repeated, because
// they may be secrets.
func TestRemovedVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"MNEME_PROXY_BACKENDS_KIMI_KIND=openai": "variables for members of proxy.backends were removed in 0.3; write " +
			"proxy.backends into mneme.yaml, or set MNEME_PROXY_BACKENDS to one YAML value such as {name: {key: value}}",
		"MNEME_PROXY_BACKENDS_V_API_KEY_ENV=sk-hush":          "write proxy.backends into mneme.yaml",
		"MNEME_PROXY_BACKENDS_V_BASE_URL=https://u:hush@x/v1": "write proxy.backends into mneme.yaml",
		"MNEME_PROXY_BACKENDS_V_COLOUR=hush":                  "write proxy.backends into mneme.yaml",
		"MNEME_AGENTS_SUBAGENTS_ANALYTIC_MODEL=small": "variables for members of agents.subagents were removed in 0.3; " +
			"write agents.subagents into mneme.yaml, or set MNEME_AGENTS_SUBAGENTS to one YAML value such as " +
			"[{key: value}, …]",
		"MNEME_AGENTS_SUBAGENTS_ANALYTIC_REASONING_EFFORT=": "set MNEME_AGENTS_SUBAGENTS to one YAML value",
		"MNEME_PANEL_MEMBERS_CLAUDE_NAME=opus":              "set MNEME_PANEL_MEMBERS to one YAML value",
		"MNEME_PRICES_MY_MODEL_CACHED_INPUT=0.1":            "set MNEME_PRICES to one YAML value",
		"MNEME_LIMITS_TENANTS_ACME_RATE=600/m":              "set MNEME_LIMITS_TENANTS to one YAML value",
		"MNEME_RETRIEVAL_EXTRACTORS_PDF_TIMEOUT=9s":         "set MNEME_RETRIEVAL_EXTRACTORS to one YAML value",
		"MNEME_PROXY_ROUTES_MAIN_KEYS=a=hush":               "set MNEME_PROXY_ROUTES to one YAML value",
		"MNEME_MCP_CRM_HEADERS=X-Api-Key=hush":              "set MNEME_MCP to one YAML value",
	} {
		t.Run(variable, func(t *testing.T) {
			name, _, _ := strings.Cut(variable, "=")
			_, err := load(t, "", variable)
			require.ErrorContains(t, err, want)
			require.Contains(t, err.Error(), name+": variables for members of ")
			require.NotContains(t, err.Error(), "hush")
		})
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("webmemory: {listen: x}")
	f.Add("agents: {subagents: [{name: a}]}\nproxy: {backends: {'a.b': {kind: openai}}}")
	f.Add("a: &x [*x]")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path, nil)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
	})
}

func TestEmbeddingsNeedABackend(t *testing.T) {
	c, err := load(t, "retrieval:\n  embeddings: {model: m}\n")
	require.NoError(t, err, "an apiserver alone need not know the proxy's backends")
	require.EqualError(t, c.RequireEmbeddings(),
		"mneme.yaml:2: retrieval.embeddings.model: no backend gives embeddings; set proxy.embeddings_backend to a backend "+
			"of kind openai")
	c,
		err = load(t,
		"proxy:\n  active: a\n  backends: {a: {kind: openai, base_url: \"http://x/v1\"}}\n  embeddings_backend: "+
			"a\nretrieval:\n  embeddings: {model: m}\n")
	require.NoError(t, err)
	require.NoError(t, c.RequireEmbeddings())
}

// How hard agents think: the gateway's choice by default, and an empty variable says
// that nothing is sent, though other empty variables say nothing.
func TestEffortOfTheAgents(t *testing.T) {
	const variable = "MNEME_AGENTS_MASTER_REASONING_EFFORT="
	for text, want := range map[string]string{"": "auto", "agents: {master: {reasoning_effort: none}}": "none",
		"agents: {master: {reasoning_effort: xhigh}}": "xhigh"} {
		c, err := load(t, text)
		require.NoError(t, err)
		require.Equal(t, want, c.Agents.Master.ReasoningEffort)
		c, err = load(t, text, variable)
		require.NoError(t, err)
		require.Equal(t, "none", c.Agents.Master.ReasoningEffort)
	}
	c, err := load(t, "", "MNEME_AGENTS_MASTER_MODEL=", variable+"low")
	require.NoError(t, err)
	require.Equal(t, "master", c.Agents.Master.Model)
	require.Equal(t, "low", c.Agents.Master.ReasoningEffort)
	_, err = load(t, "", variable+"much")
	require.EqualError(t, err,
		`MNEME_AGENTS_MASTER_REASONING_EFFORT: "much" is none of: auto, none, minimal, low, medium, high, xhigh, max`)
}

func TestTuningOfSubagents(t *testing.T) {
	c,
		err := load(t,
		"agents:\n  subagents:\n    - {name: analytic, reasoning_effort: high, temperature: 0, max_tokens: 500}\n    - "+
			"{name: knowledge, temperature: 0.7, reasoning_effort: auto}\n")
	require.NoError(t, err)
	analytic, knowledge := c.Agents.Subagents[0], c.Agents.Subagents[1]
	require.Equal(t, "high", analytic.ReasoningEffort)
	require.Zero(t, *analytic.Temperature)
	require.Equal(t, 500, analytic.MaxTokens)
	require.InEpsilon(t, 0.7, *knowledge.Temperature, 1e-9)
	require.Equal(t, "auto", knowledge.ReasoningEffort)
	require.Zero(t, knowledge.MaxTokens)
	for text, want := range map[string]string{
		"temperature: 3":    "mneme.yaml:3: agents.subagents[0].temperature: must be from 0 to 2, is 3",
		"temperature: warm": `mneme.yaml:3: agents.subagents[0].temperature: a number is needed, not "warm"`,
		"max_tokens: -1":    "mneme.yaml:3: agents.subagents[0].max_tokens: must be 0 or more, is -1",
		"reasoning_effort: much": `mneme.yaml:3: agents.subagents[0].reasoning_effort: "much" is none of: auto, none, ` +
			`minimal, low, medium, high, xhigh, max`,
	} {
		_, err := load(t, "agents:\n  subagents:\n    - {name: analytic, "+text+"}\n")
		require.EqualError(t, err, want)
	}
}

// Of another configuration agents, limits and prices are taken, and each other setting that differs is named once.
func TestAdopt(t *testing.T) {
	t.Chdir(t.TempDir())
	read := func(text string) Config {
		require.NoError(t, os.WriteFile(DefaultFile, []byte(text), 0o600))
		c, err := Load("", []string{"KEY=secret"})
		require.NoError(t, err)
		return c
	}
	base := "http: {allowed_hosts: [a.example]}\n" +
		"proxy: {backends: {v: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model_map: {a: b}}}, active: v}\n"
	c := read(base + "prices: {m: {input: 1, output: 2}}\n")
	other := read("http: {allowed_hosts: [a.example, b.example]}\nproxy: {backends: {" +
		"v: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model_map: {a: c}}, " +
		"w: {kind: openai, base_url: 'http://127.0.0.1:2/v1', profile: {text_only: true}}}, active: v}\n" +
		"agents: {master: {model: x}}\nlimits: {users: {rate: 1/h}}\n" +
		"prices: {n: {input: 3, output: 4}}\nrun_timeout: 9m\n")
	next, left, err := Adopt(c, other)
	require.NoError(t, err)
	require.Equal(t, []string{"http.allowed_hosts", "proxy.backends.v.model_map", "proxy.backends.w.kind",
		"proxy.backends.w.profile", "run_timeout"}, slices.DeleteFunc(left, func(path string) bool {
		// Beside the others of the new backend.
		return strings.HasPrefix(path, "proxy.backends.w.") && !strings.HasSuffix(path, ".kind") &&
			!strings.HasSuffix(path, ".profile")
	}))
	require.Equal(t, "x", next.Agents.Master.Model)
	require.Equal(t, "1/h", next.Limits.Users.Rate)
	require.Contains(t, next.Prices, "n")
	require.NotContains(t, next.Prices, "m")
	require.Equal(t, c.RunTimeout, next.RunTimeout)
	_, left, err = Adopt(next, other)
	require.NoError(t, err)
	require.Contains(t, left, "run_timeout", "it still needs one")
	_, left, err = Adopt(c, read(base))
	require.NoError(t, err)
	require.Empty(t, left)

	other = read(base + "mcp: {crm: {url: 'http://127.0.0.1:1'}}\nagents: {master: {tools: [{mcp: crm}]}}\n")
	next, _, err = Adopt(c, other)
	require.ErrorContains(t, err, "without a restart, which it needs: mneme.yaml:4: agents.master.tools")
	require.Equal(t, c, next)
}
