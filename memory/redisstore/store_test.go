package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

var ctx = context.Background()

// A server that refuses INFO has no run id. That does not count as a loss of data.
func TestAServerWithoutINFOHasNoID(t *testing.T) {
	server := redistest.Start(t, "--save", "")
	client := server.Client()
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	ids, full, err := redisstore.New(client, zerolog.Nop()).Server.RunIDs(t.Context())
	require.NoError(t, err)
	require.Empty(t, ids)
	require.Zero(t, full)
}

func TestSuiteOverRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	runSuite(t, func(t *testing.T) (memory.Store, memory.Store) {
		client := server.Client()
		require.NoError(t, client.FlushAll(ctx).Err())
		return redisstore.New(client, zerolog.Nop()), redisstore.New(server.Client(), zerolog.Nop())
	})
}

func TestSuiteOverCachedRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	runSuite(t, func(t *testing.T) (memory.Store, memory.Store) {
		client := server.Client()
		require.NoError(t, client.FlushAll(ctx).Err())
		return cache.New(redisstore.New(client, zerolog.Nop()), 1<<20),
			cache.New(redisstore.New(server.Client(), zerolog.Nop()), 1<<20)
	})
}

// world is one store over one Redis, with a look past the store.
type world struct {
	*redisstore.Store
	redis *redis.Client
}

func newWorld(t *testing.T) world {
	client := redistest.Start(t).Client()
	return world{redisstore.New(client, zerolog.Nop()), client}
}

func (w world) load(t *testing.T, turn int64, have *memory.History) *memory.History {
	t.Helper()
	h, err := w.Load(ctx, turn, have)
	require.NoError(t, err)
	return h[0]
}

func message(text string) []byte {
	return memory.Message{Role: memory.RoleUser, Content: text, Timestamp: 1}.Encode()
}

var key = memory.SubagentKey("analytic", memory.MustChat("12345"))

func TestForeignValues(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"as the original service wrote it": `[{"role": "user", "content": "\u041f\u0440\u0438\u0432\u0435\u0442", ` +
			`"timestamp": 1.5}, {"role": "assistant", "content": "hi", "timestamp": 2}]`,
		"pretty-printed": "[\n  {\n    \"role\": \"user\",\n    \"content\": \"Привет\"\n  },\n  " +
			"{\"role\": \"assistant\", \"content\": \"hi\"}\n]",
		"with a newline at the end": `[{"role":"user","content":"Привет"},{"role":"assistant","content":"hi"}]` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, w.redis.Set(ctx, key.String(), value, 0).Err())
			h := w.load(t, 5, memory.Empty(key))
			require.Equal(t, 2, h.Len())
			_, err := w.Append(ctx, h, memory.Mark{Run: "r", Seq: 1, Turn: 5}, message("new"))
			require.NoError(t, err)
			messages, err := w.load(t, 0, memory.Empty(key)).Messages(0)
			require.NoError(t, err)
			require.Equal(t, "Привет", messages[0].Content)
			require.Equal(t, "new", messages[2].Content)
			require.EqualValues(t, 1, w.Counts.Adopted.Load())
		})
	}
}

func TestForeignWriterAfterUs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, test := range map[string]struct {
		value string
		want  int
	}{
		"appended": {`[{"role":"user","content":"1","timestamp":1},{"role":"user","content":"by hand"}]`,
			2},
		"emptied":                    {`[]`, 0},
		"shortened":                  {`[{"role":"user","content":"x"}]`, 1},
		"replaced, of equal length":  {`[{"role":"user","content":"2","timestamp":1}]`, 1},
		"with a newline at the end":  {"[{\"role\":\"user\",\"content\":\"1\",\"timestamp\":1}]\n", 1},
		"truncated in the middle":    {`[{"role":"user","conte`, 0},
		"not JSON at all":            {`hello`, 0},
		"JSON, but not an array":     {`{"role":"user","content":"1"}`, 0},
		"an array of something else": {`[1,2,3]`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h, err := w.Append(ctx, memory.Empty(key), memory.Mark{Run: "r", Seq: 1, Turn: 5}, message("1"))
			require.NoError(t, err)
			require.NoError(t, w.redis.Set(ctx, key.String(), test.value, 0).Err())
			found := w.load(t, 6, memory.Empty(key)) // no copy: a full read
			require.Equal(t, test.want, found.Len())
			_, err = w.Append(ctx, h, memory.Mark{Run: "s", Seq: 1, Turn: 6}, message("next")) // with the copy of before
			require.NoError(t, err)
			messages, err := w.load(t, 0, memory.Empty(key)).Messages(0)
			require.NoError(t, err)
			require.Len(t, messages, test.want+1)
			require.Equal(t, "next", messages[test.want].Content)
			if w.Counts.Damaged.Load() > 0 {
				aside, err := w.redis.Keys(ctx, "{"+key.String()+"}:damaged:*").Result()
				require.NoError(t, err)
				require.Len(t, aside, 1)
				require.Equal(t, test.value, w.redis.Get(ctx, aside[0]).Val(), "what was set aside is kept as it was")
			}
		})
	}
}

