package memory

import (
	"slices"
	"strings"
)

// Kind says what a key of Redis holds.
type Kind string

// Kinds of keys that belong to a chat.
const (
	KindHistory Kind = "history" // a history's JSON array
	KindArchive Kind = "archive" // beside a history: what trims cut off it, in segments
	KindNotes   Kind = "notes"   // beside a history: the JSON array of its notes
	KindMeta    Kind = "meta"    // beside a history: its sum, length, turn, and an index of the chat
	KindLease   Kind = "turn"    // beside a chat's history: the token of its holder, which may write
	KindFirst   Kind = "first"   // beside a chat's history: the token of the process that takes the lease next
	KindRewound Kind = "rewound" // beside a chat's history: what one rewind took back, under the rewind's id
	KindWaiting Kind = "waiting" // beside a chat's history: what a run that waits goes on from
	KindCalls   Kind = "calls"   // beside a chat's history: calls of tools outside, under the run's first attempt
	KindEvents  Kind = "events"  // a run's log
	KindRecord  Kind = "run"     // a run's record
)

// Kinds of which there is one key; the kind is its name.
const (
	KindOpenRuns  Kind = "turns:open"      // chats with an open run, by the end of their lease
	KindErasures  Kind = "mneme:erasures"  // what was erased, by the turn
	KindEpoch     Kind = "mneme:epoch"     // random text; another one means that data was lost
	KindProcesses Kind = "mneme:processes" // processes that live
	KindKeys      Kind = "mneme:keys"      // ids of the API keys, by the time when they were made
	KindTenants   Kind = "mneme:tenants"   // tenants, by the minute in which a key of theirs was last used
	KindWoken     Kind = "mneme:woken"     // chats that woke and still have an object in the cold store, by the wake
	KindErasing   Kind = "mneme:erasing"   // tenants and users that are being erased: see redisstore
	KindProbe     Kind = "mneme:probe"     // written and removed to learn what Redis permits
)

// Kinds of which there is one key for each tenant, see ListKey.
const (
	KindWaits Kind = "mneme:waiting" // chats of which a run waits for an answer, by the first expiry
	KindChats Kind = "mneme:chats"   // chats, by their last run
	// Chats that sleep in the cold store, by their last run. The entry is all that Redis has of one: a hash for each
	// bucket of chats would say nothing that the chat's object does not. In shards an entry could be missed by a process
	// with another number of them, and the chat be taken for an empty one.
	KindCold  Kind = "mneme:cold"
	KindAudit Kind = "mneme:audit" // the audit log: acts that can hurt others, and their actors
	// The bytes that a tenant stores, see package bytecount.
	KindStored Kind = "mneme:stored"

	// The default tenant, which is never erased as a whole, has none of these.
	KindUsers Kind = "mneme:users" // users that have notes or chats, by when that was last noted
)

// KindTools is a kind of which there is one key for each server of tools: what its tools were
// when they were pinned.
const KindTools Kind = "mneme:tools"

// KindKey is a kind of which there is one Redis key for each API key: its hash, tenant and scopes.
const KindKey Kind = "mneme:key"

// Kinds of which there is one key for each user, see UserKey.
const (
	KindUserNotes Kind = "user_notes"       // the JSON array of the user's notes
	KindUserChats Kind = "mneme:user-chats" // the chats that the user posted in, by the last run
	KindUserZone  Kind = "mneme:user-zone"  // the user's time zone, an IANA name
)

// ofUsers are the kinds of which there is one key for each user; RedisKey.Run is the user, behind the tenant.
var ofUsers = []Kind{KindUserNotes, KindUserChats, KindUserZone}

// numbered are the kinds of which there are many keys that are of no chat; their names are in RedisKey.Run.
var numbered = []Kind{KindTools, KindKey}

// listed are the kinds of which there is one key for each tenant; its name is in RedisKey.Run.
var listed = []Kind{KindWaits, KindChats, KindCold, KindAudit, KindStored, KindUsers}

