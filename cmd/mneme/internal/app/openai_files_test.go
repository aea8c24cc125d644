package app_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/cmd/mneme/internal/app"
	"mneme/internal/testtier"
)

// withFile is a request for a completion, with a file beside the question.
func withFile(question, name, text string) string {
	return fmt.Sprintf(`{"model":"mneme","messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"file",`+
		`"file":{"filename":%q,"file_data":"data:text/plain;base64,%s"}}]}]}`, question, name,
		base64.StdEncoding.EncodeToString([]byte(text)))
}

// The answer to the message that a file comes with is from the file already, with its name; another chat has nothing of
// it, and it goes with its chat.
func TestACompletionIsAnsweredFromItsFile(t *testing.T) {
	t.Parallel()
	u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir())...)
	const question = "What is the weight of the silver anchor?"
	status, body := u.request("POST", "/c/mine/v1/chat/completions", "application/json",
		withFile(question, "anchor.txt", "The silver anchor has a weight of 77 pounds."))
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, gjson.Get(body, "choices.0.message.content").Str, "77 pounds")
	require.Equal(t, "anchor.txt", gjson.Get(body, "choices.0.message.annotations.0.citation.source").Str, body)
	require.Contains(t, u.ask("mine", question).Content, "77 pounds")
	require.NotContains(t, u.ask("other", question).Content, "77")
	status, body = u.request("DELETE", "/v1/chats/mine", "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.NotContains(t, u.ask("mine", question).Content, "77")
}

// A file takes the right of documents, whoever may chat, and no tenant gets another one's.
func TestAFileTakesTheRightOfDocuments(t *testing.T) {
	t.Parallel()
	s := withKeys(t)
	chat, both := s.key("acme", access.Chat), s.key("acme", access.Chat, access.Documents)
	read := s.key("acme", access.MemoryRead)
	file := withFile("What is in it?", "a.txt", "The vault is open.")
	status, body := ask(t, "POST", s.url("/c/1/v1/chat/completions"), chat, file)
	require.Equal(t, http.StatusForbidden, status, body)
	require.Contains(t, body, "it needs the scope documents")
	require.Equal(t, "permission_error", gjson.Get(body, "error.type").Str)
	_, body = ask(t, "GET", s.url("/v1/chats/1/history"), read, "")
	require.EqualValues(t, 0, gjson.Get(body, "total").Int(), body)
	status, body = ask(t, "POST", s.url("/c/1/v1/chat/completions"), both, file)
	require.Equal(t, http.StatusOK, status, body)
	_, body = ask(t, "GET", s.url("/v1/chats/1/documents"), both, "")
	require.Contains(t, body, "a.txt")
	_, body = ask(t, "GET", s.url("/v1/chats/1/documents"), s.key("beta", access.Documents), "")
	require.NotContains(t, body, "a.txt")
}

// Embeddings are the gateway's: webmemory answers as that does, for the same key, which it counts there.
func TestEmbeddingsAtWebmemory(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	e := newEndpoint(t)
	secret := "MNEME_INTERNAL_SECRET=" + strings.Repeat("secret-", 8)
	s := withKeys(t, secret, backend("places", "openai", e.URL+"/v1"), "MNEME_PROXY_EMBEDDINGS_BACKEND=places")
	models, chat := s.key("acme", access.Models), s.key("acme", access.Chat)
	const body = `{"model":"embed-1","input":["red apples"]}`
	for _, path := range []string{"/v1/embeddings", "/c/7/v1/embeddings"} {
		status, got := ask(t, "POST", s.url(path), models, body)
		require.Equal(t, http.StatusOK, status, got)
		require.Equal(t, e.size, len(gjson.Get(got, "data.0.embedding").Array()))
		_, direct := ask(t, "POST", "http://"+s.addrs.Proxy+"/v1/embeddings", models, body)
		require.Equal(t, direct, got)
		status, got = ask(t, "POST", s.url(path), chat, body)
		require.Equal(t, http.StatusForbidden, status, got)
		require.Contains(t, got, "it needs the scope models")
		status, got = ask(t, "POST", s.url(path), "mn_default_"+strings.Repeat("x", 40), body)
		require.Equal(t, http.StatusUnauthorized, status, got)
		require.Equal(t, "authentication_error", gjson.Get(got, "error.type").Str)
		status, got = ask(t, "POST", s.url(path), models, strings.Repeat(" ", 33<<20))
		require.Equal(t, http.StatusRequestEntityTooLarge, status, got)
		require.Equal(t, "too_large", gjson.Get(got, "error.code").Str, got)
	}
	status, got := ask(t, "POST", s.url("/c/a%20b/v1/embeddings"), models, body)
	require.Equal(t, http.StatusBadRequest, status, got)
	odd := keyed{"POST", s.url("/v1/embeddings"), models, body, []string{"X-Session-Id", "a b"}}.do(t)
	require.Equal(t, http.StatusOK, odd.status, "a chat is nothing to them")
	reads := s.key("acme", access.MemoryRead)
	require.Eventually(t, func() bool { // records are written behind the call
		_, rows := ask(t, "GET", s.url("/v1/usage?by=key"), reads, "")
		return gjson.Get(rows, "rows.#").Int() == 1 && gjson.Get(rows, "rows.0.calls").Int() == 5
	}, time.Minute, 100*time.Millisecond)

	// What the vendor refuses with comes as from the gateway.
	e.set(func() { e.down = 400 })
	for _, at := range []string{s.url("/v1/embeddings"), "http://" + s.addrs.Proxy + "/v1/embeddings"} {
		status, got = ask(t, "POST", at, models, body)
		require.Equal(t, http.StatusBadRequest, status, got)
		require.Contains(t, got, "not now")
	}
	e.set(func() { e.down = 0 })

	// A webmemory that is a process of its own finds the gateway where the apiserver does.
	environ := []string{"MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL=redis://" + s.client.Options().Addr,
		secret, "MNEME_DATA_DIR=" + t.TempDir(), "MNEME_WEBMEMORY_APISERVER=http://" + s.addrs.Apiserver}
	alone := startOnly(t, app.Webmemory, append(environ, "MNEME_APISERVER_PROXY=http://"+s.addrs.Proxy)...)
	status, got = ask(t, "POST", alone.url("/v1/embeddings"), models, body)
	require.Equal(t, http.StatusOK, status, got)
	away := startOnly(t, app.Webmemory, append(environ, "MNEME_APISERVER_PROXY=http://127.0.0.1:1")...)
	status, got = ask(t, "POST", away.url("/v1/embeddings"), models, body)
	require.Equal(t, http.StatusServiceUnavailable, status, got)
	require.Equal(t, "gateway_unavailable", gjson.Get(got, "error.code").Str)
}
