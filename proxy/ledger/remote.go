package ledger

import (
	"context"
	"time"
)

// Remote stores turns outside of this process. Its methods may be called concurrently, respect the
// deadline of their context, and are idempotent.
type Remote interface {
	// Save appends entries to their scopes, in their order, and returns where each of them stands.
	// An entry is left out if its conversation was erased at or after its time, and its mark is
	// zero. After an error any of them may be missing.
	Save(ctx context.Context, entries []Entry) ([]Mark, error)
	// Load answers all parts of a query in one round trip.
	Load(ctx context.Context, q Query) (Loaded, error)
	// Erase removes a conversation on every route, with its index entries, and keeps a tombstone
	// with the time, so that nothing older is saved later.
	Erase(ctx context.Context, e Erasure) error
	// Keep has a conversation outlive its TTL on every route: what it has and what is saved to it
	// later stays at least until then. An earlier time than before changes nothing; an erasure
	// ends it.
	Keep(ctx context.Context, tenant, conversation string, until time.Time) error
}

// Entry is one record in a scope's log: a turn, or blocks that were refused.
type Entry struct {
	Scope Scope
	Time  time.Time // the turn's, or the time of the refusal

	Turn *Turn // nil for a refusal
	// Keys lead requests of the tenant's route that name no conversation to this one.
	Keys []string

	Origin  Origin   // the model that refused; the vendor does not count
	Refused []string // BlockKeys
}

// Mark is a position in a scope's log; the zero Mark is the beginning.
type Mark struct {
	Born string // the log's incarnation: it differs once the remote has lost the scope and begun it anew
	Last int64
}

// Position is a scope and how far it was read.
type Position struct {
	Scope Scope
	Mark  Mark
}

// Query says what to load; any part may be empty.
type Query struct {
	Scopes []Position // what each has behind its mark

	// Keys of the entries with the wanted conversations, on one route of a tenant.
	Tenant, Route string
	Keys          []string

	ErasedSince time.Time // erasures at or after this time are wanted; zero for none
}

// Loaded is the answer to a Query.
type Loaded struct {
	Chunks        []Chunk  // one for each of Query.Scopes, in their order
	Conversations []string // those that the keys lead to; none for a key that leads to many
	Erasures      []Erasure
	// Born is the remote's incarnation: it differs once the remote has lost everything and begun
	// anew. It is only set if erasures were asked for.
	Born string
}

// Chunk is a piece of a scope's log, oldest first. If its Born is not the one that was asked for,
// it is the whole log.
type Chunk struct {
	Mark    Mark
	Entries []Entry
}

// Erasure is the deletion of a conversation on every route of its tenant.
type Erasure struct {
	Tenant       string
	Conversation string
	Time         time.Time // in µs; what is not later is erased
}
