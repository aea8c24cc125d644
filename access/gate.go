package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"mneme/memory"
)

// Headers between the services. They count behind the internal secret only, and no request leaves
// the house with them.
const (
	secretHeader = "Mneme-Internal-Secret"
	tenantHeader = "Mneme-Tenant"
	keyHeader    = "Mneme-Key"    // the key's id
	scopesHeader = "Mneme-Scopes" // separated by commas; none: all of them
	userHeader   = "Mneme-User"   // escaped as in a query
	rateHeader   = "Mneme-Rate"   // of the key
	budgetHeader = "Mneme-Budget" // of the key
)

// Refusal is why a request may not come in. Each service answers with it in its own shape.
type Refusal struct {
	Status     int
	Code       string // unauthorized, forbidden or keys_unavailable
	Message    string // a sentence that says what to do
	Challenge  string // the header WWW-Authenticate; "" for none
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return r.Message }

// SetHeader sets the headers of the answer that the refusal becomes.
func (r *Refusal) SetHeader(h http.Header) {
	if r.Challenge != "" {
		h.Set("WWW-Authenticate", r.Challenge)
	}
	if r.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(int(r.RetryAfter/time.Second)))
	}
}

func unauthorized(why string) *Refusal {
	return &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Message: why,
		Challenge: `Bearer realm="mneme", error="invalid_token"`}
}

var errNoKey = &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Challenge: `Bearer realm="mneme"`,
	Message: "A key is needed: send it as Authorization: Bearer mn_…; the operator makes one with mneme keys create."}

func forbidden(need Scope) *Refusal {
	if need == Internal {
		return &Refusal{Status: http.StatusForbidden, Code: "forbidden",
			Message: "Only mneme's own services may come here; ask webmemory's public routes, or send the internal secret."}
	}
	return &Refusal{Status: http.StatusForbidden, Code: "forbidden",
		Message:   fmt.Sprintf("The key has no right to this: it needs the scope %s.", need),
		Challenge: fmt.Sprintf("Bearer realm=\"mneme\", error=\"insufficient_scope\", scope=\"%s\"", need)}
}

// Rights say what each route of a service needs, by "METHOD /path" as the router has it, "ANY
// /path", or "ANY *" for all that are not in it.
type Rights map[string]Scope

// Scope is what a route needs. ok is false for one that is not in the table.
func (r Rights) Scope(method, path string) (need Scope, ok bool) {
	for _, route := range []string{method + " " + path, "ANY " + path, "ANY *"} {
		if need, ok = r[route]; ok {
			break
		}
	}
	return need, ok
}

// Gate lets requests in. A nil one lets all requests in.
type Gate struct {
	Keys   *Authenticator // nil: only the internal secret opens
	Secret string         // by which the services know each other
}

// Admit lets a request in to a route of which the path is as the router has it, "" where there is no
// route, and gives it with its principal. Credentials of ours are taken off its header and its query, so that they
// cannot be passed on. Errors are *Refusal. The body is not read.
//
// A route that is not in the table is refused: its author must add its right.
func (g *Gate) Admit(r *http.Request, rights Rights, path string) (*http.Request, error) {
	if g == nil {
		strip(r)
		return r, nil
	}
	need, listed := rights.Scope(r.Method, path)
	if need == Open {
		strip(r)
		return r, nil
	}
	p, err := g.who(r)
	strip(r)
	switch {
	case err != nil:
		return nil, err
	case path == "": // the router says that there is nothing
	case !listed:
		return nil, &Refusal{Status: http.StatusForbidden, Code: "forbidden",
			Message: "Nobody may come here yet: the route has no scope in the service's table of rights."}
	case !p.HasScope(need):
		return nil, p.lacks(need)
	}
	return r.WithContext(With(r.Context(), p)), nil
}

// Stay gives a request that was let in by a key in a context that ends with the key, at most Fresh and a second later
// and for that cause, so that no client stays behind in an open stream. The caller calls over once the request is.
func (g *Gate) Stay(r *http.Request) (in *http.Request, done func()) {
	if g == nil {
		return r, func() {}
	}
	p, _ := Authenticated(r.Context())
	if p.hash == "" {
		return r, func() {}
	}
	ctx, end := context.WithCancelCause(r.Context())
	var look *time.Timer
	look = time.AfterFunc(time.Hour, func() {
		var no *Refusal
		switch err := g.Keys.Check(ctx, p); {
		case errors.As(err, &no) && no.Status == http.StatusUnauthorized:
			end(no)
		case ctx.Err() == nil:
			look.Reset(lookAgain)
		}
	})
	look.Reset(lookAgain)
	return r.WithContext(ctx), func() {
		look.Stop()
		end(nil)
	}
}

