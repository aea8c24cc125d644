package redisstore_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// sharded is a store whose lists have so many shards.
func sharded(client redis.UniversalClient, shards int) *redisstore.Store {
	s := redisstore.New(client, zerolog.Nop())
	s.ListShards = shards
	return s
}

// listed are the members that all keys of the lists of chats have, each with its score; of one that is in several keys,
// the test ends.
func listed(t require.TestingT, client redis.UniversalClient, keys ...string) map[string]float64 {
	all := map[string]float64{}
	for _, key := range keys {
		for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
			require.NotContains(t, all, z.Member, key)
			all[z.Member.(string)] = z.Score
		}
	}
	return all
}

// pages reads a whole list, and does something between pages.
func pages(t require.TestingT, s *redisstore.Store, after redisstore.Place, size int, between func(at redisstore.Place),
) (all []redisstore.Place) {
	for {
		page, err := s.Chats.ByUse(ctx, memory.Tenant{}, after, size)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), size)
		all = append(all, page...)
		if len(page) < size {
			return all
		}
		after = page[size-1]
		between(after)
	}
}

// A list in many shards is read as the one list that it is: in the order of use, each chat once, whatever leaves it
// between two pages, in whichever of the keys an entry lies, and in however many.
func TestShardsAreReadAsOneList(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, client.FlushAll(ctx).Err())
		shards := rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "shards")
		s := sharded(client, shards)
		keys := []string{"mneme:chats"}
		for n := 1; n <= shards && shards > 1; n++ {
			keys = append(keys, memory.ShardKey(memory.KindChats, memory.Tenant{}, n))
		}
		want, pins := map[string]int64{}, map[string]int64{}
		for i := range rapid.IntRange(0, 60).Draw(t, "chats") {
			id := fmt.Sprintf("c%d", i)
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "copies") {
				used := rapid.Int64Range(0, 6).Draw(t, "used")
				want[id] = max(want[id], used)
				key := rapid.SampledFrom(keys).Draw(t, "key")
				require.NoError(t, client.ZAddGT(ctx, key, redis.Z{Score: float64(used), Member: id}).Err())
			}
			if rapid.IntRange(0, 4).Draw(t, "pinned") == 0 {
				pins[id] = -1
				key := rapid.SampledFrom(keys).Draw(t, "key")
				require.NoError(t, client.ZAdd(ctx, key, redis.Z{Score: -1, Member: "*pin:" + id}).Err())
			}
		}
		order := func(of map[string]int64) (all []redisstore.Place) {
			for id, used := range of {
				all = append(all, redisstore.Place{Used: used, Member: id})
			}
			slices.SortFunc(all, func(a, b redisstore.Place) int {
				return cmp.Or(cmp.Compare(b.Used, a.Used), strings.Compare(b.Member, a.Member))
			})
			return all
		}
		expect := order(want)
		got := pages(t, s, redisstore.Place{}, rapid.IntRange(1, 20).Draw(t, "size"), func(at redisstore.Place) {
			gone := rapid.SampledFrom(append(slices.Sorted(maps.Keys(want)), at.Member)).Draw(t, "gone")
			for _, key := range keys {
				require.NoError(t, client.ZRem(ctx, key, gone).Err())
			}
			place := redisstore.Place{Used: want[gone], Member: gone}
			if slices.Index(expect, place) > slices.Index(expect, at) {
				expect = slices.DeleteFunc(expect, func(p redisstore.Place) bool { return p == place })
			}
			delete(want, gone)
			if len(want) == 0 {
				want[""] = 0
			}
		})
		require.Equal(t, expect, got)
		if delete(want, ""); len(pins) > 0 {
			require.Equal(t, order(pins), pages(t, s, redisstore.Pins, 100, nil))
		}
		// What was read lies where it belongs, once.
		once := listed(t, client, keys...)
		require.Len(t, once, len(want)+len(pins))
	})
}

