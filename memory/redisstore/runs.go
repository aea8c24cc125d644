package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// How long what is kept of a run lives after it was last written.
const (
	eventsLife = 25 * time.Minute // a run's 10 minutes, and 15 to resume it
	recordLife = 24 * time.Hour
)

func eventsKey(chat memory.Chat, run string) string { return "events:" + string(chat) + ":" + run }
func recordKey(chat memory.Chat, run string) string { return "run:" + string(chat) + ":" + run }

// Logged is one event of a run's log: its number and its line of JSON.
type Logged struct {
	Seq  int64
	Line []byte
}

// Record is what is known of a run for a day: enough to answer a repeated post.
type Record struct {
	Body   string // hash of what was posted
	Result []byte // the final answer as JSON; empty while the run goes on
	// Newest is the number of the newest attempt at what was posted. Only the record
	// of the first attempt has it; 0 there means that there is no other.
	Newest int
}

// Log adds events to a run's log, in one round trip. Events that are there
// already stay as they are.
func (s *Store) Log(ctx context.Context, chat memory.Chat, run string, events ...Logged) error {
	key := eventsKey(chat, run)
	cmds, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			p.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: strconv.FormatInt(e.Seq, 10) + "-0", Values: []any{"e", e.Line}})
		}
		p.Expire(ctx, key, eventsLife)
		return nil
	})
	for _, c := range cmds {
		// "equal or smaller than the target stream top item": it is there.
		if c.Err() != nil && !strings.Contains(c.Err().Error(), "equal or smaller") {
			return fmt.Errorf("logging events of run %s: %w", run, unavailable(c.Err()))
		}
	}
	if len(cmds) == 0 {
		return unavailable(err)
	}
	return nil
}

// Events reads up to count events of a run's log after a number. None and no
// error: nothing new, or no such log.
func (s *Store) Events(ctx context.Context, chat memory.Chat, run string, after int64, count int64) ([]Logged, error) {
	found, err := s.redis.XRangeN(ctx, eventsKey(chat, run), "("+strconv.FormatInt(after, 10)+"-0", "+", count).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the events of run %s: %w", run, unavailable(err))
	}
	events := make([]Logged, 0, len(found))
	for _, m := range found {
		number, _, _ := strings.Cut(m.ID, "-")
		seq, err := strconv.ParseInt(number, 10, 64)
		line, ok := m.Values["e"].(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("reading the events of run %s: %w: entry %s is none of ours", run, memory.ErrDamaged, m.ID)
		}
		events = append(events, Logged{seq, []byte(line)})
	}
	return events, nil
}

// LastEvent is the newest event in a run's log; nil if there is none.
func (s *Store) LastEvent(ctx context.Context, chat memory.Chat, run string) ([]byte, error) {
	found, err := s.redis.XRevRangeN(ctx, eventsKey(chat, run), "+", "-", 1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the last event of run %s: %w", run, unavailable(err))
	}
	if len(found) == 0 {
		return nil, nil
	}
	line, _ := found[0].Values["e"].(string)
	return []byte(line), nil
}

// Begin notes that a run exists, before it is posted; found is the record of a
// run with this id that is there already.
func (s *Store) Begin(ctx context.Context, chat memory.Chat, run, body string) (found *Record, err error) {
	// The index first: what is kept of a run must be found when the chat is erased.
	err = s.redis.HSet(ctx, metaKey(memory.ChatKey(chat)), "r:"+run, s.now().Add(recordLife).UnixMilli()).Err()
	fresh := false
	if err == nil {
		fresh, err = s.redis.HSetNX(ctx, recordKey(chat, run), "body", body).Result()
	}
	if err == nil && !fresh {
		return s.Record(ctx, chat, run)
	}
	if err == nil {
		err = s.redis.Expire(ctx, recordKey(chat, run), recordLife).Err()
	}
	if err != nil {
		return nil, fmt.Errorf("noting run %s: %w", run, unavailable(err))
	}
	return nil, nil
}

