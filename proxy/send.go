package proxy

import (
	"context"
	"time"

	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// send calls the backend and takes the beginning of its answer.
func send(ctx context.Context, x *Exchange) error {
	call := wire.Call{
		Dialect: x.backend.dialect, Path: x.endpoint.path[x.backend.dialect], Header: x.attempt.header,
		Body: x.attempt.doc.Body, Stream: x.attempt.doc.Stream, Model: x.model, Once: x.backend.once,
	}
	if !x.translated() && x.in.query != "" {
		call.Path += "?" + x.in.query
	}
	began := time.Now()
	resp, err := x.backend.Send(x.inConversation(ctx), call)
	x.firstByte = time.Since(began)
	x.elsewhere += x.firstByte
	if err != nil {
		return err
	}
	x.tokens = usage.NewReader(x.backend.dialect)
	x.answer, err = listen(resp, &x.elsewhere, hider{x.backend.secrets, x.in.header})
	return err
}