// Redis loses a history and another process writes one of equal length: a copy of
// the first is not taken for the second, and both are kept.
func TestLossAndRecreationWithEqualLength(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mark := memory.Mark{Run: "r", Seq: 1, Turn: 5}
	old, err := w.Append(ctx, memory.Empty(key), mark, message("one"))
	require.NoError(t, err)
	require.NoError(t, w.redis.FlushAll(ctx).Err())
	_, err = redisstore.New(w.redis, zerolog.Nop()).Append(ctx, memory.Empty(key), mark, message("two"))
	require.NoError(t, err)
	found := w.load(t, 6, old)
	require.ElementsMatch(t, []string{"one", "two"}, contents(t, found))
	require.Equal(t, contents(t, found), contents(t, w.load(t, 7, memory.Empty(key))))
}

// A foreign write that keeps the length and leaves the meta is found once the copy
// has been in use for a while.
func TestAForgedValueIsFoundInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, err := w.Append(ctx, memory.Empty(key), memory.Mark{Run: "r", Seq: 1, Turn: 5}, message("one"))
	require.NoError(t, err)
	forged := strings.Replace(string(h.JSON()), "one", "two", 1)
	require.NoError(t, w.redis.Set(ctx, key.String(), forged, 0).Err())
	read := w.load(t, 6, memory.Empty(key))
	require.Same(t, read, w.load(t, 7, read), "it is taken as it stands at first")
	redisstore.Later(w.Store, time.Minute)
	adopted := w.load(t, 8, read)
	require.Equal(t, []string{"two"}, contents(t, adopted))
	require.Contains(t, string(adopted.JSON()), `,"id":"x`, "what is rewritten gets its ids")
	require.EqualValues(t, 1, w.Counts.Adopted.Load())
	_, err = w.Append(ctx, adopted, memory.Mark{Run: "r", Seq: 2, Turn: 8}, message("more"))
	require.NoError(t, err)
	require.EqualValues(t, 0, w.Counts.Stale.Load())
}

func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.redis.Set(ctx, key.String(), `not json`, 0).Err())
	_, err := w.Load(ctx, 0, memory.Empty(key))
	require.ErrorIs(t, err, memory.ErrDamaged)
	require.Equal(t, "not json", w.redis.Get(ctx, key.String()).Val())
	require.EqualValues(t, 1, w.redis.DBSize(ctx).Val())
}

func TestWhatAbsenceMeans(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	first := memory.Mark{Run: "r", Seq: 1, Turn: 5}
	t.Run("deleted by hand: empty, the copy is dropped", func(t *testing.T) {
		w := newWorld(t)
		h, err := w.Append(ctx, memory.Empty(key), first, message("1"))
		require.NoError(t, err)
		require.NoError(t, w.redis.Del(ctx, key.String()).Err())
		require.Zero(t, w.load(t, 6, h).Len())
		require.Zero(t, w.load(t, 7, h).Len(), "a copy elsewhere does not bring it back")
		require.EqualValues(t, 1, w.Counts.Deleted.Load())
	})
	t.Run("Redis lost everything: the copy is written back", func(t *testing.T) {
		w := newWorld(t)
		h, err := w.Append(ctx, memory.Empty(key), first, message("1"))
		require.NoError(t, err)
		require.NoError(t, w.redis.FlushAll(ctx).Err())
		require.Equal(t, 1, w.load(t, 6, h).Len())
		require.Equal(t, 1, w.load(t, 0, memory.Empty(key)).Len())
		require.EqualValues(t, 1, w.Counts.Recovered.Load())
	})
	t.Run("Redis lost everything and nobody has a copy: new", func(t *testing.T) {
		w := newWorld(t)
		require.Zero(t, w.load(t, 6, memory.Empty(key)).Len())
	})
	t.Run("Redis is away: an error", func(t *testing.T) {
		server := redistest.Start(t)
		store := redisstore.New(server.Client(), zerolog.Nop())
		h, err := store.Append(ctx, memory.Empty(key), first, message("1"))
		require.NoError(t, err)
		server.Kill()
		_, err = store.Load(ctx, 0, memory.Empty(key))
		require.ErrorIs(t, err, memory.ErrUnavailable)
		_, err = store.Append(ctx, h, memory.Mark{Run: "r", Seq: 2, Turn: 5}, message("2"))
		require.ErrorIs(t, err, memory.ErrUnavailable)
	})
}

