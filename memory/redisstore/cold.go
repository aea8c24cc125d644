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

// Cold is about chats that sleep in the cold store: a list of them for each tenant, and how the keys of one leave Redis
// and come back. A chat leaves under its lease in two rounds, between which it is in both lists; its meta says in cold
// how far that is: the turn in which the sweeper last looked at it, with a minus from the moment on in which keys of it
// may be gone. The turn fences each step, since a lease may have run out. The object is the truth of a chat that is in
// the list: what Redis has beside it was written by another program, or is left of a step that was not finished.
//
// In the default tenant's list stands filledMember when all objects of the cold store are in the lists.
type Cold struct {
	*core
	histories *Store
}

// Sleep is what Redis says of where a chat is.
type Sleep struct {
	Asleep bool  // it is in the list of those that sleep
	Used   int64 // and was used last, Unix ms
	Listed bool  // all that sleep are in the list
	Turn   int64 // the newest one in Redis, 0 if it has nothing of the chat
	Note   int64 // the field cold of its meta, 0 for none
	Woken  int64 // Unix ms at which it was brought back, 0 if that is long ago
}

// Look says where chats are, in one round trip.
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

// coldScores asks for a chat in all keys in which it may be listed as sleeping.
func coldScores(ctx context.Context, s *core, p redis.Pipeliner, chat memory.Chat) (scores []*redis.FloatCmd) {
	for _, key := range coldKeys(s, chat) {
		scores = append(scores, p.ZScore(ctx, key, chat.ID()))
	}
	return scores
}

// latest is the greatest of the scores that are there.
func latest(scores []*redis.FloatCmd) (used int64, ok bool) {
	for _, score := range scores {
		if score.Err() == nil {
			used, ok = max(used, int64(score.Val())), true
		}
	}
	return used, ok
}

// Idle gives up to count chats of a tenant that were not used since a time, any of them: so processes that sweep at
// once get others, and those that may not leave hold up none.
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

// Snapshot reads all keys of a chat that go into its object, those of subagents first, of each history its own and the
// meta last. fit is false for what can not be brought back as it is: keys of other types, or with an end.
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

// Remove deletes the keys of a snapshot under a turn, history by history, the chat's meta last. ErrMoved: the chat has a
// newer turn, or another program has written a history since; some may be gone.
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

// byHistory are the keys of a snapshot by their history, the chat's own last also if it has none.
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

// thawBytes is about how much of a hash one script is given.
const thawBytes = 1 << 20

