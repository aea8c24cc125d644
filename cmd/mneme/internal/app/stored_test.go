package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/memory"
)

// A tenant stores as much as its limit, by whatever request, and what it deletes makes room. Another tenant notices
// nothing.
func TestATenantStoresNoMoreThanItsLimit(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := withTenantsAnd(t, []string{"MNEME_LIMITS_TENANTS={acme: {stored: 100KB}}"}, "acme", "beta")
	lines := func(text string, count int) string {
		var b bytes.Buffer
		for i := range count {
			m := map[string]any{"role": "user", "content": fmt.Sprint(i, " ", text)}
			require.NoError(t, json.NewEncoder(&b).Encode(map[string]any{"message": m}))
		}
		return b.String()
	}
	kilobyte := strings.Repeat("ab ", 333)
	s.keys["operator"], _ = s.admin(memory.Tenant{})
	stored := func(of string) int64 {
		tenants := gjson.Get(s.must("operator", "GET", "/v1/tenants", "").body, "tenants")
		return tenants.Get(`#(tenant=="` + of + `").stored_bytes`).Int()
	}
	refused := func(method, path, body string) {
		t.Helper()
		got := keyed{method, s.url(path), s.keys["acme"], body, nil}.do(t)
		require.Equal(t, http.StatusInsufficientStorage, got.status, "%s %s: %s", method, path, got.body)
		require.Contains(t, got.body, "storage_full", path)
		require.Contains(t, got.body, "The tenant acme has reached its storage limit of 100KB", path)
	}
	missing := func(chat string) {
		t.Helper()
		got := keyed{"GET", s.url("/v1/chats/" + chat + "/export"), s.keys["acme"], "", nil}.do(t)
		require.Equal(t, http.StatusNotFound, got.status, "nothing stays of what was refused: %s", got.body)
	}
	counted := func(of string, least, most int64) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			n := stored(of)
			assert.True(c, least <= n && n <= most, "%s stores %d", of, n)
		}, 20*time.Second, 20*time.Millisecond)
	}
	// Nothing but their removal touches these chats, so that it has to be counted by itself.
	for _, chat := range []string{"erased", "rewound", "redacted", "anns"} {
		s.must("acme", "POST", "/v1/chats/"+chat+"/messages", `{"message":"`+strings.Repeat("ab ", 1500)+`","user":"ann"}`)
	}
	s.must("acme", "POST", "/v1/users/ann/notes", `{"text":"`+strings.Repeat("a", 400)+`"}`)
	of := func(part string) int64 {
		n, _ := s.client.HGet(t.Context(), "mneme:stored:acme", part).Int64()
		return n
	}
	require.Eventually(t, func() bool { return of("anns") > 4500 && of("redacted") > 4500 }, 20*time.Second,
		20*time.Millisecond)
	require.Greater(t, of("*user:ann"), int64(400))
	id := gjson.Get(s.must("acme", "GET", "/v1/chats/redacted/history", "").body, "messages.0.id").Str
	s.must("acme", "DELETE", "/v1/chats/redacted/messages/"+id+"?scope=message", "")
	s.must("acme", "POST", "/v1/chats/rewound/rewind", `{"to":null}`)
	s.must("acme", "DELETE", "/v1/chats/erased", "")
	s.must("acme", "DELETE", "/v1/users/ann?chats=true", "")
	counted("acme", 0, 3000)
	s.must("acme", "DELETE", "/v1/chats/redacted", "")
	counted("acme", 0, 0)

	s.must("acme", "POST", "/v1/chats/a/import", lines(kilobyte, 60))
	s.must("beta", "POST", "/v1/chats/a/import", lines(kilobyte, 300))
	counted("acme", 60_000, 70_000)
	counted("beta", 300_000, 350_000)

	refused("POST", "/v1/chats/b/import", lines(kilobyte, 60)) // on its way
	refused("POST", "/v1/chats/a/fork", `{"as":"b"}`)
	missing("b")
	counted("acme", 60_000, 70_000)
	refused("PUT", "/v1/chats/a/documents/d", strings.Repeat(kilobyte, 80))
	s.must("acme", "PUT", "/v1/chats/a/documents/d", strings.Repeat(kilobyte, 33), "Content-Type", "text/plain")
	counted("acme", 90_000, 102_400)
	s.must("acme", "POST", "/v1/chats/full/messages", `{"message":"`+strings.Repeat("ab ", 5000)+`"}`, "Idempotency-Key", "k")
	counted("acme", 100_000, 130_000)
	s.must("acme", "POST", "/v1/chats/full/messages", `{"message":"`+strings.Repeat("ab ", 5000)+`"}`, "Idempotency-Key", "k")

	for _, full := range []struct{ method, path, body string }{
		{"POST", "/chat", `{"chat_id":"c","message":"hi"}`},
		{"POST", "/v1/chats/c/messages", `{"message":"hi"}`},
		{"POST", "/c/c/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/responses", `{"model":"mneme","input":"hi"}`},
		{"POST", "/v1/chats/c/import", lines("hi", 1)},
		{"POST", "/v1/chats/a/fork", `{"as":"b"}`},
		{"POST", "/v1/chats/a/notes", `{"text":"hi"}`},
		{"POST", "/v1/users/ann/notes", `{"text":"hi"}`},
		{"PUT", "/v1/collections/papers", ""},
		{"PUT", "/v1/chats/c/documents/d", "hi"},
	} {
		refused(full.method, full.path, full.body)
	}
	missing("c")
	s.must("acme", "POST", "/v1/oneshot", `{"message":"hi"}`)
	s.must("acme", "POST", "/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"hi"}]}`)
	s.must("acme", "GET", "/v1/chats/a/recall?query=ab", "")
	s.must("beta", "POST", "/v1/chats/c/messages", `{"message":"hi"}`)

	s.must("acme", "DELETE", "/v1/chats/full", "")
	s.must("acme", "DELETE", "/v1/chats/a", "")
	counted("acme", 0, 0)
	s.must("acme", "POST", "/v1/chats/a/messages", `{"message":"hi"}`)
	counted("acme", 1, 10_000)
}

// A body that exceeds the bytes that are left is refused with the same error, whichever route it is sent to.
func TestABodyBeyondTheStorageLimitIsRefused(t *testing.T) {
	t.Parallel()
	s := withTenantsAnd(t, []string{"MNEME_LIMITS_TENANTS={acme: {stored: 2KB}}"}, "acme")
	s.must("acme", "POST", "/v1/chats/c/notes", `{"text":"short"}`)
	for method, path := range map[string]string{
		"POST": "/v1/chats/c/notes", "PUT": "/v1/collections/c/documents/a/search",
	} {
		header := []string{"Content-Type", "text/markdown"}
		if method == "POST" {
			header = nil
		}
		got := keyed{method, s.url(path), s.keys["acme"], `{"text":"short"` + strings.Repeat(" ", 4000) + `}`, header}.do(t)
		require.Equal(t, http.StatusInsufficientStorage, got.status, "%s %s: %s", method, path, got.body)
		require.Contains(t, got.body, "storage_full", path)
	}
}
