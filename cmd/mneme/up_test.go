package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/internal/upstreamtest"
)

// vendor is a fake OpenAI with these models, which takes the key "right".
func vendor(t *testing.T, names ...string) string {
	t.Helper()
	s := httptest.NewServer(upstreamtest.New(upstreamtest.Config{
		Vendor: upstreamtest.Chat, APIKey: "right", Models: names,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say("From a real model."))
			return &a
		},
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// at is the vendor openai at another address, and no server on this machine.
func at(base string, servers ...models.Server) models.Places {
	return models.Places{
		Vendors: []models.Vendor{{Name: "openai", Kind: config.KindOpenAI, BaseURL: base, KeyVar: "OPENAI_API_KEY",
			Preferred: []string{"gpt-5", "gpt-4.1"}}},
		Servers: append([]models.Server{}, servers...),
	}
}

// server is a model server with one model, which can call tools.
func server(t *testing.T, model string) models.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"`+model+`"}]}`)
		case "/props":
			_,
				_ = io.WriteString(w, `{"default_generation_settings":{"n_ctx":9000},"chat_template_caps":{"supports_tools":true}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return models.Server{Name: "ollama", URL: s.URL}
}

const openaiFile = `# Written by mneme up, which found OPENAI_API_KEY. docs/configuration.md lists every key.
proxy:
  backends:
    openai:
      kind: openai
      base_url: "BASE"
      api_key_env: OPENAI_API_KEY
      model_map: {"*": "MODEL"}
`

