package app_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/app"
	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

// till is a tool outside that pays, and the store of the persons' approvals of its calls. Safe
// for concurrent use.
type till struct {
	mu      sync.Mutex
	paid    []string // by call
	claimed []memory.ClaimRequest
	settled []string
}

func (p *till) Call(_ context.Context, c external.Call) (external.Returned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paid = append(p.paid, c.ID+" "+string(c.Arguments))
	return external.Returned{Text: "paid " + string(c.Arguments)}, nil
}

func (p *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call, settles := strings.CutPrefix(r.URL.Path, "/calls/")
	if settles {
		p.settled = append(p.settled, call)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var claim memory.ClaimRequest
	if err := api.DecodeBody(w, r, 1<<20, &claim); err != nil || r.Header.Get("Authorization") != "Bearer now" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	p.claimed = append(p.claimed, claim)
	api.WriteJSON(w, http.StatusOK, memory.Claimed{CallID: "call-of-" + string(claim.Subagent), State: memory.CallGranted})
}

func (p *till) Tools() []external.Tool {
	return []external.Tool{{Caller: p, Policy: external.Always, Definition: external.Definition{
		Server: "till", Name: "pay", Description: "Pays.", Parameters: json.RawMessage(`{"type":"object"}`)}}}
}

// process is an apiserver with agents that reach the models by one gateway.
func (p *till) process(t *testing.T, gateway string) *api.Client {
	t.Helper()
	model := func(path string) loop.Model {
		return openaimodel.New(openaimodel.Config{BaseURL: gateway + path, Model: cmp.Or(path, "master"),
			ReasoningEffort: "medium"})
	}
	m := &master.Agent{Model: model(""), System: "You are the master.", MaxSteps: 5, Now: time.Now, Log: zerolog.Nop()}
	infos := []api.SubagentInfo{}
	for _, name := range []memory.Agent{"a", "b"} {
		m.Subagents = append(m.Subagents, &subagent.Subagent{Name: name, Description: "Pays.",
			System: "You are " + string(name), Model: model("/teammate/" + string(name)), MaxSteps: 5, Calls: event.Serial,
			External: func(run external.Run) []loop.Tool {
				return external.Holder{Run: run, Agent: name, Sources: []external.Source{p}}.Tools()
			}})
		infos = append(infos, api.SubagentInfo{Name: name, Calls: event.Serial})
	}
	s := apiserver.New(apiserver.Config{KeepConversation: func(ctx context.Context, id string, until time.Time) error {
		return openaimodel.KeepConversation(ctx, nil, gateway, id, until)
	}}, m, func() []api.SubagentInfo { return infos }, zerolog.Nop())
	web := httptest.NewServer(s.Handler())
	c, err := api.NewClient(web.URL, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		c.Close()
		web.Close()
	})
	return c
}

