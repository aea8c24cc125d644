package webmemory_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// doNote sends a request about a note. The response must have the status want.
func doNote(t *testing.T, w *webmemorytest.World, want int, method, path, body string) (n memory.Note) {
	t.Helper()
	status, got := w.Do(method, below(path), body).Text()
	require.Equal(t, want, status, "%s %s: %s", method, path, got)
	if want < 300 && want != http.StatusNoContent {
		require.NoError(t, json.Unmarshal([]byte(got), &n))
	}
	return n
}

// below is a path below /v1/chats, unless it is a whole one.
func below(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/v1/chats/" + path
}

// listNotes returns the notes of a chat, or of "chat/subagents/name".
func listNotes(t *testing.T, w *webmemorytest.World, of string) []memory.Note {
	t.Helper()
	status, body := w.Do("GET", below(of)+"/notes", nil).Text()
	require.Equal(t, 200, status, "%s", body)
	var out webapi.NoteList
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	require.NotNil(t, out.Notes)
	return out.Notes
}

// states are the texts of notes with their states.
func states(notes []memory.Note) (out []string) {
	for _, n := range notes {
		out = append(out, n.State+": "+n.Text)
	}
	return out
}

// An operator adds notes to a chat and to its subagents, corrects them, replaces them and
// takes them away, also before anything was said; they are seen by every process at once.
func TestNotes(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	second := w.StartReplica()
	began := time.Now()
	first := doNote(t, w, 201, "POST", "c/notes", `{"text":"  Answer \n in <English>. "}`)
	require.Equal(t, "Answer in <English>.", first.Text)
	require.Equal(t, memory.NoteActive, first.State)
	require.Equal(t, memory.ByOperator, first.Author)
	require.InDelta(t, float64(began.Unix()), first.TS, 60)
	require.Equal(t, first, doNote(t, w, 201, "POST", "c/notes", `{"text":"Answer, in <English>!"}`), "the same but for punctuation")
	own := doNote(t, w, 201, "POST", "c/subagents/analytic/notes", `{"text":"Count in euros."}`)
	require.Equal(t, []memory.Note{own}, listNotes(t, w, "c/subagents/analytic"))
	require.Empty(t, listNotes(t, w, "other"))

	w.URL = second
	require.Equal(t, []memory.Note{first}, listNotes(t, w, "c"))
	next := doNote(t, w, 201, "POST", "c/notes", fmt.Sprintf(`{"text":"Answer in Russian.","replaces":%q}`, first.ID))
	require.Equal(t, first.ID, next.Replaces)
	require.Equal(t, []string{"superseded: Answer in <English>.", "active: Answer in Russian."},
		states(listNotes(t, w, "c")))
	corrected := doNote(t, w, 200, "PATCH", "c/notes/"+next.ID, `{"text":"Отвечай по-русски."}`)
	require.Equal(t, next.ID, corrected.ID)
	require.Equal(t, next.TS, corrected.TS, "its place in the prompt stays")
	require.Equal(t, memory.NoteActive, doNote(t, w, 200, "PATCH", "c/notes/"+first.ID, `{"state":"active"}`).State)
	doNote(t, w, 204, "DELETE", "c/notes/"+first.ID, "")
	require.Equal(t, []memory.Note{corrected}, listNotes(t, w, "c"))

	var info webapi.ChatInfo
	_, body := w.Do("GET", "/v1/chats/c", nil).Text()
	require.NoError(t, json.Unmarshal([]byte(body), &info))
	require.Len(t, info.Histories, 2)
	require.Equal(t, 1, info.Histories[0].Notes)

	status, _ := w.Do("DELETE", "/v1/chats/c/subagents/analytic/history", nil).Text()
	require.Equal(t, 200, status)
	require.Empty(t, listNotes(t, w, "c/subagents/analytic"))
	require.NotEmpty(t, listNotes(t, w, "c"))
	status, body = w.Do("DELETE", "/v1/chats/c", nil).Text()
	require.Equal(t, 200, status)
	require.Contains(t, body, "chat_history:c")
	require.Empty(t, listNotes(t, w, "c"))
	require.Empty(t, w.Redis.Keys(t.Context(), "*:notes").Val())
}