// ListKey is the key of a kind of which there is one for each tenant: that of the default tenant is the kind.
func ListKey(kind Kind, tenant Tenant) string { return ShardKey(kind, tenant, 0) }

// Sharded are those of which the key of a tenant may be spread over several.
var Sharded = []Kind{KindChats, KindCold}

// ShardKey is the key of one shard of a tenant's list, from 1 on. 0 is ListKey.
func ShardKey(kind Kind, tenant Tenant, shard int) string {
	return RedisKey{Kind: kind, Run: tenant.name, Shard: shard}.String()
}

// ShardKeys are those of the shards 1 to n of a tenant's list.
func ShardKeys(kind Kind, tenant Tenant, n int) []string {
	list := ListKey(kind, tenant)
	keys, slot := make([]string, n), listSlot(list)
	for i := range keys {
		keys[i] = list + "#" + shardEnd(slot, i+1)
	}
	return keys
}

// types are those that the values have in Redis.
var types = map[Kind]string{
	KindHistory: "string", KindArchive: "hash", KindNotes: "string", KindMeta: "hash",
	KindLease: "string", KindFirst: "string", KindEvents: "stream", KindRecord: "hash",
	KindOpenRuns: "zset", KindErasures: "zset", KindEpoch: "string",
	KindRewound: "hash", KindWaiting: "hash", KindCalls: "hash", KindWaits: "zset",
	KindChats: "zset", KindCold: "zset",
	KindAudit: "stream", KindStored: "hash",
	KindProcesses: "hash",
	KindTools:     "hash",
	KindKeys:      "zset", KindKey: "hash",
	KindUserNotes: "string", KindUserChats: "zset", KindUserZone: "string",
	KindTenants: "zset", KindErasing: "zset", KindUsers: "zset", KindWoken: "zset",
	KindProbe: "string",
}

// UserKey is the key of a kind of which there is one for each user.
func UserKey(kind Kind, u User) string { return RedisKey{Kind: kind, Run: u.String()}.String() }

// RedisKey is a key of Redis in its parts. String makes each key that the memory has
// there, and ParseRedisKey takes it apart; nothing else does either.
type RedisKey struct {
	Kind Kind
	Key  Key // the history that it is or lies beside, the chat's own for a run; none if all chats share it
	// Run is that of a log, a record or calls; of a one-shot, behind its tenant; of what a rewind took back, the
	// rewind; of pins, the server; of a key, its id; of a list, the tenant, "" for the default one; of what is a
	// user's, the user behind the tenant.
	Run string
	// Shard is that of a list, 0 for a list in one key.
	Shard int
	// DamagedAt is the Unix ms at which a value was found to be none of this kind, and set
	// aside; empty for a value in its place.
	DamagedAt string
}

// AnyChat stands for all chats in a key that is a pattern for SCAN. It is no chat.
var AnyChat = Chat{id: "*"}

// String is the key as Redis has it. What one script touches together has the history's
// key in braces, which is the hash tag that puts all of it into one slot of a Cluster.
func (k RedisKey) String() string {
	if k.DamagedAt != "" {
		if k.besideHistory() {
			k.Kind = KindHistory // it stays in that history's slot
		}
		return "{" + RedisKey{Kind: k.Kind, Key: k.Key, Run: k.Run, Shard: k.Shard}.String() + "}:damaged:" + k.DamagedAt
	}
	if k.Shard > 0 {
		return shardKey(RedisKey{Kind: k.Kind, Run: k.Run}.String(), k.Shard)
	}
	switch {
	case k.Kind == KindHistory && k.Key.agent == "":
		return "chat_history:" + k.Key.chat.String()
	case k.Kind == KindHistory:
		return "subagent:" + string(k.Key.agent) + ":" + k.Key.chat.String()
	case k.perRun():
		return "{" + k.Key.String() + "}:" + string(k.Kind) + ":" + k.Run
	case k.besideHistory():
		return "{" + k.Key.String() + "}:" + string(k.Kind)
	case k.Kind == KindEvents || k.Kind == KindRecord:
		return string(k.Kind) + ":" + k.Key.chat.String() + ":" + k.Run
	case slices.Contains(numbered, k.Kind), slices.Contains(ofUsers, k.Kind),
		slices.Contains(listed, k.Kind) && k.Run != "":
		return string(k.Kind) + ":" + k.Run
	}
	return string(k.Kind)
}