func TestUpLooksForAModel(t *testing.T) {
	good, odd := vendor(t, "tiny", "gpt-4.1", "gpt-4.1-mini"), vendor(t, "alpha", "beta")
	local := server(t, "qwen3:8b")
	key := []string{"OPENAI_API_KEY=right"}
	for name, c := range map[string]struct {
		places  models.Places
		environ []string
		flag    string
		asks    bool
		stdin   string
		out     string
		err     string
		model   string // in mneme.yaml; empty: there is none
	}{
		"yes": {
			at(good), key, "", true, "y\n",
			"OPENAI_API_KEY found: use it with gpt-4.1? [Y/n] Wrote mneme.yaml: gpt-4.1 answers, of backend openai.\n", "",
			"gpt-4.1",
		},
		"enter": {
			at(good), key, "", true, "\n",
			"OPENAI_API_KEY found: use it with gpt-4.1? [Y/n] Wrote mneme.yaml: gpt-4.1 answers, of backend openai.\n", "",
			"gpt-4.1",
		},
		"no": {
			at(good), key, "", true, "n\n",
			"OPENAI_API_KEY found: use it with gpt-4.1? [Y/n] The offline model answers; --offline starts without this " +
				"question.\n", "", "",
		},
		"no answer": {
			at(good), key, "", true, "",
			"OPENAI_API_KEY found: use it with gpt-4.1? [Y/n] \nThe offline model answers; --offline starts without this " +
				"question.\n", "", "",
		},
		"nobody": {
			at(good), key, "", false, "",
			"OPENAI_API_KEY found. To use it, run `mneme up --model auto`, which writes mneme.yaml. The offline model " +
				"answers until then.\n", "", "",
		},
		"nothing": {at(good), nil, "", true, "", "", "", ""},
		"auto": {
			at(good), key, "auto", false, "", "Wrote mneme.yaml: gpt-4.1 answers, of backend openai.\n", "", "gpt-4.1",
		},
		"by vendor": {
			at(good), key, "openai", false, "", "Wrote mneme.yaml: gpt-4.1 answers, of backend openai.\n", "", "gpt-4.1",
		},
		"by name": {at(good), key, "gpt-4.1-mini", false, "",
			"Wrote mneme.yaml: gpt-4.1-mini answers, of backend openai.\n", "", "gpt-4.1-mini"},
		"a mistake": {at(good), key, "gpt-4.l", false, "", "",
			"--model gpt-4.l: there is no such model; the nearest names: gpt-4.1, tiny, gpt-4.1-mini", ""},
		"wrong key": {at(good), []string{"OPENAI_API_KEY=hush"}, "auto", false, "", "",
			"--model auto: OPENAI_API_KEY is refused by HOST; check the key", ""},
		"no key": {
			at(good), nil, "auto", false, "", "",
			"--model auto: there is no model to use; export one of OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, " +
				"OPENROUTER_API_KEY, DEEPSEEK_API_KEY, start Ollama or LM Studio, or use --offline", "",
		},
		"no key for the vendor": {at(good, local), nil, "OpenAI", false, "", "",
			"--model OpenAI: the environment variable OPENAI_API_KEY is not set; export the key in it", ""},
		"a server that is not there": {at(good, models.Server{Name: "lmstudio", URL: "http://127.0.0.1:1"}), key, "lmstudio",
			false, "", "", "--model lmstudio: no model server answers at http://127.0.0.1:1; start it", ""},
		"odd models": {
			at(odd), key, "auto", false, "", "",
			"--model auto: BASE has no model that mneme proposes; name one with --model, such as alpha, beta", "",
		},
		"odd models and no answer": {at(odd), key, "", true, "",
			"Not used: BASE has no model that mneme proposes; name one with --model, such as alpha, beta.\n", "", ""},
		"a wrong key, then a server": {at(good, local), []string{"OPENAI_API_KEY=hush"}, "", true, "yes\n",
			"Not used: OPENAI_API_KEY is refused by HOST; check the key.\nA model server at LOCAL found: use " +
				"it with qwen3:8b? [Y/n] Wrote mneme.yaml: qwen3:8b answers, of backend ollama.\n", "", "qwen3:8b"},
		"a server that nobody is asked about": {
			at(good, local), nil, "", false, "",
			"A model server at LOCAL found. To use it, run `mneme up --model auto`, which writes mneme.yaml. The offline " +
				"model answers until then.\n", "", "",
		},
		"a named server": {at(good), nil, local.URL + "/v1", false, "",
			"Wrote mneme.yaml: qwen3:8b answers, of backend local.\n", "", "qwen3:8b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			cfg, err := config.Load("", c.environ)
			require.NoError(t, err)
			var out bytes.Buffer
			s := search{environ: c.environ, places: c.places, in: bufio.NewReader(strings.NewReader(c.stdin)), out: &out,
				asks: c.asks}
			cfg, err = s.configure(t.Context(), cfg, c.flag)
			base := c.places.Vendors[0].BaseURL
			names := strings.NewReplacer("HOST", strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1"), "BASE", base,
				"LOCAL", local.URL)
			if c.err != "" {
				require.EqualError(t, err, names.Replace(c.err))
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, names.Replace(c.out), out.String())
			written, readErr := os.ReadFile(config.DefaultFile)
			if c.model == "" {
				require.ErrorIs(t, readErr, os.ErrNotExist)
				require.Equal(t, config.KindOffline, cfg.Proxy.Backends[cfg.Proxy.Active].Kind)
				return
			}
			require.NoError(t, readErr)
			require.NotContains(t, string(written), "right")
			require.Equal(t, map[string]string{"*": c.model}, cfg.Proxy.Backends[cfg.Proxy.Active].ModelMap)
			if cfg.Proxy.Active == "openai" {
				require.Equal(t, strings.NewReplacer("BASE", base, "MODEL", c.model).Replace(openaiFile), string(written))
				require.NoError(t, cfg.RequireKeys())
			}
			if window := "context_tokens: 9000"; cfg.Proxy.Active != "openai" {
				require.Equal(t, 1+len(cfg.Agents.Subagents), strings.Count(string(written), window))
			}
		})
	}
}

func TestUpNeverChangesAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	const mine = "proxy: {backends: {gpt: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model_map: {'*': gpt-4.1}}}}\n"
	require.NoError(t, os.WriteFile(config.DefaultFile, []byte(mine), 0o600))
	for line, want := range map[string]string{
		"up --model gpt-5": "mneme: --model gpt-5: mneme.yaml is there and is never changed; name the model in " +
			"its proxy.backends, or remove the flag\n",
		"up --offline": "mneme: --offline: mneme.yaml names another model; remove proxy.backends there, or " +
			"the flag\n",
		"up --offline --model gpt-5": "mneme: --offline and --model (or MNEME_MODEL) contradict each other; give one of " +
			"them; see mneme --help\n",
	} {
		code := 1
		if strings.HasSuffix(want, "--help\n") {
			code = 2
		}
		require.Equal(t, result{code, "", want}, mneme(t, "", strings.Fields(line)...))
	}
	for _, agrees := range []string{"", "auto", "gpt", "gpt-4.1", "http://127.0.0.1:1/v1/"} {
		cfg, err := config.Load("", nil)
		require.NoError(t, err)
		require.NoError(t, checkModelFlags(cfg, agrees, false), agrees)
	}
	text, err := os.ReadFile(config.DefaultFile)
	require.NoError(t, err)
	require.Equal(t, mine, string(text))
	require.ErrorContains(t, createFile(config.DefaultFile, nil), "mneme.yaml is there already and is not overwritten")
}

// started is a mneme that runs in the test.
type started struct {
	t    *testing.T
	out  *bufio.Scanner
	read []string
	err  *lines
	web  string
	stop func() int

	early int // lines of the log before that of the page's address
}

// lines is what a process logs, which a test can wait for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// upWriter counts the lines of the log when the page's address is written.
type upWriter struct {
	io.Writer
	to *started
}

func (w upWriter) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "mneme is up: ") {
		w.to.early = len(*w.to.err)
	}
	return w.Writer.Write(text)
}

func startUp(t *testing.T, places models.Places, environ []string, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	logged := make(lines, 1000)
	ended := make(chan int, 1)
	s := &started{t: t, out: bufio.NewScanner(r), err: &logged}
	con := &console{places: places, stdin: strings.NewReader(""), stdout: upWriter{w, s}, stderr: logged,
		environ: append([]string{
			"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0",
			"MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0",
		}, environ...)}
	go func() {
		ended <- run(ctx, args, con)
		w.Close()
	}()
	stopped := false
	s.stop = func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		_, _ = io.Copy(io.Discard, r)
		return <-ended
	}
	t.Cleanup(func() { s.stop() })
	for s.out.Scan() {
		s.read = append(s.read, s.out.Text())
		if rest, ok := strings.CutPrefix(s.out.Text(), "mneme is up: "); ok {
			s.web, _, _ = strings.Cut(rest, "/ ")
			go func() { _, _ = io.Copy(io.Discard, r) }() // ends with the process
			return s
		}
	}
	t.Fatalf("mneme did not start: %s", <-logged)
	return nil
}

// ask posts a message and gives the answer's text.
func (s *started) ask(message string) string {
	s.t.Helper()
	resp, err := http.Post(s.web+"/v1/chats/1/messages", "application/json",
		strings.NewReader(`{"message":"`+message+`"}`))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	var answer struct{ Content string }
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Content
}

// Without a terminal, a start prints how to use the key that it found. --model auto then gives answers of a real model,
// in later starts too.
func TestUpWithAKeyAndNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	places, key := at(vendor(t, "gpt-4.1")), []string{"OPENAI_API_KEY=right"}
	s := startUp(t, places, key, "up")
	require.Equal(t, "OPENAI_API_KEY found. To use it, run `mneme up --model auto`, which writes mneme.yaml. "+
		"The offline model answers until then.", s.read[0])
	require.NotContains(t, s.ask("Hello"), "From a real model.")
	require.Zero(t, s.stop())
	require.Contains(t, <-*s.err, `"model call"`, "a start without problems logs nothing")
	require.NoFileExists(t, config.DefaultFile)

	s = startUp(t, places, key, "up", "--model", "auto")
	require.Equal(t, "Wrote mneme.yaml: gpt-4.1 answers, of backend openai.", s.read[0])
	require.Zero(t, s.early, "the page's address comes before the log")
	require.Equal(t, "From a real model.", s.ask("Hello"))
	require.Zero(t, s.stop())

	s = startUp(t, places, key, "up", "--model", "auto")
	require.Len(t, s.read, 1, "nothing is looked for")
	require.Equal(t, "From a real model.", s.ask("Hello"))
	require.Zero(t, s.stop())
}