// What is no note is refused, and changes nothing.
func TestNotesThatAreRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	n := doNote(t, w, 201, "POST", "c/notes", `{"text":"`+strings.Repeat("ё", memory.MaxNote)+`"}`)
	for _, r := range []struct {
		status             int
		method, path, body string
	}{
		{400, "POST", "c/notes", `{}`},
		{400, "POST", "c/notes", `{"text":" \n\u2003 "}`},
		{400, "POST", "c/notes", `{"text":7}`},
		{400, "POST", "c/notes", `{"text":"a","text":"b"}`},
		{400, "POST", "c/notes", `[]`},
		{400, "POST", "c/notes", ``},
		{400, "POST", "c/notes", `{"text":"` + strings.Repeat("ё", memory.MaxNote+1) + `"}`},
		{400, "POST", "c/notes", `{"text":"` + strings.Repeat(" ", 1<<20) + `a"}`},
		{413, "POST", "c/notes", `{"text":"` + strings.Repeat("a", 3<<20) + `"}`},
		{400, "POST", "no%20chat/notes", `{"text":"a"}`},
		{400, "POST", "c/subagents/NO/notes", `{"text":"a"}`},
		{404, "POST", "c/notes", `{"text":"a","replaces":"nosuch"}`},
		{400, "PATCH", "c/notes/" + n.ID, `{}`},
		{400, "PATCH", "c/notes/" + n.ID, `{"state":"proposed"}`},
		{400, "PATCH", "c/notes/" + n.ID, `{"text":"  "}`},
		{404, "PATCH", "c/notes/nosuch", `{"state":"active"}`},
		{404, "PATCH", "d/notes/" + n.ID, `{"state":"active"}`},
		{404, "PATCH", "c/subagents/analytic/notes/" + n.ID, `{"state":"active"}`},
		{404, "DELETE", "c/notes/nosuch", ``},
		{405, "DELETE", "c/notes", ``},
	} {
		doNote(t, w, r.status, r.method, r.path, r.body)
	}
	require.Equal(t, []memory.Note{n}, listNotes(t, w, "c"))
	for i := range memory.MaxNotes - 1 {
		doNote(t, w, 201, "POST", "c/notes", fmt.Sprintf(`{"text":"note %d"}`, i))
	}
	doNote(t, w, 507, "POST", "c/notes", `{"text":"one more"}`)
	doNote(t, w, 201, "POST", "c/notes", fmt.Sprintf(`{"text":"another","replaces":%q}`, n.ID))
	require.Len(t, listNotes(t, w, "c"), memory.MaxNotes)
}

// Notes that are added by two processes at the same time are all there; while a run has the
// chat's turn a note waits, and is refused as busy in the end.
func TestNotesAndTurns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release), func(c *webmemory.Config) { c.QueueLimit = 100 })
	urls := []string{w.URL, w.StartReplica(func(c *webmemory.Config) { c.QueueLimit = 100 })}
	var adding sync.WaitGroup
	for i := range 20 {
		adding.Go(func() {
			body := strings.NewReader(fmt.Sprintf(`{"text":"note %d"}`, i))
			resp, err := http.Post(urls[i%2]+"/v1/chats/c/notes", "application/json", body)
			if err != nil || resp.StatusCode != 201 {
				t.Errorf("note %d: %v %v", i, resp, err)
				return
			}
			resp.Body.Close()
		})
	}
	adding.Wait()
	require.Len(t, listNotes(t, w, "c"), 20)

	w.PostStream("c", "hello").Until("subagent_delegation")
	w.URL = w.StartReplica(func(c *webmemory.Config) { c.QueueWait = 50 * time.Millisecond })
	_, body := w.Do("POST", "/v1/chats/c/notes", `{"text":"late"}`).Text()
	require.Contains(t, body, webapi.CodeChatBusy)
	require.Len(t, listNotes(t, w, "c"), 20, "reading does not wait")
	close(release)
}

// A run is given the notes that are active, the chat's and each subagent's, from the next
// message on; without any it is asked for as it would be without the feature. Notes that
// cannot be read are set aside, and the chat goes on.
func TestARunIsGivenTheNotes(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	asked := w.RecordRuns()
	say := func() (run api.RunRequest, body string) {
		t.Helper()
		require.Equal(t, 200, w.Post("c", "hi").Status)
		raw := <-asked
		require.NoError(t, json.Unmarshal(raw, &run))
		return run, string(raw)
	}
	_, body := say()
	require.NotContains(t, body, "notes")
	first := doNote(t, w, 201, "POST", "c/notes", `{"text":"one"}`)
	own := doNote(t, w, 201, "POST", "c/subagents/knowledge/notes", `{"text":"its own"}`)
	second := doNote(t, w, 201, "POST", "c/notes", `{"text":"two"}`)
	doNote(t, w, 201, "POST", "c/notes", fmt.Sprintf(`{"text":"three","replaces":%q}`, second.ID))
	run, _ := say()
	require.Equal(t, []string{"active: one", "active: three"}, states(run.Notes))
	require.Equal(t, map[memory.Agent][]memory.Note{"knowledge": {own}}, run.SubagentNotes)
	doNote(t, w, 204, "DELETE", "c/notes/"+first.ID, "")
	run, _ = say()
	require.Equal(t, []string{"active: three"}, states(run.Notes))

	require.NoError(t, w.Redis.Set(t.Context(), "{chat_history:c}:notes", "[{", 0).Err())
	status, body := w.Do("GET", "/v1/chats/c/notes", nil).Text()
	require.Equal(t, 500, status, body)
	require.Contains(t, body, "{chat_history:c}:notes")
	run, _ = say()
	require.Empty(t, run.Notes)
	require.NotEmpty(t, run.SubagentNotes)
	require.Empty(t, listNotes(t, w, "c"))

	status, _ = w.Do("DELETE", "/v1/chats/c", nil).Text()
	require.Equal(t, 200, status)
	_, body = say()
	require.NotContains(t, body, "notes")
}

