package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// send calls the backend and takes the beginning of its answer.
func (a *attempt) send(ctx context.Context, header http.Header) error {
	call := wire.Call{
		Dialect: a.backend.dialect, Path: a.endpoint.path[a.backend.dialect], Header: header,
		Body: a.doc.Body, Stream: a.doc.Stream, Model: a.model, Once: a.backend.once, Tries: new(int),
	}
	if !a.translated() && a.in.query != "" {
		call.Path += "?" + a.in.query
	}
	waited := &a.result.waited
	began := time.Now()
	resp, err := a.backend.Send(a.inConversation(ctx), call)
	waited.firstByte = time.Since(began)
	waited.all += waited.firstByte
	if *call.Tries == 0 && !errors.Is(err, upstream.ErrOpen) { // a backend that does not count has no tries
		*call.Tries = 1
	}
	a.result.attempts += *call.Tries
	if err != nil {
		return err
	}
	a.answer, err = readHead(resp, &waited.all, hider{a.backend.secrets, a.in.header})
	return err
}
