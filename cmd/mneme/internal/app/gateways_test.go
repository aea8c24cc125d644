package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// editor is a client of chat completions that never shows thinking. It asks any of
// some gateways, and another one when that is gone.
type editor struct {
	gateways     []*stack
	rng          *rand.Rand
	conversation string
	model        string
	messages     []string
	answered     chan<- struct{}
	gone         *atomic.Int64 // calls that a gateway took along
}

type editorsAnswer struct {
	Choices []struct {
		Message struct {
			Content   *string           `json:"content"`
			ToolCalls []json.RawMessage `json:"tool_calls"`
		} `json:"message"`
	} `json:"choices"`
}

// ask makes one call, as often as it takes; the answer joins the history.
func (e *editor) ask() (editorsAnswer, error) {
	body :=
		fmt.Sprintf(`{"model":%q,"reasoning_effort":"medium","messages":[%s],"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]}`,
			e.model, strings.Join(e.messages, ","))
	for range 10_000 {
		to := e.gateways[e.rng.IntN(len(e.gateways))].setting("MNEME_PROXY_LISTEN")
		r, err := http.NewRequest(http.MethodPost, "http://"+to+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return editorsAnswer{}, err
		}
		r.Header.Set("X-AG-Conversation-Id", e.conversation)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			e.gone.Add(1)
			continue
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			e.gone.Add(1)
			continue
		}
		var answer editorsAnswer
		if resp.StatusCode != http.StatusOK || json.Unmarshal(raw, &answer) != nil || len(answer.Choices) != 1 {
			return answer, fmt.Errorf("%s was answered with %d: %s", body, resp.StatusCode, raw)
		}
		e.answered <- struct{}{}
		return answer, nil
	}
	return editorsAnswer{}, fmt.Errorf("nobody answers")
}

// turn has the model use the tool, and gives what it said in the end.
func (e *editor) turn(n int) (string, error) {
	e.messages = append(e.messages, fmt.Sprintf(`{"role":"user","content":"%s, turn %d: use the tool"}`, e.conversation,
		n))
	for {
		answer, err := e.ask()
		if err != nil {
			return "", err
		}
		m := answer.Choices[0].Message
		raw, err := json.Marshal(struct {
			Role      string            `json:"role"`
			Content   *string           `json:"content"`
			ToolCalls []json.RawMessage `json:"tool_calls,omitempty"`
		}{"assistant", m.Content, m.ToolCalls})
		if err != nil {
			return "", err
		}
		e.messages = append(e.messages, string(raw))
		if len(m.ToolCalls) == 0 {
			return *m.Content, nil
		}
		for _, call := range m.ToolCalls {
			var of struct{ ID string }
			if err := json.Unmarshal(call, &of); err != nil {
				return "", err
			}
			e.messages = append(e.messages, fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"found by %s in turn %d"}`,
				of.ID, e.conversation, n))
		}
	}
}

// Two gateways over one Redis are killed at once, again and again, while clients that
// never show thinking lead dialogues with tools through both. No client is told of
// thinking, each gets its own answers, and what was killed did not take along what had
// been answered.
func TestGatewaysKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{})
	server := httptest.NewServer(vendor)
	defer server.Close()
	redis := redistest.Start(t)
	var gateways []*stack
	for range 2 {
		// A turn is waited for until Redis has it, however slow the machine is.
		s := newStack(t, "MNEME_REDIS_URL="+redis.URL(), "MNEME_PROXY_STATE_MACHINE_WAIT=1m", "MNEME_PROXY_ACTIVE=claude",
			backend("claude", "anthropic", server.URL, "thinking: {budget_tokens: 4000}"))
		s.start("proxy")
		gateways = append(gateways, s)
	}
	const clients, turns, callsPerKill = 6, 8, 12
	answered := make(chan struct{}, clients*turns*4)
	var gone atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		e := &editor{
			gateways: gateways, rng: rand.New(rand.NewPCG(uint64(i), 1)), conversation: fmt.Sprint("chat", i),
			model: []string{"claude-sonnet-4-5", "claude-opus-4-8"}[i%2], answered: answered, gone: &gone,
		}
		all.Go(func() {
			for n := range turns {
				said, err := e.turn(n)
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, fmt.Sprintf("The tool gave: found by %s in turn %d", e.conversation, n), said)
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	kills := 0
	for running := true; running; {
		for n := 0; n < callsPerKill && running; n++ {
			select {
			case <-answered:
			case <-over:
				running = false
			}
		}
		if running {
			s := gateways[kills%2]
			s.kill("proxy")
			s.start("proxy")
			kills++
		}
	}
	unthinking, lost := 0, 0
	for _, r := range vendor.Requests() {
		lost += r.Missing
		if !r.Thinking {
			unthinking++
		}
	}
	t.Logf("%d kills took %d calls along; %d requests were refused, %d were made without thinking, %d blocks were lost",
		kills, gone.Load(), len(vendor.Rejections()), unthinking, lost)
	require.Positive(t, kills)
	require.Empty(t, vendor.Rejections(), "no client is told of thinking, and no vendor has to say so")
	require.Zero(t, unthinking, "nothing that was answered is unknown afterwards")
	require.Zero(t, lost)
}
