package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"mneme/memory"
)

// Tools stores pins: the accepted definitions of a server's tools, in a hash by name, shared by all processes. If
// several processes pin at once, the first one wins. Definitions that a person accepts replace all pins.
type Tools struct{ *core }

// Pinned returns the pinned definitions of a server's tools by name, none if there are no pins. An unreadable
// definition is a memory.DamagedError, which Accept repairs.
func Pinned[T any](ctx context.Context, s Tools, server string) (map[string]T, error) {
	key := pinsKey(server)
	values, err := s.redis.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, failure(err, "reading the pinned tools of %s", server)
	}
	tools := make(map[string]T, len(values))
	for name, value := range values {
		var tool T
		if err := json.Unmarshal([]byte(value), &tool); err != nil {
			return nil, &memory.DamagedError{Key: key, Cause: fmt.Errorf("the definition of %q cannot be read: %w", name, err)}
		}
		tools[name] = tool
	}
	return tools, nil
}

// Pin pins the definitions of a server that has no pins. If several processes pin at once, one succeeds.
func (s Tools) Pin(ctx context.Context, server string, tools map[string]json.RawMessage) error {
	return s.pin(ctx, "keep", server, tools)
}

// Accept replaces all pins of a server.
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
