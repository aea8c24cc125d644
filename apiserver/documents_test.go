package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// shelf is a library over a Redis, as one process has it.
func shelf(t *testing.T, client redis.UniversalClient) *rag.Library {
	t.Helper()
	return rag.NewLibrary(docstore.New(client, 0), rag.Options{Log: zerolog.Nop()})
}

// withDocuments is a service over a redis-server, with loaded documents.
func withDocuments(t *testing.T, cfg apiserver.Config) (service, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	cfg.Documents = shelf(t, server.Client())
	require.NoError(t, cfg.Documents.Load(t.Context(), memory.Tenant{}))
	return start(t, cfg, echo), server
}

// call does one request; header are names and values.
func (s service) call(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// found are the ids of the passages that a search gives.
func (s service) found(t *testing.T, collection, query string) (ids []string) {
	t.Helper()
	status, body := s.call(t, "POST", "/v1/collections/"+collection+"/search", fmt.Sprintf(`{"query":%q}`, query))
	require.Equal(t, http.StatusOK, status, body)
	var r rag.Result
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	require.NotNil(t, r.Passages, "a list, be it an empty one")
	for _, p := range r.Passages {
		ids = append(ids, p.ID)
	}
	return ids
}

const asJSON = "application/json"

func TestCharsetOfAFile(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	_, _ = s.call(t, "PUT", "/v1/collections/shop", "")
	const at = "/v1/collections/shop/documents/a.txt?charset="
	status, body := s.call(t, "PUT", at+"latin-eleven", "\xf8", "Content-Type", "text/plain")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "such as windows-1250")
	for name, text := range map[string]string{"windows-1250": "Dvo\xf8\xe1k", "ibm852": "Dvo\xfd\xa0k"} {
		status, body = s.call(t, "PUT", at+name, text, "Content-Type", "text/plain")
		require.Less(t, status, 300, body)
		_, body = s.call(t, "GET", "/v1/collections/shop/documents/a.txt", "")
		require.Contains(t, body, "Dvořák", name)
	}
}

// The way of a document: put, found, changed, found otherwise, deleted, gone.
func TestADocumentFromPutToDelete(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	status, _ := s.call(t, "PUT", "/v1/collections/shop", "")
	require.Equal(t, http.StatusCreated, status)
	status, body := s.call(t, "PUT", "/v1/collections/shop", "")
	require.Equal(t, http.StatusOK, status, "it is there: %s", body)

	const at = "/v1/collections/shop/documents/guide/first.md"
	status, body = s.call(t, "PUT", at+"?title=Tea", "# Green\n\nSteep green tea for three minutes.", "Content-Type",
		"text/markdown")
	require.Equal(t, http.StatusCreated, status, body)
	require.Contains(t, body, `"id":"guide/first.md"`)
	require.Equal(t, []string{"guide/first.md#0"}, s.found(t, "shop", "how long for green tea"))

	status, body = s.call(t, "PUT", "/v1/collections/shop/documents/guide%2Ffirst.md?title=Tea",
		"# Green\n\nSteep green tea for three minutes.", "Content-Type", "text/markdown")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"status":"unchanged"`, "an id may be escaped, and the same content is nothing new")

	status,
		body = s.call(t, "PUT", at,
		`{"title":"Coffee","text":"Grind coffee finely.","source":"https://example.com/c","metadata":{"by":"me"}}`,
		"Content-Type", asJSON)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"status":"changed"`)
	require.Empty(t, s.found(t, "shop", "green tea"), "the version before is gone")
	require.NotEmpty(t, s.found(t, "shop", "coffee"))

	status, body = s.call(t, "GET", at, "")
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{`"title":"Coffee"`, `"text":"Grind coffee finely."`, `"by":"me"`,
		`"source":"https://example.com/c"`} {
		require.Contains(t, body, want)
	}
	status, body = s.call(t, "GET", "/v1/collections/shop/documents", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"next_cursor":""`)
	require.NotContains(t, body, "Grind", "a list has no texts")

	status, _ = s.call(t, "DELETE", at, "")
	require.Equal(t, http.StatusNoContent, status)
	require.Empty(t, s.found(t, "shop", "coffee"))
	status, body = s.call(t, "DELETE", at, "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "unknown_document")

	status, body = s.call(t, "GET", "/v1/collections", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"name":"shop"`)
	status, _ = s.call(t, "DELETE", "/v1/collections/shop", "")
	require.Equal(t, http.StatusNoContent, status)
	_, body = s.call(t, "GET", "/v1/collections", "")
	require.JSONEq(t, `{"collections":[]}`, body)
}

