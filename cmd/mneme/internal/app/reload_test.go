package app_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// reloadable are services as processes over one file of configuration.
type reloadable struct {
	*stack
	file   string
	vendor *upstreamtest.Server
	hold   chan struct{} // a model that is told HOLD calls a tool once it can be read
	held   chan struct{}
	url    string
}

const (
	heldQuestion = "HOLD"
	calculates   = `{"expression":"1+1"}`
)

func newReloadable(t *testing.T, environ ...string) *reloadable {
	r := &reloadable{file: filepath.Join(t.TempDir(), "mneme.yaml"), hold: make(chan struct{}),
		held: make(chan struct{}, 9)}
	answer := func(q *upstreamtest.Request) *upstreamtest.Answer {
		if !strings.Contains(q.User, heldQuestion) || len(q.Results) > 0 {
			return nil
		}
		a := upstreamtest.Reply(upstreamtest.Use("calculator", calculates))
		a.Pause = func(ctx context.Context, event int) {
			if event == 0 {
				r.held <- struct{}{}
				select {
				case <-r.hold:
				case <-ctx.Done():
				}
			}
		}
		return &a
	}
	r.vendor = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: answer})
	model := httptest.NewServer(r.vendor)
	t.Cleanup(model.Close)
	r.url = model.URL + "/v1"
	r.stack = newStack(t, append(environ, "MNEME_CONFIG="+r.file, "MNEME_PROXY_ACTIVE=v")...)
	return r
}

// write writes the file: the master by a model and a prompt, its price, the subagents, and more.
func (r *reloadable) write(model, prompt string, usd float64, subagents, more string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(r.file, fmt.Appendf(nil, `proxy: {backends: {v: {kind: openai, base_url: %q}}}
recall: {auto: "off"}
prices: {one: {input: 1, output: 1}, two: {input: %g, output: %g}}
agents:
  master: {model: %s, system_replace: %q, tools: [calculator]}
  subagents: [%s]
%s
`, r.url, usd, usd, model, prompt, subagents, more), 0o600))
}

// reload has the services read the file anew, and waits until each says what came of it.
func (r *reloadable) reload(failed bool) {
	r.t.Helper()
	said := map[string]int{}
	for name, p := range r.running {
		said[name] = r.said(name, failed)
		p.Signal(syscall.SIGHUP)
	}
	for name := range r.running {
		for end := time.Now().Add(time.Minute); r.said(name, failed) == said[name]; time.Sleep(10 * time.Millisecond) {
			require.True(r.t, time.Now().Before(end), r.log(name))
		}
	}
	gauge := fmt.Sprintf("\nmneme_config_reload_failed %d\n", map[bool]int{true: 1}[failed])
	for _, addr := range []string{r.at.Webmemory, r.at.Apiserver, r.at.Proxy} {
		require.Contains(r.t, metrics(r.t, addr), gauge)
	}
}

// said is how often a service has said that a reload failed, or did not.
func (r *reloadable) said(name string, failed bool) int {
	what := "are those of the configuration as it is now"
	if failed {
		what = "was not taken over"
	}
	return strings.Count(r.log(name), what)
}

func (r *reloadable) log(name string) string {
	text, err := os.ReadFile(r.running[name].Log)
	require.NoError(r.t, err)
	return string(text)
}

// cost is what the calls of a chat cost, in millionths of a USD for each token.
func (r *reloadable) cost(chat string) (perToken float64) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, body := ask(r.t, "GET", "http://"+r.web+"/v1/usage?chat="+chat, "", "")
		row := gjson.Get(body, "rows.0")
		tokens := row.Get("input_tokens").Float() + row.Get("output_tokens").Float()
		perToken = row.Get("cost_micro_usd").Float() / max(tokens, 1)
		return tokens > 0
	}, time.Minute, 50*time.Millisecond)
	return perToken
}

// models are those that were asked in a chat, with the first words of the prompt.
func (r *reloadable) models(message string) (all []string) {
	for _, q := range r.vendor.Requests() {
		if strings.Contains(string(q.Body), message) {
			all = append(all, q.Model+" "+gjson.GetBytes(q.Body, "messages.0.content").String())
		}
	}
	return all
}

