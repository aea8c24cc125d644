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

// attempts bounds how often one call starts over since a compare-and-set met another value
// than the call had read.
const attempts = 32

// tombstone is how long the turn of an erased history is kept.
const tombstone = 30 * 24 * time.Hour

// replicaWait is how long an append waits for replicas before it counts as failed.
const replicaWait = time.Second

// core is what the store and its rooms share: the client, the settings, and what more than one of them does.
type core struct {
	redis redis.UniversalClient
	log   zerolog.Logger
	now   func() time.Time

	// WaitReplicas makes what a user is told to be kept (appends, claims of calls, answers to waits) wait until
	// this many replicas have it, for replicaWait at most; set it before the first call.
	WaitReplicas int

	// ListShards is over how many keys a list is spread that grows with the number of chats, 0 and 1 for a single one. It
	// is a power of two, so that of two processes with different numbers only the one with more shards moves what the
	// other one wrote, and never both of them one entry. Set it before the first call.
	ListShards int

	// RunLife is how long a run may take, and ResumeLife how long its events can be
	// read once it is over; what is kept of runs lives accordingly. Set them before
	// the first call.
	RunLife, ResumeLife time.Duration

	// Secret is what the processes of the services share, and no other program that writes into Redis knows; "" where
	// there is none. Set it before the first call.
	Secret string

	// Archive says what becomes of what Trim cuts off. Set it before the first call.
	Archive Archive

	// Compact rewrites the store's files without what was deleted; nil where that is
	// not in this process's hands. Set it before the first call.
	Compact func(context.Context) error

	// OnCut, if it is set, is called when a history was found deleted or rewritten by
	// another program, with the turn that took note of it: older copies anywhere must not
	// bring back what was taken away. Set it before the first call.
	OnCut func(key memory.Key, turn int64)

	// LossLog is for lines about histories that Redis lost, which are many at once. Set it before the first call.
	LossLog zerolog.Logger

	// LostData, if it is set, reports whether Redis has lost data lately. A history that is missing beside its meta then
	// counts as lost, not as deleted by hand. Set it before the first call.
	LostData func(ctx context.Context) bool

	// Forget, if it is set, deletes the copy of a chat in the cold store before something of the chat is taken away. Lists
	// of chats then include sleeping ones. Set it before the first call.
	Forget func(ctx context.Context, chat memory.Chat) error

	// Counts of what went other than expected.
	Counts Counts
}

// Counts are events that an operator may want to see.
type Counts struct {
	Stale     atomic.Int64 // appends that found the writer's copy out of date
	Adopted   atomic.Int64 // values of foreign writers taken over
	Damaged   atomic.Int64 // values set aside
	Deleted   atomic.Int64 // histories that were deleted by hand
	Late      atomic.Int64 // messages that came out of the spool after their turn
	Recovered atomic.Int64 // histories that Redis lost, whole or in part, and a copy brought back
}

// call runs one script. Unless the script is known to take nothing away, the copy of the chat in the cold store goes
// first. It goes again if the chat was copied meanwhile.
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

// callKeeping runs a script that takes nothing away.
func (s *core) callKeeping(ctx context.Context, script *redis.Script, keys []string, args ...any) (redisscript.Reply,
	error) {
	return read(script.Run(ctx, s.redis, keys, args...))
}

// inOrder runs commands, each only after the one before it, and returns the reply of call, which is one of them and runs
// script. See [redisscript.InOrder].
func (s *core) inOrder(ctx context.Context, script *redis.Script, call *redis.Cmd, cmds ...redis.Cmder) (
	redisscript.Reply, error) {
	if err := redisscript.InOrder(ctx, s.redis, []*redis.Script{script}, cmds...); err != nil {
		return nil, unavailable(err)
	}
	return read(call)
}

// errFewReplicas says that something was written, and that too few replicas have it.
var errFewReplicas = errors.New("too few replicas have what was written")

// replicated runs a script over keys of one slot and, where that is asked for, waits until enough replicas have what it
// wrote. WAIT is about the writes of its own connection, so both go over one, in one pipeline. Beside errFewReplicas
// there is the script's reply.
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

