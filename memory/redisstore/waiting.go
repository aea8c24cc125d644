package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Suspensions stores runs that wait for a person or for their client. The state of a waiting run is a hash next to its
// chat's history, with these fields:
//
//	run    the run
//	seq    number of its run_waiting event
//	event  the line of that event
//	state  state from which the agents resume
//	open   the run's OpenRun, with the seal of its address
//
// The hash is in effect while the field waits of the chat's meta is set. Without it the run is open, and the hash is a
// fallback in case resuming fails. The token of the chat's lease fences both. Suspensions also stores the list of a
// tenant's waiting chats and the answers in a run's record. The chat's meta holds the permanently approved tools,
// fenced by the chat's turn.
type Suspensions struct{ *core }

// WaitsKept is how long the data of a waiting run outlives the last expiry.
const WaitsKept = 24 * time.Hour

// Rest describes a waiting run in its chat's meta.
type Rest struct {
	Run   string `json:"run"`
	Turn  int64  `json:"turn"`  // turn in which the run stopped
	First int64  `json:"first"` // Unix ms of the first expiry of its waits
	Until int64  `json:"until"` // Unix ms until which its data is stored
}

// readRest parses a stored Rest. It returns nil for anything else.
func readRest(record string) *Rest {
	var rest Rest
	if json.Unmarshal([]byte(record), &rest) != nil || rest.Run == "" {
		return nil
	}
	return &rest
}

// Waiting is a run that waits or is about to wait.
type Waiting struct {
	Rest
	Seq   int64   // number of its run_waiting event
	Event []byte  // line of that event
	State []byte  // state from which the agents resume, JSON
	Open  OpenRun // the run while it was open
}

// SaveState stores the state from which a run resumes, under the token of its chat's lease. The run stays open.
func (s Suspensions) SaveState(ctx context.Context, chat memory.Chat, token string, w *Waiting) error {
	open, err := w.Open.record(s.Secret)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, stateScript, []string{leaseKey(chat), waitingKey(chat)}, token, w.Until,
		"run", w.Run, "seq", w.Seq, "event", w.Event, "state", w.State, "open", open)
	return failure(err, "keeping what run %s goes on from", w.Run)
}

// ErrStateLost indicates that there is no state from which a run could resume.
var ErrStateLost = errors.New("what the run goes on from is not there")

// Suspend releases the turn of a chat whose run waits, with the state of SaveState. All data of the run lives as long
// as the state.
func (s Suspensions) Suspend(ctx context.Context, chat memory.Chat, token string, w *Waiting) error {
	rest, err := json.Marshal(w.Rest)
	if err != nil {
		return err
	}
	runs, fields := []string{w.Run}, []any{token, w.Run, rest, w.Until, "r:" + w.Run}
	first := w.Run // the run whose calls these are
	if w.Open.First != "" {
		first = w.Open.First
		runs, fields = append(runs, first), append(fields, "r:"+first)
	}
	var cmds []redis.Cmder
	for _, run := range runs {
		for _, key := range []string{eventsKey(chat, run), recordKey(chat, run)} {
			cmds = append(cmds, redis.NewBoolCmd(ctx, "pexpireat", key, w.Until))
		}
	}
	keys := append(turnKeys(chat), waitingKey(chat), callsKey(chat, first))
	suspend := redisscript.Command(ctx, suspendScript, keys, fields...)
	r, err := s.inOrder(ctx, suspendScript, suspend, append(cmds, suspend)...)
	switch {
	case r.Word() == "lost":
		err = ErrStateLost
	case err == nil:
		err = s.rested(ctx, chat, w.Rest)
	}
	return failure(err, "suspending run %s", w.Run)
}

// rested lists a chat as waiting and schedules its next check at the first expiry of its waits.
func (s Suspensions) rested(ctx context.Context, chat memory.Chat, rest Rest) error {
	score := float64(rest.First)
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.ZAdd(ctx, openChats, redis.Z{Score: score, Member: chat.String()})
		p.ZAdd(ctx, waitsKey(chat.Tenant()), redis.Z{Score: score, Member: chat.ID()})
	})
	return err
}

// Release is [Turns.Release] for the turn of a chat whose run continues to wait.
func (s Suspensions) Release(ctx context.Context, chat memory.Chat, token string, rest Rest) error {
	ok, err := s.giveBack(ctx, chat, token, "")
	if err == nil && ok {
		err = s.rested(ctx, chat, rest)
	}
	return failure(err, "giving back the turn of chat %s", chat)
}

