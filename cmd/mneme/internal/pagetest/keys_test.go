package pagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
)

// keyed is a service that asks for keys, behind a front that notes what browsers send and can cut streams off.
type keyed struct {
	t     *testing.T
	model *model
	url   string // of the front

	secret string
	mu     sync.Mutex
	log    bytes.Buffer             // guarded by mu; of the service and the front: request lines without bodies
	posts  []string                 // guarded by mu; "PATH IDEMPOTENCY-KEY STATUS" of each message that was posted
	asked  map[string]int           // guarded by mu; requests by their status and path
	cuts   map[*http.Request]func() // guarded by mu; they end the streams that are open
	away   string                   // guarded by mu; where the front sends all requests of the API, "" for nowhere
}

func (k *keyed) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(line)
}

// noted is a response that knows its status.
type noted struct {
	http.ResponseWriter
	status int
}

func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// visitKeyed starts all services with keys, and gives a tab for their page.
func visitKeyed(t *testing.T) (*keyed, *tab) {
	t.Helper()
	t.Parallel()
	browser(t) // which may skip the test
	k := &keyed{t: t, model: &model{}, secret: strings.Repeat("secret-", 8), asked: map[string]int{},
		cuts: map[*http.Request]func(){}}
	environ := append(k.model.environ(t), "MNEME_AUTH_MODE=keys", "MNEME_INTERNAL_SECRET="+k.secret)
	at, err := url.Parse("http://" +
		runLogged(t, zerolog.New(k).Level(zerolog.DebugLevel), "up", configuration(t), environ...).Webmemory)
	require.NoError(t, err)
	pass := httputil.NewSingleHostReverseProxy(at)
	pass.FlushInterval = -1
	pass.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		away := k.away
		k.mu.Unlock()
		if away != "" && strings.HasPrefix(r.URL.Path, "/v1/") {
			http.Redirect(w, r, away+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		ctx, cut := context.WithCancel(r.Context())
		r = r.WithContext(ctx)
		k.mu.Lock()
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			k.cuts[r] = cut
		}
		fmt.Fprintln(&k.log, r.Method, r.URL, r.Referer(), r.Cookies())
		k.mu.Unlock()
		n := &noted{w, http.StatusOK}
		defer func() {
			cut()
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.cuts, r)
			k.asked[fmt.Sprint(n.status, " ", r.URL.Path)]++
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
				k.posts = append(k.posts, fmt.Sprint(r.URL.Path, " ", r.Header.Get("Idempotency-Key"), " ", n.status))
			}
		}()
		pass.ServeHTTP(n, r)
	}))
	t.Cleanup(front.Close)
	k.url = front.URL
	p := newTab(t, k.url)
	p.excuse("status of 401", "status of 403", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED")
	return k, p
}

// cut ends the streams that are open.
func (k *keyed) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, end := range k.cuts {
		end()
	}
}

// count is how many requests to a path were answered with a status.
func (k *keyed) count(status int, path string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked[fmt.Sprint(status, " ", path)]
}

// admin asks the service as its operator does on its own machine.
func (k *keyed) admin(method, path string, body, into any) {
	k.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(k.t, err)
	req, err := http.NewRequest(method, k.url+path, bytes.NewReader(raw))
	require.NoError(k.t, err)
	req.Header.Set("Content-Type", "application/json")
	carry := http.Client{Transport: access.Carrier{Base: http.DefaultTransport, Secret: k.secret}}
	resp, err := carry.Do(req)
	require.NoError(k.t, err)
	defer resp.Body.Close()
	require.Less(k.t, resp.StatusCode, 300, path)
	require.NoError(k.t, json.NewDecoder(resp.Body).Decode(into))
}

// key is one that was made.
type key struct{ ID, Key string }

// everything is what a person's key may do.
var everything = []string{"chat", "memory:read", "memory:write", "documents", "approve"}

func (k *keyed) key(tenant string, scopes ...string) (made key) {
	k.t.Helper()
	k.admin("POST", "/v1/keys", map[string]any{"name": "person", "tenant": tenant, "scopes": scopes}, &made)
	return made
}

func (k *keyed) revoke(of key) {
	k.t.Helper()
	k.admin("DELETE", "/v1/keys/"+of.ID, nil, &struct{}{})
}