// A start does not wait for its backends, and says what is wrong with them.
func TestAStartSaysWhatIsWrongWithABackend(t *testing.T) {
	t.Chdir(t.TempDir())
	release := make(chan struct{})
	fake := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Models: []string{"gpt-4.1"}})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	require.NoError(t, os.WriteFile(config.DefaultFile, []byte("proxy:\n  backends:\n    gpt: {kind: openai, base_url: '"+
		slow.URL+"/v1'}\n"), 0o600))
	s := startUp(t, models.Places{}, []string{"OPENAI_API_KEY=hush"}, "up")
	require.Len(t, s.read, 1, "with a file nothing is looked for")
	close(release) // it has started before the vendor answered
	for line := range *s.err {
		if strings.Contains(line, `"backend":"gpt"`) && strings.Contains(line, `"level":"warn"`) {
			require.Contains(t, line, `mneme.yaml:3: proxy.backends.gpt.model_map: `)
			require.Contains(t, line, `has no model \"master\", which is a name of ours; write model_map: {\"*\": \"gpt-4.1\"}`)
			break
		}
	}
	require.Zero(t, s.stop())
}

func TestConfigCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	require.Equal(t, result{0, "no mneme.yaml, the defaults: valid\noffline: ok: the offline model, inside this process\n",
		""}, mneme(t, "", "config", "check"))

	good := vendor(t, "gpt-4.1")
	write := func(text string) {
		require.NoError(t, os.WriteFile(config.DefaultFile, []byte(strings.ReplaceAll(text, "GOOD", good)), 0o600))
	}
	check := func(args ...string) result {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"config"}, args...), &console{
			environ: []string{"KEY=right", "BAD=hush"}, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
		})
		return result{code, stdout.String(), stderr.String()}
	}
	write("proxy: {backends: {gpt: {kind: openai, base_url: GOOD, api_key_env: KEY, model_map: {'*': gpt-4.1}}}}\n")
	require.Equal(t, result{0, "mneme.yaml: valid\ngpt: ok: it lists 1 models, among them gpt-4.1\n", ""}, check("check"))
	paid := check("check", "--call")
	require.Zero(t, paid.code, paid)
	require.Regexp(t,
		`^mneme.yaml: valid\ngpt: ok: a call of master was answered in \d+\.\d s \(\d+ tokens in, \d+ out\)\n$`, paid.stdout)

	write("proxy:\n  active: a\n  backends:\n    a: {kind: openai, base_url: GOOD, api_key_env: KEY, model_map: {'*': " +
		"gpt-4.1}}\n    b: {kind: openai, base_url: GOOD, api_key_env: BAD}\n")
	r := check("check")
	require.Equal(t, 1, r.code)
	require.Equal(t, "mneme: 1 backend of 2 cannot be used as configured\n", r.stderr)
	require.Contains(t, r.stdout, "\nb: mneme.yaml:5: proxy.backends.b.api_key_env: ")
	require.NotContains(t, r.stdout, "hush")

	write("proxy: {backends: {gpt: {kind: openai, base_url: GOOD, api_key_env: GONE}}}\n")
	r = check("check")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr,
		"mneme: mneme.yaml:1: proxy.backends.gpt.api_key_env: the environment variable GONE is not set")
	write("webmemory: {listn: x}\n")
	require.Equal(t, result{1, "", "mneme: mneme.yaml:1: webmemory.listn: unknown key; did you mean listen?\n"},
		check("show"))
	write("webmemory: {max_chats: 5}\n")
	require.Contains(t, check("show").stdout, "  max_chats: 5 # mneme.yaml:1\n")
}

