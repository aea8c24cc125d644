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
	Chat        Scope = "chat"         // post messages, read runs and their answers, answer their questions
	MemoryRead  Scope = "memory:read"  // read histories, notes, lists and exports
	MemoryWrite Scope = "memory:write" // change and erase them
	Documents   Scope = "documents"    // collections and the documents of chats
	Models      Scope = "models"       // the gateway's endpoints
	Approve     Scope = "approve"      // answer for a person: approvals
	Admin       Scope = "admin"        // keys, backends, usage of others, audit; of the default tenant: all tenants
)

// Scopes lists all of them.
var Scopes = []Scope{Chat, MemoryRead, MemoryWrite, Documents, Models, Approve, Admin}

// Principal is who a request comes from. The zero value may do nothing; Anyone is who comes in where
// there are no keys.
type Principal struct {
	Key    string // the key's id, "" where there are no keys
	Tenant memory.Tenant
	Scopes []Scope
}

// Anyone is the principal of every request to a service without keys.
var Anyone = Principal{Scopes: Scopes}

// May says whether the principal has a scope. Admin has them all.
func (p Principal) May(s Scope) bool {
	return slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, Admin)
}

type principal struct{}

// With is a context of a request that comes from p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principal{}, p)
}

// From is who the request of a context comes from; Anyone if nobody was asked.
func From(ctx context.Context) Principal {
	if p, ok := ctx.Value(principal{}).(Principal); ok {
		return p
	}
	return Anyone
}
