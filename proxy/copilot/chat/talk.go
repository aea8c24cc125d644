package chat

import (
	"slices"
	"time"

	"mneme/proxy/copilot"
	"mneme/proxy/wire"
)

// state is where a talk stands.
type state int

const (
	busy    state = iota // a request has it
	idle                 // it waits for the user
	parked               // it waits for results of tools
	dormant              // the CLI has it on disk only
)

// talk is a session and what it has seen. While it is busy it belongs to its
// request, but for scope, setup, doomed, state and since; else to Model.mu.
type talk struct {
	scope  Scope
	minted bool // scope.Conversation is known to this process alone
	setup  sum

	session     *copilot.Session // nil before it is made, and while it is dormant
	id          string           // of the session; empty before it is made
	replayCount int              // how many messages it was told as a record, and did not live through
	sums        []sum            // messages, its own last answer included
	calls       []parkedCall
	resting     chan struct{} // closed when the session before the present one is closed; nil for none

	doomed     bool // it is freed when its request is done with it
	state      state
	stateSince time.Time // in that state
}

// parkedCall is one that the turn waits for.
type parkedCall struct {
	ours string // the id that the client got
	its  string // the CLI's
}

// goesOn reports whether a request says what the talk has seen and something new
// that the talk can take.
func (t *talk) goesOn(r *request) bool {
	if t.state == busy || t.setup != r.setup {
		return false
	}
	n := len(t.sums)
	if r.answered() != n || !slices.Equal(r.sums[:n], t.sums) {
		return false
	}
	results := r.results()
	if t.state != parked {
		return !slices.ContainsFunc(r.messages[n:], func(m wire.ChatMessage) bool { return m.Role == wire.RoleTool })
	}
	return slices.ContainsFunc(t.calls, func(c parkedCall) bool { _, ok := results[c.ours]; return ok })
}

// superseded reports whether a request shows the dialogue of the talk as it did not
// happen: edited, taken back, or gone on with elsewhere.
func (t *talk) superseded(r *request) bool {
	return t.state != busy && t.setup == r.setup && len(t.sums) > 0 && len(r.sums) > 0 && t.sums[0] == r.sums[0]
}
