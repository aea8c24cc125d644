package mcpserver_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/webtest"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

// A run that waits for a person is no error: the result says what it waits for and where a person
// answers it. No tool does.
func TestARunThatWaits(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	web := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message}, &event.RunWaiting{Waits: []event.Wait{{
			ID: "w1", Kind: event.Approval, ToolCallID: "t1", Tool: "refund", Arguments: json.RawMessage(`{"order":7}`),
			Reason: "The tool says that it destroys something.", ExpiresAt: 1763711157,
		}}})
		<-over
	})
	memory, err := webapi.New(web.URL)
	require.NoError(t, err)
	handler := mcpserver.Config{Memory: memory, Log: zerolog.Nop()}.HTTP()
	defer handler.Close()
	door := httptest.NewServer(handler)
	defer door.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: door.URL}, nil)
	require.NoError(t, err)
	defer s.Close()
	got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{
		"chat": "c", "message": "Refund order 7."}})
	require.NoError(t, err)
	require.False(t, got.IsError)
	require.Contains(t, got.Content[0].(*mcp.TextContent).Text,
		"- w1 (approval refund, until 2025-11-21 07:45 UTC): The tool says that it destroys something.")
	raw, err := json.Marshal(got.StructuredContent)
	require.NoError(t, err)
	var out mcpserver.Answer
	require.NoError(t, json.Unmarshal(raw, &out))
	require.Equal(t, webapi.OutcomeWaiting, out.Outcome)
	require.Equal(t, "w1", out.Waits[0].ID)
	require.JSONEq(t, `{"order":7}`, string(out.Waits[0].Arguments))
	require.Equal(t, "/v1/chats/c/runs/"+out.RunID+"/resume", out.ResumePath)
	require.Equal(t, got.Content[0].(*mcp.TextContent).Text, out.Note)
}
