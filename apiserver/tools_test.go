package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
)

// toolShelf is Tools with a server that is away.
type toolShelf struct{ accepted string }

func (s *toolShelf) List(context.Context) api.ToolList {
	return api.ToolList{
		Tools: []api.ToolInfo{{Agent: "analytic", Name: "refund", ID: "crm/refund", Kind: api.ToolMCP, Policy: "always",
			State: "away"}},
		Servers: []api.ToolServer{{Server: "crm", State: "away", Reason: "it cannot be reached", Changed: []string{"steal"}},
			{Server: "erp", State: "ready", Tools: 2}},
	}
}

func (s *toolShelf) Call(_ context.Context, c api.ToolCall) (api.ToolCalled, error) {
	if c.Tool != "refund" {
		return api.ToolCalled{}, errors.New("The server crm is away: it cannot be reached.")
	}
	return api.ToolCalled{Result: string(c.Agent) + string(c.Arguments)}, nil
}

func (s *toolShelf) Accept(_ context.Context, server string) error {
	if server == "erp" {
		return errors.New("The server erp is away.")
	}
	s.accepted = server
	return nil
}

// Tools are listed, called by hand and accepted; a server that is away keeps no service from being ready.
func TestTools(t *testing.T) {
	tools := &toolShelf{}
	s := start(t, apiserver.Config{Tools: func() apiserver.Tools { return tools }}, echo)
	list, err := s.Tools(t.Context())
	require.NoError(t, err)
	require.Equal(t, tools.List(t.Context()), list)
	for agent, want := range map[string]string{"": `{"n":1}`, "master": `{"n":1}`, "analytic": `analytic{"n":1}`} {
		called, err := s.send(t, "/v1/tools/call", `{"agent":"`+agent+`","tool":"refund","arguments":{"n":1}}`)
		require.Equal(t, 200, err)
		require.JSONEq(t, `{"result":`+quoted(want)+`}`, called)
	}
	now, err := s.AcceptTools(t.Context(), "crm")
	require.NoError(t, err)
	require.Equal(t, "crm", tools.accepted)
	require.Equal(t, "away", now.State)
	for body, want := range map[string]string{
		`{"agent":"analytic","tool":"other","arguments":{}}`: `502 tool_failed The server crm is away: it cannot be reached.`,
		`{"agent":"nobody","tool":"refund"}`:                 `404 unknown_agent There is no agent "nobody"`,
		`{"agent":"a b","tool":"refund"}`:                    `400 bad_request`,
		`{"agent":"analytic"}`:                               `400 bad_request`,
		`{"tool":"refund","arguments":[1]}`:                  `400 bad_request`,
		`{"tool":"refund","arguments":null}`:                 `400 bad_request`,
		`[`:                                                  `400 bad_request`,
	} {
		require.Contains(t, s.refused(t, "/v1/tools/call", body), want, body)
	}
	require.Contains(t, s.refused(t, "/v1/tools/accept", `{"server":"other"}`), "404 unknown_tool_server")
	require.Contains(t, s.refused(t, "/v1/tools/accept", `{"server":"erp"}`), "502 tool_failed The server erp is away.")
	require.JSONEq(t, `{"status":"ready","tool_servers_away":[{"server":"crm","reason":"it cannot be reached"}]}`,
		s.get(t, "/readyz"))
	metrics := s.get(t, "/metrics")
	require.Contains(t, metrics, "\nmneme_tool_servers_away 1\n")
	require.Contains(t, metrics, "\nmneme_tools_changed 1\n")
}

// An apiserver without tools says that there are none.
func TestNoTools(t *testing.T) {
	s := start(t, apiserver.Config{}, echo)
	require.JSONEq(t, `{"tools":[],"servers":[]}`, s.get(t, "/v1/tools"))
	require.Contains(t, s.refused(t, "/v1/tools/call", `{"tool":"x"}`), "404 unknown_tool")
	require.Contains(t, s.refused(t, "/v1/tools/accept", `{"server":"x"}`), "404 unknown_tool_server")
	require.JSONEq(t, `{"status":"ready"}`, s.get(t, "/readyz"))
}

func quoted(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

func (s service) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(s.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	return string(raw)
}

func (s service) send(t *testing.T, path, body string) (string, int) {
	t.Helper()
	resp, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw), resp.StatusCode
}

// refused is a refusal as one line.
func (s service) refused(t *testing.T, path, body string) string {
	t.Helper()
	raw, status := s.send(t, path, body)
	var answer struct {
		Error struct{ Code, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(raw), &answer), raw)
	return strings.Join([]string{strconv.Itoa(status), answer.Error.Code, answer.Error.Message}, " ")
}
