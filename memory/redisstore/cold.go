package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/cold"
	"mneme/memory/redisscript"
)

// Cold handles chats that sleep in the cold store: a list of them per tenant, and the move of their keys out of Redis
// and back. A chat leaves Redis under its lease in two rounds. Between the rounds it is in both lists. The field cold
// of its meta is the turn of the sweeper's last check. It becomes negative before keys of the chat are removed.
//
// The turn fences each step, because a lease may have expired. If a chat is in the list, its object is authoritative.
// Any other data of it in Redis comes from another program or from an unfinished step. The default tenant's list
// contains filledMember once all objects of the cold store are in the lists.
type Cold struct {
	*core
	histories *Store
}

// Sleep describes where a chat is, as Redis knows it.
type Sleep struct {
	Asleep bool  // the chat is in the list of sleeping chats
	Used   int64 // Unix ms of its last use, if Asleep
	Listed bool  // all sleeping chats are in the list
	Turn   int64 // newest turn in Redis, 0 if Redis has no data of the chat
	Note   int64 // field cold of its meta, 0 for none
	Woken  int64 // Unix ms of its last wake, 0 if unknown or long ago
}

// Look returns where chats are, in one round trip.
func (s Cold) Look(ctx context.Context, chats ...memory.Chat) ([]Sleep, error) {
	scores, metas := make([][]*redis.FloatCmd, len(chats)), make([]*redis.SliceCmd, len(chats))
	woken := make([]*redis.FloatCmd, len(chats))
	var listed *redis.FloatCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		listed = p.ZScore(ctx, coldList, filledMember)
		for i, chat := range chats {
			scores[i] = coldScores(ctx, s.core, p, chat)
			metas[i] = p.HMGet(ctx, chatMeta(chat), "turn", "cold")
			woken[i] = p.ZScore(ctx, wokenChats, chat.String())
		}
	})
	if err != nil {
		return nil, failure(err, "looking up the chats")
	}
	sleeps := make([]Sleep, len(chats))
	for i := range chats {
		used, asleep := latest(scores[i])
		sleeps[i] = Sleep{Asleep: asleep, Used: used, Listed: listed.Val() > 0, Turn: integer(textAt(metas[i].Val(), 0)),
			Note: integer(textAt(metas[i].Val(), 1)), Woken: int64(woken[i].Val())}
	}
	return sleeps, nil
}

// coldScores queries all keys that may list a chat as sleeping.
func coldScores(ctx context.Context, s *core, p redis.Pipeliner, chat memory.Chat) (scores []*redis.FloatCmd) {
	for _, key := range coldKeys(s, chat) {
		scores = append(scores, p.ZScore(ctx, key, chat.ID()))
	}
	return scores
}

// latest returns the highest existing score.
func latest(scores []*redis.FloatCmd) (used int64, ok bool) {
	for _, score := range scores {
		if score.Err() == nil {
			used, ok = max(used, int64(score.Val())), true
		}
	}
	return used, ok
}

// Idle returns about count random chats of a tenant that were last used before cutoff. So concurrent sweepers get
// different chats, and chats that must stay do not block others.
func (s Cold) Idle(ctx context.Context, tenant memory.Tenant, cutoff time.Time,
	count int64) (places []Place, err error) {
	maxScore, keys := strconv.FormatInt(cutoff.UnixMilli(), 10), s.listKeys(memory.KindChats, tenant)
	for _, i := range rand.Perm(len(keys)) {
		n, err := s.redis.ZCount(ctx, keys[i], "(0", maxScore).Result()
		var page []redis.Z
		if err == nil && n > 0 {
			page, err = s.redis.ZRangeByScoreWithScores(ctx, keys[i], &redis.ZRangeBy{Min: "(0", Max: maxScore,
				Offset: rand.Int64N(max(n-count, 0) + 1), Count: count}).Result()
		}
		if err != nil {
			return nil, failure(err, "looking for idle chats")
		}
		for _, z := range page {
			places = append(places, Place{Used: int64(z.Score), Member: z.Member.(string)})
		}
		if int64(len(places)) >= count {
			break
		}
	}
	return places, nil
}

