package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"mneme/memory"
)

// Turn is the right to write into a chat's histories.
type Turn struct {
	Number       int64          // raised with every turn; fences older ones
	Conversation string         // the gateway's conversation of this chat
	Agents       []memory.Agent // subagents that have a history in this chat
}

// HeldError says that another holder has the chat's turn.
type HeldError struct{ Left time.Duration } // until its lease ends, unless renewed

func (e *HeldError) Error() string {
	return fmt.Sprintf("the chat's turn is taken for %v more", e.Left)
}

// Take takes the chat's turn for ttl under a token of the caller's. The number is
// above every earlier one, also when Redis lost data: it is at least the Unix time
// in ms. conversation is kept for a chat that has none yet.
func (s *Store) Take(ctx context.Context, chat memory.Chat, token, conversation string, ttl time.Duration) (Turn, error) {
	keys := []string{leaseKey(chat), metaKey(memory.ChatKey(chat))}
	r, err := s.call(ctx, takeScript, keys, token, ttl.Milliseconds(), s.now().UnixMilli(), conversation)
	if err != nil {
		return Turn{}, fmt.Errorf("taking the turn of chat %s: %w", chat, err)
	}
	if r.word() == "held" {
		left, _ := strconv.ParseInt(r.at(1), 10, 64)
		return Turn{}, &HeldError{Left: time.Duration(left) * time.Millisecond}
	}
	number, err := strconv.ParseInt(r.at(1), 10, 64)
	if err != nil {
		return Turn{}, fmt.Errorf("taking the turn of chat %s: %w: unexpected reply %v", chat, memory.ErrUnavailable, r)
	}
	turn := Turn{Number: number, Conversation: r.at(2)}
	for _, name := range r[3:] {
		if agent, err := memory.ParseAgent(name); err == nil {
			turn.Agents = append(turn.Agents, agent)
		}
	}
	return turn, nil
}

// Renew prolongs a turn's lease; false if it is no longer held under token.
func (s *Store) Renew(ctx context.Context, chat memory.Chat, token string, ttl time.Duration) (bool, error) {
	held, err := renewScript.Run(ctx, s.redis, []string{leaseKey(chat)}, token, ttl.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("renewing the turn of chat %s: %w", chat, unavailable(err))
	}
	return held, nil
}

// Release gives a turn back; a lease that others hold by now stays theirs.
func (s *Store) Release(ctx context.Context, chat memory.Chat, token string) error {
	if err := renewScript.Run(ctx, s.redis, []string{leaseKey(chat)}, token, 0).Err(); err != nil {
		return fmt.Errorf("giving back the turn of chat %s: %w", chat, unavailable(err))
	}
	return nil
}

// ReleaseAll gives back every turn, whoever holds it. It is for a store that no
// other process can use: what a process before this one held, nobody holds.
func (s *Store) ReleaseAll(ctx context.Context) error {
	err := s.scan(ctx, "{chat_history:*}:turn", func(key string) error {
		return s.redis.Del(ctx, key).Err()
	})
	if err != nil {
		return fmt.Errorf("giving back the turns of a process before: %w", unavailable(err))
	}
	return nil
}
