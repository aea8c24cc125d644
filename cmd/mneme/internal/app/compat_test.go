package app_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// testdata/before was written by mneme as it was at commit 580f6c5, with its offline
// model: a data directory (its journal compressed, and its histories as Redis showed
// them), a Redis (one command a line, made from its append-only file), and what its
// webmemory sent to an apiserver for a chat without and with histories. It holds chat
// harbour of four turns, two of them with delegations and one with a subagent alone,
// the collection docs with ferry.md, and the gateway's conversation compat. It must
// never be written anew: that would make it a test of today's version.
const before = "testdata/before"

// firstPost is the message that was posted first to chat harbour, under the
// Idempotency-Key key-1, and its answer.
const (
	firstPost   = `{"message":"Tell the analytic subagent that my name is Oyuna, then ask it what my name is"}`
	firstAnswer = "Noted: your name is Oyuna. Your name is Oyuna."
	firstRun    = "7DT4WTRQAROKBJGROX7HN5VGGA"
)

// harbour are the keys of the chat's histories.
var harbour = []string{"chat_history:harbour", "subagent:analytic:harbour", "subagent:knowledge:harbour"}

func readBefore(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(before, name))
	require.NoError(t, err)
	return data
}

// dataBefore is a copy of the data directory.
func dataBefore(t *testing.T) string {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(readBefore(t, "embedded.journal.gz")))
	require.NoError(t, err)
	journal, err := io.ReadAll(packed)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "redis"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis", "journal"), journal, 0o600))
	return dir
}

// commandsBefore are the commands that make the Redis.
func commandsBefore(t *testing.T) (commands [][]string) {
	t.Helper()
	for line := range bytes.Lines(readBefore(t, "redis.jsonl")) {
		var c []string
		require.NoError(t, json.Unmarshal(line, &c))
		commands = append(commands, c)
	}
	return commands
}

// redisBefore is a real Redis that holds it, as if it had been written just now:
// what would have expired since then expires a day from now.
func redisBefore(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t)
	tomorrow := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	pipe := s.Client().Pipeline()
	for _, c := range commandsBefore(t) {
		switch {
		case c[0] == "PEXPIREAT":
			c[2] = tomorrow
		case c[0] == "XSETID":
			c = c[:3] // the rest is not known to Redis 6
		case c[0] == "HMSET" && strings.HasSuffix(c[1], "}:meta"):
			for i := 2; i < len(c); i += 2 {
				if strings.HasPrefix(c[i], "r:") { // when a run's record expires
					c[i+1] = tomorrow
				}
			}
		}
		args := make([]any, len(c))
		for i := range c {
			args[i] = c[i]
		}
		pipe.Do(t.Context(), args...)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	return s
}

// scripted is a vendor with a model that always says the same, and the settings that make
// it the backend.
func scripted(t *testing.T, text string) (*upstreamtest.Server, []string) {
	t.Helper()
	answer := upstreamtest.Reply(upstreamtest.Say(text))
	vendor := upstreamtest.New(upstreamtest.Config{
		Vendor: upstreamtest.Chat, Answer: func(*upstreamtest.Request) *upstreamtest.Answer { return &answer },
	})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	return vendor, []string{"MNEME_PROXY_ACTIVE=v", backend("v", "openai", server.URL+"/v1")}
}

// stored are histories as Redis has them.
func stored(t *testing.T, client redis.UniversalClient) map[string][]json.RawMessage {
	t.Helper()
	out := map[string][]json.RawMessage{}
	for _, key := range harbour {
		var messages []json.RawMessage
		raw, err := client.Get(t.Context(), key).Bytes()
		require.NoError(t, err, key)
		require.NoError(t, json.Unmarshal(raw, &messages), key)
		out[key] = messages
	}
	return out
}

// requireSame compares messages but for their ids, which the version before gave none.
func requireSame(t *testing.T, want, got []json.RawMessage) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		var members [2]map[string]any
		for side, raw := range []json.RawMessage{want[i], got[i]} {
			require.NoError(t, json.Unmarshal(raw, &members[side]))
			delete(members[side], "id")
		}
		require.Equal(t, members[0], members[1])
	}
}

// goesOn holds that nothing of what was stored before is changed or lost, that a new
// turn of the chat sees it and is appended, and that the documents are found.
func goesOn(t *testing.T, u *up, client redis.UniversalClient, vendor *upstreamtest.Server,
	want map[string][]json.RawMessage) {
	t.Helper()
	for key, messages := range stored(t, client) {
		requireSame(t, want[key], messages)
	}
	status, body := u.request("GET", "/v1/chats/harbour/history", "", "")
	require.Equal(t, http.StatusOK, status, body)
	var shown struct{ Messages []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &shown))
	requireSame(t, want[harbour[0]], shown.Messages)
	require.Equal(t, []string{"ferry.md"}, found(u.search("bicycles on the ferry to Saltholm")))
	exportsAndSearches(t, u, want)

	require.Equal(t, "Still here.", u.say("harbour", "Are you still here?"))
	asked := string(vendor.Last().Body)
	require.Contains(t, asked, "your boat is called Heron", "the model is sent what was said before")
	now := stored(t, client)
	n := len(want[harbour[0]])
	require.Len(t, now[harbour[0]], n+2)
	requireSame(t, want[harbour[0]], now[harbour[0]][:n])
	require.Contains(t, string(now[harbour[0]][n]), "Are you still here?")
	require.Contains(t, string(now[harbour[0]][n+1]), "Still here.")
	for _, key := range harbour[1:] {
		requireSame(t, want[key], now[key])
	}

	require.Equal(t, "Still here.", u.askSubagent("harbour", "analytic", "And what is my boat called?"))
	require.Contains(t, string(vendor.Last().Body), "Noted: your boat is called Heron.", "the subagent remembers")
	now = stored(t, client)
	n = len(want[harbour[1]])
	requireSame(t, want[harbour[1]], now[harbour[1]][:n])
	require.Len(t, now[harbour[1]], n+2)
}