// Snapshot reads all keys of a chat that its object stores. Subagents' histories come first. The keys of each history
// end with the history itself and its meta. fit is false if the keys cannot be restored unchanged, because of their
// type or an expiry.
func (s Cold) Snapshot(ctx context.Context, chat memory.Chat, agents ...memory.Agent) (keys []cold.Key, fit bool,
	err error) {
	histories, err := s.histories.Chats.Keys(ctx, chat, agents...)
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, key := range slices.Backward(histories) {
		damaged, err := s.histories.setAsideOf(ctx, key)
		if err != nil {
			return nil, false, failure(err, "reading chat %s", chat)
		}
		names = append(append(names, archiveKey(key), notesKey(key)), damaged...)
		names = append(names, historyKeys(key)...)
	}
	types, ttls := make([]*redis.StatusCmd, len(names)), make([]*redis.DurationCmd, len(names))
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, name := range names {
			types[i], ttls[i] = p.Type(ctx, name), p.PTTL(ctx, name)
		}
	})
	for i := 0; i < len(names) && err == nil; i++ {
		k := cold.Key{Name: names[i]}
		switch kind := types[i].Val(); {
		case kind == "none":
			continue
		case ttls[i].Val() >= 0 || kind != "string" && kind != "hash":
			return nil, false, nil
		case kind == "string":
			var value string
			value, err = s.redis.Get(ctx, k.Name).Result()
			k.String = cold.Text(value)
		default:
			var fields map[string]string
			fields, err = s.redis.HGetAll(ctx, k.Name).Result()
			k.Hash = make(map[string]cold.Text, len(fields))
			for field, value := range fields {
				k.Hash[field] = cold.Text(value)
			}
		}
		keys = append(keys, k)
	}
	return keys, err == nil && len(keys) > 1, failure(err, "reading chat %s", chat)
}

// SameKeys reports whether two snapshots of a chat are equal, except for the meta fields that the sweeper changes.
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

// Note sets the field cold of a chat's meta under a turn.
func (s Cold) Note(ctx context.Context, chat memory.Chat, turn, note int64) error {
	_, err := s.call(ctx, freezeScript, []string{chatMeta(chat)}, turn, note)
	return failure(err, "noting that chat %s falls asleep", chat)
}

// Remove deletes the keys of a snapshot under a turn, history by history, the chat's own last. memory.ErrMoved means
// that the chat has a newer turn, or that another program wrote a history meanwhile. Some keys may then already be
// deleted.
func (s Cold) Remove(ctx context.Context, chat memory.Chat, turn int64, keys []cold.Key) error {
	for key, keys := range byHistory(chat, keys) {
		names, size := []string{metaKey(key), key.String()}, 0
		for _, k := range keys {
			if names = append(names, k.Name); k.Name == key.String() {
				size = len(k.String)
			}
		}
		if _, err := s.call(ctx, freezeScript, names, turn, "", size); err != nil {
			return failure(err, "having chat %s leave Redis", chat)
		}
	}
	return nil
}

// byHistory groups the keys of a snapshot by history. The chat's own history comes last, even without keys.
func byHistory(chat memory.Chat, keys []cold.Key) iter.Seq2[memory.Key, []cold.Key] {
	own, byKey := memory.ChatKey(chat), map[memory.Key][]cold.Key{}
	for _, k := range keys {
		key, _ := memory.ParseRedisKey(k.Name)
		byKey[key.Key] = append(byKey[key.Key], k)
	}
	return func(yield func(memory.Key, []cold.Key) bool) {
		for key, keys := range byKey {
			if key != own && !yield(key, keys) {
				return
			}
		}
		yield(own, byKey[own])
	}
}

// thawBytes is the approximate size of the hash fields in one script call.
const thawBytes = 1 << 20