// Reopen records that a waiting run resumes, under the token of its chat's lease. It returns ErrStateLost if the run
// does not wait.
func (s Suspensions) Reopen(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, run OpenRun) error {
	record, err := run.record(s.Secret)
	if err != nil {
		return err
	}
	set := redis.NewIntCmd(ctx, "zadd", openChats, s.deadline(ttl), chat.String())
	keys := append(turnKeys(chat), waitingKey(chat))
	reopen := redisscript.Command(ctx, reopenScript, keys, token, ttl.Milliseconds(), run.Run, record)
	list := redis.NewIntCmd(ctx, "zrem", waitsKey(chat.Tenant()), chat.ID())
	r, err := s.inOrder(ctx, reopenScript, reopen, set, reopen, list)
	if r.Word() == "lost" {
		err = ErrStateLost
	}
	return failure(err, "reopening run %s", run.Run)
}

// Rest returns the description of a chat's waiting run, nil for none.
func (s Suspensions) Rest(ctx context.Context, chat memory.Chat) (*Rest, error) {
	record, err := s.field(ctx, chatMeta(chat), "waits")
	return readRest(record), failure(err, "looking whether chat %s waits", chat)
}

// Waiting returns the waiting run of a chat, nil for none. It returns ErrStateLost if the run cannot resume.
func (s Suspensions) Waiting(ctx context.Context, chat memory.Chat) (*Waiting, error) {
	var meta *redis.StringCmd
	var state *redis.MapStringStringCmd
	// The run may finish between two separate reads, which would look like a loss.
	_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		meta, state = p.HGet(ctx, chatMeta(chat), "waits"), p.HGetAll(ctx, waitingKey(chat))
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, failure(err, "looking for what chat %s waits for", chat)
	}
	rest := readRest(meta.Val())
	if rest == nil {
		return nil, nil
	}
	w := readWaiting(rest.Run, state.Val(), s.Secret)
	if w == nil {
		return nil, fmt.Errorf("run %s: %w", rest.Run, ErrStateLost)
	}
	w.Rest = *rest
	return w, nil
}

// State returns the state of a waiting or reopened run, nil if there is none.
func (s Suspensions) State(ctx context.Context, chat memory.Chat, run string) (*Waiting, error) {
	fields, err := s.redis.HGetAll(ctx, waitingKey(chat)).Result()
	if err != nil {
		return nil, failure(err, "reading what run %s goes on from", run)
	}
	return readWaiting(run, fields, s.Secret), nil
}

// readWaiting returns the state of a run. It returns nil if the state is incomplete or another run's.
func readWaiting(run string, fields map[string]string, secret string) *Waiting {
	w := &Waiting{Rest: Rest{Run: run}, Seq: integer(fields["seq"]), Event: []byte(fields["event"]),
		State: []byte(fields["state"])}
	open := readOpenRun([]byte(fields["open"]), secret)
	if fields["run"] != run || w.Seq < 1 || open == nil {
		return nil
	}
	w.Open, w.Turn = *open, open.Turn
	return w
}

// Answers returns the recorded answers to a run's waits, by the wait's id.
func (s Suspensions) Answers(ctx context.Context, chat memory.Chat, run string) (map[string]string, error) {
	text, err := s.field(ctx, recordKey(chat, run), "answers")
	stored := map[string]string{}
	_ = json.Unmarshal([]byte(text), &stored) // an unreadable field has no answers
	return stored, failure(err, "looking for the answers to run %s", run)
}

// KeepAnswers adds answers to a run's record. The record then lives until the given Unix time in ms.
func (s Suspensions) KeepAnswers(ctx context.Context, chat memory.Chat, run string, until int64,
	answers map[string]string) error {
	stored, err := s.Answers(ctx, chat, run)
	if err != nil {
		return err
	}
	maps.Copy(stored, answers)
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	_, err = s.replicated(ctx, answersScript, []string{recordKey(chat, run)}, text, until)
	return failure(err, "keeping the answers to run %s", run)
}

