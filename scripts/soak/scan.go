package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// words looks for what was erased, byte by byte, in Redis and on every disk. Each
// post carries a word that no other has, see text.
type words struct {
	s *soak

	mu     sync.Mutex          // held while scanning
	gone   map[string]goneWord // guarded by mu
	looked int                 // guarded by mu: words in all
}

// goneWord is the word of a post that an erasure took.
type goneWord struct {
	post *post
	erasure
}

func newWords(s *soak) *words { return &words{s: s, gone: map[string]goneWord{}} }

// erased enters the words of the runs that an erasure of a chat took, and looks
// where they might still be.
func (w *words) erased(ch *chat, e erasure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.s.ledger
	l.mu.Lock()
	for _, r := range l.runs {
		if first, ok := r.events[1]; ok && r.chat == ch && first.event.TS*1000 < float64(e.last.Add(-clock).UnixMilli()) {
			eachWord([]byte(r.post.text), func(word string) {
				if _, known := w.gone[word]; !known {
					w.gone[word] = goneWord{r.post, e}
					w.looked++
				}
			})
		}
	}
	l.mu.Unlock()
	w.disks()
	_ = w.redis(ch.id.String(), false) // it may be down; the scan at the end sees what is left
}

// all is the scan at the end.
func (w *words) all() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks()
	return w.redis("", true)
}

// disks scans the data folders. A process that was told of an erasure must have
// applied it when that is acknowledged, one that was away some time after its return.
func (w *words) disks() {
	now := time.Now()
	for dir, users := range w.s.stack.disks {
		due := func(g goneWord) bool {
			return !slices.ContainsFunc(users, func(name string) bool {
				v, since := w.s.stack.services[name], now.Add(-2*restore)
				return v.life(g.first, now) == nil && (g.ack.After(since) || v.life(since, now) == nil)
			})
		}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // it went meanwhile
			}
			raw, _ := os.ReadFile(path)
			w.find(raw, path, due)
			return nil
		})
	}
}

// redis scans the keys of a chat, or all. While Redis forgets, or is being given
// back what it had, an older state is not yet a finding.
func (w *words) redis(chat string, strict bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	before, losing := w.s.outages.state()
	due := func(goneWord) bool {
		after, still := w.s.outages.state()
		return strict || !losing && !still && before == after
	}
	r := w.s.reads.redis
	keys := r.Scan(ctx, 0, "*"+chat+"*", 1000).Iterator()
	for keys.Next(ctx) {
		raw, err := dumped(ctx, r, keys.Val())
		if err != nil {
			return err
		}
		w.find(raw, keys.Val()+" in Redis", due)
	}
	return keys.Err()
}

// dumped is what lies under a key, whatever its type.
func dumped(ctx context.Context, r *redis.Client, key string) ([]byte, error) {
	kind, err := r.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "string":
		value, err := r.Get(ctx, key).Bytes()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return value, err
	case "hash":
		value, err := r.HGetAll(ctx, key).Result()
		return fmt.Appendln(nil, value), err
	case "stream":
		value, err := r.XRange(ctx, key, "-", "+").Result()
		return fmt.Appendln(nil, value), err
	case "zset":
		value, err := r.ZRange(ctx, key, 0, -1).Result()
		return fmt.Appendln(nil, value), err
	case "set":
		value, err := r.SMembers(ctx, key).Result()
		return fmt.Appendln(nil, value), err
	case "list":
		value, err := r.LRange(ctx, key, 0, -1).Result()
		return fmt.Appendln(nil, value), err
	case "none":
		return nil, nil
	}
	return nil, fmt.Errorf("the key %s has the type %s, which nobody here writes", key, kind)
}

func (w *words) find(raw []byte, where string, due func(goneWord) bool) {
	found := map[string]bool{}
	eachWord(raw, func(word string) {
		if g, gone := w.gone[word]; gone && due(g) {
			found[word] = true
		}
	})
	if len(found) == 0 {
		return
	}
	list := slices.Sorted(maps.Keys(found))
	g := w.gone[list[0]]
	w.s.ledger.violate(violation{kind: returned, chat: g.post.chat, post: g.post, at: g.ack,
		what: fmt.Sprintf("%d words that an erasure took lie in %s, such as %s", len(list),
			strings.TrimPrefix(where, w.s.dir+"/"), list[0])})
	for _, word := range list {
		delete(w.gone, word) // told once
	}
}

// eachWord gives the words in text, such as c017n00042k003.
func eachWord(text []byte, f func(string)) {
	const pattern = "c000n00000k000"
	for i := 0; i+len(pattern) <= len(text); i++ {
		if text[i] != 'c' || text[i+4] != 'n' || text[i+10] != 'k' {
			continue
		}
		if !strings.ContainsFunc(string(text[i+1:i+4])+string(text[i+5:i+10])+string(text[i+11:i+14]), func(r rune) bool {
			return r < '0' || r > '9'
		}) {
			f(string(text[i : i+len(pattern)]))
		}
	}
}
