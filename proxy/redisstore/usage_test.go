package redisstore_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/embedded"
	"mneme/proxy/redisstore"
	"mneme/proxy/usage"
)

// all reads what a store keeps, the newest first.
func all(t require.TestingT, u *redisstore.Usage, since time.Time) (records []usage.Record) {
	for r, err := range u.UsageSince(context.Background(), since) {
		require.NoError(t, err)
		records = append(records, r)
	}
	return records
}

// embeddedClient is a client of the store inside the process.
func embeddedClient(t *testing.T) redis.UniversalClient {
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{"embedded"}, Dialer: s.Dial, MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
	t.Cleanup(func() { _ = client.Close(); _ = s.Close() })
	return client
}

// Both kinds of Redis give back what they were given.
func TestUsageComesBackAsItWas(t *testing.T) {
	for kind, client := range map[string]redis.UniversalClient{"redis-server": redistest.Start(t).Client(),
		"embedded": embeddedClient(t)} {
		t.Run(kind, func(t *testing.T) {
			text, count := rapid.String(), rapid.Int64Range(0, 1e12)
			rapid.Check(t, func(t *rapid.T) {
				require.NoError(t, client.Del(context.Background(), "proxy:usage").Err())
				u := redisstore.NewUsage(client, 0, 0)
				records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) usage.Record {
					return usage.Record{
						At: time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "at")).UTC(), RequestID: text.Draw(t, "request"),
						Tenant: text.Draw(t, "tenant"),
						Route:  text.Draw(t, "route"), Conversation: text.Draw(t, "conversation"), Chat: text.Draw(t, "chat"),
						Run: text.Draw(t, "run"), Backend: text.Draw(t, "backend"),
						Model: text.Draw(t, "model"), UpstreamModel: text.Draw(t, "upstream"), Outcome: text.Draw(t, "outcome"),
						Estimated: rapid.Bool().Draw(t, "estimated"), Priced: rapid.Bool().Draw(t, "priced"),
						Key: text.Draw(t, "key"), TenantName: text.Draw(t, "tenant name"), User: text.Draw(t, "user"),
						CostMicros: count.Draw(t, "cost"),
						Tokens: usage.Tokens{
							Input: count.Draw(t, "input"), CacheRead: count.Draw(t, "read"), CacheCreation: count.Draw(t, "creation"),
							Output: count.Draw(t, "output"), Reasoning: count.Draw(t, "reasoning"),
						},
					}
				}), 1, 5).Draw(t, "records")
				require.NoError(t, u.AppendUsage(context.Background(), records))
				got := all(t, u, time.Now().Add(-time.Hour))
				require.Len(t, got, len(records))
				for i, r := range records {
					require.Equal(t, r, got[len(got)-1-i])
				}
			})
		})
	}
}

func TestUsageIsReadInPiecesAndBounded(t *testing.T) {
	for kind, client := range map[string]redis.UniversalClient{"redis-server": redistest.Start(t).Client(),
		"embedded": embeddedClient(t)} {
		t.Run(kind, func(t *testing.T) {
			u := redisstore.NewUsage(client, 3000, 0)
			oldest, err := u.OldestUsage(t.Context())
			require.NoError(t, err)
			require.True(t, oldest.IsZero())
			began := time.Now().Add(-time.Second)
			for batch := range 50 {
				var records []usage.Record
				for i := range 100 {
					records = append(records, usage.Record{At: began, RequestID: fmt.Sprint(batch*100 + i)})
				}
				require.NoError(t, u.AppendUsage(t.Context(), records))
			}
			got := all(t, u, began)
			require.GreaterOrEqual(t, len(got), 3000)
			require.Less(t, len(got), 3200)
			for i, r := range got {
				require.Equal(t, fmt.Sprint(4999-i), r.RequestID, "each once, the newest first")
			}
			oldest, err = u.OldestUsage(t.Context())
			require.NoError(t, err)
			require.WithinRange(t, oldest, began, time.Now().Add(time.Second))
			require.Empty(t, all(t, u, time.Now().Add(time.Hour)))
		})
	}
}