// Record is what is known of a run; nil if nothing is.
func (s *Store) Record(ctx context.Context, chat memory.Chat, run string) (*Record, error) {
	values, err := s.redis.HGetAll(ctx, recordKey(chat, run)).Result()
	if err != nil {
		return nil, fmt.Errorf("looking for run %s: %w", run, unavailable(err))
	}
	if len(values) == 0 {
		return nil, nil
	}
	newest, _ := strconv.Atoi(values["newest"])
	return &Record{Body: values["body"], Result: []byte(values["result"]), Newest: newest}, nil
}

// Retried notes in the record of a first run that there is a further attempt at
// the same post. The record lives as long as that of the newest attempt.
func (s *Store) Retried(ctx context.Context, chat memory.Chat, first, body string, attempt int) error {
	err := s.redis.HSet(ctx, metaKey(memory.ChatKey(chat)), "r:"+first, s.now().Add(recordLife).UnixMilli()).Err()
	if err == nil {
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, recordKey(chat, first), "body", body, "newest", attempt)
			p.Expire(ctx, recordKey(chat, first), recordLife)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("noting attempt %d of run %s: %w", attempt, first, unavailable(err))
	}
	return nil
}

// Finish keeps a run's final answer, and drops from the index what has expired.
func (s *Store) Finish(ctx context.Context, chat memory.Chat, run string, result []byte) error {
	key, meta := recordKey(chat, run), metaKey(memory.ChatKey(chat))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, "result", result)
		p.Expire(ctx, key, recordLife)
		return nil
	})
	var fields map[string]string
	if err == nil {
		fields, err = s.redis.HGetAll(ctx, meta).Result()
	}
	if err == nil {
		err = s.dropExpired(ctx, meta, fields)
	}
	if err != nil {
		return fmt.Errorf("finishing run %s: %w", run, unavailable(err))
	}
	return nil
}

func (s *Store) dropExpired(ctx context.Context, meta string, fields map[string]string) error {
	now := s.now().UnixMilli()
	var gone []string
	for field, until := range fields {
		if at, err := strconv.ParseInt(until, 10, 64); err == nil && strings.HasPrefix(field, "r:") && at < now {
			gone = append(gone, field)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return s.redis.HDel(ctx, meta, gone...).Err()
}

// Withdraw forgets a run that was never accepted.
func (s *Store) Withdraw(ctx context.Context, chat memory.Chat, run string) error {
	err := s.redis.Del(ctx, recordKey(chat, run)).Err()
	if err == nil {
		err = s.redis.HDel(ctx, metaKey(memory.ChatKey(chat)), "r:"+run).Err()
	}
	if err != nil {
		return fmt.Errorf("withdrawing run %s: %w", run, unavailable(err))
	}
	return nil
}

// EraseRuns removes the logs and records of a chat's runs: of those in the chat's
// index, and of further ones that the caller knows of. It must run before the
// chat's meta is erased, which holds the index.
func (s *Store) EraseRuns(ctx context.Context, chat memory.Chat, further ...string) error {
	meta := metaKey(memory.ChatKey(chat))
	fields, err := s.redis.HKeys(ctx, meta).Result()
	if err == nil {
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, f := range fields {
				if run, ok := strings.CutPrefix(f, "r:"); ok {
					p.Del(ctx, eventsKey(chat, run))
					p.Del(ctx, recordKey(chat, run))
					p.HDel(ctx, meta, f)
				}
				if name, ok := strings.CutPrefix(f, "d:"); ok && strings.HasPrefix(name, "{") { // of a run
					p.Del(ctx, name)
					p.HDel(ctx, meta, f)
				}
			}
			for _, run := range further {
				p.Del(ctx, eventsKey(chat, run))
				p.Del(ctx, recordKey(chat, run))
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("erasing the runs of chat %s: %w", chat, unavailable(err))
	}
	return nil
}
