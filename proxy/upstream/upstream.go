// Package upstream sends the gateway's calls to a backend over HTTP. It knows
// credentials, limits of time and retries, and nothing of what a call says.
//
// A call is sent again only while no byte of an answer has come: after a failed
// connection, a 429 or a 5xx, with the vendor's Retry-After honoured. Whatever
// answer remains, an error status too, is returned as it came.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mneme/proxy/wire"
)

// Failures of a call. Cancellation by the caller is context.Canceled.
var (
	ErrUnreachable = errors.New("the backend cannot be reached")
	ErrBroken      = errors.New("the connection to the backend broke")
	ErrTimeout     = errors.New("the backend took too long")
	ErrEncoding    = errors.New("the backend compressed its answer, although it was not asked to")
)

// Auth says whose credential a backend gets.
type Auth string

// Ways to authenticate.
const (
	AuthKey         Auth = "key"         // the backend's own key
	AuthPassthrough Auth = "passthrough" // what the caller presented
	AuthNone        Auth = "none"
)

// anthropicVersion is sent in the messages dialect when the client names none.
const anthropicVersion = "2023-06-01"

// Limits bound a call. A zero value means its default.
type Limits struct {
	Dial      time.Duration // to connect; 10 s
	FirstByte time.Duration // from sending to the head of the answer, per try; 5 min
	Idle      time.Duration // between two pieces of an answer; 3 min
	Total     time.Duration // the whole call, retries included; 10 min
	Retries   int           // tries after the first; 2, negative for none
	Backoff   time.Duration // before the first retry when the vendor says nothing, then doubled; 250 ms
	MaxWait   time.Duration // a longer Retry-After is left to the client; 10 s
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		value *time.Duration
		unset time.Duration
	}{
		{&l.Dial, 10 * time.Second}, {&l.FirstByte, 5 * time.Minute}, {&l.Idle, 3 * time.Minute},
		{&l.Total, 10 * time.Minute}, {&l.Backoff, 250 * time.Millisecond}, {&l.MaxWait, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.unset
		}
	}
	if l.Retries == 0 {
		l.Retries = 2
	}
	return l
}

// Config describes a backend.
type Config struct {
	BaseURL   string
	Auth      Auth
	Key       string            // for AuthKey
	Transport http.RoundTripper // nil: a connection pool of its own
	Limits    Limits
}

// Client sends calls to one backend. It is safe for concurrent use.
type Client struct {
	base   string
	auth   Auth
	key    string
	trip   http.RoundTripper
	limits Limits
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
			DialContext:            (&net.Dialer{Timeout: limits.Dial, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    limits.Dial,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 256 << 10,
			// Compressed streams arrive in blocks, not in events.
			DisableCompression: true,
		}
	}
	return &Client{strings.TrimRight(c.BaseURL, "/"), c.Auth, c.Key, trip, limits}, nil
}

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() {
	if t, ok := c.trip.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Send posts a call and returns the answer, whatever its status. The caller must
// close its body, which ends the call; so does the end of ctx. Reading the body
// fails with ErrTimeout or ErrBroken if the backend stops before its end.
func (c *Client) Send(ctx context.Context, call wire.Call) (*http.Response, error) {
	deadline := time.Now().Add(c.limits.Total)
	for try := 0; ; try++ {
		resp, err := c.once(ctx, call, deadline)
		wait, again := c.retry(try, resp, err)
		if !again || ctx.Err() != nil || time.Until(deadline) < wait {
			return resp, err
		}
		if resp != nil {
			// A short rest is read, so that the connection can be used again.
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// once sends the call one time.
func (c *Client) once(ctx context.Context, call wire.Call, deadline time.Time) (*http.Response, error) {
	b := c.watch(ctx, deadline)
	req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, c.base+call.Path, bytes.NewReader(call.Body))
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	req.Header = c.header(call)
	resp, err := c.trip.RoundTrip(req)
	b.silence.Stop()
	if err != nil {
		err = b.explain(ErrUnreachable, err)
		_ = b.Close()
		return nil, err
	}
	b.rc = resp.Body
	resp.Body = b
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		_ = b.Close()
		return nil, fmt.Errorf("%w (%s)", ErrEncoding, e)
	}
	return resp, nil
}

// header is what leaves: the call's own, and exactly one credential or none.
func (c *Client) header(call wire.Call) http.Header {
	h := call.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if c.auth != AuthPassthrough {
		for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
			h.Del(name)
		}
	}
	h.Set("Content-Type", "application/json")
	if call.Dialect == wire.Messages && h.Get("Anthropic-Version") == "" {
		h.Set("Anthropic-Version", anthropicVersion)
	}
	switch {
	case c.auth == AuthKey && call.Dialect == wire.Messages:
		h.Set("X-Api-Key", c.key)
	case c.auth == AuthKey:
		h.Set("Authorization", "Bearer "+c.key)
	}
	return h
}

// retry decides whether to send again, and when.
func (c *Client) retry(try int, resp *http.Response, err error) (wait time.Duration, again bool) {
	if try >= c.limits.Retries {
		return 0, false
	}
	wait = c.limits.Backoff << try
	wait += rand.N(wait/2 + 1) // so that clients that failed together do not return together
	if err != nil {
		return wait, errors.Is(err, ErrUnreachable)
	}
	switch s := resp.StatusCode; {
	case s != http.StatusTooManyRequests && s < 500, s == http.StatusNotImplemented:
		return 0, false
	}
	if after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
		wait = after
	}
	return wait, wait <= c.limits.MaxWait
}

// retryAfter reads the header's two forms: seconds and a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second)), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}

// body is an answer being read, under the limits of its call.
type body struct {
	rc      io.ReadCloser // nil until there is an answer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	silence *time.Timer // first until the head of the answer, then during each Read
	total   *time.Timer
	idle    time.Duration
}

// watch starts the clocks of one try; Close of the body stops them.
func (c *Client) watch(ctx context.Context, deadline time.Time) *body {
	b := &body{idle: c.limits.Idle}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.silence = time.AfterFunc(c.limits.FirstByte, func() {
		b.cancel(fmt.Errorf("%w: it was silent for too long", ErrTimeout))
	})
	b.total = time.AfterFunc(time.Until(deadline), func() {
		b.cancel(fmt.Errorf("%w: the call was not over after %v", ErrTimeout, c.limits.Total))
	})
	return b
}

// Read waits at most the idle limit. Time that the reader of the answer spends
// elsewhere does not count.
func (b *body) Read(p []byte) (int, error) {
	b.silence.Reset(b.idle)
	n, err := b.rc.Read(p)
	b.silence.Stop()
	if err != nil && err != io.EOF {
		err = b.explain(ErrBroken, err)
	}
	return n, err
}

// Close ends the call.
func (b *body) Close() error {
	b.silence.Stop()
	b.total.Stop()
	b.cancel(nil)
	if b.rc == nil {
		return nil
	}
	return b.rc.Close()
}

// explain gives the reason for which the call was ended by us or by the caller,
// else the kind of failure with the transport's own words.
func (b *body) explain(kind, err error) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return fmt.Errorf("%w: %w", kind, err)
}