// indexHistory notes a subagent's history in its chat's meta before the first write to it,
// so that none is ever missing there. It fences that write too: the history has no meta yet
// that could hold the number of a newer turn, the chat has one. A write of no turn (0) takes
// on the chat's number, which is returned.
func (s *core) indexHistory(ctx context.Context, key memory.Key, turn int64) (number int64, err error) {
	r, err := s.call(ctx, indexScript, []string{chatMeta(key.Chat())}, turn, "s:"+string(key.Agent()))
	return integer(r.Part(1)), err
}

// pause backs off with jitter after the first tries, so that of many writers of one history
// each gets through.
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

// giveBack ends a lease and reports whether token held it. open is "-" if the chat's open run is over, else "".
func (s *core) giveBack(ctx context.Context, chat memory.Chat, token, open string) (bool, error) {
	return renewScript.Run(ctx, s.redis, turnKeys(chat), token, 0, open, int(tombstone.Seconds())).Bool()
}

func (s *core) deadline(ttl time.Duration) float64 { return float64(s.now().Add(ttl).UnixMilli()) }

// timestamp is the Unix ms of now, under which values are set aside.
func (s *core) timestamp() string { return strconv.FormatInt(s.now().UnixMilli(), 10) }

func (s *core) onCut(key memory.Key, turn int64) {
	if s.OnCut != nil {
		s.OnCut(key, turn)
	}
}

// recordLife is how long the record of a post with an Idempotency-Key lives after it
// was last written: so long it is answered from the record when it is repeated.
const recordLife = 24 * time.Hour

// logLife is how long the log of a run that goes on outlives its last event. A quiet
// run is still there when its next event comes, and can be resumed once it is over.
func (s *core) logLife() time.Duration { return s.RunLife + s.ResumeLife }

// openLife is how long the record of a run that begins lives, and the entry in the
// index by which an erasure finds the record and the log.
func (s *core) openLife(keyed bool) time.Duration {
	life := s.RunLife + s.logLife() // the last event may come at the end of RunLife
	if keyed {
		life = max(life, recordLife)
	}
	return life
}

// keptLife is how long the record of a run lives that is over.
func (s *core) keptLife(keyed bool) time.Duration {
	if keyed {
		return max(recordLife, s.ResumeLife)
	}
	return s.ResumeLife
}

// forget deletes keys, and when all of them are gone the fields of the chat's meta by which they are found: in a Cluster
// the meta may lie on a node that answers while another one, which has a key, does not.
func (s *core) forget(ctx context.Context, chat memory.Chat, names, fields []string) error {
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, name := range names { // one by one, since they lie in several slots of a Cluster
			p.Del(ctx, name)
		}
	})
	if err == nil && len(fields) > 0 {
		err = s.redis.HDel(ctx, chatMeta(chat), fields...).Err()
	}
	return err
}

// scan calls f for every key that matches, on every node.
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

// changeMembers adds members to a list of text in a field of a chat's meta, or removes them, unless a turn newer than
// this one has begun. full reports that there is no room for more.
func (s *core) changeMembers(ctx context.Context, chat memory.Chat, turn int64, field string, remove bool,
	members ...string) (full bool, err error) {
	args := []any{turn, field, remove}
	for _, name := range members {
		args = append(args, name)
	}
	run := s.call
	if field != quarantined { // nothing is ever removed from the others
		run = s.callKeeping
	}
	r, err := run(ctx, membersScript, []string{chatMeta(chat)}, args...)
	return err == nil && r.Word() == "full", err
}

// members are those of a list in a field of a chat's meta; what is no list has none.
func (s *core) members(ctx context.Context, chat memory.Chat, field string) (list []string, err error) {
	text, err := s.field(ctx, chatMeta(chat), field)
	return membersOf(text), err
}

// field reads a field of a hash, "" if there is none.
func (s *core) field(ctx context.Context, key, name string) (string, error) {
	text, err := s.redis.HGet(ctx, key, name).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return text, err
}

// membersOf reads a set that is in a field.
func membersOf(text string) (list []string) {
	_ = json.Unmarshal([]byte(text), &list)
	return list
}
