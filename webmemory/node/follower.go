package node

import (
	"sync"
	"time"

	"mneme/memory/erasures"
)

// Erasure is one erasure as a fact, and the body of POST /internal/v1/erasures.
type Erasure struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// Applied says what a process knew of the chat, and Redis may still keep.
type Applied struct {
	Runs []string `json:"runs"`
}

// Follower is what this process knows of erasures, and how far it has followed those of
// others.
type Follower struct {
	File *erasures.File // what was applied to this disk

	Mu        sync.Mutex
	Applied   map[string]int64 // guarded by mu: to what this process holds in memory
	StartTurn int64            // guarded by mu: the turn from which Redis is asked
}

// HalfErased is for how long after an erasure Redis may lose a part of it: far longer
// than a failover or a start from an older file reaches back.
const HalfErased = time.Hour
