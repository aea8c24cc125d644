package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
)

// Bounds of what is held at a time. A single value may be larger.
const (
	batchBytes  = 8 << 20 // values that are read in one round trip
	batchKeys   = 128     // histories, whose sizes are known before they are read
	otherKeys   = 32      // other keys, whose sizes are not
	recordBytes = 1 << 20 // of the rows of one record
	streamPage  = 1000    // entries of a stream that are read at a time
)

// Summary counts what was saved or restored.
type Summary struct {
	Histories   int64
	Collections int64
	Keys        int64     // of all kinds
	Bytes       int64     // of all values
	Created     time.Time // of the file
}

func (s Summary) String() string {
	return fmt.Sprintf("%s, %s of documents, %s", number(s.Histories, "history", "histories"),
		number(s.Collections, "collection", "collections"), size(s.Bytes))
}

func number(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f kB", float64(bytes)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

// count adds a record.
func (s *Summary) count(r record) {
	size := len(r.Value)
	for _, row := range r.Rows {
		for _, t := range row {
			size += len(t)
		}
	}
	s.Bytes += int64(size)
	if r.More || r.Type == isNone {
		return
	}
	s.Keys++
	switch roleOf(r.Key) {
	case history:
		s.Histories++
	case collection:
		s.Collections++
	}
}

// Progress is told now and then how far a backup or a restore is.
type Progress func(Summary)

// Save writes a backup of everything behind client to out. It reads only, page by
// page, and services may go on writing meanwhile.
func Save(ctx context.Context, client redis.UniversalClient, out io.Writer, tell Progress) (Summary, error) {
	created := time.Now()
	w, err := newWriter(out, created)
	if err != nil {
		return Summary{}, err
	}
	s := &saver{out: w, tell: tell, done: Summary{Created: created}}
	before, err := nodes(ctx, client)
	if err != nil {
		return s.done, err
	}
	if err := s.all(ctx, before); err != nil {
		return s.done, err
	}
	after, err := nodes(ctx, client)
	if err != nil {
		return s.done, err
	}
	if !same(before, after) {
		return s.done,
			errors.New("a Redis server was restarted or replaced while it was read, so keys may be missing; make the backup " +
				"again")
	}
	return s.done, w.close()
}

// same compares the servers behind a client at two moments.
func same(before, after []node) bool {
	known := map[string]bool{}
	for _, n := range before {
		known[n.identity] = true
	}
	for _, n := range after {
		if !known[n.identity] {
			return false
		}
	}
	return len(before) == len(after)
}

// saver reads keys and writes their records.
type saver struct {
	out  *writer
	tell Progress
	done Summary
}

func (s *saver) all(ctx context.Context, all []node) error {
	for _, pattern := range scans {
		for _, n := range all {
			err := n.scan(ctx, pattern, func(keys []string) error { return s.keys(ctx, n, pattern, keys) })
			if err != nil {
				return fmt.Errorf("reading the keys %s: %w", pattern, err)
			}
		}
	}
	return nil
}

// keys saves one page of a scan. Each role is read in its own way.
func (s *saver) keys(ctx context.Context, n node, pattern string, keys []string) error {
	byRole := map[role][]string{}
	for _, key := range keys {
		if pattern == "proxy:*" && strings.HasPrefix(key, "proxy:turns:") {
			continue // of the pattern before
		}
		r := roleOf(key)
		byRole[r] = append(byRole[r], key)
	}
	defer func() { s.tell(s.done) }()
	if err := s.histories(ctx, n, byRole[history]); err != nil {
		return err
	}
	if err := s.metas(ctx, n, byRole[meta]); err != nil {
		return err
	}
	if err := s.others(ctx, n, byRole[plain]); err != nil {
		return err
	}
	for _, key := range byRole[collection] {
		if err := s.collection(ctx, n, key); err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) write(r record) error {
	s.done.count(r)
	return s.out.write(r)
}

// rows writes the rows of a key, in records of about recordBytes.
func (s *saver) rows(r record, rows [][]text) error {
	size := 0
	for _, row := range rows {
		for _, t := range row {
			size += len(t)
		}
		r.Rows = append(r.Rows, row)
		if size >= recordBytes {
			if err := s.write(r); err != nil {
				return err
			}
			r.More, r.Rows, size = true, nil, 0
		}
	}
	if len(r.Rows) == 0 {
		return nil
	}
	return s.write(r)
}

// histories saves histories, each with its meta.
func (s *saver) histories(ctx context.Context, n node, keys []string) error {
	sizes := make([]*redis.IntCmd, len(keys))
	_, _ = n.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
		for i, key := range keys {
			sizes[i] = p.StrLen(ctx, key)
		}
		return nil
	})
	batch, bytes := []string{}, int64(0)
	for i, key := range keys {
		size, err := sizes[i].Result()
		if redisscript.WrongType(err) {
			continue
		}
		if err != nil {
			return err
		}
		if len(batch) > 0 && (bytes+size > batchBytes || len(batch) == batchKeys) {
			if err := s.historyBatch(ctx, n, batch); err != nil {
				return err
			}
			batch, bytes = batch[:0], 0
		}
		batch, bytes = append(batch, key), bytes+size
	}
	return s.historyBatch(ctx, n, batch)
}