// What changed in the file holds for what is posted after SIGHUP, and a run that goes on ends by what it began with; in
// one process and in three.
func TestReload(t *testing.T) {
	t.Parallel()
	for _, services := range [][]string{{"up"}, {"proxy", "apiserver", "webmemory"}} {
		t.Run(strings.Join(services, " "), func(t *testing.T) {
			t.Parallel()
			var environ []string
			if len(services) > 1 {
				environ = []string{"MNEME_REDIS_URL=" + redistest.Start(t).URL()}
			}
			r := newReloadable(t, environ...)
			r.write("one", "PROMPT ONE", 3, "", "")
			for _, s := range services {
				r.start(s)
			}
			r.say("a", "First.")
			require.Contains(t, r.models("First.")[0], "one PROMPT ONE")
			require.InDelta(t, 1, r.cost("a"), 0.01)

			var begun sync.WaitGroup
			begun.Go(func() { r.say("held", heldQuestion) })
			<-r.held
			r.write("two", "PROMPT TWO", 5, "{name: clerk, description: It files., system: You file.}",
				"webmemory: {max_history: 90}")
			r.reload(false)
			for _, s := range services {
				require.Contains(t, r.log(s), "webmemory.max_history needs a restart")
				require.Equal(t, 1, strings.Count(r.log(s), "needs a restart"))
			}
			r.say("b", "Second.")
			require.Contains(t, r.models("Second.")[0], "two PROMPT TWO")
			require.InDelta(t, 5, r.cost("b"), 0.01, "that of the file, not of the start")
			_, body := ask(t, "GET", "http://"+r.web+"/v1/models", "", "")
			require.Contains(t, body, "mneme/clerk")
			status, body := ask(t, "POST", "http://"+r.web+"/v1/chats/c/messages", "",
				`{"message":"To you.","agent_version":"clerk"}`)
			require.Equal(t, http.StatusOK, status, body)
			close(r.hold)
			begun.Wait()
			for _, asked := range r.models(heldQuestion) {
				require.Contains(t, asked, "one PROMPT ONE")
			}
			require.Len(t, r.models(heldQuestion), 2)

			// Nothing of a file that is wrong anywhere is taken over.
			r.write("one", "PROMPT THREE", 7, "", "webmemory: {max_history: many}")
			r.reload(true)
			for _, s := range services {
				require.Contains(t, r.log(s), "webmemory.max_history: a whole number is needed")
			}
			r.write("one", "PROMPT THREE", 7, "", "retrieval: {fusion: rrf}\nproxy: {}")
			r.reload(true) // a key twice
			r.say("d", "Third.")
			require.Contains(t, r.models("Third.")[0], "two PROMPT TWO")
			require.InDelta(t, 5, r.cost("d"), 0.01)
			r.write("one", "PROMPT THREE", 7, "", "")
			r.reload(false)
			r.say("e", "Fourth.")
			require.Contains(t, r.models("Fourth.")[0], "one PROMPT THREE")

			r.write("one", "PROMPT THREE", 7, "", "limits: {tenants: {default: {rate: 1/h}}}")
			r.reload(false)
			for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				status, body = ask(t, "POST", "http://"+r.web+"/v1/chats/f/messages", "", `{"message":"Fifth."}`)
				require.Equal(t, want, status, "%d: %s", i, body)
			}
			r.write("one", "PROMPT THREE", 7, "", "")
			r.reload(false)
			r.say("f", "Sixth.")
		})
	}
}

// Signals that come together while messages are posted cost none of them.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	r := newReloadable(t)
	r.write("one", "PROMPT", 1, "", "")
	r.start("up")
	var crowd sync.WaitGroup
	for i := range 4 {
		crowd.Go(func() {
			for n := range 10 {
				chat := fmt.Sprintf("http://%s/v1/chats/l%d-%d/messages", r.web, i, n)
				status, body := ask(t, "POST", chat, "", `{"message":"Hello."}`)
				assert.Equal(t, http.StatusOK, status, body)
			}
		})
	}
	for n := range 10 {
		r.write([]string{"one", "two"}[n%2], fmt.Sprint("PROMPT ", n), float64(n), "", "")
		for range 10 {
			r.running["up"].Signal(syscall.SIGHUP)
		}
	}
	crowd.Wait()
	r.write("two", "PROMPT LAST", 9, "", "")
	r.reload(false)
	r.say("z", "Last.")
	require.Contains(t, r.models("Last.")[0], "two PROMPT LAST")
}
