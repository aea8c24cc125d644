package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"mneme/memory"
)

// ErasedTenant answers DELETE /v1/tenant.
type ErasedTenant struct {
	Collections   int `json:"collections"`   // of documents, that this request dropped
	Conversations int `json:"conversations"` // at the gateway, that it erased
	Remaining     int `json:"left"`          // of both: it is to be sent again until none is
}

// TenantDocument is a line of GET /v1/tenant/export; the last one has only Documents.
type TenantDocument struct {
	Collection string          `json:"collection,omitempty"` // "" for a document of a chat
	Chat       string          `json:"chat,omitempty"`
	Document   json.RawMessage `json:"document,omitempty"`
	Documents  *int            `json:"documents,omitempty"` // how many there were
}

// EraseTenant erases some of the documents and conversations of a tenant, and says how many are left.
func (c *Client) EraseTenant(ctx context.Context, tenant memory.Tenant) (out ErasedTenant, err error) {
	err = c.forTenant(tenant).call(ctx, http.MethodDelete, "/v1/tenant", nil, &out)
	return out, err
}

// maxDocumentLine bounds a line of TenantDocuments, in bytes.
const maxDocumentLine = 256 << 20

// TenantDocuments gives all documents of a tenant to take, and says how many they were.
func (c *Client) TenantDocuments(ctx context.Context, tenant memory.Tenant,
	take func(TenantDocument) error) (int, error) {
	resp, err := c.forTenant(tenant).send(ctx, "", http.MethodGet, "/v1/tenant/export", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines, count := bufio.NewScanner(resp.Body), 0
	lines.Buffer(nil, maxDocumentLine)
	for lines.Scan() {
		var d TenantDocument
		if err := json.Unmarshal(bytes.Clone(lines.Bytes()), &d); err != nil {
			return count, fmt.Errorf("%w: a document of the tenant %s: %w", ErrUnreachable, tenant, err)
		}
		if d.Documents != nil {
			if *d.Documents != count {
				break
			}
			return count, nil
		}
		count++
		if err := take(d); err != nil {
			return count, err
		}
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return count, fmt.Errorf("%w: the documents of the tenant %s: %w", ErrUnreachable, tenant, err)
}
