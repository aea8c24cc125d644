package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// edit is one change of a stored history by hand, as of somebody with redis-cli.
type edit struct {
	key   memory.Key
	at    time.Time
	sure  bool              // a run has gone on from it while Redis kept what it had
	now   map[string]string // message as it was → as it is since; "" for removed
	asked []string          // the user messages of what was touched
}

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
	before, losing := w.outages.state()
	keys := keysOf(ch.id)
	e := edit{key: keys[w.rng.IntN(len(keys))]}
	ch.begun.Add(1)
	defer ch.ended.Add(1)
	if losing || !w.set(ch, &e) {
		return false
	}
	w.ledger.add(func(c *counts) { c.edited++ })
	for try := 0; try < 5 && !e.sure; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		e.sure = w.client.say(ctx, w.compose(ch, ""), w.anyWeb(), nil).done
		cancel()
	}
	after, losing := w.outages.state()
	e.sure = e.sure && !losing && before == after
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.edits = append(ch.edits, e)
	return true
}

// set writes the edited array if there is something to edit and no run is open.
func (w *writer) set(ch *chat, e *edit) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	lease := "{" + memory.ChatKey(ch.id).String() + "}:turn"
	err := w.reads.redis.Watch(ctx, func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, e.key.String()).Bytes()
		if err != nil {
			return err
		}
		history, err := memory.ParseHistory(e.key, value)
		if err != nil {
			return err
		}
		held, err := tx.Exists(ctx, lease).Result()
		if err != nil || held > 0 {
			return redis.TxFailedErr
		}
		if err := tx.ZScore(ctx, "turns:open", ch.id.String()).Err(); !errors.Is(err, redis.Nil) {
			return redis.TxFailedErr
		}
		if !e.change(w.rng, history) {
			return redis.TxFailedErr
		}
		out := memory.Empty(e.key)
		for _, raw := range history.Raw(0) {
			if now, touched := e.now[string(raw)]; !touched {
				out = out.With(raw)
			} else if now != "" {
				out = out.With([]byte(now))
			}
		}
		e.at = time.Now()
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, e.key.String(), out.JSON(), 0).Err() })
		return err
	}, e.key.String(), lease)
	return err == nil
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
	e.now, e.asked = map[string]string{}, []string{messages[first].Content}
	for i, raw := range h.Raw(first) {
		m := messages[first+i]
		switch {
		case i > 0 && m.Role == memory.RoleUser:
			return len(e.now) > 0
		case remove:
			e.now[string(raw)] = ""
		case m.Role == memory.RoleAssistant && len(m.ToolCalls) == 0 && m.Failure == "":
			const content = `"content":"`
			e.now[string(raw)] = string(bytes.Replace(raw, []byte(content), []byte(content+"edited by hand: "), 1))
		}
	}
	return len(e.now) > 0
}

// edited is a message after all edits of its history, the last of which was at. sure:
// it must be so.
func (ch *chat) edited(key memory.Key, raw string) (now string, sure bool, at time.Time) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	now, sure = raw, true
	for _, e := range ch.edits {
		if changed, touched := e.now[now]; touched && e.key == key {
			now, sure, at = changed, sure && e.sure, e.at
		}
	}
	return now, sure, at
}

// lastEdit is when a history was last edited before a point in time; zero for never.
func (ch *chat) lastEdit(key memory.Key, before time.Time) (at time.Time) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, e := range ch.edits {
		if e.key == key && e.at.Before(before) && at.Before(e.at) {
			at = e.at
		}
	}
	return at
}

// handled says whether what was asked, or its answer, was edited.
func (ch *chat) handled(key memory.Key, text string) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.ContainsFunc(ch.edits, func(e edit) bool { return e.key == key && slices.Contains(e.asked, text) })
}

// edits checks that nothing came back that was removed or rewritten by hand.
func (c *checker) edits(h *stored, where map[string]int) {
	h.chat.mu.Lock()
	edits := h.chat.edits
	h.chat.mu.Unlock()
	for _, e := range edits {
		for old := range e.now {
			if i, there := where[old]; there && e.key == h.key && e.sure {
				c.report(h, violation{
					kind: revived, at: e.at, what: fmt.Sprintf("message %d was removed or rewritten by hand: %.300s", i, old),
				})
			}
		}
	}
}

// vanished judges what was no more there after Redis had lost data. What had been
// erased or edited may go when somebody comes back who knows that; with it what lay
// before an edit, and had been lost before it came back from somewhere.
func (c *checker) vanished(list []vanished) {
	for _, x := range list {
		h := &stored{chat: x.chat, key: x.key}
		m, err := memory.Decode([]json.RawMessage{x.raw})
		if err != nil {
			continue // reported as torn
		}
		at := when(m[0].Timestamp)
		edit := x.chat.lastEdit(x.key, x.before)
		_, _, touched := x.chat.edited(x.key, string(x.raw))
		name, _, _ := memory.SplitID(m[0].ID)
		name = strings.TrimSuffix(name, memory.ClosingSuffix)
		why := ""
		switch {
		case x.chat.stateOf(x.key, m[0].Timestamp) != kept:
			why = "it had been erased"
		case !touched.IsZero() && touched.Before(x.before):
			why = "it had been edited by hand"
		case at.Before(edit):
			why = c.fates.lostUntil(x.chat, x.key, c.ledger.runs[name], at, x.before)
		}
		v := violation{kind: rewritten, chat: x.chat, key: x.key, run: name, at: x.after, history: h,
			what: fmt.Sprintf("a message was there at %s and is no more: %.300s", x.before.Format("15:04:05.000"), x.raw)}
		if why == "" {
			c.ledger.violate(v)
			continue
		}
		c.excused(v, why)
	}
}
