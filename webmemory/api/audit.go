package api

import (
	"context"
	"net/http"
	"net/url"

	"mneme/access/audit"
)

// AuditPath gives the audit log: acts that can hurt others, and their actors (GET).
const AuditPath = "/v1/audit"

// AuditPage answers GET /v1/audit, the oldest first.
type AuditPage struct {
	Entries    []audit.Entry `json:"entries"`
	NextCursor string        `json:"next_cursor"` // empty at the end
}

// Audit gives a page: cursor, limit and tenant are its parameters.
func (c *Client) Audit(ctx context.Context, question url.Values) (AuditPage, error) {
	return ask[AuditPage](ctx, c, http.MethodGet, AuditPath+"?"+question.Encode(), nil)
}
