package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// plainMessage is a message as a program without our care would declare it: it
// parses faster than memory.Message, which tolerates odd fields.
type plainMessage struct {
	Role      string  `json:"role"`
	Content   string  `json:"content"`
	Timestamp float64 `json:"timestamp"`
}

// rewriteAppend is the original service's way to remember: the whole array is read
// and parsed, grows by the messages, and is written back. It is told apart from
// where it reads to measure one size again and again; who remembers gives one key
// twice. Nothing holds off another writer between GET and SET.
func rewriteAppend(ctx context.Context, client *redis.Client, from, to string, messages ...memory.Message) error {
	var history []plainMessage
	value, err := client.Get(ctx, from).Bytes()
	if err == nil {
		err = json.Unmarshal(value, &history)
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("reading %s: %w", from, err)
	}
	for _, m := range messages {
		history = append(history, plainMessage{m.Role, m.Content, m.Timestamp})
	}
	value, err = json.Marshal(history)
	if err != nil {
		return err
	}
	return client.Set(ctx, to, value, 0).Err()
}