// curl sends a file as a form unless it is told its type.
func TestAFileThatIsSentAsAForm(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/c", "")
	status, body := s.call(t, "PUT", "/v1/collections/c/documents/a.txt", "Steep it.", "Content-Type",
		"application/x-www-form-urlencoded")
	require.Equal(t, 400, status, body)
	require.Contains(t, body, "application/octet-stream")
}

func TestWrongDocumentsGetAClearAnswer(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{MaxDocument: 1000})
	s.call(t, "PUT", "/v1/collections/c", "")
	long := strings.Repeat("word ", 300)
	for name, test := range map[string]struct {
		method, path, body, kind string
		status                   int
		code                     string
	}{
		"a bad name":       {"PUT", "/v1/collections/No%20Name", "", "", 400, "bad_collection"},
		"a chat as a name": {"GET", "/v1/collections/chat:1/documents", "", "", 400, "bad_collection"},
		"no collection":    {"GET", "/v1/collections/none", "", "", 404, "unknown_collection"},
		"none to put into": {"PUT", "/v1/collections/none/documents/a", `{"text":"x"}`, asJSON, 404,
			"unknown_collection"},
		"none to post into": {"POST", "/v1/collections/none/documents", `{"id":"a","text":"x"}`, "", 404,
			"unknown_collection"},
		"none to search":   {"POST", "/v1/collections/none/search", `{"query":"x"}`, asJSON, 404, "unknown_collection"},
		"none to drop":     {"DELETE", "/v1/collections/none", "", "", 404, "unknown_collection"},
		"no such document": {"GET", "/v1/collections/c/documents/a", "", "", 404, "unknown_document"},
		"no id":            {"GET", "/v1/collections/c/documents/", "", "", 400, "bad_id"},
		"an empty query":   {"POST", "/v1/collections/c/search", `{"query":" "}`, asJSON, 400, "bad_request"},
		"k of zero":        {"POST", "/v1/collections/c/search", `{"query":"x","k":0}`, asJSON, 400, "bad_request"},
		"k too large":      {"POST", "/v1/collections/c/search", `{"query":"x","k":101}`, asJSON, 400, "bad_request"},
		"a role that is none": {
			"POST", "/v1/collections/c/search", `{"query":"x","history":[{"role":"system","content":"y"}]}`, asJSON, 400,
			"bad_request",
		},
		"a limit of nothing": {"GET", "/v1/collections/c/documents?limit=x", "", "", 400, "bad_request"},
		"no JSON":            {"PUT", "/v1/collections/c/documents/a", `{"text":`, asJSON, 400, "bad_request"},
		"no text":            {"PUT", "/v1/collections/c/documents/a", `{"title":"t"}`, asJSON, 422, "empty"},
		"invisible text":     {"PUT", "/v1/collections/c/documents/a", `{"text":"\u200b\u202e "}`, asJSON, 422, "empty"},
		"no file":            {"PUT", "/v1/collections/c/documents/a.txt", "", "text/plain", 422, "empty"},
		"too much metadata": {"PUT", "/v1/collections/c/documents/a.txt?metadata.k=" +
			strings.Repeat("x", docstore.MaxMetadata), "x", "text/plain", 400, "bad_metadata"},
		"too much JSON": {"PUT", "/v1/collections/c/documents/a", `{"text":"` + long + `"}`, asJSON, 413,
			"too_large"},
		"a file too large": {"PUT", "/v1/collections/c/documents/a.txt", long, "text/plain", 413, "too_large"},
		"an image": {"PUT", "/v1/collections/c/documents/a.png", "\x89PNG\r\n\x1a\n\x00\x00\x00", "image/png",
			415, "unsupported"},
		"a PDF that is none": {"PUT", "/v1/collections/c/documents/a.pdf", "%PDF-1.7 nothing", "application/pdf", 422,
			"damaged"},
		"no route for a method": {"PATCH", "/v1/collections/c", "", "", 405, "method_not_allowed"},
		"a bad chat":            {"GET", "/v1/chats/a%20b/documents", "", "", 400, "bad_request"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := s.call(t, test.method, test.path, test.body, "Content-Type", test.kind)
			require.Equal(t, test.status, status, body)
			var p struct {
				Error struct{ Code, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(body), &p), body)
			require.Equal(t, test.code, p.Error.Code, body)
			require.True(t, strings.HasSuffix(p.Error.Message, "."), "a sentence: %s", body)
		})
	}
	_, body := s.call(t, "GET", "/v1/collections/c/documents", "")
	require.Contains(t, body, `"documents":[]`, "nothing of all that is left")
}

