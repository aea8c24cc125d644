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

// Server handles the Redis servers themselves: their ids, their write failures, their memory use, and the epoch. The
// epoch is a key that is set if missing. A missing or changed epoch shows that Redis lost data.
type Server struct {
	*core
	mends mender
}

// Epoch returns the store's epoch, a random text. It sets the epoch if there is none.
func (s Server) Epoch(ctx context.Context) (string, error) {
	epoch, err := s.redis.Get(ctx, epochKey).Result()
	if errors.Is(err, redis.Nil) {
		if err = s.redis.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err == nil {
			epoch, err = s.redis.Get(ctx, epochKey).Result()
		}
	}
	return epoch, failure(err, "reading the store's epoch")
}

// Refusal returns the store's own message if the store rejects writes, "" otherwise. Redis and the embedded store
// return this message to a PING when they cannot write to their disk.
func (s Server) Refusal(ctx context.Context) string {
	if err := s.redis.Ping(ctx).Err(); errors.Is(unavailable(err), memory.ErrReadOnly) {
		return strings.TrimPrefix(err.Error(), "MISCONF ")
	}
	return ""
}

// Probe runs the main commands of a turn's scripts on a key of its own. It also runs a script over a key of each kind
// that a turn needs. An error names the refused command or key. Probe skips the embedded store.
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

// Scrub removes erased data from the files of the embedded store and returns when that is done. For a Redis server it
// does nothing, because its files are out of reach.
func (s Server) Scrub(ctx context.Context) error {
	if s.Compact == nil {
		return nil
	}
	return failure(s.Compact(ctx), "what was erased may still be on the disk")
}

// RunIDs returns the run ids of the Redis servers that hold keys, in any order. A new id may mean other data: the
// server was restarted, or a replica took over. A server that hides its id has none. full is the highest used fraction
// of maxmemory among the servers, 0 if no server has a limit.
func (s Server) RunIDs(ctx context.Context) (ids []string, full float64, err error) {
	masters, err := Masters(ctx, s.redis)
	if err != nil {
		return nil, 0, failure(err, "asking which servers there are")
	}
	for _, node := range masters {
		var server, capacity *redis.InfoCmd // one section each: older servers accept no list
		_, err := redisscript.Pipe(ctx, node, func(p redis.Pipeliner) {
			server, capacity = p.InfoMap(ctx, "server"), p.InfoMap(ctx, "memory")
		})
		if err = failure(err, "asking which servers there are"); errors.Is(err, memory.ErrRefused) {
			continue // it refuses INFO, which reveals nothing about its data
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

// SyncTime is the longest time that a Redis with an append-only file needs to put a write on its disk. Redis syncs each
// second and blocks writes if a sync takes one more second.
const SyncTime = 3 * time.Second

// Saved returns a time until. All writes before until are on the disks of the Redis servers. persistent is false if no
// server writes to a disk, or if a server refuses INFO.
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

// Save makes the Redis servers write their data to disk in the background. It does not wait; see Saved.
func (s Server) Save(ctx context.Context) error {
	masters, err := Masters(ctx, s.redis)
	for _, node := range masters {
		err = errors.Join(err, node.Do(ctx, "bgsave", "schedule").Err())
	}
	return failure(err, "asking to save")
}

// Sound checks the types of the keys that all chats share, and sets aside keys of the wrong type. It returns an
// ErrDamaged error for a key that cannot be moved. It returns nil if Redis does not respond.
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
