package pagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/upstreamtest"
)

// asService names the variable by which the program of these tests is one service of mneme instead, which
// can be killed as users' processes are; its value is the service's name.
const asService = "PAGETEST_SERVICE"

// services are what can run alone or together.
var services = map[string]func(context.Context, config.Config, app.Options) error{
	"up": app.Up, "webmemory": app.Webmemory, "apiserver": app.Apiserver, "proxy": app.Proxy,
}

// serve is the program as a service.
func serve(name string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load(os.Getenv("PAGETEST_CONFIG"), os.Environ())
	if err == nil {
		err = services[name](ctx, cfg, app.Options{Out: io.Discard, Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run runs services in this process, until the test ends, and says where they listen.
func run(t *testing.T, service, file string, environ ...string) app.Addrs {
	t.Helper()
	return runLogged(t, zerolog.New(os.Stderr).Level(zerolog.WarnLevel), service, file, environ...)
}

// runLogged is run with a log.
func runLogged(t *testing.T, log zerolog.Logger, service, file string, environ ...string) app.Addrs {
	t.Helper()
	environ = append([]string{"MNEME_DATA_DIR=" + t.TempDir()}, environ...)
	for _, listener := range []string{"WEBMEMORY", "APISERVER", "PROXY", "REDIS_EMBEDDED"} {
		environ = append([]string{"MNEME_" + listener + "_LISTEN=127.0.0.1:0"}, environ...)
	}
	cfg, err := config.Load(file, environ)
	require.NoError(t, err)
	addrs, stop, err := app.Start(context.Background(), services[service], cfg, app.Options{Out: io.Discard, Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return addrs
}

// ferry starts a server of the Model Context Protocol with a tool, book, that asks by a form which seat is wanted.
func ferry(t *testing.T) (url string) {
	server := mcp.NewServer(&mcp.Implementation{Name: "ferry", Version: "1"}, nil)
	form := &mcp.ElicitParams{Message: "Which seat?", RequestedSchema: json.RawMessage(`{"type": "object",
		"properties": {"name": {"type": "string", "title": "Name"}, "class": {"type": "string", "enum": ["first", "second"]},
			"seats": {"type": "integer", "minimum": 1, "maximum": 9, "title": "Seats", "description": "at most 9"},
			"window": {"type": "boolean"}}, "required": ["name"]}`)}
	server.AddTool(&mcp.Tool{Name: "book", Description: "Books seats.", InputSchema: json.RawMessage(`{"type": "object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.InputResponses == nil {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"seat": form}}, nil
			}
			seat, ok := r.Params.InputResponses["seat"].(*mcp.ElicitResult)
			if !ok || seat.Action != "accept" {
				return nil, fmt.Errorf("not a seat: %v", r.Params.InputResponses)
			}
			said, err := json.Marshal(seat.Content)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(said)}}}, err
		})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	return web.URL
}

// configuration is a mneme.yaml with a master that delegates to analytic, to knowledge and to desk. The desk pays
// money back where a person says yes, and books seats.
func configuration(t *testing.T) string {
	t.Helper()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, `{"paid": %s, "note": %q}`, body, hostile("tool result"))
	}))
	t.Cleanup(shop.Close)
	path := filepath.Join(t.TempDir(), "mneme.yaml")
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`
agents:
  subagents:
  - name: analytic
  - {name: knowledge, description: Answers from documents., tools: [documents], collections: [docs]}
  - name: desk
    description: Pays money back.
    tools:
    - http: {name: refund, description: Pays money back., method: POST, url: %q,
        parameters: {type: object, properties: {cents: {type: integer}}, required: [cents]}}
      approve: always
    - {mcp: ferry, allow: [book]}
mcp: {ferry: {url: %q}}
`, shop.URL+"/refunds", ferry(t))), 0o600))
	return path
}

// model plays the model of every agent.
//
//   - The master gives a message with "ask both" to analytic and desk at once, one with "ferry" to knowledge,
//     one with "refund" to desk and any other that begins with "Remember" to analytic; else it answers.
//   - A message with "slowly" is answered in words that come up to the middle, and the rest after release.
//   - desk calls its tools for a task with "refund" or "book", knowledge searches, others repeat their task.
//   - Each chat has the same title.
type model struct {
	mu       sync.Mutex
	released chan struct{} // guarded by mu; closed when slow answers may go on
	titles   int           // guarded by mu; how many were asked for
	untitled bool          // guarded by mu; what it says is no title
}

// aTitle is what the model calls each chat, in quotation marks and with more words behind it.
const aTitle = "Talk of tea"

func (m *model) title() *upstreamtest.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.titles++
	said := "\n“" + aTitle + ".”\nIt is about tea."
	if m.untitled {
		said = "“.”"
	}
	a := upstreamtest.Reply(upstreamtest.Say(said))
	return &a
}

// asked is how many titles the model was asked for.
func (m *model) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.titles
}

// untitle has the model make no titles any more.
func (m *model) untitle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.untitled = true
}

func (m *model) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = make(chan struct{})
}

func (m *model) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.released)
}

// slowly is what a slow answer says; it stops behind the word "middle".
const slowly = "The first half comes at once, up to the middle, and the second half comes to its end."

func (m *model) answer(r *upstreamtest.Request) *upstreamtest.Answer {
	reply := func(blocks ...upstreamtest.Block) *upstreamtest.Answer {
		a := upstreamtest.Reply(blocks...)
		return &a
	}
	use := func(tool, member, value string) upstreamtest.Block {
		arguments, _ := json.Marshal(map[string]string{member: value})
		return upstreamtest.Use(tool, string(arguments))
	}
	offers := func(name string) bool {
		return slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == name })
	}
	has := func(word string) bool { return strings.Contains(r.User, word) }
	done := len(r.Results) > 0
	switch {
	case strings.HasPrefix(r.User, "### Task:"):
		return m.title()
	case offers("search_documents") && !done:
		return reply(use("search_documents", "query", r.User))
	case offers("search_documents"):
		return reply(upstreamtest.Say("A ferry ticket costs 14 crowns [1]."))
	case offers("refund") && !done && has("refund"):
		return reply(upstreamtest.Use("refund", `{"cents": 1400}`))
	case offers("book") && !done && has("book"):
		return reply(upstreamtest.Use("book", `{}`))
	case !offers("analytic") && done:
		return reply(upstreamtest.Say("Done: " + r.Results[0]))
	case !offers("analytic"):
		return reply(upstreamtest.Say("Noted: " + r.User))
	case done:
		return reply(upstreamtest.Say("They say: " + strings.Join(r.Results, " ")))
	case has("ask both"):
		return reply(use("analytic", "task", "Think about: "+r.User), use("desk", "task", "Look into: "+r.User))
	case has("ferry"):
		return reply(use("knowledge", "task", r.User))
	case has("refund"), has("book"):
		return reply(use("desk", "task", r.User))
	case strings.HasPrefix(r.User, "Remember"):
		return reply(use("analytic", "task", r.User))
	case has("slowly"):
		a := reply(upstreamtest.Say(slowly))
		m.mu.Lock()
		released := m.released
		m.mu.Unlock()
		a.Pause = func(ctx context.Context, event int) {
			if event != 5 {
				return
			}
			select {
			case <-released:
			case <-ctx.Done():
			}
		}
		return a
	}
	return reply(upstreamtest.Say("You said: " + r.User))
}

// environ starts the model as a vendor and makes it the backend.
func (m *model) environ(t *testing.T) []string {
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: m.answer})
	server := httptest.NewServer(vendor)
	t.Cleanup(func() {
		server.Close()
		require.Empty(t, vendor.Rejections())
	})
	return backendEnviron(server)
}

// backendEnviron returns the variables that make a vendor the backend.
func backendEnviron(vendor *httptest.Server) []string {
	return []string{"MNEME_PROXY_ACTIVE=scripted",
		fmt.Sprintf("MNEME_PROXY_BACKENDS={scripted: {kind: openai, base_url: %q}}", vendor.URL+"/v1")}
}

// visit starts all services with a model and gives a tab for their page.
func visit(t *testing.T) (*model, service, *tab) {
	t.Helper()
	t.Parallel()
	m := &model{}
	s := service{t, "http://" + run(t, "up", configuration(t), m.environ(t)...).Webmemory}
	return m, s, newTab(t, s.url)
}

// service is the API of a webmemory, as curl uses it.
type service struct {
	t   *testing.T
	url string
}

// request does one request and gives the answer's body, which must have this status.
func (s service) request(status int, method, path, contentType, body string) []byte {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, status, resp.StatusCode, "%s %s: %s", method, path, raw)
	return raw
}

// say posts a message and gives the answer's text.
func (s service) say(chat, message string) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	require.NoError(s.t, err)
	var answer struct{ Content string }
	require.NoError(s.t, json.Unmarshal(
		s.request(http.StatusOK, "POST", "/v1/chats/"+chat+"/messages", "application/json", string(body)), &answer))
	return answer.Content
}

// told are the contents of a chat's own history.
func (s service) told(chat string) (contents []string) {
	s.t.Helper()
	var page struct{ Messages []struct{ Content string } }
	raw := s.request(http.StatusOK, "GET", "/v1/chats/"+chat+"/history?limit=1000", "", "")
	require.NoError(s.t, json.NewDecoder(bytes.NewReader(raw)).Decode(&page))
	for _, m := range page.Messages {
		contents = append(contents, m.Content)
	}
	return contents
}

// hostile is a text that runs a script wherever it is taken for anything but text. The script names the field.
func hostile(field string) string {
	run := "window.hurt='" + field + "'"
	return `"'><img src=x onerror="` + run + `"><svg onload="` + run + `"></svg><script>` + run +
		`</script>[x](javascript:` + run + `)`
}

// get reads the JSON at a path.
func (s service) get(path string, into any) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal(s.request(http.StatusOK, "GET", path, "", ""), into))
}