// Each line has its result, in order, and a bad one leaves the others alone.
func TestLinesHaveAResultEach(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{MaxDocument: 2000})
	s.call(t, "PUT", "/v1/collections/c", "")
	lines := strings.Join([]string{
		`{"id":"a","title":"A","text":"The lighthouse stands on the cape."}`,
		`not JSON`,
		``,
		`{"id":"","text":"x"}`,
		`{"id":"long","text":"` + strings.Repeat("x ", 2000) + `"}`,
		`{"id":"empty","text":" "}`,
		`{"id":"b","text":"The harbour lies in the bay."}`, // without a line feed at its end
	}, "\n")
	status, body := s.call(t, "POST", "/v1/collections/c/documents", lines, "Content-Type", "application/x-ndjson")
	require.Equal(t, http.StatusMultiStatus, status, body)
	var got []string
	for d := json.NewDecoder(strings.NewReader(body)); d.More(); {
		var o rag.Outcome
		require.NoError(t, d.Decode(&o))
		require.Equal(t, o.Failed(), o.Reason != "")
		got = append(got, o.ID+" "+string(o.Status))
	}
	require.Equal(t, []string{"a new", "line 2 refused", "line 4 refused", "line 5 refused", "empty refused", "b new"},
		got)
	status, body = s.call(t, "POST", "/v1/collections/c/documents", `{"id":"a","text":"Another cape."}`+"\n")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "changed")
	require.Equal(t, []string{"b#0"}, s.found(t, "c", "harbour bay"))
}

// posting is a body that a test writes line by line, and the results that come back
// meanwhile.
type posting struct {
	t       *testing.T
	body    *io.PipeWriter
	results *json.Decoder
}

func (s service) posting(t *testing.T, path string) *posting {
	t.Helper()
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, read)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req) // the head comes before any line is sent
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, resp.StatusCode)
	t.Cleanup(func() { cancel(); write.Close(); resp.Body.Close() })
	return &posting{t, write, json.NewDecoder(resp.Body)}
}

func (p *posting) write(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.body, line+"\n")
	require.NoError(p.t, err)
}

func (p *posting) result() (o rag.Outcome) {
	p.t.Helper()
	require.NoError(p.t, p.results.Decode(&o))
	return o
}

func (p *posting) end() (end api.LinesEnd) {
	p.t.Helper()
	require.NoError(p.t, p.body.Close())
	require.NoError(p.t, p.results.Decode(&end))
	return end
}

// A result comes as soon as its document can be found, while the next one is not
// even written.
func TestResultsAreStreamedWhileTheBodyIsOnItsWay(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/c", "")
	p := s.posting(t, "/v1/collections/c/documents?stream=true")
	for i := range 20 {
		id := fmt.Sprintf("d%d", i)
		p.write(fmt.Sprintf(`{"id":%q,"text":"Here is token%d."}`, id, i))
		o := p.result()
		require.Equal(t, id, o.ID)
		require.Equal(t, rag.OutcomeNew, o.Status)
		require.Equal(t, []string{id + "#0"}, s.found(t, "c", fmt.Sprintf("token%d", i)))
	}
	p.write("no JSON")
	require.Equal(t, rag.OutcomeRefused, p.result().Status)
	require.Equal(t, api.LinesEnd{Done: true, Documents: 21, Failed: 1}, p.end())

	status, body := s.call(t, "POST", "/v1/collections/none/documents?stream=true", `{"id":"a","text":"x"}`)
	require.Equal(t, http.StatusNotFound, status, "what concerns all is still a status, as long as nothing was sent: %s",
		body)
}

