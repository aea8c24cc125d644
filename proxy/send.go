package proxy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"mneme/access"
	"mneme/proxy/chatwire"
	"mneme/proxy/interactionswire"
	"mneme/proxy/responseswire"
	"mneme/proxy/sanitize"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// errSentBefore is of an attempt that is equal to one before it, and not sent.
var errSentBefore = errors.New("the same request was sent and refused before")

// sentCall is the part of a call that cures can change.
type sentCall struct {
	body  []byte
	betas string
}

// send calls the backend and takes the beginning of its answer.
func (a *attempt) send(ctx context.Context, header http.Header) error {
	body, err := a.vendorBody()
	if err != nil {
		return errUnfit{err}
	}
	if err := a.reserve(ctx, body); err != nil {
		return err
	}
	call := wire.Call{
		Dialect: a.backend.speaks, Path: a.endpoint.path[a.backend.speaks], Header: header,
		Body: body, Stream: a.doc.Stream, Model: a.model, Tenant: access.FromContext(ctx).Tenant.String(),
		NoRetry: a.backend.noRetry, Quick: a.result.others, Until: a.result.until, Tries: new(int),
	}
	if !a.foreign() && a.in.query != "" {
		call.Path += "?" + a.in.query
	}
	betas := strings.Join(header["Anthropic-Beta"], ",")
	if slices.ContainsFunc(a.result.sentCalls, func(s sentCall) bool {
		return s.betas == betas &&
			bytes.Equal(s.body, body)
	}) {
		return errSentBefore
	}
	a.result.sentCalls = append(a.result.sentCalls, sentCall{body, betas})
	retry, err := a.call(ctx, call)
	if retry && !call.NoRetry && ctx.Err() == nil {
		_, err = a.call(ctx, call)
	}
	if err != nil || a.backend.speaks == a.backend.dialect {
		return err
	}
	if a.backend.speaks == wire.Interactions {
		a.answer.vendor = interactionswire.NewMessagesAnswer()
		return nil
	}
	a.answer.vendor = responseswire.NewMessagesAnswer(chatwire.AnswerOptions{}).Keep(a.native != nil)
	if a.answer.refused() {
		a.answer.content = failedResponse(a.answer.content)
	}
	return nil
}

// call sends a call and reads the beginning of the answer, or all of one that is no stream; again: such a one broke
// off, which may not happen twice.
func (a *attempt) call(ctx context.Context, call wire.Call) (retry bool, err error) {
	waited := &a.result.waited
	began := time.Now()
	*call.Tries = 0
	resp, err := a.backend.Send(a.inConversation(ctx), call)
	waited.firstByte = time.Since(began)
	waited.total += waited.firstByte
	if *call.Tries == 0 && !errors.Is(err, upstream.ErrOpen) { // a backend that does not count has no tries
		*call.Tries = 1
	}
	a.result.attempts += *call.Tries
	if err != nil {
		return false, err
	}
	a.answer, err = readHead(resp, &waited.total, hider{a.backend.secrets, a.in.header, quotedNames(a.toolNames)})
	return errors.Is(err, upstream.ErrBroken), err
}

// include is the member of a request of Responses by which encrypted reasoning is asked for. Models that do not reason
// refuse it.
const include = "include"

// vendorBody is the request in the dialect that the vendor speaks.
func (a *attempt) vendorBody() (body []byte, err error) {
	switch a.backend.speaks {
	case a.backend.dialect:
		return a.doc.Body, nil
	case wire.Interactions:
		var t chatwire.Translated
		t, err = interactionswire.InteractionsRequest(a.doc.Body)
		a.ignore(t)
		body = t.Body
	default:
		body, err = a.fittedResponses()
	}
	if err != nil {
		return nil, err
	}
	body, changes := sanitize.LeaveOut(body, a.rules)
	a.changes = append(a.changes, changes...)
	return body, nil
}

// fittedResponses is the request in the dialect of Responses, with what blocks cannot say.
func (a *attempt) fittedResponses() ([]byte, error) {
	body, err := a.asResponses()
	if err != nil {
		return nil, err
	}
	// Of a model that is known not to reason there is nothing to ask for.
	if modes := a.fitting.Thinking.Modes; a.native != nil && !a.leavesInclude && (modes == nil || len(modes) > 0) {
		encrypted, err := responseswire.WithEncrypted(body)
		if err != nil {
			return nil, err
		}
		a.asksReasoning, body = len(encrypted) > len(body), encrypted
	}
	bare := slices.ContainsFunc(a.cures, func(c *cure) bool { return c.bare })
	for _, change := range []struct {
		enabled bool
		apply   func(*wire.Outline) []byte
	}{
		{a.leavesInclude, responseswire.WithoutEncrypted},
		{bare || a.fitting.Replay.Paired, func(o *wire.Outline) []byte { return responseswire.WithoutIDs(o, bare) }},
		{a.fitting.Replay.Reasoning == sanitize.Always, responseswire.WithReasoning},
	} {
		if !change.enabled {
			continue
		}
		o, err := wire.ReadOutline(body)
		if err != nil {
			return nil, err
		}
		body = change.apply(o)
	}
	return body, nil
}

func (a *attempt) asResponses() ([]byte, error) {
	if a.native == nil {
		t, err := responseswire.ResponsesRequest(a.doc.Body, chatwire.Options{})
		a.ignore(t)
		return t.Body, err
	}
	return a.native.Request(a.doc.Body, a.toolNames)
}
