package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"mneme/proxy/wire"
)

// Get reads what lies at a call's path, once, with the credential that calls have. Its end says nothing of
// the backend's health: an API may answer calls and have nothing there. ctx bounds its time.
func (c *Client) Get(ctx context.Context, call wire.Call, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(call.Path), nil)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = c.header(call)
	req.Header.Del("Content-Type")
	resp, err := c.trip.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d", resp.StatusCode)
	}
	if err := decode(resp); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return body, nil
}
