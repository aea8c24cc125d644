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

// This file is about keys of ours that are of another type than we made them, a list
// in the place of a history say. Whatever command meets one moves it out of the way,
// once, and is run again. That needs no turn: such a value holds nothing of ours, and
// the script that moves it looks at the type once more.

// typeOf is the type that a key of ours has in Redis; "" for a key that is not ours
// to move.
func typeOf(name string) string {
	key, _ := memory.ParseRedisKey(name)
	return key.Type()
}

// wrongType says whether Redis refused a command for the type of a key.
func wrongType(err error) bool {
	return !errors.Is(err, memory.ErrDamaged) && redisscript.WrongType(err)
}

// mender runs a command again after it has moved away what is in its way.
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

// mends bounds how often one command is run again: it may name several wrong keys.
const mends = 4

// ProcessPipelineHook runs again, in their order, the commands that touch a key that
// was in the way of one of them: each of ours may be applied twice.
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

// mendFor moves away what a command found to be of the wrong type. An error names the
// key that stays in the way.
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

// mendAll moves away those of some keys that are of the wrong type.
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

// mend moves a key of ours that has the wrong type to {…}:damaged:<time>. The meta of the
// history, or of the chat, takes a note of it, by which an erasure finds it; what all
// chats share holds nothing that users said, and is not noted.
func (m mender) mend(ctx context.Context, name string) error {
	key, _ := memory.ParseRedisKey(name)
	want, timestamp := key.Type(), m.timestamp()
	key.DamagedAt = timestamp
	keys, field := []string{name, key.String()}, ""
	switch key.Kind {
	case memory.KindHistory, memory.KindArchive, memory.KindNotes, memory.KindRewound, memory.KindLease,
		memory.KindFirst, memory.KindWaiting, memory.KindCalls:
		if err := m.mend(ctx, metaKey(key.Key)); err != nil { // it takes the note
			return err
		}
		keys, field = append(keys, metaKey(key.Key)), "d:"+timestamp
	case memory.KindUserNotes:
		if u, err := memory.ParseUser(key.Run); err == nil {
			return m.users.setNotesAside(ctx, u)
		}
	case memory.KindMeta:
		keys, field = append(keys, name), "d:"+timestamp
	case memory.KindEvents, memory.KindRecord: // in another slot than the meta, so it is noted first
		if actual, err := m.redis.Type(ctx, name).Result(); err != nil || actual == want || actual == "none" {
			return err
		}
		if err := m.redis.HSet(ctx, metaKey(key.Key), "d:"+keys[1], want).Err(); err != nil {
			return err
		}
	}
	return m.moveAside(ctx, keys, want, field, "a key of the wrong type was set aside")
}

// moveAside moves a key that is not of a type, the first one of keys, to the second one. A field of the third one, if
// there is one, takes a note of it.
func (s *core) moveAside(ctx context.Context, keys []string, want, field, message string) error {
	r, err := s.callKeeping(ctx, asideScript, keys, want, field)
	if err == nil && r.Word() == "aside" { // not "taken" in the same millisecond: then the command meets it again
		s.Counts.Damaged.Add(1)
		s.log.Error().Str("key", keys[0]).Str("holds", r.Part(1)).Str("wanted", want).Str("moved_to", keys[1]).Msg(message)
	}
	return err
}
