package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/webtest"
	"mneme/memory"
	"mneme/memory/event"
)

type result struct {
	code           int
	stdout, stderr string
}

// mneme runs a command line.
func mneme(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &console{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr})
	http.DefaultClient.CloseIdleConnections()
	return result{code, stdout.String(), stderr.String()}
}

func TestWrongCommandLinesAreOneSentence(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]result{
		"foo":         {2, "", "mneme: unexpected argument foo; see mneme --help\n"},
		"chat --nope": {2, "", "mneme: unknown flag --nope; see mneme --help\n"},
		"chat --chat=a/b": {
			2, "",
			"mneme: --chat: a chat id is 1 to 128 characters of A-Z a-z 0-9 . _ : @ + = -, not \"a/b\"; see mneme --help\n",
		},
		"memory get": {2, "", "mneme: expected \"<chat>\"; see mneme --help\n"},
		"memory get 1 BAD": {
			2, "",
			"mneme: [<subagent>]: a subagent's name is 1 to 64 characters of a-z 0-9 _ -, not \"BAD\"; see mneme --help\n",
		},
		"cha":                   {2, "", "mneme: unexpected argument cha, did you mean \"chat\"?; see mneme --help\n"},
		"chat --caht x":         {2, "", "mneme: unknown flag --caht, did you mean \"--chat\"?; see mneme --help\n"},
		"chat -z":               {2, "", "mneme: unknown flag -z; see mneme --help\n"},
		"chat --chat":           {2, "", "mneme: --chat needs a value; see mneme --help\n"},
		"memory":                {2, "", "mneme: expected one of \"ls\", \"get\", \"search\", \"note\", \"export\", \"import\", \"fork\", \"rewind\", \"redact\", \"rm\"; see mneme --help\n"},
		"memory get 1 a b":      {2, "", "mneme: unexpected argument b; see mneme --help\n"},
		"memory ls --limit x":   {2, "", "mneme: --limit: expected a whole number but got \"x\"; see mneme --help\n"},
		"ingest x":              {2, "", "mneme: missing flags: --collection=NAME; see mneme --help\n"},
		"ingest --collection x": {2, "", "mneme: expected \"<path>\"; see mneme --help\n"},
		"ingest x --collection c --metadata x": {
			2, "", "mneme: --metadata: expected \"<key>=<value>\" but got \"x\"; see mneme --help\n",
		},
		"proxy foo":            {2, "", "mneme: unexpected argument foo; see mneme --help\n"},
		"memory get 1 -n 0":    {2, "", "mneme: --last must be 1 or more; see mneme --help\n"},
		"memory ls --url=nope": {2, "", "mneme: \"nope\" is no URL of webmemory; give one such as http://127.0.0.1:8080; see mneme --help\n"},
		"health nope":          {2, "", "mneme: \"nope\" is no URL of a service; give one such as http://127.0.0.1:8080; see mneme --help\n"},
		"up --config nope.yaml": {
			1, "",
			"mneme: nope.yaml: no such file; give an existing one with --config, or leave the flag out for the defaults\n",
		},
		"proxy --config nope.y": {
			1, "", "mneme: nope.y: no such file; give an existing one with --config, or leave the flag out for the defaults\n",
		},
	} {
		t.Run(line, func(t *testing.T) {
			require.Equal(t, want, mneme(t, "", strings.Fields(line)...))
		})
	}
}

func TestOnlyTheProxyNeedsTheKeys(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t,
		os.WriteFile("mneme.yaml",
			[]byte("proxy: {backends: {k: {kind: openai, base_url: http://127.0.0.1:1/v1, api_key_env: NO_SUCH_KEY}}}\n"),
			0o600))
	for _, command := range []string{"up", "proxy"} {
		require.Equal(t,
			result{
				1, "",
				"mneme: mneme.yaml:1: proxy.backends.k.api_key_env: the environment variable NO_SUCH_KEY is not set; export the " +
					"key in it, or write it into .env and run docker compose up -d\n",
			},
			mneme(t, "", command))
	}
}

