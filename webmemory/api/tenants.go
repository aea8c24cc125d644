package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/memory"
)

// TenantsPath lists the tenants (GET); below it stands a tenant's name.
const TenantsPath = "/v1/tenants"

// tenantPath is a tenant's (DELETE), and its export's with /export.
func tenantPath(tenant memory.Tenant) string {
	return TenantsPath + "/" + url.PathEscape(tenant.String())
}

// Codes of refusals about tenants.
const (
	CodeUnknownTenant = "unknown_tenant"
	CodeDefaultTenant = "default_tenant" // it is not erased as a whole
	CodeKeysInFile    = "keys_in_file"   // the operator has to take them out first
)

// Tenant is one in the list of tenants.
type Tenant struct {
	Tenant  memory.Tenant `json:"tenant"`
	Keys    int           `json:"keys"` // that are not revoked and have not expired, those of keys_file too
	Chats   int           `json:"chats"`
	Bytes   int64         `json:"stored_bytes"`      // of its chats' memory and its documents, as counted a moment ago
	Used    time.Time     `json:"used,omitzero"`     // the minute in which one of its keys was last used
	Erasing bool          `json:"erasing,omitempty"` // its erasure has begun and is not over: ask for it again
}

// TenantList answers GET /v1/tenants.
type TenantList struct {
	Tenants []Tenant `json:"tenants"` // by name
}

// ErasedTenant answers DELETE /v1/tenants/{tenant}: what this request did.
type ErasedTenant struct {
	Keys          int `json:"keys"` // revoked
	Chats         int `json:"chats"`
	Users         int `json:"users"`         // whose notes were erased
	Collections   int `json:"collections"`   // of documents, without those of chats
	Conversations int `json:"conversations"` // at the gateway, without those of chats
	// Remaining is how many of all these are known to be left; ask again until Done is true, also when it is 0.
	Remaining int  `json:"left"`
	Done      bool `json:"done"` // nothing of the tenant is left
}

// Kinds of lines of a tenant's export.
const (
	TenantBegins   = "tenant"
	TenantKey      = "key"
	TenantChat     = "chat"      // begins a chat: its lines follow
	TenantLine     = "chat_line" // a line of the chat's own export
	TenantUnread   = "unread"    // a chat, a part of it, or a user's notes could not be read
	TenantNote     = "user_note"
	TenantUser     = "user"
	TenantDocument = "document"
	TenantUsage    = "usage"
	TenantAudit    = "audit"
	TenantEnds     = "end" // the last line: an export without it is not whole
)

// TenantExport is a line of a tenant's export; Kind says which of the others are set.
type TenantExport struct {
	Kind       string           `json:"kind"`
	Tenant     *memory.Tenant   `json:"tenant,omitempty"`
	CreatedAt  time.Time        `json:"at,omitzero"` // when the export began
	Key        *access.Key      `json:"key,omitempty"`
	Chat       string           `json:"chat,omitempty"` // an id
	Title      string           `json:"title,omitempty"`
	Metadata   json.RawMessage  `json:"metadata,omitempty"`
	Used       *int64           `json:"used,omitempty"` // Unix ms of the chat's last run
	Line       *ExportLine      `json:"line,omitempty"`
	Error      string           `json:"error,omitempty"` // why something is unread
	User       string           `json:"user,omitempty"`
	Note       *memory.Note     `json:"note,omitempty"`
	TimeZone   string           `json:"time_zone,omitempty"` // the user's
	Collection string           `json:"collection,omitempty"`
	Document   json.RawMessage  `json:"document,omitempty"` // of the collection, or of the chat
	GroupBy    tally.Dimension  `json:"by,omitempty"`
	Usage      *tally.Row       `json:"usage,omitempty"`
	Audit      *audit.Entry     `json:"audit,omitempty"`
	Lines      map[string]int64 `json:"lines,omitempty"` // in the last line, how many there are of each other kind
}

// Tenants lists the tenants that the key may see.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	out, err := ask[TenantList](ctx, c, http.MethodGet, TenantsPath, nil)
	return out.Tenants, err
}

// EraseTenant erases some of what a tenant has; as long as Done is false it is to be called again.
func (c *Client) EraseTenant(ctx context.Context, tenant memory.Tenant) (ErasedTenant, error) {
	return ask[ErasedTenant](ctx, c, http.MethodDelete, tenantPath(tenant), nil)
}

// ExportTenant copies all that a tenant has as lines of TenantExport. An answer that is not whole is an error.
func (c *Client) ExportTenant(ctx context.Context, tenant memory.Tenant, dst io.Writer) error {
	return c.export(ctx, tenantPath(tenant), dst, func(line []byte, count int) bool {
		var end struct {
			Kind  string
			Lines map[string]int
		}
		if json.Unmarshal(line, &end) != nil || end.Kind != TenantEnds {
			return false
		}
		for _, n := range end.Lines {
			count -= n
		}
		return count == 0
	})
}
