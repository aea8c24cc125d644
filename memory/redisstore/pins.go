package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"mneme/memory"
)

// Tools is about pins: what the tools of a server were when they were accepted, in a hash
// of their definitions by name, for all processes. Of several processes that pin at once the
// first one wins; what a person accepts replaces all.
type Tools struct{ *core }

// Pinned are the definitions that are pinned of a server's tools, by name; none if none
// ever were. What cannot be read is a memory.DamagedError, which Accept mends.
func (s Tools) Pinned(ctx context.Context, server string) (map[string]json.RawMessage, error) {
	key := pinsKey(server)
	values, err := s.redis.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, failure(err, "reading the pinned tools of %s", server)
	}
	tools := make(map[string]json.RawMessage, len(values))
	for name, value := range values {
		if !json.Valid([]byte(value)) {
			return nil, &memory.DamagedError{Key: key, Cause: fmt.Errorf("the definition of %q is no JSON", name)}
		}
		tools[name] = json.RawMessage(value)
	}
	return tools, nil
}

// Pin pins definitions of a server of which nothing is pinned, and gives what is pinned
// then: of processes that do so at once, one pins and all are given the same.
func (s Tools) Pin(ctx context.Context, server string, tools map[string]json.RawMessage) (
	map[string]json.RawMessage, error) {
	if err := s.pin(ctx, "keep", server, tools); err != nil {
		return nil, err
	}
	return s.Pinned(ctx, server)
}

// Accept pins definitions in the place of all that are pinned of a server.
func (s Tools) Accept(ctx context.Context, server string, tools map[string]json.RawMessage) error {
	return s.pin(ctx, "replace", server, tools)
}

func (s Tools) pin(ctx context.Context, how, server string, tools map[string]json.RawMessage) error {
	args := []any{how}
	for name, definition := range tools {
		var compact bytes.Buffer
		if err := json.Compact(&compact, definition); err != nil {
			return fmt.Errorf("the definition of the tool %q is no JSON: %w", name, err)
		}
		args = append(args, name, compact.Bytes())
	}
	_, err := s.call(ctx, pinScript, []string{pinsKey(server)}, args...)
	return failure(err, "pinning the tools of %s", server)
}

func pinsKey(server string) string {
	return memory.RedisKey{Kind: memory.KindTools, Run: server}.String()
}
