package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Server is about the Redis servers themselves: which they are, whether they take writes, how full they are, and the
// epoch, a key that is set if there is none and that tells by its absence that data was lost.
type Server struct {
	*core
	mends mender
}

// Epoch is the store's random mark, set now if there is none.
func (s Server) Epoch(ctx context.Context) (string, error) {
	epoch, err := s.redis.Get(ctx, epochKey).Result()
	if errors.Is(err, redis.Nil) {
		if err = s.redis.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err == nil {
			epoch, err = s.redis.Get(ctx, epochKey).Result()
		}
	}
	return epoch, failure(err, "reading the store's epoch")
}

// Refusal is why the store takes no writes, in its own words, as Redis and the embedded
// store answer to a PING when they cannot put writes on their disk; "" while it says
// nothing of the kind.
func (s Server) Refusal(ctx context.Context) string {
	if err := s.redis.Ping(ctx).Err(); errors.Is(unavailable(err), memory.ErrReadOnly) {
		return strings.TrimPrefix(err.Error(), "MISCONF ")
	}
	return ""
}

// Probe runs the main commands of a turn's scripts on a key of its own, and a script over a key of each kind that a turn
// needs. An error names the refused command or key. The store of this process permits all, and is not probed.
func (s Server) Probe(ctx context.Context) error {
	if s.Compact != nil {
		return nil
	}
	for _, script := range []*redis.Script{probeScript, touchScript} {
		if err := script.Load(ctx, s.redis).Err(); err != nil {
			return unavailable(err)
		}
	}
	chat := memory.MustChat("mneme.probe")
	agent := memory.SubagentKey("probe", chat)
	calls := []redisscript.Call{{Script: probeScript, Keys: []string{string(memory.KindProbe)}}}
	for _, key := range []string{
		memory.ChatKey(chat).String(), chatMeta(chat), agent.String(), metaKey(agent), eventsKey(chat, "probe"),
		recordKey(chat, "probe"), openChats, epochKey, string(memory.KindUserNotes) + ":probe",
	} {
		calls = append(calls, redisscript.Call{Script: touchScript, Keys: []string{key}})
	}
	for _, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		if _, err := read(cmd); err != nil {
			return err
		}
	}
	return nil
}

// Scrub returns when nothing that was erased before is in a file of the store's any
// more, where the store is this process's own; the files of a Redis are out of reach.
func (s Server) Scrub(ctx context.Context) error {
	if s.Compact == nil {
		return nil
	}
	return failure(s.Compact(ctx), "what was erased may still be on the disk")
}

// RunIDs are the run ids of the Redis servers that hold keys, in some order. One
// that was not there before may hold other data than the one in its place did: it was
// restarted, or a replica took over. A server that does not say has no id. And full is
// which part of its maxmemory the fullest has used, 0 if none has a limit.
func (s Server) RunIDs(ctx context.Context) (ids []string, full float64, err error) {
	masters, err := Masters(ctx, s.redis)
	if err != nil {
		return nil, 0, failure(err, "asking which servers there are")
	}
	for _, node := range masters {
		var server, capacity *redis.InfoCmd // one section each: older servers take no list
		_, err := redisscript.Pipe(ctx, node, func(p redis.Pipeliner) {
			server, capacity = p.InfoMap(ctx, "server"), p.InfoMap(ctx, "memory")
		})
		if err = failure(err, "asking which servers there are"); errors.Is(err, memory.ErrRefused) {
			continue // it hides INFO, which says nothing about its data
		}
		if err != nil {
			return nil, 0, err
		}
		if id := server.Item("Server", "run_id"); id != "" {
			ids = append(ids, id)
		}
		used, _ := strconv.ParseFloat(capacity.Item("Memory", "used_memory"), 64)
		if limit, _ := strconv.ParseFloat(capacity.Item("Memory", "maxmemory"), 64); limit > 0 {
			full = max(full, used/limit)
		}
	}
	return ids, full, nil
}

// SyncTime is the longest time that a Redis with an append-only file needs to put a write on its disk: it syncs each
// second, and blocks writes if that takes a second more.
const SyncTime = 3 * time.Second

// Saved returns a time. All earlier writes are on the disks of the Redis servers. ever is false if the servers write to
// no disk, or refuse INFO.
func (s Server) Saved(ctx context.Context) (until time.Time, persistent bool, err error) {
	masters, err := Masters(ctx, s.redis)
	if err != nil {
		return until, false, failure(err, "asking which servers there are")
	}
	for i, node := range masters {
		start := time.Now()
		sections, err := node.InfoMap(ctx, "persistence").Result()
		if refused := redis.Error(nil); errors.As(err, &refused) {
			return time.Time{}, false, nil // it refuses INFO
		}
		if err != nil {
			return until, false, failure(err, "asking what is on the disk")
		}
		info := sections["Persistence"]
		saved := time.Unix(integer(info["rdb_last_save_time"])-1, 0)
		logged := info["aof_enabled"] == "1" || info["journal_writes"] != ""
		refused := info["aof_last_write_status"] == "err" || strings.HasPrefix(info["journal_writes"], "refused")
		if logged && !refused && info["aof_pending_bio_fsync"] != "1" {
			saved = start.Add(-SyncTime)
		}
		if !logged { // a server that refuses CONFIG GET may save
			rules, err := node.ConfigGet(ctx, "save").Result()
			logged = err != nil || rules["save"] != ""
		}
		persistent = persistent || logged
		if i == 0 || saved.Before(until) {
			until = saved
		}
	}
	return until, persistent, nil
}

// Save asks the Redis servers to write their data to the disk and does not wait for that, see Saved.
func (s Server) Save(ctx context.Context) error {
	masters, err := Masters(ctx, s.redis)
	for _, node := range masters {
		err = errors.Join(err, node.Do(ctx, "bgsave", "schedule").Err())
	}
	return failure(err, "asking to save")
}

// Sound looks at the keys of all chats, and moves away those of the wrong type. An
// error that is ErrDamaged names one that stays in the way; it is nil while Redis
// does not answer.
func (s Server) Sound(ctx context.Context) error {
	names := []string{epochKey, openChats, processesKey, erasuresKey}
	types := make([]*redis.StatusCmd, len(names))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, name := range names {
			types[i] = p.Type(ctx, name)
		}
	})
	for i, name := range names {
		if actual := types[i].Val(); actual != "" && actual != "none" && actual != typeOf(name) {
			if err := s.mends.mendAll(ctx, name); errors.Is(err, memory.ErrDamaged) {
				return err
			}
		}
	}
	return nil
}
