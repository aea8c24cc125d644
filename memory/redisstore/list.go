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
// by name: those that Keys names and that hold something.
func (s *Store) Histories(ctx context.Context, chat memory.Chat, agents ...memory.Agent) ([]Stored, error) {
	keys, err := s.Keys(ctx, chat, agents...)
	if err != nil {
		return nil, err
	}
	return s.Measure(ctx, keys...)
}

// Keys names the histories that a chat may have: its own, those in its index, and
// those of agents, which another program may have written.
func (s *Store) Keys(ctx context.Context, chat memory.Chat, agents ...memory.Agent) ([]memory.Key, error) {
	keys := []memory.Key{memory.ChatKey(chat)}
	for _, agent := range agents {
		keys = append(keys, memory.SubagentKey(agent, chat))
	}
	fields, err := s.redis.HKeys(ctx, metaKey(memory.ChatKey(chat))).Result()
	if err != nil {
		return nil, fmt.Errorf("listing the histories of chat %s: %w", chat, unavailable(err))
	}
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f, "s:"); ok {
			if agent, err := memory.ParseAgent(name); err == nil {
				keys = append(keys, memory.SubagentKey(agent, chat))
			}
		}
	}
	return keys, nil
}

// Measure gives those of some histories that hold something, each once, ordered by
// the subagent's name.
func (s *Store) Measure(ctx context.Context, keys ...memory.Key) ([]Stored, error) {
	ordered := slices.Clone(keys)
	slices.SortFunc(ordered, func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
	ordered = slices.Compact(ordered)
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

// Found says of each key whether Redis has it, or a meta beside it. It costs one
// round trip, or two if one is there, and leaves nothing behind.
func (s *Store) Found(ctx context.Context, keys ...memory.Key) ([]bool, error) {
	if _, slots := s.redis.(*redis.ClusterClient); !slots {
		// One command tells of all of them that there is none, as in most cases.
		var names []string
		for _, k := range keys {
			names = append(names, k.String(), metaKey(k))
		}
		n, err := s.redis.Exists(ctx, names...).Result()
		if err != nil {
			return nil, fmt.Errorf("looking for %v: %w", keys, unavailable(err))
		}
		if n == 0 {
			return make([]bool, len(keys)), nil
		}
	}
	cmds := make([][2]*redis.IntCmd, len(keys))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			cmds[i] = [2]*redis.IntCmd{p.Exists(ctx, k.String()), p.Exists(ctx, metaKey(k))}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for %v: %w", keys, unavailable(err))
	}
	found := make([]bool, len(keys))
	for i, c := range cmds {
		found[i] = c[0].Val()+c[1].Val() > 0
	}
	return found, nil
}

// Scan looks through all keys of Redis for what is a chat's: histories, and what
// lies beside them under names of its own, values that were set aside, logs and
// records of runs. It finds what no index names.
func (s *Store) Scan(ctx context.Context, chat memory.Chat) (histories []memory.Key, beside []string, err error) {
	found := map[memory.Key]bool{}
	err = s.scan(ctx, "*:"+escape(chat.String())+"*", func(name string) error {
		key, kind := Belongs(name)
		switch {
		case key.Chat() != chat:
		case kind == "" || kind == "meta":
			found[key] = true
		case kind != "turn" && kind != "first":
			beside = append(beside, name)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("looking through all keys for chat %s: %w", chat, unavailable(err))
	}
	return slices.Collect(maps.Keys(found)), beside, nil
}

// Remove deletes what Scan found beside histories.
func (s *Store) Remove(ctx context.Context, names ...string) error {
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.Del(ctx, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("erasing what lies beside histories: %w", unavailable(err))
	}
	return nil
}

// Belongs says which history a key of Redis is ("" as kind) or is beside: "meta",
// "turn", "first", "damaged", or "events" and "run" of one of the chat's runs. The
// zero Key is of no chat.
func Belongs(name string) (key memory.Key, kind string) {
	if inner, rest, ok := strings.Cut(name, "}:"); ok && strings.HasPrefix(inner, "{") {
		key, kind = Belongs(inner[1:])
		rest, _, _ = strings.Cut(rest, ":")
		if kind != "" && rest != "damaged" {
			return memory.Key{}, ""
		}
		return key, rest
	}
	head, rest, _ := strings.Cut(name, ":")
	if head == "events" || head == "run" {
		end := strings.LastIndexByte(rest, ':')
		chat, err := memory.ParseChat(rest[:max(end, 0)])
		if err != nil {
			return memory.Key{}, ""
		}
		return memory.ChatKey(chat), head
	}
	key, ok := memory.ParseKey(name)
	if !ok {
		return memory.Key{}, ""
	}
	return key, ""
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
