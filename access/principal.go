package access

import (
	"context"
	"slices"

	"mneme/memory"
)

// Scope is a right that a key has.
type Scope string

// The scopes.
const (
	Chat        Scope = "chat"         // post messages, read runs and their answers, give results of the client's tools
	MemoryRead  Scope = "memory:read"  // read histories, notes, lists and exports
	MemoryWrite Scope = "memory:write" // change and erase them, take back more than the newest exchange
	Documents   Scope = "documents"    // collections and the documents of chats
	Models      Scope = "models"       // the gateway's endpoints
	Approve     Scope = "approve"      // answer for a person: approvals and what tools ask
	Admin       Scope = "admin"        // keys, backends, usage of others, audit; of the default tenant: all tenants
)

// What a route needs that is no right of a key.
const (
	Open     Scope = "open"     // nothing: also strangers may come in
	AnyKey   Scope = "any key"  // a key that is good, whatever its scopes
	Internal Scope = "internal" // the internal secret, by which the services know each other

	InternalChat  Scope = "internal, for chat"        // the internal secret, and a caller with chat
	InternalRead  Scope = "internal, for memory:read" // the internal secret, and a caller with memory:read
	ChatOrApprove Scope = "chat or approve"           // one of both; the kind of the answer decides which
)

// Scopes lists those that keys have.
var Scopes = []Scope{Chat, MemoryRead, MemoryWrite, Documents, Models, Approve, Admin}

// Principal is the caller that a request comes from. The zero value may do nothing; Anyone is every caller where
// there are no keys.
type Principal struct {
	Key    string // the key's id, "" where there are no keys
	Tenant memory.Tenant
	Scopes []Scope
	User   string // the tenant's user that the request is for; "" if none is named
	Limits Limits // of the key; those of tenants and users are configured

	internal bool   // another service of ours, in its own name
	carried  bool   // the request came with the internal secret, in a service's own name or in its caller's
	hash     string // of the key's text, if that was shown here
}

// Anyone is the principal of every request to a service without keys.
var Anyone = Principal{Scopes: Scopes}

// HasScope reports whether the principal has a scope. Admin includes all scopes of keys.
func (p Principal) HasScope(s Scope) bool {
	switch s {
	case Open, AnyKey:
		return true
	case Internal:
		return p.internal
	case InternalChat:
		return p.carried && p.HasScope(Chat)
	case InternalRead:
		return p.carried && p.HasScope(MemoryRead)
	case ChatOrApprove:
		return p.HasScope(Chat) || p.HasScope(Approve)
	}
	return slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, Admin)
}

// Need is nil if the principal has a scope, and else a *Refusal.
func (p Principal) Need(s Scope) error {
	if p.HasScope(s) {
		return nil
	}
	return p.lacks(s)
}

// lacks is the refusal of a principal that does not have a scope.
func (p Principal) lacks(s Scope) *Refusal {
	switch {
	case s == InternalChat && p.carried:
		s = Chat
	case s == InternalRead && p.carried:
		s = MemoryRead
	case s == InternalChat, s == InternalRead:
		s = Internal
	}
	return forbidden(s)
}

// Operator says whether it is of the default tenant: its admins run the service for all tenants.
func (p Principal) Operator() bool { return p.Tenant == memory.Tenant{} }

type principal struct{}

// With is a context of a request that comes from p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principal{}, p)
}

// FromContext is the principal of the request of a context; Anyone if no key was asked for.
func FromContext(ctx context.Context) Principal {
	if p, ok := Authenticated(ctx); ok {
		return p
	}
	return Anyone
}

// Authenticated is the principal of the request of a context; ok is false if no key was asked for, as where
// there are no keys.
func Authenticated(ctx context.Context) (p Principal, ok bool) {
	p, ok = ctx.Value(principal{}).(Principal)
	return p, ok
}
