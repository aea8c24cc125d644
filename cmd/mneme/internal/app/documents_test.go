package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/ingest"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory/event"
	"mneme/subagent/rag"
	webapi "mneme/webmemory/api"
)

// request does one request at webmemory.
func (u *up) request(method, path, contentType, body string) (int, string) {
	u.t.Helper()
	req, err := http.NewRequest(method, u.url(path), strings.NewReader(body))
	require.NoError(u.t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(u.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	return resp.StatusCode, string(raw)
}

// load puts Markdown documents into the collection docs.
func (u *up) load(documents map[string]string) {
	u.t.Helper()
	status, body := u.request("PUT", "/v1/collections/docs", "", "")
	require.Contains(u.t, []int{http.StatusCreated, http.StatusOK}, status, body)
	for id, text := range documents {
		status, body := u.request("PUT", "/v1/collections/docs/documents/"+id, "text/markdown", text)
		require.Equal(u.t, http.StatusCreated, status, body)
	}
}

// ask posts a message and gives the answer with its citations.
func (u *up) ask(chat, message string) event.Assistant {
	u.t.Helper()
	for _, e := range u.stream(chat, message) {
		if a, ok := e.Payload.(*event.Assistant); ok {
			return *a
		}
	}
	u.t.Fatalf("no answer to %q", message)
	return event.Assistant{}
}

var handbook = map[string]string{
	"ferry.md": "# Ferry\n\n## Tickets\n\nA ferry ticket costs 14 crowns. Children under six travel free of " +
		"charge.\n\n## Timetable\n\nThe last ferry leaves the island at 21:40.",
	"museum.md": "# Museum\n\n## Opening hours\n\nThe museum opens at ten o'clock and is closed on Mondays.\n\n## " +
		"Tickets\n\nA museum ticket costs 9 crowns.",
	"мост.md": "# Мост\n\nРазводной мост открывается в два часа ночи.",
}

var stores = map[string]func(t *testing.T) []string{
	"embedded":     func(*testing.T) []string { return nil },
	"redis-server": func(t *testing.T) []string { return []string{"MNEME_REDIS_URL=" + redistest.Start(t).URL()} },
}

// A conversation about documents through the public API, with follow-ups that
// only mean something after what was said before.
func TestAConversationAboutDocuments(t *testing.T) {
	t.Parallel()
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			u := start(t, scriptedModel{
				otherwise: "knowledge",
			}.environ(t, append(store(t), "MNEME_DATA_DIR="+t.TempDir())...)...)
			u.load(handbook)
			for _, turn := range []struct{ say, doc, want string }{
				{"How much does a ferry ticket cost?", "ferry.md", "14 crowns"},
				{"And a museum ticket?", "museum.md", "9 crowns"},
				{"When does the museum open?", "museum.md", "ten o'clock"},
				{"When is it closed?", "museum.md", "Mondays"},
				{"When does the last ferry leave the island?", "ferry.md", "21:40"},
				{"Когда открывается разводной мост?", "мост.md", "в два часа ночи"},
			} {
				a := u.ask("1", turn.say)
				require.Contains(t, a.Content, turn.want, turn.say)
				require.NotEmpty(t, a.Citations, turn.say)
				require.Regexp(t, `\[\d\]`, a.Content)
				require.Equal(t, turn.doc, a.Citations[0].DocID, turn.say)
				for _, c := range a.Citations {
					require.Contains(t, handbook[c.DocID], c.Quote, "a quote is from its document")
				}
				for _, m := range regexp.MustCompile(`\[(\d+)\]`).FindAllStringSubmatch(a.Content, -1) {
					require.Contains(t, citationNumbers(a), m[1], "every marker has its citation: %s", a.Content)
				}
			}
		})
	}
}

func citationNumbers(a event.Assistant) (numbers []string) {
	for _, c := range a.Citations {
		raw, _ := json.Marshal(c.N)
		numbers = append(numbers, string(raw))
	}
	return numbers
}

func TestWhatTheDocumentsDoNotSay(t *testing.T) {
	t.Parallel()
	u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir())...)
	a := u.ask("1", "What does a zeppelin flight cost?")
	require.Contains(t, a.Content, "There are no documents")
	u.load(handbook)
	a = u.ask("1", "Who composed the zeppelin symphony?")
	require.Empty(t, a.Citations)
	require.Regexp(t, "do not answer|don't know", a.Content)
	a = u.ask("2", "Кто сочинил дирижабельную симфонию?")
	require.Empty(t, a.Citations)
	require.Regexp(t, "нет ответа|не знаю", a.Content)
}