// A failover may lose the last writes; a process that has them cached brings them back.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	say := func(w world, h *memory.History, seq int64, text string) *memory.History {
		m := memory.Message{Role: memory.RoleUser, Content: text, Timestamp: float64(seq)}
		h, err := w.Append(ctx, h, memory.Mark{Run: "r", Seq: seq, Turn: 5}, m.Encode())
		require.NoError(t, err)
		return h
	}
	contents := func(h *memory.History) (out []string) {
		messages, err := h.Messages(0)
		require.NoError(t, err)
		for _, m := range messages {
			out = append(out, m.Content)
		}
		return out
	}
	for name, test := range map[string]struct {
		others []string // what was written after the failover, before we came
		want   []string
	}{
		"nobody wrote since":   {nil, []string{"1", "2", "3"}},
		"somebody wrote since": {[]string{"other"}, []string{"1", "2", "3", "other"}},
		"somebody wrote more":  {[]string{"a", "b", "c"}, []string{"1", "2", "3", "a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := say(w, memory.Empty(key), 1, "1")
			before := map[string]string{}
			for _, k := range []string{"sum", "len", "count", "turn", "applied"} {
				before[k] = w.redis.HGet(ctx, "{"+key.String()+"}:meta", k).Val()
			}
			value := w.redis.Get(ctx, key.String()).Val()
			h = say(w, say(w, h, 2, "2"), 3, "3")
			// What a replica that had not heard of the last two would hold.
			require.NoError(t, w.redis.Set(ctx, key.String(), value, 0).Err())
			require.NoError(t, w.redis.HSet(ctx, "{"+key.String()+"}:meta", before).Err())
			for i, text := range test.others {
				m := memory.Message{Role: memory.RoleUser, Content: text, Timestamp: 10}
				_, err := w.Append(ctx, memory.Empty(key), memory.Mark{Run: "s", Seq: int64(i + 1), Turn: 6}, m.Encode())
				require.NoError(t, err)
			}
			require.Equal(t, test.want, contents(w.load(t, 7, h)))
			require.Equal(t, test.want, contents(w.load(t, 7, memory.Empty(key))))
			require.Equal(t, test.want, contents(w.load(t, 8, h)), "once")
			require.EqualValues(t, 1, w.Counts.Recovered.Load())
		})
	}
}

func TestStoredFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, err := w.Append(ctx, memory.Empty(key), memory.Mark{Run: "ABC", Seq: 2, Turn: 1763711157250}, message("1"))
	require.NoError(t, err)
	h, err = w.Append(ctx, h, memory.Mark{Run: "DEF", Seq: 4, Turn: 1763711157251}, message("2"))
	require.NoError(t, err)
	require.Equal(t, `[{"role":"user","content":"1","timestamp":1},{"role":"user","content":"2","timestamp":1}]`,
		w.redis.Get(ctx, "subagent:analytic:12345").Val())
	require.Equal(t, map[string]string{
		"sum": h.Sum().String(), "len": "89", "count": "2", "turn": "1763711157251", "applied": "DEF=4 ABC=2",
	}, w.redis.HGetAll(ctx, "{subagent:analytic:12345}:meta").Val())
	require.Equal(t, []string{"s:analytic"}, w.redis.HKeys(ctx, "{chat_history:12345}:meta").Val(), "the index")
}

func TestAppliedRemembersTheLastRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	var err error
	for i := range 40 {
		h, err = w.Append(ctx, h, memory.Mark{Run: string(rune('a'+i%26)) + string(rune('A'+i/26)), Seq: 1, Turn: 5},
			message("x"))
		require.NoError(t, err)
	}
	again, err := w.Append(ctx, h, memory.Mark{Run: "iA", Seq: 1, Turn: 5}, message("x")) // the 32nd newest
	require.NoError(t, err)
	require.Equal(t, 40, again.Len())
}

