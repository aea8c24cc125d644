package redisstore

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Erase removes the logs, records and calls of a chat's runs, and the state of a waiting run. It covers the runs in the
// chat's index and the runs in further. Call it before the chat's meta is erased, because the meta holds the index.
func (s Runs) Erase(ctx context.Context, chat memory.Chat, further ...string) error {
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return failure(err, "erasing the runs of chat %s", chat)
	}
	var stale, names []string
	for _, f := range fields {
		if run, ok := strings.CutPrefix(f, "r:"); ok {
			stale, further = append(stale, f), append(further, run)
		} else if name, ok := strings.CutPrefix(f, "d:"); ok && strings.HasPrefix(name, "{") { // a set-aside key of a run
			stale, names = append(stale, f), append(names, name)
		}
	}
	for _, run := range further {
		names = append(names, eventsKey(chat, run), recordKey(chat, run), callsKey(chat, run))
	}
	if _, err = s.suspensions.forgetWaiting(ctx, chat, 0); err == nil {
		err = s.forget(ctx, chat, names, stale)
	}
	return failure(err, "erasing the runs of chat %s", chat)
}

// EraseOld removes the data of a chat's runs that began before a turn. It also removes the chat's conversation,
// approvals and quarantine, and returns the id of the conversation.
func (s Runs) EraseOld(ctx context.Context, turn int64, chat memory.Chat) (conversation string, err error) {
	fields, err := s.redis.HGetAll(ctx, chatMeta(chat)).Result()
	if err != nil {
		return "", failure(err, "erasing old runs of chat %s", chat)
	}
	waited, err := s.suspensions.forgetWaiting(ctx, chat, turn)
	if err != nil {
		return "", failure(err, "erasing old runs of chat %s", chat)
	}
	stale, names := []string{"conversation", "approved", quarantined}, []string{}
	for f, until := range fields {
		expiresAt, _ := strconv.ParseInt(until, 10, 64)
		run, ok := strings.CutPrefix(f, "r:")
		if ok && run != "" && (expiresAt-recordLife.Milliseconds() < turn || waited != nil && run == waited.Run) {
			stale, names = append(stale, f), append(names, eventsKey(chat, run), recordKey(chat, run), callsKey(chat, run))
		}
	}
	return fields["conversation"], failure(s.forget(ctx, chat, names, stale), "erasing old runs of chat %s", chat)
}

// Redact removes the logs and calls of a chat's runs and replaces the answers in their records by answer. Repeated
// posts get answer and do not run again. It covers the runs in the chat's index and the runs in further. If turn is not
// 0, Redact skips runs in the index that finished in that turn or later.
func (s Runs) Redact(ctx context.Context, chat memory.Chat, turn int64, answer []byte,
	further ...string) error {
	_, err := s.suspensions.forgetWaiting(ctx, chat, turn)
	if err != nil {
		return failure(err, "redacting the runs of chat %s", chat)
	}
	fields, err := s.redis.HGetAll(ctx, chatMeta(chat)).Result()
	if err != nil {
		return failure(err, "redacting the runs of chat %s", chat)
	}
	var stale, names []string
	for f, until := range fields {
		if run, ok := strings.CutPrefix(f, "r:"); ok {
			old, err := s.overBefore(ctx, chat, run, integer(until), turn)
			if err != nil {
				return err
			}
			if old {
				further = append(further, run)
			}
		} else if name, ok := strings.CutPrefix(f, "d:"); ok && strings.HasPrefix(name, "{") { // a set-aside key of a run
			stale, names = append(stale, f), append(names, name)
		}
	}
	calls := make([]redisscript.Call, len(further))
	for i, run := range further {
		names = append(names, eventsKey(chat, run), callsKey(chat, run))
		calls[i] = redisscript.Call{Script: answerScript, Keys: []string{recordKey(chat, run)}, Args: []any{answer}}
	}
	for _, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		if err := cmd.Err(); err != nil {
			return failure(err, "redacting the runs of chat %s", chat)
		}
	}
	return failure(s.forget(ctx, chat, names, stale), "redacting the runs of chat %s", chat)
}

