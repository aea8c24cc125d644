package openaiapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/webmemory/openaiapi"
)

// filesWorld is openaiWorld with documents, which are in a Redis of their own.
func filesWorld(t *testing.T, change ...func(*openaiapi.Config)) (w *webmemorytest.World, runs *apiserver.Server,
	documents *redistest.Server) {
	w, documents = webmemorytest.NewWorld(t, nil), redistest.Start(t)
	library := rag.NewLibrary(docstore.New(documents.Client(), 0), rag.Options{Log: zerolog.Nop()})
	runs = apiserver.New(apiserver.Config{Documents: library}, webmemorytest.Answers("hello"), nil, webmemorytest.Logger())
	t.Cleanup(func() { _ = runs.Close() })
	w.SetApiserver(runs.Handler())
	w.URL = w.StartOpenAI(change...)
	return w, runs, documents
}

// documentIDs returns the ids of a chat's documents.
func documentIDs(w *webmemorytest.World, chat string) (ids []string) {
	w.T.Helper()
	for _, d := range gjson.GetBytes(w.Do("GET", "/v1/chats/"+chat+"/documents", nil).Body, "documents.#.id").Array() {
		ids = append(ids, d.Str)
	}
	return ids
}

// filePart is a part of a message that is a file, as chat completions have it.
func filePart(name, kind, text string) string {
	return fmt.Sprintf(`{"type":"file","file":{"filename":%q,"file_data":"data:%s;base64,%s"}}`, name, kind,
		base64.StdEncoding.EncodeToString([]byte(text)))
}

// asks is a request with a message of parts.
func asks(parts ...string) string {
	return `{"model":"mneme","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[` +
		strings.Join(parts, ",") + `]}]}`
}

const question = `{"type":"text","text":"What is in it?"}`

// Files of the newest message become documents of the chat, which it names in a line each; whatever is sent again, with
// or without them, is neither a document nor a message once more.
func TestOpenAIFiles(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, _, _ := filesWorld(t)
	pdf, err := os.ReadFile("../../subagent/rag/loader/pdfium/testdata/no-password-rc4.pdf")
	require.NoError(t, err)
	anchor, paper := filePart("notes/anchor.md", "text/markdown", "# Anchor\n\nIt weighs 77 pounds."),
		filePart("paper.pdf", "application/pdf", string(pdf))
	got := postCompletion(w, "c", asks(question, anchor, paper))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, []string{"user: What is in it?\n\n[file: anchor.md]\n[file: paper.pdf]", "assistant: hello"},
		w.History("chat_history:c"))
	ids := documentIDs(w, "c")
	require.Len(t, ids, 2)
	found := w.Do("GET", "/v1/chats/c/documents/"+ids[0], nil)
	other := w.Do("GET", "/v1/chats/c/documents/"+ids[1], nil)
	if strings.HasSuffix(ids[0], ".pdf") {
		found, other = other, found
	}
	require.Equal(t, "anchor.md", gjson.GetBytes(found.Body, "source").Str)
	require.Equal(t, "Anchor", gjson.GetBytes(found.Body, "title").Str)
	require.Contains(t, gjson.GetBytes(found.Body, "text").Str, "77 pounds")
	require.EqualValues(t, 1, gjson.GetBytes(other.Body, "passages.0.page").Int(), "it was read as a PDF")

	// Clients send all of it again: with the files, or with the text alone.
	for _, first := range []string{`[` + strings.Join([]string{question, anchor, paper}, ",") + `]`, `"What is in it?"`} {
		got = postCompletion(w, "c", `{"model":"mneme","messages":[{"role":"user","content":`+first+`},`+
			`{"role":"assistant","content":"hello"},{"role":"user","content":"Thank you."}]}`)
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"), string(got.Body))
		require.Len(t, w.History("chat_history:c"), 4, "the second is the first once more")
		require.ElementsMatch(t, ids, documentIDs(w, "c"))
	}

	// Another file of the same name is another document, and the same one again is not, whoever sends it.
	require.Equal(t, 200, postCompletion(w, "d", asks(question, anchor)).Status)
	require.Equal(t, 200, postCompletion(w, "d", asks(filePart("anchor.md", "", "It weighs 78 pounds."))).Status)
	responses := fmt.Sprintf(`{"type":"input_file","filename":"anchor.md","file_data":%q}`,
		base64.StdEncoding.EncodeToString([]byte("It weighs 78 pounds.")))
	require.Equal(t, 200, postCompletion(w, "d", asks(`{"type":"input_text","text":"And this?"}`, responses)).Status)
	require.Len(t, documentIDs(w, "d"), 2)
	require.Equal(t, []string{"user: What is in it?\n\n[file: anchor.md]", "assistant: hello", "user: [file: anchor.md]",
		"assistant: hello", "user: And this?\n\n[file: anchor.md]", "assistant: hello"}, w.History("chat_history:d"))

	// JSON is a file, too; of one of many documents each is told of that was refused.
	require.Equal(t, 200, postCompletion(w, "j", asks(filePart("a.json", "application/json", `[{"text":"one"},{"text":"two"}]`))).Status)
	require.Len(t, documentIDs(w, "j"), 2)
	got = postCompletion(w, "k", asks(filePart("a.jsonl", "application/json", "{\"text\":\"one\"}\nnothing")))
	require.Equal(t, 422, got.Status, string(got.Body))
	require.Contains(t, openaiError(t, got).Message, "was refused: ")
	require.Empty(t, w.History("chat_history:k"))

	// What a name has of a path, of control characters or of nothing does not lead anywhere else.
	for i, name := range []string{`..`, ``, `C:\\x\\..`, `a\u0000\nb`, `ü 1%2F?#.txt`} {
		chat := fmt.Sprint("n", i)
		got = postCompletion(w, chat, strings.Replace(asks(filePart("NAME", "text/plain", "One.")), "NAME", name, 1))
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Len(t, documentIDs(w, chat), 1)
		require.Regexp(t, `^[0-9a-f]{16}/(file|ab|ü 1%2F\?#.txt)$`, documentIDs(w, chat)[0])
	}

	// A task of the client's own does without.
	got = postCompletion(w, "c", asks(`{"type":"text","text":"### Task:\nA title.\n<chat_history>"}`, filePart("t.md", "", "x")))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Len(t, documentIDs(w, "c"), 2)
}

