package redisstore

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// listKeys returns all keys of a tenant's list. The key without a number comes first. So an entry that moves from it
// into a shard during the reads is in at least one of them.
func (s *core) listKeys(kind memory.Kind, t memory.Tenant) []string {
	keys := []string{memory.ListKey(kind, t)}
	if s.ListShards > 1 && slices.Contains(memory.Sharded, kind) {
		keys = append(keys, memory.ShardKeys(kind, t, s.ListShards)...)
	}
	return keys
}

// listKey returns the key of a tenant's list that the entry and the pin of a chat belong to. The FNV-1a hash of id
// selects the shard. Sharding keeps each key small in its slot of a Cluster.
//
// An entry may be in another key of the list: in the key without a number, or in a shard for another number of shards.
// Processes with other settings write such entries. Readers of a list read all of its keys and move such entries to
// their own key, except those of sleeping chats (see coldKeys).
func (s *core) listKey(kind memory.Kind, t memory.Tenant, id string) string {
	return keyOf(kind, t, id, s.ListShards)
}

// keyOf is listKey for a given number of shards.
func keyOf(kind memory.Kind, t memory.Tenant, id string, shards int) string {
	if shards <= 1 || !slices.Contains(memory.Sharded, kind) {
		return memory.ListKey(kind, t)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	return memory.ShardKey(kind, t, 1+int(hash.Sum32()%uint32(shards)))
}

// unlist removes a chat and its pin from a list. It removes them from the chat's own key and from the key without a
// number.
func (s *core) unlist(ctx context.Context, kind memory.Kind, t memory.Tenant, id string) (err error) {
	for _, key := range slices.Compact([]string{s.listKey(kind, t, id), memory.ListKey(kind, t)}) {
		err = errors.Join(err, s.redis.ZRem(ctx, key, id, pinMark+id).Err())
	}
	return err
}

// shard is the state of reading one key of a list.
type shard struct {
	kind      memory.Kind
	key       string
	places    []Place // places read so far, with the marks of pins
	cursor    Place   // last place read
	look      int     // number of places of the next read
	exhausted bool    // all places were read
	exact     bool    // read by chatsScript
}

// shardsOf returns the shards of some lists of a tenant. Each starts after cursor and reads look places.
func (s *core) shardsOf(t memory.Tenant, cursor Place, look int, kinds ...memory.Kind) (shards []*shard) {
	if cursor.Member == "" { // the start
		cursor.Used = math.MaxInt64
	}
	for _, kind := range kinds {
		for _, key := range s.listKeys(kind, t) {
			shards = append(shards, &shard{kind: kind, key: key, cursor: cursor, look: look})
		}
	}
	return shards
}

// compare orders the places of a list: the latest first, and members of one time in descending byte order.
func (p Place) compare(q Place) int {
	if p.Used != q.Used {
		return cmp.Compare(q.Used, p.Used)
	}
	return strings.Compare(q.Member, p.Member)
}

// merged returns up to count places after cursor from some lists of a tenant, as if they were one list. It returns each
// member once. It first reads few places per key. It reads more from a key only if the page may need them.
func merged(ctx context.Context, s *core, t memory.Tenant, cursor Place, count int, kinds ...memory.Kind) ([]Place,
	error) {
	shards := s.shardsOf(t, cursor, 0, kinds...)
	for _, sh := range shards {
		sh.look, sh.exact = min(count, count/len(shards)+1), len(shards) == 1
	}
	for deeper := shards; ; {
		if err := readShards(ctx, s, t, cursor == Pins, deeper); err != nil {
			return nil, err
		}
		var places []Place
		for _, sh := range shards {
			for _, p := range sh.places {
				p.Asleep = sh.kind == memory.KindCold
				places = append(places, p)
			}
		}
		slices.SortStableFunc(places, Place.compare)
		page, unique := places[:0], map[string]bool{}
		for _, p := range places {
			if len(page) < count && !unique[p.Member] { // a member that moved meanwhile is found twice
				page, unique[p.Member] = append(page, p), true
			}
		}
		deeper = nil
		for _, sh := range shards {
			if !sh.exhausted && (len(page) < count || sh.cursor.compare(page[count-1]) < 0) {
				sh.look = min(count, 4*sh.look)
				deeper = append(deeper, sh)
			}
		}
		if len(deeper) == 0 {
			for i := range page {
				page[i].Member = strings.TrimPrefix(page[i].Member, pinMark)
			}
			return page, nil
		}
	}
}

// readShards reads the next places of shards in one round trip and moves stray entries to their own keys. If pins is
// true, it reads only pins.
func readShards(ctx context.Context, s *core, t memory.Tenant, pins bool, shards []*shard) error {
	plain := make([]*redis.ZSliceCmd, len(shards))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, sh := range shards {
			if !sh.exact {
				plain[i] = p.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: sh.key, ByScore: true, Rev: true,
					Start: sh.cursor.Used, Stop: "-inf", Count: int64(sh.look) + 1}) // including the cursor's place
			}
		}
	})
	var strays []stray
	for i, sh := range shards {
		var places []Place
		if plain[i] != nil {
			for _, z := range plain[i].Val() {
				member, _ := z.Member.(string)
				if p := (Place{Used: int64(z.Score), Member: member}); p != sh.cursor && len(places) < sh.look {
					places = append(places, p)
				}
			}
			// Some places have the same time as the cursor, and only the script can order them by rank. Using the script for
			// each shard would take Redis several times as long.
			sh.exact = len(places) > 0 && sh.cursor.compare(places[0]) >= 0
		}
		if sh.exact && err == nil {
			places, err = lookExactly(ctx, s, sh)
		}
		sh.exhausted = len(places) < sh.look
		for _, p := range places {
			id, pin := strings.CutPrefix(p.Member, pinMark)
			sh.cursor = p
			switch into := s.listKey(sh.kind, t, id); {
			case !pins && p.Used < 0: // the chats end here
				sh.exhausted = true
			case pins && !pin:
			case into != sh.key && p.Member != filledMember && sh.kind != memory.KindCold: // see coldKeys
				strays = append(strays, stray{sh, p, into})
			default:
				sh.places = append(sh.places, p)
			}
		}
	}
	if err != nil {
		return err
	}
	return gathered(ctx, s, strays)
}