const (
	keyField = "Key"
	useKey   = "Use this key"
	asksKey  = "This service asks for a key"
	keyEnded = "The key has ended"
)

// give writes a key into the form.
func (p *tab) give(text string) {
	p.t.Helper()
	p.write(keyField, text)
	p.press("\r")
}

// forms is how many dialogs are open.
func (p *tab) forms() int {
	return evaluate[int](p, `document.querySelectorAll("dialog[open]").length`)
}

// leaks are the places of the page, other than its session storage, that have a text.
func (p *tab) leaks(text string) []string {
	p.t.Helper()
	return evaluate[[]string](p, `(() => {
		const key = `+quoted(text)+`;
		const places = { address: location.href, cookie: document.cookie, title: document.title, name: window.name,
			markup: document.documentElement.outerHTML, text: document.body.innerText,
			state: JSON.stringify(history.state), local: JSON.stringify(localStorage) };
		return Object.keys(places).filter((place) => places[place]?.includes(key));
	})()`)
}

// A user comes for the first time: one form asks, says what is wrong with a key, takes the right one, and can be
// left. The key stays with the tab, is nowhere else, and goes when it is told to.
func TestTheFormOfTheKey(t *testing.T) {
	k, p := visitKeyed(t)
	mine := k.key("acme", everything...)
	wrong := mine.Key[:len(mine.Key)-4] + "xxxx"
	p.open("")
	p.has("dialog", asksKey)
	p.until("the field has the focus", func() bool { return p.focused() == keyField })
	require.Equal(t, 1, p.forms())
	require.Empty(t, p.barriers())
	require.Equal(t, "password", evaluate[string](p, `document.querySelector("dialog input").type`))
	for range 12 {
		p.press("\t")
		require.True(t, evaluate[bool](p, `document.activeElement === document.body ||
			document.activeElement.closest("dialog") !== null`), "the focus is kept inside")
	}

	p.give("sk-something")
	p.seesIn("dialog", "A key begins with mn_")
	p.give(wrong)
	p.seesIn("dialog", "The service does not take this key")
	require.Empty(t, p.barriers())
	require.Equal(t, keyField, p.focused())
	require.Equal(t, 1, k.count(401, "/v1/keys/self"), "what is no key is not sent")
	p.press("\x1b")
	p.seesNo(asksKey)
	p.sees("No key was given")
	before := k.count(401, "/v1/chats")
	for range 2 { // the second Esc without anything in between is one that a page cannot prevent
		p.clickFirst("button", "Enter a key")
		p.has("dialog", asksKey)
		p.press("\x1b")
		p.seesNo(asksKey)
		p.until("the focus is back", func() bool { return p.focused() == "Enter a key" })
	}
	p.press("\r")
	p.give("Bearer " + mine.Key + " ")
	p.seesNo(asksKey)
	p.sees("No chat yet.")
	p.hasNo("button", "Enter a key")
	require.Equal(t, before, k.count(401, "/v1/chats"), "what was refused is not asked for on and on")

	p.send("Say it with a key")
	p.sees("You said: Say it with a key")
	p.idle()
	p.has("link", aTitle+"*") // which the page has made: one that is left before makes none
	p.reload()
	p.sees("You said: Say it with a key", "Forget the key")
	require.Zero(t, p.forms())
	p.has("link", aTitle+"*")

	second := p.beside()
	second.excuse("status of 401")
	second.open("")
	second.has("dialog", asksKey)
	second.seesNo("You said: Say it")

	p.open("#/documents")
	p.has("heading", "Collections")
	p.open("#/memory/" + "none")
	p.sees("Nothing is remembered of this chat.")
	require.Empty(t, p.leaks(mine.Key))
	require.Empty(t, p.leaks(wrong))
	p.click("button", "Forget the key")
	p.has("dialog", asksKey)
	require.NotContains(t, p.text(), aTitle)
	require.Equal(t, p.origin+"/", evaluate[string](p, "location.href"))
	require.Equal(t, "[]", evaluate[string](p, `JSON.stringify(Object.keys(sessionStorage))`))
	p.hasNo("button", "Forget the key")

	k.mu.Lock()
	defer k.mu.Unlock()
	require.Contains(t, k.log.String(), "/v1/keys/self")
	for _, text := range []string{mine.Key, wrong} {
		require.NotContains(t, k.log.String(), text[len("mn_"+mine.ID+"_"):])
	}
}

