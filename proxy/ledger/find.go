package ledger

import (
	"context"
	"slices"

	"mneme/proxy/wire"
)

// maxAsked bounds the keys of one query.
const maxAsked = 512

// Find gives a request that names no conversation the one that it goes on: that of the calls of tools with these ids, or
// of the newest answer or result among its messages that only one conversation can have, by a long id, a signature or
// redacted data, or in which thinking was refused. What was said never leads anywhere: chats of many users begin alike.
// It is false, with the scope as it was, if there is none, or if the request would begin one branch too many there, as
// chats do that an application begins with one and the same answer. Find waits for the remote for Config.Patience at
// most, and only if this process knows none.
func (l *Ledger) Find(ctx context.Context, s Scope, d wire.Dialect, o *wire.Outline, calls []string,
) (scope Scope, ok bool) {
	var keys []key
	add := func(candidates ...key) {
		for _, k := range candidates {
			if k.unique() {
				keys = append(keys, k)
			}
		}
	}
	for _, id := range calls {
		add(toolKey(id))
	}
	if scope, ok := leading(l, s, keys); ok {
		return scope, scope != s
	}
	for i := range slices.Backward(o.Messages) {
		start := len(keys)
		m := &o.Messages[i]
		for _, span := range o.ResultIDs(d, m) { // their call may not be shown
			id, _ := o.Text(span)
			add(toolKey(id))
		}
		if m.Role == wire.RoleAssistant {
			f := l.Form(o, m, d)
			add(f.keys[:f.visibleStart]...)
			for _, p := range f.parts {
				keys = append(keys, lasting(p.key)...)
			}
		}
		if len(keys) == start {
			continue
		}
		if scope, ok := leading(l, s, keys[start:]); ok { // mostly by the newest one
			return scope, scope != s
		}
	}
	if len(keys) == 0 || l.writer == nil || l.writer.reading.Load() {
		return s, false
	}
	timed, cancel := context.WithTimeout(ctx, l.config.Patience)
	defer cancel()
	loaded, err := l.config.Remote.Load(timed, Query{
		Tenant: s.Tenant, Route: s.Route, Keys: texts(keys[:min(len(keys), maxAsked)]),
	})
	if ctx.Err() == nil { // a request that was cancelled says nothing about the remote
		l.writer.reading.note(err, l.config.Log, "look for turns")
	}
	if err != nil || len(loaded.Conversations) == 0 {
		return s, false
	}
	s.Conversation = loaded.Conversations[0]
	return s, true
}

// leading is the scope that the first of these keys leads to in this process, or s if that has no room for another branch.
func leading(l *Ledger, s Scope, keys []key) (scope Scope, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if b := owning(l, s, k); b != nil {
			isLeaf := func(e *entry) bool { return e.node != nil && len(e.node.children) == 0 }
			if b.leaves >= maxBranches && !slices.ContainsFunc(b.index[k], isLeaf) {
				return s, true
			}
			return b.scope, true
		}
	}
	return s, false
}

// owning is the book that a key leads to from a scope; nil for none. The caller holds mu.
func owning(l *Ledger, s Scope, k key) *book {
	if s.Conversation = l.store.owners[s.route()][k].conversation; s.Conversation == "" {
		return nil
	}
	return l.find(s)
}
