package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

// A backend of Responses is one of the messages dialect for all that holds requests and answers: the ledger, what
// becomes of thinking, the last hop's rules. Its own dialect is spoken in two places only: attempt.spoken writes the
// request, and what is here reads the answer.

// failedResponse is the error in what says that a response failed, in the shape of an error that comes with a status;
// data itself if it is something else.
func failedResponse(data []byte) []byte {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return data // most answers and events are long and no errors
	}
	if gjson.GetBytes(data, "type").Str == "response.failed" {
		if said := gjson.GetBytes(data, "response.error"); said.IsObject() || said.Str != "" {
			return []byte(`{"error":` + said.Raw + `}`)
		}
	}
	said := gjson.GetBytes(data, "error")
	if gjson.GetBytes(data, "object").Str == "response" && (said.IsObject() || said.Str != "") {
		return []byte(`{"error":` + said.Raw + `}`)
	}
	// Some have the members of an error's event in the event itself.
	if gjson.GetBytes(data, "type").Str == "error" && !gjson.GetBytes(data, "error").Exists() {
		return []byte(`{"error":` + string(data) + `}`)
	}
	return data
}

// held puts an answer that came whole into the messages dialect.
func (a *answer) held() error {
	if a.refused() {
		a.whole = failedResponse(a.whole)
		return nil
	}
	if a.stream != nil {
		return nil
	}
	out, err := a.vendor.Body(nil, a.whole)
	if err == nil {
		out, err = a.vendor.End(out)
	}
	a.raw, a.whole = a.whole, out
	return err
}

// heard appends to dst the events of the messages dialect that a vendor's event amounts to. What ends the answer
// comes with the event that does at the vendor's.
func (a *answer) heard(dst, data []byte) ([]byte, error) {
	done := a.vendor.Complete()
	dst, err := a.vendor.Event(dst, data)
	if err == nil && !done && a.vendor.Complete() {
		dst, err = a.vendor.End(dst)
	}
	return dst, err
}

// nextHeard is next for a stream of Responses: its next event in the messages dialect.
func (a *answer) nextHeard() (wire.Frame, error) {
	for len(a.events) == 0 {
		f, err := a.nextRaw()
		if err != nil {
			return wire.Frame{}, err
		}
		var failure error
		if a.events, failure = a.heard(a.events[:0], f.Data); failure != nil {
			said := new(wire.Failure)
			if !errors.As(failure, said) {
				return wire.Frame{}, failure
			}
			a.events = append(a.events, said.Frame(wire.Messages)...)
		}
	}
	data, rest := wire.CutFrame(a.events)
	raw := a.events[:len(a.events)-len(rest)]
	a.events = rest
	return wire.Frame{Raw: raw, Data: data}, nil
}

// replyNative gives a client of Responses the answer of a vendor that speaks it, as it came. What is listened to is its
// translation.
func (l *listener) replyNative(ctx context.Context) error {
	answerHeader(l.client.Header(), l.answer.header)
	if l.answer.stream == nil {
		l.message(ctx, l.answer.whole)
		body := l.restorePrevious(l.restoreModel(l.answer.raw, "model"), "previous_response_id")
		l.storeNative(ctx, body)
		return l.client.whole(l.answer.status, l.tellID(body, false))
	}
	l.client.begin(l.answer.status)
	var items []string // that are whole
	for ended, told := false, false; ; {
		frame, err := l.answer.nextRaw()
		kind := wire.EventType(frame.Data)
		ended = ended || endsResponse(kind) || string(frame.Data) == "[DONE]"
		switch {
		case errors.Is(err, io.EOF) && !ended:
			return chatwire.ErrCut
		case err != nil && !ended:
			return err
		}
		switch kind {
		case "response.output_item.done":
			items = append(items, gjson.GetBytes(frame.Data, "item").Raw)
		case "response.completed", "response.incomplete":
			at := gjson.GetBytes(frame.Data, "response")
			response := frame.Data[at.Index : at.Index+len(at.Raw)]
			l.hear(ctx, response, items)
			if l.stored != nil && l.answer.vendor.Complete() {
				response = l.restorePrevious(l.restoreModel(response, "model"), "previous_response_id")
				l.storeNative(ctx, response)
			}
		}
		data := frame.Data
		if !told {
			data = l.tellID(data, true)
			told = len(data) > len(frame.Data)
		}
		shown := l.restoreInFrame(frame, data)
		if failure := l.client.write(shown, err != nil || !l.answer.more()); failure != nil {
			return failure
		}
		if err != nil { // the answer is complete, however the connection ended
			return nil
		}
	}
}

// restorePrevious puts the response that a request goes on from where the vendor, which was not told, shows none.
func (x asked) restorePrevious(body []byte, path string) []byte {
	if x.previous == "" {
		return body
	}
	return restored(body, path, gjson.Null, x.previous)
}

// storeNative keeps a response as its vendor gave it, under the vendor's id, before the client gets the end of it.
func (l *listener) storeNative(ctx context.Context, response []byte) {
	if l.stored == nil || l.stored.Body != nil {
		return
	}
	if l.stored.ID = gjson.GetBytes(response, "id").Str; l.stored.ID == "" {
		l.stored = nil
		l.record(ctx)
		return
	}
	l.store(ctx, bytes.Clone(response)) // a frame's memory is used again, and a body's may be larger than it
}

// hear listens to a stream that has come to its end, as one answer: its last event has all of it. Of vendors that
// leave the items out there, those count that came before. What cannot be understood is the client's to judge.
func (l *listener) hear(ctx context.Context, body []byte, items []string) {
	if int(gjson.GetBytes(body, "output.#").Int()) < len(items) {
		if at, err := wire.Members(body, "output"); err == nil && at[0].Found() {
			body = wire.Splice(body, at[0], []byte("["+strings.Join(items, ",")+"]"))
		}
	}
	out, err := l.answer.vendor.Body(nil, body)
	if err == nil {
		if out, err = l.answer.vendor.End(out); err == nil {
			l.message(ctx, out)
		}
	}
}

// beginsResponse reports whether an event says that an answer will come, and nothing of it.
func beginsResponse(data []byte) bool {
	switch wire.EventType(data) {
	case "response.created", "response.in_progress", "response.queued":
		return true
	}
	return false
}

// endsResponse reports whether an event of a type is one after which a stream of Responses may end.
func endsResponse(kind string) bool {
	switch kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", wire.ErrorEvent:
		return true
	}
	return false
}

// unsealed is chatwire.SameAnswer for an answer that holds what only the gateway reads.
type unsealed struct {
	*chatwire.SameAnswer
	responseswire.Unsealed
}

func (u *unsealed) Event(dst, data []byte) (_ []byte, err error) {
	first, then := u.Unsealed.Event(data)
	for _, e := range [][]byte{first, then} {
		if e != nil && err == nil {
			dst, err = u.SameAnswer.Event(dst, e)
		}
	}
	return dst, err
}

func (u *unsealed) Body(dst, body []byte) ([]byte, error) {
	return u.SameAnswer.Body(dst, u.Unsealed.Body(body))
}
