package embedded

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// replayBuffer is about how many bytes of changes a replay collects.
const replayBuffer = 32 << 20

// replayer applies journal records. The engine copies a whole string for each SETRANGE, so a replayer collects them per
// key, and applies them before another command on the key.
type replayer struct {
	*engine
	strings map[string][]byte // values that the engine does not have yet
	added   int               // bytes of their changes
}

// restore applies the records that each emits.
func (e *engine) restore(each func(fn func(payload []byte) error) error) error {
	r := &replayer{engine: e, strings: map[string][]byte{}}
	if err := each(r.replay); err != nil {
		return err
	}
	return r.flushAll()
}

// replay applies one journal record. Keys expire in it where they did when it was written.
func (r *replayer) replay(payload []byte) error {
	rec, err := parseRecord(payload)
	if err != nil {
		return err
	}
	if rec.expired || r.added > replayBuffer {
		if err := r.flushAll(); err != nil {
			return err
		}
	}
	r.tell(rec.timestamp)
	if rec.expired {
		r.expire()
	}
	for _, args := range rec.commands {
		if r.collect(args) {
			continue
		}
		if err := r.apply(args); err != nil {
			return err
		}
	}
	return nil
}

// collect reports whether a command is a SETRANGE that it has collected.
func (r *replayer) collect(args []string) bool {
	if len(args) != 4 || !strings.EqualFold(args[0], "SETRANGE") {
		return false
	}
	key, text := args[1], args[3]
	start, err := strconv.Atoi(args[2])
	if err != nil || start < 0 {
		return false
	}
	value, ok := r.strings[key]
	if !ok {
		db := r.mini.DB(0)
		if kind := db.Type(key); kind != "" && kind != "string" {
			return false
		}
		current, _ := db.Get(key) // "" for a missing key
		value = []byte(current)
	}
	if grow := start + len(text) - len(value); grow > 0 {
		value = append(slices.Grow(value, grow), make([]byte, grow)...)
	}
	copy(value[start:], text)
	r.strings[key] = value
	r.added += len(text)
	return true
}

// apply runs a command, after the changes of its keys that were collected. Only FLUSHALL and FLUSHDB name no key.
func (r *replayer) apply(args []string) error {
	if len(r.strings) > 0 && strings.HasPrefix(strings.ToUpper(args[0]), "FLUSH") {
		if err := r.flushAll(); err != nil {
			return err
		}
	}
	for _, key := range args[1:] {
		if err := r.flush(key); err != nil {
			return err
		}
	}
	return r.dispatch(args)
}

// dispatch runs a command and drops its reply: a command that failed when it first ran fails again.
func (r *replayer) dispatch(args []string) error {
	err := r.run(r.peer, args)
	r.reply = bytes.Buffer{}
	r.effects = nil
	return err
}

// flush applies the changes of a key that were collected. SETRANGE keeps its expiry.
func (r *replayer) flush(key string) error {
	value, ok := r.strings[key]
	if !ok {
		return nil
	}
	delete(r.strings, key)
	return r.dispatch([]string{"SETRANGE", key, "0", string(value)})
}

func (r *replayer) flushAll() error {
	r.added = 0
	for key := range r.strings {
		if err := r.flush(key); err != nil {
			return err
		}
	}
	return nil
}