// A number of shards that is raised loses no chat and no pin, and neither do two processes with different numbers.
func TestShardsThatBecomeMore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) { testShardsThatBecomeMore(t, redistest.Start(t).Client()) })
	t.Run("a Cluster", func(t *testing.T) { testShardsThatBecomeMore(t, redistest.StartCluster(t).Client()) })
}

// A chat that sleeps is found by processes with any number of shards, and is in no list once one of them woke it.
func TestChatsThatSleepInShards(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{"one Redis": redistest.Start(t).Client(),
		"a Cluster": redistest.StartCluster(t).Client()} {
		t.Run(name, func(t *testing.T) {
			var stores []*redisstore.Store
			for _, shards := range []int{1, 2, 64, memory.MaxShards} {
				stores = append(stores, sharded(client, shards))
			}
			for i, s := range stores {
				chat := memory.MustChat(fmt.Sprint("c", i))
				require.NoError(t, s.Cold.FallAsleep(ctx, chat, int64(100+i)))
				for _, other := range stores {
					found, err := other.Cold.Look(ctx, chat, memory.MustChat("awake"))
					require.NoError(t, err)
					require.True(t, found[0].Asleep)
					require.Equal(t, int64(100+i), found[0].Used)
					require.False(t, found[1].Asleep)
					used, err := other.Chats.Used(ctx, memory.Tenant{}, chat.ID())
					require.NoError(t, err)
					require.Equal(t, []redisstore.Place{{Used: int64(100 + i), Member: chat.ID(), Asleep: true}}, used)
				}
				listed, _, err := s.Tenants.SomeChats(ctx, memory.Tenant{}, 10)
				require.NoError(t, err)
				require.Equal(t, []memory.Chat{chat}, listed)
				require.NoError(t, stores[(i+1)%len(stores)].Cold.WakeUp(ctx, chat, 0, false))
				for _, other := range stores {
					found, err := other.Cold.Look(ctx, chat)
					require.NoError(t, err)
					require.False(t, found[0].Asleep)
				}
			}
		})
	}
}

// lists are the keys of all lists of chats.
func lists(t *testing.T, client redis.UniversalClient) (keys []string) {
	t.Helper()
	masters, err := redisstore.Masters(ctx, client)
	require.NoError(t, err)
	for _, node := range masters {
		keys = append(keys, node.Keys(ctx, "mneme:chats*").Val()...)
	}
	return keys
}

func testShardsThatBecomeMore(t *testing.T, client redis.UniversalClient) {
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	use := func(s *redisstore.Store, id string) memory.Chat {
		chat, err := acme.Chat(id)
		require.NoError(t, err)
		_, err = s.Turns.Take(ctx, chat, "token", "conversation", time.Minute)
		require.NoError(t, err)
		_, err = s.Turns.Open(ctx, chat, "token", time.Minute, redisstore.OpenRun{Run: "r", Title: "hello"})
		require.NoError(t, err)
		require.NoError(t, s.Turns.Release(ctx, chat, "token"))
		return chat
	}
	for _, shards := range []int{1, 64, 1, 512, 512} {
		s := sharded(client, shards)
		for i := range 20 {
			chat := use(s, fmt.Sprintf("%d-%d", shards, i))
			yes := true
			there, err := s.Chats.ChangeCard(ctx, chat, nil, nil, &yes)
			require.NoError(t, err)
			require.True(t, there)
		}
	}
	use(sharded(client, 1), "64-3") // a process of before the last restart
	s := sharded(client, 512)
	places, err := s.Chats.ByUse(ctx, acme, redisstore.Place{}, 100)
	require.NoError(t, err)
	require.Len(t, places, 60)
	require.Equal(t, "64-3", places[0].Member)
	pins, err := s.Chats.ByUse(ctx, acme, redisstore.Pins, 100)
	require.NoError(t, err)
	require.Len(t, pins, 60)
	require.Zero(t, client.Exists(ctx, "mneme:chats:acme").Val(), "all was brought into the shards")
	require.Len(t, listed(t, client, lists(t, client)...), 120)
	tenants, err := s.Tenants.List(ctx, acme)
	require.NoError(t, err)
	require.Equal(t, []redisstore.TenantUse{{Tenant: acme, Chats: 60}}, tenants)
	no := false
	there, err := s.Chats.ChangeCard(ctx, memory.MustChat("none"), nil, nil, &no)
	require.NoError(t, err)
	require.False(t, there)
	chat, err := acme.Chat("1-1")
	require.NoError(t, err)
	_, err = s.Chats.ChangeCard(ctx, chat, nil, nil, &no)
	require.NoError(t, err)
	other, err := acme.Chat("1-2")
	require.NoError(t, err)
	cards, err := s.Chats.Cards(ctx, chat, other)
	require.NoError(t, err)
	require.False(t, cards[0].Pinned)
	require.True(t, cards[1].Pinned)
	used, err := s.Chats.Used(ctx, acme, "64-3", "none")
	require.NoError(t, err)
	require.Equal(t, []redisstore.Place{places[0], {Member: "none"}}, used)

	// The erasure of the tenant leaves nothing in any shard, nor in the key of a process with another number.
	use(sharded(client, 1), "late")
	use(sharded(client, 64), "64-5")
	for left := 1; left > 0; {
		var chats []memory.Chat
		chats, left, err = s.Tenants.SomeChats(ctx, acme, 7)
		require.NoError(t, err)
		require.LessOrEqual(t, len(chats), 7)
		for _, chat := range chats {
			require.NoError(t, s.EraseChat(ctx, time.Now().UnixMilli()+1000, chat, memory.ChatKey(chat)))
			require.NoError(t, s.Tenants.ForgetChat(ctx, chat))
		}
	}
	require.Empty(t, lists(t, client))
}

