package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// reply gives the backend's answer to the client.
func (l *listener) reply(ctx context.Context) error {
	a := l.answer
	if a.failed {
		l.tellRefusal()
	}
	switch {
	case a.status >= 300 && a.status < 400:
		return wire.Failure{Status: 502, Message: fmt.Sprintf(
			"the backend %q answered with a redirection (%d): correct its base_url", l.backend.name, a.status)}
	case a.status >= 400:
		return l.replyError()
	case a.stream != nil && l.native == nil && (l.translated() || l.answerOptions.AnswerTool != "" || a.vendor != nil ||
		!l.answerOptions.Stream): // some vendors stream unasked
		return l.replyTranslated(ctx)
	case a.stream != nil:
		return l.passStream(ctx)
	}
	body := a.content
	switch {
	case l.native != nil:
		l.hearWhole(ctx, body)
		body = l.restorePrevious(l.restoreModel(body, "model"), "previous_response_id")
		l.storeNative(ctx, body)
	case a.vendor != nil || l.translated() || l.answerOptions.Stream && l.answerOptions.AnswerTool != "":
		return l.translateBody(ctx)
	default:
		body = l.restoreModel(l.message(ctx, chatwire.NewFormat(l.answerOptions.AnswerTool).Body(body)), "model")
	}
	answerHeader(l.client.Header(), a.header)
	return l.client.writeBody(a.status, l.tellID(body, false))
}

// replyError passes a vendor's refusal: as it is to a client that speaks the
// vendor's dialect, since such clients go by its words, else with its message. A
// request that is too long is said in the words that clients of the dialect go by.
func (a *attempt) replyError() error {
	ans := a.answer
	answerHeader(a.client.Header(), ans.header)
	if !a.foreign() && (ans.length.Excess != thinking.OverWindow || ans.saysTooLong(a.endpoint.dialect)) {
		return a.client.writeBody(ans.status, ans.content)
	}
	a.client.Header().Set("Content-Type", "application/json")
	f := a.inOurWords(wire.ReadFailure(ans.status, ans.content), ans.length)
	return a.client.writeBody(f.Status, f.Body(a.endpoint.dialect))
}

// replyStream gives a stream to the client event by event. Take gives what the client gets of one, and whether the
// stream may end with it; end finishes a stream that is complete, however its connection ended.
func (l *listener) replyStream(ctx context.Context, take func(wire.Frame) ([]byte, bool, error), end func() error,
) error {
	for done := false; ; {
		frame, err := l.answer.next()
		out, final, failure := take(frame)
		done = done || final
		switch {
		case err != nil && !done && !errors.Is(err, io.EOF):
			return err
		case err != nil && (!done || failure != nil):
			return chatwire.ErrCut // what follows the last blank line would garble the error's event
		case failure != nil:
			return l.explained(failure, failedResponse(frame.Data))
		case err != nil:
			l.end(ctx)
		}
		if l.client.started { // also without output: what the last event said may wait for this one
			if err := l.client.write(out, err != nil || !l.answer.hasMore()); err != nil {
				return err
			}
		}
		if err != nil {
			return end()
		}
	}
}

// passStream hands on a stream of the vendor's own dialect.
func (l *listener) passStream(ctx context.Context) error {
	answerHeader(l.client.Header(), l.answer.header)
	l.client.begin(l.answer.status)
	hasID, events := false, int64(0)
	return l.replyStream(ctx, func(frame wire.Frame) ([]byte, bool, error) {
		if l.endpoint.dialect == wire.Responses && len(frame.Data) > 0 {
			if events++; events == 1 {
				firstEvent := bytes.Clone(frame.Data)
				l.result.fail = func(f wire.Failure) []byte { return responseswire.FailPassed(l.responses, firstEvent, events, f) }
			}
		}
		data, final, hidden := l.passed(ctx, frame.Data)
		if !hasID {
			size := len(data)
			data = l.tellID(data, true)
			hasID = len(data) > size
		}
		if hidden {
			return nil, final, nil
		}
		return l.restoreInFrame(frame, data), final, nil
	}, func() error { return nil })
}