// What cannot be a document is refused as the route of documents does, in OpenAI's shape, and no message is posted.
func TestOpenAIFilesRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, _, _ := filesWorld(t)
	password, err := os.ReadFile("../../subagent/rag/loader/pdfium/testdata/password-aes256.pdf")
	require.NoError(t, err)
	good := filePart("good.md", "text/markdown", "Good.")
	file := func(members string) string { return `{"type":"file","file":{"filename":"a.md",` + members + `}}` }
	for name, c := range map[string]struct {
		body              string
		none              bool // no chat
		status            int
		code, param, says string
		documents         int
	}{
		"no base64":       {body: asks(question, file(`"file_data":"data:text/plain;base64,é!"`)), status: 400, code: "bad_request", says: "base64"},
		"no base64, bare": {body: asks(question, file(`"file_data":"%%"`)), status: 400, code: "bad_request"},
		"not in base64":   {body: asks(question, file(`"file_data":"data:text/plain,abc"`)), status: 400, code: "bad_request"},
		"nothing":         {body: asks(question, file(`"file_data":""`)), status: 400, code: "bad_request", says: "file_data"},
		"a file_id":       {body: asks(question, file(`"file_id":"file-1"`)), status: 400, code: "part_not_supported", says: "file_id"},
		"a file_url": {body: asks(question, `{"type":"input_file","file_url":"https://x.y/a.pdf"}`), status: 400,
			code: "part_not_supported", says: "file_url"},
		"one of two": {body: asks(good, file(`"file_data":"%"`)), status: 400, code: "bad_request"},
		"no chat":    {body: asks(question, good), none: true, status: 400, code: "part_not_supported", says: "/c/{chat}/v1"},
		"a format": {body: asks(question, filePart("a.png", "image/png", "\x89PNG\r\n\x1a\n0")), status: 415,
			code: "unsupported", says: "."},
		"a password": {body: asks(question, filePart("a.pdf", "application/pdf", string(password))), status: 422, code: "encrypted"},
		"behind one that is good": {body: asks(good, filePart("a.pdf", "application/pdf", "%PDF-1.4 no more")), status: 422,
			code: "damaged", documents: 1},
		"a long name": {body: asks(question, filePart(strings.Repeat("n", 300)+".md", "", "x")), status: 400, code: "bad_id"},
		"too large":   {body: asks(question, filePart("a.md", "", strings.Repeat("x", 25<<20))), status: 413, code: "too_large"},
		"no object":   {body: asks(question, `{"type":"file","file":"x"}`), status: 400, code: "bad_request"},
	} {
		chat := "r"
		if c.none {
			chat = ""
		}
		got := postCompletion(w, chat, c.body)
		require.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
		told := openaiError(t, got)
		require.Equal(t, c.code, told.Code, "%s: %s", name, got.Body)
		require.Contains(t, told.Message, c.says, name)
		require.Equal(t, "false", got.Header.Get("X-Should-Retry"), name)
		if name != "too large" && name != "no object" {
			require.NotNil(t, told.Param, name)
			require.Equal(t, "messages[1].content[1]", *told.Param, name)
		}
		require.Len(t, documentIDs(w, "r"), c.documents, name)
		require.Empty(t, w.History("chat_history:r"), name)
		w.Do("DELETE", "/v1/chats/r", nil)
	}
}