// The start of a process with another number of shards brings the lists of all tenants into them, and is not over
// before that: a process that comes next does it again if it was not.
func TestListsAreGathered(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	client := redistest.Start(t).Client()
	before, s := sharded(client, 1), sharded(client, 64)
	done := func(s *redisstore.Store) bool {
		done, err := s.Chats.Listed(ctx)
		require.NoError(t, err)
		return done
	}
	require.False(t, done(before))
	require.NoError(t, before.Chats.AllListed(ctx))
	require.False(t, done(before), "others may still write none")
	redisstore.Later(before, 25*time.Hour)
	redisstore.Later(s, 50*time.Hour)
	require.True(t, done(before))

	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	other := memory.ShardKey(memory.KindChats, acme, 7)
	require.NoError(t, client.ZAdd(ctx, string(memory.KindTenants), redis.Z{Score: 1, Member: "acme"}).Err())
	for i := range 1000 {
		for _, list := range []string{"mneme:chats", "mneme:chats:acme", other} {
			require.NoError(t, client.ZAdd(ctx, list, redis.Z{Score: float64(i), Member: fmt.Sprintf("c%d", i)},
				redis.Z{Score: -1, Member: fmt.Sprintf("*pin:c%d", i)}).Err())
		}
	}
	for range 2 {
		require.False(t, done(s))
	}
	require.NoError(t, redisstore.Gather(ctx, s))
	var own, theirs []string
	for _, key := range lists(t, client) {
		require.NotEqual(t, "mneme:chats:acme", key)
		if strings.Contains(key, ":acme") {
			theirs = append(theirs, key)
		} else if key != "mneme:chats" {
			own = append(own, key)
		}
	}
	require.Len(t, own, 64)
	require.Len(t, listed(t, client, own...), 2000)
	require.Len(t, listed(t, client, theirs...), 2000)
	require.Equal(t, []string{"*filled"}, client.ZRange(ctx, "mneme:chats", 0, -1).Val())
	require.NoError(t, s.Chats.AllListed(ctx))
	require.Len(t, pages(t, s, redisstore.Pins, 2000, nil), 1000)
	require.Len(t, pages(t, s, redisstore.Place{}, 2000, nil), 1001, "the mark that it is filled is in it")
	redisstore.Later(s, 25*time.Hour)
	require.True(t, done(s))
	more := sharded(client, 128)
	redisstore.Later(more, 100*time.Hour)
	require.False(t, done(more), "another number begins anew")
}
