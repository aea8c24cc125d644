package webmemory_test

import (
	"net/http"
	"testing"

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
	w.StartReplica(func(c *webmemory.Config) { c.Gate, c.MCP, c.OpenAI = accesstest.Gate(), none, none })
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