func TestAFullHistoryRefusesAndStays(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	big := message(string(make([]byte, 1<<20)))
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 200)
		var grown *memory.History
		if grown, err = w.Append(ctx, h, memory.Mark{Run: "r", Seq: int64(i + 1), Turn: 5}, big); err == nil {
			h = grown
		}
	}
	require.ErrorIs(t, err, memory.ErrFull)
	require.Greater(t, h.Size(), memory.MaxHistory)
	require.EqualValues(t, h.Size(), w.redis.StrLen(ctx, key.String()).Val())
}

func TestTrim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	var err error
	for i := range 13 {
		m := memory.Message{Role: []string{memory.RoleUser, memory.RoleAssistant}[i%2], Content: fmt.Sprint(i),
			Timestamp: float64(i + 1)}
		h, err = w.Append(ctx, h, memory.Mark{Run: "r", Seq: int64(i + 1), Turn: 5}, m.Encode())
		require.NoError(t, err)
		if i == 11 {
			same, err := w.Archives.Trim(ctx, h, 5, 10)
			require.NoError(t, err)
			require.Same(t, h, same, "up to a quarter more is left")
		}
	}
	short, err := w.Archives.Trim(ctx, h, 5, 10)
	require.NoError(t, err)
	require.Equal(t, 9, short.Len(), "ten, from the first user message on")
	require.Equal(t, short.JSON(), w.load(t, 0, memory.Empty(key)).JSON())
	again, err := w.Append(ctx, h, memory.Mark{Run: "r", Seq: 13, Turn: 5}, message("x"))
	require.NoError(t, err)
	require.Equal(t, 9, again.Len(), "what was applied before a trim is still a duplicate")
	_, err = w.Archives.Trim(ctx, short, 4, 2)
	require.ErrorIs(t, err, memory.ErrMoved)
}

// A copy of a history that another process has trimmed since is shortened here, and only what
// it lacks moves. If Redis has lost a part of it besides, that is brought back as ever.
func TestACopyFollowsATrim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	grow := func(h *memory.History, turn int64, from, to int) *memory.History {
		t.Helper()
		for i := from; i < to; i++ {
			run := fmt.Sprintf("run%d", i/2)
			m := memory.Message{Role: []string{memory.RoleUser, memory.RoleAssistant}[i%2], Content: fmt.Sprint(i),
				Timestamp: float64(i + 1), ID: memory.MessageID(run, int64(i%2+1))}
			var err error
			h, err = w.Append(ctx, h, memory.Mark{Run: run, Seq: int64(i%2 + 1), Turn: turn}, m.Encode())
			require.NoError(t, err)
		}
		return h
	}
	copied := grow(memory.Empty(key), 5, 0, 12)
	short, err := w.Archives.Trim(ctx, grow(copied, 5, 12, 14), 5, 10)
	require.NoError(t, err)
	stored := grow(short, 5, 14, 16)
	require.Equal(t, 12, stored.Len())
	read := commandCalls(t, w.redis, "get")
	loaded := w.load(t, 6, copied)
	require.Equal(t, stored.JSON(), loaded.JSON())
	require.Equal(t, stored.Sum(), loaded.Sum())
	require.Equal(t, stored.First(), loaded.First())
	require.Equal(t, read, commandCalls(t, w.redis, "get"), "nobody read it whole")

	longer := grow(loaded, 6, 16, 18)
	lost := memory.Empty(key)
	for _, raw := range longer.Raw(0)[4:10] {
		lost = lost.With(raw)
	}
	require.NoError(t, w.redis.Set(ctx, key.String(), lost.JSON(), 0).Err())
	require.NoError(t, w.redis.HSet(ctx, "{"+key.String()+"}:meta", "sum", lost.Sum().String(), "len", lost.Size(),
		"count", lost.Len(), "first", lost.IDs()[0]).Err())
	require.Equal(t, longer.Raw(4), w.load(t, 7, longer).Raw(0), "what Redis lost behind it is brought back")
}

