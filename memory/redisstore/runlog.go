package redisstore

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// joined bounds the lines before the last one in an entry, in bytes.
const joined = 256 << 10

// packable is the size of a log, in bytes, above which Pack leaves it unchanged.
const packable = 16 << 20

// Logged is one event of a run's log: its number and its line of JSON.
type Logged struct {
	Seq  int64
	Line []byte
}

// entry is one entry of a run's log, which is a stream. Its id is <seq>-0, with the number of its last event. Its
// fields are
//
//	e   the line of its last event
//	b   the lines of the preceding events, each ended by a line feed
//	z   the same as b, deflated, possibly with the bytes of e as the dictionary
//
// The writer chooses which events share an entry: events that wait together, and finally all events. Entries may
// overlap, because a writer repeats an append whose reply was lost and may then join the events differently. A reader
// uses each number once.
type entry struct {
	first  int64 // number of its first event
	prefix []byte
	last   Logged
}

// join combines events into entries.
func join(events []Logged) []entry {
	var out []entry
	for i, e := range events {
		if i > 0 && e.Seq == events[i-1].Seq+1 && bytes.IndexByte(events[i-1].Line, '\n') < 0 {
			if last := &out[len(out)-1]; len(last.prefix)+len(last.last.Line) < joined {
				last.prefix = append(append(last.prefix, last.last.Line...), '\n')
				last.last = e
				continue
			}
		}
		out = append(out, entry{first: e.Seq, last: e})
	}
	return out
}

func (e entry) id() string { return strconv.FormatInt(e.last.Seq, 10) + "-0" }

// add returns the command that adds the entry to a log.
func (e entry) add(key string) *redis.XAddArgs {
	values := []any{"e", e.last.Line}
	if len(e.prefix) > 0 {
		values = append(values, "b", e.prefix)
	}
	return &redis.XAddArgs{Stream: key, ID: e.id(), Values: values}
}

// deflaters pools deflate writers, which need far more memory than their output here. The fastest level compresses
// worse, and the slowest takes longer for little gain.
var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, 4) // a valid level
	return w
}}

// packed returns the smaller form of the preceding lines and its field.
func (e entry) packed() (field string, value []byte) {
	if len(e.prefix) == 0 {
		return "", nil
	}
	var z bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&z)
	_, _ = w.Write(e.prefix) // a buffer accepts everything
	_ = w.Close()
	if z.Len() >= len(e.prefix) {
		return "b", e.prefix
	}
	return "z", z.Bytes()
}

// events parses an entry of a stream.
func events(m redis.XMessage) ([]Logged, error) {
	number, _, _ := strings.Cut(m.ID, "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	line, ok := m.Values["e"].(string)
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: entry %s is none of ours", memory.ErrDamaged, m.ID)
	}
	prefix, _ := m.Values["b"].(string)
	if z, ok := m.Values["z"].(string); ok {
		raw, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(strings.NewReader(z), []byte(line)), 2*joined+packable))
		if err != nil {
			return nil, fmt.Errorf("%w: entry %s: %w", memory.ErrDamaged, m.ID, err)
		}
		prefix = string(raw)
	}
	lines := strings.SplitAfter(prefix, "\n")
	out := make([]Logged, 0, len(lines))
	for i, l := range lines[:len(lines)-1] { // the text after the last line feed is empty
		out = append(out, Logged{seq - int64(len(lines)-1-i), []byte(l[:len(l)-1])})
	}
	return append(out, Logged{seq, []byte(line)}), nil
}

// ErrGap indicates that a run's log lacks an event and rejects it, because it already holds a later one. Redis lost the
// log, and the previous holder of the turn continued to write.
var ErrGap = errors.New("the run's log has a gap")

// Log adds events to a run's log in one round trip and returns the number of their entries. Existing events stay
// unchanged. If keep is true, Log extends the life of the log. A writer does so at first and about once per minute.
// After ErrGap, call Relog.
func (s Runs) Log(ctx context.Context, chat memory.Chat, run string, keep bool, events ...Logged) (int, error) {
	key, entries := eventsKey(chat, run), join(events)
	cmds, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, e := range entries {
			p.XAdd(ctx, e.add(key))
		}
		if keep {
			p.Expire(ctx, key, s.logLife())
		}
	})
	if len(cmds) == 0 {
		return 0, unavailable(err)
	}
	refused := int64(0) // first event that the log rejects
	for i, c := range cmds {
		switch {
		case c.Err() == nil:
		case !strings.Contains(c.Err().Error(), "equal or smaller"): // than the last id
			return 0, failure(c.Err(), "logging events of run %s", run)
		case refused == 0:
			refused = entries[i].first
		}
	}
	if refused == 0 {
		return len(entries), nil
	}
	stored, err := s.Events(ctx, chat, run, refused-1, 1)
	if errors.Is(err, memory.ErrDamaged) {
		stored, err = nil, nil
	}
	if err == nil && (len(stored) == 0 || stored[0].Seq != refused) {
		err = fmt.Errorf("logging event %d of run %s: %w", refused, run, ErrGap)
	}
	return len(entries), err
}