// What goes wrong for all in the middle is the last line.
func TestAStreamOfResultsThatCannotGoOnSaysSo(t *testing.T) {
	testtier.Slow(t)
	s, _ := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/c", "")
	p := s.posting(t, "/v1/collections/c/documents?stream=true")
	p.write(`{"id":"a","text":"x"}`)
	require.Equal(t, rag.OutcomeNew, p.result().Status)
	s.call(t, "DELETE", "/v1/collections/c", "")
	p.write(`{"id":"b","text":"x"}`)
	var end api.LinesEnd
	require.NoError(t, p.results.Decode(&end))
	require.False(t, end.Done)
	require.Equal(t, 1, end.Documents)
	require.Equal(t, "unknown_collection", end.Error.Code)
	require.ErrorIs(t, p.results.Decode(&end), io.ErrUnexpectedEOF, "the rest of the body does not come")
}

// What one process puts or deletes, the other finds or does not find at once.
func TestTwoServersSeeEachOthersChangesAtOnce(t *testing.T) {
	one, server := withDocuments(t, apiserver.Config{})
	other := start(t, apiserver.Config{Documents: shelf(t, server.Client())}, echo)
	one.call(t, "PUT", "/v1/collections/c", "")
	for i := range 30 {
		id, word := fmt.Sprintf("d%d", i), fmt.Sprintf("token%d", i)
		from, to := one, other
		if i%2 == 1 {
			from, to = other, one
		}
		status, body := from.call(t, "PUT", "/v1/collections/c/documents/"+id, `{"text":"Here is `+word+`."}`, "Content-Type",
			asJSON)
		require.Equal(t, http.StatusCreated, status, body)
		require.Equal(t, []string{id + "#0"}, to.found(t, "c", word))
		status, _ = to.call(t, "DELETE", "/v1/collections/c/documents/"+id, "")
		require.Equal(t, http.StatusNoContent, status)
		require.Empty(t, from.found(t, "c", word))
	}
	one.call(t, "DELETE", "/v1/collections/c", "")
	status, _ := other.call(t, "POST", "/v1/collections/c/search", `{"query":"x"}`)
	require.Equal(t, http.StatusNotFound, status)
}

