package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Stored describes one history in Redis.
type Stored struct {
	Key      memory.Key
	Messages int // 0 until a turn adopts another program's value
	Bytes    int
	// Contents of the archive.
	Archived      int // messages
	ArchivedBytes int
	Notes         int
	NotesBytes    int
}

// Page returns some chats that have a history, starting at cursor ("" is the start). next is "" at the end. If
// histories come and go meanwhile, a chat may appear twice.
func (s Chats) Page(ctx context.Context, cursor string, count int) (chats []memory.Chat, next string, err error) {
	node, scanCursor := 0, uint64(0)
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d.%d", &node, &scanCursor); err != nil || node < 0 {
			return nil, "", fmt.Errorf("%w: %.40q is no cursor of this list", memory.ErrBadName, cursor)
		}
	}
	masters, err := Masters(ctx, s.redis)
	unique := map[memory.Chat]bool{}
	for err == nil && node < len(masters) {
		if len(chats) >= count {
			return chats, fmt.Sprintf("%d.%d", node, scanCursor), nil
		}
		var keys []string
		keys, scanCursor, err = masters[node].Scan(ctx, scanCursor, memory.ChatKey(memory.AnyChat).String(),
			int64(count)).Result()
		for _, k := range keys {
			key, ok := memory.ParseKey(k)
			if ok && !unique[key.Chat()] {
				unique[key.Chat()] = true
				chats = append(chats, key.Chat())
			}
		}
		if scanCursor == 0 {
			node++
		}
	}
	return chats, "", failure(err, "listing the chats")
}

// Masters returns the servers of a client that hold keys, in a stable order. A client of one Redis has one; a Cluster
// has several.
func Masters(ctx context.Context, client redis.UniversalClient) ([]*redis.Client, error) {
	if single, ok := client.(*redis.Client); ok {
		return []*redis.Client{single}, nil
	}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil, fmt.Errorf("a client of type %T has no servers", client)
	}
	var mu sync.Mutex
	var masters []*redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node)
		return nil
	})
	slices.SortFunc(masters, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return masters, err
}

// Histories returns the non-empty histories among Keys, the chat's own first, then the subagents' by name.
func (s Chats) Histories(ctx context.Context, chat memory.Chat, agents ...memory.Agent) ([]Stored, error) {
	keys, err := s.Keys(ctx, chat, agents...)
	if err != nil {
		return nil, err
	}
	return s.Measure(ctx, keys...)
}

// Keys returns the possible histories of a chat, each once, its own first, then by name. They come from the chat's
// index and from agents, whose histories another program may have written.
func (s Chats) Keys(ctx context.Context, chat memory.Chat, agents ...memory.Agent) ([]memory.Key, error) {
	keys := []memory.Key{memory.ChatKey(chat)}
	for _, agent := range agents {
		keys = append(keys, memory.SubagentKey(agent, chat))
	}
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return nil, failure(err, "listing the histories of chat %s", chat)
	}
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f, "s:"); ok {
			if agent, err := memory.ParseAgent(name); err == nil {
				keys = append(keys, memory.SubagentKey(agent, chat))
			}
		}
	}
	return sorted(keys), nil
}

func sorted(keys []memory.Key) []memory.Key {
	return slices.Compact(slices.SortedFunc(slices.Values(keys), func(a, b memory.Key) int {
		return strings.Compare(a.String(), b.String())
	}))
}

// Measure returns the non-empty histories among keys, each once, ordered by key.
func (s Chats) Measure(ctx context.Context, keys ...memory.Key) ([]Stored, error) {
	ordered := sorted(keys)
	sizes := make([]*redis.IntCmd, len(ordered))
	counts := make([]*redis.StringCmd, len(ordered))
	archives := make([]*redis.SliceCmd, len(ordered))
	notes := make([]*redis.StringCmd, len(ordered))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, k := range ordered {
			sizes[i] = p.StrLen(ctx, k.String())
			counts[i] = p.HGet(ctx, metaKey(k), "count")
			archives[i] = p.HMGet(ctx, archiveKey(k), "messages", "bytes")
			notes[i] = p.Get(ctx, notesKey(k))
		}
	})
	var out []Stored
	for i, k := range ordered {
		if err := sizes[i].Err(); err != nil {
			return nil, failure(err, "measuring %s", k)
		}
		if sizes[i].Val() == 0 && notes[i].Val() == "" {
			continue
		}
		n, _ := counts[i].Int() // missing until a turn adopts the value
		stored := Stored{Key: k, Messages: n, Bytes: int(sizes[i].Val()), NotesBytes: len(notes[i].Val())}
		var list []json.RawMessage
		if json.Unmarshal([]byte(notes[i].Val()), &list) == nil {
			stored.Notes = len(list)
		}
		if totals := archives[i].Val(); len(totals) == 2 && totals[0] != nil {
			stored.Archived, stored.ArchivedBytes = int(integer(fmt.Sprint(totals[0]))), int(integer(fmt.Sprint(totals[1])))
		}
		out = append(out, stored)
	}
	return out, nil
}

// Exist reports for each key whether Redis has the history or its meta. It takes one round trip, or two if any exists,
// and writes nothing.
func (s Chats) Exist(ctx context.Context, keys ...memory.Key) ([]bool, error) {
	if _, slots := s.redis.(*redis.ClusterClient); !slots {
		// Usually no key exists, and one command checks all of them.
		var names []string
		for _, k := range keys {
			names = append(names, k.String(), metaKey(k))
		}
		n, err := s.redis.Exists(ctx, names...).Result()
		if err != nil {
			return nil, failure(err, "looking for %v", keys)
		}
		if n == 0 {
			return make([]bool, len(keys)), nil
		}
	}
	cmds := make([][2]*redis.IntCmd, len(keys))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, k := range keys {
			cmds[i] = [2]*redis.IntCmd{p.Exists(ctx, k.String()), p.Exists(ctx, metaKey(k))}
		}
	})
	if err != nil {
		return nil, failure(err, "looking for %v", keys)
	}
	exists := make([]bool, len(keys))
	for i, c := range cmds {
		exists[i] = c[0].Val()+c[1].Val() > 0
	}
	return exists, nil
}

// Scan searches all keys of Redis for data of a chat. histories are the chat's histories. extras are its other keys,
// such as set-aside values, logs and records of runs. Scan finds data that no index lists.
func (s Chats) Scan(ctx context.Context, chat memory.Chat) (histories []memory.Key, extras []string, err error) {
	unique := map[memory.Key]bool{}
	err = s.scan(ctx, "*:"+escape(chat.String())+"*", func(name string) error {
		k, ok := memory.ParseRedisKey(name)
		switch {
		case !ok || k.Key.Chat() != chat:
		case k.DamagedAt != "", k.Kind == memory.KindEvents, k.Kind == memory.KindRecord, k.Kind == memory.KindRewound,
			k.Kind == memory.KindWaiting, k.Kind == memory.KindCalls:
			extras = append(extras, name)
		case k.Kind == memory.KindHistory || k.Kind == memory.KindMeta || k.Kind == memory.KindNotes:
			unique[k.Key] = true
		}
		return nil
	})
	return slices.Collect(maps.Keys(unique)), extras, failure(err, "looking through all keys for chat %s", chat)
}

// Remove deletes the extras of Scan.
func (s Chats) Remove(ctx context.Context, names ...string) error {
	return failure(s.forget(ctx, memory.Chat{}, names, nil), "erasing what lies beside histories")
}

// escape escapes a key for use in a SCAN pattern. Of the special characters, keys contain only separators of a set,
// which are literal outside brackets.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
