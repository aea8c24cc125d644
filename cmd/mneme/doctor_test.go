package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// examined runs mneme doctor where no service runs. It returns the checks whose result is WRONG, and each check's line.
// The checks leave out the disk, whose free space depends on the machine.
func examined(t *testing.T, file string, environ ...string) (wrong []string, lines map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(file), 0o600))
	r := over(t, append([]string{"MNEME_WEBMEMORY_LISTEN=127.0.0.1:1", "MNEME_APISERVER_LISTEN=127.0.0.1:1",
		"MNEME_PROXY_LISTEN=127.0.0.1:1", "MNEME_WEBMEMORY_APISERVER=http://127.0.0.1:1",
		"MNEME_APISERVER_PROXY=http://127.0.0.1:1", "MNEME_REDIS_EMBEDDED_LISTEN="}, environ...), "", "doctor")
	lines = map[string]string{}
	for line := range strings.Lines(r.stdout) {
		cells := regexp.MustCompile(`^(.+?) {2,}(ok|WRONG|unknown) +(.*)\n$`).FindStringSubmatch(line)
		require.NotNil(t, cells, line)
		lines[cells[1]] = cells[2] + " " + cells[3]
		if cells[2] == "WRONG" && cells[1] != "disk" {
			wrong = append(wrong, cells[1])
		}
	}
	require.Len(t, lines, len(checks), r.stdout+r.stderr)
	require.Equal(t, r.code == 0, !strings.Contains(r.stdout, "WRONG"), r.stdout)
	require.Equal(t, r.code == 0, r.stderr == "", r.stderr)
	return wrong, lines
}

func TestDoctorOfAnInstallationThatIsWell(t *testing.T) {
	wrong, lines := examined(t, "{}\n")
	require.Empty(t, wrong, lines)
	for _, check := range []string{"redis", "redis permissions", "redis version", "redis persistence", "redis eviction", "clock"} {
		require.Equal(t, "ok embedded", lines[check])
	}
	require.Contains(t, lines["versions"], "none runs")

	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb")
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, APIKey: "right",
		Models: []string{"gpt-4.1"}}))
	defer vendor.Close()
	wrong, lines = examined(t, "auth: {mode: keys}\nproxy: {backends: {gpt: {kind: openai, base_url: "+vendor.URL+
		"/v1, api_key_env: KEY, model_map: {'*': gpt-4.1}}}}\n", "MNEME_REDIS_URL="+server.URL(), "KEY=right")
	require.Empty(t, wrong, lines)
	require.Equal(t, "ok 1 server with keys", lines["redis"])
	require.Equal(t, "ok scripts, writes and mneme's keys", lines["redis permissions"])
	require.Contains(t, lines["redis persistence"], "ok appendonly 1 (ok)")
	require.Equal(t, "ok maxmemory 104857600, maxmemory-policy noeviction", lines["redis eviction"])
	require.Contains(t, lines["config and vendors"], "among them gpt-4.1")
}

func TestDoctorSaysWhatIsWrongWithRedis(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	environ := "MNEME_REDIS_URL=" + server.URL()
	wrong, lines := examined(t, "{}\n", environ)
	require.NotEmpty(t, wrong)
	require.Equal(t, `WRONG `+server.Addr+`: appendonly 0 (ok), save "" (ok): its restart loses memories: `+
		"set appendonly yes, on a disk with room", lines["redis persistence"])
	require.Contains(t, lines["redis eviction"], "maxmemory-policy allkeys-lru: it throws memories away")
	require.Contains(t, lines["redis version"], "ok ")

	client := server.Client()
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "save", "3600 1").Err())
	wrong, lines = examined(t, "{}\n", environ)
	require.Empty(t, wrong, "without a limit it throws nothing away, and snapshots are something: %v", lines)

	// One that forbids CONFIG is not taken for one that keeps nothing.
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-config").Err())
	wrong, lines = examined(t, "{}\n", environ)
	require.Empty(t, wrong, lines)
	require.Contains(t, lines["redis persistence"], "unknown appendonly 0 (ok), save \"NOPERM")

	server.Kill()
	wrong, lines = examined(t, "auth: {mode: keys}\n", environ)
	require.NotEmpty(t, wrong)
	require.Contains(t, lines["redis"], "connection refused: start it")
	for _, check := range []string{"redis permissions", "redis version", "redis persistence", "redis eviction",
		"clock"} {
		require.Equal(t, "unknown Redis does not answer", lines[check], "it is told once")
	}
	require.Contains(t, lines["keys"], "unknown ")
}

