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

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// doUserNote is doNote for a note of a user.
func doUserNote(t *testing.T, w *webmemorytest.World, want int, method, path, body string) memory.Note {
	t.Helper()
	return doNote(t, w, want, method, "/v1/users/"+path, body)
}

// listUserNotes returns the notes of a user.
func listUserNotes(t *testing.T, w *webmemorytest.World, user string) []memory.Note {
	t.Helper()
	return listNotes(t, w, "/v1/users/"+user)
}

// eraseUser erases a user with its chats until nothing is left, and returns everything erased.
func eraseUser(t *testing.T, w *webmemorytest.World, user string) (all webapi.ErasedUser) {
	t.Helper()
	for {
		status, body := w.Do("DELETE", "/v1/users/"+user+"?chats=true", nil).Text()
		require.Equal(t, 200, status, body)
		var out webapi.ErasedUser
		require.NoError(t, json.Unmarshal([]byte(body), &out))
		all.Notes += out.Notes
		all.Chats, all.Retained = append(all.Chats, out.Chats...), append(all.Retained, out.Retained...)
		if out.Remaining == 0 {
			return all
		}
		require.NotEmpty(t, append(out.Chats, out.Retained...), "each request does something")
	}
}

// tenants stands before a process: a request comes from the tenant that its header names.
func tenants(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if tenant, err := memory.ParseTenant(r.Header.Get("Test-Tenant")); err == nil {
			r = r.WithContext(access.With(r.Context(), access.Principal{Tenant: tenant, Scopes: access.Scopes}))
		}
		h.ServeHTTP(rw, r)
	})
}

// What the user said of herself in one chat is known in her other chats, on another replica, to all agents; in no
// other user's, and in no chat of a namesake of another tenant.
func TestAUserIsKnownInEachChat(t *testing.T) {
	t.Parallel()
	h := &holding{release: make(chan struct{})}
	h.World = webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(h.release))
	h.asked = h.RecordRuns()
	h.Middleware = tenants
	h.URL, h.user = h.StartReplica(), "ann@example.com"
	h.say(t, "first", "Hi, my name is Aliya.")
	n, err := h.remember(t, memory.RememberRequest{Quote: "my name is Aliya", OfUser: true})
	require.NoError(t, err)
	require.Equal(t, memory.NoteActive, n.State)
	require.Equal(t, "first", n.Chat)
	require.Equal(t, h.run.RunID+".1", n.Message)
	require.Empty(t, listNotes(t, h.World, "first"))
	require.Equal(t, fmt.Sprintf(`[{"id":%q,"text":"my name is Aliya","state":"active","by":"user","message":%q,`+
		`"chat":"first","ts":%v}]`, n.ID, n.Message, jsonNumber(t, n.TS)),
		h.Redis.Get(t.Context(), "user_notes:ann@example.com").Val())
	h.release <- struct{}{}
	h.stream.Until("run_finished")

	h.URL = h.StartReplica()
	doNote(t, h.World, 201, "POST", "second/notes", `{"text":"Answer in English."}`)
	run := h.say(t, "second", "Who am I?")
	require.Equal(t, []memory.Note{n}, run.UserNotes)
	require.Len(t, run.Notes, 1)
	h.release <- struct{}{}
	h.stream.Until("run_finished")
	go func() { h.release <- struct{}{} }()
	addressed := struct {
		Message      string `json:"message"`
		User         string `json:"user"`
		AgentVersion string `json:"agent_version"`
	}{"Who am I?", h.user, "analytic"}
	require.Equal(t, 200, h.Do("POST", "/v1/chats/third/messages", addressed).Status)
	require.NoError(t, json.Unmarshal(<-h.asked, &run))
	require.Len(t, run.UserNotes, 1)

	for _, user := range []string{"", "bob", "ANN@example.com", "no id", strings.Repeat("a", 129)} {
		h.user = user
		require.Empty(t, h.say(t, "second", "And I?").UserNotes, user)
		_, err := h.remember(t, memory.RememberRequest{Quote: "And I?", OfUser: true})
		if user != "bob" && user != "ANN@example.com" {
			require.ErrorContains(t, err, "a run that has a user", user)
		} else {
			require.NoError(t, err)
		}
		h.release <- struct{}{}
		h.stream.Until("run_finished")
	}
	close(h.release)
	acme := h.Do("POST", "/v1/chats/first/messages", webapi.MessageRequest{Message: "Who am I?", User: "ann@example.com"},
		"Test-Tenant", "acme")
	require.Equal(t, 200, acme.Status)
	run = api.RunRequest{}
	require.NoError(t, json.Unmarshal(<-h.asked, &run))
	require.Empty(t, run.UserNotes)
	for _, r := range []struct {
		status       int
		method, path string
	}{
		{404, "PATCH", "ann@example.com/notes/" + n.ID}, {404, "DELETE", "ann@example.com/notes/" + n.ID},
		{200, "DELETE", "ann@example.com?chats=true"},
	} {
		got := h.Do(r.method, "/v1/users/"+r.path, `{"state":"active"}`, "Test-Tenant", "acme")
		require.Equal(t, r.status, got.Status, "%s %s: %s", r.method, r.path, got.Body)
		require.NotContains(t, string(got.Body), "second")
	}
	require.Equal(t, 201, h.Do("POST", "/v1/users/ann@example.com/notes", `{"text":"acme's"}`, "Test-Tenant", "acme").Status)
	require.Equal(t, int64(1), h.Redis.Exists(t.Context(), "user_notes:acme/ann@example.com").Val())
	require.Equal(t, []memory.Note{n}, listUserNotes(t, h.World, "ann@example.com"))
}