// A document loaded into a chat is found there and nowhere else, and goes with it.
func TestAnUploadBelongsToItsChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			u := start(t, scriptedModel{
				otherwise: "knowledge",
			}.environ(t, append(store(t), "MNEME_DATA_DIR="+t.TempDir())...)...)
			u.load(handbook)
			const question = "What is the weight of the silver anchor?"
			status, body := u.request("PUT", "/v1/chats/mine/documents/anchor.txt", "text/plain",
				"The silver anchor has a weight of 77 pounds.")
			require.Equal(t, http.StatusCreated, status, body)
			require.Contains(t, u.ask("mine", question).Content, "77 pounds")
			require.NotContains(t, u.ask("other", question).Content, "77")
			require.Contains(t, u.ask("mine", "How much does a ferry ticket cost?").Content, "14 crowns")

			status, body = u.request("DELETE", "/v1/chats/mine", "", "")
			require.Equal(t, http.StatusOK, status, body)
			require.NotContains(t, u.ask("mine", question).Content, "77")
			_, body = u.request("GET", "/v1/chats/mine/documents", "", "")
			require.Contains(t, body, `"documents":[]`)
		})
	}
}

// Histories keep ids and quotes of what was found, not the passages.
func TestHistoriesKeepNoPassages(t *testing.T) {
	t.Parallel()
	u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir(),
		backend("model", "openai", reader(t, "It burns whale oil [1].")),
		"MNEME_PROXY_TEAMMATES={knowledge: model}")...)
	filler := strings.Repeat("This sentence is nothing but filler about rope. ", 12)
	u.load(map[string]string{"a.md": "# A\n\nThe lamp of the lighthouse burns whale oil. " + filler})
	require.Contains(t, u.ask("1", "What does the lamp of the lighthouse burn?").Content, "whale oil")
	_, body := u.request("GET", "/v1/chats/1/subagents/knowledge/history", "", "")
	require.Contains(t, body, `a.md#0`)
	require.NotContains(t, body, "filler about rope")
	require.NotContains(t, body, "nonce")
}

// stopper cancels a run when a file is reached.
type stopper struct {
	at   int
	stop func()
}

func (*stopper) Files(int)           {}
func (*stopper) Outcome(rag.Outcome) {}
func (*stopper) Note(string)         {}
func (s *stopper) File(string) {
	if s.at--; s.at == 0 {
		s.stop()
	}
}