func TestHelpEverywhere(t *testing.T) {
	for _, line := range []string{"", "up", "webmemory", "apiserver", "proxy", "proxy use",
		"chat", "memory", "memory ls", "memory get", "memory note", "memory note ls",
		"memory note add", "memory rm", "memory redact", "ingest", "backup",
		"restore", "config",
		"config check", "config show", "completion", "doctor", "health", "version"} {
		r := mneme(t, "", append(strings.Fields(line), "--help")...)
		require.Zero(t, r.code, line)
		require.Contains(t, r.stdout, strings.TrimSpace("Usage: mneme "+line), line)
		require.Empty(t, r.stderr, line)
	}
	require.Contains(t, mneme(t, "").stdout, "Start with: mneme up")
}

func TestVersion(t *testing.T) {
	line := mneme(t, "", "version")
	version, err := os.ReadFile("../../VERSION")
	require.NoError(t, err)
	number := strings.TrimSpace(string(version))
	require.Regexp(t, `^mneme `+regexp.QuoteMeta(number)+`( [0-9a-f]{12}(\+changes)?)? go1\.\d+.* \w+/\w+\n$`, line.stdout)
	require.Equal(t, line, mneme(t, "", "--version"))
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	require.Contains(t, string(changelog), "\n## "+number+" — ")
}

// remembering is a webmemory with two chats, one of them of a group.
func remembering(t *testing.T) *webtest.Server {
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message}, &event.Assistant{Content: "You said: " + r.Message},
			&event.RunFinished{Outcome: event.Completed})
	})
	key := memory.SubagentKey("analytic", memory.MustChat("12345"))
	s.Remember(memory.ChatKey(memory.MustChat("-100123")), memory.Message{Role: "user", Content: "in a group"})
	s.Remember(memory.ChatKey(memory.MustChat("12345")), memory.Message{
		Role: "user", Content: "<hi> & ж", Timestamp: 1763711157.25,
	})
	for range 3 {
		s.Remember(key, memory.Message{Role: "user", Content: "2+2?\x1b[2J", Timestamp: 1763711157.25})
		s.Remember(key, memory.Message{Role: "assistant", Timestamp: 1763711157.25, ToolCalls: []memory.ToolCall{
			{ID: "c1", Type: "function", Function: memory.FunctionCall{Name: "calculator", Arguments: `{"expression":"2+2"}`}},
		}})
		s.Remember(key, memory.Message{Role: "tool", Name: "calculator", ToolCallID: "c1", Content: "4",
			Timestamp: 1763711157.25})
		s.Remember(key, memory.Message{Role: "assistant", Content: "It is\nfour.", Timestamp: 1763711157.25})
	}
	return s
}

func TestMemoryLs(t *testing.T) {
	s := remembering(t)
	require.Equal(t, result{0, `CHAT     HISTORY   MESSAGES  BYTES  ARCHIVED  BYTES  NOTES
-100123  (chat)    1         54     0         0      0
12345    (chat)    1         65     0         0      0
12345    analytic  12        1240   0         0      0
`, ""}, mneme(t, "", "memory", "ls", "--url", s.URL))
	require.Equal(t, result{0, "CHAT     HISTORY  MESSAGES  BYTES  ARCHIVED  BYTES  NOTES\n" +
		"-100123  (chat)   1         54     0         0      0\n", ""},
		mneme(t, "", "memory", "ls", "--url", s.URL, "--chat=-100123"))
	require.Contains(t, mneme(t, "", "memory", "ls", "--url", s.URL, "--limit=1").stdout,
		"(more than 1 chats; raise --limit)\n")
}

