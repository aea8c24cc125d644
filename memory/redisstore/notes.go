package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Notes stores the notes of each history as a JSON array. Changes are compare-and-sets under the chat's turn. The
// chat's meta records whether there may be notes.
type Notes struct{ *core }

// NoTurn replaces the turn in changes without one, such as repeating a change of notes that Redis has forgotten.
const NoTurn = writingBack

// Read returns the notes of histories, in order of creation, in one round trip. Unreadable notes are a
// memory.DamagedError.
func (s Notes) Read(ctx context.Context, keys ...memory.Key) ([][]memory.Note, error) {
	values := make([]*redis.StringCmd, len(keys))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, key := range keys {
			values[i] = p.Get(ctx, notesKey(key))
		}
	})
	lists := make([][]memory.Note, len(keys))
	for i, key := range keys {
		value, err := values[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, failure(err, "reading the notes of %s", key)
		}
		if lists[i], err = readNotes(notesKey(key), value); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

func readNotes(key, value string) (notes []memory.Note, err error) {
	if value == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(value), &notes); err != nil {
		return nil, &memory.DamagedError{Key: key, Cause: err}
	}
	return notes, nil
}

// encodeNotes returns notes in their stored form, empty for none.
func encodeNotes(notes []memory.Note) ([]byte, error) {
	if len(notes) == 0 {
		return []byte{}, nil
	}
	return memory.EncodeJSON(notes)
}

// Change passes a history's notes to change and stores the result under a turn. If change returns an error, nothing is
// stored. If the notes changed meanwhile, Change calls change again. It sets unreadable notes aside first.
func (s Notes) Change(ctx context.Context, turn int64, key memory.Key,
	change func([]memory.Note) ([]memory.Note, error)) error {
	return s.changeNotes(ctx, notesKey(key), func() error { return s.setAside(ctx, key) },
		func(old string, notes []memory.Note) (bool, error) { return s.put(ctx, turn, key, old, notes) }, change)
}

// changeNotes changes the notes under a key. put replaces the value old with notes and returns false if the stored
// value has changed.
func (s *core) changeNotes(ctx context.Context, key string, setAside func() error,
	put func(old string, notes []memory.Note) (bool, error), change func([]memory.Note) ([]memory.Note, error)) error {
	for try := range attempts {
		if err := pause(ctx, try); err != nil {
			return err
		}
		value, err := s.redis.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return failure(err, "reading %s", key)
		}
		notes, err := readNotes(key, value)
		if err != nil {
			if err := setAside(); err != nil {
				return failure(err, "setting %s aside", key)
			}
			continue
		}
		if notes, err = change(slices.Clone(notes)); err != nil {
			return err
		}
		done, err := put(value, notes)
		if err != nil {
			return failure(err, "changing %s", key)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("changing %s: %w: they changed under every attempt", key, memory.ErrUnavailable)
}

// put replaces the value old with notes. done is false if the stored value has changed.
func (s Notes) put(ctx context.Context, turn int64, key memory.Key, old string, notes []memory.Note) (done bool,
	err error) {
	fresh, err := encodeNotes(notes)
	if err != nil {
		return false, err
	}
	if string(fresh) == old {
		return true, nil
	}
	if turn > writingBack && len(fresh) > 0 { // recorded before the notes exist, so that no notes are missed
		fields := []string{"notes"}
		if key.Agent() != "" {
			fields = append(fields, "s:"+string(key.Agent()))
		}
		for _, field := range fields {
			if _, err := s.call(ctx, indexScript, []string{chatMeta(key.Chat())}, turn, field); err != nil {
				return false, err
			}
		}
	}
	change := s.call
	if oldNotes, err := readNotes(notesKey(key), old); err == nil && !slices.ContainsFunc(oldNotes,
		func(n memory.Note) bool { return !slices.Contains(notes, n) }) {
		change = s.callKeeping
	}
	r, err := change(ctx, notesScript, []string{metaKey(key), notesKey(key)}, turn, old, fresh)
	return r.Word() == "ok", err
}

// Void removes the notes for which void returns true, under a turn, and returns their number.
func (s Notes) Void(ctx context.Context, turn int64, key memory.Key, void func(memory.Note) bool) (removed int,
	err error) {
	err = s.Change(ctx, turn, key, func(notes []memory.Note) ([]memory.Note, error) {
		rest := slices.DeleteFunc(slices.Clone(notes), void)
		removed = len(notes) - len(rest)
		return rest, nil
	})
	return removed, err
}

// setAside moves unreadable notes to another key for inspection.
func (s Notes) setAside(ctx context.Context, key memory.Key) error {
	timestamp := s.timestamp()
	keys := []string{notesKey(key), damagedKey(key, timestamp), metaKey(key)}
	return s.moveAside(ctx, keys, listOfNotes, "d:"+timestamp, unreadNotes)
}

// listOfNotes is no Redis type, so moveAside moves a value of any type. unreadNotes is the message that it logs.
const listOfNotes, unreadNotes = "a list of notes", "notes that cannot be read were set aside"
