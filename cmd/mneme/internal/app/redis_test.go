package app_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/cmd/mneme/internal/backup"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/tlstest"
)

// ready reports whether webmemory is ready.
func (u *up) ready() bool {
	resp, err := http.Get(u.url("/readyz"))
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// logs waits for a text in the log.
func (u *up) logs(text string) {
	u.t.Helper()
	require.Eventually(u.t, func() bool { return strings.Contains(u.log.String(), text) }, time.Minute,
		10*time.Millisecond, "waiting for %q", text)
}

// A start without Redis names Redis, and nothing that is not configured. Once Redis answers, the service becomes ready
// and logs what it could not check before.
func TestAStartWithoutRedisNamesRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	server.Kill()
	u := start(t, "MNEME_REDIS_URL=redis://:hush-hush@"+server.Addr)
	first, _, _ := strings.Cut(u.log.String(), "\n")
	require.Contains(t, first, "Redis at "+server.Addr+" is unreachable. webmemory answers messages with a 503 "+
		"until it works. Check redis.url (MNEME_REDIS_URL).")
	require.False(t, u.ready())
	code, body := ask(t, "POST", u.url("/v1/chats/1/messages"), "", `{"message":"Hello"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, body)

	require.NoError(t, server.Run())
	require.Eventually(t, u.ready, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, u.say("1", "Hello"))
	u.logs("this Redis may evict histories")
	require.NotContains(t, u.log.String(), "cold")
	require.NotContains(t, u.log.String(), "hush-hush")
}

// A Redis that returns with sleeping chats is reported then. Only requests for these chats are refused.
func TestAStartWithoutRedisStillFindsSleepingChats(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	require.NoError(t, server.Client().ZAdd(t.Context(), "mneme:cold", redis.Z{Score: 1, Member: "asleep"}).Err())
	server.Kill()
	u := start(t, "MNEME_REDIS_URL="+server.URL())
	require.NotContains(t, u.log.String(), "cold.store")

	require.NoError(t, server.Run())
	u.logs("cold.store is not set")
	require.NotEmpty(t, u.say("awake", "Hello"))
	code, body := ask(t, "POST", u.url("/v1/chats/asleep/messages"), "", `{"message":"Hello"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, body)
}

// A Redis that rejects the password is reachable, and its own words are in the log.
func TestAStartNamesARedisThatRefusesCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	u := start(t, "MNEME_REDIS_URL=redis://:hush-hush@"+server.Addr)
	first, _, _ := strings.Cut(u.log.String(), "\n")
	require.Contains(t, first, "Redis at "+server.Addr+" refuses commands.")
	require.Contains(t, first, "WRONGPASS")
	require.NotContains(t, u.log.String(), "hush-hush")
}

// The name of a connection is optional.
func TestARedisUserWithoutCLIENTWorks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "")
	u := start(t, "MNEME_REDIS_URL="+server.UserURL("~*", "&*", "+@all", "-client"))
	require.Eventually(t, u.ready, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, u.say("1", "Hello"))
	require.NotContains(t, u.log.String(), "NOPERM")

	u.stop()
	u = start(t, "MNEME_REDIS_URL="+server.URL())
	require.NotEmpty(t, u.say("1", "Hello"))
	require.Contains(t, server.Client().ClientList(t.Context()).Val(), " name="+backup.ClientName+" ")
}

// readiness returns the answer of webmemory's /readyz.
func (u *up) readiness() (code int, body string) { return ask(u.t, "GET", u.url("/readyz"), "", "") }

// refusals makes a Redis refuse a part of each message, and names what webmemory reports.
var refusals = map[string]struct {
	refuse, permit []any
	named          string
}{
	"script":      {[]any{"ACL", "SETUSER", "mneme", "-evalsha"}, []any{"ACL", "SETUSER", "mneme", "+evalsha"}, "the command evalsha"},
	"command":     {[]any{"ACL", "SETUSER", "mneme", "-set"}, []any{"ACL", "SETUSER", "mneme", "+set"}, "the command set"},
	"key pattern": {[]any{"ACL", "SETUSER", "mneme", "resetkeys", "~mneme:*"}, []any{"ACL", "SETUSER", "mneme", "~*"}, "one of the keys "},
	"replica":     {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, "writes"},
}

