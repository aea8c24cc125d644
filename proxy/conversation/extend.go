package conversation

import (
	"bytes"
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Extend puts back what a request continues and does not show. Results without their calls get the answer that made the
// calls, if the ids prove which one did. If the client shows no answer, the branch before the calls comes back as well.
// Without results too, next asks for the branch of the newest answer. A request that begins with an answer and
// has no question is a tool loop cut off from its beginning, which comes back. Extend leaves out what is unknown or in
// another dialect.
func Extend(ctx context.Context, l *ledger.Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline, next bool,
) (*wire.Outline, error) {
	start := leading(o)
	if len(o.Messages) == start {
		return o, nil
	}
	x := &extension{Outline: o, ledger: l, scope: s, dialect: d, start: start}
	x.answered = slices.ContainsFunc(o.Messages, isAnswer)
	o, err := o.WithBody(x.calls(ctx))
	if err != nil {
		return o, err
	}
	x.Outline = o
	question, _ := o.NewestUser()
	var n *ledger.Node
	startsWithAnswer := isAnswer(o.Messages[start]) // with an answer
	switch {
	case startsWithAnswer && len(o.Messages) > start+1 && (question < 0 || !x.answered):
		n = x.calling(ctx, x.ids(start+1))
	case next && !x.answered && len(x.ids(start)) == 0:
		l.Refresh(ctx, s) // the newest answer may be another process's
		n = l.Conversation(s, nil).Newest()
	}
	messages := telling(n, d, !startsWithAnswer)
	if len(messages) == 0 {
		return o, nil
	}
	var e wire.Edits
	pos := o.Messages[start].Start
	e.Replace(wire.Span{Start: pos, End: pos}, append(messages, ','))
	return o.WithBody(e.Apply(o.Body))
}

func isAnswer(m wire.MessageOutline) bool { return m.Role == wire.RoleAssistant }

// extension is a request while it is extended.
type extension struct {
	*wire.Outline
	ledger   *ledger.Ledger
	scope    ledger.Scope
	dialect  wire.Dialect
	start    int  // index of the first message of the conversation
	answered bool // the client shows an answer
	queried  bool // the remote was asked for calls that this process does not know
}

// ids returns the tool ids of the results in a message.
func (x *extension) ids(i int) (ids []string) {
	for _, span := range x.ResultIDs(x.dialect, &x.Messages[i]) {
		id, _ := x.Text(span)
		ids = append(ids, id)
	}
	return ids
}

// calling returns the only turn that made all of these calls; nil for none or several.
func (x *extension) calling(ctx context.Context, ids []string) *ledger.Node {
	n := x.ledger.Conversation(x.scope, nil).Calling(ids)
	if n == nil && len(ids) > 0 && !x.queried {
		x.queried = true
		if x.ledger.Refresh(ctx, x.scope) {
			n = x.ledger.Conversation(x.scope, nil).Calling(ids)
		}
	}
	return n
}

// calls returns the body with the answers that results lack. An answer that the client shows in another form stays as it
// is, except at the front: a client that counts items cuts answers in two.
func (x *extension) calls(ctx context.Context) []byte {
	var e wire.Edits
	if answer := x.completeAnswer(ctx); answer != nil {
		e.Replace(x.Messages[x.start].Span, mark(x.Outline, x.Messages[x.start:x.start+1], answer))
	}
	var called []byte    // the newest answer
	afterAnswer := false // only system messages are between it and this message
	for i := x.start; i < len(x.Messages); i++ {
		switch m := &x.Messages[i]; {
		case isAnswer(*m):
			called, afterAnswer = x.Body[m.Start:m.End], true
		case !wire.IsSystem(m.Role):
			if !afterAnswer {
				if answer := x.missingAnswer(ctx, m, called); answer != nil {
					e.Replace(wire.Span{Start: m.Start, End: m.Start}, slices.Concat(answer, []byte(",")))
					called = answer
				}
			}
			afterAnswer = false
		}
	}
	return e.Apply(x.Body)
}

// missingAnswer returns the answer that a message's results lack; nil if they lack none, if it is unknown, or if the request shows
// a part of it. called is the newest answer before. Beside other answers, an id that can recur proves nothing.
func (x *extension) missingAnswer(ctx context.Context, m *wire.MessageOutline, called []byte) []byte {
	var ids []string
	for _, span := range x.ResultIDs(x.dialect, m) {
		if !bytes.Contains(called, x.Raw(span)) {
			id, _ := x.Text(span)
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || x.answered && slices.ContainsFunc(ids, ledger.CanRecur) {
		return nil
	}
	n := x.calling(ctx, ids)
	if n == nil || n.Turn().Dialect != x.dialect || slices.ContainsFunc(n.ToolIDs(), x.shows) {
		return nil
	}
	return visible(n)
}

// shows reports whether an answer of the request has a call with this id.
func (x *extension) shows(id string) bool {
	quoted := wire.Quote(id)
	return slices.ContainsFunc(x.Messages, func(m wire.MessageOutline) bool {
		return isAnswer(m) && bytes.Contains(x.Body[m.Start:m.End], quoted)
	})
}

// completeAnswer returns the answer whose end the first message shows, if the request shows the results of all its calls.
func (x *extension) completeAnswer(ctx context.Context) []byte {
	first := &x.Messages[x.start]
	if !isAnswer(*first) {
		return nil
	}
	var ids []string
	for i := x.start + 1; i < len(x.Messages) && !isAnswer(x.Messages[i]); i++ {
		ids = append(ids, x.ids(i)...)
	}
	n := x.calling(ctx, ids)
	if n == nil || n.Turn().Dialect != x.dialect || !n.EndsWith(x.ledger.Form(x.Outline, first, x.dialect)) ||
		slices.ContainsFunc(n.ToolIDs(), func(id string) bool { return !slices.Contains(ids, id) }) {
		return nil
	}
	return visible(n)
}

// telling returns the branch that ends with a turn as messages separated by commas and without thinking. answered includes
// the turn's answer. It returns nil if the turn has no place or if part of the branch is in another dialect.
func telling(n *ledger.Node, d wire.Dialect, answered bool) []byte {
	if n == nil || n.Turn().Place == nil {
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
		for _, m := range slices.Backward(t.messages) {
			messages = append(messages, t.source.Turn().Place.Input[m.Start:m.End])
		}
	}
	slices.Reverse(messages)
	return bytes.Join(messages, []byte(","))
}
