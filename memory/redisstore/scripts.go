package redisstore

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var (
	appendScript  = redisscript.New(lua, "common", "append")
	asideScript   = redisscript.New(lua, "common", "aside")
	cutScript     = redisscript.New(lua, "common", "cut")
	indexScript   = redisscript.New(lua, "common", "index")
	loadScript    = redisscript.New(lua, "common", "load")
	replaceScript = redisscript.New(lua, "common", "replace")
	eraseScript   = redisscript.New(lua, "common", "erase")
	takeScript    = redisscript.New(lua, "common", "take")
	renewScript   = redisscript.New(lua, "common", "renew")
	regainScript  = redisscript.New(lua, "common", "regain")
	packScript    = redisscript.New(lua, "common", "pack")
	beginScript   = redisscript.New(lua, "common", "begin")
	openScript    = redisscript.New(lua, "common", "lease", "open")
	finishScript  = redisscript.New(lua, "common", "finish")
	closeScript   = redisscript.New(lua, "common", "close")
	trimScript    = redisscript.New(lua, "common", "trim")

	distrustScript   = redisscript.New(lua, "common", "distrust")
	restoreCutScript = redisscript.New(lua, "common", "restore_cut")
	segmentScript    = redisscript.New(lua, "common", "segment")
	rearchiveScript  = redisscript.New(lua, "common", "segments", "rearchive")
	rewindScript     = redisscript.New(lua, "common", "segments", "rewind")
	rewindRunScript  = redisscript.New(lua, "common", "rewind_run")
	setAsideScript   = redisscript.New(lua, "common", "fence", "set_aside")
	pendingScript    = redisscript.New(lua, "common", "fence", "pending")
	answerScript     = redisscript.New(lua, "common", "answer")
	notesScript      = redisscript.New(lua, "common", "fence", "notes")
	pinScript        = redisscript.New(lua, "pin")
	stateScript      = redisscript.New(lua, "common", "lease", "state")
	suspendScript    = redisscript.New(lua, "common", "lease", "suspend")
	reopenScript     = redisscript.New(lua, "common", "lease", "reopen")
	answersScript    = redisscript.New(lua, "common", "answers")
	callsScript      = redisscript.New(lua, "common", "lease", "calls")
	staleScript      = redisscript.New(lua, "common", "stale")
	membersScript    = redisscript.New(lua, "common", "fence", "members")
	claimScript      = redisscript.New(lua, "common", "claim")
	settleScript     = redisscript.New(lua, "common", "settle")
	chatsScript      = redisscript.New(lua, "chats")
	beginsScript     = redisscript.New(lua, "common", "begins")
	cardScript       = redisscript.New(lua, "card")
	freezeScript     = redisscript.New(lua, "common", "fence", "freeze")
	thawScript       = redisscript.New(lua, "common", "fence", "thaw")

	probeScript = redisscript.New(lua, "probe")
	touchScript = redisscript.New(lua, "touch")
)

// keeping contains the scripts that remove no data that the cold store may have a copy of. It also contains the scripts
// of erasures, redactions and rewinds, which run only after the copy was deleted. Add a new script only for one of
// these reasons.
var keeping = map[*redis.Script]bool{
	answersScript: true, appendScript: true, asideScript: true, beginsScript: true, callsScript: true, chatsScript: true,
	claimScript: true, cutScript: true, eraseScript: true, freezeScript: true, indexScript: true, loadScript: true,
	packScript: true, pendingScript: true, pinScript: true, rearchiveScript: true, replaceScript: true,
	rewindScript: true, segmentScript: true, setAsideScript: true, settleScript: true, staleScript: true,
	stateScript: true, takeScript: true, thawScript: true, trimScript: true,
}

// read returns a script's reply. Any error of Redis is returned as an error of package memory. The reply "moved"
// becomes memory.ErrMoved.
func read(cmd *redis.Cmd) (redisscript.Reply, error) {
	r, err := redisscript.Read(cmd)
	if err != nil {
		return nil, unavailable(err, redisscript.Keys(cmd)...)
	}
	if r.Word() == "moved" {
		return r, memory.ErrMoved
	}
	return r, nil
}

