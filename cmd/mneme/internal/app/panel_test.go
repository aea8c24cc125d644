package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/chat"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// debater answers every step of a panel as a model that holds an opinion, and
// the master's messages with what follows "answer: ", or by calling the tool that
// follows "call: ".
func debater(opinion string, scores map[string]int) func(*upstreamtest.Request) *upstreamtest.Answer {
	return func(r *upstreamtest.Request) *upstreamtest.Answer {
		var given struct {
			Question, Goal string
			Answers        []struct{ Letter string }
			Plan           *struct{ Objective string }
		}
		_ = json.Unmarshal([]byte(r.User), &given)
		say := func(format string, args ...any) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say(fmt.Sprintf(format, args...)))
			return &a
		}
		use := func(tool, input string) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Use(tool, input))
			return &a
		}
		_, tool, calls := strings.Cut(r.User, "call: ")
		switch {
		case len(r.Results) > 0:
			return say("The panel says: %s", strings.Join(r.Results, " "))
		case calls:
			return use(tool, `{"task":"REST or gRPC?"}`)
		case len(r.Tools) == 1:
			return use("create_plan", fmt.Sprintf(`{"objective":"Use %s","reasoning":"It fits.","tasks":["Try %s","Decide"]}`,
				opinion, opinion))
		case len(r.Tools) > 1:
			return say("The master heard %q.", r.User)
		case given.Plan != nil:
			return say(`{"score":%d,"reasoning":"Seen from %s."}`, scores[strings.TrimPrefix(given.Plan.Objective, "Use ")],
				opinion)
		case given.Answers != nil && bytes.Contains(r.Body, []byte("You moderate")):
			return say(`{"conclusion":"REST for others, gRPC inside.","key_points":["Clients differ"],"consensus":["Both ` +
				`work"],"disagreements":[]}`)
		case given.Answers != nil:
			return say("%d answers read. I still prefer %s.", len(given.Answers), opinion)
		}
		return say("I prefer %s.", opinion)
	}
}

const panelFile = `
proxy:
  active: claude
  teammates: {opus: claude, kimi: kimi, gpt: gpt}
  backends:
    claude: {kind: anthropic, base_url: %q, model_map: {opus: claude-opus-4-5, "*": claude-sonnet-4-5}}
    kimi: {kind: anthropic, vendor: kimi, base_url: %q, model_map: {"*": kimi-k2-thinking}}
    gpt: {kind: openai, base_url: %q, model_map: {gpt: gpt-large}}
panel:
  members:
    - {name: opus}
    - {name: kimi, model: thinking}
    - {name: gpt}
  moderator: {name: kimi}
`

// sitting is a mneme with a panel of three models of three vendors.
type sitting struct {
	*up
	claude, kimi, gpt *upstreamtest.Server
}

func convene(t *testing.T, environ ...string) *sitting {
	return conveneWith(t, debater("gRPC", map[string]int{"REST": 8, "GraphQL": 3}),
		debater("REST", map[string]int{"gRPC": 6, "GraphQL": 2}), debater("GraphQL", map[string]int{"gRPC": 7, "REST": 9}),
		environ...)
}

func conveneWith(t *testing.T, claude, kimi, gpt func(*upstreamtest.Request) *upstreamtest.Answer,
	environ ...string) *sitting {
	vendor := func(c upstreamtest.Config) (*upstreamtest.Server, string) {
		s := upstreamtest.New(c)
		h := httptest.NewServer(s)
		t.Cleanup(h.Close)
		return s, h.URL
	}
	s := &sitting{}
	var urls [3]string
	s.claude, urls[0] = vendor(upstreamtest.Config{Answer: claude})
	s.kimi, urls[1] = vendor(upstreamtest.Config{Vendor: upstreamtest.Kimi, Answer: kimi})
	s.gpt, urls[2] = vendor(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: gpt})
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", fmt.Appendf(nil, panelFile, urls[0], urls[1], urls[2]+"/v1"), 0o600))
	s.up = start(t, environ...)
	return s
}

// types sends lines to an agent, or the master, with mneme chat. It returns the output.
func (s *sitting) types(agent memory.Agent, lines string) (string, error) {
	client, err := webapi.New("http://" + s.addrs.Webmemory)
	require.NoError(s.t, err)
	defer client.Close()
	var out bytes.Buffer
	err = chat.Run(context.Background(), client, chat.Options{Chat: memory.MustChat("1"), Agent: agent,
		In: strings.NewReader(lines), Out: &out})
	return out.String(), err
}

// history is what is stored of a subagent in chat 1.
func (s *sitting) history(agent string) (messages []memory.Message) {
	status, body := s.request(http.MethodGet, "/v1/chats/1/subagents/"+agent+"/history", "", "")
	require.Equal(s.t, http.StatusOK, status, body)
	var page struct{ Messages []memory.Message }
	require.NoError(s.t, json.Unmarshal([]byte(body), &page))
	return page.Messages
}

func models(s *upstreamtest.Server) map[string]int {
	n := map[string]int{}
	for _, r := range s.Requests() {
		n[r.Model]++
	}
	return n
}

