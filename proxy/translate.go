package proxy

import (
	"context"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// translate puts the request into the backend's dialect.
func translate(_ context.Context, x *Exchange) error {
	if !x.translated() {
		return nil
	}
	to := chatwire.MessagesRequest
	if x.backend.dialect == wire.Chat {
		to = chatwire.ChatRequest
	}
	t, err := to(x.call.Body, x.backend.translation)
	if err != nil {
		return err
	}
	x.call.Body = t.Body
	x.asked = chatwire.Asked{Stream: x.head.Stream, IncludeUsage: t.IncludeUsage}
	if x.model != x.head.Model {
		x.asked.Model = x.head.Model
	}
	if len(t.Ignored) > 0 {
		x.log.Info().Strs("parameters", t.Ignored).Str("backend", x.backend.name).Msg("parameters ignored: the backend has none like them")
	}
	return nil
}
