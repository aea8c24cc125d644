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
	t, err := to(x.asked.Body, x.backend.translation)
	if err != nil {
		return err
	}
	x.shown = chatwire.Asked{Stream: x.asked.Stream, IncludeUsage: t.IncludeUsage}
	if x.model != x.asked.Model {
		x.shown.Model = x.asked.Model
	}
	if len(t.Ignored) > 0 {
		x.log().Info().Strs("parameters", t.Ignored).Str("backend", x.backend.name).Msg("parameters ignored: the backend has none like them")
	}
	x.asked, err = wire.ReadOutline(t.Body)
	return err
}
