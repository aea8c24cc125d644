package conversation

import (
	"bytes"
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Extend puts before a request what it goes on from and does not show. One that shows no answer goes on from the turn
// with the calls that its first message has the results of, or, if asked for by next, from the newest answer; one
// that begins with an answer and has no question, a tool loop cut off from what began it, from what stands before the
// turn with the calls that its second message has the results of. The request is the same if that is not known, or if
// some of it is in another dialect.
func Extend(ctx context.Context, l *ledger.Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline, next bool,
) (*wire.Outline, error) {
	from := leading(o)
	results := from // the first message that may have any
	answers := func(m wire.MessageOutline) bool { return m.Role == wire.RoleAssistant }
	question, _ := o.NewestUser()
	switch shown := o.Messages[from:]; {
	case len(shown) == 0:
		return o, nil
	case !slices.ContainsFunc(shown, answers):
	case len(shown) > 1 && answers(shown[0]) && question < 0:
		results++
	default:
		return o, nil
	}
	var ids []string
	for _, at := range o.ResultIDs(d, &o.Messages[results]) {
		id, _ := o.Text(at)
		ids = append(ids, id)
	}
	if len(ids) == 0 && (!next || results > from) {
		return o, nil
	}
	find := func() *ledger.Node {
		tree := l.Conversation(s, nil)
		if len(ids) > 0 {
			_, calling := tree.Calling(ids)
			return calling
		}
		return tree.Newest()
	}
	n := find()
	if (n == nil || len(ids) == 0) && l.Refresh(ctx, s) { // the newest answer may be another process's
		n = find()
	}
	told := telling(n, d, results == from)
	if len(told) == 0 {
		return o, nil
	}
	var e wire.Edits
	at := o.Messages[from].Start
	e.Replace(wire.Span{Start: at, End: at}, append(told, ','))
	return o.WithBody(e.Apply(o.Body))
}

// telling is the branch that ends with a turn, with its answer or without, as messages separated by commas
// and without thinking; nil if there is none or not all of it is in the dialect.
func telling(n *ledger.Node, d wire.Dialect, answered bool) []byte {
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
		if i > 0 || answered {
			messages = append(messages, answer)
		}
		for _, m := range slices.Backward(t.before) {
			messages = append(messages, t.source.Turn().Place.Input[m.Start:m.End])
		}
	}
	slices.Reverse(messages)
	return bytes.Join(messages, []byte(","))
}
