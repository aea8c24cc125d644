package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// Stored is one history as it lies in Redis.
type Stored struct {
	Key      memory.Key
	Messages int // 0 as long as nobody took over a foreign writer's value
	Bytes    int
}

// Chats lists some chats that have a history, from cursor on ("" is the start);
// the next cursor is "" at the end. One chat may be listed twice if histories
// come and go meanwhile.
func (s *Store) Chats(ctx context.Context, cursor string, count int) (chats []memory.Chat, next string, err error) {
	at, err := strconv.ParseUint("0"+cursor, 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %q is no cursor of this list", memory.ErrBadName, cursor)
	}
	seen := map[memory.Chat]bool{}
	for len(chats) < count {
		var keys []string
		keys, at, err = s.redis.Scan(ctx, at, "chat_history:*", int64(count)).Result()
		if err != nil {
			return nil, "", fmt.Errorf("listing the chats: %w", unavailable(err))
		}
		for _, k := range keys {
			key, ok := memory.ParseKey(k)
			if ok && !seen[key.Chat()] {
				seen[key.Chat()] = true
				chats = append(chats, key.Chat())
			}
		}
		if at == 0 {
			return chats, "", nil
		}
	}
	return chats, strconv.FormatUint(at, 10), nil
}

// Histories lists the histories of one chat, its own first, then the subagents'
// by name; also those that only a foreign writer knows of.
func (s *Store) Histories(ctx context.Context, chat memory.Chat) ([]Stored, error) {
	keys := map[memory.Key]bool{memory.ChatKey(chat): true}
	fields, err := s.redis.HKeys(ctx, metaKey(memory.ChatKey(chat))).Result()
	if err != nil {
		return nil, fmt.Errorf("listing the histories of chat %s: %w", chat, unavailable(err))
	}
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f, "s:"); ok {
			if agent, err := memory.ParseAgent(name); err == nil {
				keys[memory.SubagentKey(agent, chat)] = true
			}
		}
	}
	err = s.scan(ctx, "subagent:*:"+escape(string(chat)), func(found string) error {
		if key, ok := memory.ParseKey(found); ok && key.Chat() == chat {
			keys[key] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the histories of chat %s: %w", chat, unavailable(err))
	}
	return s.measure(ctx, keys)
}

func (s *Store) measure(ctx context.Context, keys map[memory.Key]bool) ([]Stored, error) {
	ordered := make([]memory.Key, 0, len(keys))
	for k := range keys {
		ordered = append(ordered, k)
	}
	slices.SortFunc(ordered, func(a, b memory.Key) int {
		return strings.Compare(string(a.Agent()), string(b.Agent()))
	})
	sizes := make([]*redis.IntCmd, len(ordered))
	counts := make([]*redis.StringCmd, len(ordered))
	_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
		for i, k := range ordered {
			sizes[i] = p.StrLen(ctx, k.String())
			counts[i] = p.HGet(ctx, metaKey(k), "count")
		}
		return nil
	})
	var out []Stored
	for i, k := range ordered {
		if err := sizes[i].Err(); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", k, unavailable(err))
		}
		if sizes[i].Val() == 0 {
			continue
		}
		n, _ := counts[i].Int() // absent for a value that nobody took over yet
		out = append(out, Stored{Key: k, Messages: n, Bytes: int(sizes[i].Val())})
	}
	return out, nil
}

// scan calls f for every key that matches.
func (s *Store) scan(ctx context.Context, pattern string, f func(key string) error) error {
	it := s.redis.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		if err := f(it.Val()); err != nil {
			return err
		}
	}
	return it.Err()
}

// escape makes a key literal inside a SCAN pattern. Of what keys may hold only
// the separators of a set mean something there, and those stand in brackets only.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
