package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// typeOf returns the Redis type of a key of the store, "" for any other key.
func typeOf(name string) string {
	key, _ := memory.ParseRedisKey(name)
	return key.Type()
}

// wrongType reports whether Redis rejected a command because of a key's type.
func wrongType(err error) bool {
	return !errors.Is(err, memory.ErrDamaged) && redisscript.WrongType(err)
}

// mender is a client hook that sets aside keys of the store with a wrong type, such as a list in place of a history. It
// then retries the command that found the key. This needs no turn: such a value holds no data of the store, and the
// script checks the type again.
type mender struct {
	*core
	users Users
}

func (mender) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (m mender) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	run := m.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds[0])
		cmds[0].SetErr(err)
		return err
	})
	return func(ctx context.Context, cmd redis.Cmder) error { return run(ctx, []redis.Cmder{cmd}) }
}

// mends bounds the retries of one command, which may name several keys of the wrong type.
const mends = 4

// ProcessPipelineHook retries, in order, the commands that use a key that was set aside. Every command of the store may
// be applied twice.
func (m mender) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for range mends {
			wrong := map[string]bool{}
			for _, cmd := range cmds {
				if !wrongType(cmd.Err()) {
					continue
				}
				for _, name := range redisscript.Keys(cmd) {
					wrong[name] = true
				}
				if failed := m.mendFor(ctx, cmd); failed != nil {
					cmd.SetErr(failed)
					return failed
				}
			}
			if len(wrong) == 0 {
				return err
			}
			var retry []redis.Cmder
			for _, cmd := range cmds {
				if slices.ContainsFunc(redisscript.Keys(cmd), func(name string) bool { return wrong[name] }) {
					cmd.SetErr(nil)
					retry = append(retry, cmd)
				}
			}
			err = next(ctx, retry)
			for _, cmd := range cmds {
				if err == nil {
					err = cmd.Err()
				}
			}
		}
		return err
	}
}

// mendFor sets aside the keys of a failed command that have the wrong type. An error names the key that cannot be
// moved.
func (m mender) mendFor(ctx context.Context, cmd redis.Cmder) error {
	var names []string
	for _, name := range redisscript.Keys(cmd) {
		if typeOf(name) != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return &memory.DamagedError{Key: strings.Join(redisscript.Keys(cmd), ", "), Cause: cmd.Err()}
	}
	return m.mendAll(ctx, names...)
}

// mendAll sets aside the keys among names that have the wrong type.
func (m mender) mendAll(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := m.mend(ctx, name)
		if refused := redis.Error(nil); errors.As(err, &refused) {
			return &memory.DamagedError{Key: name,
				Cause: fmt.Errorf("it is a %s where a %s belongs, and cannot be moved away: %w",
					m.redis.Type(ctx, name).Val(), typeOf(name), err)}
		}
		if err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// mend moves a key of the store that has the wrong type to {…}:damaged:<time>. It records the new key in the meta of
// the history or of the chat, where an erasure finds it. Keys that all chats share hold no user text and are not
// recorded.
func (m mender) mend(ctx context.Context, name string) error {
	key, _ := memory.ParseRedisKey(name)
	want, timestamp := key.Type(), m.timestamp()
	key.DamagedAt = timestamp
	keys, field := []string{name, key.String()}, ""
	switch key.Kind {
	case memory.KindHistory, memory.KindArchive, memory.KindNotes, memory.KindRewound, memory.KindLease,
		memory.KindFirst, memory.KindWaiting, memory.KindCalls:
		if err := m.mend(ctx, metaKey(key.Key)); err != nil { // the meta takes the record
			return err
		}
		keys, field = append(keys, metaKey(key.Key)), "d:"+timestamp
	case memory.KindUserNotes:
		if u, err := memory.ParseUser(key.Run); err == nil {
			return m.users.setNotesAside(ctx, u)
		}
	case memory.KindMeta:
		keys, field = append(keys, name), "d:"+timestamp
	case memory.KindEvents, memory.KindRecord: // in another slot than the meta, so recorded first
		if actual, err := m.redis.Type(ctx, name).Result(); err != nil || actual == want || actual == "none" {
			return err
		}
		if err := m.redis.HSet(ctx, metaKey(key.Key), "d:"+keys[1], want).Err(); err != nil {
			return err
		}
	}
	return m.moveAside(ctx, keys, want, field, "a key of the wrong type was set aside")
}

// moveAside moves keys[0] to keys[1] if its type is not want. If there is a third key, the given field of it records
// the move.
func (s *core) moveAside(ctx context.Context, keys []string, want, field, message string) error {
	r, err := s.callKeeping(ctx, asideScript, keys, want, field)
	if err == nil && r.Word() == "aside" { // "taken" in the same millisecond: the retry finds the key again
		s.Counts.Damaged.Add(1)
		s.log.Error().Str("key", keys[0]).Str("holds", r.Part(1)).Str("wanted", want).Str("moved_to", keys[1]).Msg(message)
	}
	return err
}
