package webmemory_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

func TestBadInput(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	long := strings.Repeat("x", memory.MaxMessage+1)
	tooMuch := fmt.Sprintf(`{"message":%q,"padding":%q}`, "x", strings.Repeat("y", 29<<20))
	for name, test := range map[string]struct {
		method, path string
		body         any
		status       int
		code         string
		says         string
	}{
		"malformed JSON": {"POST", "/v1/chats/1/messages", `{"message":`, 400, "bad_request", "not valid JSON"},
		"not an object": {"POST", "/v1/chats/1/messages", `["hello"]`, 400, "bad_request",
			"must be a JSON object"},
		"an empty body": {"POST", "/v1/chats/1/messages", ``, 400, "bad_request", "The body is empty"},
		"a message of another type": {"POST", "/v1/chats/1/messages", `{"message":5}`, 400, "bad_request",
			"message must be a string, not a number"},
		"no message": {"POST", "/v1/chats/1/messages", `{}`, 400, "bad_request",
			"message is missing or empty"},
		"a blank message": {"POST", "/v1/chats/1/messages", `{"message":" \n"}`, 400, "bad_request",
			"message is missing or empty"},
		"a huge message": {"POST", "/v1/chats/1/messages", webmemorytest.Message(long), 413, "too_large", "1048576 bytes"},
		"a huge body":    {"POST", "/v1/chats/1/messages", tooMuch, 413, "too_large", "larger than 30059180 bytes"},
		"a bad chat id": {"POST", "/v1/chats/a%20b/messages", webmemorytest.Message("hi"), 400, "bad_request",
			"A chat id is 1 to 128 characters"},
		"a chat id with a slash": {"POST", "/v1/chats/a%2Fb/messages", webmemorytest.Message("hi"), 400, "bad_request", "A chat id is"},
		"an endless chat id": {"POST", "/v1/chats/" + strings.Repeat("a", 129) + "/messages", webmemorytest.Message("hi"), 400,
			"bad_request", "A chat id is"},
		"a mistyped member": {"POST", "/v1/chats/1/messages", `{"message":"hi","on_bussy":"reject"}`, 400,
			"bad_request", `no member "on_bussy"; the nearest one is on_busy`},
		"a member twice": {"POST", "/v1/chats/1/messages", `{"message":"hi","message":"ho"}`, 400, "bad_request",
			`the member "message" twice`},
		"a member twice, inside": {"POST", "/chat", `{"message":"hi","chat_id":1,"x":{"y":[{"z":1,"z":2}]}}`, 400,
			"bad_request", `"x.y.0.z" twice`},
		"a member of elsewhere": {"POST", "/chat", `{"message":"hi","chat_id":1,"temperature":1}`, 400, "bad_request",
			`no member "temperature"; there are message, agent_version, stream, chat_id, on_busy`},
		"an unknown on_busy": {"POST", "/v1/chats/1/messages", `{"message":"hi","on_busy":"wait"}`, 400, "bad_request",
			"on_busy is queue, reject or interrupt"},
		"an unknown agent_version": {"POST", "/v1/chats/1/messages", `{"message":"hi","agent_version":"nobody"}`, 400,
			"unknown_agent", "there are: master, analytic, knowledge"},
		"too much metadata": {"POST", "/v1/chats/1/messages", `{"message":"hi","metadata":{"a":"` + long[:513] + `"}}`, 400,
			"bad_request", "The value of a in metadata has 513 bytes"},
		"metadata of numbers": {"POST", "/v1/chats/1/messages", `{"message":"hi","metadata":{"a":1}}`, 400, "bad_request",
			"metadata.a must be a string"},
		"long instructions": {"POST", "/v1/chats/1/messages", `{"message":"hi","instructions":"` + long[:64<<10+1] + `"}`, 413,
			"too_large", "instructions has 65537 bytes"},
		"two chat ids": {"POST", "/v1/chats/1/messages", `{"message":"hi","chat_id":2}`, 400, "bad_request",
			"is not the chat of the path"},
		"the old door, no chat": {"POST", "/chat", `{"message":"hi"}`, 400, "bad_request", "chat_id is missing"},
		"the old door, a float": {"POST", "/chat", `{"message":"hi","chat_id":1.0}`, 400, "bad_request",
			"a JSON string or an integer"},
		"the old door, an exponent": {"POST", "/chat", `{"message":"hi","chat_id":1e3}`, 400, "bad_request",
			"a JSON string or an integer"},
		"an unknown route": {"GET", "/v2/chats", nil, 404, "unknown_route", "/v2/chats"},
		"/v1 twice": {"POST", "/v1/v1/chat/completions", nil, 404, "unknown_route",
			"leave it out of its base URL"},
		"/v1 twice, of a chat": {"POST", "/c/7/v1/v1/chat/completions", nil, 404, "unknown_route",
			"leave it out of its base URL"},
		"no /v1":            {"POST", "/chat/completions", nil, 404, "unknown_route", "end its base URL in /v1"},
		"no /v1, of a chat": {"GET", "/c/7/models", nil, 404, "unknown_route", "end its base URL in /v1"},
		"responses, no /v1": {"POST", "/responses", nil, 404, "unknown_route", "end its base URL in /v1"},
		"messages":          {"POST", "/v1/messages", nil, 404, "unknown_route", "the gateway serves it"},
		"messages, /v1 twice": {"POST", "/v1/v1/messages/count_tokens", nil, 404, "unknown_route",
			"the gateway serves it"},
		"responses":      {"POST", "/v1/responses", nil, 404, "unknown_route", "port 8082"},
		"embeddings":     {"POST", "/embeddings", nil, 404, "unknown_route", "end its base URL in /v1"},
		"a wrong method": {"PUT", "/v1/chats/1/messages", webmemorytest.Message("hi"), 405, "method_not_allowed", "only POST"},
		"a bad subagent name": {"GET", "/v1/chats/1/subagents/UPPER/history", nil, 400, "bad_request",
			"A subagent's name is"},
		"a bad offset": {"GET", "/v1/chats/1/history?offset=x", nil, 400, "bad_request",
			"offset is a whole number"},
		"a bad limit": {"GET", "/v1/chats/1/history?limit=0", nil, 400, "bad_request",
			"limit is a whole number from 1 to 1000"},
		"a bad cursor":                 {"GET", "/v1/chats?cursor=x", nil, 400, "bad_request", "no cursor"},
		"an unknown run":               {"GET", "/v1/chats/1/runs/nope/events", nil, 404, "unknown_run", "no such run"},
		"a file that the page has not": {"GET", "/ui/none.js", nil, 404, "unknown_route", "no route"},
		"stop of an unknown run":       {"POST", "/v1/chats/1/runs/nope/stop", nil, 404, "unknown_run", "no such run"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.Do(test.method, test.path, test.body)
			require.Equal(t, test.status, got.Status, string(got.Body))
			p := got.Problem(t)
			require.Equal(t, test.code, p.Code)
			require.Contains(t, p.Message, test.says)
			require.True(t, strings.HasSuffix(p.Message, "."), "a sentence: %s", p.Message)
			require.False(t, p.Retryable)
		})
	}
	keys := w.Redis.Keys(context.Background(), "*").Val()
	require.Subset(t, []string{"mneme:epoch", "mneme:processes", "mneme:chats"}, keys,
		"what is refused leaves nothing behind")
}

