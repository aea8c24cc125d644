package openaiapi

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"mneme/access/jsonbound"
	"mneme/apiserver/api"
)

var errGatewayAway = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: "gateway_unavailable", Retryable: true, RetryAfter: 2 * time.Second,
	Message: "The gateway, which serves embeddings, cannot be reached right now; please try again.",
}

// embed is POST /v1/embeddings: it passes the request to the gateway, as its caller, and the answer back. What it
// takes, costs and is refused with is the gateway's.
func (h *Handler) embed(w http.ResponseWriter, r *http.Request) {
	if _, err := h.chatOf(r, "", ""); err != nil && r.PathValue("chat") != "" {
		Refuse(w, err)
		return
	}
	raw, err := api.ReadBody(w, r, MaxBody, jsonbound.Transcript)
	if err != nil {
		Refuse(w, err)
		return
	}
	unreachable := func(w http.ResponseWriter, _ *http.Request, _ error) { Refuse(w, errGatewayAway) }
	handler, err := api.Pass(h.Gateway, h.ToGateway, unreachable, func(error) {})
	if err != nil {
		Refuse(w, err)
		return
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = "/v1/embeddings", "" // without the chat, which it is nothing to
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	handler.ServeHTTP(w, r)
}