func TestDoctorNamesWhatRedisRefuses(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t, "--appendonly", "yes")
	all := "MNEME_REDIS_URL=" + server.UserURL("~*", "&*", "+@all")
	_, lines := examined(t, "{}\n", all)
	require.Equal(t, "ok scripts, writes and mneme's keys", lines["redis permissions"])
	require.Empty(t, server.Client().Keys(t.Context(), "*").Val(), "a doctor changes nothing")

	_, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.UserURL("~mneme:*", "&*", "+@all"))
	require.Contains(t, lines["redis permissions"], "WRONG Redis refuses one of the keys chat_history:mneme.probe: NOPERM")
	require.Contains(t, lines["redis permissions"], "Permit it for the Redis user of mneme")
	_, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.UserURL("~*", "&*", "+@all", "-evalsha"))
	require.Contains(t, lines["redis permissions"], "WRONG Redis refuses the command evalsha: NOPERM")
	_, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.UserURL("~*", "&*", "+@all", "-xadd"))
	require.Contains(t, lines["redis permissions"], "WRONG Redis refuses the command xadd: ")

	server.UserURL("~*", "&*", "+@all")
	require.NoError(t, server.Client().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	_, lines = examined(t, "{}\n", all)
	require.Contains(t, lines["redis permissions"], "WRONG Redis refuses writes: READONLY")
	require.Contains(t, lines["redis permissions"], "Name the primary")
}

// A Redis that hides facts is neither healthy nor broken.
func TestDoctorSaysWhatItCannotCheck(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	wrong, lines := examined(t, "{}\n", "MNEME_REDIS_URL="+server.UserURL("~*", "&*", "+@all", "-info", "-time"))
	require.Empty(t, wrong, lines)
	require.Equal(t, "ok 1 server with keys", lines["redis"])
	for _, check := range []string{"redis version", "redis persistence", "redis eviction", "clock"} {
		require.Contains(t, lines[check], "unknown NOPERM", check)
	}
	require.Contains(t, lines["redis permissions"], "ok ")

	// Without CONFIG it is unknown whether there are snapshots.
	_, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.UserURL("~*", "&*", "+@all", "-config"))
	require.Contains(t, lines["redis persistence"], "unknown appendonly 0")
	require.Contains(t, lines["redis eviction"], "ok maxmemory 0")
}