// exportsAndSearches holds that histories which say of no message whose words it is are taken along as they are, and
// that a search tells it by their roles.
func exportsAndSearches(t *testing.T, u *up, want map[string][]json.RawMessage) {
	t.Helper()
	status, body := u.request("GET", "/v1/chats/harbour/export", "", "")
	require.Equal(t, http.StatusOK, status, body)
	exported := map[string][]json.RawMessage{}
	for line := range strings.Lines(body) {
		var one struct {
			Subagent string
			Message  json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		if key := harbour[0]; one.Message != nil {
			if one.Subagent != "" {
				key = "subagent:" + one.Subagent + ":harbour"
			}
			exported[key] = append(exported[key], one.Message)
		}
	}
	for _, key := range harbour {
		requireSame(t, want[key], exported[key])
	}
	var whose []string
	for _, of := range []string{"&query=boat", "analytic&query=boat", "knowledge&query=ferry+passages"} {
		status, body = u.request("GET", "/v1/chats/harbour/recall?budget=8000&subagent="+of, "", "")
		require.Equal(t, http.StatusOK, status, body)
		var found struct {
			Hits []struct{ Subagent, Role, From, Source string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &found))
		for _, hit := range found.Hits {
			whose = append(whose, strings.TrimSpace(fmt.Sprintln(hit.Subagent, hit.Role, hit.From, hit.Source)))
		}
	}
	require.Subset(t, whose, []string{"user user", "analytic user agent", "knowledge tool outside search_documents"})
}

// askSubagent talks to a subagent alone.
func (u *up) askSubagent(chat, name, message string) string {
	u.t.Helper()
	post, err := json.Marshal(map[string]string{"message": message, "agent_version": name})
	require.NoError(u.t, err)
	status, body := u.request("POST", "/v1/chats/"+chat+"/messages", "application/json", string(post))
	require.Equal(u.t, http.StatusOK, status, body)
	var answer struct{ Content string }
	require.NoError(u.t, json.Unmarshal([]byte(body), &answer))
	return answer.Content
}

// A data directory of the version before opens as it is, also a second time.
func TestADataDirectoryOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	want := map[string][]json.RawMessage{}
	require.NoError(t, json.Unmarshal(readBefore(t, "embedded.histories.json"), &want))
	vendor, backend := scripted(t, "Still here.")
	environ := append(backend, "MNEME_DATA_DIR="+dataBefore(t))
	open := func() (*up, redis.UniversalClient) {
		u := start(t, environ...)
		client := redis.NewClient(&redis.Options{Addr: u.addrs.Redis, Protocol: 2})
		t.Cleanup(func() { client.Close() })
		return u, client
	}
	u, client := open()
	goesOn(t, u, client, vendor, want)
	now := stored(t, client)
	u.stop()

	_, client = open()
	for key, messages := range stored(t, client) {
		requireSame(t, now[key], messages)
	}
}

// A Redis that the version before wrote is used as it is: histories, documents, the
// gateway's conversations, and what was answered under a key.
func TestARedisOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	s := redisBefore(t)
	client := s.Client()
	want := stored(t, client)
	vendor, backend := scripted(t, "Still here.")
	u := start(t, append(backend, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+s.URL())...)

	req, err := http.NewRequest("POST", u.url("/v1/chats/harbour/messages"), strings.NewReader(firstPost))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "key-1")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var replayed struct {
		RunID   string `json:"run_id"`
		Content string
	}
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&replayed))
	require.Equal(t, firstRun, replayed.RunID)
	require.Equal(t, firstAnswer, replayed.Content)
	require.Zero(t, vendor.Count(), "no model is asked")
	status, events := u.request("GET", "/v1/chats/harbour/runs/"+firstRun+"/events", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, transcript(t, events), len(eventsBefore(t)))

	goesOn(t, u, client, vendor, want)

	turns := func() int64 { return client.HLen(context.Background(), "proxy:turns:{:compat}:main").Val() }
	known := turns()
	require.Positive(t, known)
	req, err = http.NewRequest("POST", "http://"+u.addrs.Proxy+"/v1/messages",
		strings.NewReader(`{"model":"master","max_tokens":100,"messages":[`+
			`{"role":"user","content":"My name is Oyuna."},{"role":"assistant","content":"Noted: your name is `+
			`Oyuna."},{"role":"user","content":"And?"}]}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-AG-Conversation-Id", "compat")
	answered, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answered.Body.Close()
	require.Equal(t, http.StatusOK, answered.StatusCode)
	u.stop() // what the gateway keeps is written by then
	require.Equal(t, known+1, turns(), "the conversation goes on behind its old turn")
}
