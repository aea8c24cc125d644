// Package crossorigin keeps web pages away from services that have no
// authentication. Listening on loopback does not: every page that a browser on
// this machine shows can send requests here (cross-site request forgery), and by
// DNS rebinding, a name of its own that suddenly means 127.0.0.1, it can read the
// answers too.
//
// Against rebinding a request's Host is checked: only names that no outsider can
// make his own are taken. Against forged requests its Origin and Sec-Fetch-Site are,
// which browsers set and pages cannot change. Requests without these headers are a
// program's (curl, bots, SDKs) and pass; a browser leaves both out only of a GET over
// plain HTTP to another machine, of which its page learns nothing.
//
// http.CrossOriginProtection of the standard library is not enough here: it lets every
// GET through, checks no Host and does not answer CORS, by which the pages of allowed
// origins may call. It also takes Sec-Fetch-Site: same-origin without a look at the
// Origin; a page that reached us through a proxy of another name, which writes our own
// name into Host, would come in by that.
package crossorigin

import (
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
)

// Refuse answers a request that is turned away in the words of its service.
type Refuse func(http.ResponseWriter, *http.Request, *api.Problem)

// Guard judges requests. It does not change after New.
type Guard struct {
	hosts   map[string]bool // without port, lower case
	origins map[string]bool
	log     zerolog.Logger
}

// New returns a guard that logs refused requests. A page can cause any number of refusals. The guard also accepts the
// given hosts (http.allowed_hosts, and the host names in the operator's configuration) and origins (http.allowed_origins).
// It ignores invalid ones.
func New(hosts, origins []string, log zerolog.Logger) *Guard {
	g := &Guard{hosts: map[string]bool{}, origins: map[string]bool{}, log: log}
	for _, text := range hosts {
		if host, err := Host(text); err == nil {
			g.hosts[host] = true
		}
	}
	for _, text := range origins {
		if origin, err := Origin(text); err == nil {
			g.origins[origin] = true
		}
	}
	return g
}

// Protect passes on to next what may come in. The writer goes on as it is, so that
// streams are flushed and read in both directions as without a guard.
func (g *Guard) Protect(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(g.origins) > 0 {
			w.Header().Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		allowed := origin != "" && g.origins[origin]
		if allowed { // also on refusals, so that the page can read them
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "*") // Mneme-Run-Id, Retry-After and a vendor's own
		}
		if no := g.judge(r); no != nil {
			g.log.Warn().Str("code", no.Code).Str("method", r.Method).Str("path", clip(r.URL.Path)).Str("host", clip(r.Host)).
				Str("origin", clip(origin)).Str("sec_fetch_site", clip(r.Header.Get("Sec-Fetch-Site"))).Msg(
				"a request was refused that a web page may have sent",
			)
			w.Header().Set("X-Content-Type-Options", "nosniff") // as on what comes from behind
			refuse(w, r, no)
			return
		}
		if allowed && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			answerPreflight(w, r)
			return
		}
		next.ServeHTTP(w, unmarked(r))
	})
}

// answerPreflight tells a browser that a page of an allowed origin may send what
// it asks for.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
		h.Set("Access-Control-Allow-Headers", requested) // a * would leave out Authorization
		h.Add("Vary", "Access-Control-Request-Headers")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// marks are the headers by which a request is judged.
var marks = []string{"Origin", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User"}

// unmarked is a request that has been judged without its marks: a service that
// passes it on is no browser, and the next one would judge it by them once more.
func unmarked(r *http.Request) *http.Request {
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return r
	}
	out := new(http.Request)
	*out = *r
	out.Header = r.Header.Clone()
	for _, name := range marks {
		out.Header.Del(name)
	}
	return out
}

// judge gives nil for what may come in.
func (g *Guard) judge(r *http.Request) *api.Problem {
	accepted := g.acceptsHost(r.Host)
	if !accepted && !probe(r) {
		return refuseHost(r)
	}
	switch origins := r.Header["Origin"]; {
	case len(origins) == 0:
		return judgeUnnamed(r)
	case len(origins) > 1 || !g.origins[origins[0]] && !(accepted && sameOrigin(r, origins[0])):
		return refuseOrigin(origins[0])
	}
	return judgeBody(r)
}

// probe says whether a request is one of load balancers, orchestrators and
// Prometheus, which come by any name, to what tells nothing of chats.
func probe(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.RawPath != "" {
		return false
	}
	switch r.URL.Path {
	case "/healthz", "/readyz", "/metrics", "/health":
		return true
	}
	return false
}

// acceptsHost says whether no outsider can have made the name in a Host header
// his own. HTTP/1.0 probes send none; browsers always do.
func (g *Guard) acceptsHost(hostport string) bool {
	host := hostname(hostport)
	switch {
	case host == "", host == "localhost", !strings.Contains(host, ".") && isLabel(host):
		return true
	case g.hosts[strings.ToLower(host)]:
		return true
	}
	if name, ok := strings.CutSuffix(strings.ToLower(host), ".localhost"); ok && name != "" {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// hostname cuts off a Host's port, the brackets of an IPv6 address, and the dot
// that may end a complete name.
func hostname(hostport string) string {
	if strings.HasPrefix(hostport, "[") {
		address, _, _ := strings.Cut(hostport[1:], "]")
		return address
	}
	host, _, _ := strings.Cut(hostport, ":")
	return strings.TrimSuffix(host, ".")
}

// isLabel says whether a text is one part of a domain name. Such a name alone is no
// domain that can be registered: it is of the local network, of a compose project or of a
// Kubernetes namespace.
func isLabel(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	})
}

// sameOrigin says whether a page was loaded from this very service. Where TLS ends
// before us the schemes differ, hence the browser's own word counts too.
func sameOrigin(r *http.Request, origin string) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	return (scheme == "http" || scheme == "https") && host != "" && strings.EqualFold(host, r.Host)
}

// judgeUnnamed judges a request without an Origin: a program's, or a browser's GET with
// an answer that its page cannot read and an effect that it could see, as of an <img>.
func judgeUnnamed(r *http.Request) *api.Problem {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if read && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil // a link was followed; what is shown belongs to no other page
	}
	return forbidden("cross_site",
		"Another site's page may not load this; list its origin in http.allowed_origins and read it with fetch.")
}

// judgeBody refuses the bodies that a form can send: a page that means to call a
// service can name its type.
func judgeBody(r *http.Request) *api.Problem {
	if r.Method != http.MethodPost || r.ContentLength == 0 {
		return nil
	}
	contentType := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(contentType)
	switch kind {
	case "", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain":
	default:
		if err == nil {
			return nil
		}
	}
	return &api.Problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
		Message: fmt.Sprintf("A web page must send this body as application/json, not %q.", clip(contentType))}
}
