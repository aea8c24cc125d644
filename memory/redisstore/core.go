package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// attempts bounds how often one call starts over after a failed compare-and-set.
const attempts = 32

// tombstone is the lifetime of a tombstone.
const tombstone = 30 * 24 * time.Hour

// replicaWait is how long a write waits for replicas before it counts as failed.
const replicaWait = time.Second

// core holds the client, the settings and the shared functions of the store and its fields. Set the exported fields
// before the first call.
type core struct {
	redis redis.UniversalClient
	log   zerolog.Logger
	now   func() time.Time

	// WaitReplicas is the number of replicas that must confirm an acknowledged write: an append, a claim or result of a
	// call, or an answer to a wait. A write waits for replicaWait at most.
	WaitReplicas int

	// ListShards is the number of keys that each growing list of chats is spread over. 0 and 1 mean a single key. It is a
	// power of two, so that of two processes only the one with more shards moves the other's entries.
	ListShards int

	// RunLife is the longest duration of a run. ResumeLife is how long the events of a finished run can be read. Both
	// determine how long data of runs is stored.
	RunLife, ResumeLife time.Duration

	// Secret is the shared secret of the services' processes, "" for none. Other programs that write into Redis must not
	// have it.
	Secret string

	// Archive configures the archiving of trimmed messages.
	Archive Archive

	// Compact rewrites the store's files without deleted data. It is nil if this process does not own the files.
	Compact func(context.Context) error

	// OnCut, if not nil, is called when a history was deleted or rewritten by another program. turn is the turn that
	// recorded the change. Older copies must not restore the removed data.
	OnCut func(key memory.Key, turn int64)

	// LossLog receives the many lines about histories that Redis lost.
	LossLog zerolog.Logger

	// LostData, if not nil, reports whether Redis lost data recently. A missing history that has a meta then counts as
	// lost, not as deleted by hand.
	LostData func(ctx context.Context) bool

	// Forget, if not nil, deletes the copy of a chat in the cold store before data of the chat is removed. Lists of chats
	// then include sleeping chats.
	Forget func(ctx context.Context, chat memory.Chat) error

	// Counts counts unexpected events.
	Counts Counts
}

// Counts are counters of events that an operator may want to see.
type Counts struct {
	Stale     atomic.Int64 // appends with an outdated copy
	Adopted   atomic.Int64 // adopted values of other programs
	Damaged   atomic.Int64 // set-aside values
	Deleted   atomic.Int64 // histories that were deleted by hand
	Late      atomic.Int64 // messages that a spool delivered after their turn
	Recovered atomic.Int64 // histories that Redis lost, wholly or partly, and a copy restored
}

// call runs one script. Unless keeping contains the script, call first deletes the chat's copy in the cold store. It
// deletes the copy again after the script, because the chat may have been copied meanwhile.
func (s *core) call(ctx context.Context, script *redis.Script, keys []string, args ...any) (redisscript.Reply, error) {
	if s.Forget == nil || keeping[script] {
		return s.callKeeping(ctx, script, keys, args...)
	}
	key, _ := memory.ParseRedisKey(keys[0])
	chat := key.Key.Chat()
	if chat.IsZero() {
		return s.callKeeping(ctx, script, keys, args...)
	}
	if err := s.Forget(ctx, chat); err != nil {
		return nil, err
	}
	r, err := s.callKeeping(ctx, script, keys, args...)
	if err == nil {
		err = s.Forget(ctx, chat)
	}
	return r, err
}

// callKeeping runs a script without deleting the chat's copy in the cold store.
func (s *core) callKeeping(ctx context.Context, script *redis.Script, keys []string, args ...any) (redisscript.Reply,
	error) {
	return read(script.Run(ctx, s.redis, keys, args...))
}

// inOrder runs cmds in order and returns the reply of call, which is one of them and runs script. See
// [redisscript.InOrder].
func (s *core) inOrder(ctx context.Context, script *redis.Script, call *redis.Cmd, cmds ...redis.Cmder) (
	redisscript.Reply, error) {
	if err := redisscript.InOrder(ctx, s.redis, []*redis.Script{script}, cmds...); err != nil {
		return nil, unavailable(err)
	}
	return read(call)
}

// errFewReplicas indicates that a write succeeded and too few replicas confirmed it.
var errFewReplicas = errors.New("too few replicas have what was written")

// replicated runs a script over keys of one slot. If WaitReplicas is set, it waits until enough replicas have the
// write. WAIT covers only the writes of its own connection, so both commands share one pipeline. With errFewReplicas,
// replicated also returns the script's reply.
func (s *core) replicated(ctx context.Context, script *redis.Script, keys []string, args ...any) (
	redisscript.Reply, error) {
	if s.WaitReplicas <= 0 {
		return s.call(ctx, script, keys, args...)
	}
	var node redis.Cmdable = s.redis
	if cluster, ok := s.redis.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, unavailable(err)
		}
		node = master
	}
	for {
		var written *redis.Cmd
		waited := redis.NewIntCmd(ctx, "wait", s.WaitReplicas, replicaWait.Milliseconds())
		_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
			written = script.EvalSha(ctx, p, keys, args...)
			return p.Process(ctx, waited)
		})
		if redisscript.Unknown(written.Err()) {
			if err := script.Load(ctx, node).Err(); err != nil {
				return nil, unavailable(err)
			}
			continue
		}
		r, err := read(written)
		if err == nil && waited.Err() != nil {
			return r, errors.Join(errFewReplicas, unavailable(waited.Err()))
		}
		if n := waited.Val(); err == nil && n < int64(s.WaitReplicas) {
			return r, fmt.Errorf("%w: %w: %d of %d replicas", memory.ErrUnavailable, errFewReplicas, n, s.WaitReplicas)
		}
		return r, err
	}
}