// The same file at once is one document, and each message has its answer.
func TestOpenAIFilesAtOnce(t *testing.T) {
	t.Parallel()
	w, _, _ := filesWorld(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			require.Equal(t, 200, postCompletion(w, "c", asks(question, filePart("a.md", "", "It weighs 77 pounds."))).Status)
		})
	}
	all.Wait()
	require.Len(t, documentIDs(w, "c"), 1)
	require.Len(t, w.History("chat_history:c"), 8)
}

// Files become documents of the chat, so a message with files is appended whatever its transcript is.
func TestOpenAIFilesOfAnotherTranscript(t *testing.T) {
	t.Parallel()
	for _, on := range []string{openaiapi.Append, openaiapi.Transcript} {
		w, _, _ := filesWorld(t, func(c *openaiapi.Config) { c.OnMismatch = on })
		require.Equal(t, 200, postCompletion(w, "c", users("a")).Status)
		got := postCompletion(w, "c", `{"model":"mneme","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},`+
			`{"role":"user","content":[`+question+`,`+filePart("a.md", "", "77 pounds.")+`]}]}`)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Len(t, documentIDs(w, "c"), 1)
		require.Len(t, w.History("chat_history:c"), 4)
	}
}

// A process that ends between the document and the message leaves the document alone: sent again, there is one of each.
func TestOpenAIFilesOfAProcessThatEnds(t *testing.T) {
	t.Parallel()
	w, runs, _ := filesWorld(t)
	ends := sync.OnceFunc(func() { w.Shutdown(w.URL) })
	w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		runs.Handler().ServeHTTP(rw, r)
		if r.Method == http.MethodPut {
			ends()
		}
	}))
	body := asks(question, filePart("a.md", "", "77 pounds."))
	got := postCompletion(w, "c", body)
	require.Equal(t, 503, got.Status, string(got.Body))
	require.NotEmpty(t, got.Header.Get("Retry-After"))
	w.URL = w.StartOpenAI()
	require.Empty(t, w.History("chat_history:c"))
	require.Len(t, documentIDs(w, "c"), 1)
	require.Equal(t, 200, postCompletion(w, "c", body).Status)
	require.Len(t, documentIDs(w, "c"), 1)
	require.Len(t, w.History("chat_history:c"), 2)
}

// Where the documents are away so is the answer, with the code of their route and when to try again.
func TestOpenAIFilesWithoutDocuments(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, _, documents := filesWorld(t)
	body := asks(question, filePart("a.md", "", "77 pounds."))
	documents.Process.Kill()
	got := postCompletion(w, "c", body)
	require.Equal(t, 503, got.Status, string(got.Body))
	require.Equal(t, "documents_unavailable", openaiError(t, got).Code)
	require.NotEmpty(t, got.Header.Get("Retry-After"))
	require.Empty(t, got.Header.Get("X-Should-Retry"))
	require.Empty(t, w.History("chat_history:c"))

	off := openaiWorld(t, webmemorytest.Answers("hello")) // an apiserver without documents
	got = postCompletion(off, "c", body)
	require.Equal(t, "documents_off", openaiError(t, got).Code)
	off.Apiserver.CloseClientConnections()
	off.Apiserver.Close()
	got = postCompletion(off, "c", body)
	require.Equal(t, 503, got.Status)
	require.Equal(t, "apiserver_unavailable", openaiError(t, got).Code)
	require.Empty(t, off.Redis.Keys(context.Background(), "*chat_history:c*").Val())
}
