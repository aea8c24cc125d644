package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
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
	switch name {
	case openChats, erasuresKey:
		return "zset"
	case epochKey:
		return "string"
	case processesKey:
		return "hash"
	}
	key, kind := Belongs(name)
	if key == (memory.Key{}) {
		return ""
	}
	return map[string]string{"": "string", "turn": "string", "first": "string", "meta": "hash", "run": "hash",
		"events": "stream"}[kind]
}

// wrongType says whether Redis refused a command for the type of a key.
func wrongType(err error) bool {
	return !errors.Is(err, memory.ErrDamaged) && redisscript.WrongType(err)
}

// mender runs a command again after it has moved away what is in its way.
type mender struct{ store *Store }

func (mender) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (m mender) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for range mends {
			err := next(ctx, cmd)
			if !wrongType(err) {
				return err
			}
			if err := m.store.mendFor(ctx, cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
			cmd.SetErr(nil)
		}
		return next(ctx, cmd)
	}
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
				for _, name := range keysOf(cmd) {
					wrong[name] = true
				}
				if failed := m.store.mendFor(ctx, cmd); failed != nil {
					cmd.SetErr(failed)
					return failed
				}
			}
			if len(wrong) == 0 {
				return err
			}
			var again []redis.Cmder
			for _, cmd := range cmds {
				for _, name := range keysOf(cmd) {
					if wrong[name] {
						cmd.SetErr(nil)
						again = append(again, cmd)
						break
					}
				}
			}
			if err = next(ctx, again); err == nil {
				for _, cmd := range cmds {
					if err == nil {
						err = cmd.Err()
					}
				}
			}
		}
		return err
	}
}

// keysOf are the keys that a command names, as far as ours use it.
func keysOf(cmd redis.Cmder) []string {
	args := cmd.Args()
	text := func(i int) string {
		if i >= len(args) {
			return ""
		}
		return fmt.Sprint(args[i])
	}
	switch strings.ToLower(text(0)) {
	case "eval", "evalsha", "eval_ro", "evalsha_ro":
		var names []string
		n, _ := strconv.Atoi(text(2))
		for i := range n {
			names = append(names, text(3+i))
		}
		return names
	case "xread":
		for i := range args {
			if strings.EqualFold(text(i), "streams") {
				var names []string
				for j := i + 1; j <= i+(len(args)-i-1)/2; j++ {
					names = append(names, text(j))
				}
				return names
			}
		}
		return nil
	default:
		return []string{text(1)}
	}
}

// Sound looks at the keys of all chats, and moves away those of the wrong type. An
// error that is ErrDamaged names one that stays in the way; it is nil while Redis
// does not answer.
func (s *Store) Sound(ctx context.Context) error {
	names := []string{epochKey, openChats, processesKey, erasuresKey}
	types := make([]*redis.StatusCmd, len(names))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			types[i] = p.Type(ctx, name)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	for i, name := range names {
		if found := types[i].Val(); found != "none" && found != typeOf(name) {
			if err := s.mendAll(ctx, name); errors.Is(err, memory.ErrDamaged) {
				return err
			}
		}
	}
	return nil
}

// mendFor moves away what a command found to be of the wrong type. An error names the
// key that stays in the way.
func (s *Store) mendFor(ctx context.Context, cmd redis.Cmder) error {
	var names []string
	for _, name := range keysOf(cmd) {
		if typeOf(name) != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return &memory.DamagedError{Key: strings.Join(keysOf(cmd), ", "), Cause: cmd.Err()}
	}
	return s.mendAll(ctx, names...)
}

// mendAll moves away those of some keys that are of the wrong type.
func (s *Store) mendAll(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := s.mend(ctx, name)
		if refused := redis.Error(nil); errors.As(err, &refused) {
			return &memory.DamagedError{Key: name,
				Cause: fmt.Errorf("it is a %s where a %s belongs, and cannot be moved away: %w",
					s.redis.Type(ctx, name).Val(), typeOf(name), err)}
		}
		if err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// mend moves a key of ours that has the wrong type to {…}:damaged:<time>, where the
// erasure of its chat finds it.
func (s *Store) mend(ctx context.Context, name string) error {
	want, at := typeOf(name), strconv.FormatInt(s.now().UnixMilli(), 10)
	key, kind := Belongs(name)
	keys, field := []string{name, "{" + name + "}:damaged:" + at}, ""
	switch kind {
	case "", "meta", "turn", "first":
		if key == (memory.Key{}) {
			break // a key of all chats, which holds nothing that users said
		}
		if kind != "meta" {
			if err := s.mend(ctx, metaKey(key)); err != nil { // it takes the note
				return err
			}
		}
		keys, field = []string{name, "{" + key.String() + "}:damaged:" + at, metaKey(key)}, "d:"+at
	default: // a run's: in another slot, so it is noted first
		if found, err := s.redis.Type(ctx, name).Result(); err != nil || found == want || found == "none" {
			return err
		}
		if err := s.redis.HSet(ctx, metaKey(key), "d:"+keys[1], want).Err(); err != nil {
			return err
		}
	}
	r, err := read(asideScript.Run(ctx, s.redis, keys, want, field))
	if err != nil {
		return err
	}
	switch r.Word() {
	case "aside":
		s.Counts.Damaged.Add(1)
		s.log.Error().Str("key", name).Str("holds", r.At(1)).Str("wanted", want).Str("moved_to", keys[1]).
			Msg("a key of the wrong type was set aside")
	case "taken": // in the same millisecond: the command meets it again
	}
	return nil
}