func TestThePageIsThere(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	page := w.Do("GET", "/", nil)
	require.Equal(t, 200, page.Status)
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'none'")
	app := regexp.MustCompile(`src="(ui/app[^"]*)"`).FindSubmatch(page.Body)
	require.NotNil(t, app)
	require.Equal(t, 200, w.Do("GET", "/"+string(app[1]), nil).Status)
	require.Equal(t, 405, w.Do("POST", "/", nil).Status)
}

func TestAMessage(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello back"))
	t.Run("as one JSON answer", func(t *testing.T) {
		got := w.Post("12345", "hello <there>")
		require.Equal(t, 200, got.Status)
		var out map[string]any
		require.NoError(t, json.Unmarshal(got.Body, &out))
		require.Equal(t, "hello back", out["content"])
		require.Equal(t, "completed", out["outcome"])
		require.Equal(t, got.RunID(), out["run_id"])
		require.Equal(t, []any{}, out["citations"])
		require.Equal(t, []string{"user: hello <there>", "assistant: hello back"}, w.History("chat_history:12345"))
		require.Equal(t, []string{"user: task: hello <there>", "assistant: done"}, w.History("subagent:analytic:12345"))
	})
	all := []string{"run_started", "subagent_delegation", "subagent_completion", "assistant_delta", "assistant",
		"run_finished"}
	t.Run("as events", func(t *testing.T) {
		tr := w.PostStream("a:b", "hi")
		require.Equal(t, "no", tr.Response.Header.Get("X-Accel-Buffering"))
		require.Equal(t, all, tr.Roles())
		require.Equal(t, "6", tr.LastID)
	})
	t.Run("by the old door, the chat as a number", func(t *testing.T) {
		require.Equal(t, all, w.Stream("POST", "/chat", `{"message":"hi","chat_id":-100123,"agent_version":"master"}`).Roles())
		require.Len(t, w.History("chat_history:-100123"), 2)
	})
	t.Run("what is stored reaches the next run", func(t *testing.T) {
		var seen master.Request
		w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
			seen = r
			webmemorytest.Answers("ok")(ctx, r, emit)
		})
		w.Post("1", "one")
		w.Post("1", "two")
		require.Len(t, seen.Context, 2)
		require.Equal(t, "one", seen.Context[0].Content)
		require.Len(t, seen.Subagents["analytic"], 2)
		require.NotEmpty(t, seen.Conversation)
	})
}