// Restore restores the keys of a snapshot that Redis lacks, under the chat's turn. It writes each history's other keys
// first, then the history and its meta in one step, and the chat's own history last. Existing values stay. An archive
// is complete if it has its totals, which are written last. If another program deleted or rewrote a history after the
// snapshot's turn, as Redis or cutIn reports, its messages stay deleted.
func (s Cold) Restore(ctx context.Context, chat memory.Chat, turn int64, o cold.Object,
	cutIn func(memory.Key) int64) error {
	for key, keys := range byHistory(chat, o.Keys) {
		history, meta := cold.Key{Name: key.String()}, cold.Key{Name: metaKey(key)}
		cut, err := s.field(ctx, metaKey(key), "cut")
		if err != nil {
			return failure(err, "waking chat %s", chat)
		}
		changed := max(integer(cut), cutIn(key)) > o.Turn
		for _, k := range keys {
			var err error
			switch {
			case k.Name == history.Name:
				history = k
			case k.Name == meta.Name:
				meta = k
			default:
				complete := false
				if k.Hash != nil {
					complete, err = s.redis.HExists(ctx, k.Name, "messages").Result()
				}
				if err == nil && !complete {
					err = s.restore(ctx, turn, key, k, k)
				}
			}
			if err != nil {
				return failure(err, "waking chat %s", chat)
			}
		}
		meta.Hash = maps.Clone(meta.Hash)
		if first, ok := meta.Hash["first"]; ok && meta.Hash["joins"] == "" { // earlier versions wrote no joins
			meta.Hash["joins"] = first + " " + cold.Text(strconv.FormatInt(integer(string(meta.Hash["archived"])), 10))
		}
		if changed {
			history.String = ""
			for _, field := range []string{"sum", "len", "count", "applied", "first", "begins"} {
				delete(meta.Hash, field)
			}
		}
		exists, err := s.redis.Exists(ctx, history.Name).Result()
		if err == nil {
			err = s.restore(ctx, turn, key, history, meta)
		}
		if err == nil && exists > 0 && history.String != "" {
			err = s.joinOlder(ctx, o.Turn, key, history, meta)
		}
		if err != nil {
			return failure(err, "waking chat %s", chat)
		}
	}
	return nil
}

// restore writes the string of one key and the missing fields of another key, both of one history.
func (s Cold) restore(ctx context.Context, turn int64, key memory.Key, text, hash cold.Key) error {
	fields := slices.Sorted(maps.Keys(hash.Hash)) // numbers sort before an archive's totals
	for first := true; first || len(fields) > 0; first = false {
		args, size := []any{turn, string(text.String)}, 0
		for ; len(fields) > 0 && size < thawBytes; fields = fields[1:] {
			args, size = append(args, fields[0], string(hash.Hash[fields[0]])), size+len(hash.Hash[fields[0]])
		}
		if _, err := s.call(ctx, thawScript, []string{metaKey(key), text.Name, hash.Name}, args...); err != nil {
			return err
		}
	}
	return nil
}

// joinOlder merges the history of a snapshot into the history in Redis. A process that mistakes the sleep for data loss
// writes back its own copy, which may be older than the snapshot.
func (s Cold) joinOlder(ctx context.Context, turn int64, key memory.Key, history, meta cold.Key) error {
	h, err := parseFrozen(key, history, meta)
	if err == nil {
		h.ProvenIn(turn)
		_, err = s.histories.WriteBack(ctx, h)
	}
	return err
}

func parseFrozen(key memory.Key, history, meta cold.Key) (*memory.History, error) {
	h, err := memory.ParseHistory(key, []byte(cmp.Or(history.String, "[]")))
	if err != nil {
		return nil, err
	}
	number := func(field string) int64 { return integer(string(meta.Hash[field])) }
	h.Follows(max(number("erased"), number("adopted"), number("cut")), string(meta.Hash["first"]))
	return h, nil
}

