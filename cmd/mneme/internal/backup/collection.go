package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mneme/memory/redisscript"
)

// collection saves the keys of a collection of documents. Its documents may change
// meanwhile: each is read together with its head, and the list of ids is made from
// those that were read, so that what is restored belongs together. The log is read
// last, with the meta that counts it.
func (s *saver) collection(ctx context.Context, n node, metaKey string) error {
	base := strings.TrimSuffix(metaKey, ":meta")
	for _, suffix := range []string{"", ":heads", ":ids", ":vectors", ":log"} {
		if err := s.write(record{Key: base + suffix, Type: isNone}); err != nil {
			return err
		}
	}
	if err := s.bodies(ctx, n, base); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	replies, err := n.transactions(ctx, [][]any{{"XRANGE", base + ":log", "-", "+"}, {"HGETALL", metaKey}})
	if err != nil {
		return err
	}
	if err := s.rows(record{Key: base + ":log", Type: isStream, More: true}, streamRows(replies[0][0])); err != nil {
		return err
	}
	return s.rows(record{Key: metaKey, Type: isHash}, pairs(replies[0][1]))
}

// bodies saves a collection's documents and their vectors.
func (s *saver) bodies(ctx context.Context, n node, base string) error {
	for _, part := range []struct {
		sizes, names string // hashes with the same fields: one with the values to measure, one with the names to read
		save         func(context.Context, node, string, []string) error
	}{{base, base + ":heads", s.documents}, {base + ":vectors", base + ":vectors", s.vectors}} {
		names, err := n.HKeys(ctx, part.names).Result()
		if redisscript.WrongType(err) {
			continue // others keep something under the key
		}
		if err != nil {
			return err
		}
		measure := func(name string) []any { return []any{"HSTRLEN", part.sizes, name} }
		err = s.batches(ctx, n, names, measure, func(names []string) error {
			return part.save(ctx, n, part.sizes, names)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) documents(ctx context.Context, n node, base string, ids []string) error {
	bodies, heads := []any{"HMGET", base}, []any{"HMGET", base + ":heads"}
	for _, id := range ids {
		bodies, heads = append(bodies, id), append(heads, id)
	}
	replies, err := n.transactions(ctx, [][]any{bodies, heads})
	if err != nil {
		return err
	}
	body, _ := replies[0][0].([]any)
	head, _ := replies[0][1].([]any)
	if len(body) != len(ids) || len(head) != len(ids) {
		return errors.New("documents and their heads could not be read together")
	}
	var bodyRows, headRows, idRows [][]text
	for i, id := range ids {
		b, there := body[i].(string)
		h, known := head[i].(string)
		if there && known { // else it was deleted meanwhile
			bodyRows = append(bodyRows, []text{text(id), text(b)})
			headRows = append(headRows, []text{text(id), text(h)})
			idRows = append(idRows, []text{"0", text(id)})
		}
	}
	if err := s.rows(record{Key: base, Type: isHash, More: true}, bodyRows); err != nil {
		return err
	}
	if err := s.rows(record{Key: base + ":heads", Type: isHash, More: true}, headRows); err != nil {
		return err
	}
	return s.rows(record{Key: base + ":ids", Type: isZSet, More: true}, idRows)
}

func (s *saver) vectors(ctx context.Context, n node, key string, names []string) error {
	values, err := n.HMGet(ctx, key, names...).Result()
	var rows [][]text
	for i, v := range values {
		if vector, ok := v.(string); ok {
			rows = append(rows, []text{text(names[i]), text(vector)})
		}
	}
	if err != nil {
		return err
	}
	return s.rows(record{Key: key, Type: isHash, More: true}, rows)
}