// List returns up to limit chats with a waiting run, by the first expiry, starting at cursor ("" for the start).
// waiting holds their runs. next is the cursor of the next page, "" at the end. List removes entries of chats without a
// waiting run.
func (s Suspensions) List(ctx context.Context, tenant memory.Tenant, cursor string, limit int) (
	chats []memory.Chat, waiting []*Waiting, next string, err error) {
	score, member, _ := strings.Cut(cursor, " ")
	if score == "" {
		score = "-inf"
	} else if _, err := strconv.ParseFloat(score, 64); err != nil {
		return nil, nil, "", fmt.Errorf("%w: %.40q is no cursor of this list", memory.ErrBadName, cursor)
	}
	for len(chats) < limit {
		// Read more, because the entry at the cursor comes again.
		page, err := s.redis.ZRangeByScoreWithScores(ctx, waitsKey(tenant), &redis.ZRangeBy{
			Min: score, Max: "+inf", Count: int64(limit + 64)}).Result()
		if err != nil {
			return nil, nil, "", failure(err, "listing the chats that wait")
		}
		full := len(page) == limit+64
		for len(page) > 0 && member != "" && strconv.FormatFloat(page[0].Score, 'f', -1, 64) == score &&
			page[0].Member.(string) <= member {
			page = page[1:]
		}
		entries, err := s.ofList(ctx, tenant, page)
		if err != nil {
			return nil, nil, "", err
		}
		for i, w := range entries {
			score, member = strconv.FormatFloat(page[i].Score, 'f', -1, 64), page[i].Member.(string)
			if w == nil {
				continue
			}
			chat, _ := tenant.Chat(member)
			if chats, waiting = append(chats, chat), append(waiting, w); len(chats) == limit {
				if full || i < len(entries)-1 {
					next = score + " " + member
				}
				return chats, waiting, next, nil
			}
		}
		if !full || len(page) == 0 {
			break
		}
	}
	return chats, waiting, "", nil
}

// ofList reads the waiting runs of listed chats. An entry is nil if its chat has no waiting run; ofList then removes
// the chat from the list.
func (s Suspensions) ofList(ctx context.Context, tenant memory.Tenant, page []redis.Z) ([]*Waiting, error) {
	records, states := make([]*redis.StringCmd, len(page)), make([]*redis.SliceCmd, len(page))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, z := range page {
			if chat, err := tenant.Chat(z.Member.(string)); err == nil {
				records[i] = p.HGet(ctx, chatMeta(chat), "waits")
				states[i] = p.HMGet(ctx, waitingKey(chat), "run", "seq", "event", "open")
			}
		}
	})
	if err != nil {
		return nil, failure(err, "listing the chats that wait")
	}
	entries := make([]*Waiting, len(page))
	for i, z := range page {
		if records[i] != nil {
			if rest := readRest(records[i].Val()); rest != nil {
				fields := map[string]string{}
				for j, name := range []string{"run", "seq", "event", "open"} {
					fields[name] = textAt(states[i].Val(), j)
				}
				if entries[i] = readWaiting(rest.Run, fields, s.Secret); entries[i] != nil {
					entries[i].Rest = *rest
				}
			}
		}
		if entries[i] == nil {
			_, err := s.call(ctx, staleScript, []string{waitsKey(tenant)}, z.Member, strconv.FormatFloat(z.Score, 'f', -1, 64))
			if err != nil {
				return nil, failure(err, "listing the chats that wait")
			}
		}
	}
	return entries, nil
}

// forgetWaiting deletes the state of a waiting run and removes its chat from the list. It keeps a run of the given turn
// or later; 0 means any run.
func (s Suspensions) forgetWaiting(ctx context.Context, chat memory.Chat, turn int64) (*Rest, error) {
	rest, err := s.Rest(ctx, chat)
	if err != nil || turn != 0 && (rest == nil || rest.Turn >= turn) {
		return nil, err
	}
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.Unlink(ctx, waitingKey(chat))
		p.HDel(ctx, chatMeta(chat), "waits")
		p.ZRem(ctx, waitsKey(chat.Tenant()), chat.ID())
	})
	return rest, err
}

// Approve adds permanently approved tools of a chat, in a turn.
func (s Suspensions) Approve(ctx context.Context, chat memory.Chat, turn int64, tools ...string) error {
	_, err := s.changeMembers(ctx, chat, turn, "approved", false, tools...)
	return failure(err, "keeping an approval in chat %s", chat)
}

// Approved returns the permanently approved tools of a chat.
func (s Suspensions) Approved(ctx context.Context, chat memory.Chat) (tools []string, err error) {
	tools, err = s.members(ctx, chat, "approved")
	return tools, failure(err, "reading the approvals of chat %s", chat)
}
