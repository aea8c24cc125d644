package webmemory_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/webmemory"
)

// newLibraryWorld is a world with an apiserver that has documents.
func newLibraryWorld(t *testing.T, change ...func(*webmemory.Config)) *webmemorytest.World {
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"), change...)
	library := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.Nop()})
	runs := apiserver.New(apiserver.Config{Documents: library}, webmemorytest.Answers("hi"), nil, webmemorytest.Logger())
	t.Cleanup(func() { _ = runs.Close() })
	w.SetApiserver(runs.Handler())
	return w
}

// Results of documents come in chunks over a connection that is not announced to close, so
// that clients can tell results that broke off; the connection then takes further requests.
func TestResultsThatBreakOffDoNotLookComplete(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newLibraryWorld(t)
	require.Equal(t, http.StatusCreated, w.Do("PUT", "/v1/collections/c", nil).Status)
	target, err := url.Parse(w.URL)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", target.Host)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	begin := func() (results *bufio.Scanner, resp *http.Response) {
		_, err := fmt.Fprintf(conn, "POST /v1/collections/c/documents?stream=true HTTP/1.1\r\nHost: %s\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n", target.Host)
		require.NoError(t, err)
		resp, err = http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.False(t, resp.Close)
		require.Empty(t, resp.Header["Connection"])
		require.Equal(t, []string{"chunked"}, resp.TransferEncoding)
		return bufio.NewScanner(resp.Body), resp
	}
	chunk := func(s string) {
		_, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(s), s)
		require.NoError(t, err)
	}
	for range 3 { // on one connection
		results, resp := begin()
		chunk(`{"id":"a","text":"x"}` + "\n")
		require.True(t, results.Scan())
		chunk("")
		require.True(t, results.Scan())
		require.JSONEq(t, `{"done":true,"documents":1,"failed":0}`, results.Text())
		require.False(t, results.Scan())
		require.NoError(t, results.Err())
		require.NoError(t, resp.Body.Close())
	}

	results, resp := begin()
	defer func() { _ = resp.Body.Close() }()
	chunk(`{"id":"b","text":"x"}` + "\n")
	require.True(t, results.Scan())
	w.Apiserver.CloseClientConnections()
	for results.Scan() {
	}
	require.ErrorIs(t, results.Err(), io.ErrUnexpectedEOF)
}

// Documents pass this service unchanged, in both directions.
func TestDocumentsAreTheApiserversBusiness(t *testing.T) {
	t.Parallel()
	w := newLibraryWorld(t)
	require.Equal(t, http.StatusCreated, w.Do("PUT", "/v1/collections/c", nil).Status)
	require.Equal(t, http.StatusCreated, w.Do("PUT", "/v1/collections/c/documents/a%2Fb.txt?title=T", "The lighthouse.",
		"Content-Type", "text/plain").Status)
	got := w.Do("GET", "/v1/collections/c/documents/a/b.txt", nil)
	require.Contains(t, string(got.Body), `"title":"T"`)
	got = w.Do("POST", "/v1/collections/c/documents", "nothing\n{\"id\":\"x\",\"text\":\"y\"}\n")
	require.Equal(t, http.StatusMultiStatus, got.Status)
	require.Equal(t, "application/x-ndjson; charset=utf-8", got.Header.Get("Content-Type"))
	require.Equal(t, "unknown_collection", w.Do("GET", "/v1/collections/none", nil).Problem(t).Code)
	require.Equal(t, "bad_request", w.Do("GET", "/v1/chats/a%20b/documents", nil).Problem(t).Code)
	require.Equal(t, http.StatusCreated, w.Do("PUT", "/v1/chats/7/documents/a.txt", "The anchor.", "Content-Type",
		"text/plain").Status)
	require.Equal(t, http.StatusOK, w.Do("DELETE", "/v1/chats/7", nil).Status)
	require.JSONEq(t, `{"documents":[],"next_cursor":""}`, string(w.Do("GET", "/v1/chats/7/documents", nil).Body))

	// A client that breaks off is no failure of the apiserver.
	req := w.NewRequest("PUT", "/v1/collections/c/documents/cut.txt", nil)
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader("half")), 100
	_, err := http.DefaultClient.Do(req)
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, w.Do("GET", "/v1/collections/c/documents/cut.txt", nil).Status)

	w.Apiserver.CloseClientConnections()
	w.Apiserver.Close()
	got = w.Do("GET", "/v1/collections", nil)
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	require.Equal(t, "apiserver_unavailable", got.Problem(t).Code)
	require.NotEmpty(t, got.Header.Get("Retry-After"))
}
