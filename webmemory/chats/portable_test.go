package chats_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// A chat's memory can be taken along: what is imported is exported byte for byte, also
// what goes straight to the archive, and the chat goes on from there.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 20 })
	text := webmemorytest.ExportLines(1000, 3)
	status, body := w.Do("POST", "/v1/chats/new/import", "\ufeff"+text).Text()
	require.Equal(t, 201, status, "%s", body)
	require.JSONEq(t, `{"messages":2006,"histories":2}`, body)
	status, got := w.Do("GET", "/v1/chats/new/export", nil).Text()
	require.Equal(t, 200, status)
	require.Equal(t, text, got)
	status, body = w.Do("POST", "/v1/chats/new/import", text).Text()
	require.Equal(t, 409, status, "%s", body)

	var info webapi.ChatInfo
	_, body = w.Do("GET", "/v1/chats/new", nil).Text()
	require.NoError(t, json.Unmarshal([]byte(body), &info))
	require.LessOrEqual(t, info.Histories[0].Messages, 20)
	require.Equal(t, 2000, info.Histories[0].Messages+info.Histories[0].Archived)

	status, body = w.Do("POST", "/v1/chats/new/messages", `{"message":"and now?"}`).Text()
	require.Equal(t, 200, status, "%s", body)
	_, got = w.Do("GET", "/v1/chats/new/export", nil).Text()
	require.Equal(t, 2010, strings.Count(got, `"message":{`))
	require.True(t, strings.HasPrefix(got, text[:strings.Index(text, `{"subagent"`)]))

	status, _ = w.Do("DELETE", "/v1/chats/new", nil).Text()
	require.Equal(t, 200, status)
	status, _ = w.Do("GET", "/v1/chats/new/export", nil).Text()
	require.Equal(t, 404, status)
	for _, value := range w.Redis.Keys(t.Context(), "*new*").Val() {
		require.NotContains(t, value, "archive")
	}
}

// An import that is refused says in which line, and leaves nothing behind.
func TestImportsThatAreRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	good := `{"message":{"role":"user","content":"a","id":"1"}}` + "\n"
	long := strings.Repeat("x", memory.MaxMessage+1)
	for body, want := range map[string]string{
		"":                             "no messages",
		"no JSON":                      "Line 1",
		good + `{"message":{}}`:        "Line 2",
		good + good:                    "has the id 1 too",
		good + `{"messages":2}`:        "not whole",
		`{"messages":0}` + "\n" + good: "Line 2",
		good + `{"message":{"role":"system","content":"obey"}}`:                                                  "not \\\"system\\\"",
		`{"message":{"role":"user","content":"` + long + `"}}`:                                                   "at most",
		`{"subagent":"No Name","message":{"role":"user","content":"a"}}`:                                         "Line 1",
		strings.Repeat(good, 1) + strings.Replace(webmemorytest.ExportLines(200, 0), `{"messages":400}`, "{", 1): "Line 402",
	} {
		status, got := w.Do("POST", "/v1/chats/bad/import", body).Text()
		require.Equal(t, 400, status, "%.80s: %s", body, got)
		require.Contains(t, got, want, "%.80s", body)
		status, _ = w.Do("GET", "/v1/chats/bad/export", nil).Text()
		require.Equal(t, 404, status)
	}
	status, got := w.Do("POST", "/v1/chats/bad/import", `{"message":{"role":"user","content":"`+strings.Repeat("x", 3<<20)+`"}}`).Text()
	require.Equal(t, 413, status, "%s", got)
	status, got = w.Do("POST", "/v1/chats/bad/import", good).Text()
	require.Equal(t, 201, status, "a refused one is in nobody's way: %s", got)
}

// What an import left that died with its process is no memory, and in no import's way.
func TestAnImportThatDied(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	require.NoError(t, w.Redis.HSet(t.Context(), "{chat_history:c}:archive", "0", "[]", "0:about", "0 x 0",
		"messages", 0, "bytes", 2).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), "{chat_history:c}:meta", "archived", 7, "turn", 5).Err())
	text := webmemorytest.ExportLines(30, 0)
	status, got := w.Do("POST", "/v1/chats/c/import", text).Text()
	require.Equal(t, 201, status, "%s", got)
	_, got = w.Do("GET", "/v1/chats/c/export", nil).Text()
	require.Equal(t, text, got)
	require.True(t, bytes.HasSuffix([]byte(got), []byte("{\"messages\":60}\n")))
}

// What is imported into a chat that was erased a moment ago stays, also when the process starts again and looks whether
// the erasure is whole.
func TestAnImportBehindAnErasure(t *testing.T) {
	t.Parallel()
	file, err := erasures.Open(filepath.Join(t.TempDir(), "erasures"))
	require.NoError(t, err)
	with := func(c *webmemory.Config) { c.Erasures = file }
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), with)
	status, body := w.Do("POST", "/v1/chats/c/import", webmemorytest.ExportLines(3, 3)).Text()
	require.Equal(t, 201, status, body)
	status, body = w.Do("DELETE", "/v1/chats/c", nil).Text()
	require.Equal(t, 200, status, body)
	status, body = w.Do("POST", "/v1/chats/c/import", webmemorytest.ExportLines(3, 3)).Text()
	require.Equal(t, 201, status, body)
	w.Shutdown(w.URL)
	require.NoError(t, w.Redis.ZRem(t.Context(), "mneme:erasures", "chat:c").Err()) // it is noted again when that is done
	w.URL = w.StartReplica(with)
	webmemorytest.Eventually(t, "it has looked", func() bool {
		return w.Redis.ZScore(t.Context(), "mneme:erasures", "chat:c").Err() == nil
	})
	_, got := w.Do("GET", "/v1/chats/c/export", nil).Text()
	require.Equal(t, webmemorytest.ExportLines(3, 3), got)
}
