package webmemory_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/accesstest"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// A route asks for the scope in its row of the table of acts.
func TestEachRouteOfWebmemoryNeedsItsScope(t *testing.T) {
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("x"))
	var handler http.Handler
	w.Middleware = func(h http.Handler) http.Handler { handler = h; return h }
	none := http.NotFoundHandler()
	w.StartReplica(func(c *webmemory.Config) { c.Gate, c.MCP, c.OpenAI = accesstest.Gate(t), none, none })
	needs := accesstest.Walk(t, handler, "GET /", "GET /ui/*file", "GET /openapi.json", "GET /healthz", "GET /readyz",
		"GET /metrics")
	for route, scope := range map[string]access.Scope{
		"POST /v1/chats/:chat/messages":                  access.Chat,
		"POST /chat":                                     access.Chat,
		"POST /v1/chat/completions":                      access.Chat,
		"POST /c/:chat/v1/responses":                     access.Chat,
		"GET /v1/responses/:response":                    access.MemoryRead,
		"DELETE /v1/responses/:response":                 access.MemoryWrite,
		"POST /mcp":                                      "",
		"GET /v1/chats/:chat/history":                    access.MemoryRead,
		"GET /v1/chats/:chat/export":                     access.MemoryRead,
		"GET /v1/chats":                                  access.MemoryRead,
		"DELETE /v1/chats/:chat":                         access.MemoryWrite,
		"POST /v1/chats/:chat/import":                    access.MemoryWrite,
		"PUT /v1/chats/:chat/documents/*id":              access.Documents,
		"POST /v1/collections/*rest":                     access.Documents,
		"GET /v1/approvals":                              access.Approve,
		"POST /v1/keys":                                  access.Admin,
		"DELETE /v1/tenants/:tenant":                     access.Admin,
		"GET /v1/tenants/:tenant/export":                 access.Admin,
		"POST /internal/v1/runs/:run/calls":              access.Internal,
		"GET /internal/v1/chats/:chat/runs/:run":         access.Internal,
		"DELETE /v1/chats/:chat/subagents/:name/history": access.MemoryWrite,
	} {
		require.Contains(t, needs, route)
		require.Equal(t, string(scope), needs[route], route)
	}
}

// The gateway's routes record only in chats of agents, and only turns of the last day.
func TestTurnsOfAgentsAreRecordedInTheirChatsOnly(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("x"))
	url := w.StartReplica()
	for _, c := range []struct {
		chat, session string
		ago           time.Duration
		status        int
	}{
		{"agent:a", "s", time.Second, 204}, {"agent:a", "s", 7 * time.Hour, 204}, {"agent:a", "s", 25 * time.Hour, 400},
		{"agent:a", "s", -time.Hour, 400}, {"a", "s", time.Second, 400}, {"a", "items", time.Second, 204},
		{"a", "items", 25 * time.Hour, 400},
	} {
		body := fmt.Sprintf(`{"session":%q,"turn":"t","began":%d,"said":"hi"}`, c.session, time.Now().Add(-c.ago).UnixMilli())
		resp, err := http.Post(url+"/internal/v1/chats/"+c.chat+"/heard", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.status, resp.StatusCode, "%+v", c)
	}
}