// LossMessage is a sentence about keys that Redis has lost and with which a request came in the last ten minutes, "" for
// none.
func (g *Gate) LossMessage() string {
	n := 0
	if g != nil && g.Keys != nil {
		for _, e := range g.Keys.lostKeys.All() {
			if g.Keys.now().Sub(e.read) < lostFor {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("Redis has lost API keys that were in use (%d): create them anew with mneme keys create, or "+
		"restore Redis from a backup.", n)
}

// who finds out the principal of a request.
func (g *Gate) who(r *http.Request) (Principal, error) {
	if secret := r.Header.Get(secretHeader); secret != "" {
		return g.service(secret, r.Header)
	}
	text := presented(r.Header)
	if text == "" {
		return Principal{}, errNoKey
	}
	if g.Keys == nil {
		return Principal{}, forbidden(Internal)
	}
	return g.Keys.Principal(r.Context(), text)
}

// service is the principal that another service of ours asks for.
func (g *Gate) service(secret string, h http.Header) (Principal, error) {
	received, own := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(g.Secret))
	if g.Secret == "" || subtle.ConstantTimeCompare(received[:], own[:]) != 1 {
		return Principal{}, unauthorized("The internal secret is another one; give all services the same.")
	}
	tenant, err := memory.ParseTenant(h.Get(tenantHeader))
	if err != nil {
		return Principal{}, unauthorized("The header " + tenantHeader + " names no tenant.")
	}
	p := Principal{Key: h.Get(keyHeader), Tenant: tenant, Scopes: Scopes, internal: true, carried: true}
	if p.User, err = url.QueryUnescape(h.Get(userHeader)); err == nil {
		p.Limits, err = ParseLimits(h.Get(rateHeader), h.Get(budgetHeader))
	}
	if err != nil {
		return Principal{}, unauthorized("The headers " + userHeader + ", " + rateHeader + " and " +
			budgetHeader + " are not as mneme's services send them.")
	}
	if names := h.Get(scopesHeader); names != "" {
		p.Scopes, p.internal = nil, false // it asks as its caller, not as itself
		for name := range strings.SplitSeq(names, ",") {
			p.Scopes = append(p.Scopes, Scope(name))
		}
	}
	return p, nil
}

// credentials are the headers in which a key may come.
var credentials = []string{"X-Api-Key", "Authorization"}

// keyIn is the key in the value of a header, "" if it is another credential.
func keyIn(value string) string {
	if scheme, rest, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
		value = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(value, Prefix) {
		return value
	}
	return ""
}

// presented is the key that a request comes with, "" for none.
func presented(h http.Header) string {
	for _, name := range credentials {
		if text := keyIn(h.Get(name)); text != "" {
			return text
		}
	}
	return ""
}

// keyText is a whole key, wherever it stands.
var keyText = regexp.MustCompile(Prefix + `[a-z0-9-]{1,32}_[A-Za-z0-9_-]{32,}`)

// strip takes off a request what is ours. Other credentials stay: they may be a vendor's. Clients of
// many vendors repeat their key in a header that we do not ask for, or in the query, so a key goes
// from there, too.
func strip(r *http.Request) {
	h := r.Header
	for name, values := range h {
		for _, value := range values {
			if keyIn(value) != "" || strings.Contains(value, Prefix) && keyText.MatchString(value) {
				delete(h, name)
			}
		}
	}
	if strings.Contains(r.URL.RawQuery, Prefix) {
		r.URL.RawQuery = keyText.ReplaceAllString(r.URL.RawQuery, "")
	}
	for _, name := range []string{
		secretHeader, tenantHeader, keyHeader, scopesHeader, userHeader, rateHeader, budgetHeader,
	} {
		h.Del(name)
	}
}

// Carry is a transport to other services of ours: they learn from it the principal that a request
// is for. That of a nil gate is base.
func (g *Gate) Carry(base http.RoundTripper) http.RoundTripper {
	if g == nil {
		return base
	}
	return Carrier{Base: base, Secret: g.Secret}
}

// Carrier sends requests to other services of ours, with the internal secret and with the
// principal that they are for. Without a secret it adds nothing. It is for addresses of the
// configuration only: a server that gets a request gets the secret.
type Carrier struct {
	Base   http.RoundTripper
	Secret string
	// AsCaller: with the rights of the principal that the request is for, and not with a service's own.
	AsCaller bool
}

// RoundTrip sends a request. What a redirection leads to is not told the secret.
func (c Carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.Secret == "" || r.Response != nil {
		return c.Base.RoundTrip(r)
	}
	p := FromContext(r.Context())
	out := r.Clone(r.Context())
	out.Header.Set(secretHeader, c.Secret)
	if out.Header.Get(tenantHeader) == "" { // else the caller has set it, by the chat that the request is about
		out.Header.Set(tenantHeader, p.Tenant.String())
	}
	for name, value := range map[string]string{
		keyHeader: p.Key, userHeader: url.QueryEscape(p.User),
		rateHeader: p.Limits.Rate.String(), budgetHeader: p.Limits.Budget.String(),
	} {
		if value != "" {
			out.Header.Set(name, value)
		}
	}
	if c.AsCaller {
		out.Header.Set(scopesHeader, scopeNames(p.Scopes))
	}
	return c.Base.RoundTrip(out)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the base.
func (c Carrier) CloseIdleConnections() { (&http.Client{Transport: c.Base}).CloseIdleConnections() }

// Bearer sends requests with a key. Without one it adds nothing.
type Bearer struct {
	Base http.RoundTripper
	Key  string
}

// RoundTrip sends a request. What a redirection leads to is not told the key.
func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.Key == "" || r.Response != nil {
		return b.Base.RoundTrip(r)
	}
	out := r.Clone(r.Context())
	out.Header.Set("Authorization", "Bearer "+b.Key)
	return b.Base.RoundTrip(out)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the base.
func (b Bearer) CloseIdleConnections() { (&http.Client{Transport: b.Base}).CloseIdleConnections() }

// scopeNames are scopes with commas between them; "none" where there are none, since a header without
// a value would mean all.
func scopeNames(scopes []Scope) string {
	if len(scopes) == 0 {
		return "none"
	}
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ",")
}