// What the services log is in log.file as JSON too, behind what is there; whether that can be is said before a start.
func TestTheLogIsAlsoWrittenToAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(file string) {
		require.NoError(t, os.WriteFile(config.DefaultFile, []byte("log: {format: console, level: debug,\n  file: "+file+
			"}\n"), 0o600))
	}
	write("logs/debug.log")
	for _, args := range [][]string{{"config", "check"}, {"up"}} {
		require.Equal(t, result{1, "", "mneme: mneme.yaml:2: log.file: there is no folder logs; make it, writable for who " +
			"runs the services\n"}, mneme(t, "", args...))
	}
	require.NoError(t, os.Mkdir("logs", 0o700))
	require.Zero(t, mneme(t, "", "config", "check").code)
	require.NoFileExists(t, "logs/debug.log", "a check makes none")
	for _, environ := range [][]string{{}, {"MNEME_LOG_LEVEL=info"}} {
		s := startUp(t, models.Places{}, environ, "up")
		s.ask("hi")
		for line := range *s.err {
			if strings.Contains(line, "run finished") {
				require.NotContains(t, line, "{", "standard error is for people")
				break
			}
		}
		require.Zero(t, s.stop())
	}
	info, err := os.Stat("logs/debug.log")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile("logs/debug.log")
	require.NoError(t, err)
	starts, filtered := 0, 0
	for line := range strings.Lines(string(text)) {
		var entry struct{ Level, Message, Service, Time string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.NotEmpty(t, entry.Time)
		if entry.Service == "webmemory" && entry.Message == "run finished" {
			starts++
		}
		if entry.Service == "proxy" && strings.HasPrefix(entry.Message, "[thinking_filter]") {
			filtered++
		}
	}
	require.Equal(t, 2, starts, string(text))
	require.Equal(t, 1, filtered, "the level is log.level, debug at the first start")

	write("logs")
	require.Contains(t, mneme(t, "", "config", "check").stderr, "mneme.yaml:2: log.file: logs is there and is no file")
	if os.Getuid() != 0 {
		require.NoError(t, os.Chmod("logs/debug.log", 0o400))
		write("logs/debug.log")
		require.Contains(t, mneme(t, "", "config", "check").stderr, "mneme.yaml:2: log.file: it cannot be written (")
	}
}

// A collection that was never loaded and one that no subagent searches are both said.
func TestUnknownCollectionsAreSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t,
		os.WriteFile(config.DefaultFile, []byte("agents: {subagents: [{name: knowledge, collections: [docs, wikki]}]}\n"),
			0o600))
	require.NoError(t, os.WriteFile("tea.md", []byte("# Tea\n\nSteep green tea for three minutes.\n"), 0o600))
	s := startUp(t, models.Places{}, nil, "up")
	for line := range *s.err {
		if strings.Contains(line, "which is not there yet") {
			require.Contains(t, line,
				"the subagent knowledge searches the collection wikki, which is not there yet: load it with `mneme ingest DIR "+
					"--collection wikki`")
			break
		}
	}
	const unread = "No subagent searches wiki; subagents search docs, wikki. Load into one of those, or name wiki in " +
		"the collections of a subagent in mneme.yaml (agents.subagents) and restart.\n"
	r := mneme(t, "", "ingest", "tea.md", "--collection", "wiki", "--url", s.web)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "collection wiki: 1 new")
	require.Contains(t, r.stdout, unread)
	require.Contains(t, mneme(t, "", "ingest", "tea.md", "--collection", "wiki", "--url", s.web, "--json").stdout,
		`"unread": true`)
	r = mneme(t, "", "ingest", "tea.md", "--collection", "wikki", "--url", s.web)
	require.Contains(t, r.stdout, "collection wikki: 1 new")
	require.NotContains(t, r.stdout, "No subagent")
	require.Zero(t, s.stop())
}