func TestMemoryGet(t *testing.T) {
	t.Setenv("TZ", "UTC")
	s := remembering(t)
	stored := mneme(t, "", "memory", "get", "12345", "--json", "--url", s.URL)
	require.Equal(t, result{0, `[{"role":"user","content":"<hi> & ж","timestamp":1763711157.25}]` + "\n", ""}, stored)
	require.Equal(t, 12, strings.Count(mneme(t, "", "memory", "get", "12345", "analytic", "--json", "--url", s.URL).stdout,
		`"role"`))
	none := " holds no messages; mneme memory ls lists what there is\n"
	require.Equal(t, result{1, "[]\n", "mneme: subagent:other:12345" + none},
		mneme(t, "", "memory", "get", "12345", "other", "--json", "--url", s.URL))
	require.Equal(t, result{1, "", "mneme: chat_history:new" + none}, mneme(t, "", "memory", "get", "new", "--url", s.URL))
	require.Equal(t, result{1, "", "mneme: chat_history:new" + none}, mneme(t, "", "memory", "get", "new", "-n3", "--url",
		s.URL))
	require.Contains(t, mneme(t, "", "memory", "get", "--url", s.URL, "--", "-100123").stdout, "in a group")

	last := mneme(t, "", "memory", "get", "12345", "analytic", "-n", "4", "--url", s.URL)
	require.Equal(t, 0, last.code)
	require.Regexp(t, `^\S+ \S+  user
  2\+2\?\[2J
\S+ \S+  assistant
  → calculator \{"expression":"2\+2"\}
\S+ \S+  tool calculator
  4
\S+ \S+  assistant
  It is
  four\.
$`, last.stdout)
}

// What a redaction is asked for is in the request's path and query; what it did, or would, is printed.
func TestMemoryRedact(t *testing.T) {
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		_, _ = io.WriteString(w, `{"redacted":[{"subagent":"","id":"R.1"},{"subagent":"analytic","id":"R.2"}],`+
			`"partial":true}`)
	}))
	defer s.Close()
	run := func(args ...string) result {
		return mneme(t, "", append([]string{"memory", "redact", "--url=" + s.URL}, args...)...)
	}
	require.Equal(t, result{0, "redacted  R.1\nredacted  R.2  analytic\n" +
		"(a damaged part of an archive could not be searched)\n", ""}, run("12345", "R.1"))
	require.Equal(t, "DELETE /v1/chats/12345/messages/R.1?dry_run=false&scope=exchange", asked)
	require.Contains(t, run("12345", "R.2", "--subagent", "analytic", "--scope=message", "--dry-run").stdout,
		"would be redacted  R.1\n")
	require.Equal(t, "DELETE /v1/chats/12345/subagents/analytic/messages/R.2?dry_run=true&scope=message", asked)
	require.Contains(t, run("12345", "R.1", "--json").stdout, `"id": "R.2"`)
	for _, args := range [][]string{
		{"1", "R.1", "--scope", "all"}, {"1", "R.1", "--subagent", "No"}, {"1"}, {"a b", "R.1"},
	} {
		require.Equal(t, 2, run(args...).code, args)
	}
}

func TestMemoryRm(t *testing.T) {
	s := remembering(t)
	url := "--url=" + s.URL
	asked := "subagent:analytic:12345  12 messages, 1240 bytes\nErase this? It cannot be undone. [y/N] "
	require.Equal(t, result{1, asked, "mneme: nothing erased\n"}, mneme(t, "n\n", "memory", "rm", "12345", "analytic",
		url))
	require.Equal(t,
		result{1, asked + "\n", "mneme: nothing erased: not confirmed (use --yes to skip the prompt)\n"},
		mneme(t, "", "memory", "rm", "12345", "analytic", url))
	require.Equal(t, result{0, asked + "erased subagent:analytic:12345\n", ""},
		mneme(t, "y\n", "memory", "rm", "12345", "analytic", url))
	require.Equal(t, result{0, "erased chat_history:12345\n", ""}, mneme(t, "", "memory", "rm", "12345", "--yes", url))
	require.Equal(t, result{0, "there was nothing to erase\n", ""}, mneme(t, "", "memory", "rm", "12345", "--yes", url))
	require.Equal(t, result{0, "there was nothing to erase\n", ""}, mneme(t, "", "memory", "rm", "12345", "--yes",
		"--scan", url))
	require.Equal(t, result{2, "", "mneme: use --scan without <subagent>; see mneme --help\n"},
		mneme(t, "", "memory", "rm", "12345", "analytic", "--scan", url))
	require.Equal(t, result{0, "erased chat_history:-100123\n", ""}, mneme(t, "", "memory", "rm", "--yes", url, "--",
		"-100123"))
}

