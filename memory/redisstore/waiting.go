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

// Suspensions is about runs that wait for a person or for their client. What such a run goes on from is a hash beside
// its chat's history, with these fields:
//
//	run    the run
//	seq    number of its run_waiting event
//	event  the line of that event
//	state  what the agents go on from
//	open   the run as it was open, see OpenRun, with the seal of its address
//
// The chat's meta says in waits that the hash is in force; without that the run is open, and the
// hash is there for the case that nothing comes of its going on. Both are written under the token of the
// chat's lease. It also keeps the list of a tenant's chats that wait, the answers in a run's record, and, in
// the chat's meta and under its turn, which tools were approved there for good.
type Suspensions struct{ *core }

// WaitsKept is how long what belongs to a waiting run outlives the last expiry.
const WaitsKept = 24 * time.Hour

// Rest is what a chat's meta says of a run that waits.
type Rest struct {
	Run   string `json:"run"`
	Turn  int64  `json:"turn"`  // in which it stopped
	First int64  `json:"first"` // Unix ms at which the first of its waits expires
	Until int64  `json:"until"` // Unix ms until which all is kept that belongs to it
}

// readRest is nil for what is no record of ours.
func readRest(record string) *Rest {
	var rest Rest
	if json.Unmarshal([]byte(record), &rest) != nil || rest.Run == "" {
		return nil
	}
	return &rest
}

// Waiting is a run that waits, or is about to.
type Waiting struct {
	Rest
	Seq   int64   // number of its run_waiting event
	Event []byte  // the line of that
	State []byte  // what the agents go on from, JSON
	Open  OpenRun // the run as it was open
}

// SaveState keeps what a run goes on from, under the token of its chat's lease. The run is open
// as before.
func (s Suspensions) SaveState(ctx context.Context, chat memory.Chat, token string, w *Waiting) error {
	open, err := w.Open.record(s.Secret)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, stateScript, []string{leaseKey(chat), waitingKey(chat)}, token, w.Until,
		"run", w.Run, "seq", w.Seq, "event", w.Event, "state", w.State, "open", open)
	return failure(err, "keeping what run %s goes on from", w.Run)
}

// ErrStateLost says that there is nothing from which a run could go on.
var ErrStateLost = errors.New("what the run goes on from is not there")

// Suspend gives the turn of a chat back of which the run waits, with the state of SaveState. All that is kept
// of the run lives as long as that.
func (s Suspensions) Suspend(ctx context.Context, chat memory.Chat, token string, w *Waiting) error {
	rest, err := json.Marshal(w.Rest)
	if err != nil {
		return err
	}
	runs, fields := []string{w.Run}, []any{token, w.Run, rest, w.Until, "r:" + w.Run}
	first := w.Run // the run of which these are the claims
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

// rested has a chat looked after when the first of its waits expires, and lists it.
func (s Suspensions) rested(ctx context.Context, chat memory.Chat, rest Rest) error {
	score := float64(rest.First)
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.ZAdd(ctx, openChats, redis.Z{Score: score, Member: chat.String()})
		p.ZAdd(ctx, waitsKey(chat.Tenant()), redis.Z{Score: score, Member: chat.ID()})
	})
	return err
}

// Release is [Turns.Release] for the turn of a chat of which a run waits, and stays so.
func (s Suspensions) Release(ctx context.Context, chat memory.Chat, token string, rest Rest) error {
	ok, err := s.giveBack(ctx, chat, token, "")
	if err == nil && ok {
		err = s.rested(ctx, chat, rest)
	}
	return failure(err, "giving back the turn of chat %s", chat)
}

// Reopen notes that a run which waited goes on, under the token of its chat's lease. ErrStateLost:
// it does not wait.
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

// Rest says which run of a chat waits; nil for none.
func (s Suspensions) Rest(ctx context.Context, chat memory.Chat) (*Rest, error) {
	record, err := s.field(ctx, chatMeta(chat), "waits")
	return readRest(record), failure(err, "looking whether chat %s waits", chat)
}

// Waiting gives the run of a chat that waits; nil for none. ErrStateLost: one waits, and cannot
// go on.
func (s Suspensions) Waiting(ctx context.Context, chat memory.Chat) (*Waiting, error) {
	var meta *redis.StringCmd
	var state *redis.MapStringStringCmd
	// Between two reads by themselves the run may come to its end, which would look like a loss.
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

// State gives what a run goes on from, whether it waits or is open again; nil for nothing.
func (s Suspensions) State(ctx context.Context, chat memory.Chat, run string) (*Waiting, error) {
	fields, err := s.redis.HGetAll(ctx, waitingKey(chat)).Result()
	if err != nil {
		return nil, failure(err, "reading what run %s goes on from", run)
	}
	return readWaiting(run, fields, s.Secret), nil
}

// readWaiting is nil for what is not whole, or another run's.
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

// Answers is what a run's record knows of how its waits were answered, by the wait's id.
func (s Suspensions) Answers(ctx context.Context, chat memory.Chat, run string) (map[string]string, error) {
	text, err := s.field(ctx, recordKey(chat, run), "answers")
	stored := map[string]string{}
	_ = json.Unmarshal([]byte(text), &stored) // what cannot be read answers nothing
	return stored, failure(err, "looking for the answers to run %s", run)
}

// KeepAnswers adds to what Answers gives, under the chat's turn. The record lives on until then.
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

// List gives up to limit chats of which a run waits, by the first expiry, from a cursor on
// ("" for the start), with what they wait for. next is the cursor of what follows, "" for the
// end. What is listed and does not wait is taken off the list.
func (s Suspensions) List(ctx context.Context, tenant memory.Tenant, cursor string, limit int) (
	chats []memory.Chat, waiting []*Waiting, next string, err error) {
	score, member, _ := strings.Cut(cursor, " ")
	if score == "" {
		score = "-inf"
	} else if _, err := strconv.ParseFloat(score, 64); err != nil {
		return nil, nil, "", fmt.Errorf("%w: %.40q is no cursor of this list", memory.ErrBadName, cursor)
	}
	for len(chats) < limit {
		// One more, since the one at the cursor comes again.
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

// ofList reads what the chats of a list wait for; nil for one that does not wait, which is taken
// off the list.
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

// forgetWaiting deletes what a waiting run goes on from, and takes its chat off the list. Where
// the run is of a turn from a number on, it stays; 0 for any.
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

// Approve adds to the tools that were approved in a chat for good, in a turn.
func (s Suspensions) Approve(ctx context.Context, chat memory.Chat, turn int64, tools ...string) error {
	_, err := s.changeMembers(ctx, chat, turn, "approved", false, tools...)
	return failure(err, "keeping an approval in chat %s", chat)
}

// Approved are the tools that were approved in a chat for good.
func (s Suspensions) Approved(ctx context.Context, chat memory.Chat) (tools []string, err error) {
	tools, err = s.members(ctx, chat, "approved")
	return tools, failure(err, "reading the approvals of chat %s", chat)
}