// An operator reads the stream without us.
func TestUsageIsReadableWithRedisCLI(t *testing.T) {
	server := redistest.Start(t)
	u := redisstore.NewUsage(server.Client(), 0, 0)
	require.NoError(t, u.AppendUsage(t.Context(), []usage.Record{{
		At: time.UnixMilli(1763711157250), RequestID: "req_1", Route: "teammate/analytic", Backend: "kimi", Model: "analytic",
		UpstreamModel: "kimi-k2", Tokens: usage.Tokens{Input: 12, Output: 3}, Outcome: "ok",
	}}))
	host, port, _ := strings.Cut(server.Addr, ":")
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "XREVRANGE", "proxy:usage", "+", "-", "COUNT",
		"1").Output()
	require.NoError(t, err)
	_, fields, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	require.Equal(t,
		"at 2025-11-21T07:45:57.25Z request req_1 route teammate/analytic backend kimi model analytic upstream_model "+
			"kimi-k2 input 12 output 3 outcome ok",
		strings.ReplaceAll(fields, "\n", " "))
}

// What others write into the stream does no harm.
func TestForeignEntriesAreNoNumbers(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t,
		server.Client().XAdd(t.Context(), &redis.XAddArgs{
			Stream: "proxy:usage", Values: []any{"input", "many", "at", "noon", "x", "y"},
		}).Err())
	got := all(t, redisstore.NewUsage(server.Client(), 0, 0), time.Now().Add(-time.Hour))
	require.Len(t, got, 1)
	require.Zero(t, got[0].Tokens)
	require.WithinDuration(t, time.Now(), got[0].At, time.Hour)

	require.NoError(t, server.Client().Set(t.Context(), "proxy:usage", "x", 0).Err())
	u := redisstore.NewUsage(server.Client(), 0, 0)
	require.ErrorContains(t, u.AppendUsage(t.Context(), []usage.Record{{}}), "proxy:usage")
	for _, err := range u.UsageSince(t.Context(), time.Now()) {
		require.ErrorContains(t, err, "WRONGTYPE")
	}
}

// Redis dies in the middle and comes back: no record is lost, none counts twice,
// and meanwhile the process answers for itself.
func TestUsageOutlivesRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	r := usage.NewRecorder(usage.Options{Store: redisstore.NewUsage(server.Client(), 0, 0), Log: zerolog.Nop()})
	total := func(process bool) int64 {
		report, err := r.Report(t.Context(), "1h", "backend")
		require.NoError(t, err)
		if report.Process != process {
			return -1
		}
		return report.Total.Calls
	}
	record := func(from, to int) {
		for i := from; i < to; i++ {
			r.Record(usage.Record{At: time.Now(), RequestID: fmt.Sprint(i), Backend: "kimi", Tokens: usage.Tokens{Input: 1}})
		}
	}
	record(0, 500)
	server.Kill() // somewhere between them
	record(500, 1000)
	require.EqualValues(t, 1000, total(true))
	require.NoError(t, server.Run())
	require.Eventually(t, func() bool { return total(false) == 1000 }, 60*time.Second, 20*time.Millisecond)
	require.Zero(t, r.Dropped())
	require.NoError(t, r.Close())
}

// What a record took is counted for its tenant, once, also if the writer brings it again.
func TestUsageIsCountedByTenant(t *testing.T) {
	client := redistest.Start(t).Client()
	u := redisstore.NewUsage(client, 0, 0)
	at := time.Now()
	records := []usage.Record{
		{At: at, RequestID: "req_1", TenantName: "acme", Key: "k1", User: "ann", Chat: "acme/12345", Route: "teammate/analytic",
			UpstreamModel: "known", CostMicros: 70, Priced: true,
			Tokens: usage.Tokens{Input: 10, CacheRead: 5, CacheCreation: 1, Output: 3}},
		{At: at, RequestID: "req_2", TenantName: "default", Chat: "12345", Route: "main", UpstreamModel: "unknown",
			Tokens: usage.Tokens{Input: 8, Output: 1}},
	}
	for range 2 {
		require.NoError(t, u.AppendUsage(t.Context(), records))
	}
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	spent := tally.Counts{Calls: 1, Input: 16, Cached: 5, Output: 3, Micros: 70}
	book := tally.New(client, 0)
	for by, name := range map[tally.By]string{tally.ByKey: "k1", tally.ByTenant: "acme", tally.ByUser: "ann",
		tally.ByChat: "12345", tally.BySubagent: "analytic", tally.ByModel: "known"} {
		page, err := book.Read(t.Context(), tally.Query{Tenant: acme, By: by, Since: at, Until: at})
		require.NoError(t, err)
		require.Equal(t, []tally.Row{{Day: at.UTC().Format(time.DateOnly), Name: name, Counts: spent}}, page.Rows, by)
	}
	page, err := book.Read(t.Context(), tally.Query{By: tally.ByChat, Since: at, Until: at})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	require.Equal(t, tally.Counts{Calls: 1, Input: 8, Output: 1, Unpriced: 1}, page.Rows[0].Counts)
}
