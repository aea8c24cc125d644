package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/models"
	webapi "mneme/webmemory/api"
)

// conversation is one of ChatGPT's export, in which a question is asked and answered at a time.
func conversation(id, title, question, answer string, at int) string {
	return fmt.Sprintf(`{"title":%q,"create_time":%d,"conversation_id":%q,"current_node":"2","mapping":{
"0":{"message":null,"parent":null},
"1":{"parent":"0","message":{"author":{"role":"user"},"create_time":%d.5,"content":{"content_type":"text","parts":[%q]}}},
"2":{"parent":"1","message":{"author":{"role":"assistant"},"create_time":null,"content":{"content_type":"text","parts":[%q]}}}}}`,
		title, at, id, at, question, answer)
}

// oneChat is the summary of an import of a chat with two messages beside some that were there.
func oneChat(already int) string {
	return fmt.Sprintf("imported 1 chat with 2 messages\n"+
		"here already, and left as they are: %d; without a message: 0\n", already)
}

// What was said to other services is found here, with its time; the same export again changes nothing.
func TestTakingOverFromOtherServices(t *testing.T) {
	t.Chdir(t.TempDir())
	s := startUp(t, models.Places{}, nil, "up", "--offline")
	memory := func(args ...string) result {
		return mneme(t, "", append([]string{"memory", "--url", s.web}, args...)...)
	}
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}

	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i, part := range []string{
		conversation("c-1", "Ужин", "У меня аллергия на арахис.", "Запомнил: <без> арахиса.", 1_700_000_000) + `,{"title":"broken","id":"b","mapping":[]}`,
		conversation("c-2", "", "My cat is called Miso.", "A fine name.", 1_710_000_000) +
			`,{"title":"New chat","id":"c-3","current_node":"0","mapping":{"0":{"message":null}}}`,
	} {
		w, err := z.Create(fmt.Sprintf("conversations-%03d.json", i))
		require.NoError(t, err)
		_, err = w.Write([]byte("[" + part + "]"))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	file("export.zip", b.String())
	r := memory("import", "--from", "chatgpt", "export.zip")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^imported 2 chats with 4 messages\nhere already, and left as they are: 0; without a message: 1\nleft out: entry 2 \("broken"\): .*\n$`, r.stdout)
	require.Contains(t, r.stderr, "1 conversation could not be imported; the summary says why")

	r = memory("search", "chatgpt-c-1", "на что у меня аллергия?")
	require.Regexp(t, `2023-11-14 22:13:20  user  \S+\n  У меня аллергия на арахис\.`, r.stdout)
	r = memory("get", "chatgpt-c-1", "--json")
	require.Contains(t, r.stdout, `"Запомнил: <без> арахиса.","timestamp":1700000000.5,"from":"agent","source":"ChatGPT"`)
	require.Contains(t, r.stdout, `"У меня аллергия на арахис.","timestamp":1700000000.5,"from":"user"`)
	resp, err := http.Get(s.web + "/v1/chats/chatgpt-c-1")
	require.NoError(t, err)
	defer resp.Body.Close()
	var info webapi.ChatInfo
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&info))
	require.Equal(t, "Ужин", info.Title)

	// Again, by when something was said since.
	r = memory("import", "--from", "chatgpt", "export.zip", "--json")
	require.Equal(t, 1, r.code)
	var again importReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &again))
	require.Len(t, again.LeftOut, 1)
	again.LeftOut = nil
	require.Equal(t, importReport{Already: 2, Empty: 1}, again)
	require.Equal(t, 2, strings.Count(memory("get", "chatgpt-c-1").stdout, "арахис"))

	file("claude.json", `[{"uuid":"q-1","name":"Trip","created_at":"2025-02-01T10:00:00Z","chat_messages":[
{"uuid":"1","sender":"human","text":"I moved to Graz.","created_at":"2025-02-01T10:00:01Z"},
{"uuid":"2","sender":"assistant","text":"Enjoy it.","created_at":"2025-02-01T10:00:02Z"}]}]`)
	r = memory("import", "--from", "claude", "claude.json")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, oneChat(0), r.stdout)
	require.Contains(t, memory("search", "claude-q-1", "Where do I live, in Graz?").stdout, "2025-02-01 10:00:01  user")

	file("mem0.json", `{"results":[{"id":"1","memory":"Is allergic to peanuts","user_id":"ann","created_at":"2024-05-01T00:00:00Z"},
{"id":"2","memory":"Lives in Graz","user_id":"ann","created_at":"2024-05-01T00:00:00Z","updated_at":"2025-05-01T00:00:00Z"}]}`)
	r = memory("import", "--from", "mem0", "mem0.json")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, oneChat(0), r.stdout)
	require.Contains(t, memory("search", "mem0-ann", "peanuts").stdout, "2024-05-01 00:00:00  assistant")

	r = memory("import", "--from", "chatgpt", "claude.json")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "imported 0 chats")
	require.Contains(t, r.stderr, "claude.json: this is what claude exports: use --from claude")
	file("large.json", "["+conversation("large", "L", strings.Repeat("a", 2<<20), "b", 1)+","+
		conversation("small", "S", "a", "b", 1)+"]")
	r = memory("import", "--from", "chatgpt", "large.json")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `imported 1 chat with 2 messages\n.*\nleft out: the chat chatgpt-large \("L"\): .*bytes`, r.stdout)
	require.Zero(t, s.stop())
}

func TestTheFlagsOfImport(t *testing.T) {
	t.Chdir(t.TempDir())
	for says, args := range map[string][]string{
		`expected "<chat-or-file>"`: {},
		`--from must be one of`:     {"--from", "gemini", "f"},
		"one file and no chat":      {"--from", "claude", "12345", "f"},
		"--json goes with":          {"12345", "f", "--json"},
	} {
		r := mneme(t, "", append([]string{"memory", "import"}, args...)...)
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.stderr, says)
	}
	require.Equal(t, 1, mneme(t, "", "memory", "import", "--from", "claude", "absent").code)
	r := mneme(t, "", "memory", "import", "--from", "claude", ".")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "is a directory")
}

// Stopped between two conversations, an import says so, and goes on with the same command; so it does after an error.
func TestAnImportGoesOnWhereItStopped(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("export.json", []byte("["+conversation("a", "A", "x", "y", 1)+","+
		conversation("b", "", "x", "y", 1)+","+conversation("c", "", "x", "y", 1)+"]"), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	there, titled, fail := map[string]bool{}, 0, true
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPatch:
			titled++
			cancel() // behind the first chat
		case there[r.URL.Path]:
			rw.WriteHeader(http.StatusConflict)
			fmt.Fprint(rw, `{"error":{"code":"chat_not_empty","message":"There."}}`)
			return
		case strings.Contains(r.URL.Path, "-c/") && fail:
			fail = false
			rw.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(rw, `{"error":{"code":"too_many_chats","message":"Busy."}}`)
			return
		default:
			there[r.URL.Path] = true
		}
		fmt.Fprint(rw, `{"messages":2}`)
	}))
	defer server.Close()
	args := []string{"memory", "import", "--from", "chatgpt", "export.json", "--url", server.URL}
	var out, errs bytes.Buffer
	require.Equal(t, 1, run(ctx, args, &console{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}))
	require.Equal(t, oneChat(0), out.String())
	require.Contains(t, errs.String(), "stopped; run the same command again to go on")

	r := mneme(t, "", args...)
	require.Equal(t, 1, r.code)
	require.Equal(t, oneChat(1), r.stdout)
	require.Contains(t, r.stderr, "Busy.")
	r = mneme(t, "", args...)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, oneChat(2), r.stdout)
	require.Equal(t, 1, titled)
}