// Frozen is a chat's own history, as read from its object in the cold store.
type Frozen struct {
	*memory.History
	Archive  []json.RawMessage // messages of the archive
	Archived int               // number of messages that trims moved
	Complete bool              // no part of the archive is damaged or missing

	User   string // from the chat's meta
	Hidden memory.Quarantine
}

// Freeze returns the chat's own history from the keys of its object.
func (s Cold) Freeze(chat memory.Chat, keys []cold.Key) (f Frozen, err error) {
	key := memory.ChatKey(chat)
	var history, metaEntry cold.Key
	var archive map[string]cold.Text
	for _, k := range keys {
		switch k.Name {
		case key.String():
			history = k
		case metaKey(key):
			metaEntry = k
		case archiveKey(key):
			archive = k.Hash
		}
	}
	if f.History, err = parseFrozen(key, history, metaEntry); err != nil {
		return f, err
	}
	meta := metaEntry.Hash
	f.Archived, f.Complete = int(integer(string(meta["archived"]))), true
	f.User, f.Hidden = string(meta["user"]), membersOf(string(meta[quarantined]))
	segments := segmentsIn(maps.Keys(archive))
	for i := range segments {
		segments[i].description = string(archive[descriptionField(segments[i].Position)])
	}
	segments = parsed(segments, int(integer(string(archive["messages"]))))
	detached := isDetached(f.First(), string(meta["joins"]), string(meta["archived"]))
	for _, seg := range s.withGaps(segments, slices.Collect(maps.Keys(archive)), detached) {
		if seg.Missing {
			f.Complete = false
			continue
		}
		raw, err := seg.messagesIn([]byte(archive[strconv.Itoa(seg.Position)]))
		f.Archive, f.Complete = append(f.Archive, raw...), f.Complete && err == nil
	}
	return f, nil
}

// wokenChats is the key of woken chats that still have an object, scored by the Unix ms of the wake.
const wokenChats = string(memory.KindWoken)

// Woke records that a chat was restored, before any client sees it.
func (s Cold) Woke(ctx context.Context, chat memory.Chat) error {
	err := s.redis.ZAdd(ctx, wokenChats, redis.Z{Score: s.deadline(0), Member: chat.String()}).Err()
	return failure(err, "noting that chat %s woke", chat)
}

// WokenBefore returns up to count chats that woke at or before cutoff and may still have an object.
func (s Cold) WokenBefore(ctx context.Context, cutoff time.Time, count int64) (chats []memory.Chat, err error) {
	names, err := s.redis.ZRangeByScore(ctx, wokenChats,
		&redis.ZRangeBy{Min: "0", Max: strconv.FormatInt(cutoff.UnixMilli(), 10), Count: count}).Result()
	for _, name := range names {
		if chat, bad := memory.ParseChat(name); bad == nil {
			chats = append(chats, chat)
		} else if err == nil { // written by another program
			err = s.redis.ZRem(ctx, wokenChats, name).Err()
		}
	}
	return chats, failure(err, "looking for chats that woke")
}

// Unwoke removes a chat from the list of WokenBefore, unless it woke again after wokenAt.
func (s Cold) Unwoke(ctx context.Context, chat memory.Chat, wokenAt int64) error {
	_, err := s.call(ctx, staleScript, []string{wokenChats}, chat.String(), wokenAt)
	return failure(err, "noting that chat %s has no object", chat)
}

// Holds reports whether token holds the chat's lease.
func (s Cold) Holds(ctx context.Context, chat memory.Chat, token string) (bool, error) {
	holder, err := s.redis.Get(ctx, leaseKey(chat)).Result()
	return holder == token, readFailure(err, "looking who holds the turn of chat %s", chat)
}

// FallAsleep adds a chat and its last use to the list of sleeping chats. It keeps an existing entry.
func (s Cold) FallAsleep(ctx context.Context, chat memory.Chat, used int64) error {
	err := s.redis.ZAddNX(ctx, coldKeys(s.core, chat)[0], redis.Z{Score: float64(used), Member: chat.ID()}).Err()
	return failure(err, "listing chat %s as sleeping", chat)
}

