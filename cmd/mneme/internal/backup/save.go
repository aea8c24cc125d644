package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Bounds of what is held at a time. A single value may be larger.
const (
	keysAtOnce  = 32      // keys, or fields of a hash, that are read in one round trip
	batchBytes  = 8 << 20 // of their values
	streamPage  = 1000    // entries of a stream that are read in one round trip
	recordBytes = 1 << 20 // of the rows of one record
	pipedAtOnce = 1000    // commands of a restore in one round trip
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
	if r.Continued || r.Type == isNone {
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
	servers, err := nodes(ctx, client)
	if err != nil {
		return s.done, err
	}
	for _, pass := range passes {
		for p, err := range pages(ctx, servers, "*") {
			if err == nil {
				err = s.page(ctx, p, pass)
			}
			if err != nil {
				return s.done, err
			}
			s.tell(s.done)
		}
	}
	current, err := nodes(ctx, client)
	if err != nil {
		return s.done, err
	}
	if !slices.Equal(identities(servers), identities(current)) {
		return s.done,
			errors.New("a Redis server was restarted or replaced while it was read, so keys may be missing; make the backup " +
				"again")
	}
	return s.done, w.close()
}

// identities are those of the servers behind a client at one moment.
func identities(servers []node) []string {
	var ids []string
	for _, n := range servers {
		ids = append(ids, n.identity)
	}
	slices.Sort(ids)
	return ids
}

// saver reads keys and writes their records.
type saver struct {
	out  *writer
	tell Progress
	done Summary
}

// page saves the keys of some roles of one page of a scan. Each role is read in its own way.
func (s *saver) page(ctx context.Context, p page, pass []role) error {
	byRole := map[role][]string{}
	for _, key := range p.keys {
		byRole[roleOf(key)] = append(byRole[roleOf(key)], key)
	}
	for _, r := range pass {
		chunks, err := slices.Collect(slices.Chunk(byRole[r], keysAtOnce)), error(nil)
		if r == history { // what else there is is small, or is read in parts
			chunks, err = batches(ctx, p.node, byRole[r], "STRLEN")
		}
		if err != nil {
			return err
		}
		for _, keys := range chunks {
			switch r {
			case history:
				err = s.histories(ctx, p.node, "GET", keys)
			case meta: // without a history: of one that is erased, or of a chat that has said nothing yet
				err = s.histories(ctx, p.node, "EXISTS", keys)
			case collection:
				for i := 0; i < len(keys) && err == nil; i++ {
					err = s.collection(ctx, p.node, keys[i])
				}
			default:
				err = s.others(ctx, p.node, keys)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// batches are names of keys, or of fields of a hash, that are read in one round trip: at most keysAtOnce, with about
// batchBytes of values as the command measure says it. What that refuses is of another type, and no value.
func batches(ctx context.Context, n node, names []string, measure ...any) (out [][]string, err error) {
	for chunk := range slices.Chunk(names, keysAtOnce) {
		sizes := make([]*redis.Cmd, len(chunk))
		_, _ = n.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
			for i, name := range chunk {
				sizes[i] = p.Do(ctx, append(slices.Clip(measure), name)...)
			}
			return nil
		})
		first, bytes := 0, int64(0)
		for i := range chunk {
			size, err := sizes[i].Int64()
			if err != nil && !redisscript.WrongType(err) {
				return nil, err
			}
			if bytes += size; i > first && bytes > batchBytes {
				out, first, bytes = append(out, chunk[first:i]), i, size
			}
		}
		out = append(out, chunk[first:])
	}
	return out, nil
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
			r.Continued, r.Rows, size = true, nil, 0
		}
	}
	if len(r.Rows) == 0 {
		return nil
	}
	return s.write(r)
}

// histories saves histories with their metas, each pair read in one transaction. read is
// GET for keys of histories: their values are saved. It is EXISTS for keys of metas: a
// meta is saved if its history is absent, and so is that absence, since the history may
// have been erased after it was read.
func (s *saver) histories(ctx context.Context, n node, read string, keys []string) error {
	units, pairsOf := make([][][]any, len(keys)), make([][2]string, len(keys))
	for i, key := range keys {
		k, _ := memory.ParseRedisKey(key)
		pairsOf[i] = [2]string{k.Key.String(), memory.RedisKey{Kind: memory.KindMeta, Key: k.Key}.String()}
		units[i] = [][]any{{read, pairsOf[i][0]}, {"HGETALL", pairsOf[i][1]}, {"PTTL", pairsOf[i][1]}}
	}
	now := time.Now()
	replies, err := n.transactions(ctx, units...)
	if err != nil {
		return err
	}
	for i, r := range replies {
		saved, rows := record{Key: pairsOf[i][0], Type: isNone}, pairs(r[1])
		if value, ok := r[0].(string); ok {
			saved.Type, saved.Value = isString, text(value)
		} else if r[0] != int64(0) || len(rows) == 0 {
			// A history that is gone since it was found comes with the metas, if it has one. A meta that is gone, or has a
			// history that was found or begun by now, is not saved here.
			continue
		}
		if err := s.write(saved); err != nil {
			return err
		}
		if err := s.rows(record{Key: pairsOf[i][1], Type: isHash, Expires: expiry(r[2], now)}, rows); err != nil {
			return err
		}
	}
	return nil
}

// readers are the commands that read a whole key, without its name, and what makes rows
// of their replies; none for a string.
var readers = map[kind]struct {
	command string
	options []any
	rows    func(reply any) [][]text
}{
	isString: {command: "GET"},
	isHash:   {command: "HGETALL", rows: pairs},
	isSet: {command: "SMEMBERS", rows: func(reply any) [][]text {
		return slices.Collect(slices.Chunk(words(reply), 1))
	}},
	isZSet: {command: "ZRANGE", options: []any{0, -1, "WITHSCORES"}, rows: func(reply any) [][]text {
		rows := pairs(reply)
		for _, row := range rows {
			row[0], row[1] = row[1], row[0] // score first, as ZADD takes it
		}
		return rows
	}},
}

// others saves keys that stand for themselves, of whatever type.
func (s *saver) others(ctx context.Context, n node, keys []string) error {
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
		} else if reader, ok := readers[r.Type]; ok { // not gone, and no type that mneme never uses
			records = append(records, r)
			units = append(units, [][]any{append([]any{reader.command, key}, reader.options...), {"PTTL", key}})
		}
	}
	now := time.Now()
	replies, err := n.transactions(ctx, units...)
	if err != nil {
		return err
	}
	for i, reply := range replies {
		r := records[i]
		r.Expires = expiry(reply[1], now)
		if rows := readers[r.Type].rows; rows != nil {
			err = s.rows(r, rows(reply[0]))
		} else if value, ok := reply[0].(string); ok { // not gone
			r.Value = text(value)
			err = s.write(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stream saves a stream's entries. Only its end grows, so that pages fit together.
func (s *saver) stream(ctx context.Context, n node, key string) error {
	r := record{Key: key, Type: isStream}
	for start := "-"; ; {
		now := time.Now()
		replies, err := n.transactions(ctx, [][]any{{"XRANGE", key, start, "+", "COUNT", streamPage}, {"PTTL", key}})
		if err != nil {
			return err
		}
		r.Expires = expiry(replies[0][1], now)
		rows := streamRows(replies[0][0])
		if err := s.rows(r, rows); err != nil || len(rows) < streamPage {
			return err
		}
		r.Continued, start = true, "("+string(rows[len(rows)-1][0])
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

// expiry turns a reply of PTTL into the time, in Unix ms, 0 for never. It counts from when the reply was asked for: what
// has ended in Redis has then ended in the backup, too, however long the backup took to come to it.
func expiry(reply any, now time.Time) int64 {
	if ttl, ok := reply.(int64); ok && ttl > 0 {
		return now.UnixMilli() + ttl
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
	return slices.Collect(slices.Chunk(flat[:len(flat)/2*2], 2))
}