// An ingest that is interrupted leaves what it had put, and the next one sends
// only the rest.
func TestAnInterruptedIngestGoesOn(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	client, err := webapi.New(u.url(""))
	require.NoError(t, err)
	defer client.Close()
	dir := t.TempDir()
	for i := range 150 {
		text := fmt.Sprintf("Buoy number %d lies off the cape.", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), []byte(text), 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := ingest.Options{Collection: "docs", Paths: []string{dir}, Progress: &stopper{100, cancel}}
	first, err := ingest.Run(ctx, client, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Greater(t, first.New, 50)
	require.Less(t, first.New, 100)
	o.Progress = &stopper{}
	second, err := ingest.Run(t.Context(), client, o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, second.Unchanged, first.New, "what was put is not sent again")
	require.LessOrEqual(t, second.Unchanged, first.New+4,
		"and of those that were on their way it was not heard what became of them")
	require.Equal(t, 150, second.New+second.Unchanged)
	require.Empty(t, second.Refused)
}

// Without a Redis an apiserver has no documents, and its subagent does not guess.
func TestAnApiserverWithoutRedisHasNoDocuments(t *testing.T) {
	t.Parallel()
	s := newStack(t, scriptedModel{otherwise: "knowledge"}.environ(t)...)
	for _, service := range []string{"proxy", "apiserver", "webmemory"} {
		s.start(service)
	}
	resp, err := http.Get("http://" + s.web + "/v1/collections")
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Contains(t, string(raw), "set redis.url")
	require.Contains(t, s.say("1", "What does a ferry ticket cost?"), "There are no documents")
}

// A big upload passes webmemory as a stream, and a bad one is refused in words.
func TestUploadsThroughThePublicAPI(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	status, body := u.request("PUT", "/v1/collections/docs/documents/a", "application/json", `{"text":"x"}`)
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "unknown_collection")
	u.load(nil)
	status, body = u.request("PUT", "/v1/collections/docs/documents/big.txt", "text/plain",
		strings.Repeat("Rope and sail. ", 4<<20))
	require.Equal(t, http.StatusRequestEntityTooLarge, status, body)
	status, body = u.request("PUT", "/v1/collections/docs/documents/some.txt", "text/plain",
		strings.Repeat("Rope and sail. ", 100_000))
	require.Equal(t, http.StatusCreated, status, body)
	status, body = u.request("PUT", "/v1/chats/a%20b/documents/a.txt", "text/plain", "x")
	require.Equal(t, http.StatusBadRequest, status, body)
	status, body = u.request("PATCH", "/v1/collections/docs", "", "")
	require.Equal(t, http.StatusMethodNotAllowed, status, body)
}

// The result of a document passes webmemory while the next one is not sent yet.
func TestResultsAreStreamedThroughThePublicAPI(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	u.load(nil)
	read, write := io.Pipe()
	resp, err := http.Post(u.url("/v1/collections/docs/documents?stream=true"), "application/x-ndjson", read)
	require.NoError(t, err)
	defer resp.Body.Close()
	results := json.NewDecoder(resp.Body)
	for i := range 5 {
		fmt.Fprintf(write, `{"id":"d%d","text":"Buoy %d."}`+"\n", i, i)
		var o rag.Outcome
		require.NoError(t, results.Decode(&o))
		require.Equal(t, fmt.Sprintf("d%d", i), o.ID)
	}
	require.NoError(t, write.Close())
	var end api.LinesEnd
	require.NoError(t, results.Decode(&end))
	require.Equal(t, api.LinesEnd{Done: true, Documents: 5}, end)
}

// The second thing that a newcomer tries: mneme's own documentation.
func TestIngestAndAsk(t *testing.T) {
	t.Parallel()
	path, s := program(t), newStack(t)
	docs := filepath.Join(t.TempDir(), "docs")
	require.NoError(t, os.CopyFS(docs, os.DirFS(filepath.Join("..", "..", "..", "..", "docs"))))
	ingest := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(path, append([]string{"ingest", "--collection", "docs", "--url", "http://" + s.web}, args...)...)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		_ = cmd.Run()
		require.Equal(t, want, cmd.ProcessState.ExitCode(), log.String())
		return out.String() + log.String()
	}
	require.Contains(t, ingest(1, docs), "start `mneme up`", "nothing listens yet")
	s.start("up")
	require.Contains(t, ingest(0, docs), "new  operation.md")
	require.Contains(t, s.say("1", "What happens when Redis is away?"), "[1] (operation.md)")
	require.Contains(t, ingest(0, docs), " 0 new, 0 changed", "nothing is sent twice")

	require.NoError(t, os.Remove(filepath.Join(docs, "operation.md")))
	require.NoError(t, os.WriteFile(filepath.Join(docs, "bad.pdf"), []byte("%PDF-1.4 nothing"), 0o600))
	require.NoError(t,
		os.WriteFile(filepath.Join(docs, "new.md"), []byte("# Anchor\n\nThe silver anchor weighs 77 pounds."), 0o600))
	require.Contains(t, ingest(1, docs, "--no-prune"), "1 kept")
	out := ingest(1, docs)
	require.Contains(t, out, "1 removed")
	require.Contains(t, out, "refused  bad.pdf: ")

	lines := filepath.Join(t.TempDir(), "many.jsonl")
	var many strings.Builder
	for i := range 150 {
		fmt.Fprintf(&many, `{"id":"%d","title":"T","text":"Buoy %d."}`+"\n", i, i)
	}
	require.NoError(t, os.WriteFile(lines, []byte(many.String()+"broken\n"), 0o600))
	out = ingest(1, lines, filepath.Join(docs, "new.md"))
	require.Contains(t, out, "150 new, 1 changed", "a file takes the place of a document with its id")
	require.Contains(t, out, "1 refused")
	require.Contains(t, ingest(1, lines), " 0 new, 0 changed, 150 unchanged")
	require.Regexp(t, ` 0 new, 1 changed, \d+ unchanged, 0 removed`, ingest(1, docs),
		"a directory takes back its own, and leaves the rest")

	s.kill("up")
	s.start("up")
	require.Contains(t, s.say("2", "Ask the knowledge subagent: what does the silver anchor weigh?"), "77 pounds")
	require.NotContains(t, s.say("2", "What happens when Redis is away?"), "operation.md")
}