func TestDoctorNamesTheServerOfAClusterThatMayThrowAway(t *testing.T) {
	testtier.Slow(t)
	cluster := redistest.StartCluster(t)
	addrs := cluster.Addrs()
	bad := redis.NewClient(&redis.Options{Addr: addrs[1]})
	defer bad.Close()
	require.NoError(t, bad.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, bad.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	_, lines := examined(t, "redis: {addrs: ['"+strings.Join(addrs, "', '")+"']}\n")
	require.Equal(t, "ok 3 servers with keys", lines["redis"])
	require.Contains(t, lines["redis eviction"], "WRONG "+addrs[1]+": maxmemory 104857600, maxmemory-policy volatile-lru")
}

// miniredis has a clock that can be set, and says a part of what a Redis says of itself.
func TestDoctorComparesClocks(t *testing.T) {
	server := miniredis.RunT(t)
	for by, want := range map[time.Duration]string{0: "ok 0s", time.Hour: "WRONG " + server.Addr() + ": 1h0m0s",
		-time.Hour: "WRONG " + server.Addr() + ": 1h0m"} {
		server.SetTime(time.Now().Add(by))
		_, lines := examined(t, "{}\n", "MNEME_REDIS_URL=redis://"+server.Addr())
		require.Contains(t, lines["clock"], want)
	}
}

func TestDoctorNamesADeadVendorAndWhatHasNoPrice(t *testing.T) {
	wrong, lines := examined(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'http://127.0.0.1:1/v1', auth: none, "+
		"model_map: {'*': nameless}}, far: {kind: openai, base_url: 'https://vendor.invalid/v1', auth: none, model_map: "+
		"{'*': nameless-2}}}, active: gpt}\n")
	require.NotEmpty(t, wrong)
	require.Contains(t, lines["config and vendors"], "http://127.0.0.1:1/v1 cannot be reached")
	require.Contains(t, lines["config and vendors"], "https://vendor.invalid/v1 cannot be reached")
	require.Contains(t, lines["prices"], "there is none of nameless-2 (backend far); write what it costs")
	require.NotContains(t, lines["prices"], "backend gpt", "what runs on this machine costs nothing")
}

func TestDoctorNamesKeysWithoutLimits(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes")
	store := access.NewStore(server.Client())
	rate, err := access.ParseRates("60/m")
	require.NoError(t, err)
	made := func(k access.Key) string {
		k.Name, k.Scopes = "n", []access.Scope{access.Chat}
		_, k, err := store.Create(t.Context(), k)
		require.NoError(t, err)
		return k.ID
	}
	free := made(access.Key{})
	made(access.Key{Limits: access.Limits{Rate: rate}})
	_, err = store.Revoke(t.Context(), made(access.Key{}))
	require.NoError(t, err)

	environ := "MNEME_REDIS_URL=" + server.URL()
	wrong, lines := examined(t, "auth: {mode: keys}\n", environ)
	require.NotEmpty(t, wrong)
	require.Contains(t, lines["keys"], "WRONG 1 of 3 without limits "+free+": ")
	wrong, lines = examined(t, "auth: {mode: keys}\nlimits: {tenants: {default: {rate: 60/m}}}\n", environ)
	require.Empty(t, wrong, lines)
	wrong, lines = examined(t, "{}\n", environ)
	require.Empty(t, wrong, "nobody is asked for a key: %v", lines)
}

func TestDoctorShowsVersionsSideBySide(t *testing.T) {
	testtier.Slow(t)
	service := func(version string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" && version != "" {
				_, _ = w.Write([]byte("# HELP mneme_build_info 1; its labels say what runs.\n" +
					`mneme_build_info{goversion="go1",revision="abc",version="` + version + "\"} 1\n"))
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	older, newer, other := service("0.1.0"), service("0.2.0"), service("")
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

	wrong, lines := examined(t, "{}\n", "MNEME_WEBMEMORY_LISTEN="+at(newer), "MNEME_PROXY_LISTEN="+at(older))
	require.NotEmpty(t, wrong)
	require.Contains(t, lines["versions"], newer.URL+" 0.2.0 abc, "+older.URL+" 0.1.0 abc: start again")
	wrong, lines = examined(t, "{}\n", "MNEME_WEBMEMORY_LISTEN="+at(newer))
	require.Empty(t, wrong, lines)
	require.Equal(t, "ok "+newer.URL+" 0.2.0 abc", lines["versions"])
	_, lines = examined(t, "{}\n", "MNEME_WEBMEMORY_LISTEN="+at(other))
	require.Contains(t, lines["versions"], other.URL+" does not say its version")

	// A process on the list should answer, and one that has not said for long that it lives need not.
	server := redistest.Start(t, "--appendonly", "yes")
	client := server.Client()
	list := func(at time.Time) {
		require.NoError(t, client.HSet(t.Context(), "mneme:processes", "p1",
			fmt.Sprintf(`{"url":"http://127.0.0.1:1","at":%d}`, at.UnixMilli())).Err())
	}
	list(time.Now())
	wrong, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.URL())
	require.NotEmpty(t, wrong)
	require.Contains(t, lines["versions"], "http://127.0.0.1:1 does not say its version (nothing listens")
	list(time.Unix(0, 0))
	wrong, lines = examined(t, "{}\n", "MNEME_REDIS_URL="+server.URL())
	require.Empty(t, wrong, lines)
	require.EqualValues(t, 1, client.HLen(t.Context(), "mneme:processes").Val(), "a doctor changes nothing")
}

func TestDoctorNamesAFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no file system is known to be full here")
	}
	_, lines := examined(t, "data_dir: /proc/mneme\n") // it has no blocks at all
	require.Contains(t, lines["disk"], "WRONG 0 MiB are free in /proc: ")
}
