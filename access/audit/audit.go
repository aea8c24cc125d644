// Package audit keeps the log of acts that can hurt others, and their actors: erasing, redacting, reading by the
// admin's right, changing keys, approving, switching a backend.
//
// It owns a stream of Redis for each tenant (mneme:audit, mneme:audit:<tenant>). Entries are appended and never
// changed; they hold names and ids, and no contents. It never keeps an act from being done.
package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/access"
	"mneme/memory"
	"mneme/memory/redisscript"
)

// kept is about how many entries of a tenant are kept; older ones go.
const maxEntries = 1_000_000

// MaxPage bounds what one Page has.
const MaxPage = 1000

// Entry is something that somebody did.
type Entry struct {
	ID     string        `json:"id"` // grows; the next page begins behind it
	Time   time.Time     `json:"at"` // Redis's time
	Tenant memory.Tenant `json:"tenant"`
	Key    string        `json:"key,omitempty"`    // the id of the key; empty where there are no keys, as for the operator
	Action string        `json:"action"`           // such as "chat.erase", see docs/security.md
	Target string        `json:"target,omitempty"` // what it was done to, as a path: its ids and no text
}

// Log appends and reads entries. Writing to a nil one keeps nothing. Safe for concurrent use.
type Log struct {
	redis redis.UniversalClient
}

// New is the log in a Redis.
func New(client redis.UniversalClient) *Log { return &Log{client} }

func stream(t memory.Tenant) string { return memory.ListKey(memory.KindAudit, t) }

// Write appends that the principal of a context did something to a target of a tenant's.
// Errors are memory.ErrUnavailable.
func (l *Log) Write(ctx context.Context, tenant memory.Tenant, action, target string) error {
	if l == nil {
		return nil
	}
	err := l.redis.XAdd(ctx, &redis.XAddArgs{
		Stream: stream(tenant), MaxLen: maxEntries, Approx: true,
		Values: []any{"key", access.FromContext(ctx).Key, "action", action, "target", target},
	}).Err()
	if err != nil {
		return fmt.Errorf("keeping who did %s: %w", action, redisscript.Unavailable(err))
	}
	return nil
}

// Page is up to count entries of a tenant behind an id, "" for the oldest there is.
// Errors are memory.ErrUnavailable, and memory.ErrBadName for what is no id.
func (l *Log) Page(ctx context.Context, tenant memory.Tenant, cursor string, count int) ([]Entry, error) {
	start := "-"
	if cursor != "" {
		if strings.Trim(cursor, "0123456789-") != "" {
			return nil, fmt.Errorf("%w: %.40q is no id of an entry", memory.ErrBadName, cursor)
		}
		start = "(" + cursor
	}
	lines, err := l.redis.XRangeN(ctx, stream(tenant), start, "+", int64(min(count, MaxPage))).Result()
	if err != nil {
		if strings.Contains(err.Error(), "Invalid stream ID") {
			return nil, fmt.Errorf("%w: %.40q is no id of an entry", memory.ErrBadName, cursor)
		}
		return nil, fmt.Errorf("reading who did what: %w", redisscript.Unavailable(err))
	}
	entries := make([]Entry, 0, len(lines))
	for _, line := range lines {
		text := func(name string) string { s, _ := line.Values[name].(string); return s }
		e := Entry{ID: line.ID, Tenant: tenant, Key: text("key"), Action: text("action"), Target: text("target")}
		var ms int64
		if _, err := fmt.Sscanf(line.ID, "%d-", &ms); err == nil {
			e.Time = time.UnixMilli(ms).UTC()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Erase removes all entries of a tenant, of which nothing else is left. Errors are memory.ErrUnavailable.
func (l *Log) Erase(ctx context.Context, tenant memory.Tenant) error {
	if err := l.redis.Unlink(ctx, stream(tenant)).Err(); err != nil {
		return fmt.Errorf("erasing who did what: %w", redisscript.Unavailable(err))
	}
	return nil
}

// StartID returns an id that precedes all entries from t on.
func StartID(t time.Time) string { return fmt.Sprintf("%d-0", max(t.UnixMilli(), 1)-1) }
