package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
)

func open(t *testing.T, server *redistest.Server) *Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return NewStore(client)
}

func authenticator(t *testing.T, f *File, s *Store) *Authenticator {
	t.Helper()
	a := NewAuthenticator(f, s, zerolog.Nop())
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

var bot = Key{Name: "bot", Scopes: []Scope{Chat, MemoryRead}, Limits: Limits{
	Rate: Rates{{60, Requests, time.Minute}}, Budget: Budgets{{5_000_000, Tokens, Month}, {20_000_000, USD, Day}}}}

func refused(t *testing.T, err error) *Refusal {
	t.Helper()
	var r *Refusal
	require.ErrorAs(t, err, &r)
	return r
}

func TestAKeyOpensUntilItIsRevokedOrExpires(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	store, other := open(t, server), open(t, server)
	k := bot
	k.Tenant, _ = memory.ParseTenant("acme")
	text, made, err := store.Create(ctx, k)
	require.NoError(t, err)
	require.Regexp(t, `^mn_[a-z2-7]{10}_[A-Za-z0-9_-]{43}$`, text)

	a := authenticator(t, nil, other)
	now := time.Now()
	a.now = func() time.Time { return now }
	p, err := a.Principal(ctx, text)
	require.NoError(t, err)
	require.Equal(t,
		Principal{Key: made.ID, Tenant: k.Tenant, Scopes: bot.Scopes, Limits: bot.Limits, hash: hashOf(text)}, p)

	for _, wrong := range []string{"", "mn_", "mn__", text + "x", text[:len(text)-1], "mn_" + made.ID + "_",
		"mn_zzzzzzzzzz_" + strings.Repeat("A", 43), "mn_../../x_" + strings.Repeat("A", 43), "sk-123",
		"mn_" + strings.Repeat("a", 4000) + "_" + strings.Repeat("A", 43)} {
		_, err := a.Principal(ctx, wrong)
		r := refused(t, err)
		require.Equal(t, http.StatusUnauthorized, r.Status)
		require.NotContains(t, r.Message, made.ID)
	}

	_, err = store.Revoke(ctx, made.ID)
	require.NoError(t, err)
	now = now.Add(Fresh)
	_, err = a.Principal(ctx, text)
	require.Contains(t, refused(t, err).Message, "revoked")
	_, err = store.Revoke(ctx, "nobody")
	require.ErrorIs(t, err, ErrUnknownKey)

	soon := bot
	soon.Expires = time.Now().Add(time.Hour)
	text, _, err = store.Create(ctx, soon)
	require.NoError(t, err)
	_, err = a.Principal(ctx, text)
	require.NoError(t, err)
	now = now.Add(2 * time.Hour)
	_, err = a.Principal(ctx, text)
	require.Contains(t, refused(t, err).Message, "expired")

	keys, err := other.List(ctx)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	dump, err := server.Client().HGetAll(ctx, "mneme:key:"+made.ID).Result()
	require.NoError(t, err)
	for _, value := range dump {
		require.NotContains(t, value, text[len(text)-43:], "the text of a key is nowhere")
	}
}

func TestARotatedKeyIsTakenUntilTheOverlapEnds(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	store := open(t, server)
	old, made, err := store.Create(ctx, bot)
	require.NoError(t, err)
	text, _, err := store.Rotate(ctx, made.ID, time.Hour)
	require.NoError(t, err)
	a := authenticator(t, nil, store)
	now := time.Now()
	a.now = func() time.Time { return now }
	for _, both := range []string{old, text} {
		p, err := a.Principal(ctx, both)
		require.NoError(t, err)
		require.Equal(t, made.ID, p.Key)
	}
	now = now.Add(time.Hour + time.Second)
	_, err = a.Principal(ctx, old)
	require.Error(t, err)
	_, err = a.Principal(ctx, text)
	require.NoError(t, err)

	next, _, err := store.Rotate(ctx, made.ID, 0)
	require.NoError(t, err)
	for _, wrong := range []string{next + "x", next[:len(next)-1]} {
		_, err = a.Principal(ctx, wrong)
		require.Equal(t, http.StatusUnauthorized, refused(t, err).Status)
	}
	_, err = a.Principal(ctx, next)
	require.NoError(t, err, "the new text opens at once, though the key was looked up a moment ago")
	_, err = a.Principal(ctx, text)
	require.Equal(t, http.StatusUnauthorized, refused(t, err).Status)

	var texts [8]string
	var all sync.WaitGroup
	for i := range texts { // of rotations at once those that lose say so
		all.Go(func() { texts[i], _, _ = store.Rotate(ctx, made.ID, 0) })
	}
	all.Wait()
	fresh, good := authenticator(t, nil, store), 0
	for _, text := range texts {
		if _, err := fresh.Principal(ctx, text); err == nil {
			good++
		}
	}
	require.Equal(t, 1, good)
	_, _, err = store.Rotate(ctx, made.ID, MaxOverlap+1)
	require.ErrorIs(t, err, ErrBadKey)
}

func TestWhatIsNoKeyIsNotMade(t *testing.T) {
	store := open(t, redistest.Start(t))
	for _, change := range []func(*Key){
		func(k *Key) { k.Name = "" }, func(k *Key) { k.Name = "a\nb" }, func(k *Key) { k.Scopes = nil },
		func(k *Key) { k.Scopes = []Scope{"root"} }, func(k *Key) { k.Scopes = []Scope{Internal} },
		func(k *Key) { k.Expires = time.Now().Add(-time.Hour) },
	} {
		k := bot
		change(&k)
		_, _, err := store.Create(t.Context(), k)
		require.ErrorIs(t, err, ErrBadKey)
	}
	keys, err := store.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestWhileRedisIsAwayKnownKeysGoOnAndOthersGet503(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	store := open(t, server)
	text, _, err := store.Create(ctx, bot)
	require.NoError(t, err)
	unknown, _, err := store.Create(ctx, bot)
	require.NoError(t, err)
	a := authenticator(t, nil, store)
	now := time.Now()
	a.now = func() time.Time { return now }
	_, err = a.Principal(ctx, text)
	require.NoError(t, err)
	server.Kill()
	now = now.Add(Fresh)
	_, err = a.Principal(ctx, text)
	require.NoError(t, err)
	_, err = a.Principal(ctx, unknown)
	require.Equal(t, http.StatusServiceUnavailable, refused(t, err).Status)
	now = now.Add(Stale)
	_, err = a.Principal(ctx, text)
	require.Equal(t, http.StatusServiceUnavailable, refused(t, err).Status)
}

func TestManyAtOnceAndTheLastUse(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	store := open(t, server)
	text, made, err := store.Create(ctx, bot)
	require.NoError(t, err)
	a := authenticator(t, nil, store)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 50 {
				if _, err := a.Principal(ctx, text); err != nil {
					t.Error(err)
				}
				_, _ = a.Principal(ctx, "mn_"+newID()+"_"+strings.Repeat("A", 43))
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool {
		k, err := store.Get(ctx, made.ID)
		return err == nil && !k.Used.IsZero()
	}, 30*time.Second, 10*time.Millisecond)
}

func TestTheFileOfKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	text := newText("bot")
	write := func(s string, at int64) {
		require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
		require.NoError(t, os.Chtimes(path, time.Unix(at, 0), time.Unix(at, 0)))
	}
	good := "keys:\n- id: bot\n  tenant: acme\n  scopes: [chat]\n  expires: 2999-01-01T00:00:00Z\n  hash: " +
		hashOf(text) + "\n"
	write(good, 1)
	f, err := OpenFile(path, zerolog.Nop())
	require.NoError(t, err)
	a := authenticator(t, f, nil)
	p, err := a.Principal(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, "acme", p.Tenant.String())
	require.Equal(t, "bot", p.Key)

	look := func() { f.mu.Lock(); f.next = time.Time{}; f.mu.Unlock() }
	write("keys:\n- id: bot\n  scopes: [", 2) // wrong: what was there stays
	look()
	_, err = a.Principal(t.Context(), text)
	require.NoError(t, err)
	write("keys: []\n", 3)
	look()
	_, err = a.Principal(t.Context(), text)
	require.Equal(t, http.StatusUnauthorized, refused(t, err).Status)

	for wrong, says := range map[string]string{
		good + good[6:]: ":7: there is a key bot already",
		"keys:\n- id: bot\n  scopes: [chat]\n  hash: " + text + "\n":     ":2: hash is the SHA-256",
		"keys:\n- id: bot\n  skopes: [chat]\n":                           ":3: ",
		"keys:\n- id: BOT\n  scopes: [chat]\n":                           ":2: a key's id",
		"keys:\n- id: a\n  scopes: [root]\n  hash: " + hashOf("") + "\n": `:2: "root" is no scope`,
	} {
		write(wrong, 4)
		_, err := OpenFile(path, zerolog.Nop())
		require.ErrorContains(t, err, path+says)
		require.NotContains(t, err.Error(), text)
	}
}

func TestTheGate(t *testing.T) {
	store := open(t, redistest.Start(t))
	k := bot
	k.Tenant, _ = memory.ParseTenant("acme")
	text, made, err := store.Create(t.Context(), k)
	require.NoError(t, err)
	secret := strings.Repeat("s", 40)
	g := &Gate{Keys: authenticator(t, nil, store), Secret: secret}
	rights := Rights{"GET /open": Open, "POST /chat": Chat, "GET /admin": Admin, "GET /in": Internal,
		"ANY /docs": Documents,
		"GET /any":  AnyKey}
	admit := func(method, path string, h http.Header) (*http.Request, error) {
		r := httptest.NewRequest(method, "http://localhost/", nil)
		r.Header = h
		return g.Admit(r, rights, path)
	}
	bearer := func(s string) http.Header {
		return http.Header{"Authorization": {"Bearer " + s}, "Mneme-Tenant": {"other"}}
	}
	for _, c := range []struct {
		method, path string
		header       http.Header
		status       int
	}{
		{"GET", "/open", http.Header{}, 0}, {"POST", "/chat", http.Header{}, 401}, {"POST", "/chat", bearer(text), 0},
		{"POST", "/chat", http.Header{"X-Api-Key": {text}, "Authorization": {"Bearer sk-vendor"}}, 0},
		{"POST", "/chat", http.Header{"X-Api-Key": {text}, "Api-Key": {text}, "X-Custom": {"a", "key=" + text + ";"}}, 0},
		{"POST", "/chat", bearer("sk-vendor"), 401}, {"GET", "/admin", bearer(text), 403}, {"GET", "/in", bearer(text), 403},
		{"DELETE", "/docs", bearer(text), 403}, {"GET", "/any", bearer(text), 0}, {"GET", "/forgotten", bearer(text), 403},
		{"GET", "/forgotten", http.Header{}, 401}, {"GET", "", bearer(text), 0}, {"GET", "", http.Header{}, 401},
		{"GET", "/in", http.Header{"Mneme-Internal-Secret": {secret}}, 0},
		{"GET", "/in", http.Header{"Mneme-Internal-Secret": {secret + "x"}}, 401},
		{"GET", "/in", http.Header{"Mneme-Internal-Secret": {secret}, "Mneme-Tenant": {"A B"}}, 401},
		{"GET", "/in", http.Header{"Mneme-Internal-Secret": {secret}, "Mneme-Scopes": {"admin"}}, 403},
	} {
		r, err := admit(c.method, c.path, c.header)
		if c.status != 0 {
			require.Equal(t, c.status, refused(t, err).Status, c)
			require.NotContains(t, err.Error(), text)
			continue
		}
		require.NoError(t, err, c)
		for name, values := range r.Header {
			require.NotContains(t, strings.Join(values, " "), text, "the key goes on in "+name)
			require.False(t, strings.HasPrefix(name, "Mneme-"), name)
		}
	}
	r, err := admit("POST", "/chat", bearer(text))
	require.NoError(t, err)
	require.Equal(t, Principal{Key: made.ID, Tenant: k.Tenant, Scopes: k.Scopes, Limits: bot.Limits, hash: hashOf(text)},
		FromContext(r.Context()))
	r, err = admit("POST", "/chat", http.Header{"X-Api-Key": {text}, "Authorization": {"Bearer sk-vendor"}})
	require.NoError(t, err)
	require.Equal(t, http.Header{"Authorization": {"Bearer sk-vendor"}}, r.Header)
	r = httptest.NewRequest("POST", "http://localhost/?key="+text+"&beta=column_name_of_mn_something", nil)
	r.Header = bearer(text)
	r, err = g.Admit(r, rights, "/chat")
	require.NoError(t, err)
	require.Equal(t, "key=&beta=column_name_of_mn_something", r.URL.RawQuery)

	var seen *http.Request
	next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen, _ = g.Admit(r, rights, "/any")
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
	}))
	defer next.Close()
	for _, asCaller := range []bool{false, true} {
		client := &http.Client{Transport: Carrier{Base: http.DefaultTransport, Secret: secret, AsCaller: asCaller}}
		ctx := With(context.Background(), Principal{Key: "k", Tenant: k.Tenant, User: "Zoë & co", Limits: bot.Limits})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, next.URL, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		p := FromContext(seen.Context())
		require.Equal(t, "k", p.Key)
		require.Equal(t, k.Tenant, p.Tenant)
		require.Equal(t, "Zoë & co", p.User)
		require.Equal(t, bot.Limits, p.Limits)
		require.Equal(t, !asCaller, p.HasScope(Chat))
		require.Equal(t, !asCaller, p.HasScope(Internal))
		resp, err = client.Get(next.URL + "/moved")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Nil(t, seen, "a redirection is not told the secret")
	}
}