// unavailable returns an error of Redis as an error of package memory. It returns errors of that package unchanged.
// keys are the command's keys, if known.
func unavailable(err error, keys ...string) error {
	switch {
	case err == nil:
		return nil
	case slices.ContainsFunc([]error{memory.ErrUnavailable, memory.ErrDamaged, memory.ErrMoved, errChanged},
		func(ours error) bool { return errors.Is(err, ours) }):
		return err
	case redisscript.WrongType(err):
		return fmt.Errorf("%w: %w", memory.ErrDamaged, err)
	case strings.HasPrefix(err.Error(), "MISCONF"):
		return fmt.Errorf("%w: %w: %w", memory.ErrUnavailable, memory.ErrReadOnly, err)
	}
	return redisscript.Unavailable(err, keys...)
}

// failure wraps err, as returned by unavailable, with a description of the failed operation. It returns nil for nil.
func failure(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), unavailable(err))
}

// readFailure is failure for reads of values that may be missing. It returns nil for redis.Nil.
func readFailure(err error, doing string, args ...any) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return failure(err, doing, args...)
}

// integer parses a turn or another number. Any other text counts as 0, because any program may write into Redis.
func integer(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// textAt returns the value at i in a reply of HMGET, "" for a missing one.
func textAt(values []any, i int) string {
	text, _ := values[i].(string)
	return text
}

func metaKey(k memory.Key) string { return memory.RedisKey{Kind: memory.KindMeta, Key: k}.String() }

func archiveKey(k memory.Key) string {
	return memory.RedisKey{Kind: memory.KindArchive, Key: k}.String()
}

func notesKey(k memory.Key) string { return memory.RedisKey{Kind: memory.KindNotes, Key: k}.String() }

func damagedKey(k memory.Key, timestamp string) string {
	return memory.RedisKey{Kind: memory.KindHistory, Key: k, DamagedAt: timestamp}.String()
}

// ofChat returns the key of a kind for a chat, or for one of its runs.
func ofChat(kind memory.Kind, c memory.Chat, run string) string {
	return memory.RedisKey{Kind: kind, Key: memory.ChatKey(c), Run: run}.String()
}

func rewoundKey(c memory.Chat, id string) string { return ofChat(memory.KindRewound, c, id) }

func waitingKey(c memory.Chat) string { return ofChat(memory.KindWaiting, c, "") }

func callsKey(c memory.Chat, run string) string { return ofChat(memory.KindCalls, c, run) }

func leaseKey(c memory.Chat) string { return ofChat(memory.KindLease, c, "") }

func firstKey(c memory.Chat) string { return ofChat(memory.KindFirst, c, "") }

func eventsKey(c memory.Chat, run string) string { return ofChat(memory.KindEvents, c, run) }

func recordKey(c memory.Chat, run string) string { return ofChat(memory.KindRecord, c, run) }

const (
	openChats    = string(memory.KindOpenRuns) // scored by the Unix ms at which the lease ends
	epochKey     = string(memory.KindEpoch)
	processesKey = string(memory.KindProcesses) // by id: the process's URL and last heartbeat
	erasuresKey  = string(memory.KindErasures)  // names as in package erasures, scored by the turn
)

// chatsKey returns the key of the list of c's tenant that c belongs to. The list is scored by the Unix ms of the last
// run, see [Chats.ByUse].
func (s *core) chatsKey(c memory.Chat) string { return s.listKey(memory.KindChats, c.Tenant(), c.ID()) }

// waitsKey returns the key of the tenant's chats with a waiting run, scored by the Unix ms of the first expiry.
func waitsKey(t memory.Tenant) string { return memory.ListKey(memory.KindWaits, t) }

// chatMeta returns the key of the meta of a chat's own history. That meta also holds all data about the whole chat.
func chatMeta(c memory.Chat) string { return metaKey(memory.ChatKey(c)) }

func historyKeys(k memory.Key) []string { return []string{k.String(), metaKey(k)} }

func turnKeys(c memory.Chat) []string { return []string{leaseKey(c), chatMeta(c)} }