// Many leases are renewed at once, each with an answer of its own: also after a restart
// of Redis, which forgets scripts, and one that is lost does not spoil the others.
func TestManyLeasesAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var leases []redisstore.Lease
	for i := range 20 {
		chat, token := memory.MustChat(strconv.Itoa(i)), fmt.Sprint("of ", i)
		turn, err := w.Turns.Take(ctx, chat, token, "conversation", time.Minute)
		require.NoError(t, err)
		run := redisstore.OpenRun{Run: "r", Turn: turn.Number}
		require.NoError(t, failure(w.Turns.Open(ctx, chat, token, time.Minute, run)))
		leases = append(leases, redisstore.Lease{Chat: chat, Token: token})
	}
	require.NoError(t, w.Turns.Leave(ctx, leases[3].Chat, leases[3].Token))
	leases[5].Token = "of another"
	for range 2 {
		held, failed := w.Turns.RenewAll(ctx, time.Minute, leases)
		for i := range leases {
			require.NoError(t, failed[i])
			require.Equal(t, i != 3 && i != 5, held[i], "%d", i)
		}
		left, err := w.Turns.Abandoned(ctx)
		require.NoError(t, err)
		require.Equal(t, []memory.Chat{leases[3].Chat}, left, "who finds a run left may look after it")
		require.NoError(t, w.redis.ScriptFlush(ctx).Err())
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, err := w.Turns.Take(ctx, memory.MustChat("12345"), "one", "conversation", 60e9)
	require.NoError(t, err)
	require.Equal(t, "conversation", first.Conversation)
	_, err = w.Turns.Take(ctx, memory.MustChat("12345"), "two", "other", 60e9)
	var held *redisstore.HeldError
	require.ErrorAs(t, err, &held)
	require.Positive(t, held.Remaining)

	ok, failed := w.Turns.RenewAll(ctx, 60e9, []redisstore.Lease{{Chat: memory.MustChat("12345"), Token: "one"},
		{Chat: memory.MustChat("12345"), Token: "two"}})
	require.Equal(t, []error{nil, nil}, failed)
	require.Equal(t, []bool{true, false}, ok)

	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("12345"), "two"), "gives back nothing")
	_, err = w.Turns.Take(ctx, memory.MustChat("12345"), "two", "other", 60e9)
	require.ErrorAs(t, err, &held)
	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("12345"), "one"))

	_, err = w.Append(ctx, memory.Empty(key), memory.Mark{Run: "r", Seq: 1, Turn: first.Number}, message("1"))
	require.NoError(t, err)
	second, err := w.Turns.Take(ctx, memory.MustChat("12345"), "two", "other", 60e9)
	require.NoError(t, err)
	require.Greater(t, second.Number, first.Number)
	require.Equal(t, "conversation", second.Conversation, "a chat keeps its conversation")
	require.Equal(t, []memory.Agent{"analytic"}, second.Agents)
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, err := w.Append(ctx, memory.Empty(key), memory.Mark{Run: "r", Seq: 1, Turn: 5}, message("1"))
	require.NoError(t, err)
	require.NoError(t, w.redis.ScriptFlush(ctx).Err())
	both, err := w.Load(ctx, 6, h, memory.Empty(memory.ChatKey(memory.MustChat("12345"))))
	require.NoError(t, err)
	require.Same(t, h, both[0])
	require.NoError(t, w.redis.ScriptFlush(ctx).Err())
	_, err = w.Append(ctx, h, memory.Mark{Run: "r", Seq: 2, Turn: 6}, message("2"))
	require.NoError(t, err)
}

func TestLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, k := range []memory.Key{memory.ChatKey(memory.MustChat("1")), memory.SubagentKey("b", memory.MustChat("1")),
		memory.SubagentKey("a", memory.MustChat("1")), memory.ChatKey(memory.MustChat("x:1")),
		memory.SubagentKey("a", memory.MustChat("x:1"))} {
		_, err := w.Append(ctx, memory.Empty(k), memory.Mark{Run: "r", Seq: int64(i + 1), Turn: 5}, message("1"))
		require.NoError(t, err)
	}
	require.NoError(t, w.redis.Set(ctx, "subagent:foreign:1", `[{"role":"user","content":"x"}]`, 0).Err())
	require.NoError(t, w.redis.Set(ctx, "chat_history:bad id", `[]`, 0).Err())

	var chats []memory.Chat
	for cursor := ""; ; {
		some, next, err := w.Chats.Page(ctx, cursor, 1)
		require.NoError(t, err)
		chats = append(chats, some...)
		if cursor = next; cursor == "" {
			break
		}
	}
	require.ElementsMatch(t, []memory.Chat{memory.MustChat("1"), memory.MustChat("x:1")}, chats)

	stored, err := w.Chats.Histories(ctx, memory.MustChat("1"), "b", "foreign", "unused")
	require.NoError(t, err)
	var keys []string
	for _, s := range stored {
		keys = append(keys, s.Key.String())
	}
	require.Equal(t, []string{"chat_history:1", "subagent:a:1", "subagent:b:1", "subagent:foreign:1"}, keys)
}