// passed listens to an event that is passed on, and gives what the client gets of it, unless it is hidden from it. Ends
// says that the stream may end with it. What cannot be read passes as it is.
func (l *listener) passed(ctx context.Context, data []byte) (out []byte, final, hidden bool) {
	switch l.backend.speaks {
	case wire.Responses:
		return data, l.hearNative(ctx, data), false
	case wire.Messages:
		e, err := wire.ReadEvent(data)
		if err != nil {
			return data, false, false
		}
		l.event(ctx, &e)
		return e.Data, e.Type == wire.MessageStop || e.Type == wire.ErrorEvent, false
	}
	c, err := l.readChunk(data)
	if err != nil {
		return data, false, false
	}
	return l.chunk(ctx, c), c.IsFinal(), c.OnlyCounts() && l.answerOptions.Stream && !l.answerOptions.IncludeUsage
}

// restoreInFrame is an event with the client's name of the model, and with other
// data if that is to be shown.
func (x adaptedRequest) restoreInFrame(f wire.Frame, data []byte) []byte {
	path := "model"
	switch x.endpoint.dialect {
	case wire.Messages:
		path = "message.model"
	case wire.Responses:
		path = "response.model"
	}
	if len(f.Data) == 0 {
		if bytes.Contains(f.Raw, []byte("data:")) { // SDKs would parse the empty data as JSON
			return nil
		}
		return f.Raw
	}
	data = x.restoreModel(data, path)
	data = x.restorePrevious(data, "response.previous_response_id")
	if &data[0] == &f.Data[0] && len(data) == len(f.Data) {
		return f.Raw
	}
	return f.With(nil, data)
}

// restoreModel puts the client's name of the model where the backend shows its
// own, if the model was mapped.
func (x adaptedRequest) restoreModel(body []byte, path string) []byte {
	if x.answerOptions.Model == "" {
		return body
	}
	return restored(body, path, gjson.String, x.answerOptions.Model)
}

// restored is a body with a string of the client's in the place of what the backend shows of a type; body itself if it
// shows nothing of it.
func restored(body []byte, path string, kind gjson.Type, with string) []byte {
	value := gjson.GetBytes(body, path)
	if value.Type != kind || value.Index <= 0 {
		return body
	}
	return wire.Splice(body, wire.Span{Start: value.Index, End: value.Index + len(value.Raw)}, wire.Quote(with))
}

