package backup

import (
	"regexp"
	"strings"

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

// Keys that do not depend on what is stored.
const (
	epochKey     = "mneme:epoch"
	processesKey = "mneme:processes"
	erasuresKey  = "mneme:erasures"
	openRunsKey  = "turns:open"
	turnsBornKey = "proxy:turns:born"
)

// scans are the patterns that find every key, in the order in which they are read:
// histories before the logs of the runs that wrote them, and what the gateway has
// of a conversation before the keys that lead to it. Of a chat that is erased
// meanwhile the histories go first, so that nothing behind them outlives it.
var scans = []string{
	"chat_history:*", "subagent:*", "{chat_history:*", "{subagent:*",
	"events:*", "run:*", "{events:*", "{run:*", "{turns:*", "{mneme:*", "documents:{*", "proxy:turns:*", "proxy:*",
}

// runID is what the id of a run looks like: others may have keys that begin with
// "run:" or "events:".
var runID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// roleOf tells a key of mneme's from others. The packages redisstore and docstore
// list what they keep in their doc comments.
func roleOf(key string) role {
	head, rest, _ := strings.Cut(key, ":")
	switch head {
	case "chat_history", "subagent":
		if _, ok := memory.ParseKey(key); ok {
			return history
		}
	case "{chat_history", "{subagent":
		name, kind, _ := strings.Cut(key[1:], "}:")
		if _, ok := memory.ParseKey(name); ok {
			return besideHistory(kind)
		}
	case "{events", "{run", "{turns", "{mneme": // of another type than they should have, and set aside
		if name, kind, ok := strings.Cut(key[1:], "}:"); ok && strings.HasPrefix(kind, "damaged:") {
			return roleOf(name)
		}
	case "documents":
		return ofDocuments(rest)
	case "events", "run":
		return ofRun(rest)
	case "proxy":
		return ofProxy(key)
	case "mneme", "turns":
		if key == epochKey || key == openRunsKey || key == processesKey || key == erasuresKey {
			return live
		}
	}
	return foreign
}

func besideHistory(kind string) role {
	switch {
	case kind == "meta":
		return meta
	case kind == "turn", kind == "first":
		return live
	case strings.HasPrefix(kind, "damaged:"):
		return plain
	}
	return foreign
}

// ofDocuments tells {<tenant>} and {<tenant>:<collection>}, :heads and so on.
func ofDocuments(rest string) role {
	name, kind, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
	if !ok || !strings.HasPrefix(rest, "{") {
		return foreign
	}
	if !strings.Contains(name, ":") {
		if kind == "" {
			return plain // the names of a tenant's collections
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

func ofRun(rest string) role {
	end := strings.LastIndexByte(rest, ':')
	if end < 0 || !runID.MatchString(rest[end+1:]) {
		return foreign
	}
	if _, err := memory.ParseChat(rest[:end]); err != nil {
		return foreign
	}
	return plain
}

func ofProxy(key string) role {
	if key == turnsBornKey || strings.HasPrefix(key, "proxy:copilot:") {
		return live
	}
	return plain
}

// historyOf is the key of the history that a meta describes, and metaOf the meta's.
func historyOf(meta string) string { return strings.TrimSuffix(meta[1:], "}:meta") }
func metaOf(history string) string { return "{" + history + "}:meta" }

// chatMeta is the chat whose own history this meta describes.
func chatMeta(key string) (memory.Chat, bool) {
	if roleOf(key) != meta {
		return memory.Chat{}, false
	}
	k, _ := memory.ParseKey(historyOf(key))
	return k.Chat(), k.Agent() == ""
}