// An event is stored before it is shown: whatever a client has seen is in Redis.
func TestStoredBeforeShown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	tr := w.PostStream("1", "hi")
	tr.Until("run_started")
	require.Equal(t, []string{"user: hi"}, w.History("chat_history:1"))
	tr.Until("subagent_delegation")
	require.Equal(t, []string{"user: task"}, w.History("subagent:analytic:1"))
	close(release)
	tr.Until("assistant")
	require.Equal(t, []string{"user: hi", "assistant: answer to hi"}, w.History("chat_history:1"))
}

func TestARunOutlivesItsClient(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	run := tr.RunID()
	tr.Response.Body.Close()

	again := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", tr.LastID)
	require.Equal(t, run, again.RunID())
	close(release)
	require.Equal(t, []string{"subagent_completion", "assistant", "run_finished"}, again.Roles(),
		"exactly the missing ones")

	over := w.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", again.LastID)
	require.Equal(t, http.StatusNoContent, over.Status)
	require.Equal(t, 400, w.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", "99").Status)
	require.Equal(t, 404, w.Do("GET", "/v1/chats/2/runs/"+run+"/events", nil).Status, "a run is its chat's")
}

// A client that does not wait gets the run's place; the run goes on without a reader.
func TestAMessageNeedNotBeWaitedFor(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	for _, post := range []struct {
		path   string
		body   any
		header []string
	}{
		{"/v1/chats/a b/messages", webmemorytest.Message("hi"), []string{"Prefer", "wait=5, Respond-Async; x=1", "Idempotency-Key", "k"}},
		{"/v1/chats/a b/messages", webmemorytest.Message("hi"), []string{"Prefer", "respond-async", "Idempotency-Key", "k",
			"Accept", "text/event-stream"}},
	} {
		post.path = strings.ReplaceAll(post.path, " ", "=")
		got := w.Do("POST", post.path, post.body, post.header...)
		require.Equal(t, http.StatusAccepted, got.Status, string(got.Body))
		run := got.RunID()
		require.Equal(t, "respond-async", got.Header.Get("Preference-Applied"))
		require.JSONEq(t, `{"outcome":"started","run_id":"`+run+`","events":"/v1/chats/a=b/runs/`+run+`/events"}`,
			string(got.Body))
	}
	got := w.Do("POST", "/chat", `{"chat_id":2,"message":"hi"}`, "Prefer", "respond-async")
	require.Equal(t, http.StatusAccepted, got.Status, string(got.Body))
	var started webapi.Started
	require.NoError(t, json.Unmarshal(got.Body, &started))
	tr := w.Stream("GET", started.Events, nil)
	tr.Until("subagent_delegation")
	close(release)
	tr.Until("run_finished")
	webmemorytest.Eventually(t, "the end of a run that nobody read is kept", func() bool {
		over := w.Post("a=b", "hi", "Prefer", "other", "Idempotency-Key", "k")
		return over.Status == 200 && len(w.History("chat_history:a=b")) == 2
	})
	require.Equal(t, 400, w.Post("1", "", "Prefer", "respond-async").Status)
}

// Clients must be able to tell a stream that broke off from one that ended: it is sent in chunks, over a
// connection that is not announced to close. And they are told when to come back.
func TestAStreamThatBreaksOffDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	r := w.NewRequest("POST", "/v1/chats/1/messages", webmemorytest.Message("hi"), "Accept", "text/event-stream")
	conn, err := net.Dial("tcp", r.URL.Host)
	require.NoError(t, err)
	require.NoError(t, r.Write(conn))
	events := ""
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	require.NoError(t, err)
	defer func() { _ = conn.Close(); _ = resp.Body.Close() }() // the body is read to its end where it is closed
	require.False(t, resp.Close)
	require.Empty(t, resp.Header["Connection"])
	require.Equal(t, []string{"chunked"}, resp.TransferEncoding)
	body := bufio.NewReader(resp.Body)
	for !strings.Contains(events, "event: subagent_delegation") {
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		events += line
	}
	require.True(t, strings.HasPrefix(events, "retry: 1000\ndata: "), events)
}

