package webmemory_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

func everywhere(c *webmemory.Config) { c.RecallEverywhere = 3 }

// recallUser searches the chats of a user and returns the hits by chat.
func recallUser(t *testing.T, w *webmemorytest.World, user, query string) map[string]string {
	t.Helper()
	status, body := w.Do("GET", "/v1/users/"+user+"/recall?"+url.Values{"query": {query}}.Encode(), nil).Text()
	require.Equal(t, 200, status, body)
	var out webapi.Recalled
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	found := map[string]string{}
	for _, h := range out.Hits {
		if h.Role == "user" {
			found[h.Chat] = h.Text
		}
	}
	return found
}

// What a user said is found over the chats in which the user was alone, of those used last, and nothing that another
// user can have said or read. What was redacted, put into quarantine or erased is not found.
func TestAUsersChatsAreSearchedTogether(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), everywhere)
	say := func(chat, user, text string) {
		t.Helper()
		require.Equal(t, 200, w.Do("POST", "/v1/chats/"+chat+"/messages",
			webapi.MessageRequest{Message: text, User: user}).Status)
	}
	const key = "The spare key lies under the "
	say("oldest", "ann", key+"ashtray.")
	say("home", "ann", key+"flowerpot.")
	say("work", "ann", key+"keyboard.")
	say("shared", "bob", key+"doormat.")
	say("shared", "ann", "Thanks for the spare key!")
	say("bobs", "bob", key+"beehive.")
	const where = "Where does the spare key lie?"
	require.Equal(t, map[string]string{"home": key + "flowerpot.", "work": key + "keyboard."},
		recallUser(t, w, "ann", where))
	require.Equal(t, map[string]string{"bobs": key + "beehive."}, recallUser(t, w, "bob", where))
	require.Empty(t, recallUser(t, w, "carl", where))
	require.Equal(t, map[string]string{"bobs": key + "beehive."}, recallUser(t, w, "bob", where), "a second time")

	// Of another process, which has no index of any of them yet.
	url := w.URL
	w.URL = w.StartReplica(everywhere)
	require.Len(t, recallUser(t, w, "ann", where), 2)
	say("work", "bob", "Is anybody here?")
	require.Equal(t, map[string]string{"home": key + "flowerpot."}, recallUser(t, w, "ann", where), "bob came into work")
	w.URL = url
	require.Equal(t, map[string]string{"home": key + "flowerpot."}, recallUser(t, w, "ann", where))

	status, body := w.Do("POST", "/v1/chats/home/quarantine", `{"entries":["`+messageIDs(t, w, "home")[0]+`"]}`).Text()
	require.Equal(t, 200, status, body)
	require.Empty(t, recallUser(t, w, "ann", where))
	say("new", "ann", key+"barrel.")
	require.Equal(t, map[string]string{"new": key + "barrel."}, recallUser(t, w, "ann", where))
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/new/messages/"+messageIDs(t, w, "new")[0], nil).Status)
	require.Empty(t, recallUser(t, w, "ann", where))
	say("last", "ann", key+"anchor.")
	require.Len(t, recallUser(t, w, "ann", where), 1)
	require.Equal(t, 200, w.Do("DELETE", "/v1/users/ann?chats=true", nil).Status)
	require.Empty(t, recallUser(t, w, "ann", where))
}

// It is off by default, and wrong requests are told so.
func TestASearchOfAUsersChatsIsAskedFor(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	status, body := w.Do("GET", "/v1/users/ann/recall?query=key", nil).Text()
	require.Equal(t, 403, status)
	require.Contains(t, body, "recall_everywhere_off")
	for _, query := range []string{"", "?query=", "?query=key&budget=0", "?query=key&from=never"} {
		status, _ = w.Do("GET", "/v1/users/ann/recall"+query, nil).Text()
		require.Equal(t, 400, status, query)
	}
}

// An agent of a run finds what the run's user said in other chats, but not in a chat that has several users, nor
// without a user.
func TestAnAgentSearchesAUsersChats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, user, others, found string }{
		{"alone", "ann", "ann", "before"}, {"with another user", "ann", "bob", ""}, {"without a user", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHolding(t, everywhere)
			post := func(chat, user, text string) {
				h.user = user
				h.say(t, chat, text)
				h.release <- struct{}{}
				h.stream.Until("run_finished")
			}
			post("before", "ann", "My spare key lies under the flowerpot.")
			post("here", c.others, "Good morning!")
			h.user = c.user
			h.say(t, "here", "Where is it?")
			found, err := h.run.Memory.Recall(t.Context(),
				memory.RecallRequest{Query: "spare key", Everywhere: true})
			require.NoError(t, err)
			chat := ""
			for _, hit := range found.Hits {
				chat = hit.Chat
			}
			require.Equal(t, c.found, chat, "%+v", found.Hits)
			close(h.release)
		})
	}
}
