package conversation

import (
	"bytes"
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Extend puts before a request that shows no answer what it goes on from: the turn whose calls its
// first message has the results of, or, if asked for by next, the newest answer. The request is the
// same if that is not known, or if some of it is in another dialect.
func Extend(ctx context.Context, l Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline, next bool,
) (*wire.Outline, error) {
	from := leading(o)
	shows := func(m wire.MessageOutline) bool { return m.Role == wire.RoleAssistant }
	if from == len(o.Messages) || slices.ContainsFunc(o.Messages, shows) {
		return o, nil
	}
	var ids []string
	for _, at := range o.ResultIDs(d, &o.Messages[from]) {
		id, _ := o.Text(at)
		ids = append(ids, id)
	}
	if len(ids) == 0 && !next {
		return o, nil
	}
	find := func() *ledger.Node {
		tree := l.Conversation(s, nil)
		if len(ids) > 0 {
			return tree.Calling(ids)
		}
		return tree.Newest()
	}
	n := find()
	if (n == nil || len(ids) == 0) && l.Refresh(ctx, s) { // the newest answer may be another process's
		n = find()
	}
	told := telling(n, d)
	if told == nil {
		return o, nil
	}
	var e wire.Edits
	at := o.Messages[from].Start
	e.Replace(wire.Span{Start: at, End: at}, append(told, ','))
	return o.WithBody(e.Apply(o.Body))
}

// telling is the branch that ends with a turn, as messages separated by commas and without thinking;
// nil if there is none or not all of it is in the dialect.
func telling(n *ledger.Node, d wire.Dialect) []byte {
	if n == nil {
		return nil
	}
	b := branch{node: n, next: n}
	var messages [][]byte // the newest first
	for i := 0; ; i++ {
		t := b.turn(i)
		if t == nil {
			break
		}
		answer := t.message()
		if answer == nil || t.source.Turn().Dialect != d {
			return nil
		}
		messages = append(messages, answer)
		for _, m := range slices.Backward(t.before) {
			messages = append(messages, t.source.Turn().Place.Input[m.Start:m.End])
		}
	}
	slices.Reverse(messages)
	return bytes.Join(messages, []byte(","))
}
