package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // as Redis has it, to tell values apart
	"encoding/hex"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/cold"
)

// Cold is about chats that sleep in the cold store: a list of them for each tenant, and how the keys of one leave Redis
// and come back. A chat leaves under its lease in two rounds, between which it is in both lists; its meta says in cold
// how far that is: the turn in which the sweeper last looked at it, with a minus from the moment on in which keys of it
// may be gone. The turn fences each step, since a lease may have run out. The object is the truth of a chat that is in
// the list: what Redis has beside it was written by another program, or is left of a step that was not finished.
type Cold struct {
	*core
	chats Chats
}

// listedMember stands in the default tenant's list when all objects of the cold store are in the lists. It is no chat's
// id.
const listedMember = "*listed"

// Sleep is what Redis says of where a chat is.
type Sleep struct {
	Asleep bool  // it is in the list of those that sleep
	Used   int64 // and was used last, Unix ms
	Listed bool  // all that sleep are in the list
	Turn   int64 // the newest one in Redis, 0 if it has nothing of the chat
	Note   int64 // the field cold of its meta, 0 for none
}

// Look says where chats are, in one round trip.
func (s Cold) Look(ctx context.Context, chats ...memory.Chat) ([]Sleep, error) {
	scores, metas := make([]*redis.FloatCmd, len(chats)), make([]*redis.SliceCmd, len(chats))
	var listed *redis.FloatCmd
	_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
		listed = p.ZScore(ctx, coldKey(memory.Tenant{}), listedMember)
		for i, chat := range chats {
			scores[i] = p.ZScore(ctx, coldKey(chat.Tenant()), chat.ID())
			metas[i] = p.HMGet(ctx, chatMeta(chat), "turn", "cold")
		}
		return nil
	})
	all := make([]Sleep, len(chats))
	for i, chat := range chats {
		for _, cmd := range []redis.Cmder{listed, scores[i], metas[i]} {
			if err := cmd.Err(); err != nil && err != redis.Nil { //nolint:errorlint // as go-redis gives it
				return nil, failure(err, "looking whether chat %s sleeps", chat)
			}
		}
		turn, _ := metas[i].Val()[0].(string)
		note, _ := metas[i].Val()[1].(string)
		all[i] = Sleep{scores[i].Err() == nil, int64(scores[i].Val()), listed.Err() == nil, integer(turn), integer(note)}
	}
	return all, nil
}

// Idle gives up to count chats of a tenant that were not used since a time, any of them: so processes that sweep at
// once get others, and those that may not leave hold up none.
func (s Cold) Idle(ctx context.Context, of memory.Tenant, since time.Time, count int64) (places []Place, err error) {
	before := strconv.FormatInt(since.UnixMilli(), 10)
	n, err := s.redis.ZCount(ctx, chatsKey(of), "(0", before).Result()
	if err != nil || n == 0 {
		return nil, failure(err, "looking for idle chats")
	}
	page, err := s.redis.ZRangeByScoreWithScores(ctx, chatsKey(of), &redis.ZRangeBy{Min: "(0", Max: before,
		Offset: rand.Int64N(max(n-count, 0) + 1), Count: count}).Result()
	for _, z := range page {
		id, _ := z.Member.(string)
		places = append(places, Place{int64(z.Score), id})
	}
	return places, failure(err, "looking for idle chats")
}

// Snapshot reads all keys of a chat that go into its object, those of subagents first, of each history its own and the
// meta last. fit is false for what can not be brought back as it is: keys of other types, or with an end.
func (s Cold) Snapshot(ctx context.Context, chat memory.Chat, agents ...memory.Agent) (keys []cold.Key, fit bool,
	err error) {
	histories, err := s.chats.Keys(ctx, chat, agents...)
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, key := range slices.Backward(histories) {
		aside, err := s.chats.archives.histories.setAsideOf(ctx, key)
		if err != nil {
			return nil, false, failure(err, "reading chat %s", chat)
		}
		names = append(append(names, archiveKey(key), notesKey(key)), aside...)
		names = append(names, historyKeys(key)...)
	}
	types, ends := make([]*redis.StatusCmd, len(names)), make([]*redis.DurationCmd, len(names))
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			types[i], ends[i] = p.Type(ctx, name), p.PTTL(ctx, name)
		}
		return nil
	})
	for i := 0; i < len(names) && err == nil; i++ {
		k := cold.Key{Name: names[i]}
		switch kind := types[i].Val(); {
		case kind == "none":
			continue
		case ends[i].Val() >= 0 || kind != "string" && kind != "hash":
			return nil, false, nil
		case kind == "string":
			k.String, err = s.redis.Get(ctx, k.Name).Result()
		default:
			k.Hash, err = s.redis.HGetAll(ctx, k.Name).Result()
		}
		keys = append(keys, k)
	}
	return keys, err == nil && len(keys) > 1, failure(err, "reading chat %s", chat)
}

