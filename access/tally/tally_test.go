package tally_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
)

// noon is that of yesterday.
var noon = time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)

// acme is another tenant than the default one.
func acme(t *testing.T) memory.Tenant {
	t.Helper()
	tenant, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	return tenant
}

// call is one of a chat that cost 5 millionths.
func call(of memory.Tenant, request, chat string, at time.Time) tally.Call {
	return tally.Call{Time: at, Request: request, Tenant: of, Chat: chat,
		Counts: tally.Counts{Input: 10, Cached: 4, Output: 2, Micros: 5}}
}

// add has a process of its own count calls, for a book that keeps a day for so long.
func add(t *testing.T, client redis.UniversalClient, keep time.Duration, calls ...tally.Call) {
	t.Helper()
	l := limit.New(client, limit.Options{Keep: keep})
	for _, c := range calls {
		l.Commit(limit.Reservation{}, c)
	}
	require.NoError(t, l.Close())
	require.Zero(t, l.Dropped())
}

// read gives all pages of a question, and how many there were.
func read(t *testing.T, b *tally.Book, q tally.Query) (rows []tally.Row, pages int) {
	t.Helper()
	for {
		page, err := b.Read(t.Context(), q)
		require.NoError(t, err)
		rows, pages = append(rows, page.Rows...), pages+1
		if q.Cursor = page.Next; q.Cursor == "" {
			return rows, pages
		}
	}
}

func TestACallThatIsWrittenAgainCountsOnce(t *testing.T) {
	client := redistest.Start(t).Client()
	b := tally.New(client, 0)
	first := call(memory.Tenant{}, "req_1", "12345", noon)
	add(t, client, 0, first)
	// The reply was lost: the writer brings it again, with what came meanwhile.
	add(t, client, 0, first, call(memory.Tenant{}, "req_2", "12345", noon))
	rows, _ := read(t, b, tally.Query{Dimension: tally.ByChat, Name: "12345", First: noon, Last: noon})
	require.Equal(t, []tally.Row{{noon.Format(time.DateOnly), "12345",
		tally.Counts{Calls: 2, Input: 20, Cached: 8, Output: 4, Micros: 10}}}, rows)
}

// What versions before counted is shown, and added to.
func TestRowsWithFewerCounts(t *testing.T) {
	client := redistest.Start(t).Client()
	require.NoError(t, client.HSet(t.Context(), tally.Head(acme(t))+":"+noon.Format(time.DateOnly)+":chat", "12345",
		"3 100 50 30 20 1").Err())
	b, q := tally.New(client, 0), tally.Query{Tenant: acme(t), Dimension: tally.ByChat, First: noon, Last: noon}
	rows, _ := read(t, b, q)
	require.Equal(t, tally.Counts{Calls: 3, Input: 100, Cached: 50, Output: 30, Micros: 20, Unpriced: 1}, rows[0].Counts)
	more := call(acme(t), "req_1", "12345", noon)
	more.Counts.Failed, more.Counts.Written, more.Counts.Estimated = 1, 6, 1
	add(t, client, 0, more)
	rows, _ = read(t, b, q)
	require.Equal(t, tally.Counts{Calls: 4, Input: 110, Cached: 54, Output: 32, Micros: 25, Unpriced: 1, Written: 6,
		Failed: 1, Estimated: 1}, rows[0].Counts)
}

func TestTenantsAreApart(t *testing.T) {
	client := redistest.Start(t).Client()
	b := tally.New(client, 0)
	add(t, client, 0, call(acme(t), "req_1", "12345", noon), call(memory.Tenant{}, "req_2", "12345", noon),
		call(memory.Tenant{}, "req_3", "7", noon))
	for tenant, calls := range map[memory.Tenant]int64{acme(t): 1, {}: 2} {
		rows, _ := read(t, b, tally.Query{Tenant: tenant, Dimension: tally.ByTenant, First: noon, Last: noon})
		require.Len(t, rows, 1)
		require.Equal(t, tenant.String(), rows[0].Name)
		require.Equal(t, calls, rows[0].Calls)
	}
}

func TestManyChatsOfADayComeInPages(t *testing.T) {
	testtier.Slow(t)
	client := redistest.Start(t).Client()
	b := tally.New(client, 0)
	const chats = 5000
	var calls []tally.Call
	for i := range chats {
		calls = append(calls, call(memory.Tenant{}, fmt.Sprint(i), fmt.Sprint("chat-", i), noon))
	}
	for part := range slices.Chunk(calls, 500) { // a limiter drops calls if more wait for Redis than it holds
		add(t, client, 0, part...)
	}
	rows, pages := read(t, b, tally.Query{Dimension: tally.ByChat, First: noon.AddDate(0, 0, -3), Last: noon})
	require.Greater(t, pages, 2)
	names := map[string]bool{}
	for _, row := range rows {
		names[row.Name] = true
	}
	require.Len(t, names, chats)
}

