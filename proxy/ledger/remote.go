package ledger

import (
	"context"
	"time"
)

// Remote keeps turns outside of this process. Calls may run at the same time,
// keep to the deadline of their context, and may be repeated.
type Remote interface {
	// Save appends entries to their scopes, in their order, unless the entry's
	// conversation was erased at or after its time. An error means that any of
	// them may be missing.
	Save(ctx context.Context, entries []Entry) error
	// Load answers all parts of a query in one round trip.
	Load(ctx context.Context, q Query) (Loaded, error)
	// Erase removes a conversation on every route, with all that leads to it, and
	// remembers the time, so that nothing older is saved any more.
	Erase(ctx context.Context, e Erasure) error
}

// Entry is one line of what a Remote keeps of a scope: a turn, or blocks that
// were refused.
type Entry struct {
	Scope Scope
	At    time.Time // the turn's, or when the blocks were refused

	Turn *Turn // nil for a refusal
	// Keys name the turn in its tenant's route, for requests without conversation.
	Keys []string

	By      Origin   // who refused; the vendor does not count
	Refused []string // BlockKeys
}

// Mark is how far a scope was read; the zero Mark is its beginning.
type Mark struct {
	Born string // differs when the remote lost the scope and began it anew
	Last int64
}

// Position is a scope and how far it was read.
type Position struct {
	Scope Scope
	Mark  Mark
}

// Query is what to load; any part may be empty.
type Query struct {
	Scopes []Position // what they have behind the mark

	// Keys are those of entries whose conversations are wanted.
	Tenant, Route string
	Keys          []string

	ErasedSince time.Time // erasures at or after it are wanted; zero: none
}

// Loaded is the answer to a Query.
type Loaded struct {
	Chunks        []Chunk  // as many as Query.Scopes, in their order
	Conversations []string // that the keys lead to; of a key that leads to many, none
	Erasures      []Erasure
	// Born differs when the remote lost everything and began anew. It is answered
	// where erasures are asked for.
	Born string
}

// Chunk is a piece of a scope, oldest first. With another Born than was asked
// for it is the whole scope.
type Chunk struct {
	Mark    Mark
	Entries []Entry
}

// Erasure is the end of a conversation on every route of its tenant.
type Erasure struct {
	Tenant       string
	Conversation string
	At           time.Time // in µs; what is not later is erased
}
