package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// Response is a turn as a response of the Responses dialect that was stored: its client can ask for it, and go on
// from it, by its ID alone.
type Response struct {
	ID       string         `json:"id"`                // random, so that it cannot be guessed
	Previous string         `json:"previous,omitzero"` // the ID of the response that it goes on from; empty for none
	Input    jsontext.Value `json:"input"`             // the array of its items, as the client sent them
	// Own is the number of items at the front of Input that are the previous responses'. If it is 0 those are in
	// turns of the same scope.
	Own  int            `json:"own,omitzero"`
	Body jsontext.Value `json:"body"` // the response as the client got it
}

// Size is that of the response in memory, in bytes.
func (r *Response) Size() int { return len(r.Input) + len(r.Body) }

// Stored is a response with those that it goes on from.
type Stored struct {
	Turn    *Turn
	History []*Turn // the oldest first
	// Whole: the items of Before and Turn are all that the response was given to. Else the oldest of them are
	// gone, for their age or for room.
	Complete bool
	Full     bool // its conversation should not be gone on with, lest it loses its oldest turns
}

// ErrNoResponse says that no response of an ID is known on the tenant's route, or that it was deleted.
var ErrNoResponse = errors.New("there is no such response")

var errAway = errors.New("the remote does not answer")

// keys are by what the response is found: its id, and those of the items that it answered.
func (r *Response) keys() []key {
	keys := []key{responseKey(r.ID)}
	for _, id := range gjson.GetBytes(r.Body, "output.#.id").Array() {
		keys = append(keys, responseKey(id.Str))
	}
	return keys
}

func responseKey(id string) key { return key{byResponse, newDigest().add(id).sum()} }

// deletedKey stands among the refused keys of a scope for a response that was deleted.
func deletedKey(id string) string { return responseKey(id).String() }

// Response finds a stored response. It always asks the remote, since another process may have deleted the response,
// and waits longer for it than a request does otherwise: without its history a request cannot be answered. The
// error is ErrNoResponse, or says that the remote, which alone may know the response, does not answer.
func (l *Ledger) Response(ctx context.Context, tenant, routeName, id string) (Stored, error) {
	return l.answering(ctx, tenant, routeName, id, true)
}

// ResponseOf is Response for the id of an item that the response answered.
func (l *Ledger) ResponseOf(ctx context.Context, tenant, routeName, item string) (Stored, error) {
	return l.answering(ctx, tenant, routeName, item, false)
}

// answering finds a stored response by its own id, or by that of an item.
func (l *Ledger) answering(ctx context.Context, tenant, routeName, id string, own bool) (Stored, error) {
	var fetchErr error
	if l.writer != nil {
		fetchErr = l.fetchResponse(ctx, Scope{Tenant: tenant, Route: routeName}, id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, b := l.response(route{tenant, routeName}, id)
	switch {
	case e == nil && fetchErr != nil:
		return Stored{}, fmt.Errorf("look for a response: %w", fetchErr)
	case e == nil || own != (e.turn.Response.ID == id) || b.refused.has(Origin{}, deletedKey(e.turn.Response.ID)):
		return Stored{}, ErrNoResponse
	}
	s := Stored{
		Turn: e.turn, Full: 2*b.size() >= l.config.ScopeTurns || 2*b.bytes >= l.config.ScopeBytes,
	}
	for resp := e.turn.Response; ; {
		if resp.Previous == "" || resp.Own > 0 {
			s.Complete = true
			break
		}
		older := b.index[responseKey(resp.Previous)]
		if len(older) == 0 || len(s.History) > len(b.turns) {
			break
		}
		resp = older[0].turn.Response
		s.History = append(s.History, older[0].turn)
	}
	slices.Reverse(s.History)
	return s, nil
}

// response is the entry of a response and its book, nil for none. The caller holds mu.
func (l *Ledger) response(r route, id string) (*entry, *book) {
	k := responseKey(id)
	b := owning(l, Scope{Tenant: r.tenant, Route: r.route}, k) // reads what is unread, and drops what is too old
	if b == nil || len(b.index[k]) == 0 {
		return nil, nil
	}
	return b.index[k][0], b
}

// fetchResponse loads what the remote has of the conversation of a response.
func (l *Ledger) fetchResponse(parent context.Context, s Scope, id string) (err error) {
	if l.writer.reading.Load() {
		return errAway // the writer's goroutine notices when it is back
	}
	defer func() {
		if parent.Err() == nil {
			l.writer.reading.note(err, l.config.Log, "look for turns")
		}
	}()
	ctx, cancel := context.WithTimeout(parent, max(saveTimeout, l.config.Patience))
	defer cancel()
	l.mu.Lock()
	e, _ := l.response(s.route(), id)
	l.mu.Unlock()
	if e != nil {
		s.Conversation = e.turn.Scope.Conversation
	} else {
		loaded, err := l.config.Remote.Load(ctx, Query{Tenant: s.Tenant, Route: s.Route,
			Keys: []string{responseKey(id).String()}})
		if err != nil || len(loaded.Conversations) == 0 {
			return err
		}
		s.Conversation = loaded.Conversations[0]
	}
	q := Query{Scopes: []Position{l.position(s)}}
	loaded, err := l.config.Remote.Load(ctx, q)
	if err == nil && e != nil && len(loaded.Chunks) > 0 &&
		(loaded.Chunks[0].Mark.Born == "" || loaded.Chunks[0].Mark.Born != q.Scopes[0].Mark.Born) {
		// What is here was erased, perhaps since the writer's goroutine has asked, or the remote has lost it.
		var recent Loaded
		if recent, err = l.config.Remote.Load(ctx, Query{ErasedSince: l.config.Now().Add(-skew)}); err == nil {
			l.erase(recent.Erasures)
		}
	}
	if err == nil {
		l.merge(q, loaded)
	}
	return err
}

// Delete deletes a stored response: afterwards it is not found, and no request goes on from it. Those that went on
// from it keep what it said. Once all of a conversation's turns are deleted responses, it is erased. The error is
// that of Response, or says that the remote does not know of it yet; then the call may be repeated.
func (l *Ledger) Delete(ctx context.Context, tenant, routeName, id string) error {
	s, err := l.Response(ctx, tenant, routeName, id)
	if err != nil {
		return err
	}
	scope := s.Turn.Scope
	if l.writer != nil { // at once and not by the queue: a caller that hears that it is deleted can rely on it
		timed, cancel := context.WithTimeout(ctx, max(saveTimeout, l.config.Patience))
		defer cancel()
		_, err = l.config.Remote.Save(timed, []Entry{{Scope: scope, Time: l.stamp(), Refused: []string{deletedKey(id)}}})
		if err != nil {
			return fmt.Errorf("delete a response: %w", err)
		}
	}
	l.mu.Lock()
	l.store.refuse(scope, Origin{}, []string{deletedKey(id)}, l.config.Now())
	hasOthers := false
	if b := l.find(scope); b != nil {
		hasOthers = slices.ContainsFunc(b.turns, func(e *entry) bool {
			r := e.turn.Response
			return r == nil || !b.refused.has(Origin{}, deletedKey(r.ID))
		})
	}
	l.mu.Unlock()
	if hasOthers {
		return nil
	}
	return l.Forget(ctx, tenant, scope.Conversation)
}
