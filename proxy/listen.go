package proxy

import (
	"context"

	"mneme/proxy/chatwire"
	"mneme/proxy/ledger"
	"mneme/proxy/responseswire"
	"mneme/proxy/thinking"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// listener hears an answer before the client gets it: it counts the tokens and
// records the turn.
type listener struct {
	*attempt
	tokens   usage.Reader
	observer *thinking.Observer             // nil for answers that are not recorded
	recorded bool                           // the answer is in the ledger
	empty    bool                           // the answer is complete and carries nothing
	items    []string                       // that are whole, of a stream that is passed to a client of Responses
	shows    *responseswire.ResponsesAnswer // makes what a client of Responses gets; nil for any other answer
	regular  chatwire.Regular               // of the chat dialect
}

// listen has the answer listened to, and recorded if the request leaves a trace.
func (a *attempt) listen() *listener {
	l := &listener{attempt: a}
	l.regular.KeepTags = a.backend.vendor == "openai" || a.backend.vendor == "azure"
	l.regular.Endings = !a.translated() // a translator into messages knows more reasons
	if a.replay != nil && !a.endpoint.counts {
		l.observer = thinking.NewObserver(a.backend.dialect, a.modelInfo.profile.ToolIDs.Recurring)
		if a.native != nil { // the client gets the vendor's answer, whatever the observer would change
			l.observer.KeepIDs()
		}
	}
	a.result.listener = l
	return l
}

// event hears an event of the messages dialect, and may change it: the client gets what comes of it. When it is the one
// that ends the answer, the turn is recorded first: the client's next request may be here before this one is over.
func (l *listener) event(ctx context.Context, e *wire.Event) {
	l.tokens.Event(e)
	if l.observer != nil {
		l.observer.Event(e)
		if l.observer.Complete() {
			l.record(ctx)
		}
	}
}

// readChunk returns the event of a chat backend, in OpenAI's format.
func (l *listener) readChunk(data []byte) (*wire.Chunk, error) {
	c, err := wire.ReadChunk(data)
	if err != nil {
		return c, err
	}
	return l.regular.Chunk(c)
}

// chunk is event for the chat dialect.
func (l *listener) chunk(ctx context.Context, c *wire.Chunk) []byte {
	l.tokens.Chunk(c)
	if l.observer == nil {
		return c.Body
	}
	data := l.observer.Chunk(c)
	if l.observer.Complete() {
		l.record(ctx)
	}
	return data
}

// message is event for an answer that came whole.
func (l *listener) message(ctx context.Context, body []byte) []byte {
	if l.observer != nil {
		defer l.record(ctx)
	}
	if l.backend.dialect == wire.Chat {
		c, err := l.readChunk(body)
		if err != nil {
			return body
		}
		return l.chunk(ctx, c)
	}
	o, err := wire.ReadMessage(body)
	if err != nil {
		return body
	}
	if l.tokens.Message(o); l.observer == nil {
		return body
	}
	return l.observer.Message(o)
}

// end says that the stream has ended by itself.
func (l *listener) end(ctx context.Context) {
	if l.observer != nil {
		l.observer.End()
		l.record(ctx)
	}
}

// cut records what came of an answer that broke off: a block that is whole may come
// back.
func (l *listener) cut(ctx context.Context) {
	if l.observer != nil && !l.answer.refused() {
		l.stored = nil // the client has not got the end of it
		l.record(ctx)
	}
}

// store keeps an answer as a stored response, as the client gets it and before it gets the last event.
func (l *listener) store(ctx context.Context, response []byte) {
	if l.observer != nil {
		l.stored.Body = response
		l.record(ctx)
	}
}

// record keeps the answer, once. One that is to be stored waits for the end of the response.
func (l *listener) record(ctx context.Context) {
	if l.recorded || l.stored != nil && l.stored.Body == nil {
		return
	}
	answer, ok := l.observer.Answer()
	if l.empty = answer.Empty(); !ok {
		return
	}
	l.recorded = true
	var place *ledger.Place
	if l.continued != nil && !answer.Cut && !l.passes {
		place = l.continued.Place()
	}
	answer.Response = l.stored
	l.replay.Register(ctx, l.doc, answer, place)
}