// SameKeys says whether two snapshots of a chat are the same but for what the sweeper itself changes in its meta.
func SameKeys(chat memory.Chat, a, b []cold.Key) bool {
	return slices.EqualFunc(a, b, func(a, b cold.Key) bool {
		if a.Name == b.Name && a.Name == chatMeta(chat) {
			a.Hash, b.Hash = maps.Clone(a.Hash), maps.Clone(b.Hash)
			for _, field := range []string{"turn", "cold"} {
				delete(a.Hash, field)
				delete(b.Hash, field)
			}
		}
		return a.Name == b.Name && a.String == b.String && maps.Equal(a.Hash, b.Hash)
	})
}

// Note sets what a chat's meta says in cold, under a turn.
func (s Cold) Note(ctx context.Context, chat memory.Chat, turn, note int64) error {
	_, err := s.call(ctx, freezeScript, []string{chatMeta(chat)}, turn, note)
	return failure(err, "noting that chat %s falls asleep", chat)
}

// Remove deletes the keys of a snapshot under a turn, history by history, the chat's meta last. gone is false if another
// program has written one of them since: then some may be gone, and the chat is to be woken.
func (s Cold) Remove(ctx context.Context, chat memory.Chat, turn int64, keys []cold.Key) (gone bool, err error) {
	for key, keys := range byHistory(chat, keys) {
		names, sums := []string{metaKey(key), key.String()}, []any{turn, "", sha1Of("")}
		for _, k := range keys {
			switch {
			case k.Name == key.String():
				sums[2] = sha1Of(k.String)
			case k.Hash != nil:
				names, sums = append(names, k.Name), append(sums, "")
			default:
				names, sums = append(names, k.Name), append(sums, sha1Of(k.String))
			}
		}
		r, err := s.call(ctx, freezeScript, names, sums...)
		if err != nil || r.Word() != "ok" {
			return false, failure(err, "having chat %s leave Redis", chat)
		}
	}
	return true, nil
}

func sha1Of(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as Redis has it, to tell values apart
	return hex.EncodeToString(sum[:])
}

// byHistory are the keys of a snapshot by their history, the chat's own last also if it has none.
func byHistory(chat memory.Chat, keys []cold.Key) iter.Seq2[memory.Key, []cold.Key] {
	return func(yield func(memory.Key, []cold.Key) bool) {
		of := func(k cold.Key) memory.Key {
			key, _ := memory.ParseRedisKey(k.Name)
			return key.Key
		}
		own := memory.ChatKey(chat)
		var last []cold.Key
		for len(keys) > 0 {
			key, n := of(keys[0]), 1
			for n < len(keys) && of(keys[n]) == key {
				n++
			}
			if key == own {
				last = append(last, keys[:n]...)
			} else if !yield(key, keys[:n]) {
				return
			}
			keys = keys[n:]
		}
		yield(own, last)
	}
}

// thawBytes is about how much of a hash one script is given.
const thawBytes = 1 << 20