// jsonNumber is a number as JSON has it.
func jsonNumber(t *testing.T, n float64) string {
	t.Helper()
	raw, err := json.Marshal(n)
	require.NoError(t, err)
	return string(raw)
}

// A person adds notes to a user, corrects and removes them, in every process at once; what is no note, or no user, is
// refused.
func TestNotesOfAUser(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	asked := w.RecordRuns()
	second := w.StartReplica()
	n := doUserNote(t, w, 201, "POST", "ann/notes", `{"text":" Answer in\nEnglish. "}`)
	require.Equal(t, memory.ByOperator, n.Author)
	w.URL = second
	next := doUserNote(t, w, 201, "POST", "ann/notes", fmt.Sprintf(`{"text":"Answer in Russian.","replaces":%q}`, n.ID))
	require.Equal(t, []string{"superseded: Answer in English.", "active: Answer in Russian."},
		states(listUserNotes(t, w, "ann")))
	next = doUserNote(t, w, 200, "PATCH", "ann/notes/"+next.ID, `{"text":"Отвечай по-русски."}`)
	require.Empty(t, listUserNotes(t, w, "bob"))
	for _, r := range []struct {
		status             int
		method, path, body string
	}{
		{400, "POST", "ann/notes", `{}`}, {400, "POST", "no%20user/notes", `{"text":"a"}`},
		{400, "POST", strings.Repeat("a", 129) + "/notes", `{"text":"a"}`}, {400, "GET", "a%2Fb/notes", ``},
		{400, "DELETE", "acme%2Fann", ``}, {400, "DELETE", "ann?chats=perhaps", ``}, {405, "POST", "ann", ``},
		{404, "PATCH", "bob/notes/" + n.ID, `{"state":"active"}`}, {404, "DELETE", "ann/notes/nosuch", ``},
	} {
		status, body := w.Do(r.method, "/v1/users/"+r.path, r.body).Text()
		require.Equal(t, r.status, status, "%s %s: %s", r.method, r.path, body)
	}
	doUserNote(t, w, 204, "DELETE", "ann/notes/"+n.ID, "")
	require.Equal(t, []memory.Note{next}, listUserNotes(t, w, "ann"))

	// What is no list of notes is set aside, the chat goes on, and an erasure takes it along.
	for _, damaged := range []string{"a secret [", "list"} {
		require.NoError(t, w.Redis.Del(t.Context(), "user_notes:ann").Err())
		if damaged == "list" {
			require.NoError(t, w.Redis.RPush(t.Context(), "user_notes:ann", "a secret").Err())
		} else {
			require.NoError(t, w.Redis.Set(t.Context(), "user_notes:ann", damaged, 0).Err())
		}
		require.Equal(t, 200, w.Do("POST", "/v1/chats/c/messages", webapi.MessageRequest{Message: "hi", User: "ann"}).Status)
		var run api.RunRequest
		require.NoError(t, json.Unmarshal(<-asked, &run))
		require.Empty(t, run.UserNotes)
		require.Len(t, w.Keys("{user_notes:ann}:damaged:"), 1)
		status, body := w.Do("DELETE", "/v1/users/ann", nil).Text()
		require.Equal(t, 200, status)
		require.JSONEq(t, `{"notes":0,"left":0}`, body)
		require.Empty(t, w.Keys("{user_notes:ann}:damaged:"))
	}
}

