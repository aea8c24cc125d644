package apiserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/rag/docstore"
)

// This file is about all that a tenant has here: the documents of its collections and chats, and what the gateway
// keeps of its conversations.

// collectionsAtOnce is how many collections one request drops.
const collectionsAtOnce = 50

var errDefaultTenant = problem(http.StatusConflict, "default_tenant", "the default tenant is not erased as a whole")

// deleteTenant is DELETE /v1/tenant: some of what the tenant that asks has goes. The answer says how much is left.
func (s *Server) deleteTenant(c *gin.Context) error {
	tenant := tenantOf(c)
	if (tenant == memory.Tenant{}) {
		return errDefaultTenant
	}
	ctx := c.Request.Context()
	var out api.ErasedTenant
	if library := s.documents.library; library != nil {
		collections, err := library.ListCollections(ctx, tenant)
		if err != nil {
			return problemOf(err)
		}
		for i, one := range collections {
			if i == collectionsAtOnce {
				break
			}
			dropped, err := library.Drop(ctx, one)
			if err != nil {
				return problemOf(err)
			}
			if dropped {
				out.Collections++
			}
		}
		out.Remaining = max(0, len(collections)-collectionsAtOnce)
	}
	if erase := s.cfg.EraseTenant; erase != nil {
		erased, remaining, err := erase(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errGatewayAway, err)
		}
		out.Conversations, out.Remaining = erased, out.Remaining+remaining
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// exportPage is how many documents are read at once: each may have megabytes.
const exportPage = 4

// exportTenant is GET /v1/tenant/export: all documents of the tenant that asks, an api.TenantDocument in each line,
// and a last line that has only the number of them, by which a torn answer is known.
func (d *documents) exportTenant(c *gin.Context) error {
	ctx, count := c.Request.Context(), 0
	c.Header("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(c.Writer, 64<<10)
	lines := lineEncoder(out)
	export := func(one docstore.Collection) error {
		for cursor := ""; ; {
			heads, next, err := d.library.List(ctx, one, cursor, exportPage)
			if err != nil {
				return err
			}
			for _, head := range heads {
				doc, err := d.library.Get(ctx, one, head.ID)
				if errors.Is(err, docstore.ErrNoDocument) {
					continue // deleted meanwhile
				}
				if err != nil {
					return err
				}
				count++
				text, err := json.Marshal(doc)
				if err != nil {
					return err
				}
				record := api.TenantDocument{Collection: one.String(), Document: text}
				if !one.Chat().IsZero() {
					record = api.TenantDocument{Chat: one.Chat().ID(), Document: text}
				}
				if err := lines.Encode(record); err != nil {
					return err
				}
			}
			if next == "" {
				return nil
			}
			cursor = next
		}
	}
	if d.library != nil {
		collections, err := d.library.ListCollections(ctx, tenantOf(c))
		if err != nil {
			return problemOf(err)
		}
		for _, one := range collections {
			if err := export(one); err != nil && !errors.Is(err, docstore.ErrNoCollection) {
				if !c.Writer.Written() {
					return problemOf(err)
				}
				_ = c.Error(err)
				panic(http.ErrAbortHandler) // the last line does not come
			}
		}
	}
	if err := errors.Join(lines.Encode(api.TenantDocument{Documents: &count}), out.Flush()); err != nil {
		_ = c.Error(err) // the client has left
	}
	return nil
}
