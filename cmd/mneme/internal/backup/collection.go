package backup

import (
	"context"
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
	ids, err := s.fields(ctx, n, base+":heads", base)
	if err == nil {
		err = s.rows(record{Key: base + ":ids", Type: isZSet, Continued: true}, ids)
	}
	if err == nil {
		_, err = s.fields(ctx, n, base+":vectors")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	replies, err := n.transactions(ctx, [][]any{{"XRANGE", base + ":log", "-", "+"}, {"HGETALL", metaKey}})
	if err != nil {
		return err
	}
	if err := s.rows(record{Key: base + ":log", Type: isStream, Continued: true}, streamRows(replies[0][0])); err != nil {
		return err
	}
	return s.rows(record{Key: metaKey, Type: isHash}, pairs(replies[0][1]))
}

// fields saves a hash with others that have values of the same fields, all values of a field from one moment. A field
// that one of them lacks was deleted meanwhile. It gives the fields, each behind a score of 0.
func (s *saver) fields(ctx context.Context, n node, key string, others ...string) (saved [][]text, err error) {
	names, err := n.HKeys(ctx, key).Result()
	if redisscript.WrongType(err) {
		return nil, nil // others keep something under the key
	}
	hashes := append([]string{key}, others...)
	parts, err := batches(ctx, n, names, "HSTRLEN", hashes[len(hashes)-1])
	if err != nil {
		return nil, err
	}
	for _, chunk := range parts {
		unit := [][]any{}
		for _, hash := range hashes {
			command := []any{"HMGET", hash}
			for _, name := range chunk {
				command = append(command, name)
			}
			unit = append(unit, command)
		}
		replies, err := n.transactions(ctx, unit)
		if err != nil {
			return nil, err
		}
		rows := make([][][]text, len(hashes))
		for i, name := range chunk {
			var values []string
			for _, reply := range replies[0] {
				if list, _ := reply.([]any); i < len(list) {
					if value, ok := list[i].(string); ok {
						values = append(values, value)
					}
				}
			}
			if len(values) < len(hashes) {
				continue
			}
			saved = append(saved, []text{"0", text(name)})
			for h, value := range values {
				rows[h] = append(rows[h], []text{text(name), text(value)})
			}
		}
		for h, hash := range hashes {
			if err := s.rows(record{Key: hash, Type: isHash, Continued: true}, rows[h]); err != nil {
				return nil, err
			}
		}
		s.tell(s.done)
	}
	return saved, err
}
