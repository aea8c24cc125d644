package redisstore

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// Processes is about the processes that serve this memory. It keeps them in one hash, by id; each writes its own field
// and no other, but for the fields of the dead, which each may take away.
type Processes struct{ *core }

// Beat is how often a process says that it lives; one that has not for processLife
// is taken for dead. LongestBeat is that of any version that may serve beside this
// one: of 0.1.0.
const (
	Beat        = 2 * time.Second
	LongestBeat = 5 * time.Second
	processLife = 4 * LongestBeat
)

// Process is a process that serves this memory.
type Process struct {
	ID       string `json:"-"`
	URL      string `json:"url"` // base URL under which the others reach it
	LastSeen int64  `json:"at"`  // Unix ms of its last sign of life
}

// Lives says whether the process has said lately enough that it lives.
func (p Process) Lives() bool { return time.Since(time.UnixMilli(p.LastSeen)) < processLife }

// Announce says that a process lives, and where.
func (s Processes) Announce(ctx context.Context, id, url string) error {
	value, err := json.Marshal(Process{URL: url, LastSeen: s.now().UnixMilli()})
	if err == nil {
		err = s.redis.HSet(ctx, processesKey, id, value).Err()
	}
	return failure(err, "announcing process %s", id)
}

// Resign takes a process off the list.
func (s Processes) Resign(ctx context.Context, id string) error {
	return failure(s.redis.HDel(ctx, processesKey, id).Err(), "taking process %s off the list", id)
}

// List lists those that live, and drops the dead from the list.
func (s Processes) List(ctx context.Context) ([]Process, error) {
	living, dead, err := s.Look(ctx)
	if len(dead) > 0 {
		_ = s.redis.HDel(ctx, processesKey, dead...).Err() // the next process that lists them tries again
	}
	return living, err
}

// Look lists those that live, and the ids of the dead, and changes nothing.
func (s Processes) Look(ctx context.Context) (living []Process, dead []string, err error) {
	values, err := s.redis.HGetAll(ctx, processesKey).Result()
	if err != nil {
		return nil, nil, failure(err, "listing the processes")
	}
	for id, value := range values {
		p := Process{ID: id}
		if err := json.Unmarshal([]byte(value), &p); err != nil || !p.Lives() {
			dead = append(dead, id)
			continue
		}
		living = append(living, p)
	}
	return living, dead, nil
}

// Token makes the token of a turn that a process takes: it begins with the
// process's id, so that another one that can prove its death may end its lease. An
// eraser's token is EraserToken and then such a token.
func Token(process, random string) string { return process + ":" + random }

// HolderOf is the id of the process that made a token; empty for a token of a
// version that did not name its process.
func HolderOf(token string) string {
	token = strings.TrimPrefix(token, EraserToken)
	return token[:max(strings.IndexByte(token, ':'), 0)]
}