// A request that was let in is ended when the key ends, however it does, and else stays.
func TestNobodyStaysBehindAKey(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	store := open(t, redistest.Start(t))
	g := &Gate{Keys: authenticator(t, nil, store)}
	ends := map[string]func(id string) error{
		"revoked": func(id string) error { _, err := store.Revoke(t.Context(), id); return err },
		"rotated": func(id string) error { _, _, err := store.Rotate(t.Context(), id, 0); return err },
	}
	stays := map[string]context.Context{}
	for _, name := range []string{"revoked", "rotated", "expired", "good"} {
		k := bot
		if name == "expired" {
			k.Expires = time.Now().Add(5 * time.Second)
		}
		text, made, err := store.Create(t.Context(), k)
		require.NoError(t, err)
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Header.Set("X-Api-Key", text)
		r, err = g.Admit(r, Rights{"GET /": AnyKey}, "/")
		require.NoError(t, err)
		r, over := g.Stay(r)
		t.Cleanup(over)
		stays[name] = r.Context()
		if end := ends[name]; end != nil {
			require.NoError(t, end(made.ID))
		}
	}
	for _, name := range []string{"revoked", "rotated", "expired"} {
		<-stays[name].Done()
		require.Equal(t, http.StatusUnauthorized, refused(t, context.Cause(stays[name])).Status, name)
	}
	require.NoError(t, stays["good"].Err())
}

func TestTheInternalSecretIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "secret")
	var secrets [16]string
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() { secrets[i], _ = OpenSecret(path) })
	}
	all.Wait()
	for _, s := range secrets {
		require.Len(t, s, 43)
		require.Equal(t, secrets[0], s)
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.WriteFile(path, []byte("short\n"), 0o600))
	_, err = OpenSecret(path)
	require.ErrorContains(t, err, "shorter than 32")
	require.NotContains(t, err.Error(), "short\n")
}

// A key that was good here and is gone from the store is told of until it is there again or no request has come with
// it for a while; one that was revoked or went with its tenant is not.
func TestKeysThatTheStoreLost(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	store, client := open(t, server), server.Client()
	acme, _ := memory.ParseTenant("acme")
	key := func(of memory.Tenant) (string, Key) {
		k := bot
		k.Tenant = of
		text, made, err := store.Create(ctx, k)
		require.NoError(t, err)
		return text, made
	}
	revoked, r := key(acme)
	gone, _ := key(acme)
	lost, l := key(acme)
	other, _ := key(memory.Tenant{})
	g := &Gate{Keys: authenticator(t, nil, store)}
	now := time.Now()
	g.Keys.now = func() time.Time { return now }
	opens := func(text string) bool {
		now = now.Add(Fresh)
		_, err := g.Keys.Principal(ctx, text)
		if err != nil {
			require.Equal(t, http.StatusUnauthorized, refused(t, err).Status)
		}
		return err == nil
	}
	for _, text := range []string{revoked, gone, lost, other} {
		require.True(t, opens(text))
	}
	require.Empty(t, g.LossMessage())
	require.Empty(t, (*Gate)(nil).LossMessage())

	_, err := store.Revoke(ctx, r.ID)
	require.NoError(t, err)
	require.False(t, opens(revoked))
	require.Empty(t, g.LossMessage())
	did := func(action string, of string) {
		require.NoError(t, client.XAdd(ctx, &redis.XAddArgs{Stream: "mneme:audit",
			Values: []any{"key", "", "action", action, "target", "tenants/" + of}}).Err())
	}
	kept, err := client.Dump(ctx, recordName(l.ID)).Result()
	require.NoError(t, err)
	require.NoError(t, client.FlushDB(ctx).Err())
	did("tenant.export", "acme")
	did("tenant.erase", "other")
	for _, text := range []string{revoked, "mn_" + l.ID + "_" + strings.Repeat("A", 43), lost, lost, other} {
		require.False(t, opens(text))
	}
	require.Equal(t, "Redis has lost API keys that were in use (2): create them anew with mneme keys create, or restore "+
		"Redis from a backup.", g.LossMessage())
	require.Equal(t, int64(2), g.Keys.Losses.Load())

	did("tenant.erase.begin", "acme")
	require.False(t, opens(gone), "it went with its tenant")
	require.Contains(t, g.LossMessage(), "(2)")
	require.NoError(t, client.Restore(ctx, recordName(l.ID), 0, kept).Err())
	require.True(t, opens(lost))
	require.Contains(t, g.LossMessage(), "(1)")
	now = now.Add(lostFor - 2*Fresh)
	require.False(t, opens(other), "somebody still comes with it")
	now = now.Add(lostFor - Fresh)
	require.Contains(t, g.LossMessage(), "(1)")
	now = now.Add(Fresh)
	require.Empty(t, g.LossMessage())
}

// A Redis that refuses the keys stays unavailable until an operator permits them.
func TestARedisThatRefusesKeysIsNotToBeRetried(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t, "--save", "")
	store := open(t, server)
	text, _, err := store.Create(ctx, bot)
	require.NoError(t, err)
	require.NoError(t, server.Client().Do(ctx, "ACL", "SETUSER", "default", "-hgetall").Err())
	_, err = authenticator(t, nil, store).Principal(ctx, text)
	r := refused(t, err)
	require.Equal(t, 503, r.Status)
	require.Equal(t, "keys_unavailable", r.Code)
	require.Zero(t, r.RetryAfter)
	require.Contains(t, r.Message, "Redis refuses the command hgetall")
}