// A Redis that answers and refuses is reported as such, and a message is not to be retried.
func TestARedisThatRefusesIsReported(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--save", "")
			url := server.UserURL("~*", "&*", "+@all")
			admin := server.Client()
			u := start(t, "MNEME_REDIS_URL="+url)
			require.NotEmpty(t, u.say("1", "Hello"))
			refused := func() {
				require.NoError(t, admin.Do(t.Context(), r.refuse...).Err())
				require.Eventually(t, func() bool {
					code, body := u.readiness()
					return code == http.StatusServiceUnavailable && strings.Contains(body, `"status":"refused"`) &&
						strings.Contains(body, "Redis refuses "+r.named)
				}, 20*time.Second, 20*time.Millisecond)
				for _, chat := range []string{"1", "2"} {
					code, body := ask(t, "POST", u.url("/v1/chats/"+chat+"/messages"), "", `{"message":"Hello"}`)
					require.Equal(t, http.StatusServiceUnavailable, code, body)
					require.Equal(t, "memory_refused", gjson.Get(body, "error.code").Str, body)
					require.False(t, gjson.Get(body, "error.retryable").Bool(), body)
				}
			}
			permitted := func() {
				require.NoError(t, admin.Do(t.Context(), r.permit...).Err())
				require.Eventually(t, u.ready, time.Minute, 20*time.Millisecond)
				require.NotEmpty(t, u.say("1", "Hello again"))
				require.NotEmpty(t, u.say("2", "Hello"))
			}
			refused()
			permitted()

			// The same at a start.
			u.stop()
			require.NoError(t, admin.Do(t.Context(), r.refuse...).Err())
			u = start(t, "MNEME_REDIS_URL="+url)
			refused()
			permitted()
		})
	}
}

// A Redis that takes no writes for a reason that can pass makes webmemory degraded, and a message is to be retried.
func TestARedisWithoutItsReplicasIsReported(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--save", "")
	u := start(t, "MNEME_REDIS_URL="+server.URL())
	require.NoError(t, server.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	require.Eventually(t, func() bool {
		code, body := u.readiness()
		return code == http.StatusOK && strings.Contains(body, "degraded") && strings.Contains(body, "NOREPLICAS")
	}, 20*time.Second, 20*time.Millisecond)
	code, body := ask(t, "POST", u.url("/v1/chats/1/messages"), "", `{"message":"Hello"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, body)
	require.Equal(t, "memory_unavailable", gjson.Get(body, "error.code").Str, body)
	require.True(t, gjson.Get(body, "error.retryable").Bool(), body)
}

// A command that an operator renamed is named.
func TestARenamedCommandIsReported(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, command := range []string{"EVALSHA", "XADD"} {
		server := redistest.Start(t, "--save", "", "--rename-command", command, "")
		u := start(t, "MNEME_REDIS_URL="+server.URL())
		require.Eventually(t, func() bool {
			code, body := u.readiness()
			return code == http.StatusServiceUnavailable && strings.Contains(body, "Redis refuses ")
		}, time.Minute, 20*time.Millisecond)
		_, body := u.readiness()
		require.Contains(t, body, "Redis refuses the command "+strings.ToLower(command))
		require.Contains(t, body, "rename-command")
	}
}

// A Redis that requires a client certificate gets one, whether redis.url or redis.addrs names it.
func TestRedisGetsAClientCertificate(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ca, dir, addr := tlstest.New(t), t.TempDir(), freeport.Addr(t)
	file := filepath.Join(dir, "ca.pem")
	tlstest.Replace(t, file, ca.PEM())
	cert, key := ca.Issue(t, time.Hour, time.Hour, "127.0.0.1").Write(t, dir)
	_, port, _ := net.SplitHostPort(addr)
	server := redistest.Start(t, "--save", "", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", file, "--tls-auth-clients", "yes")

	mine := t.TempDir()
	cert, key = ca.Issue(t, time.Hour, time.Hour, "mneme").Write(t, mine)
	with := []string{"MNEME_REDIS_TLS_CA=" + file, "MNEME_REDIS_TLS_CERT=" + cert, "MNEME_REDIS_TLS_KEY=" + key}
	u := start(t, append(with, "MNEME_REDIS_ADDRS=["+addr+"]")...)
	require.Eventually(t, u.ready, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, u.say("1", "Hello"))
	u.stop()
	u = start(t, with[0], "MNEME_REDIS_URL=rediss://"+addr)
	u.logs("Redis at " + addr + " is unreachable")
	require.False(t, u.ready(), "Redis ends the handshake")
	u.stop()
	u = start(t, append(with, "MNEME_REDIS_URL=rediss://"+addr)...)
	require.NotEmpty(t, u.say("1", "Hello"))

	// The files are read again for each connection.
	reconnect := func(pair tlstest.Pair) {
		pair.Write(t, mine)
		require.NoError(t, server.Client().ClientKillByFilter(t.Context(), "TYPE", "normal").Err())
	}
	reconnect(tlstest.New(t).Issue(t, time.Hour, time.Hour, "mneme"))
	require.Eventually(t, func() bool { _, body := u.readiness(); return strings.Contains(body, "degraded") },
		20*time.Second, 20*time.Millisecond)
	reconnect(ca.Issue(t, time.Hour, time.Hour, "mneme"))
	require.Eventually(t, func() bool { _, body := u.readiness(); return !strings.Contains(body, "degraded") },
		20*time.Second, 20*time.Millisecond)
}

// documentedACL returns the arguments of the command in docs/security.md that makes mneme's user, with the password
// "secret".
func documentedACL(t *testing.T) (args []any) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/security.md")
	require.NoError(t, err)
	_, line, _ := strings.Cut(string(page), "\nACL SETUSER mneme ")
	line, _, _ = strings.Cut(line, "```")
	require.NotEmpty(t, line)
	for _, arg := range strings.Fields("ACL SETUSER mneme " + strings.ReplaceAll(line, "PASSWORD", "secret")) {
		args = append(args, arg)
	}
	return args
}

// The documented ACL is enough for all that mneme does, and mneme tries nothing beyond it.
func TestTheDocumentedACLIsEnough(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	cluster, server := redistest.StartCluster(t), redistest.Start(t, "--save", "")
	for name, nodes := range map[string][]*redistest.Server{"one server": {server}, "Cluster": cluster.Nodes} {
		t.Run(name, func(t *testing.T) {
			var addrs []string
			for _, node := range nodes {
				addrs = append(addrs, node.Addr)
				require.NoError(t, node.Client().Do(t.Context(), documentedACL(t)...).Err())
			}
			u := start(t, "MNEME_REDIS_ADDRS=["+strings.Join(addrs, ", ")+"]", "MNEME_REDIS_USERNAME=mneme",
				"MNEME_REDIS_PASSWORD_ENV=ACL_PASSWORD", "ACL_PASSWORD=secret", "MNEME_LIMITS_TENANTS={default: {rate: 600/m}}")
			require.Eventually(t, u.ready, 20*time.Second, 10*time.Millisecond)
			does := func(method, path, body string) string {
				t.Helper()
				code, answer := ask(t, method, u.url(path), "", body)
				require.Equal(t, 2, code/100, answer)
				return answer
			}
			require.Contains(t,
				u.say("1", "Tell the analytic subagent that my name is Aliya, then ask it what my name is"), "Aliya")
			u.say("2", "My name is Aliya")
			require.Contains(t, does("GET", "/v1/chats/2/recall?query=Aliya", ""), "Aliya")
			does("POST", "/v1/chats/2/messages", `{"message":"I like tea","user":"u"}`)
			does("PUT", "/v1/collections/docs", "{}")
			does("PUT", "/v1/collections/docs/documents/d.md", `{"text":"The code of the door is 4455."}`)
			does("GET", "/v1/chats", "")
			does("GET", "/v1/usage", "")
			does("DELETE", "/v1/chats/1", "")
			does("DELETE", "/v1/users/u?chats=true", "")
			does("DELETE", "/v1/collections/docs/documents/d.md", "")

			client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, Username: "mneme", Password: "secret"})
			defer client.Close()
			keys := access.NewStore(client)
			_, key, err := keys.Create(t.Context(), access.Key{Name: "n", Scopes: []access.Scope{access.Chat}})
			require.NoError(t, err)
			_, err = access.NewStore(client).Revoke(t.Context(), key.ID)
			require.NoError(t, err)
			u.stop()
			require.NotContains(t, u.log.String(), "NOPERM")
			for _, node := range nodes {
				log, err := node.Client().ACLLog(t.Context(), 10).Result()
				require.NoError(t, err)
				require.Empty(t, log)
			}
		})
	}
}