func TestADiscussionOfThreeVendorsInTheChat(t *testing.T) {
	s := convene(t)
	shown, err := s.types("discuss", "Should the API be REST or gRPC?\n")
	require.NoError(t, err)
	for _, line := range []string{
		"→ discuss: Should the API be REST or gRPC?\n",
		"  discuss · answer opus (A)\n", "  discuss · answer ✓ kimi (B): I prefer REST.\n",
		"  discuss · review gpt (C) on A, B\n",
		"  discuss · review ✓ opus (A) on B, C: 2 answers read. I still prefer gRPC.\n",
		"  discuss · synthesis ✓ kimi (moderator): REST for others, gRPC inside.\n",
		"REST for others, gRPC inside.\n\nKey points:\n- Clients differ\n\nConsensus:\n- Both work\n\nAnswered: opus (A), " +
			"kimi (B), gpt (C). Moderator: kimi.\n",
	} {
		require.Contains(t, shown, line)
	}
	require.Equal(t, map[string]int{"claude-opus-4-5": 2}, models(s.claude))
	require.Equal(t, map[string]int{"kimi-k2-thinking": 3}, models(s.kimi), "it moderates too")
	require.Equal(t, map[string]int{"gpt-large": 2}, models(s.gpt))
	for _, v := range []*upstreamtest.Server{s.claude, s.kimi, s.gpt} {
		require.Empty(t, v.Rejections())
	}

	// It is remembered, and the next discussion has it before its eyes.
	said := s.history("discuss")
	require.Len(t, said, 2)
	require.Equal(t, "Should the API be REST or gRPC?", said[0].Content)
	require.Contains(t, said[1].Content, "REST for others")
	_, err = s.types("discuss", "And for a browser?\n")
	require.NoError(t, err)
	for _, r := range s.gpt.Requests()[2:] {
		require.Contains(t, string(r.Body), "REST for others, gRPC inside.")
	}
}

func TestAnEnsembleOfThreeVendorsInTheChat(t *testing.T) {
	s := convene(t)
	shown, err := s.types("ensemble", "Give the API a second door\n")
	require.NoError(t, err)
	for _, line := range []string{
		"  ensemble · create_plan ✓ opus: Use gRPC (tasks: 2)\n",
		"  ensemble · vote ✓ gpt on the plan of kimi: 9 of 10. Seen from GraphQL.\n",
		"Chosen: the plan of kimi (average 8.50, 2 votes).\n\nObjective: Use REST\nReasoning: It fits.\n1. Try REST\n2. " +
			"Decide\n",
		"Plan of opus: average 6.50, 2 votes.\n", "Plan of gpt: average 2.50, 2 votes.\n",
	} {
		require.Contains(t, shown, line)
	}
	for _, v := range []*upstreamtest.Server{s.claude, s.kimi, s.gpt} {
		require.Equal(t, 3, v.Count(), "a plan and two votes each")
		require.Empty(t, v.Rejections())
	}
	require.Contains(t, s.history("ensemble")[1].Content, "- opus: 8 of 10. Seen from gRPC.")
}

// A second try is a valid request at every vendor, thinking and tool ids included.
func TestASecondTryAtEveryVendor(t *testing.T) {
	clumsy := func(r *upstreamtest.Request) *upstreamtest.Answer {
		a := upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say(`{"score":5,"reasoning":"Good enough."}`))
		again := bytes.Contains(r.Body, []byte("This cannot be used")) || len(r.Results) > 0
		switch {
		case len(r.Tools) == 1 && again:
			a = upstreamtest.Reply(upstreamtest.Think("Tasks."),
				upstreamtest.Use("create_plan", `{"objective":"o","reasoning":"r","tasks":["t"]}`))
		case len(r.Tools) == 1:
			a = upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Here it is."),
				upstreamtest.Use("create_plan", `{"objective":"o","reasoning":"r","tasks":[]}`))
		case !again:
			a = upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Five, I would say."))
		}
		return &a
	}
	s := conveneWith(t, clumsy, clumsy, clumsy)
	shown, err := s.types("ensemble", "Give the API a second door\n")
	require.NoError(t, err)
	require.Equal(t, 6, strings.Count(shown, "\n- "), shown)
	for _, v := range []*upstreamtest.Server{s.claude, s.kimi, s.gpt} {
		require.Equal(t, 6, v.Count(), "a plan and two votes, each twice")
		require.Empty(t, v.Rejections())
	}
}

func TestTheMastersModelCallsThePanel(t *testing.T) {
	s := convene(t)
	events := s.stream("1", "call: discuss")
	started, ok := events[0].Payload.(*event.RunStarted)
	require.True(t, ok)
	require.Equal(t, []memory.Agent{"analytic", "knowledge", "discuss", "ensemble"}, started.Subagents)
	completions := 0
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *event.ToolProgress:
			require.Equal(t, memory.Agent("discuss"), e.Subagent)
		case *event.Completion:
			completions++
			require.Equal(t, event.Completed, p.Status)
			require.Positive(t, p.Usage.InputTokens)
		case *event.Assistant:
			require.Contains(t, p.Content, "The panel says: REST for others")
		}
	}
	require.Equal(t, 1, completions)
}

