// Package upstream sends the gateway's calls to a backend over HTTP. It handles credentials, time limits, retries and
// a circuit breaker, and does not look at what a call says.
//
// It owns a backend's connections, its budget of retries and its circuits: a backend of which nearly all calls of a
// minute failed is left alone for a while, for the model, the credential and the tenant of those calls, and for all
// tenants if that is so for two, see OpenError. Failures are, after all retries, connections that fail or break,
// time-outs and 5xx other than 501; a 4xx, even 429, is an answer. It never repeats a call of whose answer a byte was
// passed on, and never changes the answer that remains.
package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mneme/proxy/encoding"
	"mneme/proxy/wire"
)

// Failures of a call. Cancellation by the caller is context.Canceled.
var (
	ErrUnreachable = errors.New("the backend cannot be reached")
	ErrBroken      = errors.New("the connection to the backend broke")
	ErrTimeout     = errors.New("the backend took too long")
	ErrEncoding    = errors.New("the backend compressed its answer in an unknown way")
)

// Auth says which credential is sent to a backend.
type Auth string

// Ways to authenticate.
const (
	AuthKey         Auth = "key"         // the backend's own key
	AuthPassthrough Auth = "passthrough" // what the caller presented
	AuthNone        Auth = "none"
)

// anthropicVersion is sent in the messages dialect when the client names none.
const anthropicVersion = "2023-06-01"

// DefaultTotal is the default of Limits.Total.
const DefaultTotal = 10 * time.Minute

// Limits bound a call. A zero value means its default.
type Limits struct {
	Dial      time.Duration // to connect; 10 s
	FirstByte time.Duration // from sending to the head of the answer, per try; 5 min
	Idle      time.Duration // between two pieces of an answer; 3 min
	Total     time.Duration // the whole call, retries included, except a stream that has begun; 10 min
	Stream    time.Duration // a stream that has begun, from the call's beginning; 6 h
	Retries   int           // tries after the first; 2, negative for none
	Burst     int           // retries of all calls together at once, beyond one for every 5 calls and every 5 s; 10
	Backoff   time.Duration // before the first retry when the vendor says nothing, then doubled; 250 ms
	MaxWait   time.Duration // a longer Retry-After is left to the client; 10 s
	Failures  int           // failed calls within a minute that open a circuit; 10, negative for never
	Cooldown  time.Duration // while it is open, from one try to the next; 10 s
}

func (l Limits) withDefaults() Limits {
	l.Dial = cmp.Or(l.Dial, 10*time.Second)
	l.FirstByte = cmp.Or(l.FirstByte, 5*time.Minute)
	l.Idle = cmp.Or(l.Idle, 3*time.Minute)
	l.Total = cmp.Or(l.Total, DefaultTotal)
	l.Stream = cmp.Or(l.Stream, 6*time.Hour)
	l.Backoff = cmp.Or(l.Backoff, 250*time.Millisecond)
	l.MaxWait = cmp.Or(l.MaxWait, 10*time.Second)
	l.Cooldown = cmp.Or(l.Cooldown, 10*time.Second)
	l.Retries = cmp.Or(l.Retries, 2)
	l.Burst = cmp.Or(l.Burst, 10)
	l.Failures = cmp.Or(l.Failures, 10)
	return l
}

// Config describes a backend.
type Config struct {
	BaseURL   string
	Auth      Auth
	Key       string            // for AuthKey
	Transport http.RoundTripper // nil: a connection pool of its own
	Limits    Limits

	// Judge, if not nil, sees every 429 and every 5xx that would be retried, with
	// up to 64 KiB of its body, before anything else is made of it. True means
	// that the answer is about this one request: it is returned as it is, not
	// retried, and no failure of the backend. The body is not to be kept.
	Judge func(status int, body []byte) bool

	// Early, if not nil, sees the data of each event at the beginning of a stream that
	// came as a success, as long as it asks for more. A status other than 0 means that
	// the event is an error: the answer becomes one of that status, with the data as its
	// body. The data is not to be kept.
	Early func(data []byte) (status int, hasMore bool)
}

// Client sends calls to one backend. It is safe for concurrent use.
type Client struct {
	base   string // without the query
	query  string // of the base URL, for each call
	auth   Auth
	key    string
	trip   http.RoundTripper
	limits Limits
	judge  func(status int, body []byte) bool
	early  func(data []byte) (status int, hasMore bool)

	circuits circuits
	retries  *budget
}

// New checks the configuration and makes a Client. It connects to nothing.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("base_url must be an http:// or https:// URL, not %q", c.BaseURL)
	}
	limits := c.Limits.withDefaults()
	trip := c.Transport
	if trip == nil {
		trip = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: limits.Dial, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    limits.Dial,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 256 << 10,
			// Bodies pass these by; each answer that streams holds one of either.
			ReadBufferSize:  2 << 10,
			WriteBufferSize: 2 << 10,
			// Compressed streams arrive in blocks, not in events.
			DisableCompression: true,
		}
	}
	base, _, _ := strings.Cut(c.BaseURL, "?")
	return &Client{
		base: strings.TrimRight(base, "/"), query: u.RawQuery,
		auth: c.Auth, key: c.Key, trip: trip, limits: limits, judge: c.Judge,
		early:    c.Early,
		retries:  &budget{max: float64(limits.Burst), tokens: float64(limits.Burst), lastRefill: time.Now()},
		circuits: circuits{limits: limits, seed: maphash.MakeSeed(), byLane: map[lane]*circuit{}},
	}, nil
}

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { (&http.Client{Transport: c.trip}).CloseIdleConnections() }

