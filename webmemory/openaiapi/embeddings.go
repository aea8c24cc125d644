package openaiapi

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
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
		refuse(w, err)
		return
	}
	raw, err := api.ReadBody(w, r, maxBody, jsonbound.Transcript)
	if err != nil {
		refuse(w, err)
		return
	}
	to, err := url.Parse(h.Gateway)
	if err != nil {
		refuse(w, fmt.Errorf("the gateway's address: %w", err))
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Path, p.Out.URL.RawPath = "/v1/embeddings", "" // without the chat, which it is nothing to
			p.SetURL(to)
		},
		Transport:     h.ToGateway,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { refuse(w, errGatewayAway) },
		ErrorLog:      log.New(io.Discard, "", 0), // an answer that breaks off breaks the client's, too
	}).ServeHTTP(w, r)
}