func (k RedisKey) besideHistory() bool {
	switch k.Kind {
	case KindArchive, KindNotes, KindMeta, KindLease, KindFirst, KindRewound, KindWaiting, KindCalls:
		return true
	}
	return false
}

// perRun says whether there may be several keys of the kind beside one history, by their Run.
func (k RedisKey) perRun() bool { return k.Kind == KindRewound || k.Kind == KindCalls }

// Type is the type that Redis should say the key has, "" for what was set aside, which
// may be of any.
func (k RedisKey) Type() string {
	if k.DamagedAt != "" {
		return ""
	}
	return types[k.Kind]
}

// ParseRedisKey reads what String writes; ok is false for a key of another program. An id
// of a chat may have colons: in a history's key only the first two separate, so that
// subagent:analytic:x:1 belongs to chat "x:1", and in a run's the first and the last.
func ParseRedisKey(s string) (key RedisKey, ok bool) {
	if key, ok = parseRedisKey(s); !ok {
		return RedisKey{}, false
	}
	return key, true
}

// parseRedisKey is ParseRedisKey that may leave something in the key of a refusal.
func parseRedisKey(s string) (key RedisKey, ok bool) {
	if inner, rest, tagged := strings.Cut(s, "}:"); tagged && strings.HasPrefix(inner, "{") {
		key, ok = parseRedisKey(inner[1:])
		timestamp, damaged := strings.CutPrefix(rest, "damaged:")
		switch {
		case damaged:
			key.DamagedAt = timestamp
			return key, ok && timestamp != ""
		case key.Kind == KindHistory:
			kind, id, hasID := strings.Cut(rest, ":")
			key.Kind, key.Run = Kind(kind), id
			return key, ok && key.besideHistory() && hasID == key.perRun() && hasID == (id != "")
		}
		return RedisKey{}, false
	}
	for _, kind := range numbered {
		if name, matched := strings.CutPrefix(s, string(kind)+":"); matched {
			return RedisKey{Kind: kind, Run: name}, name != ""
		}
	}
	if strings.Contains(s, "#") {
		list, shard, valid := parseShardKey(s)
		key, ok = parseRedisKey(list)
		key.Shard = shard
		return key, ok && valid && slices.Contains(Sharded, key.Kind)
	}
	for _, kind := range listed {
		if name, matched := strings.CutPrefix(s, string(kind)+":"); matched {
			tenant, err := ParseTenant(name)
			return RedisKey{Kind: kind, Run: name}, err == nil && tenant != (Tenant{})
		}
	}
	for _, kind := range ofUsers {
		if name, matched := strings.CutPrefix(s, string(kind)+":"); matched {
			_, err := ParseUser(name)
			return RedisKey{Kind: kind, Run: name}, err == nil
		}
	}
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "chat_history":
		chat, err := ParseChat(rest)
		return RedisKey{Kind: KindHistory, Key: ChatKey(chat)}, err == nil
	case "subagent":
		name, id, _ := strings.Cut(rest, ":")
		agent, badAgent := ParseAgent(name)
		chat, badChat := ParseChat(id)
		return RedisKey{Kind: KindHistory, Key: SubagentKey(agent, chat)}, badAgent == nil && badChat == nil
	case string(KindEvents), string(KindRecord):
		end := max(strings.LastIndexByte(rest, ':'), 0)
		chat, err := ParseChat(rest[:end])
		return RedisKey{Kind: Kind(kind), Key: ChatKey(chat), Run: strings.TrimPrefix(rest[end:], ":")}, err == nil
	}
	_, ok = types[Kind(s)]
	return RedisKey{Kind: Kind(s)}, ok && strings.Contains(s, ":") && !slices.Contains(numbered, Kind(s)) &&
		!slices.Contains(ofUsers, Kind(s))
}