// Restore brings back what Redis lacks of a snapshot, under the chat's turn: of each history what lies beside it first,
// then in one step the history and its meta, the chat's own last. What is there stays as it is. An archive is whole
// when it has its totals, which come last. A history that another program has deleted or rewritten after the turn of
// the snapshot, as Redis or cutIn knows, stays away.
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
		if first, ok := meta.Hash["first"]; ok && meta.Hash["joins"] == "" { // an earlier version has no joins
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

// restore writes the string of one key of a history and the fields of another one that are not there.
func (s Cold) restore(ctx context.Context, turn int64, key memory.Key, text, hash cold.Key) error {
	fields := slices.Sorted(maps.Keys(hash.Hash)) // of an archive, numbers come before the totals
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

// joinOlder adds what a snapshot has of a history to what Redis has. A process that takes the sleep for a loss writes
// its own copy back, which may be older than the snapshot.
func (s Cold) joinOlder(ctx context.Context, turn int64, key memory.Key, history, meta cold.Key) error {
	h, err := parseFrozen(key, history, meta)
	if err == nil {
		h.ProvenIn(turn)
		_, err = s.histories.WriteBack(ctx, h)
	}
	return err
}

// parseFrozen parses a history of a snapshot.
func parseFrozen(key memory.Key, history, meta cold.Key) (*memory.History, error) {
	h, err := memory.ParseHistory(key, []byte(cmp.Or(history.String, "[]")))
	if err != nil {
		return nil, err
	}
	number := func(field string) int64 { return integer(string(meta.Hash[field])) }
	h.Follows(max(number("erased"), number("adopted"), number("cut")), string(meta.Hash["first"]))
	return h, nil
}

// Frozen is a chat's own history as an object of the cold store holds it.
type Frozen struct {
	*memory.History
	Archive  []json.RawMessage // messages of its archive
	Archived int               // number of messages that trims had moved
	Complete bool              // no part of the archive is damaged or missing

	User   string // as in the chat's meta
	Hidden memory.Quarantine
}

// Freeze reads the chat's own history out of the keys of its object.
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

// wokenChats lists chats that woke and still have an object, by the Unix ms of the wake.
const wokenChats = string(memory.KindWoken)

// Woke notes that a chat was brought back, before any client sees it.
func (s Cold) Woke(ctx context.Context, chat memory.Chat) error {
	err := s.redis.ZAdd(ctx, wokenChats, redis.Z{Score: s.deadline(0), Member: chat.String()}).Err()
	return failure(err, "noting that chat %s woke", chat)
}

// WokenBefore returns up to count chats that woke before a time and may still have an object.
func (s Cold) WokenBefore(ctx context.Context, cutoff time.Time, count int64) (chats []memory.Chat, err error) {
	names, err := s.redis.ZRangeByScore(ctx, wokenChats,
		&redis.ZRangeBy{Min: "0", Max: strconv.FormatInt(cutoff.UnixMilli(), 10), Count: count}).Result()
	for _, name := range names {
		if chat, bad := memory.ParseChat(name); bad == nil {
			chats = append(chats, chat)
		} else if err == nil { // another program's member
			err = s.redis.ZRem(ctx, wokenChats, name).Err()
		}
	}
	return chats, failure(err, "looking for chats that woke")
}

// Unwoke takes a chat off the list of WokenBefore, unless it woke again after at.
func (s Cold) Unwoke(ctx context.Context, chat memory.Chat, wokenAt int64) error {
	_, err := s.call(ctx, staleScript, []string{wokenChats}, chat.String(), wokenAt)
	return failure(err, "noting that chat %s has no object", chat)
}

// Holds says whether a lease is held under a token.
func (s Cold) Holds(ctx context.Context, chat memory.Chat, token string) (bool, error) {
	holder, err := s.redis.Get(ctx, leaseKey(chat)).Result()
	return holder == token, readFailure(err, "looking who holds the turn of chat %s", chat)
}

// FallAsleep lists a chat as sleeping that was used last at a time, unless it is listed so.
func (s Cold) FallAsleep(ctx context.Context, chat memory.Chat, used int64) error {
	err := s.redis.ZAddNX(ctx, coldKeys(s.core, chat)[0], redis.Z{Score: float64(used), Member: chat.ID()}).Err()
	return failure(err, "listing chat %s as sleeping", chat)
}

// list brings a chat into the list of those that are awake, unless it is there.
func (s Cold) list(ctx context.Context, chat memory.Chat, used int64) error {
	return s.redis.ZAddNX(ctx, s.chatsKey(chat), redis.Z{Score: float64(used), Member: chat.ID()}).Err()
}

// UnlistAwake takes a chat off the list of those that are awake, once all of it is gone from Redis; its pin stays. Should the
// lease have run out it is listed again, since it may have been woken.
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

// WakeUp takes a chat off the list of those that sleep. Before that it is in that of those that are awake, unless
// nothing of it is there.
func (s Cold) WakeUp(ctx context.Context, chat memory.Chat, used int64, exists bool) (err error) {
	if exists {
		err = s.list(ctx, chat, used)
	}
	if err == nil {
		err = unlistCold(ctx, s.core, chat)
	}
	return failure(err, "listing chat %s as awake", chat)
}

// unlistCold takes a chat off the list of those that sleep.
func unlistCold(ctx context.Context, s *core, chat memory.Chat) error {
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, key := range coldKeys(s, chat) {
			p.ZRem(ctx, key, chat.ID())
		}
	})
	return err
}

// BeginListing notes that the objects of the cold store are being listed, under a mark that AllListed takes.
func (s Cold) BeginListing(ctx context.Context) (mark int64, err error) {
	mark = -1 - rand.Int64N(1<<50)
	err = s.redis.ZAdd(ctx, coldList, redis.Z{Score: float64(mark), Member: filledMember}).Err()
	return mark, failure(err, "noting that the sleeping chats are being listed")
}

// AllListed notes that all objects of the cold store are in the lists, unless Redis lost the mark since that began:
// with it, it may have lost some of them.
func (s Cold) AllListed(ctx context.Context, mark int64) error {
	r, err := s.call(ctx, staleScript, []string{coldList}, filledMember, mark)
	if err == nil && r.Word() == "gone" {
		err = s.redis.ZAdd(ctx, coldList, redis.Z{Score: s.deadline(0), Member: filledMember}).Err()
	}
	return failure(err, "noting that the sleeping chats are listed")
}

// InUse reports whether chats sleep in a cold store, or did. A process without a cold store must not treat them as
// empty chats.
func (s Cold) InUse(ctx context.Context) (bool, error) {
	n, err := s.redis.Exists(ctx, coldList).Result()
	return n > 0, failure(err, "looking for a list of sleeping chats")
}

// coldKeys are where a chat that sleeps may be listed, scored by the Unix ms of the last run: first its shard, then those
// that it has by another number of them, since processes of both may be there while the number is raised. A chat that is
// overlooked would be taken for an empty one, so all are asked before it is, and no entry is moved between them.
func coldKeys(s *core, chat memory.Chat) []string {
	keys := []string{s.listKey(memory.KindCold, chat.Tenant(), chat.ID())}
	for shards := 1; shards <= memory.MaxShards; shards *= 2 {
		if key := keyOf(memory.KindCold, chat.Tenant(), chat.ID(), shards); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// coldList is where stands what is said of all that sleep.
var coldList = memory.ListKey(memory.KindCold, memory.Tenant{})