func TestStop(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	path := "/v1/chats/1/runs/" + tr.RunID() + "/stop"
	require.Equal(t, http.StatusAccepted, w.Do("POST", path, nil).Status)
	require.JSONEq(t, `"stopped"`, gjson.GetBytes(tr.Until("run_finished"), "outcome").Raw)
	require.Equal(t, []string{"user: hi", "assistant: answer to hi"}, w.History("chat_history:1"))
	webmemorytest.Eventually(t, "a second stop says that it is over", func() bool {
		return w.Do("POST", path, nil).Status == 200
	})
}

func TestARepeatedPostRunsOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	runs := 0
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		mu.Lock()
		runs++
		mu.Unlock()
		webmemorytest.AnswersAfter(release)(ctx, r, emit)
	})
	first := w.PostStream("1", "hi", "Idempotency-Key", "k")
	first.Until("run_started")
	live := w.PostStream("1", "hi", "Idempotency-Key", "k")
	live.Until("run_started")
	close(release)
	first.Until("run_finished")
	live.Until("run_finished")
	after := w.Post("1", "hi", "Idempotency-Key", "k")
	require.Equal(t, 200, after.Status)
	require.Equal(t, first.RunID(), after.RunID())
	require.Equal(t, 1, runs)
	require.Len(t, w.History("chat_history:1"), 2)

	other := w.Post("1", "another", "Idempotency-Key", "k")
	require.Equal(t, 422, other.Status)
	require.Equal(t, "idempotency_key_reused", other.Problem(t).Code)
	require.Equal(t, 200, w.Post("2", "another", "Idempotency-Key", "k").Status,
		"keys are a chat's")
}

