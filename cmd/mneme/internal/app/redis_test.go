package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/backup"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
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

// asUser returns the URL of server for a user with these ACL rules.
func asUser(t *testing.T, server *redistest.Server, rules ...any) string {
	t.Helper()
	user := append([]any{"ACL", "SETUSER", "mneme", "reset", "on", ">secret"}, rules...)
	require.NoError(t, server.Client().Do(t.Context(), user...).Err())
	return "redis://mneme:secret@" + server.Addr
}

// The name of a connection is optional.
func TestARedisUserWithoutCLIENTWorks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "")
	u := start(t, "MNEME_REDIS_URL="+asUser(t, server, "~*", "&*", "+@all", "-client"))
	require.True(t, u.ready())
	require.NotEmpty(t, u.say("1", "Hello"))
	require.NotContains(t, u.log.String(), "NOPERM")

	u.stop()
	u = start(t, "MNEME_REDIS_URL="+server.URL())
	require.NotEmpty(t, u.say("1", "Hello"))
	require.Contains(t, server.Client().ClientList(t.Context()).Val(), " name="+backup.ClientName+" ")
}
