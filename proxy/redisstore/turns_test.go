package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory/embedded"
	"mneme/proxy/ledger"
	"mneme/proxy/redisstore"
	"mneme/proxy/wire"
)

var (
	turnOrigin = ledger.Origin{Backend: "claude", Vendor: "anthropic", Model: "opus"}
	turnScope  = ledger.Scope{Tenant: strings.Repeat("a", 64), Route: "main", Conversation: "c:1"}
)

// turnContent is an answer with bytes that an encoder would not leave as they are.
func turnContent(i int) string {
	return fmt.Sprintf(`[ {"type":"thinking", "thinking":"thought\u0020%d `+
		`\/","signature":"sig%d"},{"type":"text","text":"answer %d"},`+
		`{"type":"tool_use","id":"toolu_%016d","name":"f","input":{"n": 1.0,"n":2}} ]`, i, i, i, i)
}

func turnOf(s ledger.Scope, i int) ledger.Turn {
	return ledger.Turn{Scope: s, Origin: turnOrigin, Dialect: wire.Messages, Content: []byte(turnContent(i))}
}

// turnRequest replays turns in the conversation of a scope, or without naming it.
func turnRequest(t testing.TB, l *ledger.Ledger, s ledger.Scope, nameless bool, contents ...string) ledger.Request {
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}`
	for _, c := range contents {
		body += `,{"role":"assistant","content":` + c + `}`
	}
	o, err := wire.ReadOutline([]byte(body + `]}`))
	require.NoError(t, err)
	r := ledger.Request{Scope: s, Target: turnOrigin, Dialect: wire.Messages, Outline: o}
	if nameless {
		found := false
		r.Scope, found = l.Find(t.Context(), s, wire.Messages, o, nil)
		r.New = !found
	}
	return r
}

// knows says whether a ledger proves a turn.
func knows(t testing.TB, l *ledger.Ledger, s ledger.Scope, nameless bool, i int) bool {
	judged := l.Judge(t.Context(), turnRequest(t, l, s, nameless, turnContent(i)))
	require.Len(t, judged, 1)
	if judged[0].Same {
		require.Equal(t, turnContent(i), string(judged[0].Turn.Content), "byte for byte")
	}
	return judged[0].Same
}

// shared is a ledger over a client; with its own connections it is another
// process's.
func shared(t testing.TB, client redis.UniversalClient) *ledger.Ledger {
	// Patient, since the machine that runs the tests may be busy.
	return lasting(t, client, 0)
}

func closeLedger(t testing.TB, l *ledger.Ledger) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, l.Close(ctx))
}

// saved waits until nothing is on its way to Redis.
func saved(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Stats().Waiting == 0 && !l.Degraded() }, 30*time.Second,
		2*time.Millisecond)
}

// Redis comes back empty while a gateway goes on from memory: no request asks for what it
// knows, so it has to notice by itself.
func TestARedisThatComesBackEmptyIsFilledAgain(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	client := server.Client()
	l := shared(t, client)
	placed := turnOf(turnScope, 0)
	placed.Place = &ledger.Place{Input: []byte(`[{"role":"user","content":"hi"}]`), Ephemeral: "print"}
	l.Record(t.Context(), placed)
	for i := 1; i < 20; i++ {
		l.Record(t.Context(), turnOf(turnScope, i))
	}
	saved(t, l)
	// It has looked at Redis when it has heard of an erasure there.
	heard := turnScope
	heard.Conversation = "heard"
	l.Record(t.Context(), turnOf(heard, 99))
	require.NoError(t, shared(t, client).Forget(t.Context(), heard.Tenant, heard.Conversation))
	require.Eventually(t, func() bool { return !knows(t, l, heard, false, 99) }, 30*time.Second, time.Millisecond)
	require.NoError(t, l.Keep(t.Context(), turnScope.Tenant, turnScope.Conversation, time.Now().Add(3*day)))
	require.NoError(t, client.FlushAll(t.Context()).Err())
	last := "proxy:turns:{" + turnScope.Tenant + ":" + turnScope.Conversation + "}:" + turnScope.Route
	require.Eventually(t, func() bool { return client.HGet(t.Context(), last, "last").Val() == "20" }, 30*time.Second,
		time.Millisecond)
	other := shared(t, client)
	for i := range 20 {
		require.True(t, knows(t, other, turnScope, false, i))
	}
	require.Equal(t, 1, other.Conversation(turnScope, nil).Size)
	require.Eventually(t, func() bool { return expiries(t, client, "c:1")[0] > 2*day }, 30*time.Second, time.Millisecond)
}

func TestTurnsSurviveARestart(t *testing.T) {
	server := redistest.Start(t)
	l := shared(t, server.Client())
	for i := range 20 {
		turn := turnOf(turnScope, i)
		turn.Predecessor, turn.Context, turn.ResponseID = "p", "c", "a"
		turn.Tools = []ledger.ToolID{{Vendor: fmt.Sprintf("toolu_%016d", i), Client: fmt.Sprint("call_", i)}}
		l.Record(t.Context(), turn)
	}
	refused := ledger.BlockKey([]byte(`{"type":"thinking","thinking":"x","signature":"bad"}`))
	l.Refuse(t.Context(), turnScope, turnOrigin, []string{refused})
	closeLedger(t, l)

	l = shared(t, server.Client())
	for i := range 20 {
		require.True(t, knows(t, l, turnScope, false, i), "turn %d", i)
	}
	got := l.Judge(t.Context(), turnRequest(t, l, turnScope, false, turnContent(3),
		`[{"type":"thinking","thinking":"x","signature":"bad"}]`))
	require.Equal(t, ledger.Refused, got[1].States[0])
	turn := got[0].Turn
	require.Equal(t, []string{"p", "c", "a"}, []string{turn.Predecessor, turn.Context, turn.ResponseID})
	require.Equal(t, "call_3", turn.Tools[0].Client)
	require.Equal(t, turnOrigin, turn.Origin)

	minted := turnScope
	minted.Conversation = "minted"
	l = shared(t, server.Client())
	require.True(t, knows(t, l, minted, true, 7), "by its signature, without the conversation")
	require.Equal(t, ledger.Refused,
		l.Judge(t.Context(),
			turnRequest(t, l, minted, true, `[{"type":"thinking","thinking":"x","signature":"bad"}]`))[0].States[0])
	for _, s := range []ledger.Scope{{Route: "main", Conversation: "c:1"}, {Tenant: turnScope.Tenant, Route: "teammate/x",
		Conversation: "c:1"}} {
		require.False(t, knows(t, l, s, true, 7))
		require.False(t, knows(t, l, s, false, 7))
	}
}

func TestTwoProcessesSeeEachOthersTurns(t *testing.T) {
	server := redistest.Start(t)
	ledgers := []*ledger.Ledger{shared(t, server.Client()), shared(t, server.Client())}
	for i := range 20 {
		ledgers[i%2].Record(t.Context(), turnOf(turnScope, i))
		saved(t, ledgers[i%2])
		require.True(t, knows(t, ledgers[1-i%2], turnScope, false, i), "turn %d", i)
	}
	var running sync.WaitGroup
	for p, l := range ledgers {
		running.Go(func() {
			for i := range 50 {
				l.Record(t.Context(), turnOf(turnScope, 100+100*p+i))
			}
		})
	}
	running.Wait()
	for p := range ledgers {
		saved(t, ledgers[p])
		for i := range 50 {
			require.True(t, knows(t, ledgers[1-p], turnScope, false, 100+100*p+i))
		}
	}
}

func TestReadableWithRedisCli(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	l := shared(t, client)
	l.Record(t.Context(), turnOf(turnScope, 1))
	saved(t, l)
	key := "proxy:turns:{" + turnScope.Tenant + ":c:1}:main"
	record := client.HGet(t.Context(), key, "1").Val()
	require.Contains(t, record, `"v":1`)
	require.Contains(t, record, `"content":`+turnContent(1)+`}`)
	for _, k := range client.Keys(t.Context(), "*").Val() {
		require.Positive(t, client.PTTL(t.Context(), k).Val(), "%s has a TTL", k)
	}
}

func TestBoundsInRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	turns := redisstore.NewTurns(client, redisstore.TurnLimits{Entries: 10, Bytes: 20 << 10})
	l := ledger.New(ledger.Config{Remote: turns})
	for i := range 50 {
		l.Record(t.Context(), turnOf(turnScope, i))
	}
	closeLedger(t, l)
	again := shared(t, client)
	for i := range 50 {
		require.Equal(t, i >= 40, knows(t, again, turnScope, false, i), "turn %d", i)
	}
	require.Len(t, client.Keys(t.Context(), "proxy:turn:*").Val(), 2*10, "what led to the others is gone")

	big := turnOf(turnScope, 0)
	big.Content = []byte(`[{"type":"text","text":"` + strings.Repeat("x", 30<<10) + `"}]`)
	l = ledger.New(ledger.Config{Remote: turns})
	l.Record(t.Context(), big)
	closeLedger(t, l)
	require.EqualValues(t, 1+4, client.HLen(t.Context(), "proxy:turns:{"+turnScope.Tenant+":c:1}:main").Val())

	// A signature that leads everywhere leads nowhere, and grows no set.
	l = ledger.New(ledger.Config{Remote: turns})
	for i := range 20 {
		s := turnScope
		s.Conversation = fmt.Sprint("stamped", i)
		turn := turnOf(s, 1000)
		l.Record(t.Context(), turn)
	}
	closeLedger(t, l)
	for _, k := range client.Keys(t.Context(), "proxy:turn:*").Val() {
		require.LessOrEqual(t, client.SCard(t.Context(), k).Val(), int64(2))
	}
	minted := turnScope
	minted.Conversation = "minted"
	require.False(t, knows(t, shared(t, client), minted, true, 1000))
}

func TestForgetEverywhere(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	client := server.Client()
	one, two := shared(t, client), shared(t, server.Client())
	mate := turnScope
	mate.Route = "teammate/analytic"
	begun := time.Now()
	for i := range 3 {
		one.Record(t.Context(), turnOf(turnScope, i))
		one.Record(t.Context(), turnOf(mate, i))
	}
	saved(t, one)
	require.True(t, knows(t, two, turnScope, false, 1))
	require.NoError(t, one.Forget(t.Context(), turnScope.Tenant, turnScope.Conversation))
	require.False(t, knows(t, one, turnScope, false, 1))
	require.False(t, knows(t, shared(t, client), turnScope, false, 1))
	require.Empty(t, client.Keys(t.Context(), "proxy:turn:*").Val())
	require.Empty(t, client.Keys(t.Context(), "proxy:turns:*:main").Val())
	require.Eventually(t, func() bool { return !knows(t, two, turnScope, false, 1) }, 30*time.Second, 5*time.Millisecond)

	// Late writers: one that knows of the erasure, and one that cannot.
	three := ledger.New(ledger.Config{Remote: redisstore.NewTurns(client, redisstore.TurnLimits{})})
	for _, l := range []*ledger.Ledger{two, three} {
		late := turnOf(turnScope, 2)
		late.Time = begun
		l.Record(t.Context(), late)
	}
	closeLedger(t, three)
	require.False(t, knows(t, shared(t, client), turnScope, false, 2))
	require.Empty(t, client.Keys(t.Context(), "proxy:turn:*").Val())

	two.Record(t.Context(), turnOf(turnScope, 5))
	saved(t, two)
	require.True(t, knows(t, one, turnScope, false, 5), "the conversation may begin anew")
}

// expiries are the TTLs of a conversation's keys, the shortest one first.
func expiries(t testing.TB, client redis.UniversalClient, conversation string) (all []time.Duration) {
	meta := "proxy:turns:{" + turnScope.Tenant + ":" + conversation + "}"
	for _, route := range []string{"", ":main", ":teammate/analytic"} {
		if left := client.PTTL(t.Context(), meta+route).Val(); left > 0 {
			all = append(all, left)
		}
	}
	slices.Sort(all)
	return all
}

const day = 24 * time.Hour

// keptTurns keeps a conversation of two routes, of which one begins later, and erases it.
func keptTurns(t testing.TB, client redis.UniversalClient) {
	l := shared(t, client)
	mate, other := turnScope, turnScope
	mate.Route, other.Conversation = "teammate/analytic", "other"
	until := time.Now().Add(3*day + time.Hour)
	l.Record(t.Context(), turnOf(turnScope, 0))
	saved(t, l)
	require.Less(t, expiries(t, client, "c:1")[0], 2*day)
	for _, at := range []time.Time{until, until, until.Add(-day)} {
		require.NoError(t, l.Keep(t.Context(), turnScope.Tenant, turnScope.Conversation, at))
	}
	for i := 1; i < 3; i++ {
		for _, s := range []ledger.Scope{turnScope, mate, other} {
			l.Record(t.Context(), turnOf(s, i))
		}
	}
	saved(t, l)
	left := expiries(t, client, "c:1")
	require.Len(t, left, 3)
	require.Greater(t, left[0], 3*day)
	require.Less(t, left[2], 4*day)
	require.Less(t, expiries(t, client, "other")[1], 2*day)
	require.True(t, knows(t, shared(t, client), mate, false, 1))
	require.NoError(t, l.Forget(t.Context(), turnScope.Tenant, turnScope.Conversation))
	l.Record(t.Context(), turnOf(turnScope, 5))
	saved(t, l)
	require.Less(t, expiries(t, client, "c:1")[1], 2*day, "an erasure ends it")
}

func TestTurnsAreKept(t *testing.T) {
	keptTurns(t, redistest.Start(t).Client())
}

func TestTurnsAreKeptInTheEmbeddedStore(t *testing.T) {
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Dialer: s.Dial, ContextTimeoutEnabled: true})
	keptTurns(t, client)
	require.NoError(t, client.Close())
	require.NoError(t, s.Close())
}

// One without a turn is kept from its first turn on, by whichever process has it.
func TestTurnsAreKeptBeforeTheyAreThere(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, shared(t, server.Client()).Keep(t.Context(), turnScope.Tenant, turnScope.Conversation,
		time.Now().Add(3*day)))
	l := shared(t, server.Client())
	l.Record(t.Context(), turnOf(turnScope, 1))
	saved(t, l)
	require.Greater(t, expiries(t, server.Client(), "c:1")[0], 2*day)
}

func TestRedisKilledAndBack(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	l := shared(t, server.Client())
	l.Record(t.Context(), turnOf(turnScope, 0))
	saved(t, l)
	server.Kill()
	require.Error(t, l.Keep(t.Context(), "", "another", time.Now().Add(day)), "what is not kept in Redis is said")
	for i := 1; i < 20; i++ {
		l.Record(t.Context(), turnOf(turnScope, i))
		require.True(t, knows(t, l, turnScope, false, i), "from memory")
	}
	require.Eventually(t, l.Degraded, 30*time.Second, 2*time.Millisecond)
	require.Error(t, l.Forget(t.Context(), "", "another"), "what is not erased in Redis is said")
	require.NoError(t, server.Run()) // it kept nothing
	saved(t, l)
	require.False(t, knows(t, l, turnScope, false, 99), "which makes it look")
	saved(t, l)
	other := shared(t, server.Client())
	for i := range 20 {
		require.True(t, knows(t, other, turnScope, false, i), "turn %d", i)
	}
}

func TestRedisHangs(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	l := ledger.New(ledger.Config{Remote: redisstore.NewTurns(server.Client(), redisstore.TurnLimits{})})
	l.Record(t.Context(), turnOf(turnScope, 0))
	saved(t, l)
	server.Signal(syscall.SIGSTOP)
	for i := range 100 {
		l.Record(t.Context(), turnOf(turnScope, 1+i))
		require.False(t, knows(t, l, turnScope, false, 1000+i))
		require.True(t, knows(t, l, turnScope, false, 1+i))
	}
	require.Eventually(t, l.Degraded, 30*time.Second, 2*time.Millisecond)
	server.Signal(syscall.SIGCONT)
	saved(t, l)
	closeLedger(t, l)
	again := shared(t, server.Client())
	for i := range 101 {
		require.True(t, knows(t, again, turnScope, false, i))
	}
}

func TestCloseSaysWhatIsLost(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	l := shared(t, server.Client())
	server.Kill()
	l.Record(t.Context(), turnOf(turnScope, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, l.Close(ctx), "1 turns and refusals were not saved")
	l.Record(t.Context(), turnOf(turnScope, 1))
	require.True(t, knows(t, l, turnScope, false, 1), "memory goes on")
	require.Error(t, l.Close(ctx))
}

func TestLedgersLeaveNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	l := ledger.New(ledger.Config{Remote: redisstore.NewTurns(client, redisstore.TurnLimits{})})
	l.Record(t.Context(), turnOf(turnScope, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, l.Close(ctx))
	require.NoError(t, client.Close())
}

func TestTurnsOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	cluster := redistest.StartCluster(t)
	l := shared(t, cluster.Client())
	for i := range 30 {
		s := turnScope
		s.Conversation = fmt.Sprint("c", i)
		l.Record(t.Context(), turnOf(s, i))
	}
	saved(t, l)
	other := shared(t, cluster.Client())
	for i := range 30 {
		s := turnScope
		s.Conversation = fmt.Sprint("c", i)
		require.True(t, knows(t, other, s, false, i))
		s.Conversation = "minted"
		require.True(t, knows(t, shared(t, cluster.Client()), s, true, i))
	}
	require.NoError(t, l.Forget(t.Context(), turnScope.Tenant, "c3"))
	gone := turnScope
	gone.Conversation = "c3"
	require.False(t, knows(t, shared(t, cluster.Client()), gone, false, 3))
	keptTurns(t, cluster.Client())
}

// The store of one process without a Redis, after a restart too.
func TestTurnsInTheEmbeddedStore(t *testing.T) {
	dir := t.TempDir()
	for start := range 2 {
		s, err := embedded.Open(t.Context(), embedded.Options{Dir: dir, Log: zerolog.Nop()})
		require.NoError(t, err)
		client := redis.NewClient(&redis.Options{Dialer: s.Dial, ContextTimeoutEnabled: true})
		l := shared(t, client)
		minted := turnScope
		minted.Conversation = "minted"
		for i := range 5 {
			if start == 0 {
				l.Record(t.Context(), turnOf(turnScope, i))
			}
			require.True(t, knows(t, l, turnScope, false, i))
			require.True(t, knows(t, l, minted, true, i))
		}
		if start == 1 {
			require.NoError(t, l.Forget(t.Context(), turnScope.Tenant, turnScope.Conversation))
			require.False(t, knows(t, shared(t, client), turnScope, false, 1))
		}
		closeLedger(t, l)
		require.NoError(t, client.Close())
		require.NoError(t, s.Close())
	}
}

func TestEntriesThatCannotBeReadArePassedOver(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	l := shared(t, client)
	for i := range 5 {
		l.Record(t.Context(), turnOf(turnScope, i))
	}
	saved(t, l)
	key := "proxy:turns:{" + turnScope.Tenant + ":c:1}:main"
	for field, value := range map[string]string{"1": "garbage", "2": `{"v":99,"content":[]}`,
		"3": `{"v":1,"at":1,"dialect":"messages","content":5}`} {
		require.NoError(t, client.HSet(t.Context(), key, field, value).Err())
	}
	other := shared(t, client)
	for i := range 5 {
		require.Equal(t, i >= 3, knows(t, other, turnScope, false, i), "turn %d", i)
	}
	require.False(t, other.Degraded())
}

// One key that another program uses keeps no caller from the others.
func TestAKeyThatHoldsSomethingElse(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	meta := "proxy:turns:{" + turnScope.Tenant + ":c:1}"
	require.NoError(t, client.Set(t.Context(), meta+":main", "mine", 0).Err())
	require.NoError(t, client.Set(t.Context(), meta, "mine", 0).Err())
	l := shared(t, client)
	other := turnScope
	other.Conversation = "c2"
	for i := range 3 {
		l.Record(t.Context(), turnOf(turnScope, i))
		require.True(t, knows(t, l, turnScope, false, i))
		l.Record(t.Context(), turnOf(other, 10+i))
	}
	saved(t, l)
	again := shared(t, client)
	require.False(t, knows(t, again, turnScope, false, 1))
	require.True(t, knows(t, again, other, false, 11))
	require.False(t, again.Degraded())
	require.Equal(t, "mine", client.Get(t.Context(), meta).Val())
}
