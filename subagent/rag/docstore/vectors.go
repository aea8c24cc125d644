package docstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"mneme/memory/redisscript"
)

// Vectors reads the vectors of passages in a space, by the hash of their text;
// those that are not there are left out.
func (s *Store) Vectors(ctx context.Context, c Collection, space string, hashes ...string) (map[string][]float32,
	error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	fields := make([]string, len(hashes))
	for i, h := range hashes {
		fields[i] = vectorField(space, h)
	}
	values, err := s.redis.HMGet(ctx, c.vectorsKey(), fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("reading vectors of %s: %w", c, unavailable(err))
	}
	vectors := map[string][]float32{}
	for i, v := range values {
		if text, ok := v.(string); ok && len(text) > 0 && len(text)%4 == 0 {
			vector := make([]float32, len(text)/4)
			_, _ = binary.Decode([]byte(text), binary.LittleEndian, vector) // it fails for too few bytes only
			vectors[hashes[i]] = vector
		}
	}
	return vectors, nil
}

// PutVectors keeps the vectors of passages in a space, by the hash of their text.
func (s *Store) PutVectors(ctx context.Context, c Collection, space string, vectors map[string][]float32) error {
	if len(vectors) == 0 {
		return nil
	}
	fields := make([]any, 0, 2*len(vectors))
	for hash, vector := range vectors {
		text, _ := binary.Append(nil, binary.LittleEndian, vector) // a slice of numbers always fits
		fields = append(fields, vectorField(space, hash), text)
	}
	r, err := s.run(ctx, vectorsScript, c, fields...)
	if err != nil {
		return fmt.Errorf("keeping vectors of %s: %w", c, err)
	}
	if r.Word() != "ok" {
		return fmt.Errorf("keeping vectors of %s: %w: unexpected reply %q", c, ErrUnavailable, r.Word())
	}
	return nil
}

// KeepVectors removes the vectors of other spaces, and those of passages that live
// does not know.
func (s *Store) KeepVectors(ctx context.Context, c Collection, space string, live func(hash string) bool) error {
	fields, err := s.redis.HKeys(ctx, c.vectorsKey()).Result()
	if err != nil {
		return fmt.Errorf("listing the vectors of %s: %w", c, unavailable(err))
	}
	var dead []string
	for _, f := range fields {
		sep := strings.LastIndexByte(f, ' ')
		if f[:max(sep, 0)] != space || !live(f[sep+1:]) {
			dead = append(dead, f)
		}
	}
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for page := range slices.Chunk(dead, MaxPage) {
			p.HDel(ctx, c.vectorsKey(), page...)
		}
	})
	if err != nil {
		return fmt.Errorf("removing vectors of %s: %w", c, unavailable(err))
	}
	return nil
}

func vectorField(space, hash string) string { return space + " " + hash }