// A chat's documents need no collection made, and go with the chat.
func TestDocumentsOfAChatGoWithIt(t *testing.T) {
	s, server := withDocuments(t, apiserver.Config{})
	status, body := s.call(t, "GET", "/v1/chats/-100/documents", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"documents":[],"next_cursor":""}`, body)
	status, body = s.call(t, "GET", "/v1/chats/-100/documents/a", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "unknown_document")
	status, body = s.call(t, "PUT", "/v1/chats/-100/documents/a.txt", "The vault code is kept here.", "Content-Type",
		"text/plain")
	require.Equal(t, http.StatusCreated, status, body)
	status, body = s.call(t, "POST", "/v1/chats/-100/documents", `{"id":"b","text":"More."}`)
	require.Equal(t, http.StatusOK, status, body)
	_, body = s.call(t, "GET", "/v1/collections", "")
	require.JSONEq(t, `{"collections":[]}`, body, "no name leads to a chat's documents")

	require.NoError(t, s.DeleteRuns(t.Context(), memory.MustChat("-100")))
	_, body = s.call(t, "GET", "/v1/chats/-100/documents", "")
	require.Contains(t, body, `"a.txt"`, "documents of the chat stay")
	for _, there := range []bool{true, false} {
		documents, err := s.DeleteChat(t.Context(), memory.MustChat("-100"))
		require.NoError(t, err)
		require.Equal(t, there, documents)
	}
	_, body = s.call(t, "GET", "/v1/chats/-100/documents", "")
	require.Contains(t, body, `"documents":[]`)
	keys, err := server.Client().Keys(context.Background(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "nothing of it is left in Redis")
}

func TestDocumentsWithoutRedis(t *testing.T) {
	testtier.Slow(t)
	none := start(t, apiserver.Config{}, echo)
	for _, path := range []string{"/v1/collections", "/v1/collections/c", "/v1/chats/1/documents"} {
		status, body := none.call(t, "GET", path, "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, "redis.url")
	}
	_, err := none.DeleteChat(t.Context(), memory.MustChat("1"))
	require.NoError(t, err)
	status, _ := none.call(t, "GET", "/readyz", "")
	require.Equal(t, http.StatusOK, status)

	s, server := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/c", "")
	s.call(t, "PUT", "/v1/collections/c/documents/a", `{"text":"The lighthouse."}`, "Content-Type", asJSON)
	require.NotEmpty(t, s.found(t, "c", "lighthouse"))
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha").Err())
	status, body := s.call(t, "PUT", "/v1/collections/c/documents/b", `{"text":"x"}`, "Content-Type", asJSON)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "memory_refused")
	require.Contains(t, body, "the command evalsha")
	require.NotContains(t, body, `"retryable":true`)
	server.Kill()
	require.NotEmpty(t, s.found(t, "c", "lighthouse"), "what is known can be searched")
	status, body = s.call(t, "PUT", "/v1/collections/c/documents/b", `{"text":"x"}`, "Content-Type", asJSON)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "documents_unavailable")
}

func TestNotReadyBeforeTheDocumentsAre(t *testing.T) {
	server := redistest.Start(t)
	library := shelf(t, server.Client())
	s := start(t, apiserver.Config{Documents: library}, echo)
	status, body := s.call(t, "GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "starting")
	require.NoError(t, library.Load(t.Context(), memory.Tenant{}))
	status, _ = s.call(t, "GET", "/readyz", "")
	require.Equal(t, http.StatusOK, status)
}

// How far a process is behind is in its readiness, which stays good, and in two metrics.
func TestReadinessAndMetricsSayHowFarDocumentsAreBehind(t *testing.T) {
	server := redistest.Start(t)
	way := server.Narrow(t, "xrange")
	library := rag.NewLibrary(docstore.New(way.Client(), 0), rag.Options{Log: zerolog.Nop(), CatchUp: time.Millisecond})
	t.Cleanup(library.Close)
	require.NoError(t, library.Load(t.Context(), memory.Tenant{}))
	s := start(t, apiserver.Config{Documents: library}, echo)
	metric := func(name string) string {
		_, body := s.call(t, "GET", "/metrics", "")
		for line := range strings.Lines(body) {
			if value, found := strings.CutPrefix(line, name+" "); found {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	other := start(t, apiserver.Config{Documents: shelf(t, server.Client())}, echo)
	other.call(t, "PUT", "/v1/collections/c", "")
	other.call(t, "PUT", "/v1/collections/c/documents/a", `{"text":"The lighthouse."}`, "Content-Type", asJSON)
	require.Equal(t, []string{"a#0"}, s.found(t, "c", "lighthouse"))
	status, body := s.call(t, "GET", "/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ready"}`, body)
	require.Equal(t, "0", metric("mneme_documents_behind"))
	require.Equal(t, "0", metric("mneme_documents_behind_seconds"))

	way.Close()
	for _, id := range []string{"b", "d", "e"} {
		other.call(t, "PUT", "/v1/collections/c/documents/"+id, `{"text":"The harbour of `+id+`."}`, "Content-Type", asJSON)
	}
	require.Equal(t, []string{"a#0"}, s.found(t, "c", "lighthouse"))
	status, body = s.call(t, "GET", "/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"status":"ready","documents":{"behind":3,"seconds":`)
	require.Equal(t, "3", metric("mneme_documents_behind"))
	require.NotEqual(t, "0", metric("mneme_documents_behind_seconds"))

	way.Open()
	require.Eventually(t, func() bool { return metric("mneme_documents_behind") == "0" }, time.Minute, 10*time.Millisecond)
	_, body = s.call(t, "GET", "/readyz", "")
	require.JSONEq(t, `{"status":"ready"}`, body)
	require.Len(t, s.found(t, "c", "harbour"), 3)
}

// A body that breaks off leaves nothing of the document it was.
func TestACutUpload(t *testing.T) {
	s, _ := withDocuments(t, apiserver.Config{})
	s.call(t, "PUT", "/v1/collections/c", "")
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.url+"/v1/collections/c/documents/a.txt",
		io.MultiReader(bytes.NewReader(make([]byte, 1000)), broken{}))
	require.NoError(t, err)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	}
	_, body := s.call(t, "GET", "/v1/collections/c/documents", "")
	require.Contains(t, body, `"documents":[]`)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