// A key ends while a user works: what was typed, edited, posted and sent stays, and goes on with another key.
func TestAKeyEndsAmidWork(t *testing.T) {
	k, p := visitKeyed(t)
	mine := k.key("acme", everything...)
	p.open("#/chats/work")
	p.give(mine.Key)
	p.send("The first message")
	p.sees("You said: The first message")
	p.idle()

	// A draft and an edit are open.
	p.write(field, "half of a thought")
	p.click("button", edit)
	p.write(edit, "The first message, corrected")
	k.revoke(mine)
	p.has("dialog", keyEnded)
	require.Equal(t, 1, p.forms())
	p.give(mine.Key)
	p.seesIn("dialog", "The service does not take this key")
	mine = k.key("acme", everything...)
	p.give(mine.Key)
	p.seesNo(keyEnded)
	require.Equal(t, "half of a thought|The first message, corrected", evaluate[string](p,
		`[...document.querySelectorAll("textarea")].reverse().map(e => e.value).join("|")`))
	p.click("button", "Send")
	p.sees("You said: The first message, corrected")
	p.idle()

	// A message meets the end of the key, and is posted again as the same one.
	evaluate[bool](p, `Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true }), true`)
	k.revoke(mine)
	k.gone(mine)
	p.send("The second message")
	p.has("dialog", keyEnded)
	mine = k.key("acme", everything...)
	p.give(mine.Key)
	p.sees("You said: The second message")
	p.idle()
	k.mu.Lock()
	posts := k.posts[len(k.posts)-2:]
	k.mu.Unlock()
	require.Equal(t, strings.TrimSuffix(posts[0], "401")+"200", posts[1])

	// An answer is cut off, and goes on where it was.
	k.model.hold()
	p.send("Say it slowly")
	p.sees("up to the")
	k.revoke(mine)
	k.gone(mine)
	k.cut()
	p.has("dialog", keyEnded)
	k.model.release()
	mine = k.key("acme", everything...)
	p.give(mine.Key)
	p.sees(slowly)
	p.idle()
	require.Equal(t, 1, strings.Count(p.textOf(".talk"), slowly))

	// Without a key the stream is not asked for again and again, and the message comes back.
	k.revoke(mine)
	k.gone(mine)
	p.send("The third message")
	p.has("dialog", keyEnded)
	p.press("\x1b")
	p.sees("No key was given")
	p.until("the draft", func() bool {
		return evaluate[string](p, `document.querySelector(".composer textarea").value`) == "The third message"
	})
	p.write(field, "The third message, again")
	p.press("\r") // a user that does something is asked again
	p.has("dialog", asksKey)
	mine = k.key("acme", everything...)
	p.give(mine.Key)
	p.sees("You said: The third message, again")
	p.idle()

	// Files are sent again, the larger of which the service refuses before it has come.
	p.open("#/documents")
	p.click("button", "New collection")
	p.write("New collection", "shop")
	p.press("\r")
	p.sees("No documents in it yet")
	k.revoke(mine)
	k.gone(mine)
	p.choose(map[string]string{"large.txt": "A ferry ticket costs 14 crowns." + strings.Repeat("\n", 10_000_000),
		"small.txt": "The museum opens at ten."})
	p.has("dialog", keyEnded)
	require.Equal(t, 1, p.forms())
	mine = k.key("acme", everything...)
	p.give(mine.Key)
	p.sees("2 of 2 done, 0 refused", "large.txt", "small.txt")
	p.open("#/memory/work")
	p.sees("The second message")
	require.Contains(t, p.download("Export", "work.ndjson"), "The second message")
	require.Empty(t, p.leaks(mine.Key))
}

// The key goes to the page's own origin alone, also where that sends its requests to another one.
func TestTheKeyGoesNowhereElse(t *testing.T) {
	k, p := visitKeyed(t)
	var met atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		met.Add(1)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
		w.Header().Set("Access-Control-Allow-Methods", "*")
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(other.Close)
	p.excuse(other.URL, "Content Security Policy", "ERR_FAILED")
	p.open("#/documents")
	p.give(k.key("acme", everything...).Key)
	p.click("button", "New collection")
	p.write("New collection", "shop")
	p.press("\r")
	p.sees("No documents in it yet")
	k.mu.Lock()
	k.away = other.URL
	k.mu.Unlock()
	p.choose(map[string]string{"a.txt": "A ferry ticket costs 14 crowns."})
	p.sees("The file could not be read or the service not be reached.")
	p.open("#/chats/shop")
	p.sees("The service cannot be reached.")
	require.Zero(t, met.Load())
	require.Zero(t, p.forms())
}

