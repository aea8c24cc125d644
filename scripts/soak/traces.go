package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// editNowAndThen edits histories of chats in which nothing goes on, until ctx ends.
func (w *writer) editNowAndThen(ctx context.Context) {
	for w.edits > 0 && sleep(ctx, time.Duration(w.rng.ExpFloat64()*float64(w.edits))) {
		for done, try := false, 0; !done && try < 50; try++ { // most are busy
			ch := w.chats[w.rng.IntN(len(w.chats))]
			if !ch.keyed.TryLock() {
				continue
			}
			if ch.busy.TryLock() {
				done = w.edit(ch)
				ch.busy.Unlock()
			}
			ch.keyed.Unlock()
		}
	}
}

// edit rewrites a history and then posts, so that a process takes the change over. It
// says whether there was something to edit.
func (w *writer) edit(ch *chat) bool {
	start, stable := w.reads.now(ch)
	keys := ch.keys()
	e := edit{key: keys[w.rng.IntN(len(keys))]}
	ch.changes.Add(1)
	defer ch.changes.Add(1)
	if !stable || !w.set(ch, &e) {
		return false
	}
	w.count("edits by hand", 1)
	e.sure = w.insist(ch, 5) == nil && start.losses == w.reads.losses.Load()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.edits = append(ch.edits, e)
	return true
}

// set writes the edited array if there is something to edit and no run is open: as a
// compare-and-set on the history and the chat's lease.
func (w *writer) set(ch *chat, e *edit) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	lease := "{" + memory.ChatKey(ch.id).String() + "}:turn"
	return w.redis.Watch(ctx, func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, e.key.String()).Bytes()
		if err != nil {
			return err
		}
		history, err := memory.ParseHistory(e.key, value)
		if err != nil {
			return err
		}
		leaseCount, err := tx.Exists(ctx, lease).Result()
		open := tx.ZScore(ctx, "turns:open", ch.id.String()).Err()
		if err != nil || leaseCount > 0 || !errors.Is(open, redis.Nil) || !e.change(w.rng, history) {
			return redis.TxFailedErr
		}
		out := memory.Empty(e.key)
		for _, raw := range history.Raw(0) {
			if now, touched := e.rewrites[string(raw)]; !touched {
				out = out.With(raw)
			} else if now != "" {
				out = out.With([]byte(now))
			}
		}
		e.time = time.Now()
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, e.key.String(), out.JSON(), 0).Err() })
		return err
	}, e.key.String(), lease) == nil
}

// change picks an exchange, a user message and what follows up to the next one, and
// removes it or rewrites its plain answers.
func (e *edit) change(rng *rand.Rand, h *memory.History) bool {
	messages, err := h.Messages(0)
	if err != nil || len(messages) == 0 {
		return false
	}
	first := rng.IntN(len(messages))
	for first > 0 && messages[first].Role != memory.RoleUser {
		first--
	}
	remove := rng.IntN(2) == 0
	e.rewrites, e.userMessage = map[string]string{}, messages[first].Content
	for i, raw := range h.Raw(first) {
		m := messages[first+i]
		switch {
		case i > 0 && m.Role == memory.RoleUser:
			return len(e.rewrites) > 0
		case remove:
			e.rewrites[string(raw)] = ""
		case m.Role == memory.RoleAssistant && len(m.ToolCalls) == 0 && m.Failure == "":
			const content = `"content":"`
			e.rewrites[string(raw)] = string(bytes.Replace(raw, []byte(content), []byte(content+"edited by hand: "), 1))
		}
	}
	return len(e.rewrites) > 0
}

// edited is a message after all edits of its history, the last of which was at. sure:
// it must be so.
func (ch *chat) edited(key memory.Key, raw string) (now string, sure bool, last time.Time) {
	now, sure = raw, true
	for _, e := range ch.edits {
		if changed, touched := e.rewrites[now]; touched && e.key == key {
			now, sure, last = changed, sure && e.sure, e.time
		}
	}
	return now, sure, last
}

// lastEdit is when a history was last edited before a point in time; zero for never.
func (ch *chat) lastEdit(key memory.Key, cutoff time.Time) (last time.Time) {
	for _, e := range ch.edits {
		if e.key == key && e.time.Before(cutoff) && last.Before(e.time) {
			last = e.time
		}
	}
	return last
}