// Notes go along with an export, and arrive proposed: no person here has said yes to
// them. A second export and import changes nothing more, and messages stay as they are.
func TestNotesAreTakenAlong(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	text := webmemorytest.ExportLines(3, 2)
	status, body := w.Do("POST", "/v1/chats/a/import", text).Text()
	require.Equal(t, 201, status, "%s", body)
	first := doNote(t, w, 201, "POST", "a/notes", `{"text":"one <&> ё"}`)
	doNote(t, w, 201, "POST", "a/notes", fmt.Sprintf(`{"text":"two","replaces":%q}`, first.ID))
	doNote(t, w, 201, "POST", "a/subagents/knowledge/notes", `{"text":"of one that has said nothing"}`)
	_, exported := w.Do("GET", "/v1/chats/a/export", nil).Text()
	messages, _, _ := strings.Cut(text, `{"messages"`)
	require.True(t, strings.HasPrefix(exported, messages))
	require.True(t, strings.HasSuffix(exported, "\n{\"messages\":10,\"notes\":3}\n"), exported)

	status, body = w.Do("POST", "/v1/chats/b/import", exported).Text()
	require.Equal(t, 201, status, "%s", body)
	require.JSONEq(t, `{"messages":10,"histories":2,"notes":3}`, body)
	require.Equal(t, []string{"proposed: one <&> ё", "proposed: two"}, states(listNotes(t, w, "b")))
	require.Equal(t, first.ID, listNotes(t, w, "b")[1].Replaces)
	require.Len(t, listNotes(t, w, "b/subagents/knowledge"), 1)
	_, again := w.Do("GET", "/v1/chats/b/export", nil).Text()
	require.True(t, strings.HasPrefix(again, messages))
	status, body = w.Do("POST", "/v1/chats/c/import", again).Text()
	require.Equal(t, 201, status, "%s", body)
	_, third := w.Do("GET", "/v1/chats/c/export", nil).Text()
	require.Equal(t, again, third)

	status, _ = w.Do("POST", "/v1/chats/b/import", again).Text()
	require.Equal(t, 409, status)
	good := `{"message":{"role":"user","content":"a","id":"1"}}` + "\n" + `{"note":{"id":"n1","text":"b","by":"user","ts":1}}` + "\n"
	for bad, want := range map[string]string{
		`{"note":{"id":"n1","text":"again","by":"user"}}`:                                         "has the id n1 too",
		`{"note":{"id":"n 2","text":"x","by":"user"}}`:                                            "the id of a note",
		`{"note":{"id":"n2","text":" ","by":"user"}}`:                                             "is empty",
		`{"note":{"id":"n2","text":"` + strings.Repeat("x", memory.MaxNote+1) + `","by":"user"}}`: "at most 500",
		`{"note":{"id":"n2","text":"x","by":"god"}}`:                                              "the author",
		`{"note":{"id":"n2","text":"x","by":"user","message":"a b"}}`:                             "other characters",
		`{"note":"n2"}`:            "no line of an export",
		`{"messages":1}`:           "counts 0 notes",
		`{"messages":1,"notes":2}`: "counts 2 notes",
	} {
		status, body := w.Do("POST", "/v1/chats/d/import", good+bad).Text()
		require.Equal(t, 400, status, bad)
		require.Contains(t, body, want, bad)
		require.Empty(t, w.Redis.Keys(t.Context(), "{*:d}:notes").Val())
	}
	many := strings.Builder{}
	for i := range memory.MaxNotes + 1 {
		fmt.Fprintf(&many, `{"note":{"id":"n%d","text":"%d","by":"user"}}`+"\n", i, i)
	}
	status, body = w.Do("POST", "/v1/chats/d/import", many.String()).Text()
	require.Equal(t, 400, status, "%s", body)
	require.Contains(t, body, "at most 200 notes")
	status, body = w.Do("POST", "/v1/chats/d/import", good+`{"messages":1,"notes":1}`).Text()
	require.Equal(t, 201, status, "%s", body)
}