// A cold store that cannot be read makes webmemory degraded before a chat needs it.
func TestAnUnavailableColdStoreIsReported(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cold")
	require.NoError(t, os.Mkdir(dir, 0o700))
	u := start(t, "MNEME_COLD_STORE="+dir)
	reports := func(status, reason string) {
		t.Helper()
		require.Eventually(t, func() bool {
			code, body := u.readiness()
			return code == http.StatusOK && gjson.Get(body, "status").Str == status && strings.Contains(body, reason)
		}, 30*time.Second, 50*time.Millisecond)
	}
	reports("ready", "")
	require.NotEmpty(t, u.say("1", "Hello"))
	require.NoError(t, os.Rename(dir, dir+".away"))
	reports("degraded", "The cold store cannot be read")
	require.NotEmpty(t, u.say("1", "Hello again"), "chats that do not sleep are served")
	u.logs("the cold store cannot be read")
	require.NoError(t, os.Rename(dir+".away", dir))
	reports("ready", "")
}

// A loss of many chats is logged in few lines. The metrics count the rest.
func TestALossOfManyRunsIsLoggedInFewLines(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--save", "")
	u := start(t, "MNEME_REDIS_URL="+server.URL())
	const chats = 40
	for i := range chats {
		u.say(strconv.Itoa(i), "Hello")
	}
	require.Eventually(t, u.ready, time.Minute, 10*time.Millisecond)
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	require.Eventually(t, func() bool {
		_, metrics := ask(t, "GET", u.url("/metrics"), "", "")
		return strings.Contains(metrics, "\nmneme_retold_runs_total "+strconv.Itoa(chats)+"\n")
	}, time.Minute, 50*time.Millisecond)
	for i := range chats {
		u.say(strconv.Itoa(i), "Hello again")
	}
	require.Less(t, strings.Count(u.log.String(), "Redis"), 20, u.log.String())
}
