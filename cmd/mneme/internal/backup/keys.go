package backup

import (
	"regexp"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/memory"
)

// role says what becomes of a key.
type role int

const (
	foreign    role = iota // not mneme's: neither saved nor removed
	live                   // of processes that run: not saved, and removed by a restore
	part                   // read with something else
	history                // read with its meta
	meta                   // read with its history, or alone where there is none
	collection             // a collection's meta, by which all of its keys are read
	plain                  // read alone
	pointer                // read alone, behind what it leads to
)

// passes are the roles that are read one after the other, each over all keys: histories before the logs of the
// runs that wrote them, and what the gateway has of a conversation before the keys that lead to it. Of a chat
// that is erased meanwhile the histories go first, so that nothing behind them outlives it.
var passes = [][]role{{history}, {meta}, {collection, plain}, {pointer}}

// runID is what the id of a run looks like: others may have keys that begin with
// "run:" or "events:".
var runID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// others are the keys that are not of the memory, by the first expression that fits. The packages limit, tally,
// docstore and redisstore of the proxy list what they keep in their doc comments.
var others = []struct {
	key  *regexp.Regexp
	role role
}{
	{regexp.MustCompile(`^documents:\{[^:}]*\}(:chats)?$`), plain},
	{regexp.MustCompile(`^documents:\{[^:}]*:[^}]*\}:meta$`), collection},
	{regexp.MustCompile(`^documents:\{[^:}]*:[^}]*\}(:(heads|ids|log|vectors))?$`), part},
	// What was spent; not what calls hold, and how fast they came.
	{regexp.MustCompile(`^` + limit.Prefix + `\{[^}]*\}:(day|month|total)(:|$)`), plain},
	{regexp.MustCompile(`^` + limit.Prefix + `\{[^}]*\}:`), live},
	{regexp.MustCompile(`^` + tally.Prefix + `\{`), plain},
	{regexp.MustCompile(`^proxy:(turns:born$|copilot:)`), live}, // born is the random mark of the answered turns
	{regexp.MustCompile(`^proxy:turns:`), plain},
	{regexp.MustCompile(`^proxy:`), pointer},
}

// roleOf tells a key of mneme's from those of other programs.
func roleOf(key string) role {
	if k, ok := memory.ParseRedisKey(key); ok {
		return ofMemory(k)
	}
	for _, o := range others {
		if o.key.MatchString(key) {
			return o.role
		}
	}
	return foreign
}

func ofMemory(k memory.RedisKey) role {
	switch k.Kind {
	case memory.KindEvents, memory.KindRecord:
		if !runID.MatchString(k.Run) {
			return foreign
		}
		return plain
	case memory.KindHistory:
		if k.DamagedAt != "" {
			return plain
		}
		return history
	case memory.KindMeta:
		return meta
	case memory.KindArchive, memory.KindNotes, memory.KindRewound, memory.KindWaiting, memory.KindCalls, memory.KindTools,
		memory.KindAudit, memory.KindStored, memory.KindUserNotes, memory.KindUserChats, memory.KindUserZone,
		memory.KindKey, memory.KindUsers:
		return plain
	case memory.KindKeys, memory.KindTenants, memory.KindErasing, memory.KindWoken:
		if k.DamagedAt == "" {
			return plain
		}
	}
	return live // leases, and what all chats share, also if it was set aside
}
