package proxy

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"mneme/proxy/wire"
)

// hopByHop are headers of one connection, not of the message.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// ours begin the names of headers between clients and this gateway.
const ours = "X-Ag-"

// headers decides what of the client's headers a backend sees: everything but
// what concerns this connection where the dialect is the same, next to nothing
// where it is not. Credentials are judged when the call is sent.
func headers(_ context.Context, x *Exchange) error {
	if x.translated() {
		x.attempt.header = translatedHeader(x.in.header, x.backend.dialect)
		x.attempt.fitted.Header(x.attempt.header)
		return nil
	}
	h := endToEnd(x.in.header)
	drop(h, unasked)
	for name := range h {
		if strings.HasPrefix(name, ours) || strings.HasPrefix(name, "X-Forwarded-") {
			delete(h, name)
		}
	}
	x.attempt.header = h
	x.attempt.fitted.Header(h)
	return nil
}

var unasked = []string{"Accept-Encoding", "Content-Length", "Content-Encoding", "Cookie", "Expect", "Forwarded", "Host", "X-Real-Ip"}

// betas are the values of the header by which a client turns on what is new.
// Another dialect's client has none.
func (x *Exchange) betas() []string {
	if x.translated() {
		return nil
	}
	return x.in.header.Values("Anthropic-Beta")
}

// translatedHeader keeps the agent's name, and the credential where the other
// dialect looks for it.
func translatedHeader(in http.Header, to wire.Dialect) http.Header {
	h := http.Header{}
	if agent := in.Get("User-Agent"); agent != "" {
		h.Set("User-Agent", agent)
	}
	token := in.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(in.Get("Authorization"), "Bearer "); ok && token == "" {
		token = bearer
	}
	switch {
	case token == "":
	case to == wire.Messages:
		h.Set("X-Api-Key", token)
	default:
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

// endToEnd copies a header without the hop-by-hop ones, named by the standard or
// by Connection itself. The values are shared.
func endToEnd(in http.Header) http.Header {
	h := maps.Clone(in)
	for _, list := range in["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	drop(h, hopByHop)
	return h
}

// drop removes headers by their canonical names.
func drop(h http.Header, names []string) {
	for _, name := range names {
		delete(h, name)
	}
}

// answerHeader writes the backend's header for the client: rate limits, request
// ids and the like, but neither what described the connection or the bytes as
// they came, nor cookies and rules for the vendor's own domain.
func answerHeader(to, from http.Header) {
	h := endToEnd(from)
	drop(h, unanswered)
	maps.Copy(to, h)
}

var unanswered = []string{
	"Alt-Svc", "Content-Encoding", "Content-Length", "Date", "Server", "Set-Cookie", "Strict-Transport-Security",
	requestIDHeader, conversationHeader,
}