func TestAYearOfDays(t *testing.T) {
	client := redistest.Start(t).Client()
	b := tally.New(client, 0)
	var calls []tally.Call
	for i := range 365 {
		calls = append(calls, call(memory.Tenant{}, fmt.Sprint(i), "12345", noon.AddDate(0, 0, -i)))
	}
	add(t, client, 0, calls...)
	year := tally.Query{Dimension: tally.ByChat, First: noon.AddDate(-1, 0, 1), Last: noon}
	rows, pages := read(t, b, year)
	require.Len(t, rows, 365)
	require.Equal(t, 1, pages)
	year.Name = "12345"
	rows, _ = read(t, b, year)
	require.Len(t, rows, 365)
	ttl, err := client.PTTL(t.Context(), "mneme:usage:{default}:"+noon.Format(time.DateOnly)+":chat").Result()
	require.NoError(t, err)
	require.Greater(t, ttl, 399*24*time.Hour)
}

// A book that keeps less than the one before shows and leaves nothing of what is older.
func TestDaysThatAreTooOldGo(t *testing.T) {
	client := redistest.Start(t).Client()
	old := noon.AddDate(0, 0, -30)
	before := tally.New(client, 0)
	add(t, client, 0, call(acme(t), "req_1", "12345", old), call(acme(t), "req_2", "12345", noon))
	month := tally.Query{Tenant: acme(t), Dimension: tally.ByChat, First: old, Last: noon}
	rows, _ := read(t, before, month)
	require.Len(t, rows, 2)

	b := tally.New(client, 7*24*time.Hour)
	for _, name := range []string{"", "12345"} {
		month.Name = name
		rows, _ = read(t, b, month)
		require.Len(t, rows, 1)
		require.Equal(t, noon.Format(time.DateOnly), rows[0].Day)
	}
	month.Last = old
	rows, _ = read(t, b, month)
	require.Empty(t, rows)
	add(t, client, 7*24*time.Hour, call(acme(t), "req_3", "7", noon))
	keys, err := client.Keys(t.Context(), tally.Prefix+"*:"+old.Format(time.DateOnly)+":*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
	rows, _ = read(t, b, tally.Query{Tenant: acme(t), Dimension: tally.ByTenant, First: noon, Last: noon})
	require.Equal(t, int64(2), rows[0].Calls)
}

// What a chat took goes with it, on every day that is kept; what its calls count for others stays.
func TestAChatIsForgotten(t *testing.T) {
	client := redistest.Start(t).Client()
	b := tally.New(client, 0)
	days := tally.Query{Tenant: acme(t), Dimension: tally.ByChat, First: noon.AddDate(0, 0, -200), Last: time.Now()}
	add(t, client, 0, call(acme(t), "req_1", "12345", days.First), call(acme(t), "req_2", "12345", days.Last),
		call(acme(t), "req_3", "7", noon), call(memory.Tenant{}, "req_4", "12345", noon))
	require.NoError(t, b.Forget(t.Context(), acme(t), tally.ByChat, "12345"))
	rows, _ := read(t, b, days)
	require.Len(t, rows, 1)
	require.Equal(t, "7", rows[0].Name)
	days.Dimension = tally.ByTenant
	rows, _ = read(t, b, days)
	require.Len(t, rows, 3)
	rows, _ = read(t, b, tally.Query{Dimension: tally.ByChat, First: noon, Last: noon})
	require.Equal(t, "12345", rows[0].Name, "another tenant's chat of this id")
	require.NoError(t, (*tally.Book)(nil).Forget(t.Context(), acme(t), tally.ByChat, "12345"))
}

func TestWrongQuestions(t *testing.T) {
	b := tally.New(redistest.Start(t).Client(), 0)
	for name, q := range map[string]tally.Query{
		"a dimension that is none": {Dimension: "colour", First: noon, Last: noon},
		"the end before the start": {Dimension: tally.ByChat, First: noon, Last: noon.AddDate(0, 0, -1)},
		"too long":                 {Dimension: tally.ByChat, Last: noon},
		"another's cursor":         {Dimension: tally.ByChat, First: noon, Last: noon, Cursor: "2025-01-01.0"},
		"no cursor":                {Dimension: tally.ByChat, First: noon, Last: noon, Cursor: noon.Format(time.DateOnly) + ".x"},
	} {
		_, err := b.Read(context.Background(), q)
		require.ErrorIs(t, err, tally.ErrQuery, name)
	}
}

func TestParseDay(t *testing.T) {
	for text, want := range map[string]time.Time{
		"24h": noon.Add(-24 * time.Hour), "90m": noon.Add(-90 * time.Minute), "7d": noon.AddDate(0, 0, -7), "0d": noon,
		"2026-01-30T10:00:00Z": time.Date(2026, 1, 30, 10, 0, 0, 0, time.UTC),
		"2026-01-30":           time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC),
	} {
		got, err := tally.ParseDay(text, noon)
		require.NoError(t, err, text)
		require.True(t, got.Equal(want), text)
	}
	for _, text := range []string{"", "-1h", "-3d", "d", "1.5d", "yesterday", "24", "999999999h", "99999999999999999999d",
		"9999999999d", "3661d"} {
		_, err := tally.ParseDay(text, noon)
		require.ErrorIs(t, err, tally.ErrQuery, text)
		require.ErrorContains(t, err, "24h", text)
	}
}
