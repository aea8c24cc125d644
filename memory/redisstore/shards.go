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

// This file is about the lists of a tenant that are spread over several keys, so that none of them is large in its slot
// of a Cluster. An entry belongs into the key that listKey names. It may lie in another one: in that without a number,
// which is all there is of a list in one shard, or in that of another number of shards, under which another process
// works, or worked. What reads a list reads all of its keys, and brings such entries where they belong.

// listKeys are all keys of a tenant's list. That without a number comes first: what is brought from it into its shard
// while they are read, is in one of them.
func (s *core) listKeys(kind memory.Kind, t memory.Tenant) []string {
	keys := []string{memory.ListKey(kind, t)}
	if s.ListShards > 1 && slices.Contains(memory.Sharded, kind) {
		keys = append(keys, memory.ShardKeys(kind, t, s.ListShards)...)
	}
	return keys
}

// listKey is the key of a tenant's list that the entry of a chat belongs into, and its pin: that of the shard by the
// FNV-1a hash of the id.
func (s *core) listKey(kind memory.Kind, t memory.Tenant, id string) string {
	return keyOf(kind, t, id, s.ListShards)
}

// keyOf is listKey with a number of shards.
func keyOf(kind memory.Kind, t memory.Tenant, id string, shards int) string {
	if shards <= 1 || !slices.Contains(memory.Sharded, kind) {
		return memory.ListKey(kind, t)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	return memory.ShardKey(kind, t, 1+int(hash.Sum32()%uint32(shards)))
}

// unlist takes a chat off a list, with its pin: out of its own key, and out of the one without a number.
func (s *core) unlist(ctx context.Context, kind memory.Kind, t memory.Tenant, id string) (err error) {
	for _, key := range slices.Compact([]string{s.listKey(kind, t, id), memory.ListKey(kind, t)}) {
		err = errors.Join(err, s.redis.ZRem(ctx, key, id, pinMark+id).Err())
	}
	return err
}

// shard is a key of a list of which some is read.
type shard struct {
	kind      memory.Kind
	key       string
	places    []Place // what is read of it, with the marks of pins
	cursor    Place   // behind which it goes on
	look      int     // how many it is asked for next
	exhausted bool    // there are no more
	exact     bool    // it is asked by the script
}

// shardsOf are the keys of some lists of a tenant, of which each is asked for so many places behind one.
func (s *core) shardsOf(t memory.Tenant, cursor Place, look int, kinds ...memory.Kind) (shards []*shard) {
	if cursor.Member == "" { // the beginning
		cursor.Used = math.MaxInt64
	}
	for _, kind := range kinds {
		for _, key := range s.listKeys(kind, t) {
			shards = append(shards, &shard{kind: kind, key: key, cursor: cursor, look: look})
		}
	}
	return shards
}

// compare is the order of a list: the latest first, of the same time the last member in the order of bytes.
func (p Place) compare(q Place) int {
	if p.Used != q.Used {
		return cmp.Compare(q.Used, p.Used)
	}
	return strings.Compare(q.Member, p.Member)
}

// merged are up to count places of some lists of a tenant behind one, as if they were one list, each member once. Each
// key is asked for few of them first, and those for more of which all that was read is in the page.
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
			if len(page) < count && !unique[p.Member] { // one that moved meanwhile is found twice
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

// readShards reads on in shards, in one round trip, and brings what belongs into other keys there. pins: what is pinned
// is read, and nothing else is.
func readShards(ctx context.Context, s *core, t memory.Tenant, pins bool, shards []*shard) error {
	plain := make([]*redis.ZSliceCmd, len(shards))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, sh := range shards {
			if !sh.exact {
				plain[i] = p.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: sh.key, ByScore: true, Rev: true,
					Start: sh.cursor.Used, Stop: "-inf", Count: int64(sh.look) + 1}) // with the place itself
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
			// Some have the time of the place behind which it goes on, and only the script can tell them apart by rank. To ask
			// each shard by it would take Redis several times as long.
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

// lookExactly is what lies behind a place in a shard, whatever has the same time.
func lookExactly(ctx context.Context, s *core, sh *shard) (places []Place, err error) {
	r, err := s.call(ctx, chatsScript, []string{sh.key}, sh.cursor.Used, sh.cursor.Member, sh.look)
	for i := 1; i+1 < len(r); i += 2 {
		used, _ := strconv.ParseFloat(r[i+1], 64) // a score
		places = append(places, Place{Used: int64(used), Member: r[i]})
	}
	return places, err
}

// gatherAtOnce is of how many keys Gather reads, and how many entries of each, in one round trip.
const gatherAtOnce, gatherEach = 50, 200

// Gather brings all entries of the lists of chats where they belong, the pins first: only there does a chat show them.
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

// stray is an entry that lies in another key than it belongs into.
type stray struct {
	shard *shard
	place Place
	into  string
}

// gathered brings entries into the keys that they belong into. One that is there with a later use stays as it is, and is
// no place here. The order: a process that dies between leaves an entry twice, and never none.
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