// Two processes that change the notes of one user at once, from chats and by hand, lose none of them.
func TestNotesOfAUserFromTwoChatsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHolding(t)
	h.user = "ann"
	urls := []string{h.URL, h.StartReplica()}
	const said = "A0 B1 C2 D3 E4 F5 G6 H7 I8 J9"
	var adding sync.WaitGroup
	for i, chat := range []string{"a", "b"} {
		h.URL = urls[i]
		held := h.say(t, chat, said+" "+chat).Memory
		for _, word := range strings.Fields(said) {
			quote := word
			if chat == "b" {
				quote = strings.ToLower(word)
			}
			adding.Go(func() {
				_, err := held.Remember(t.Context(), memory.RememberRequest{Quote: quote, OfUser: true})
				if err != nil {
					t.Errorf("%s: %v", quote, err)
				}
			})
		}
	}
	adding.Wait()
	require.Len(t, listUserNotes(t, h.World, "ann"), 20)
	close(h.release)
}

// A note of a user goes with the message that it came from, in whichever chat, and so does the chat's own: when that is
// redacted, taken back or erased; also once more when Redis comes back with it.
func TestANoteOfAUserGoesWithItsMessage(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, w *webmemorytest.World, run string){
		"redacted": func(t *testing.T, w *webmemorytest.World, run string) {
			t.Helper()
			redactMessage(w, "/v1/chats/c/messages/"+run+".1")
		},
		"rewound": func(t *testing.T, w *webmemorytest.World, _ string) {
			t.Helper()
			status, body := w.Do("POST", "/v1/chats/c/rewind", `{"to":null}`).Text()
			require.Equal(t, 200, status, body)
		},
		"its history erased": func(t *testing.T, w *webmemorytest.World, _ string) {
			t.Helper()
			require.Equal(t, 200, w.Do("DELETE", "/v1/chats/c/history", nil).Status)
		},
		"its chat erased": func(t *testing.T, w *webmemorytest.World, _ string) {
			t.Helper()
			require.Equal(t, 200, w.Do("DELETE", "/v1/chats/c", nil).Status)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolding(t)
			h.user = "ann"
			asked := doUserNote(t, h.World, 201, "POST", "ann/notes", `{"text":"Answer in English."}`)
			for _, chat := range []string{"other", "c"} {
				quote := "My pin is 4711 in " + chat
				h.say(t, chat, quote)
				n, err := h.remember(t, memory.RememberRequest{Quote: quote, OfUser: true})
				require.NoError(t, err)
				_, err = h.remember(t, memory.RememberRequest{Quote: "The user's pin: 4711 " + chat, OfUser: true})
				require.NoError(t, err)
				require.Equal(t, chat, n.Chat)
				_, err = h.remember(t, memory.RememberRequest{Quote: quote})
				require.NoError(t, err)
				h.release <- struct{}{}
				h.stream.Until("run_finished")
			}
			require.Len(t, listUserNotes(t, h.World, "ann"), 5)
			run := h.run.RunID
			before := h.Redis.Get(t.Context(), "user_notes:ann").Val()
			own := h.Redis.Get(t.Context(), "{chat_history:c}:notes").Val()
			require.Contains(t, own, "4711")
			meta := h.Redis.HGetAll(t.Context(), "{chat_history:c}:meta").Val()
			take(t, h.World, run)
			left := []string{"active: Answer in English.", "active: My pin is 4711 in other",
				"proposed: The user's pin: 4711 other"}
			require.Equal(t, left, states(listUserNotes(t, h.World, "ann")))
			require.Equal(t, asked, listUserNotes(t, h.World, "ann")[0])
			require.Empty(t, h.Redis.Exists(t.Context(), "{chat_history:c}:notes").Val())

			require.NoError(t, h.Redis.Set(t.Context(), "user_notes:ann", before, 0).Err())
			require.NoError(t, h.Redis.Set(t.Context(), "{chat_history:c}:notes", own, 0).Err())
			require.NoError(t, h.Redis.HSet(t.Context(), "{chat_history:c}:meta", "u:ann", meta["u:ann"]).Err())
			require.NoError(t, h.Redis.Del(t.Context(), "mneme:erasures", "mneme:epoch").Err())
			require.Eventually(t, func() bool { return len(listUserNotes(t, h.World, "ann")) == 3 }, time.Minute,
				20*time.Millisecond)
			require.Equal(t, left, states(listUserNotes(t, h.World, "ann")))
			webmemorytest.Eventually(t, "the chat's own note is away", func() bool {
				return h.Redis.Exists(t.Context(), "{chat_history:c}:notes").Val() == 0
			})
		})
	}
}