// Events returns the events of a run's log after lastSeq, from up to count entries. So it returns at least count events
// if the log has as many. A missing log has none.
func (s Runs) Events(ctx context.Context, chat memory.Chat, run string, lastSeq int64, count int64) ([]Logged, error) {
	messages, err := s.redis.XRangeN(ctx, eventsKey(chat, run), "("+strconv.FormatInt(lastSeq, 10)+"-0", "+",
		count).Result()
	if err != nil {
		return nil, failure(err, "reading the events of run %s", run)
	}
	out, err := eventsAfter(lastSeq, messages)
	if err != nil {
		err = fmt.Errorf("reading the events of run %s: %w", run, err)
	}
	return out, err
}

// eventsAfter returns the events of entries after lastSeq, each once. With memory.ErrDamaged it returns the readable
// events.
func eventsAfter(lastSeq int64, messages []redis.XMessage) (out []Logged, damaged error) {
	out = make([]Logged, 0, len(messages))
	for _, m := range messages {
		lines, err := events(m)
		if err != nil {
			damaged = err
			continue
		}
		for _, l := range lines {
			if l.Seq > lastSeq {
				out, lastSeq = append(out, l), l.Seq
			}
		}
	}
	return out, damaged
}

// Logs returns the whole logs of a chat's runs, in one round trip. A missing log has no events. From a damaged log,
// Logs returns the readable events.
func (s Runs) Logs(ctx context.Context, chat memory.Chat, runs ...string) ([][]Logged, error) {
	cmds := make([]*redis.XMessageSliceCmd, len(runs))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, run := range runs {
			cmds[i] = p.XRange(ctx, eventsKey(chat, run), "-", "+")
		}
	})
	out := make([][]Logged, len(runs))
	for i, cmd := range cmds {
		err := cmd.Err()
		if err == nil {
			out[i], err = eventsAfter(0, cmd.Val())
		}
		if err = failure(err, "reading the events of run %s", runs[i]); errors.Is(err, memory.ErrDamaged) {
			s.log.Warn().Err(err).Msg("the log of a run is damaged")
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LastEvent returns the newest event in a run's log, nil if there is none.
func (s Runs) LastEvent(ctx context.Context, chat memory.Chat, run string) ([]byte, error) {
	messages, err := s.redis.XRevRangeN(ctx, eventsKey(chat, run), "+", "-", 1).Result()
	if err != nil || len(messages) == 0 {
		return nil, failure(err, "reading the last event of run %s", run)
	}
	line, _ := messages[0].Values["e"].(string)
	return []byte(line), nil
}

// Pack joins and deflates the log of a finished run, which few clients read again. events are all events of the run.
// The expiry of the log stays. Pack leaves a log unchanged that ends differently, for example an erased one.
func (s Runs) Pack(ctx context.Context, chat memory.Chat, run string, events ...Logged) error {
	size := 0
	for _, l := range events {
		size += len(l.Line)
	}
	if size > packable || len(events) == 0 {
		return nil
	}
	var args []any
	for _, e := range join(events) {
		field, value := e.packed()
		args = append(args, e.id(), e.last.Line, field, value)
	}
	_, err := s.call(ctx, packScript, []string{eventsKey(chat, run)}, args...)
	return failure(err, "packing the log of run %s", run)
}

// Relog rewrites a run's log from its first event on, in pieces. The first piece replaces the log in one transaction;
// the others are appended. Meanwhile, the log may be shorter but never has a gap. Only the holder of the chat's newest
// turn may call Relog, because it removes other processes' events. It returns the new number of entries.
func (s Runs) Relog(ctx context.Context, chat memory.Chat, run string, events ...Logged) (entries int, err error) {
	const chunk = 256 // so that one command does not block other clients for long
	key, n := eventsKey(chat, run), min(len(events), chunk)
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		for _, e := range join(events[:n]) {
			p.XAdd(ctx, e.add(key))
			entries++
		}
		p.Expire(ctx, key, s.logLife())
		return nil
	})
	if err != nil {
		return 0, failure(err, "logging the events of run %s again", run)
	}
	for batch := range slices.Chunk(events[n:], chunk) {
		added, err := s.Log(ctx, chat, run, true, batch...)
		if err != nil {
			return 0, err
		}
		entries += added
	}
	return entries, nil
}

// LogLen returns the number of entries in a run's log.
func (s Runs) LogLen(ctx context.Context, chat memory.Chat, run string) (int, error) {
	n, err := s.redis.XLen(ctx, eventsKey(chat, run)).Result()
	return int(n), failure(err, "counting the events of run %s", run)
}