// Two subagents wait for a person's yes each, and the run goes on in another apiserver, by another
// gateway. The vendor, which binds thinking to all that stands before it, gets all of it back:
// what the master thought before it delegated, and what each subagent did before it called.
func TestThinkingOutlivesAWait(t *testing.T) {
	t.Parallel()
	think, say, use := upstreamtest.Think, upstreamtest.Say, upstreamtest.Use
	vendor := upstreamtest.New(upstreamtest.Config{
		Thinking: upstreamtest.ThinkingRules{PrefixCheck: true},
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			var answer upstreamtest.Answer
			switch who, first := strings.TrimPrefix(r.User, "task of "), len(r.Results) == 0; {
			case first && who == r.User:
				answer = upstreamtest.Reply(think("master thinks first"), say("I ask both. "), use("a", `{"task":"task of a"}`),
					use("b", `{"task":"task of b"}`))
			case who == r.User:
				answer = upstreamtest.Reply(think("master thinks last"), say("Both: "+strings.Join(r.Results, ", ")))
			case first:
				answer = upstreamtest.Reply(think(who+" thinks first"), use("pay", `{"to":"`+who+`"}`))
			default:
				answer = upstreamtest.Reply(think(who+" thinks last"), say(who+" has paid."))
			}
			return &answer
		}})
	server := httptest.NewServer(vendor)
	defer server.Close()
	redis := redistest.Start(t)
	gateway := func() string {
		// Redis is waited for, however slow the machine is.
		u := startOnly(t, app.Proxy, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+redis.URL(),
			"MNEME_PROXY_STATE_MACHINE_WAIT=1m", "MNEME_PROXY_ACTIVE=claude",
			backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`))
		return "http://" + u.addrs.Proxy
	}
	p := &till{}
	holder := httptest.NewServer(p)
	defer holder.Close()
	request := api.RunRequest{RunID: "r1", ChatID: memory.MustChat("c1"), Message: "Pay both.", ConversationID: "conv",
		Memory: &api.MemoryAccess{URL: holder.URL, Token: "then"}}
	read := func(c *api.Client, r api.RunRequest, after int64) (all []event.Event) {
		accepted, err := c.PostRun(t.Context(), r)
		require.NoError(t, err)
		for batch, err := range c.Batches(t.Context(), accepted.Events, after, 1) {
			require.NoError(t, err)
			all = append(all, batch...)
		}
		return all
	}
	events := read(p.process(t, gateway()), request, 0)
	waiting, ok := events[len(events)-1].Payload.(*event.RunWaiting)
	require.True(t, ok)
	require.Len(t, waiting.Pending, 2)
	require.Empty(t, p.claimed, "nothing is done without a yes")

	request.Memory, request.Resume = &api.MemoryAccess{URL: holder.URL, Token: "now"}, &api.Resume{State: waiting.State}
	for _, w := range waiting.Pending {
		request.Resume.Answers = append(request.Resume.Answers, event.WaitAnswer{ID: w.ID, Decision: event.Approve})
	}
	for _, e := range events {
		if w, ok := e.Payload.(*event.RunWaiting); ok {
			e = event.New(e.Head, &event.RunWaiting{Pending: w.Pending})
		}
		request.Resume.Events = append(request.Resume.Events, e.Line())
	}
	more := read(p.process(t, gateway()), request, int64(len(events)))
	var answer string
	for _, e := range more {
		if said, ok := e.Payload.(*event.Assistant); ok {
			answer = said.Content
		}
	}
	require.Equal(t, "Both: a has paid., b has paid.", answer)
	require.Equal(t, "run_resumed", more[0].Role())
	require.True(t, more[len(more)-1].Terminal())

	require.ElementsMatch(t, []string{`call-of-a {"to":"a"}`, `call-of-b {"to":"b"}`}, p.paid)
	require.ElementsMatch(t, []string{"call-of-a", "call-of-b"}, p.settled)
	for _, c := range p.claimed {
		require.GreaterOrEqual(t, c.Seq, more[0].Seq)
		require.Equal(t, 1, c.N)
	}
	require.Empty(t, vendor.Rejections())
	seen := vendor.Requests()
	require.Len(t, seen, 6)
	for _, r := range seen {
		require.Zero(t, r.Missing)
		require.Empty(t, r.Dropped)
		require.True(t, r.Thinking)
		if len(r.Results) > 0 {
			who, _, _ := strings.Cut(strings.TrimPrefix(r.User, "task of "), " ")
			require.Contains(t, string(r.Body), strings.Replace(who, "Pay", "master", 1)+" thinks first")
		}
	}
}

// A bot's own function is a tool of the master's: its run waits for what the bot returns, and
// nothing of it is left when the run is over.
func TestAClientsOwnTool(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	post := func(path, body string) (int, gjson.Result) {
		status, answer := u.request(http.MethodPost, path, "application/json", body)
		return status, gjson.Parse(answer)
	}
	status, waiting := post("/v1/chats/9/messages", `{"message":"use light {\"room\":\"hall\"}","tools":[{"name":"light",`+
		`"description":"Turns a light on.","parameters":{"type":"object","properties":{"room":{"type":"string"}}}}]}`)
	require.Equal(t, http.StatusAccepted, status, waiting.Raw)
	wait := waiting.Get("waits.0")
	require.Equal(t, `client_result light {"room":"hall"}`,
		wait.Get("kind").Str+" "+wait.Get("tool").Str+" "+wait.Get("arguments").Raw)
	status, answer := post("/v1/chats/9/runs/"+waiting.Get("run_id").Str+"/resume",
		`{"answers":[{"id":"`+wait.Get("id").Str+`","decision":"approve","result":{"state":"it shines"}}]}`)
	require.Equal(t, http.StatusOK, status, answer.Raw)
	require.Contains(t, answer.Get("content").Str, "it shines")
	require.NotEmpty(t, u.say("9", "Thank you."), "the chat goes on")

	for _, taken := range []string{"remember", "analytic"} {
		status, refused := post("/v1/chats/9/messages",
			`{"message":"hi","tools":[{"name":"`+taken+`","parameters":{"type":"object"}}]}`)
		require.Equal(t, http.StatusBadRequest, status, refused.Raw)
		require.Contains(t, refused.Get("error.message").Str, "is taken")
	}
}