// lookExactly reads the places after the cursor of a shard, including places with the same time.
func lookExactly(ctx context.Context, s *core, sh *shard) (places []Place, err error) {
	r, err := s.call(ctx, chatsScript, []string{sh.key}, sh.cursor.Used, sh.cursor.Member, sh.look)
	for i := 1; i+1 < len(r); i += 2 {
		used, _ := strconv.ParseFloat(r[i+1], 64) // a score
		places = append(places, Place{Used: int64(used), Member: r[i]})
	}
	return places, err
}

// gatherAtOnce is the number of keys that Gather reads in one round trip. gatherEach is the number of entries per key.
const gatherAtOnce, gatherEach = 50, 200

// Gather moves all entries of the lists of chats to their own keys, the pins first. A chat's card shows only a pin that
// is in the chat's own key.
func Gather(ctx context.Context, s *Store) error {
	if s.ListShards <= 1 {
		return nil
	}
	names, err := s.redis.ZRange(ctx, string(memory.KindTenants), 0, -1).Result()
	for _, name := range append(names, memory.Tenant{}.String()) {
		tenant, bad := memory.ParseTenant(name)
		for _, cursor := range []Place{Pins, {}} {
			for batch := range slices.Chunk(s.shardsOf(tenant, cursor, gatherEach, memory.KindChats), gatherAtOnce) {
				for err == nil && bad == nil && len(batch) > 0 {
					err = readShards(ctx, s.core, tenant, cursor == Pins, batch)
					batch = slices.DeleteFunc(batch, func(sh *shard) bool { sh.places = nil; return sh.exhausted })
				}
			}
		}
	}
	return failure(err, "bringing the lists into their shards")
}

// stray is an entry in a key that it does not belong to.
type stray struct {
	shard *shard
	place Place
	into  string
}

// gathered moves strays to their own keys. If that key has the entry with a later use, that entry stays and gathered
// drops the place. It adds before it removes, so a process that dies in between leaves an entry twice and never loses
// it.
func gathered(ctx context.Context, s *core, strays []stray) error {
	scores := make([]*redis.FloatCmd, len(strays))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, e := range strays {
			p.ZAddGT(ctx, e.into, redis.Z{Score: float64(e.place.Used), Member: e.place.Member})
			scores[i] = p.ZScore(ctx, e.into, e.place.Member)
		}
	})
	if err != nil {
		return err
	}
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, e := range strays {
			p.ZRem(ctx, e.shard.key, e.place.Member)
			if int64(scores[i].Val()) <= e.place.Used {
				e.shard.places = append(e.shard.places, e.place)
			}
		}
	})
	return err
}