// gone waits until the service refuses a key.
func (k *keyed) gone(of key) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		req, err := http.NewRequest("GET", k.url+"/v1/keys/self", nil)
		require.NoError(k.t, err)
		req.Header.Set("Authorization", "Bearer "+of.Key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(k.t, err)
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	}, patience, 50*time.Millisecond)
}

// A key of another tenant shows nothing of what the one before has left in the tab, and sends nothing of it.
func TestTheNextTenantSeesNothingOfTheOneBefore(t *testing.T) {
	k, p := visitKeyed(t)
	ours, theirs := k.key("acme", everything...), k.key("globex", everything...)
	p.open("#/chats/deal")
	p.give(ours.Key)
	p.send("The offer is secret")
	p.sees("You said: The offer is secret")
	p.idle()
	p.on("combobox", who, false, `function () {
		this.value = "desk"; this.dispatchEvent(new Event("change", { bubbles: true })); return true }`)
	require.Equal(t, "{}", evaluate[string](p, `JSON.stringify(localStorage)`))
	p.write(field, "a draft about the offer")
	k.revoke(ours)
	k.gone(ours)
	p.press("\r")
	p.has("dialog", keyEnded)
	posted := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(k.posts), func(s string) bool { return strings.HasSuffix(s, " 401") }))
	}
	before := posted()
	p.give(theirs.Key)
	p.sees("No chat yet.", "What should be remembered?")
	seen := func() string {
		return p.text() + evaluate[string](p, `JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + location.href +
			[...document.querySelectorAll("textarea, select, input")].map(e => e.value).join("|")`)
	}
	for _, view := range []string{"", "#/chats/deal", "#/memory", "#/documents", "#/runs"} {
		p.open(view)
		p.has("button", "Forget the key")
		for _, word := range []string{"secret", "offer", "acme", aTitle} {
			require.NotContains(t, seen(), word, view)
		}
		require.NotRegexp(t, `\|desk|agent\.deal`, seen(), view)
	}
	require.Equal(t, before, posted(), "a message of one tenant is not posted for another one")
	require.Contains(t, seen(), "globex")
}

// A key that lacks scopes is no reason to ask for another one: each place says what it lacks.
func TestAKeyWithoutScopes(t *testing.T) {
	k, p := visitKeyed(t)
	all, bot := k.key("acme", everything...), k.key("acme", "chat")
	p.open("#/chats/shop")
	p.give(all.Key)
	p.send("refund my ticket")
	p.sees("The run waits for you")
	p.click("button", "Forget the key")
	p.has("dialog", asksKey)
	p.give(bot.Key)
	p.sees("it lacks the scope memory:read")
	for view, scope := range map[string]string{"#/memory": "memory:read", "#/memory/shop": "memory:read",
		"#/documents": "documents", "#/runs/shop": "memory:read"} {
		p.open(view)
		p.sees("it lacks the scope " + scope)
	}
	require.Empty(t, p.barriers())
	p.open("#/chats/other")
	p.send("What is heard is answered")
	p.sees("You said: What is heard is answered")
	p.idle()
	require.Zero(t, p.forms())
	require.Empty(t, p.barriers())
	p.click("button", "Forget the key")
	p.has("dialog", asksKey)

	reader := k.key("acme", "memory:read", "chat")
	p.give(reader.Key)
	p.open("#/chats/shop")
	p.sees("The run waits for you", "it lacks the scope approve")
	require.Equal(t, "Yes, do it,Change the arguments", evaluate[string](p,
		`[...document.querySelectorAll(".waits input:disabled")].map(e => e.parentElement.innerText.trim()).join()`))
	p.open("#/memory/shop/~notes")
	p.write("What must always be known, in a sentence", "a note")
	p.press("\r")
	p.sees("it lacks the scope memory:write")
	require.Zero(t, p.forms())
}
