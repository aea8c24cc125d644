package webmemory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// putZone stores a user's time zone and returns the answer.
func putZone(w *webmemorytest.World, user, zone string, header ...string) (int, string) {
	return w.Do("PUT", "/v1/users/"+user, map[string]string{"time_zone": zone}, header...).Text()
}

// A post has its own time zone, or the stored one of its user in its tenant, or none. A zone that cannot be read loses no
// message.
func TestTheZoneOfAPost(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	asked := w.RecordRuns()
	w.Middleware = tenants
	w.URL = w.StartReplica()
	status, body := putZone(w, "ann", "Asia/Tokyo")
	require.Equal(t, 200, status, body)
	require.JSONEq(t, `{"time_zone":"Asia/Tokyo"}`, body)
	require.Equal(t, "Asia/Tokyo", w.Redis.Get(t.Context(), "mneme:user-zone:ann").Val())
	status, body = putZone(w, "bob", "Europe/Berlin")
	require.Equal(t, 200, status, body)
	require.NoError(t, w.Redis.Set(t.Context(), "mneme:user-zone:bob", "Europe/Atlantis", 0).Err())
	require.NoError(t, w.Redis.LPush(t.Context(), "mneme:user-zone:eve", "junk").Err())
	for _, c := range []struct{ user, zone, tenant, want string }{
		{"ann", "", "", "Asia/Tokyo"}, {"ann", "Europe/Berlin", "", "Europe/Berlin"}, {"ann", "", "", "Asia/Tokyo"},
		{"ann", "", "acme", ""}, {"carl", "", "", ""}, {"", "", "", ""}, {"no id", "UTC", "", "UTC"},
		{"bob", "", "", "Europe/Atlantis"},
		{"eve", "", "", ""},
	} {
		one := map[string]any{"message": "hi", "user": c.user, "time_zone": c.zone}
		for _, path := range []string{"/v1/chats/1/messages", webapi.OneShotPath} {
			status, body := w.Do("POST", path, one, "Test-Tenant", c.tenant).Text()
			require.Equal(t, 200, status, body)
			var run api.RunRequest
			require.NoError(t, json.Unmarshal(<-asked, &run))
			require.Equal(t, c.want, run.TimeZone, "%s %+v", path, c)
		}
	}
	require.Equal(t, 200, w.Do("POST", "/chat", `{"chat_id":"1","message":"hi","time_zone":"Asia/Tokyo"}`).Status)
	for _, c := range []struct{ user, zone string }{{"ann", "Asia/Tokyo"}, {"carl", ""}} {
		status, body := w.Do("GET", "/v1/users/"+c.user, nil).Text()
		require.Equal(t, 200, status)
		require.JSONEq(t, fmt.Sprintf(`{"time_zone":%q}`, c.zone), body)
	}
}

func TestZonesThatAreRefused(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	for _, zone := range []string{"Local", "../x", "Europe/../Asia/Tokyo", "/usr/share/zoneinfo/UTC", "localtime", "posixrules",
		"right/UTC", "Europe", "Europe/Atlantis", "Etc/Unknown", "+02:00", "europe/berlin", "Europe/Berlin\x00", "CET ",
		strings.Repeat("A", 10_000)} {
		for route, body := range map[string]map[string]string{
			"PUT /v1/users/ann": {}, "POST /v1/chats/1/messages": {"message": "hi"}, "POST " + webapi.OneShotPath: {"message": "hi"},
			"POST /chat": {"message": "hi", "chat_id": "1"},
		} {
			body["time_zone"] = zone
			method, path, _ := strings.Cut(route, " ")
			status, got := w.Do(method, path, body).Text()
			require.Equal(t, 400, status, "%s %q", route, zone)
			require.Contains(t, got, "time_zone must be an IANA name such as Europe/Berlin", "%s %q", route, zone)
		}
	}
	status, body := w.Do("GET", "/v1/chats/1/recall?query=x&time_zone=Local", nil).Text()
	require.Equal(t, 400, status)
	require.Contains(t, body, "time_zone must be")
	require.Equal(t, 404, w.Do("GET", "/v1/chats/1/export", nil).Status, "a refused post leaves nothing")
}