func TestCommandsAreOffUnlessTheyAreOn(t *testing.T) {
	const typed = "/discuss Should the API be REST or gRPC?"
	s := convene(t)
	require.Equal(t, fmt.Sprintf("The master heard %q.", typed), s.say("1", typed), "a user's words alone call nothing")
	require.Zero(t, s.gpt.Count())

	s = convene(t, "MNEME_PANEL_COMMANDS=true")
	require.Contains(t, s.say("1", typed), "REST for others, gRPC inside.")
	require.Equal(t, "Should the API be REST or gRPC?", s.history("discuss")[0].Content)
	require.Contains(t, s.say("1", "/ensemble\nGive the API a second door"), "Chosen: the plan of kimi")
	require.Contains(t, s.say("1", "/discussion club?"), "The master heard")
	var last *event.Error
	for _, e := range s.stream("1", "/discuss ") {
		if p, ok := e.Payload.(*event.Error); ok {
			last = p
		}
	}
	require.Equal(t, &event.Error{Code: "empty_command", Message: "Write the question behind the command: /discuss …"},
		last)
}

// What a user writes behind /solo the master's model answers, and cannot call the panel.
func TestSoloInAPanelsChat(t *testing.T) {
	s := convene(t)
	require.Equal(t, `The master heard "REST or gRPC?".`, s.say("1", "/solo REST or gRPC?"))
	shown, err := s.types("", "/solo call: discuss\n/solo\n")
	require.EqualError(t, err, "Write the question behind the command: /solo …")
	require.NotContains(t, shown, "→ discuss")
	require.Zero(t, s.gpt.Count())
	for _, r := range s.claude.Requests() {
		var names []string
		for _, tool := range r.Tools {
			names = append(names, tool.Name)
		}
		require.NotContains(t, names, "discuss")
		require.NotContains(t, names, "ensemble")
		require.Contains(t, names, "knowledge")
	}
	require.Contains(t, s.say("1", "call: discuss"), "The panel says: REST for others", "it holds for one message")
}

func TestAVendorThatIsDown(t *testing.T) {
	s := convene(t)
	s.gpt.Fail(upstreamtest.Canned(http.StatusUnauthorized,
		`{"error":{"message":"bad key","type":"invalid_request_error"}}`))
	shown, err := s.types("discuss", "Should the API be REST or gRPC?\n")
	require.NoError(t, err)
	require.Regexp(t, `discuss · answer failed: gpt \(C\): The model's vendor refused the key`, shown)
	require.Regexp(t, `Answered: opus \(A\), kimi \(B\)\. Without an answer: gpt\. The model's vendor refused the key`,
		shown)
	require.Equal(t, 1, s.gpt.Count())
}

func TestAStopEndsThePanelsCalls(t *testing.T) {
	s := convene(t)
	held := make(chan struct{}, 3)
	for _, v := range []*upstreamtest.Server{s.claude, s.kimi, s.gpt} {
		a := upstreamtest.Reply(upstreamtest.Say("never"))
		a.Pause = func(ctx context.Context, _ int) {
			held <- struct{}{}
			<-ctx.Done() // the vendor sees its caller leave
			held <- struct{}{}
		}
		v.Queue(a)
	}
	client, err := webapi.New("http://" + s.addrs.Webmemory)
	require.NoError(t, err)
	defer client.Close()
	var roles []string
	asked := false
	for e, err := range client.Ask(t.Context(), memory.MustChat("1"), "discuss", "REST or gRPC?", "k") {
		require.NoError(t, err)
		roles = append(roles, e.Role())
		if !asked && e.Role() == "subagent_tool" {
			asked = true
			for range 3 {
				<-held
			}
			require.NoError(t, client.Stop(t.Context(), memory.MustChat("1"), e.RunID))
		}
		if p, ok := e.Payload.(*event.Completion); ok {
			require.Equal(t, event.Stopped, p.Status)
		}
	}
	for range 3 {
		<-held
	}
	require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_tool", "subagent_tool", "subagent_tool",
		"subagent_completion", "run_finished"}, roles)
}

func TestWithoutAPanelThereIsNoAgentDiscuss(t *testing.T) {
	t.Parallel()
	s := &sitting{up: start(t, "MNEME_DATA_DIR="+t.TempDir())}
	_, err := s.types("discuss", "Should the API be REST or gRPC?\n")
	require.ErrorContains(t, err, `There is no agent_version "discuss"; there are: master`)
}

// The offline model answers and reviews; what it cannot do is said.
func TestAPanelOfOfflineModels(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte("panel: {members: [{name: one}, {name: two}, {name: three}]}\n"),
		0o600))
	s := &sitting{up: start(t)}
	shown, err := s.types("discuss", "Should the API be REST or gRPC?\n")
	require.NoError(t, err)
	require.Contains(t, shown, "\nI don't know how to answer that: ")
	require.Contains(t, shown, "Answered: one (A), two (B), three (C). Moderator: one.")
	_, err = s.types("ensemble", "Give the API a second door\n")
	require.ErrorContains(t, err, "None of the 3 models wrote a plan.")
}