// words looks for what was erased, byte by byte, in Redis and on every disk. Each
// post carries a word that no other has, see text.
type words struct {
	*soak
	scanning    sync.Mutex
	erasedWords map[string]erasedWord // guarded by scanning
}

// erasedWord is the word of a post that an erasure took.
type erasedWord struct {
	post *post
	erasure
}

// wordPattern is what text calls CODE.
var wordPattern = regexp.MustCompile(`c\d{3,}n\d{5}k\d{3}`)

// erased enters the words of the runs that an erasure of a chat took, and looks
// where they might still be.
func (w *words) erased(ch *chat, e erasure) {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	w.mu.Lock()
	for _, r := range w.runs {
		if first, ok := r.events[1]; ok && r.chat == ch && first.createdAt().Before(e.last.Add(-clock)) {
			for _, word := range wordPattern.FindAllString(r.post.text, -1) {
				if _, exists := w.erasedWords[word]; !exists {
					w.erasedWords[word] = erasedWord{r.post, e}
					w.counts["words of erased chats looked for"]++
				}
			}
		}
	}
	w.mu.Unlock()
	w.disks()
	_ = w.scan(ch.id.String(), false) // Redis may be down; the scan at the end sees what is left
}

// scanAll is the scan at the end.
func (w *words) scanAll() error {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	w.disks()
	return w.scan("", true)
}

// disks scans the data folders. A process that was told of an erasure must have
// applied it when that is acknowledged, one that was away some time after its return.
func (w *words) disks() {
	now := time.Now()
	for dir, users := range w.testbed.disks {
		due := func(g erasedWord) bool {
			return !slices.ContainsFunc(users, func(name string) bool {
				v, cutoff := w.services[name], now.Add(-2*restore)
				return v.life(g.first, now) == nil && (g.ack.After(cutoff) || v.life(cutoff, now) == nil)
			})
		}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() { // else it went meanwhile
				raw, _ := os.ReadFile(path)
				w.find(raw, strings.TrimPrefix(path, w.dir+"/"), due)
			}
			return nil
		})
	}
}

// reading is how a value is read, by its type.
var reading = map[string][]any{"string": {"GET"}, "hash": {"HGETALL"}, "stream": {"XRANGE", "-", "+"},
	"zset": {"ZRANGE", 0, -1}, "set": {"SMEMBERS"}, "list": {"LRANGE", 0, -1}}

// scan looks through the keys of a chat, or all. While Redis forgets, or is being given
// back what it had, an older state is not yet a finding.
func (w *words) scan(chat string, strict bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	lossCount := w.reads.losses.Load()
	due := func(erasedWord) bool { return strict || lossCount%2 == 0 && lossCount == w.reads.losses.Load() }
	return w.soak.scan(ctx, "*"+chat+"*", func(key string) error {
		kind, err := w.redis.Type(ctx, key).Result()
		if err != nil {
			return err
		}
		if kind == "none" {
			return nil // it ended meanwhile
		}
		how := reading[kind]
		if how == nil {
			return fmt.Errorf("the key %s has the type %s, which nobody here writes", key, kind)
		}
		value, err := w.redis.Do(ctx, slices.Insert(slices.Clone(how), 1, any(key))...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		w.find(fmt.Append(nil, value), key+" in Redis", due)
		return nil
	})
}

// scan calls do for every key that matches, on every node.
func (s *soak) scan(ctx context.Context, pattern string, do func(key string) error) error {
	nodes, err := redisstore.Masters(ctx, s.redis)
	for _, node := range nodes {
		keys := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for err == nil && keys.Next(ctx) {
			err = do(keys.Val())
		}
		err = errors.Join(err, keys.Err())
	}
	return err
}

func (w *words) find(raw []byte, location string, due func(erasedWord) bool) {
	matches := map[string]bool{}
	for _, word := range wordPattern.FindAll(raw, -1) {
		if g, ok := w.erasedWords[string(word)]; ok && due(g) {
			matches[string(word)] = true
		}
	}
	if len(matches) == 0 {
		return
	}
	list := slices.Sorted(maps.Keys(matches))
	g := w.erasedWords[list[0]]
	w.violate(violation{kind: returned, chat: g.post.chat, post: g.post, time: g.ack,
		what: fmt.Sprintf("%d words that an erasure took lie in %s, such as %s", len(list), location, list[0])})
	for _, word := range list {
		delete(w.erasedWords, word) // told once
	}
}
