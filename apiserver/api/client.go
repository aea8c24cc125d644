package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mneme/memory"
)

// Errors of a Client beside *Problem, which is an answer of the server.
var (
	// ErrUnreachable: no answer came. Every call may be repeated.
	ErrUnreachable = errors.New("the apiserver cannot be reached")
	// ErrCut: an event stream broke off while its run was not over; ask again for
	// the events after the last one received.
	ErrCut = errors.New("the event stream was cut")
)

const (
	// callTimeout bounds every call but Events; DeleteChat and DeleteRuns wait for runs to end.
	callTimeout = time.Minute
	// maxAnswer bounds an answer's body, in bytes.
	maxAnswer = 4 << 20
)

// Client talks to one apiserver, or to all those behind a name. Safe for concurrent use.
type Client struct {
	base     string
	replicas *resolution // nil if the base stands for one process, whatever it looks like
	only     string      // host:port of one of those behind the name; empty for all
	http     *http.Client
	token    string // bearer; empty for none
	// tenant is the owner of the data that a call is about.
	tenant memory.Tenant
	// Idle is how long an event stream may be silent before it counts as cut; it
	// must be longer than the server's heartbeat. Set it before the first call.
	Idle time.Duration
}

// NewClient makes a client of the apiserver at base, such as
// http://127.0.0.1:8081. A nil h stands for one of its own; an h with a Timeout
// would cut event streams.
func NewClient(base string, h *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("the apiserver's address must be a URL such as http://127.0.0.1:8081, not %q", base)
	}
	if h == nil {
		h = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	}
	return &Client{base: strings.TrimRight(base, "/"), replicas: &resolution{}, http: h, Idle: 45 * time.Second}, nil
}

// ForEvents is the client of the process that an events URL names: a run can be stopped
// and finished only where it is.
func (c *Client) ForEvents(events string) (*Client, error) {
	u, err := url.Parse(events)
	if err != nil {
		return nil, fmt.Errorf("an events URL: %w", err)
	}
	base, _, _ := strings.Cut(u.Path, "/v1/runs/")
	client, err := NewClient(u.Scheme+"://"+u.Host+base, c.http)
	if err != nil {
		return nil, err
	}
	client.Idle, client.replicas = c.Idle, nil
	if client.base == c.base {
		client.replicas = c.replicas
	}
	return client, nil
}

// EventsURL is where the configured apiserver would have a run's events.
func (c *Client) EventsURL(run string) string {
	return c.base + "/v1/runs/" + url.PathEscape(run) + "/events"
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// PostRun starts a run, or finds the one that already has this id.
func (c *Client) PostRun(ctx context.Context, r RunRequest) (RunAccepted, error) {
	body, err := r.MarshalJSON() // by itself, since an encoder copies what a Marshaler gives
	if err != nil {
		return RunAccepted{}, fmt.Errorf("encoding run %s: %w", r.RunID, err)
	}
	var accepted RunAccepted
	its := c.forTenant(r.ChatID.Tenant())
	err = its.callWithin(ctx, callTimeout, r.RunID, http.MethodPost, "/v1/runs", body, &accepted)
	return accepted, err
}

// Stop ends a run as its user's wish. A run that is over stays as it is; so does one that waits for an answer by then,
// and the error is ErrWaits.
func (c *Client) Stop(ctx context.Context, run string) error {
	return c.callWithin(ctx, callTimeout, run, http.MethodPost, "/v1/runs/"+url.PathEscape(run)+"/stop", nil, nil)
}

// Done reports to the apiserver that all events of a run up to number last are stored. The apiserver then drops them. A
// run that was resumed since has more events and is kept.
func (c *Client) Done(ctx context.Context, run string, last int64) error {
	path := "/v1/runs/" + url.PathEscape(run) + "?last=" + strconv.FormatInt(last, 10)
	return c.callWithin(ctx, callTimeout, run, http.MethodDelete, path, nil, nil)
}

// DeleteChat stops the chat's runs, drops their events and deletes the chat's documents. It reports whether the chat had
// documents.
func (c *Client) DeleteChat(ctx context.Context, chat memory.Chat) (documents bool, err error) {
	err = each(ctx, c.forTenant(chat.Tenant()), func(replica *Client) error {
		var erased ChatErased
		err := replica.call(ctx, http.MethodDelete, "/v1/chats/"+url.PathEscape(chat.ID()), nil, &erased)
		documents = documents || erased.Documents
		return err
	})
	return documents, err
}

// DeleteRuns stops the chat's runs and drops their events; its documents stay.
func (c *Client) DeleteRuns(ctx context.Context, chat memory.Chat) error {
	return each(ctx, c.forTenant(chat.Tenant()), func(replica *Client) error {
		return replica.call(ctx, http.MethodDelete, "/v1/chats/"+url.PathEscape(chat.ID())+"/runs", nil, nil)
	})
}

// EraseConversation has the gateway forget what was said to models in a chat of a tenant;
// the id is that of RunRequest.ConversationID.
func (c *Client) EraseConversation(ctx context.Context, tenant memory.Tenant, id string) error {
	return c.forTenant(tenant).call(ctx, http.MethodDelete, "/v1/conversations/"+url.PathEscape(id), nil, nil)
}

// TenantHeader says for which tenant a service asks another one.
const TenantHeader = "Mneme-Tenant"

// forTenant is the client for what is a tenant's.
func (c *Client) forTenant(tenant memory.Tenant) *Client {
	its := *c
	its.tenant = tenant
	return &its
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	return c.callWithin(ctx, callTimeout, "", method, path, body, into)
}

// send sends a request, about a run if one is named. A body that is not yet bytes is encoded as JSON. nil sends none.
func (c *Client) send(ctx context.Context, run, method, path string, body any) (*http.Response, error) {
	raw, encoded := body.([]byte)
	if body != nil && !encoded {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if run != "" {
		// A run's id is its idempotency key. Without a value net/http sends no such header, but repeats the request over
		// another connection if one that was idle breaks off without an answer, as that to a process that was killed.
		req.Header["Idempotency-Key"] = nil
	}
	if c.tenant != (memory.Tenant{}) {
		req.Header.Set(TenantHeader, c.tenant.String())
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return do(c, req, run)
}

// callWithin sends a request and decodes the answer.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, run, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := c.send(ctx, run, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: reading the answer of %s %s: %w", ErrUnreachable, method, path, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the answer of %s %s: %w", method, path, err)
	}
	return nil
}
