package proxy

import (
	"bytes"
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
	case l.native != nil:
		return l.replyNative(ctx)
	case l.translated(), l.shown.AnswerTool != "", l.answer.vendor != nil:
		return l.replyTranslated(ctx)
	case a.stream != nil:
		return l.passStream(ctx)
	}
	body := l.message(ctx, a.whole)
	answerHeader(l.client.Header(), a.header)
	return l.client.whole(a.status, l.tellID(l.restoreModel(body, "model"), false))
}

// replyError passes a vendor's refusal: as it is to a client that speaks the
// vendor's dialect, since such clients go by its words, else with its message. A
// request that is too long is said in the words that clients of the dialect go by.
func (a *attempt) replyError() error {
	said := a.answer
	answerHeader(a.client.Header(), said.header)
	if !a.foreign() && (said.length.Excess != thinking.OverWindow || said.saysTooLong(a.endpoint.dialect)) {
		return a.client.whole(said.status, said.whole)
	}
	a.client.Header().Set("Content-Type", "application/json")
	f := a.inOurWords(wire.ReadFailure(said.status, said.whole), said.length)
	return a.client.whole(f.Status, f.Body(a.endpoint.dialect))
}

// passStream hands on a stream of the endpoint's own dialect, event by event.
func (l *listener) passStream(ctx context.Context) error {
	answerHeader(l.client.Header(), l.answer.header)
	l.client.begin(l.answer.status)
	unasked := l.endpoint.dialect == wire.Chat && l.shown.Stream && !l.shown.IncludeUsage
	for ended, told := false, false; ; {
		frame, err := l.answer.next()
		ended = ended || ends(l.endpoint.dialect, frame.Data)
		switch {
		case errors.Is(err, io.EOF) && !ended:
			return chatwire.ErrCut // what follows the last blank line would garble the error's event
		case err != nil && !ended:
			return err
		}
		data := l.event(ctx, frame.Data)
		if !told {
			without := len(data)
			data = l.tellID(data, true)
			told = len(data) > without
		}
		shown := l.restoreInFrame(frame, data)
		if unasked && onlyUsage(frame.Data) {
			shown = nil
		}
		if err != nil {
			l.end(ctx)
		}
		if failure := l.client.write(shown, err != nil || !l.answer.more()); failure != nil {
			return failure
		}
		if err != nil { // the answer is complete, however the connection ended
			return nil
		}
	}
}

// ends reports whether an event is one after which a stream may end.
func ends(d wire.Dialect, data []byte) bool {
	if d == wire.Messages {
		kind := wire.EventType(data)
		return kind == wire.MessageStop || kind == wire.ErrorEvent
	}
	return string(data) == "[DONE]" || gjson.GetBytes(data, "choices.0.finish_reason").Str != "" ||
		bytes.Contains(data, []byte(`"error"`)) && gjson.GetBytes(data, "error").IsObject()
}

// onlyUsage reports whether an event of a chat stream is the one that has counts and nothing else.
func onlyUsage(data []byte) bool {
	return bytes.Contains(data, []byte(`"usage"`)) && gjson.GetBytes(data, "usage").IsObject() &&
		gjson.GetBytes(data, "choices.#").Raw == "0"
}