// list adds a chat to the list of awake chats. It keeps an existing entry.
func (s Cold) list(ctx context.Context, chat memory.Chat, used int64) error {
	return s.redis.ZAddNX(ctx, s.chatsKey(chat), redis.Z{Score: float64(used), Member: chat.ID()}).Err()
}

// UnlistAwake removes a chat from the list of awake chats after all its keys were removed from Redis. The pin stays. If
// token no longer holds the lease, it lists the chat again, because the chat may have woken.
func (s Cold) UnlistAwake(ctx context.Context, chat memory.Chat, token string, used int64) (err error) {
	for _, key := range slices.Compact([]string{s.chatsKey(chat), memory.ListKey(memory.KindChats, chat.Tenant())}) {
		err = errors.Join(err, s.redis.ZRem(ctx, key, chat.ID()).Err())
	}
	ok := false
	if err == nil {
		ok, err = s.Holds(ctx, chat, token)
	}
	if err == nil && !ok {
		err = s.list(ctx, chat, used)
	}
	return failure(err, "taking chat %s off the list", chat)
}

// WakeUp removes a chat from the list of sleeping chats. If exists is true, it first adds the chat to the list of awake
// chats.
func (s Cold) WakeUp(ctx context.Context, chat memory.Chat, used int64, exists bool) (err error) {
	if exists {
		err = s.list(ctx, chat, used)
	}
	if err == nil {
		err = unlistCold(ctx, s.core, chat)
	}
	return failure(err, "listing chat %s as awake", chat)
}

// unlistCold removes a chat from the list of sleeping chats.
func unlistCold(ctx context.Context, s *core, chat memory.Chat) error {
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, key := range coldKeys(s, chat) {
			p.ZRem(ctx, key, chat.ID())
		}
	})
	return err
}

// BeginListing records the start of a listing of the cold store and returns a mark for AllListed.
func (s Cold) BeginListing(ctx context.Context) (mark int64, err error) {
	mark = -1 - rand.Int64N(1<<50)
	err = s.redis.ZAdd(ctx, coldList, redis.Z{Score: float64(mark), Member: filledMember}).Err()
	return mark, failure(err, "noting that the sleeping chats are being listed")
}

// AllListed records that all objects of the cold store are in the lists. It does nothing if Redis lost the mark, and
// thus maybe entries.
func (s Cold) AllListed(ctx context.Context, mark int64) error {
	r, err := s.call(ctx, staleScript, []string{coldList}, filledMember, mark)
	if err == nil && r.Word() == "gone" {
		err = s.redis.ZAdd(ctx, coldList, redis.Z{Score: s.deadline(0), Member: filledMember}).Err()
	}
	return failure(err, "noting that the sleeping chats are listed")
}

// InUse reports whether chats sleep in a cold store, or ever did. A process without a cold store must not treat them as
// empty chats.
func (s Cold) InUse(ctx context.Context) (bool, error) {
	n, err := s.redis.Exists(ctx, coldList).Result()
	return n > 0, failure(err, "looking for a list of sleeping chats")
}

// coldKeys returns the keys that may list a sleeping chat, scored by the Unix ms of the last run. The chat's own shard
// comes first, then its shards for other numbers of shards. While the number is raised, processes with both numbers may
// run. Readers query all keys and move no entries, because a missed entry would make the chat look empty.
func coldKeys(s *core, chat memory.Chat) []string {
	keys := []string{s.listKey(memory.KindCold, chat.Tenant(), chat.ID())}
	for shards := 1; shards <= memory.MaxShards; shards *= 2 {
		if key := keyOf(memory.KindCold, chat.Tenant(), chat.ID(), shards); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// coldList is the key of the marks for all sleeping chats.
var coldList = memory.ListKey(memory.KindCold, memory.Tenant{})