// overBefore reports whether a run finished before a turn; 0 means any time. It uses the time of the last event.
// Without a log it uses until, the expiry of the run's data.
func (s Runs) overBefore(ctx context.Context, chat memory.Chat, run string, until, turn int64) (bool, error) {
	if turn == 0 {
		return true, nil
	}
	line, err := s.LastEvent(ctx, chat, run)
	if err != nil || line == nil {
		return until-recordLife.Milliseconds() < turn, err
	}
	var last struct {
		TS float64 `json:"ts"`
	}
	_ = json.Unmarshal(line, &last) // an event without a time is old
	return last.TS*1000 < float64(turn), nil
}

// TakeBack removes the logs, the granted calls and the recorded answers of some of a chat's runs. A repeated post finds
// that the run was rewound and becomes a further attempt.
func (s Runs) TakeBack(ctx context.Context, chat memory.Chat, runs ...string) error {
	if err := s.takeCallsBack(ctx, chat, runs); err != nil {
		return failure(err, "taking back calls of chat %s", chat)
	}
	return s.change(ctx, chat, "", runs)
}

// takeCallsBack deletes the granted calls of some of a chat's runs, with their results. So a further attempt makes them
// again. All attempts at a post share their calls; calls of other attempts stay.
func (s Runs) takeCallsBack(ctx context.Context, chat memory.Chat, runs []string) error {
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return err
	}
	fields = slices.DeleteFunc(fields, func(f string) bool { return !strings.HasPrefix(f, "r:") })
	runSet := map[string]bool{}
	for _, run := range runs {
		runSet[run] = true
	}
	for batch := range slices.Chunk(fields, 1024) {
		calls, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // most runs have none
			for _, f := range batch {
				p.HGetAll(ctx, callsKey(chat, f[len("r:"):]))
			}
		})
		if err != nil && !redisscript.WrongType(err) { // values of other programs are not calls
			return err
		}
		for i, cmd := range calls {
			var ids []string
			for id, value := range cmd.(*redis.MapStringStringCmd).Val() {
				var c Call
				if json.Unmarshal([]byte(value), &c) == nil && runSet[c.Run] {
					ids = append(ids, id, ResultOf(id))
				}
			}
			if len(ids) == 0 {
				continue
			}
			if err := s.redis.HDel(ctx, callsKey(chat, batch[i][len("r:"):]), ids...).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// PutBack stores answer in the records of rewound runs, so that repeated posts get it.
func (s Runs) PutBack(ctx context.Context, chat memory.Chat, answer []byte, runs ...string) error {
	return s.change(ctx, chat, string(answer), runs)
}

func (s Runs) change(ctx context.Context, chat memory.Chat, answer string, runs []string) error {
	for batch := range slices.Chunk(runs, 1024) {
		var logs []string
		var calls []redisscript.Call
		exists, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // most runs have no record any more
			for _, run := range batch {
				p.Exists(ctx, recordKey(chat, run))
			}
		})
		if err != nil {
			return failure(err, "changing runs of chat %s", chat)
		}
		for i, run := range batch {
			logs = append(logs, eventsKey(chat, run))
			if exists[i].(*redis.IntCmd).Val() > 0 {
				calls = append(calls, redisscript.Call{
					Script: rewindRunScript, Keys: []string{recordKey(chat, run)}, Args: []any{answer}})
			}
		}
		for _, cmd := range redisscript.Run(ctx, s.redis, calls...) {
			if err := cmd.Err(); err != nil {
				return failure(err, "changing runs of chat %s", chat)
			}
		}
		if err := s.forget(ctx, chat, logs, nil); err != nil {
			return failure(err, "changing runs of chat %s", chat)
		}
	}
	return nil
}
