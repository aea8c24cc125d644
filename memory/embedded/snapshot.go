package embedded

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// snapshotChunk is about how many bytes of a collection go into one command.
const snapshotChunk = 1 << 20

// snapshot emits records that rebuild the live keys, in the order of the keys' names.
func (e *engine) snapshot(emit func(payload []byte) error) error {
	var buf []byte
	put := func(commands ...[]string) error {
		buf = appendRecord(buf[:0], record{timestamp: e.clock, commands: commands})
		return emit(buf)
	}
	db := e.mini.DB(0)
	for _, key := range db.Keys() {
		if err := e.snapshotKey(db, key, put); err != nil {
			return fmt.Errorf("save key %q: %w", key, err)
		}
		if remaining, stored := e.ttl(key); stored > 0 {
			expiresAt := strconv.FormatInt(e.clock.Add(remaining).UnixMilli(), 10)
			if err := put([]string{"PEXPIREAT", key, expiresAt}); err != nil {
				return fmt.Errorf("save key %q: %w", key, err)
			}
		}
	}
	return nil
}

// snapshotKey emits the records of one key, for every type of value that a listed command can
// create.
func (e *engine) snapshotKey(db *miniredis.RedisDB, key string, put func(...[]string) error) error {
	var items []string
	var err error
	command, words := "", itself
	switch kind := db.Type(key); kind {
	case "string":
		value, err := db.Get(key)
		if err != nil {
			return err
		}
		return put([]string{"SET", key, value})
	case "hash":
		command, words = "HSET", func(f string) []string { return []string{f, db.HGet(key, f)} }
		items, err = db.HKeys(key)
	case "list":
		command = "RPUSH"
		items, err = db.List(key)
	case "set":
		command = "SADD"
		items, err = db.Members(key)
	case "zset":
		var scores map[string]float64
		scores, err = db.SortedSet(key)
		command, words = "ZADD", func(m string) []string {
			return []string{strconv.FormatFloat(scores[m], 'g', -1, 64), m}
		}
		items = slices.Sorted(maps.Keys(scores))
	case "stream":
		return e.snapshotStream(db, key, put)
	default:
		return fmt.Errorf("unknown type %q", kind)
	}
	if err != nil {
		return err
	}
	return chunks(items, words, put, command, key)
}

func itself(item string) []string { return []string{item} }

// chunks emits "command key words…" records with the words of as many items as fit into
// snapshotChunk.
func chunks(items []string, words func(string) []string, put func(...[]string) error, command, key string) error {
	args, size := []string{command, key}, 0
	for i, item := range items {
		for _, w := range words(item) {
			args = append(args, w)
			size += len(w)
		}
		if size < snapshotChunk && i < len(items)-1 {
			continue
		}
		if err := put(args); err != nil {
			return err
		}
		args, size = []string{command, key}, 0
	}
	return nil
}

// snapshotStream also keeps the last id that the stream gave out, even if its entry is deleted,
// because a stream must never give out an id twice.
func (e *engine) snapshotStream(db *miniredis.RedisDB, key string, put func(...[]string) error) error {
	entries, err := db.Stream(key)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := put(append([]string{"XADD", key, entry.ID}, entry.Values...)); err != nil {
			return err
		}
	}
	last, err := e.lastStreamID(key)
	if err != nil {
		return err
	}
	if len(entries) > 0 && entries[len(entries)-1].ID == last {
		return nil
	}
	return put([]string{"XADD", key, last, "", ""}, []string{"XDEL", key, last})
}

func (e *engine) lastStreamID(key string) (string, error) {
	reply, err := e.query("XINFO", "STREAM", key)
	if err != nil {
		return "", err
	}
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		if id, ok := fields[i+1].(string); ok && fields[i] == "last-generated-id" {
			if id == "" { // nothing was ever added; 0-1 is the smallest id that XADD takes
				id = "0-1"
			}
			return id, nil
		}
	}
	return "", errors.New("the stream does not tell its last id")
}