// "Yesterday" and days are those of the zone that a search names, or of the user that it is about.
func TestRecallInAZone(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.RecallEverywhere = 10 })
	var lines strings.Builder
	for i, at := range []string{"2026-03-04T14:30:00Z", "2026-03-04T15:30:00Z", "2026-03-05T02:00:00Z", "2026-03-05T15:30:00Z"} {
		ts, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		fmt.Fprintf(&lines, `{"message":{"role":"user","content":"Word %d.","timestamp":%d,"id":"m.%d"}}`+"\n", i, ts.Unix(), i)
	}
	status, body := w.Do("POST", "/v1/chats/a/import", lines.String()).Text()
	require.Equal(t, 201, status, body)
	noon := "2026-03-05T18:00:00Z" // 2026-03-06 in Tokyo
	for _, c := range []struct{ query, zone, name, value, want string }{
		{"What did I say yesterday?", "", "asked_at", noon, "m.0 m.1"},
		{"What did I say yesterday?", "Asia/Tokyo", "asked_at", noon, "m.1 m.2"},
		{"What did I say yesterday?", "Asia/Tokyo", "asked_at", "1772733600", "m.1 m.2"},
		{"What did I say yesterday?", "America/Los_Angeles", "asked_at", noon, "m.0 m.1 m.2"},
		{"What did I say yesterday?", "", "asked_at", "2026-03-06T03:00:00+09:00", "m.1 m.2"},
		{"Word", "", "from", "2026-03-05", "m.2 m.3"},
		{"Word", "Asia/Tokyo", "from", "2026-03-05", "m.1 m.2 m.3"},
		{"Word", "Asia/Tokyo", "to", "2026-03-05", "m.0"},
	} {
		var ids []string
		for _, h := range webmemorytest.RecallChat(t, w, "a", c.query, c.name, c.value, "time_zone", c.zone).Hits {
			ids = append(ids, h.ID)
		}
		require.ElementsMatch(t, strings.Fields(c.want), ids, "%+v", c)
	}
	post := webapi.MessageRequest{Message: "Word", User: "ann"}
	require.Equal(t, 200, w.Do("POST", "/v1/chats/own/messages", post).Status)
	now := time.Now().UTC()
	for _, zone := range []string{"Pacific/Kiritimati", "Etc/GMT+12"} {
		status, body := putZone(w, "ann", zone)
		require.Equal(t, 200, status, body)
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		status, body = w.Do("GET", "/v1/users/ann/recall?query=Word&from="+now.In(in).Format(time.DateOnly), nil).Text()
		require.Equal(t, 200, status)
		require.Contains(t, body, `"text":"Word"`, "today has begun where the user is")
	}
}

// A zone is erased with its user, also when Redis comes back from before.
func TestErasingAUsersZone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"),
		func(c *webmemory.Config) { c.EndStoreDir = dir + "/ends" })
	for _, user := range []string{"ann", "bob"} {
		status, body := putZone(w, user, "Asia/Tokyo")
		require.Equal(t, 200, status, body)
	}
	require.Equal(t, 200, w.Do("DELETE", "/v1/users/ann", nil).Status)
	require.Equal(t, []string{"mneme:user-zone:bob"}, w.Keys("mneme:user-zone:"))
	require.NoError(t, w.Redis.Set(t.Context(), "mneme:user-zone:ann", "Asia/Tokyo", 0).Err())
	require.Equal(t, 200, w.Post("1", "hi").Status) // makes the process read the epoch
	require.NoError(t, w.Redis.Del(t.Context(), "mneme:erasures", "mneme:epoch").Err())
	webmemorytest.Eventually(t, "the older zone is gone", func() bool { return len(w.Keys("mneme:user-zone:")) == 1 })
	status, body := putZone(w, "bob", "")
	require.Equal(t, 200, status, body)
	status, body = w.Do("GET", "/v1/users/bob", nil).Text()
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"time_zone":""}`, body, "an empty zone takes the stored one away")
}