// translator writes an answer for the client: it appends to dst what that gets.
type translator interface {
	Event(dst []byte, e *wire.Event) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

func (l *listener) translator() translator {
	switch l.endpoint.dialect {
	case wire.Responses:
		t := responseswire.NewResponsesAnswer(l.responses, time.Now)
		l.result.fail = func(f wire.Failure) []byte { return t.Fail(nil, f) }
		l.shows = t
		return t
	case wire.Chat:
		return chatwire.NewChatAnswer(l.answerOptions, time.Now())
	}
	return chatwire.NewSameAnswer(l.answerOptions)
}

// translatedAnswer is an answer on its way into the client's dialect, through events of the messages dialect.
type translatedAnswer struct {
	*listener
	ctx      context.Context // of the call of frame or end
	target   translator
	chat     *chatwire.MessagesAnswer // of a chat backend; else nil
	format   *chatwire.Format
	unsealed wire.Unsealed

	formed, open []wire.Event // buffers
	out          []byte       // what the client gets
	err          error        // the first
}

func (l *listener) translatedAnswer(ctx context.Context) *translatedAnswer {
	t := &translatedAnswer{listener: l, ctx: ctx, target: l.translator(),
		format: chatwire.NewFormat(l.answerOptions.AnswerTool)}
	switch {
	case l.backend.dialect == wire.Chat: // it was listened to before
		t.chat = chatwire.NewMessagesAnswer(l.answerOptions, t.show)
	case l.answer.vendor != nil:
		l.answer.vendor.SetSink(t.hear)
	}
	return t
}

// frame takes an event of the vendor's. Ends says that the stream may end with it.
func (t *translatedAnswer) frame(data []byte) (final bool, err error) {
	switch vendor := t.answer.vendor; {
	case vendor != nil: // what ends the answer comes with the event that does at the vendor's
		done := vendor.Complete()
		if err = vendor.Event(data); err == nil && !done && vendor.Complete() {
			err = vendor.End()
		}
		return vendor.Complete(), err
	case t.chat != nil:
		c, err := t.readChunk(data)
		if err != nil {
			return false, err
		}
		if data := t.chunk(t.ctx, c); len(data) > 0 && &data[0] != &c.Body[0] { // ids of calls were changed
			if c, err = wire.ReadChunk(data); err != nil {
				return false, err
			}
		}
		return c.IsFinal(), t.chat.Event(c)
	}
	e, err := wire.ReadEvent(data)
	if err == nil && e.Type == wire.ErrorEvent {
		err = wire.ReadFailure(0, data)
	}
	if err == nil {
		t.hear(&e)
	}
	return e.Type == wire.MessageStop || e.Delta.StopReason != "", err
}

// hear listens to an event in the form that the client is shown.
func (t *translatedAnswer) hear(e *wire.Event) {
	t.formed = t.format.Event(t.formed[:0], *e)
	for i := range t.formed {
		t.event(t.ctx, &t.formed[i])
		t.show(&t.formed[i])
	}
}

// show gives the client an event that was listened to.
func (t *translatedAnswer) show(e *wire.Event) {
	t.open = append(t.open[:0], *e)
	if t.answer.vendor != nil {
		t.open = t.unsealed.Event(t.open[:0], *e)
	}
	for i := range t.open {
		if t.err == nil {
			t.out, t.err = t.target.Event(t.out, &t.open[i])
		}
	}
}

// replyTranslated takes the answer as JSON or as a stream, whatever was asked
// for, and gives it as the client asked.
func (l *listener) replyTranslated(ctx context.Context) error {
	t, size := l.translatedAnswer(ctx), 0
	return l.replyStream(ctx, func(frame wire.Frame) ([]byte, bool, error) {
		if size += len(frame.Raw); size > maxAnswer { // translation keeps parts of an answer
			return nil, false, errTooLong
		}
		t.out = t.out[:0]
		final, err := t.frame(frame.Data)
		if len(t.out) > 0 { // a client that wants JSON gets nothing before the end
			t.out = l.beginTranslated(t.out)
		}
		return t.out, final, cmp.Or(err, t.err)
	}, func() error {
		t.out = t.out[:0]
		return t.end()
	})
}

// translateBody gives an answer that came as one JSON body as the events that a stream would have had.
func (l *listener) translateBody(ctx context.Context) error {
	t := l.translatedAnswer(ctx)
	if err := cmp.Or(t.body(), t.err); err != nil {
		return l.explained(err, failedResponse(l.answer.content))
	}
	return t.end()
}

func (t *translatedAnswer) body() error {
	if t.answer.vendor != nil {
		return t.answer.readResponse(t.answer.content)
	}
	if t.chat != nil {
		_, err := t.frame(t.answer.content)
		return err
	}
	events, err := wire.ReadEvents(t.message(t.ctx, t.format.Body(t.answer.content)))
	for i := range events {
		t.show(&events[i])
	}
	return err
}

// end finishes the answer.
func (t *translatedAnswer) end() error {
	if t.chat != nil {
		if err := cmp.Or(t.chat.End(), t.err); err != nil {
			return err
		}
	}
	out, err := t.target.End(t.out)
	if err != nil {
		return err
	}
	if t.stored != nil {
		t.store(t.ctx, t.shows.Response())
	}
	return t.client.write(t.beginTranslated(out), true)
}

// beginTranslated writes the header of the answer, the first time; out is what follows.
func (l *listener) beginTranslated(out []byte) []byte {
	if l.client.started {
		return out
	}
	answerHeader(l.client.Header(), l.answer.header)
	kind := "application/json"
	if l.answerOptions.Stream {
		kind = "text/event-stream"
	}
	l.client.Header().Set("Content-Type", kind)
	l.client.begin(http.StatusOK)
	l.client.ping(l.endpoint.dialect)
	return l.tellID(out, l.answerOptions.Stream)
}