func (s *saver) historyBatch(ctx context.Context, n node, keys []string) error {
	units := make([][][]any, len(keys))
	for i, key := range keys {
		units[i] = [][]any{{"GET", key}, {"HGETALL", metaOf(key)}, {"PTTL", metaOf(key)}}
	}
	replies, err := n.transactions(ctx, units)
	if err != nil {
		return err
	}
	for i, r := range replies {
		value, ok := r[0].(string)
		if !ok {
			continue // gone since it was found: its meta, if there is one, comes with the metas
		}
		if err := s.write(record{Key: keys[i], Type: isString, Value: text(value)}); err != nil {
			return err
		}
		if err := s.rows(record{Key: metaOf(keys[i]), Type: isHash, Expires: expiry(r[2])}, pairs(r[1])); err != nil {
			return err
		}
	}
	return nil
}

// metas saves metas without a history: of one that is erased, or of a chat that
// has said nothing yet. That the history is absent is saved with it, since it may
// have been erased after it was read.
func (s *saver) metas(ctx context.Context, n node, keys []string) error {
	units := make([][][]any, len(keys))
	for i, key := range keys {
		units[i] = [][]any{{"EXISTS", historyOf(key)}, {"HGETALL", key}, {"PTTL", key}}
	}
	replies, err := n.transactions(ctx, units)
	if err != nil {
		return err
	}
	for i, r := range replies {
		rows := pairs(r[1])
		if r[0] != int64(0) || len(rows) == 0 {
			continue // saved with its history, or begun after the histories were read
		}
		if err := s.write(record{Key: historyOf(keys[i]), Type: isNone}); err != nil {
			return err
		}
		if err := s.rows(record{Key: keys[i], Type: isHash, Expires: expiry(r[2])}, rows); err != nil {
			return err
		}
	}
	return nil
}

// readers are the commands that read a whole key; a stream is read by pages.
var readers = map[kind]func(key string) []any{
	isString: func(key string) []any { return []any{"GET", key} },
	isHash:   func(key string) []any { return []any{"HGETALL", key} },
	isSet:    func(key string) []any { return []any{"SMEMBERS", key} },
	isZSet:   func(key string) []any { return []any{"ZRANGE", key, 0, -1, "WITHSCORES"} },
}

// others saves keys that stand for themselves, of whatever type.
func (s *saver) others(ctx context.Context, n node, keys []string) error {
	for len(keys) > 0 {
		count := min(len(keys), otherKeys)
		if err := s.otherBatch(ctx, n, keys[:count]); err != nil {
			return err
		}
		keys = keys[count:]
	}
	return nil
}

func (s *saver) otherBatch(ctx context.Context, n node, keys []string) error {
	types := make([]*redis.StatusCmd, len(keys))
	if _, err := n.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			types[i] = p.Type(ctx, key)
		}
		return nil
	}); err != nil {
		return err
	}
	var records []record
	var units [][][]any
	for i, key := range keys {
		r := record{Key: key, Type: kind(types[i].Val())}
		if r.Type == isStream {
			if err := s.stream(ctx, n, key); err != nil {
				return err
			}
		} else if command := readers[r.Type]; command != nil { // not gone, and no type that mneme never uses
			records = append(records, r)
			units = append(units, [][]any{command(key), {"PTTL", key}})
		}
	}
	replies, err := n.transactions(ctx, units)
	if err != nil {
		return err
	}
	for i, reply := range replies {
		if err := s.other(records[i], reply); err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) other(r record, reply []any) error {
	r.Expires = expiry(reply[1])
	switch r.Type {
	case isString:
		value, ok := reply[0].(string)
		if !ok {
			return nil // gone
		}
		r.Value = text(value)
		return s.write(r)
	case isSet:
		var rows [][]text
		for _, member := range words(reply[0]) {
			rows = append(rows, []text{member})
		}
		return s.rows(r, rows)
	case isZSet:
		rows := pairs(reply[0])
		for _, row := range rows {
			row[0], row[1] = row[1], row[0] // score first, as ZADD takes it
		}
		return s.rows(r, rows)
	}
	return s.rows(r, pairs(reply[0]))
}

// stream saves a stream's entries. Only its end grows, so that pages fit together.
func (s *saver) stream(ctx context.Context, n node, key string) error {
	r := record{Key: key, Type: isStream}
	for from := "-"; ; {
		replies, err := n.transactions(ctx, [][][]any{{{"XRANGE", key, from, "+", "COUNT", streamPage}, {"PTTL", key}}})
		if err != nil {
			return err
		}
		r.Expires = expiry(replies[0][1])
		rows := streamRows(replies[0][0])
		if err := s.rows(r, rows); err != nil || len(rows) < streamPage {
			return err
		}
		r.More, from = true, "("+string(rows[len(rows)-1][0])
	}
}

// streamRows are the entries of a reply of XRANGE.
func streamRows(reply any) [][]text {
	entries, _ := reply.([]any)
	var rows [][]text
	for _, entry := range entries {
		if e, ok := entry.([]any); ok && len(e) == 2 {
			id, _ := e[0].(string)
			rows = append(rows, append([]text{text(id)}, words(e[1])...))
		}
	}
	return rows
}

// expiry turns a reply of PTTL into the time, in Unix ms, 0 for never.
func expiry(reply any) int64 {
	if left, ok := reply.(int64); ok && left > 0 {
		return time.Now().UnixMilli() + left
	}
	return 0
}

// words are the strings of a reply, none for an error.
func words(reply any) []text {
	values, _ := reply.([]any)
	out := make([]text, 0, len(values))
	for _, v := range values {
		word, _ := v.(string)
		out = append(out, text(word))
	}
	return out
}

// pairs are those of a flat reply, such as HGETALL's.
func pairs(reply any) [][]text {
	flat := words(reply)
	out := make([][]text, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		out = append(out, []text{flat[i], flat[i+1]})
	}
	return out
}
