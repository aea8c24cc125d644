package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// maxAnswer bounds an answer that is not streamed, in bytes.
const maxAnswer = 64 << 20

var errTooLong = errors.New("the backend's answer is longer than 64 MiB")

// reply gives the backend's answer to the client.
func reply(_ context.Context, x *Exchange) error {
	stream := isStream(x.resp.Header)
	switch status := x.resp.StatusCode; {
	case status >= 300 && status < 400:
		return wire.Failure{Status: 502, Message: fmt.Sprintf(
			"the backend %q answered with a redirection (%d): correct its base_url", x.backend.name, status)}
	case status >= 400:
		return x.replyError()
	case x.translated():
		return x.replyTranslated(stream)
	case stream:
		return x.passStream()
	}
	return x.passBody()
}

func isStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errTooLong
	}
	return b, err
}

// replyError passes a vendor's refusal: as it is to a client that speaks the
// vendor's dialect, since such clients go by its words, else with its message.
func (x *Exchange) replyError() error {
	body, err := readAll(x.resp.Body)
	if err != nil {
		return err
	}
	answerHeader(x.client.Header(), x.resp.Header)
	if !x.translated() {
		return x.client.whole(x.resp.StatusCode, body)
	}
	x.client.Header().Set("Content-Type", "application/json")
	return x.client.whole(x.resp.StatusCode, wire.ReadFailure(x.resp.StatusCode, body).Body(x.door.dialect))
}

// passBody hands on an answer of the door's own dialect.
func (x *Exchange) passBody() error {
	body, err := readAll(x.resp.Body)
	if err != nil {
		return err
	}
	answerHeader(x.client.Header(), x.resp.Header)
	return x.client.whole(x.resp.StatusCode, x.restoreModel(body, "model"))
}

// passStream hands on a stream of the door's own dialect, event by event.
func (x *Exchange) passStream() error {
	answerHeader(x.client.Header(), x.resp.Header)
	x.client.begin(x.resp.StatusCode)
	frames := wire.NewFrameReader(x.resp.Body)
	for ended := false; ; {
		frame, err := frames.Next()
		ended = ended || ends(x.door.dialect, frame.Data)
		switch {
		case err == io.EOF && !ended:
			return chatwire.ErrCut // what follows the last blank line would garble the error's event
		case err != nil && !ended:
			return err
		}
		if failure := x.client.write(x.restoreInFrame(frame), !frames.Buffered() || err != nil); failure != nil {
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
		kind := gjson.GetBytes(data, "type").Str
		return kind == wire.MessageStop || kind == wire.ErrorEvent
	}
	return string(data) == "[DONE]" || gjson.GetBytes(data, "choices.0.finish_reason").Str != "" ||
		gjson.GetBytes(data, "error").IsObject()
}

// restoreInFrame puts the client's name of the model into an event.
func (x *Exchange) restoreInFrame(f wire.Frame) []byte {
	path := "model"
	if x.door.dialect == wire.Messages {
		path = "message.model"
	}
	if x.model == x.head.Model || len(f.Data) == 0 {
		return f.Raw
	}
	restored := x.restoreModel(f.Data, path)
	return bytes.Replace(f.Raw, f.Data, restored, 1)
}

// restoreModel puts the client's name of the model where the backend shows its
// own, if the model was mapped.
func (x *Exchange) restoreModel(body []byte, path string) []byte {
	if x.model == x.head.Model {
		return body
	}
	shown := gjson.GetBytes(body, path)
	if shown.Type != gjson.String || shown.Index <= 0 {
		return body
	}
	return wire.Splice(body, wire.Span{Start: shown.Index, End: shown.Index + len(shown.Raw)}, wire.Quote(x.head.Model))
}

// translator is an answer on its way into the other dialect.
type translator interface {
	Event(dst, data []byte) ([]byte, error)
	Body(dst, body []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

// replyTranslated takes the answer as JSON or as a stream, whatever was asked
// for, and gives it as the client asked.
func (x *Exchange) replyTranslated(stream bool) error {
	var t translator = chatwire.NewMessagesAnswer(x.asked)
	if x.door.dialect == wire.Chat {
		t = chatwire.NewChatAnswer(x.asked, time.Now())
	}
	if !stream {
		return x.translateBody(t)
	}
	frames := wire.NewFrameReader(x.resp.Body)
	var out []byte
	ended := false
	for size := 0; ; {
		frame, err := frames.Next()
		ended = ended || ends(x.backend.dialect, frame.Data)
		if err != nil && err != io.EOF && !ended {
			return err
		}
		if size += len(frame.Raw); size > maxAnswer { // translation keeps parts of an answer
			return errTooLong
		}
		var failure error
		out, failure = t.Event(out[:0], frame.Data)
		switch {
		case failure != nil && err != nil:
			return chatwire.ErrCut // half an event
		case failure != nil:
			return failure
		case err != nil:
			return x.finishTranslated(t, out)
		}
		// A client that wants JSON gets nothing before the end.
		if len(out) > 0 {
			x.beginTranslated()
			if err := x.client.write(out, !frames.Buffered()); err != nil {
				return err
			}
		}
	}
}

func (x *Exchange) translateBody(t translator) error {
	body, err := readAll(x.resp.Body)
	if err != nil {
		return err
	}
	out, err := t.Body(nil, body)
	if err != nil {
		return err
	}
	return x.finishTranslated(t, out)
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
	answerHeader(x.client.Header(), x.resp.Header)
	kind := "application/json"
	if x.asked.Stream {
		kind = "text/event-stream"
	}
	x.client.Header().Set("Content-Type", kind)
	x.client.begin(http.StatusOK)
}
