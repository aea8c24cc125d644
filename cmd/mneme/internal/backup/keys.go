package backup

import (
	"regexp"
	"slices"
	"strings"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/memory"
)

// role says what becomes of a key.
type role int

const (
	foreign    role = iota // not mneme's: neither saved nor removed
	live                   // of processes that run: not saved, and removed by a restore
	history                // read with its meta
	meta                   // read with its history, or alone where there is none
	collection             // a collection's meta, by which all of its keys are read
	part                   // read with something else
	plain                  // read alone
)

// turnsBornKey is the random mark of the gateway's answered turns.
const turnsBornKey = "proxy:turns:born"

// scans are the patterns that find every key, in the order in which they are read:
// histories before the logs of the runs that wrote them, and what the gateway has
// of a conversation before the keys that lead to it. Of a chat that is erased
// meanwhile the histories go first, so that nothing behind them outlives it.
var scans = append(slices.Clone(memory.RedisPatterns), memory.RedisKey{Kind: memory.KindTools, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindOneShot, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindOneShotCalls, Run: "*"}.String(),
	string(memory.KindAudit)+"*",
	memory.RedisKey{Kind: memory.KindChats, Run: "*"}.String(), memory.RedisKey{Kind: memory.KindWaits, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindUserNotes, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindUserChats, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindUsers, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindOneShots, Run: "*"}.String(),
	memory.RedisKey{Kind: memory.KindKey, Run: "*"}.String(), string(memory.KindKeys), string(memory.KindTenants),
	string(memory.KindErasing),
	"documents:{*", "proxy:turns:*", "proxy:*", limit.Prefix+"{*", tally.Prefix+"{*")

// runID is what the id of a run looks like: others may have keys that begin with
// "run:" or "events:".
var runID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// roleOf tells a key of mneme's from others. The packages redisstore and docstore
// list what they keep in their doc comments.
func roleOf(key string) role {
	if k, ok := memory.ParseRedisKey(key); ok {
		return ofMemory(k)
	}
	switch head, rest, _ := strings.Cut(key, ":"); {
	case strings.HasPrefix(key, limit.Prefix+"{"):
		return ofLimits(key)
	case strings.HasPrefix(key, tally.Prefix+"{"):
		return plain
	case head == "documents":
		return ofDocuments(rest)
	case head != "proxy":
		return foreign
	case key == turnsBornKey || strings.HasPrefix(rest, "copilot:"):
		return live
	}
	return plain
}

func ofMemory(k memory.RedisKey) role {
	switch k.Kind {
	case memory.KindEvents, memory.KindRecord:
		if !runID.MatchString(k.Run) {
			return foreign
		}
		return plain
	case memory.KindHistory:
		if k.Aside != "" {
			return plain
		}
		return history
	case memory.KindMeta:
		return meta
	case memory.KindArchive, memory.KindNotes, memory.KindRewound, memory.KindWaiting, memory.KindCalls, memory.KindTools,
		memory.KindOneShot, memory.KindOneShotCalls, memory.KindAudit, memory.KindUserNotes,
		memory.KindUserChats, memory.KindKey, memory.KindUsers, memory.KindOneShots:
		return plain
	case memory.KindKeys, memory.KindTenants, memory.KindErasing:
		if k.Aside == "" {
			return plain
		}
	}
	return live // leases, and what all chats share, also if it was set aside
}

// ofDocuments tells {<tenant>} and {<tenant>:<collection>}, :heads and so on.
func ofDocuments(rest string) role {
	name, kind, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
	if !ok || !strings.HasPrefix(rest, "{") {
		return foreign
	}
	if !strings.Contains(name, ":") {
		if kind == "" || kind == ":chats" {
			return plain // the names of a tenant's collections, and its chats that have documents
		}
		return foreign
	}
	switch kind {
	case ":meta":
		return collection
	case "", ":heads", ":ids", ":log", ":vectors":
		return part
	}
	return foreign
}

// ofLimits tells what was spent, which a restore brings back, from what calls hold and how fast they came.
func ofLimits(key string) role {
	_, rest, ok := strings.Cut(key, "}:")
	if !ok {
		return foreign
	}
	switch book, _, _ := strings.Cut(rest, ":"); book {
	case "day", "month", "total":
		return plain
	}
	return live
}

// metaOf is the key of the meta that describes a history.
func metaOf(key memory.Key) string { return memory.RedisKey{Kind: memory.KindMeta, Key: key}.String() }