// indexHistory records a subagent's history in its chat's meta before the first write to the history. So the index is
// always complete. It also fences that write, because a new history has no meta with a turn. A write without a turn (0)
// uses the chat's number, which indexHistory returns.
func (s *core) indexHistory(ctx context.Context, key memory.Key, turn int64) (number int64, err error) {
	r, err := s.call(ctx, indexScript, []string{chatMeta(key.Chat())}, turn, "s:"+string(key.Agent()))
	return integer(r.Part(1)), err
}

// pause waits with jitter after the first tries, so that concurrent writers of one history all succeed eventually.
func pause(ctx context.Context, try int) error {
	if try < 3 {
		return nil
	}
	select {
	case <-time.After(rand.N(time.Duration(try) * time.Millisecond)):
		return nil
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
}

// giveBack ends a lease and reports whether token held it. open is "-" if the chat's open run has finished, else "".
func (s *core) giveBack(ctx context.Context, chat memory.Chat, token, open string) (bool, error) {
	return renewScript.Run(ctx, s.redis, turnKeys(chat), token, 0, open, int(tombstone.Seconds())).Bool()
}

func (s *core) deadline(ttl time.Duration) float64 { return float64(s.now().Add(ttl).UnixMilli()) }

// timestamp returns the current Unix time in ms, under which values are set aside.
func (s *core) timestamp() string { return strconv.FormatInt(s.now().UnixMilli(), 10) }

func (s *core) onCut(key memory.Key, turn int64) {
	if s.OnCut != nil {
		s.OnCut(key, turn)
	}
}

// recordLife is the lifetime of a record with an Idempotency-Key after its last write. Repeated posts are answered from
// the record until then.
const recordLife = 24 * time.Hour

// logLife returns how long the log of an open run outlives its last event. A quiet run can log its next event, and a
// client can resume the finished run.
func (s *core) logLife() time.Duration { return s.RunLife + s.ResumeLife }

// openLife returns the lifetime of a new run's record and index entry. An erasure finds the record and the log through
// that entry.
func (s *core) openLife(keyed bool) time.Duration {
	life := s.RunLife + s.logLife() // the last event may come at the end of RunLife
	if keyed {
		life = max(life, recordLife)
	}
	return life
}

// keptLife returns the lifetime of the record of a finished run.
func (s *core) keptLife(keyed bool) time.Duration {
	if keyed {
		return max(recordLife, s.ResumeLife)
	}
	return s.ResumeLife
}

// forget deletes keys and then the fields of the chat's meta that lead to them. If a deletion fails, the fields stay:
// in a Cluster the node of a key may fail while the node of the meta responds.
func (s *core) forget(ctx context.Context, chat memory.Chat, names, fields []string) error {
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, name := range names { // one by one, because they are in several slots of a Cluster
			p.Del(ctx, name)
		}
	})
	if err == nil && len(fields) > 0 {
		err = s.redis.HDel(ctx, chatMeta(chat), fields...).Err()
	}
	return err
}

// scan calls f for every key that matches pattern, on every node.
func (s *core) scan(ctx context.Context, pattern string, f func(key string) error) error {
	masters, err := Masters(ctx, s.redis)
	if err != nil {
		return err
	}
	for _, node := range masters {
		it := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			if err := f(it.Val()); err != nil {
				return err
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return nil
}

// changeMembers adds members to a JSON list in a field of a chat's meta, or removes them. It fails with memory.ErrMoved
// if a newer turn exists, unless turn is NoTurn. full reports that the list has no room for more members.
func (s *core) changeMembers(ctx context.Context, chat memory.Chat, turn int64, field string, remove bool,
	members ...string) (full bool, err error) {
	args := []any{turn, field, remove}
	for _, name := range members {
		args = append(args, name)
	}
	run := s.call
	if field != quarantined { // members are never removed from the other fields
		run = s.callKeeping
	}
	r, err := run(ctx, membersScript, []string{chatMeta(chat)}, args...)
	return err == nil && r.Word() == "full", err
}

// members returns the list in a field of a chat's meta. An unreadable list is empty.
func (s *core) members(ctx context.Context, chat memory.Chat, field string) (list []string, err error) {
	text, err := s.field(ctx, chatMeta(chat), field)
	return membersOf(text), err
}

// field returns a field of a hash, "" if it is missing.
func (s *core) field(ctx context.Context, key, name string) (string, error) {
	text, err := s.redis.HGet(ctx, key, name).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return text, err
}

// membersOf parses a JSON list. An unreadable list is empty.
func membersOf(text string) (list []string) {
	_ = json.Unmarshal([]byte(text), &list)
	return list
}
