package proxy

import (
	"bytes"
	"cmp"
	"context"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// A backend of Responses is one of the messages dialect for all that holds requests and answers: the ledger, what
// becomes of thinking, the last hop's rules. Its own dialect is spoken in two places only: attempt.vendorBody writes the
// request, and what is here reads the answer.

// failedResponse is the error in what says that a response failed, in the shape of an error that comes with a status;
// data itself if it is something else.
func failedResponse(data []byte) []byte {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return data // most answers and events are long and no errors
	}
	if gjson.GetBytes(data, "type").Str == "response.failed" {
		if errObject := gjson.GetBytes(data, "response.error"); errObject.IsObject() || errObject.Str != "" {
			return []byte(`{"error":` + errObject.Raw + `}`)
		}
	}
	errObject := gjson.GetBytes(data, "error")
	if gjson.GetBytes(data, "object").Str == "response" && (errObject.IsObject() || errObject.Str != "") {
		return []byte(`{"error":` + errObject.Raw + `}`)
	}
	// Some have the members of an error's event in the event itself.
	if gjson.GetBytes(data, "type").Str == "error" && !gjson.GetBytes(data, "error").Exists() {
		return []byte(`{"error":` + string(data) + `}`)
	}
	return data
}

// failedInteraction is the error of an interaction that failed, in the shape of an error that comes with a status; body
// itself if it is something else.
func failedInteraction(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"errors"`)) || gjson.GetBytes(body, "status").Str != "failed" {
		return body
	}
	return []byte(`{"error":` + cmp.Or(gjson.GetBytes(body, "errors.0").Raw, `"the interaction failed"`) + `}`)
}

// readResponse takes a response that is whole.
func (a *answer) readResponse(response []byte) error {
	if err := a.vendor.Body(response); err != nil {
		return err
	}
	return a.vendor.End()
}

// hearNative listens to an event of a vendor's own answer, which a client of Responses gets as it is. What is listened to
// is its translation.
func (l *listener) hearNative(ctx context.Context, data []byte) (final bool) {
	kind := wire.EventType(data)
	switch kind {
	case "response.output_item.done":
		l.items = append(l.items, gjson.GetBytes(data, "item").Raw)
	case "response.completed", "response.incomplete":
		value := gjson.GetBytes(data, "response")
		response := data[value.Index : value.Index+len(value.Raw)]
		l.hearWhole(ctx, response)
		if l.stored != nil && l.answer.vendor.Complete() {
			response = l.restorePrevious(l.restoreModel(response, "model"), "previous_response_id")
			l.storeNative(ctx, response)
		}
	}
	return endsResponse(kind) || string(data) == "[DONE]"
}

// restorePrevious puts the response that a request goes on from where the vendor, which was not told, shows none.
func (x adaptedRequest) restorePrevious(body []byte, path string) []byte {
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

// hearWhole listens to a stream that has come to its end, as one answer: its last event has all of it. Of vendors that
// leave the items out there, those count that came before. What cannot be understood is the client's to judge.
func (l *listener) hearWhole(ctx context.Context, body []byte) {
	if len(l.items) > 0 && int(gjson.GetBytes(body, "output.#").Int()) < len(l.items) {
		if spans, err := wire.Members(body, "output"); err == nil && spans[0].Exists() {
			body = wire.Splice(body, spans[0], []byte("["+strings.Join(l.items, ",")+"]"))
		}
	}
	l.answer.vendor.SetSink(func(e *wire.Event) { l.event(ctx, e) })
	_ = l.answer.readResponse(body)
}

// beginsResponse reports whether an event of Responses or Interactions says that an answer will come, and nothing of it.
func beginsResponse(data []byte) bool {
	switch cmp.Or(wire.EventType(data), gjson.GetBytes(data, "event_type").Str) {
	case "interaction.created", "interaction.status_update", "response.created", "response.in_progress", "response.queued":
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