func TestChatFromAPipe(t *testing.T) {
	s := remembering(t)
	require.Equal(t, result{0, "You said: one\nYou said: two\n", ""}, mneme(t, "one\ntwo\n", "chat", "--chat=-5", "-q",
		"--url="+s.URL))
}

func TestOneNameForTheAddress(t *testing.T) {
	for _, line := range []string{"chat", "memory ls", "memory get 1", "memory rm 1 -y", "ingest x --collection c", "proxy use"} {
		r := mneme(t, "", append(strings.Fields(line), "--url=nope")...)
		require.Equal(t, 2, r.code, line)
		require.Regexp(t, `"nope" is no URL of (webmemory|the gateway)`, r.stderr, line)
		require.Contains(t, mneme(t, "", append(strings.Fields(line), "--help")...).stdout, "--url URL", line)
	}
}

func TestCompletion(t *testing.T) {
	fits := func(words ...string) (names []string) { // what the shells' scripts ask
		r := mneme(t, "", append([]string{"__complete"}, words...)...)
		require.Zero(t, r.code)
		for line := range strings.Lines(r.stdout) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		return names
	}
	require.Equal(t, []string{"ls", "get", "search", "note", "export", "import", "fork", "rewind",
		"redact", "rm"}, fits("memory", ""))
	require.Equal(t, []string{"memory"}, fits("me"))
	require.Equal(t, []string{"bash", "zsh", "fish"}, fits("completion", ""))
	require.Contains(t, fits("ingest", "docs", "--collection", "docs", "--u"), "--url")
	require.Contains(t, fits("proxy", "--"), "--config")
	require.Empty(t, fits("restore", ""), "a shell completes files by itself")
	require.Empty(t, fits("nonsense", ""))
	require.Contains(t, fits(""), "completion")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := mneme(t, "", "completion", shell)
		require.Zero(t, r.code, shell)
		require.Contains(t, r.stdout, "__complete", shell)
	}
	require.Equal(t, result{2, "", `mneme: <shell> must be one of "bash","zsh","fish" but got "tcsh"; see mneme --help` + "\n"},
		mneme(t, "", "completion", "tcsh"))
}

func TestRefusalsAndSilence(t *testing.T) {
	s := remembering(t)
	s.Refuse = func(*http.Request) (int, string, string) { return 503, "memory_away", "The memory cannot be reached." }
	for _, line := range []string{"memory ls", "memory get 1", "memory rm 1 --yes", "chat"} {
		r := mneme(t, "hi\n", append(strings.Fields(line), "--url="+s.URL)...)
		require.Equal(t, 1, r.code, line)
		require.Equal(t, "mneme: The memory cannot be reached. (memory_away)\n", r.stderr, line)
	}
	s.Close()
	for _, line := range []string{"memory ls", "memory get 1", "chat"} {
		r := mneme(t, "hi\n", append(strings.Fields(line), "--url="+s.URL)...)
		require.Equal(t, 1, r.code, line)
		require.Equal(t, "mneme: nothing listens on "+s.URL+": start `mneme up`\n", r.stderr, line)
	}
}

func TestHealth(t *testing.T) {
	ready := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("{\"at\":\"" + r.URL.Path + "\"}\n"))
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	require.Equal(t, result{0, "{\"at\":\"/readyz\"}\n", ""}, mneme(t, "", "health", s.URL))
	require.Equal(t, result{0, "{\"at\":\"/healthz\"}\n", ""}, mneme(t, "", "health", s.URL+"/healthz"))
	ready = false
	require.Equal(t, result{1, "", "mneme: " + host + " is not ready: 503 Service Unavailable {\"at\":\"/readyz\"}\n"},
		mneme(t, "", "health", s.URL))
	s.Close()
	require.Equal(t, result{1, "", "mneme: nothing listens on " + host + "\n"}, mneme(t, "", "health", s.URL))
}