// Restore brings back what Redis lacks of a snapshot, under the chat's turn: of each history what lies beside it first,
// then in one step the history and its meta, the chat's own last. What is there stays as it is. An archive is whole
// when its totals are there, which come last.
func (s Cold) Restore(ctx context.Context, chat memory.Chat, turn int64, keys []cold.Key) error {
	for key, keys := range byHistory(chat, keys) {
		var history string
		var meta map[string]string
		for _, k := range keys {
			var err error
			switch k.Name {
			case key.String():
				history = k.String
			case metaKey(key):
				meta = k.Hash
			default:
				whole := false
				if k.Hash != nil {
					whole, err = s.redis.HExists(ctx, k.Name, "messages").Result()
				}
				if err == nil && !whole {
					err = s.restore(ctx, turn, key, k.Name, k.String, k.Name, k.Hash)
				}
			}
			if err != nil {
				return failure(err, "waking chat %s", chat)
			}
		}
		if err := s.restore(ctx, turn, key, key.String(), history, metaKey(key), meta); err != nil {
			return failure(err, "waking chat %s", chat)
		}
	}
	return nil
}

// restore writes a string and fields of a hash that are not there.
func (s Cold) restore(ctx context.Context, turn int64, key memory.Key, name, value, of string,
	hash map[string]string) error {
	fields := slices.Sorted(maps.Keys(hash)) // of an archive, numbers come before the totals
	for first := true; first || len(fields) > 0; first = false {
		args, size := []any{turn, value}, 0
		for len(fields) > 0 && size < thawBytes {
			if fields[0] != "turn" || of != metaKey(key) {
				args, size = append(args, fields[0], hash[fields[0]]), size+len(hash[fields[0]])
			}
			fields = fields[1:]
		}
		if _, err := s.call(ctx, thawScript, []string{metaKey(key), name, of}, args...); err != nil {
			return err
		}
		value = ""
	}
	return nil
}

// Holds says whether a lease is held under a token.
func (s Cold) Holds(ctx context.Context, chat memory.Chat, token string) (bool, error) {
	holder, err := s.redis.Get(ctx, leaseKey(chat)).Result()
	if err == redis.Nil { //nolint:errorlint // as go-redis gives it
		err = nil
	}
	return holder == token, failure(err, "looking who holds the turn of chat %s", chat)
}

// FallAsleep lists chats as sleeping that were used last at a time, unless they are listed with another one.
func (s Cold) FallAsleep(ctx context.Context, used int64, chats ...memory.Chat) error {
	for _, chat := range chats {
		err := s.redis.ZAddNX(ctx, coldKey(chat.Tenant()), redis.Z{Score: float64(used), Member: chat.ID()}).Err()
		if err != nil {
			return failure(err, "listing chat %s as sleeping", chat)
		}
	}
	return nil
}

// Unlist takes a chat off the list of those that are awake, once all of it is gone from Redis. Should the lease have run
// out, it stays: it may have been woken.
func (s Cold) Unlist(ctx context.Context, chat memory.Chat, token string, used int64) error {
	err := s.redis.ZRem(ctx, chatsKey(chat.Tenant()), chat.ID()).Err()
	held := false
	if err == nil {
		held, err = s.Holds(ctx, chat, token)
	}
	if err == nil && !held {
		err = s.redis.ZAddNX(ctx, chatsKey(chat.Tenant()), redis.Z{Score: float64(used), Member: chat.ID()}).Err()
	}
	return failure(err, "taking chat %s off the list", chat)
}

// WakeUp takes a chat off the list of those that sleep, and has it in that of those that are awake before, if it is to be
// there.
func (s Cold) WakeUp(ctx context.Context, chat memory.Chat, used int64, there bool) error {
	var err error
	if there {
		err = s.redis.ZAddNX(ctx, chatsKey(chat.Tenant()), redis.Z{Score: float64(used), Member: chat.ID()}).Err()
	}
	if err == nil {
		err = s.redis.ZRem(ctx, coldKey(chat.Tenant()), chat.ID()).Err()
	}
	return failure(err, "listing chat %s as awake", chat)
}

// AllListed notes that all objects of the cold store are in the lists.
func (s Cold) AllListed(ctx context.Context) error {
	err := s.redis.ZAdd(ctx, coldKey(memory.Tenant{}), redis.Z{Score: s.deadline(0), Member: listedMember}).Err()
	return failure(err, "noting that the sleeping chats are listed")
}

// coldKey lists the chats of a tenant that sleep, scored by the Unix ms of the last run.
func coldKey(t memory.Tenant) string { return memory.ListKey(memory.KindCold, t) }
