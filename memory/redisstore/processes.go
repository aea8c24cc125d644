package redisstore

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// Processes stores the processes that serve this memory, in one hash by id. Each process writes only its own field. Any
// process may remove the fields of dead processes.
type Processes struct{ *core }

// Beat is the interval of a process's heartbeats. A process without a heartbeat for processLife is considered dead.
// LongestBeat is the longest interval of all versions that may run at the same time (0.1.0).
const (
	Beat        = 2 * time.Second
	LongestBeat = 5 * time.Second
	processLife = 4 * LongestBeat
)

// Process is a process that serves this memory.
type Process struct {
	ID       string `json:"-"`
	URL      string `json:"url"` // base URL for the other processes
	LastSeen int64  `json:"at"`  // Unix ms of its last heartbeat
}

// Lives reports whether the process sent a heartbeat within processLife.
func (p Process) Lives() bool { return time.Since(time.UnixMilli(p.LastSeen)) < processLife }

// Announce stores a heartbeat of a process and its URL.
func (s Processes) Announce(ctx context.Context, id, url string) error {
	value, err := json.Marshal(Process{URL: url, LastSeen: s.now().UnixMilli()})
	if err == nil {
		err = s.redis.HSet(ctx, processesKey, id, value).Err()
	}
	return failure(err, "announcing process %s", id)
}

// Resign removes a process from the list.
func (s Processes) Resign(ctx context.Context, id string) error {
	return failure(s.redis.HDel(ctx, processesKey, id).Err(), "taking process %s off the list", id)
}

// List returns the living processes and removes the dead ones from the list.
func (s Processes) List(ctx context.Context) ([]Process, error) {
	living, dead, err := s.Look(ctx)
	if len(dead) > 0 {
		_ = s.redis.HDel(ctx, processesKey, dead...).Err() // the next List tries again
	}
	return living, err
}

// Look returns the living processes and the ids of the dead ones. It changes nothing.
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

// Token returns the token for a turn that a process takes. It begins with the process's id, so that another process
// that can prove its death may end its lease. An eraser's token is EraserToken followed by such a token.
func Token(process, random string) string { return process + ":" + random }

// HolderOf returns the id of the process that made a token. It returns "" for tokens of versions that omitted it.
func HolderOf(token string) string {
	token = strings.TrimPrefix(token, EraserToken)
	return token[:max(strings.IndexByte(token, ':'), 0)]
}
