package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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
	node, at := 0, uint64(0)
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d.%d", &node, &at); err != nil || node < 0 {
			return nil, "", fmt.Errorf("%w: %.40q is no cursor of this list", memory.ErrBadName, cursor)
		}
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("listing the chats: %w", unavailable(err))
	}
	seen := map[memory.Chat]bool{}
	for ; node < len(masters); node++ {
		for {
			if len(chats) >= count {
				return chats, fmt.Sprintf("%d.%d", node, at), nil
			}
			var keys []string
			keys, at, err = masters[node].Scan(ctx, at, "chat_history:*", int64(count)).Result()
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
				break
			}
		}
	}
	return chats, "", nil
}

// masters are the nodes that hold keys, in an order that stays the same.
func (s *Store) masters(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := s.redis.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{s.redis}, nil
	}
	var mu sync.Mutex
	byAddr := map[string]redis.Cmdable{}
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		byAddr[node.Options().Addr] = node
		return nil
	})
	if err != nil {
		return nil, err
	}
	nodes := make([]redis.Cmdable, 0, len(byAddr))
	for _, addr := range slices.Sorted(maps.Keys(byAddr)) {
		nodes = append(nodes, byAddr[addr])
	}
	return nodes, nil
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

// scan calls f for every key that matches, on every node.
func (s *Store) scan(ctx context.Context, pattern string, f func(key string) error) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return err
	}
	for _, node := range masters {
		it := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			if err := f(it.Val()); err != nil {
				return err
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return nil
}

// escape makes a key literal inside a SCAN pattern. Of what keys may hold only
// the separators of a set mean something there, and those stand in brackets only.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