// Send posts a call, which then owns its header, and returns the answer, whatever its
// status. The caller must close its body, which ends the call; so does the end of ctx.
// Reading the body fails with ErrTimeout or ErrBroken if the backend stops before its
// end. While the call's circuit is open Send fails with an *OpenError at once.
func (c *Client) Send(ctx context.Context, call wire.Call) (*http.Response, error) {
	deadline := time.Now().Add(c.limits.Total)
	if !call.Until.IsZero() && call.Until.Before(deadline) {
		deadline = call.Until
	}
	retries := c.limits.Retries
	if call.Quick {
		retries = min(retries, 1)
	}
	circuit, err := c.circuits.forCall(call, c.auth)
	if err != nil {
		return nil, err
	}
	header := c.header(call)
	c.retries.earn()
	probe, err := circuit.enter()
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if call.Tries != nil {
			*call.Tries++
		}
		resp, err := c.attempt(ctx, call, header, deadline)
		v, retry := c.weigh(resp, err)
		var wait time.Duration
		if retry = retry && !call.NoRetry && !probe && try < retries && ctx.Err() == nil && !circuit.isOpen(0); retry {
			wait, retry = c.wait(try, resp)
		}
		// The budget is asked last, since that changes it.
		if !retry || time.Until(deadline) < wait || !c.retries.spend() {
			circuit.settle(probe, v, resp)
			return resp, err
		}
		if resp != nil {
			// A short rest of the body is read, so that the connection can be reused.
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			circuit.report(probe, v)
			return nil, context.Cause(ctx)
		}
	}
}

// settle reports a call to the circuit. The head of an answer is enough to end a probe, but not to
// count as a success: a backend may break off every answer in the middle. For that the body reports
// at its end.
func (c *circuit) settle(probe bool, v verdict, resp *http.Response) {
	if v == alive && resp != nil {
		resp.Body.(*body).circuit = c
	}
	if v != alive || probe || resp == nil {
		c.report(probe, v)
	}
}

// Open reports whether calls of a model fail for all with an *OpenError instead of leaving.
func (c *Client) Open() bool { return c.circuits.open() }

// credentials are the headers in which callers present theirs.
var credentials = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// attempt makes one attempt.
func (c *Client) attempt(ctx context.Context, call wire.Call, header http.Header, deadline time.Time) (*http.Response,
	error) {
	b := c.watch(ctx, deadline)
	req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, c.url(call.Path), bytes.NewReader(call.Body))
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = header
	resp, err := c.trip.RoundTrip(req)
	b.until.Store(0)
	if err != nil {
		err = b.explain(ErrUnreachable, err)
		_ = b.Close()
		return nil, err
	}
	b.rc = resp.Body
	if err := decode(resp); err != nil {
		_ = b.Close()
		return nil, err
	}
	b.rc, resp.Body = resp.Body, b
	if c.early != nil && resp.StatusCode < 300 && wire.IsStream(resp.Header) {
		if err := b.lead(resp, c.early); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	if resp.StatusCode < 300 && wire.IsStream(resp.Header) {
		b.extend(c.limits.Stream)
	}
	return resp, nil
}

// decode makes the body of a response plain. Vendors and CDNs before them compress it also if they were not asked to.
func decode(resp *http.Response) error {
	e := resp.Header.Get("Content-Encoding")
	if encoding.Identity(e) {
		return nil
	}
	decoded, err := encoding.NewReader(e, resp.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	resp.Body, resp.ContentLength = decoded, -1
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	return nil
}

// url returns the address of a call.
func (c *Client) url(path string) string {
	switch {
	case c.query == "":
		return c.base + path
	case strings.Contains(path, "?"):
		return c.base + path + "&" + c.query
	}
	return c.base + path + "?" + c.query
}

// asJSON is shared by all requests, as it is never modified.
var asJSON = []string{"application/json"}

// header turns the call's header into the one that is sent, with exactly one credential or none.
// The transport does not modify it, so all attempts share it.
func (c *Client) header(call wire.Call) http.Header {
	h := call.Header
	if h == nil {
		h = http.Header{}
	}
	if c.auth != AuthPassthrough {
		for _, name := range credentials {
			delete(h, name)
		}
	}
	h["Content-Type"] = asJSON
	if call.Dialect == wire.Messages && h.Get("Anthropic-Version") == "" {
		h.Set("Anthropic-Version", anthropicVersion)
	}
	switch {
	case c.auth == AuthKey && call.Dialect == wire.Interactions:
		h.Set("X-Goog-Api-Key", c.key)
	case c.auth == AuthKey && call.Dialect == wire.Messages:
		h.Set("X-Api-Key", c.key)
	case c.auth == AuthKey:
		h.Set("Authorization", "Bearer "+c.key)
	case c.auth == AuthPassthrough && call.Dialect != wire.Messages && h.Get("Authorization") == "":
		// A caller that comes to the gateway with a key of its own in that header has the vendor's here.
		if key := h.Get("X-Api-Key"); key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	}
	return h
}
