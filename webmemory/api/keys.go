package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"mneme/access"
	"mneme/access/limit"
	"mneme/memory"
)

// KeysPath lists the API keys (GET) and makes one (POST); below it stands a key's id.
const KeysPath = "/v1/keys"

// SelfPath tells of the key that a request comes with.
const SelfPath = KeysPath + "/self"

// Self answers GET /v1/keys/self: what who asks may do, and in whose data.
type Self struct {
	ID     string         `json:"id,omitempty"` // of the key; none where the service asks for no keys
	Tenant memory.Tenant  `json:"tenant"`
	Scopes []access.Scope `json:"scopes"`
}

// KeyRequest is the body of POST /v1/keys: what the key is to be.
type KeyRequest struct {
	Name    string         `json:"name"`             // for people: 1 to 64 characters
	Tenant  memory.Tenant  `json:"tenant,omitempty"` // whose data it opens; the caller's own if it is left out
	Scopes  []access.Scope `json:"scopes"`
	Rate    string         `json:"rate,omitempty"`   // such as 60/m
	Budget  string         `json:"budget,omitempty"` // such as 5000000tokens/month,20usd/month
	Expires time.Time      `json:"expires,omitzero"` // never if it is left out
}

// RotateRequest is the body of POST /v1/keys/{key}/rotate.
type RotateRequest struct {
	Overlap int `json:"overlap,omitempty"` // seconds for which the former text is taken, too; at most 30 days
}

// MadeKey is a key with its text, which is shown this once.
type MadeKey struct {
	Text string `json:"key"`
	access.Key
}

// KeyList answers GET /v1/keys.
type KeyList struct {
	Keys []KeyEntry `json:"keys"` // the oldest first
}

// KeyEntry is a key of a KeyList.
type KeyEntry struct {
	access.Key
	Uses []limit.Use `json:"uses,omitempty"` // how far each of its limits is used: budgets, then rates
}

// CreateKey makes a key.
func (c *Client) CreateKey(ctx context.Context, k KeyRequest) (MadeKey, error) {
	return ask[MadeKey](ctx, c, http.MethodPost, KeysPath, k)
}

// Keys lists the keys.
func (c *Client) Keys(ctx context.Context) ([]KeyEntry, error) {
	out, err := ask[KeyList](ctx, c, http.MethodGet, KeysPath, nil)
	return out.Keys, err
}

// RevokeKey ends a key.
func (c *Client) RevokeKey(ctx context.Context, id string) (access.Key, error) {
	return ask[access.Key](ctx, c, http.MethodDelete, KeysPath+"/"+url.PathEscape(id), nil)
}

// RotateKey gives a key another text.
func (c *Client) RotateKey(ctx context.Context, id string, overlap time.Duration) (MadeKey, error) {
	return ask[MadeKey](ctx, c, http.MethodPost, KeysPath+"/"+url.PathEscape(id)+"/rotate",
		RotateRequest{Overlap: int(overlap / time.Second)})
}
