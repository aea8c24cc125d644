package docstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
)

// Mark is a place in a collection's log. The zero Mark is none.
type Mark struct {
	Version int64
	text    string // random, "" if unknown
}

// Text is the mark for a file, and ParseMark reads it; the zero Mark if it is none.
func (m Mark) Text() string { return strconv.FormatInt(m.Version, 10) + " " + m.text }

// ParseMark reads what Text gave.
func ParseMark(s string) Mark {
	version, text, _ := strings.Cut(s, " ")
	return Mark{number(version), text}
}

// Change is one entry of a log.
type Change struct {
	Mark Mark
	ID   string // of the document
}

// Last is the present end of a collection's log.
func (s *Store) Last(ctx context.Context, c Collection) (Mark, error) {
	marks, err := s.Lasts(ctx, c)
	if err != nil {
		return Mark{}, fmt.Errorf("reading the log of %s: %w", c, err)
	}
	if marks[0] == (Mark{}) {
		return Mark{}, fmt.Errorf("collection %s: %w", c, ErrNoCollection)
	}
	return marks[0], nil
}

// Lasts are the present ends of the logs of collections, in one round trip and one
// command each; the zero Mark for one that is not there.
func (s *Store) Lasts(ctx context.Context, collections ...Collection) ([]Mark, error) {
	metas := make([]*redis.SliceCmd, len(collections))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, c := range collections {
			metas[i] = p.HMGet(ctx, c.metaKey(), "version", "mark")
		}
	})
	marks := make([]Mark, len(collections))
	for i, cmd := range metas {
		values, err := cmd.Result()
		if err != nil {
			return nil, unavailable(err)
		}
		version, _ := values[0].(string)
		text, _ := values[1].(string)
		marks[i] = Mark{number(version), text}
	}
	return marks, nil
}

// Fed is what Feed noted of a collection, "" for nothing, with the present end of its log.
func Fed(ctx context.Context, s *Store, c Collection) (last Mark, fed string, err error) {
	values, err := s.redis.HMGet(ctx, c.metaKey(), "version", "mark", "fed").Result()
	if err != nil {
		return Mark{}, "", fmt.Errorf("reading the log of %s: %w", c, unavailable(err))
	}
	version, ok := values[0].(string)
	if !ok {
		return Mark{}, "", fmt.Errorf("collection %s: %w", c, ErrNoCollection)
	}
	last.Version = number(version)
	last.text, _ = values[1].(string)
	fed, _ = values[2].(string)
	return last, fed, nil
}

// Feed notes in a collection how far an index elsewhere was fed, in place of what was noted before (compare and set). It
// is false if that is something else by now.
func Feed(ctx context.Context, s *Store, c Collection, previous, next string) (bool, error) {
	r, err := s.run(ctx, fedScript, c, previous, next)
	if err != nil {
		return false, fmt.Errorf("noting how far %s was fed: %w", c, err)
	}
	return r.Word() == "ok", nil
}

// Tail gives at most count changes behind a mark, oldest first, in one round trip;
// none if the mark is the end. ErrGap if the log does not have the mark.
func (s *Store) Tail(ctx context.Context, c Collection, mark Mark, count int) ([]Change, error) {
	var tail, last *redis.XMessageSliceCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		// From the mark on, so that it is seen whether it is still there.
		tail = p.XRangeN(ctx, c.logKey(), strconv.FormatInt(mark.Version, 10)+"-0", "+", int64(count)+1)
		last = p.XRevRangeN(ctx, c.logKey(), "+", "-", 1)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the log of %s: %w", c, unavailable(err))
	}
	if len(last.Val()) == 0 {
		return nil, fmt.Errorf("collection %s: %w", c, ErrNoCollection)
	}
	entries := tail.Val()
	if len(entries) == 0 || change(entries[0]).Mark != mark {
		return nil, fmt.Errorf("collection %s: %w to version %d", c, ErrGap, mark.Version)
	}
	changes := make([]Change, 0, len(entries)-1)
	for _, e := range entries[1:] {
		changes = append(changes, change(e))
	}
	return changes, nil
}

func change(entry redis.XMessage) Change {
	field := func(name string) string {
		text, _ := entry.Values[name].(string)
		return text
	}
	version, _, _ := strings.Cut(entry.ID, "-")
	return Change{Mark: Mark{number(version), field("mark")}, ID: field("id")}
}