// A run that another one has taken the chat from makes no note of its user, and leaves none.
func TestANoteOfAUserUnderALostLease(t *testing.T) {
	t.Parallel()
	h := newHolding(t)
	h.user = "ann"
	h.say(t, "c", "My name is Aliya")
	require.NoError(t,
		h.Redis.HSet(t.Context(), "{chat_history:c}:meta", "turn", time.Now().Add(time.Minute).UnixMilli()).Err())
	_, err := h.remember(t, memory.RememberRequest{Quote: "My name is Aliya", OfUser: true})
	require.ErrorIs(t, err, &api.Problem{Code: "run_not_held"})
	require.Empty(t, h.Keys("user_notes:"))
	close(h.release)
}

// Erasing a user takes the notes and the chats that were posted under that user alone, forks among them; those in
// which another user posted, or a post named no user, stay. It is done in bounded steps, and twice does no harm.
func TestErasingAUser(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	say := func(chat, user string) {
		t.Helper()
		require.Equal(t, 200, w.Do("POST", "/v1/chats/"+chat+"/messages",
			webapi.MessageRequest{Message: "hi", User: user}).Status)
	}
	for _, of := range [][2]string{
		{"own", "ann"}, {"own", "ann"}, {"with.bob", "ann"}, {"with.bob", "bob"}, {"bobs", "bob"}, {"bobs", "ann"},
		{"with.nobody", "ann"}, {"with.nobody", ""}, {"with.any", "ann"}, {"with.any", "any body"},
		{"gone", "ann"}, {"anothers.now", "ann"},
	} {
		say(of[0], of[1])
	}
	status, body := w.Do("POST", "/v1/chats/imported/import", `{"message":{"role":"user","content":"whose?"}}`).Text()
	require.Equal(t, 201, status, body)
	say("imported", "ann")
	status, body = w.Do("POST", "/v1/chats/own/fork", `{"as":"forked"}`).Text()
	require.Equal(t, 201, status, body)
	for _, chat := range []string{"gone", "anothers.now"} {
		require.Equal(t, 200, w.Do("DELETE", "/v1/chats/"+chat, nil).Status)
	}
	say("anothers.now", "bob")
	doUserNote(t, w, 201, "POST", "ann/notes", `{"text":"one"}`)
	doUserNote(t, w, 201, "POST", "bob/notes", `{"text":"two"}`)

	status, body = w.Do("DELETE", "/v1/users/ann", nil).Text()
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"notes":1,"left":0}`, body)
	require.NotEmpty(t, w.History("chat_history:own"))
	many := 120
	var posting sync.WaitGroup
	for i := range 4 {
		posting.Go(func() {
			for j := range many / 4 {
				_ = w.Send(w.NewRequest("POST", fmt.Sprintf("/v1/chats/many.%d.%d/messages", i, j),
					webapi.MessageRequest{Message: "hi", User: "ann"}))
			}
		})
	}
	posting.Wait()
	var out webapi.ErasedUser
	status, body = w.Do("DELETE", "/v1/users/ann?chats=true", nil).Text()
	require.Equal(t, 200, status)
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	require.Positive(t, out.Remaining, "one request does not do it all")
	// Two at once, of which one goes on in another process.
	var racing sync.WaitGroup
	for _, url := range []string{w.URL, w.StartReplica()} {
		w.URL = url
		request := w.NewRequest("DELETE", "/v1/users/ann?chats=true", nil)
		racing.Go(func() { _ = w.Send(request) })
	}
	racing.Wait()
	eraseUser(t, w, "ann")

	var left []string
	for _, key := range w.Keys("chat_history:") {
		left = append(left, strings.TrimPrefix(key, "chat_history:"))
	}
	require.Equal(t, []string{"anothers.now", "bobs", "imported", "with.any", "with.bob", "with.nobody"}, left)
	require.Equal(t, []string{"active: two"}, states(listUserNotes(t, w, "bob")))
	require.Empty(t, w.Keys("user_notes:ann", "mneme:user-chats:ann"))
	require.Equal(t, webapi.ErasedUser{}, eraseUser(t, w, "ann"), "there is nothing any more")
	require.ElementsMatch(t, []memory.Chat{memory.MustChat("anothers.now")}, eraseUser(t, w, "bob").Chats)
}

// Notes that were erased with their user stay erased when Redis comes back from before, also for a process that begins
// then; what was noted since stays.
func TestAnErasedUserStaysErased(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	disk := func(c *webmemory.Config) { c.EndStoreDir = dir + "/ends" }
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), disk)
	doUserNote(t, w, 201, "POST", "ann/notes", `{"text":"My pin is 4711."}`)
	before := w.Redis.Get(t.Context(), "user_notes:ann").Val()
	require.Zero(t, len(eraseUser(t, w, "ann").Chats))
	require.NoError(t, w.Redis.Set(t.Context(), "user_notes:ann", before, 0).Err())
	// A run makes the process read the epoch.
	require.Equal(t, 200, w.Post("1", "hi").Status)
	require.NoError(t, w.Redis.Del(t.Context(), "mneme:erasures", "mneme:epoch").Err())
	doUserNote(t, w, 201, "POST", "ann/notes", `{"text":"Since then."}`)
	require.Eventually(t, func() bool { return len(listUserNotes(t, w, "ann")) == 1 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{"active: Since then."}, states(listUserNotes(t, w, "ann")))
	webmemorytest.Eventually(t, "it is told to the others, which comes after the notes are gone", func() bool {
		return w.Redis.ZCard(t.Context(), "mneme:erasures").Val() == 1
	})
}

// A process that is killed while it erases a user's chats leaves the rest to the process that is asked next.
func TestAKillWhileAUserIsErased(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	url, process := w.StartChild(w.ChildConfig())
	const chats = 40
	for i := range chats {
		require.Equal(t, 200, w.Do("POST", fmt.Sprintf("/v1/chats/c%d/messages", i),
			webapi.MessageRequest{Message: "hi", User: "ann"}).Status)
	}
	doUserNote(t, w, 201, "POST", "ann/notes", `{"text":"My pin is 4711."}`)
	request, err := http.NewRequestWithContext(t.Context(), "DELETE", url+"/v1/users/ann?chats=true", nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = resp.Body.Close()
		}
		ended <- err
	}()
	webmemorytest.Eventually(t, "some chats are gone", func() bool { return len(w.Keys("chat_history:")) < chats })
	process.Kill()
	require.Error(t, <-ended)
	left := len(w.Keys("chat_history:"))
	require.Positive(t, left)
	out := eraseUser(t, w, "ann")
	require.GreaterOrEqual(t, len(out.Chats), left)
	require.Empty(t, out.Retained)
	require.Empty(t, w.Keys("chat_history:", "subagent:", "user_notes:", "mneme:user-chats:"))
}
