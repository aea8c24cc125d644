package redisstore

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
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

// listKeys are all keys of a tenant's list.
func (s *core) listKeys(kind memory.Kind, t memory.Tenant) []string {
	keys := []string{memory.ListKey(kind, t)}
	for n := 1; n <= s.ListShards && s.ListShards > 1; n++ {
		keys = append(keys, memory.ShardKey(kind, t, n))
	}
	return keys
}

// listKey is the key of a tenant's list that the entry of a chat belongs into, and its pin: that of the shard by the
// FNV-1a hash of the id.
func (s *core) listKey(kind memory.Kind, t memory.Tenant, id string) string {
	if s.ListShards <= 1 {
		return memory.ListKey(kind, t)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	return memory.ShardKey(kind, t, 1+int(hash.Sum32()%uint32(s.ListShards)))
}

// listedIn are the keys of which an entry is taken out: its own, and the one without a number.
func (s *core) listedIn(kind memory.Kind, t memory.Tenant, id string) []string {
	return slices.Compact([]string{s.listKey(kind, t, id), memory.ListKey(kind, t)})
}

// unlist takes a chat off a list, with its pin.
func (s *core) unlist(ctx context.Context, kind memory.Kind, t memory.Tenant, id string) error {
	for _, key := range s.listedIn(kind, t, id) {
		if err := s.redis.ZRem(ctx, key, id, pinMark+id).Err(); err != nil {
			return err
		}
	}
	return nil
}

// shard is a key of a list of which some is read.
type shard struct {
	kind   memory.Kind
	key    string
	places []Place // what is read of it, with the marks of pins
	from   Place   // behind which it goes on
	look   int     // how many it is asked for next
	all    bool    // there are no more
}

// shardsOf are the keys of some lists of a tenant, of which each is asked for so many places behind one.
func (s *core) shardsOf(t memory.Tenant, after Place, look int, kinds ...memory.Kind) (all []*shard) {
	for _, kind := range kinds {
		for _, key := range s.listKeys(kind, t) {
			all = append(all, &shard{kind: kind, key: key, from: after, look: look})
		}
	}
	return all
}

// before is the order of a list: the latest first, of the same time the last member in the order of bytes.
func (p Place) before(q Place) int {
	return cmp.Or(cmp.Compare(q.Used, p.Used), strings.Compare(q.Member, p.Member))
}

// merged are up to count places of some lists of a tenant behind one, as if they were one list, each member once. Each
// key is asked for few of them first, and those for more of which all that was read is in the page.
func merged(ctx context.Context, s *core, t memory.Tenant, after Place, count int, kinds ...memory.Kind) ([]Place,
	error) {
	shards := s.shardsOf(t, after, count, kinds...)
	if len(shards) > 1 {
		for _, from := range shards {
			from.look = count/len(shards) + 2
		}
	}
	for deeper := shards; ; {
		if err := readShards(ctx, s, t, after == Pins, deeper); err != nil {
			return nil, err
		}
		var page []Place
		for _, from := range shards {
			page = append(page, from.places...)
		}
		slices.SortStableFunc(page, Place.before)
		if seen := map[string]bool{}; len(shards) > 1 { // one that moved meanwhile is found twice
			page = slices.DeleteFunc(page, func(p Place) bool {
				twice := seen[p.Member]
				seen[p.Member] = true
				return twice
			})
		}
		page = page[:min(count, len(page))]
		deeper = nil
		for _, from := range shards {
			if !from.all && (len(page) < count || from.from.before(page[count-1]) < 0) {
				from.look = min(count, 4*from.look)
				deeper = append(deeper, from)
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
	calls := make([]redisscript.Call, len(shards))
	for i, from := range shards {
		calls[i] = redisscript.Call{Script: chatsScript, Keys: []string{from.key},
			Args: []any{from.from.Used, from.from.Member, from.look}}
	}
	var strays []stray
	for i, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		from := shards[i]
		r, err := read(cmd)
		if err != nil {
			return err
		}
		from.all = len(r)/2 < from.look
		for at := 1; at+1 < len(r); at += 2 {
			used, _ := strconv.ParseFloat(r[at+1], 64) // a score
			p := Place{Used: int64(used), Member: r[at], Asleep: from.kind == memory.KindCold}
			id, pin := strings.CutPrefix(p.Member, pinMark)
			from.from = p
			switch {
			case pin != pins && p.Used < 0: // the chats end here
				from.all = true
			case pin != pins:
			case p.Member != filledMember && s.listKey(from.kind, t, id) != from.key:
				strays = append(strays, stray{from, p, s.listKey(from.kind, t, id)})
			default:
				from.places = append(from.places, p)
			}
		}
	}
	return gathered(ctx, s, strays)
}

// stray is an entry that lies in another key than it belongs into.
type stray struct {
	shard *shard
	place Place
	into  string
}

// gathered brings entries into the keys that they belong into; what is there with the same use, or a later one, stays,
// and is read there. The order: a process that dies between leaves an entry twice, and never none.
func gathered(ctx context.Context, s *core, strays []stray) error {
	if len(strays) == 0 {
		return nil
	}
	before, added := make([]*redis.FloatCmd, len(strays)), make([]*redis.IntCmd, len(strays))
	calls := make([]redisscript.Call, len(strays))
	_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
		for i, e := range strays {
			before[i] = p.ZScore(ctx, e.into, e.place.Member)
			added[i] = p.ZAddGT(ctx, e.into, redis.Z{Score: float64(e.place.Used), Member: e.place.Member})
			calls[i] = redisscript.Call{Script: staleScript, Keys: []string{e.shard.key},
				Args: []any{e.place.Member, e.place.Used}}
		}
		return nil
	})
	for i, e := range strays {
		if err := before[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		} else if added[i].Err() != nil {
			return added[i].Err()
		} else if err != nil || int64(before[i].Val()) < e.place.Used {
			e.shard.places = append(e.shard.places, e.place)
		}
	}
	for _, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		if cmd.Err() != nil {
			return cmd.Err()
		}
	}
	return nil
}
