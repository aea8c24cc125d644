package proxy

import (
	"net/http"
	"regexp"
	"strings"

	"mneme/access"
	"mneme/memory/telemetry"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// hopByHop are headers of one connection, not of the message.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// ours begin the names of headers between clients and this gateway.
const ours = "X-Ag-"

// headers decides what of the client's headers a backend sees: everything but
// what concerns this connection where the dialect is the same, next to nothing
// where it is not. Credentials are judged when the call is sent.
func (x routedRequest) headers(out sanitize.Output) http.Header {
	var h http.Header
	if x.foreign() {
		h = translatedHeader(x.in.header, x.backend.speaks)
	} else {
		h = make(http.Header, len(x.in.header)+1)
		endToEnd(h, x.in.header, unasked)
	}
	if x.backend.config.PassRun {
		for _, name := range []string{mnemeRun, mnemeCall} {
			if value := x.in.header.Get(name); value != "" {
				h.Set(name, value)
			}
		}
	}
	h[telemetry.Header] = []string{x.trail.Parent()}
	out.Header(h)
	return h
}

// unasked are the headers that concern this gateway and not the backend. What callers
// tell each other along a trace is among them, but for its id.
func unasked(name string) bool {
	switch name {
	case telemetry.Header, "Tracestate", "Baggage",
		"Accept-Encoding", "Content-Length", "Content-Encoding", "Cookie", "Expect", "Forwarded", "Host", "X-Real-Ip":
		return true
	}
	return strings.HasPrefix(name, ours) || strings.HasPrefix(name, "Mneme-") || strings.HasPrefix(name, "X-Forwarded-")
}

// betas are the values of the header by which a client turns on what is new.
// Another dialect's client has none.
func (x routedRequest) betas() []string {
	if x.foreign() {
		return nil
	}
	return x.in.header.Values("Anthropic-Beta")
}

// translatedHeader keeps the agent's name, and the credential where the other
// dialect looks for it.
func translatedHeader(in http.Header, dialect wire.Dialect) http.Header {
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
	case dialect == wire.Messages:
		h.Set("X-Api-Key", token)
	case dialect == wire.Interactions:
		h.Set("X-Goog-Api-Key", token)
	default:
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

// endToEnd copies a header without the hop-by-hop ones, named by the standard or
// by Connection itself, and without those to drop. The values are shared.
func endToEnd(dst, src http.Header, drop func(name string) bool) {
	connection := src["Connection"]
	for name, values := range src {
		if !hopByHop(name) && !drop(name) && !lists(connection, name) {
			dst[name] = values
		}
	}
}

// lists says whether a name is in one of the lists that are the values of a header.
func lists(values []string, name string) bool {
	for _, list := range values {
		for listed := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(listed), name) {
				return true
			}
		}
	}
	return false
}

// answerHeader writes the backend's header for the client: rate limits, request
// ids and the like, but neither what described the connection or the bytes as
// they came, nor cookies and rules for the vendor's own domain.
func answerHeader(dst, src http.Header) { endToEnd(dst, src, unanswered) }

func unanswered(name string) bool {
	switch name {
	case "Alt-Svc", "Content-Encoding", "Content-Length", "Date", "Server", "Set-Cookie", "Strict-Transport-Security",
		"Vary", requestIDHeader, conversationHeader, contextHeader, reasonHeader, keyNameHeader, limitHeader, sentHeader,
		backendHeader, modelHeader, attemptsHeader, mendedHeader, costTrailer:
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}

// Headers that tell a backend which is the operator's own what a call belongs to.
const (
	mnemeRun  = "Mneme-Run-Id"
	mnemeCall = "Mneme-Call-Id"
)

// Headers by which a client names what a request belongs to, for the log and the
// records of usage.
const (
	runHeader  = "X-Ag-Run-Id"
	chatHeader = "X-Ag-Chat-Id"
)

var (
	runID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	chatID = regexp.MustCompile(`^[A-Za-z0-9._:@+=-]{1,128}$`)
)

// nameRun takes the run and the chat of a request into its trail.
func nameRun(r *http.Request) error {
	run, chat := r.Header.Get(runHeader), r.Header.Get(chatHeader)
	switch {
	case run == "" && chat == "":
		return nil
	case run != "" && !runID.MatchString(run):
		return wire.Failure{Status: 400, Message: "X-AG-Run-Id must be 1 to 64 characters of A-Z a-z 0-9 _ -"}
	case chat != "" && !chatID.MatchString(chat):
		return wire.Failure{Status: 400, Message: "X-AG-Chat-Id must be 1 to 128 characters of A-Z a-z 0-9 . _ : @ + = -"}
	}
	if its, err := access.FromContext(r.Context()).Tenant.Chat(chat); err == nil {
		chat = its.String() // two tenants may have chats of one id
	}
	telemetry.Concerns(r.Context(), chat, run)
	return nil
}
