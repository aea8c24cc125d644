package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	webapi "mneme/webmemory/api"
)

// What the commands ask for, and what they say of the answers.
func TestGoingBackByCommand(t *testing.T) {
	var asked string
	to := "R.1"
	entry := webapi.SetAside{ID: "17", TS: 1.76e9, Until: 1.76e9 + 86400, Target: &to, Messages: 3,
		Histories: []webapi.SetAsideHistory{{Messages: 2}, {Subagent: "analytic", Messages: 1}}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var body any
		_ = json.NewDecoder(r.Body).Decode(&body)
		raw, _ := json.Marshal(body)
		asked = r.Method + " " + r.URL.EscapedPath() + " " + string(raw)
		var answer any = entry
		switch r.URL.Path {
		case "/v1/chats/c/set-aside":
			answer = webapi.SetAsides{SetAside: []webapi.SetAside{entry, {ID: "18"}}}
		case "/v1/chats/c/fork":
			answer = webapi.Imported{Messages: 4, Histories: 2}
		}
		_ = json.NewEncoder(rw).Encode(answer)
	}))
	defer server.Close()
	for _, c := range []struct {
		args      []string
		asks, out string
	}{
		{[]string{"rewind", "c", "R.1"}, `POST /v1/chats/c/rewind {"to":"R.1"}`, `took back 3 messages of 2 histories`},
		{[]string{"rewind", "c", "--start"}, `POST /v1/chats/c/rewind {"to":null}`, `rewind --restore 17 -- c\n`},
		{[]string{"rewind", "c", "--list"}, `GET /v1/chats/c/set-aside null`, `(?s)17 .* R\.1 +3\n18 .*\(start\)`},
		{[]string{"rewind", "c", "--restore", "17"}, `POST /v1/chats/c/set-aside/17/restore null`, `restored 3 messages`},
		{[]string{"fork", "c", "d", "--at", "R.1"}, `POST /v1/chats/c/fork {"as":"d","at":"R.1"}`, `chat d has 4 messages`},
	} {
		got := mneme(t, "", append(append([]string{"memory"}, c.args...), "--url", server.URL)...)
		require.Zero(t, got.code, got.stderr)
		require.Equal(t, c.asks, asked)
		require.Regexp(t, regexp.MustCompile(c.out), got.stdout)
	}
	asked = ""
	for _, args := range [][]string{{"rewind", "c"}, {"rewind", "c", "R.1", "--start"}, {"rewind", "a b", "R.1"},
		{"fork", "c"}, {"fork", "c", "a b"}, {"rewind", "c", "--restore", "17", "--list"}, {"rewind", "c", "--restore", ""}} {
		got := mneme(t, "", append(append([]string{"memory"}, args...), "--url", server.URL)...)
		require.NotZero(t, got.code, args)
	}
	require.Empty(t, asked)
}