// restoreInFrame is an event with the client's name of the model, and with other
// data if that is to be shown.
func (x asked) restoreInFrame(f wire.Frame, data []byte) []byte {
	path := "model"
	switch x.endpoint.dialect {
	case wire.Messages:
		path = "message.model"
	case wire.Responses:
		path = "response.model"
	}
	if len(f.Data) == 0 {
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
func (x asked) restoreModel(body []byte, path string) []byte {
	if x.shown.Model == "" {
		return body
	}
	return restored(body, path, gjson.String, x.shown.Model)
}

// restored is a body with a string of the client's in the place of what the backend shows of a type; body itself if it
// shows nothing of it.
func restored(body []byte, path string, of gjson.Type, with string) []byte {
	shown := gjson.GetBytes(body, path)
	if shown.Type != of || shown.Index <= 0 {
		return body
	}
	return wire.Splice(body, wire.Span{Start: shown.Index, End: shown.Index + len(shown.Raw)}, wire.Quote(with))
}

// translator is an answer on its way into the other dialect.
type translator interface {
	Event(dst, data []byte) ([]byte, error)
	Body(dst, body []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

func (l *listener) translator() translator {
	switch {
	case !l.translated() && l.answer.vendor != nil:
		return &unsealed{SameAnswer: chatwire.NewSameAnswer(l.shown)}
	case !l.translated():
		return chatwire.NewSameAnswer(l.shown)
	case l.endpoint.dialect == wire.Responses:
		t := responseswire.NewResponsesAnswer(l.responses, time.Now)
		l.result.fail = func(f wire.Failure) []byte { return t.Fail(nil, f) }
		l.shows = t
		if l.backend.dialect == wire.Messages {
			return t
		}
		shown := l.shown
		shown.Stream = true
		return &chain{first: chatwire.NewMessagesAnswer(shown), second: t}
	case l.endpoint.dialect == wire.Chat:
		return chatwire.NewChatAnswer(l.shown, time.Now())
	}
	return chatwire.NewMessagesAnswer(l.shown)
}

// chain is an answer that passes through the messages dialect: what the first gives as a stream, the second takes.
type chain struct {
	first, second translator
	between       []byte
}

func (c *chain) Event(dst, data []byte) ([]byte, error) {
	out, err := c.first.Event(c.between[:0], data)
	return c.pass(dst, out, err)
}

func (c *chain) Body(dst, body []byte) ([]byte, error) {
	out, err := c.first.Body(c.between[:0], body)
	return c.pass(dst, out, err)
}

func (c *chain) End(dst []byte) ([]byte, error) {
	out, err := c.first.End(c.between[:0])
	if dst, err = c.pass(dst, out, err); err != nil {
		return dst, err
	}
	return c.second.End(dst)
}

func (c *chain) pass(dst, out []byte, err error) ([]byte, error) {
	c.between = out
	for err == nil && len(out) > 0 {
		var data []byte
		data, out = wire.CutFrame(out)
		dst, err = c.second.Event(dst, data)
	}
	return dst, err
}

// replyTranslated takes the answer as JSON or as a stream, whatever was asked
// for, and gives it as the client asked.
func (l *listener) replyTranslated(ctx context.Context) error {
	t := l.translator()
	format := chatwire.NewFormat(l.shown.AnswerTool)
	if l.answer.stream == nil {
		body := format.Body(l.answer.whole)
		out, err := t.Body(nil, l.message(ctx, body))
		if err != nil {
			return l.explained(err, body)
		}
		return l.finishTranslated(ctx, t, out)
	}
	var out []byte
	var events [][]byte
	ended := false
	for size := 0; ; {
		frame, err := l.answer.next()
		ended = ended || ends(l.backend.dialect, frame.Data)
		if err != nil && !errors.Is(err, io.EOF) && !ended {
			return err
		}
		if size += len(frame.Raw); size > maxAnswer { // translation keeps parts of an answer
			return errTooLong
		}
		var failure error
		out, events = out[:0], format.Event(events[:0], frame.Data)
		for _, data := range events {
			if failure == nil {
				out, failure = t.Event(out, l.event(ctx, data))
			}
		}
		switch {
		case failure != nil && err != nil:
			return chatwire.ErrCut // half an event
		case failure != nil:
			return l.explained(failure, frame.Data)
		case err != nil:
			l.end(ctx)
			return l.finishTranslated(ctx, t, out)
		}
		// A client that wants JSON gets nothing before the end.
		if len(out) > 0 {
			out = l.beginTranslated(out)
		}
		if l.client.begun {
			// Without output too: what the last event said may wait for this one.
			if err := l.client.write(out, !l.answer.more()); err != nil {
				return err
			}
		}
	}
}

func (l *listener) finishTranslated(ctx context.Context, t translator, out []byte) error {
	out, err := t.End(out)
	if err != nil {
		return err
	}
	if l.stored != nil {
		l.store(ctx, l.shows.Response())
	}
	return l.client.write(l.beginTranslated(out), true)
}

// beginTranslated writes the header of the answer, the first time; out is what follows.
func (l *listener) beginTranslated(out []byte) []byte {
	if l.client.begun {
		return out
	}
	answerHeader(l.client.Header(), l.answer.header)
	kind := "application/json"
	if l.shown.Stream {
		kind = "text/event-stream"
	}
	l.client.Header().Set("Content-Type", kind)
	l.client.begin(http.StatusOK)
	l.client.ping(l.endpoint.dialect)
	return l.tellID(out, l.shown.Stream)
}
