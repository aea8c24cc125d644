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
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// reply gives the backend's answer to the client.
func reply(ctx context.Context, x *Exchange) error {
	a := x.answer
	if a.failed {
		x.tellRefusal()
	}
	switch {
	case a.status >= 300 && a.status < 400:
		return wire.Failure{Status: 502, Message: fmt.Sprintf(
			"the backend %q answered with a redirection (%d): correct its base_url", x.backend.name, a.status)}
	case a.status >= 400:
		return x.replyError()
	case x.translated():
		return x.replyTranslated(ctx)
	case a.frames != nil:
		return x.passStream(ctx)
	}
	return x.passBody(ctx)
}

// replyError passes a vendor's refusal: as it is to a client that speaks the
// vendor's dialect, since such clients go by its words, else with its message. A
// request that is too long is said in the words that clients of the dialect go by.
func (x *Exchange) replyError() error {
	a := x.answer
	answerHeader(x.client.Header(), a.header)
	if !x.translated() && (a.length.Excess != thinking.OverWindow || a.saysTooLong(x.endpoint.dialect)) {
		return x.client.whole(a.status, a.whole)
	}
	x.client.Header().Set("Content-Type", "application/json")
	f := x.inOurWords(wire.ReadFailure(a.status, a.whole), a.length)
	return x.client.whole(f.Status, f.Body(x.endpoint.dialect))
}

// passBody hands on an answer of the endpoint's own dialect.
func (x *Exchange) passBody(ctx context.Context) error {
	body := x.hearBody(ctx)
	answerHeader(x.client.Header(), x.answer.header)
	return x.client.whole(x.answer.status, x.restoreModel(body, "model"))
}

// passStream hands on a stream of the endpoint's own dialect, event by event.
func (x *Exchange) passStream(ctx context.Context) error {
	answerHeader(x.client.Header(), x.answer.header)
	x.client.begin(x.answer.status)
	asked := x.in.outline
	unasked := x.endpoint.dialect == wire.Chat && asked.Stream && !sanitize.AsksUsage(asked)
	for ended := false; ; {
		frame, err := x.answer.next()
		ended = ended || ends(x.endpoint.dialect, frame.Data)
		switch {
		case errors.Is(err, io.EOF) && !ended:
			return chatwire.ErrCut // what follows the last blank line would garble the error's event
		case err != nil && !ended:
			return err
		}
		shown := x.restoreInFrame(frame, x.hear(ctx, frame.Data))
		if unasked && onlyUsage(frame.Data) {
			shown = nil
		}
		if err != nil {
			x.heardAll(ctx)
		}
		if failure := x.client.write(shown, err != nil || !x.answer.frames.More()); failure != nil {
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
		gjson.GetBytes(data, "error").IsObject()
}

// onlyUsage reports whether an event of a chat stream is the one that has counts and nothing else.
func onlyUsage(data []byte) bool {
	return bytes.Contains(data, []byte(`"usage"`)) && gjson.GetBytes(data, "usage").IsObject() &&
		gjson.GetBytes(data, "choices.#").Raw == "0"
}

// restoreInFrame is an event with the client's name of the model, and with other
// data if that is to be shown.
func (x *Exchange) restoreInFrame(f wire.Frame, data []byte) []byte {
	path := "model"
	if x.endpoint.dialect == wire.Messages {
		path = "message.model"
	}
	if len(f.Data) == 0 {
		return f.Raw
	}
	data = x.restoreModel(data, path)
	if &data[0] == &f.Data[0] && len(data) == len(f.Data) {
		return f.Raw
	}
	return f.With(nil, data)
}

// restoreModel puts the client's name of the model where the backend shows its
// own, if the model was mapped.
func (x *Exchange) restoreModel(body []byte, path string) []byte {
	if x.model == x.in.outline.Model {
		return body
	}
	shown := gjson.GetBytes(body, path)
	if shown.Type != gjson.String || shown.Index <= 0 {
		return body
	}
	return wire.Splice(body, wire.Span{Start: shown.Index, End: shown.Index + len(shown.Raw)},
		wire.Quote(x.in.outline.Model))
}

// translator is an answer on its way into the other dialect.
type translator interface {
	Event(dst, data []byte) ([]byte, error)
	Body(dst, body []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

// replyTranslated takes the answer as JSON or as a stream, whatever was asked
// for, and gives it as the client asked.
func (x *Exchange) replyTranslated(ctx context.Context) error {
	var t translator = chatwire.NewMessagesAnswer(x.shown)
	if x.endpoint.dialect == wire.Chat {
		t = chatwire.NewChatAnswer(x.shown, time.Now())
	}
	format := chatwire.NewFormat(x.shown.AnswerTool)
	if x.answer.frames == nil {
		x.answer.whole = format.Body(x.answer.whole)
		out, err := t.Body(nil, x.hearBody(ctx))
		if err != nil {
			return x.explained(err, x.answer.whole)
		}
		return x.finishTranslated(t, out)
	}
	var out []byte
	var events [][]byte
	ended := false
	for size := 0; ; {
		frame, err := x.answer.next()
		ended = ended || ends(x.backend.dialect, frame.Data)
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
				out, failure = t.Event(out, x.hear(ctx, data))
			}
		}
		switch {
		case failure != nil && err != nil:
			return chatwire.ErrCut // half an event
		case failure != nil:
			return x.explained(failure, frame.Data)
		case err != nil:
			x.heardAll(ctx)
			return x.finishTranslated(t, out)
		}
		// A client that wants JSON gets nothing before the end.
		if len(out) > 0 {
			x.beginTranslated()
		}
		if x.client.begun {
			// Without output too: what the last event said may wait for this one.
			if err := x.client.write(out, !x.answer.frames.More()); err != nil {
				return err
			}
		}
	}
}

func (x *Exchange) finishTranslated(t translator, out []byte) error {
	out, err := t.End(out)
	if err != nil {
		return err
	}
	x.beginTranslated()
	return x.client.write(out, true)
}

// beginTranslated writes the head of the answer, the first time.
func (x *Exchange) beginTranslated() {
	if x.client.begun {
		return
	}
	answerHeader(x.client.Header(), x.answer.header)
	kind := "application/json"
	if x.shown.Stream {
		kind = "text/event-stream"
	}
	x.client.Header().Set("Content-Type", kind)
	x.client.begin(http.StatusOK)
	x.client.ping(x.endpoint.dialect)
}