func TestTurnsOfOneChatWait(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	running := 0
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		mu.Lock()
		running++
		if running > 1 {
			t.Error("two turns of one chat at once")
		}
		mu.Unlock()
		webmemorytest.Answers("ok")(ctx, r, func(h event.Head, p event.Payload) {
			if _, last := p.(*event.RunFinished); last {
				mu.Lock()
				running--
				mu.Unlock()
			}
			emit(h, p)
		})
	})
	second := w.StartReplica() // and over two processes
	var all sync.WaitGroup
	for i := range 12 {
		url := w.URL
		if i%2 == 1 {
			url = second
		}
		all.Go(func() {
			resp, err := http.Post(url+"/v1/chats/1/messages", "application/json",
				strings.NewReader(fmt.Sprintf(`{"message":"m%d"}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	all.Wait()
	stored := w.History("chat_history:1")
	require.Len(t, stored, 24)
	for i, m := range stored {
		require.Equal(t, i%2 == 0, strings.HasPrefix(m, "user: "), "exchanges are not interleaved: %v", stored)
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	t.Run("too many wait", func(t *testing.T) {
		w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release), func(c *webmemory.Config) { c.QueueLimit = 1 })
		first := w.PostStream("1", "first")
		first.Until("run_started")
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		refused, left := make(chan *http.Response, 2), make(chan error, 2)
		for range 2 { // one takes the only place in the queue, the other finds it taken
			go func() {
				resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/chats/1/messages",
					webmemorytest.Message("waits")).WithContext(ctx))
				if err != nil {
					left <- err
					return
				}
				resp.Body.Close()
				refused <- resp
			}()
		}
		resp := <-refused
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		leave()
		require.Error(t, <-left)
		w.Do("POST", "/v1/chats/1/runs/"+first.RunID()+"/stop", nil)
		first.Until("run_finished")
		w.PostStream("1", "next").Until("run_started")
		require.Equal(t, []string{"user: first", "assistant: answer to first", "user: next"}, w.History("chat_history:1"),
			"a message whose sender left while it waited is withdrawn")
	})
	t.Run("a wait has an end", func(t *testing.T) {
		w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release),
			func(c *webmemory.Config) { c.QueueWait = time.Second })
		w.PostStream("1", "first").Until("run_started")
		late := w.Post("1", "late")
		require.Equal(t, 409, late.Status)
		require.Equal(t, "chat_busy", late.Problem(t).Code)
		require.NotEmpty(t, late.Header.Get("Retry-After"))
		require.Equal(t, 200, w.Do("GET", "/v1/chats/1/history", nil).Status, "reads do not wait")
	})
}

func TestAFailedRun(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, Message: r.Message})
		emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model did not answer.", Retryable: true})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	})
	got := w.Post("1", "hi")
	require.Equal(t, http.StatusBadGateway, got.Status)
	require.Equal(t, "model_failed", got.Problem(t).Code)
	require.True(t, got.Problem(t).Retryable)
}

func TestTheApiserverIsAway(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	w.Apiserver.Close()
	got := w.Post("1", "hi")
	require.Equal(t, 503, got.Status)
	require.Equal(t, "apiserver_unavailable", got.Problem(t).Code)
	require.NotEmpty(t, got.Header.Get("Retry-After"))
	require.Nil(t, w.History("chat_history:1"), "a refused post leaves nothing behind")
	again := w.Post("1", "hi")
	require.Equal(t, 503, again.Status, "the turn was given back at once")
}

func TestTheApiserverLosesARun(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	// Another apiserver at the same place knows nothing of the run.
	fresh, err := api.NewClient(w.Apiserver.URL, nil)
	require.NoError(t, err)
	w.LoseRuns()
	defer fresh.Close()
	require.Equal(t, []string{"subagent_completion", "error", "run_finished"}, tr.Roles())
	require.Equal(t, []string{"user: task", webmemorytest.LostAnswer}, w.History("subagent:analytic:1"))
	require.Equal(t, []string{"user: hi", webmemorytest.LostAnswer}, w.History("chat_history:1"))
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	require.Equal(t, 200, w.Post("1", "hi").Status)
	webmemorytest.Eventually(t, "ready", func() bool { return w.Do("GET", "/readyz", nil).Status == 200 })
	w.RedisServer.Kill()
	for _, path := range []string{"/v1/chats/1", "/v1/chats"} {
		got := w.Do("GET", path, nil)
		require.Equal(t, 503, got.Status, path)
		require.Equal(t, "memory_unavailable", got.Problem(t).Code)
	}
	got := w.Post("1", "hi")
	require.Equal(t, 503, got.Status)
	require.True(t, got.Problem(t).Retryable)
	webmemorytest.Eventually(t, "degraded", func() bool {
		ready := w.Do("GET", "/readyz", nil)
		return ready.Status == 200 && strings.Contains(string(ready.Body), "degraded")
	})
	require.NoError(t, w.RedisServer.Run()) // it comes back empty: what the cache holds is written back
	webmemorytest.Eventually(t, "messages are taken again", func() bool {
		return w.Post("1", "again").Status == 200
	})
	stored := w.History("chat_history:1")
	require.Equal(t, "user: hi", stored[0])
	require.Equal(t, "user: again", stored[2])
}

func TestReads(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("a"))
	for _, chat := range []string{"1", "x:1"} {
		for _, text := range []string{"one", "two", "three"} {
			require.Equal(t, 200, w.Post(chat, text).Status)
		}
	}
	var view struct {
		Histories []struct {
			Key, Subagent   string
			Messages, Bytes int
		}
		Run string
	}
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1", nil).Body, &view))
	require.Len(t, view.Histories, 2)
	require.Equal(t, "chat_history:1", view.Histories[0].Key)
	require.Equal(t, 6, view.Histories[0].Messages)
	require.EqualValues(t, w.Redis.StrLen(context.Background(), "chat_history:1").Val(), view.Histories[0].Bytes)
	require.Equal(t, "analytic", view.Histories[1].Subagent)

	var page struct {
		Key                       string
		Total, Offset, NextOffset int `json:",omitempty"`
		Messages                  []memory.Message
	}
	read := func(path string) {
		t.Helper()
		page.NextOffset = 0
		var raw map[string]json.RawMessage
		body := w.Do("GET", path, nil).Body
		require.NoError(t, json.Unmarshal(body, &raw))
		require.NoError(t, json.Unmarshal(body, &page))
		if next, ok := raw["next_offset"]; ok {
			require.NoError(t, json.Unmarshal(next, &page.NextOffset))
		}
	}
	read("/v1/chats/1/history?limit=4")
	require.Equal(t, 6, page.Total)
	require.Len(t, page.Messages, 4)
	require.Equal(t, 4, page.NextOffset)
	read("/v1/chats/1/history?limit=4&offset=4")
	require.Len(t, page.Messages, 2)
	require.Zero(t, page.NextOffset)
	read("/v1/chats/1/history?offset=-1")
	require.Equal(t, 5, page.Offset)
	require.Len(t, page.Messages, 1)
	read("/v1/chats/1/subagents/analytic/history")
	require.Equal(t, "task: one", page.Messages[0].Content)
	read("/v1/chats/nobody/history")
	require.Zero(t, page.Total)

	var list struct {
		Chats []struct {
			ChatID string `json:"chat_id"`
		}
	}
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats", nil).Body, &list))
	require.Len(t, list.Chats, 2)
}

func TestErasure(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("a"))
	for _, chat := range []string{"1", "x:1"} {
		require.Equal(t, 200, w.Post(chat, "secret").Status)
	}
	log := filepath.Join(w.SessionLogs, "memory_1.log")
	require.FileExists(t, log)

	got := w.Do("DELETE", "/v1/chats/1/subagents/analytic/history", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.JSONEq(t, `{"erased":["subagent:analytic:1"]}`, string(got.Body))
	require.Nil(t, w.History("subagent:analytic:1"))
	require.Len(t, w.History("chat_history:1"), 2)

	got = w.Do("DELETE", "/v1/chats/1", nil)
	require.JSONEq(t, `{"erased":["chat_history:1"]}`, string(got.Body))
	require.NoFileExists(t, log)
	require.Len(t, w.History("chat_history:x:1"), 2, "another chat stays")
	require.Equal(t, 0, len(w.History("chat_history:1")))
	for _, key := range w.Redis.Keys(context.Background(), "*").Val() {
		if kind := w.Redis.Type(context.Background(), key).Val(); kind == "hash" && !strings.Contains(key, "x:1") {
			for field, value := range w.Redis.HGetAll(context.Background(), key).Val() {
				require.NotContains(t, value, "secret", key+" "+field)
			}
		}
	}
	require.Equal(t, 200, w.Post("1", "anew").Status)
	require.Equal(t, []string{"user: anew", "assistant: a"}, w.History("chat_history:1"))
}

// What was said to models goes with any history of the chat, and goes first: once the
// chat is gone the conversation's id is lost.
func TestErasureReachesTheGatewayOrErasesNothing(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("ok"))
	for _, chat := range []string{"1", "2"} {
		w.Post(chat, "hi")
	}
	of := func(chat string) string {
		return w.Redis.HGet(t.Context(), "{chat_history:"+chat+"}:meta", "conversation").Val()
	}
	one, two := of("1"), of("2")
	require.NotEmpty(t, one)
	require.NotEqual(t, one, two)

	w.Gateway.Down.Store(true)
	for _, path := range []string{"/v1/chats/1", "/v1/chats/1/history", "/v1/chats/1/subagents/analytic/history"} {
		got := w.Do("DELETE", path, nil)
		require.Equal(t, 503, got.Status, path)
		require.Contains(t, string(got.Body), "gateway_unavailable")
	}
	require.Len(t, w.History("chat_history:1"), 2)
	require.Len(t, w.History("subagent:analytic:1"), 2)
	require.Equal(t, 200, w.Post("1", "hi").Status, "the chat goes on")

	w.Gateway.Down.Store(false)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1/subagents/analytic/history", nil).Status)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Equal(t, []string{one, one}, w.Gateway.Erased(), "the other chat's is left alone")
}

// The apiserver was asked and did not say, and before that can be taken back Redis
// is gone: it is unknown whether the message will be answered, and a bot that repeated it
// blindly would have it answered twice.
func TestAPostWhoseOutcomeNobodyKnows(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("ok"))
	healthy, killed := w.Apiserver, make(chan struct{})
	w.Apiserver = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/runs" {
			w.RedisServer.Kill()
			close(killed)
			panic(http.ErrAbortHandler) // the connection breaks
		}
		rw.WriteHeader(http.StatusNotFound)
	}))
	w.Apiserver.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.Apiserver.Start()
	t.Cleanup(w.Apiserver.Close)
	w.URL = w.StartReplica()
	got := w.Post("1", "hi", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusBadGateway, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), "outcome_unknown")

	<-killed
	require.NoError(t, w.RedisServer.Run())
	w.Apiserver = healthy
	w.URL = w.StartReplica()
	require.Eventually(t, func() bool {
		return w.Post("1", "hi", "Idempotency-Key", "k2").Status == 200
	}, time.Minute, 10*time.Millisecond, "the chat goes on")
	require.Equal(t, []string{"user: hi", "assistant: ok"}, w.History("chat_history:1"))
}

// A run has a record, and no open run names it: its post was refused while Redis was away, so that the record could not
// be taken back. Readers of its events are not left waiting for as long as a run may take.
func TestEventsOfARunThatNeverBeganEnd(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("ok"), webmemorytest.ShortenLease)
	run := rand.Text()
	store := redisstore.New(w.Connect(), webmemorytest.Logger())
	_, err := store.Runs.Begin(t.Context(), memory.MustChat("1"), run, "body")
	require.NoError(t, err)
	events := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)
	role, data, ok := events.Next()
	require.True(t, ok)
	require.Equal(t, "error", role)
	require.Contains(t, string(data), "outcome_unknown")
	require.Equal(t, 200, w.Post("1", "hi").Status, "the chat goes on")
}

func TestErasureStopsWhatRuns(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	tr := w.PostStream("1", "secret")
	tr.Until("subagent_delegation")
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Nil(t, w.History("chat_history:1"))
	require.Nil(t, w.History("subagent:analytic:1"))
	tr.Roles()
	require.Nil(t, w.History("chat_history:1"), "nothing comes back")
}

func TestHistoriesAreTrimmed(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("a"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	for i := range 6 {
		require.Equal(t, 200, w.Post("1", fmt.Sprint(i)).Status)
	}
	webmemorytest.Eventually(t, "trimmed after the run", func() bool { return len(w.History("chat_history:1")) <= 5 })
	stored := w.History("chat_history:1")
	require.True(t, strings.HasPrefix(stored[0], "user: "))
	require.Equal(t, "assistant: a", stored[len(stored)-1])
}

func TestSessionLog(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("the answer"))
	require.Equal(t, 200, w.Post("a:b", "line one\nline two").Status)
	raw, err := os.ReadFile(filepath.Join(w.SessionLogs, "memory_a%3Ab.log"))
	require.NoError(t, err)
	for _, want := range []string{"request: line one line two", "history of the chat loaded: 0 messages",
		"message saved: line one line two", "history of analytic loaded: 0 messages",
		"delegation to analytic saved: task: line one line two", "answer of analytic saved (completed): done",
		"answer saved: the answer"} {
		require.Contains(t, string(raw), want)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	require.Equal(t, 200, w.Do("GET", "/healthz", nil).Status)
	metrics := w.Do("GET", "/metrics", nil)
	require.Contains(t, string(metrics.Body), "mneme_redis_away_seconds 0")
}

func TestAFullHistoryTakesNoNewExchange(t *testing.T) {
	t.Parallel()
	const full = 64 << 10
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"), func(c *webmemory.Config) { c.FullAt = full })
	value := `[{"role":"user","content":"` + strings.Repeat("x", full) + `"}]`
	require.NoError(t, w.Redis.Set(context.Background(), "subagent:analytic:1", value, 0).Err())
	got := w.Post("1", "hi")
	require.Equal(t, http.StatusInsufficientStorage, got.Status, string(got.Body))
	require.Equal(t, "history_full", got.Problem(t).Code)
	require.Nil(t, w.History("chat_history:1"), "nothing is written")
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1/subagents/analytic/history", nil).Status)
	require.Equal(t, 200, w.Post("1", "hi").Status)
}
