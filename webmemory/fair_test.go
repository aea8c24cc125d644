package webmemory_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/fair"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// unshared are the routes that change something and take no place of work: they are for operators and for processes,
// only pass requests on, or have places of their own.
var unshared = regexp.MustCompile(`^\w+ (/v1/keys|/v1/tenants|/v1/collections|/v1/chats/:chat/documents|/mcp|/internal/v1/(runs|` +
	`erasures|rewinds)|/v1/chats/:chat/runs/:run/stop)|^DELETE (.*/v1/(responses|conversations)/|/v1/users/:user$)`)

// startShared starts a replica whose requests are of the tenant in a header and share p. It returns the routes that
// change something.
func startShared(t *testing.T, a webmemorytest.Agent, p *fair.Places) (w *webmemorytest.World, routes []string) {
	w = webmemorytest.NewWorld(t, a)
	w.SetApiserver(forTenants(w.Runs.Handler()))
	w.Middleware = func(h http.Handler) http.Handler {
		for _, r := range h.(interface{ Routes() gin.RoutesInfo }).Routes() {
			if r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH" || r.Method == "DELETE" {
				routes = append(routes, r.Method+" "+r.Path)
			}
		}
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			of, _ := memory.ParseTenant(r.Header.Get("X-Tenant"))
			h.ServeHTTP(rw, r.WithContext(access.With(r.Context(), access.Principal{Tenant: of, Scopes: access.Scopes})))
		})
	}
	w.URL = startFull(w, func(c *webmemory.Config) { c.Work = p })
	return w, routes
}

// A tenant that has all places of work it can get keeps no other one from any route. Its own requests are refused.
func TestEachRouteThatWorksSharesItsPlaces(t *testing.T) {
	t.Parallel()
	p := fair.New(2, 50*time.Millisecond)
	w, routes := startShared(t, webmemorytest.Answers("hi"), p)
	a, err := memory.ParseTenant("a")
	require.NoError(t, err)
	leave, err := p.Enter(t.Context(), a)
	require.NoError(t, err)
	shared := 0
	for _, held := range []bool{true, false} {
		for _, route := range routes {
			if unshared.MatchString(route) {
				continue
			}
			shared++
			method, path, _ := strings.Cut(route, " ")
			path = strings.NewReplacer(":", "x", "*", "y").Replace(path)
			for _, tenant := range []string{"a", "b"} {
				got := w.Do(method, path, `{"model":"mneme","message":"hi","messages":[{"role":"user","content":"hi"}],`+
					`"input":"hi"}`, "X-Tenant", tenant, "Content-Type", "application/json")
				full := got.Header.Get("Mneme-Error-Code") == webapi.CodeTooManyChats ||
					strings.Contains(string(got.Body), webapi.CodeTooManyChats)
				require.Equal(t, held && tenant == "a", full, "%s %s: %d %s", tenant, route, got.Status, got.Body)
				if full {
					require.Equal(t, http.StatusServiceUnavailable, got.Status, route)
					require.NotEmpty(t, got.Header.Get("Retry-After"), route)
				}
			}
		}
		leave()
	}
	require.Greater(t, shared, 60)
	require.Zero(t, p.InUse())
}

// Who waits for a model, for a turn, for a client or for a chat that another request changes has no place meanwhile.
func TestNoPlaceIsHeldWhileARequestWaits(t *testing.T) {
	t.Parallel()
	p := fair.New(1, 10*time.Second)
	release := make(chan struct{})
	w, _ := startShared(t, webmemorytest.AnswersAfter(release), p)
	body, client := io.Pipe()
	wait := func(method, path string, body any, header ...string) <-chan int {
		ended := make(chan int, 1)
		request := w.NewRequest(method, path, body, append(header, "X-Tenant", "a")...)
		go func() { ended <- w.Send(request).Status }()
		return ended
	}
	line := `{"message":{"role":"user","content":"hi","id":"m1.1"}}` + "\n"
	model := w.Do("POST", "/v1/chats/talks/messages", `{"message":"hi"}`, "X-Tenant", "a", "Prefer", "respond-async")
	require.Equal(t, 202, model.Status, "%s", model.Body)
	turn := wait("POST", "/v1/chats/talks/notes", `{"text":"n"}`)
	slow, err := http.NewRequest("POST", w.URL+"/v1/chats/slow/import", body)
	require.NoError(t, err)
	slow.Header.Set("X-Tenant", "a")
	imported := make(chan int, 1)
	go func() { imported <- w.Send(slow).Status }()
	_, err = io.WriteString(client, line)
	require.NoError(t, err)

	do := func(status int, method, path, body string) {
		got := w.Do(method, path, body, "X-Tenant", "a", "Content-Type", "application/json")
		require.Equal(t, status, got.Status, "%s %s: %s", method, path, got.Body)
	}
	do(201, "POST", "/v1/chats/c/import", line+line[:len(line)-len(`1.1"}}`+"\n")]+`1.2"}}`)
	do(201, "POST", "/v1/chats/c/fork", `{"as":"d"}`)
	do(200, "PATCH", "/v1/chats/d", `{"title":"t"}`)
	do(201, "POST", "/v1/chats/d/notes", `{"text":"n"}`)
	do(200, "DELETE", "/v1/chats/d/messages/m1.2?scope=message", "")
	do(200, "POST", "/v1/chats/d/rewind", `{"to":"m1.1"}`)
	do(200, "DELETE", "/v1/chats/d", "")
	require.Empty(t, turn)
	require.Empty(t, imported)

	require.NoError(t, client.Close())
	require.Equal(t, 201, <-imported)
	close(release)
	require.Equal(t, 201, <-turn)
	require.Zero(t, p.InUse())
}
