package app_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
)

// Keys are made, used, mistyped, rotated and revoked, at all that answers, while everything is logged: afterwards no
// text of a key stands in any file, log, metric, answer or value of Redis, nor does the internal secret, but for the
// file that it is read from and the answers that show a key when it is made.
func TestNoSecretIsWrittenAnywhere(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	folder := t.TempDir()
	cfg, err := config.Load("", []string{"MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL=" + server.URL(),
		"MNEME_DATA_DIR=" + folder, "MNEME_SESSION_LOGS=true", "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0",
		"MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0"})
	require.NoError(t, err)
	sharePDF(t, cfg.DataDir)
	u := &up{t: t}
	u.addrs, u.stop = running(t, app.Up, cfg, app.Options{Out: &u.out, Log: zerolog.New(&u.log).Level(zerolog.TraceLevel)})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	admin, _, err := access.NewStore(client).Create(t.Context(),
		access.Key{Name: "admin", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	internal, err := access.ReadSecret(filepath.Join(folder, "internal_secret"))
	require.NoError(t, err)
	secrets, written := []string{admin, internal}, map[string]string{} // by where
	do := func(key, method, url, body string, header ...string) answered {
		got := keyed{method, url, key, body, header}.do(t)
		if !strings.Contains(url, "/v1/keys") || method != http.MethodPost {
			raw, err := json.Marshal(got.header)
			require.NoError(t, err)
			written[method+" "+url+" "+key[:min(6, len(key))]] += got.body + string(raw)
		}
		return got
	}
	made := func(a answered) string {
		text := gjson.Get(a.body, "key").Str
		require.NotEmpty(t, text, a.body)
		secrets = append(secrets, text)
		return text
	}
	bot := do(admin, "POST", u.url("/v1/keys"), `{"name":"bot","tenant":"acme","scopes":["chat","memory:read","models"]}`)
	id, key := gjson.Get(bot.body, "id").Str, made(bot)
	next := made(do(admin, "POST", u.url("/v1/keys/"+id+"/rotate"), `{"overlap":60}`))
	wrong := key[:len(key)-3] + "zzz"
	secrets = append(secrets, wrong)
	use := func(key string) {
		for _, url := range []string{u.url("/v1/chats"), u.url("/v1/chats/1/history"), u.url("/v1/keys"), u.url("/nothing"),
			u.url("/v1/models"), "http://" + u.addrs.Proxy + "/v1/models", "http://" + u.addrs.Proxy + "/admin/backend",
			"http://" + u.addrs.Apiserver + "/v1/subagents", u.url("/v1/collections")} {
			do(key, "GET", url, "")
		}
		do(key, "POST", u.url("/v1/chats/1/messages"), `{"message":"What is 17 * 3?"}`)
		do(key, "POST", u.url("/v1/chats/1/messages"), `{"message":"Hello","stream":true}`,
			"Mneme-Internal-Secret", "guessed")
		do(key, "POST", u.url("/v1/chats/1/messages"), `{"message":`)
		do(key, "POST", "http://"+u.addrs.Proxy+"/v1/messages",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`)
		do(key, "POST", "http://"+u.addrs.Proxy+"/v1/responses", `{"model":"m","input":"hi"}`, "X-Api-Key", key)
		do(key, "POST", u.url("/v1/chat/completions"), `{"model":"mneme","messages":[{"role":"user","content":"hi"}]}`,
			"Mneme-Chat-Id", "2")
	}
	for _, key := range []string{admin, key, next, wrong} {
		use(key)
	}
	require.Equal(t, http.StatusOK, do(admin, "DELETE", u.url("/v1/keys/"+id), "").status)
	use(next)
	for _, addr := range []string{u.addrs.Webmemory, u.addrs.Apiserver, u.addrs.Proxy} {
		do(admin, "GET", "http://"+addr+"/metrics", "")
		do(admin, "GET", "http://"+addr+"/readyz", "")
	}
	u.stop()

	shown, err := cfg.YAML() // as mneme config show prints it
	require.NoError(t, err)
	written["the configuration"], written["the log"], written["the output"] = string(shown), u.log.String(), u.out.String()
	require.Contains(t, written["the log"], `"level":"debug"`)
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "internal_secret" {
			return err
		}
		raw, err := os.ReadFile(path)
		written[path] = string(raw)
		return err
	}))
	for _, name := range client.Keys(t.Context(), "*").Val() {
		written["Redis "+name] = name + everything(t, client, name)
	}
	for where, text := range written {
		for _, secret := range secrets {
			_, random, _ := strings.Cut(strings.TrimPrefix(secret, access.Prefix), "_") // of a key; its id is no secret
			if random == "" || secret == internal {
				random = secret
			}
			require.NotContains(t, text, random, where)
		}
	}
	t.Logf("%d places, of which %d bytes are logs", len(written), len(written["the log"]))
}

// everything is a key's value in Redis as text.
func everything(t *testing.T, client *redis.Client, key string) string {
	t.Helper()
	var value any
	var err error
	switch kind := client.Type(t.Context(), key).Val(); kind {
	case "string":
		value, err = client.Get(t.Context(), key).Result()
	case "hash":
		value, err = client.HGetAll(t.Context(), key).Result()
	case "zset":
		value, err = client.ZRange(t.Context(), key, 0, -1).Result()
	case "set":
		value, err = client.SMembers(t.Context(), key).Result()
	case "list":
		value, err = client.LRange(t.Context(), key, 0, -1).Result()
	case "stream":
		value, err = client.XRange(t.Context(), key, "-", "+").Result()
	case "none": // it has just expired
	default:
		t.Fatalf("%s is a %s", key, kind)
	}
	require.NoError(t, err, key)
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

// The log names each address that receives a secret without TLS.
func TestTheLogWarnsOfASecretInClear(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_APPROVALS_WEBHOOK_URL=http://bot:1", "MNEME_APPROVALS_WEBHOOK_SECRET_ENV=HOOK",
		"HOOK=hush-hush-hush-hush")
	u.logs("approvals.webhook.url: a secret goes to bot:1 without TLS")
	require.NotContains(t, u.log.String(), "hush-hush")
}
