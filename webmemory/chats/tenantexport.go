package chats

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// tenantPage is the number of chats or users per read.
const tenantPage = 100

// ExportTenant handles GET /v1/tenants/{tenant}/export. It writes all data of the tenant as JSON lines, each with its
// kind. Data written during the export may or may not be included.
func (s *Tenancy) ExportTenant(c *gin.Context, tenant memory.Tenant) error {
	ctx := c.Request.Context()
	tenants, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(tenants, func(t webapi.Tenant) bool { return t.Tenant == tenant }) {
		return errUnknownTenant
	}
	s.WriteAudit(ctx, tenant, tenantExported, "tenants/"+tenant.String())
	c.Header("Content-Type", "application/x-ndjson")
	c.Header("Content-Disposition", fmt.Sprintf("attachment; filename=%q", tenant.String()+".ndjson"))
	x := tenantExport{Tenancy: s, tenant: tenant, out: bufio.NewWriterSize(c.Writer, 64<<10), lines: map[string]int64{}}
	header := webapi.TenantExport{Kind: webapi.TenantBegins, Tenant: &tenant, CreatedAt: time.Now().UTC()}
	if err := x.write(header); err != nil {
		return broken(c, err)
	}
	for _, part := range []func(context.Context) error{x.keys, x.chats, x.users, x.documents, x.usage, x.audit} {
		if err := part(ctx); err != nil {
			return broken(c, err)
		}
	}
	err = writeLine(x.out, webapi.TenantExport{Kind: webapi.TenantEnds, Lines: x.lines})
	if err = errors.Join(err, x.out.Flush()); err != nil {
		return broken(c, err)
	}
	return nil
}

// tenantExport is a running export.
type tenantExport struct {
	*Tenancy
	tenant memory.Tenant
	out    *bufio.Writer
	lines  map[string]int64 // by kind
}

func (x *tenantExport) write(line webapi.TenantExport) error {
	x.lines[line.Kind]++
	return writeLine(x.out, line)
}

// keys exports keys without their hashes.
func (x *tenantExport) keys(ctx context.Context) error {
	keys, err := x.Cfg.Keys.List(ctx)
	for _, k := range keys {
		if k.Tenant == x.tenant && err == nil {
			err = x.write(webapi.TenantExport{Kind: webapi.TenantKey, Key: &k})
		}
	}
	return err
}

// chats exports the chats, latest use first. An unreadable chat becomes a webapi.TenantUnread line.
func (x *tenantExport) chats(ctx context.Context) error {
	for cursor := (redisstore.Place{}); ; {
		page, err := x.Store.Chats.ByUse(ctx, x.tenant, cursor, tenantPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, p := range page {
			chat, ok := p.Chat(x.tenant)
			if !ok {
				continue
			}
			if err := x.chat(ctx, chat, p.Used); node.Unread(err) {
				err = x.write(webapi.TenantExport{Kind: webapi.TenantUnread, Chat: chat.ID(),
					Error: problem.FromError(err).Message})
				if err != nil {
					return err
				}
			} else if err != nil {
				return err
			}
		}
		cursor = page[len(page)-1]
	}
}

// chat exports a chat's card, then the lines of the chat's own export.
func (x *tenantExport) chat(ctx context.Context, chat memory.Chat, used int64) error {
	if err := x.Tier.Wake(ctx, chat); err != nil {
		return err
	}
	cards, err := x.Store.Chats.Cards(ctx, chat)
	if err != nil {
		return err
	}
	stored, err := x.Store.Chats.Histories(ctx, chat, x.Cfg.Agents()...)
	if err != nil || cards[0].Missing && len(stored) == 0 {
		return err
	}
	header := webapi.TenantExport{Kind: webapi.TenantChat, Chat: chat.ID(), Title: cards[0].Title, Used: &used}
	if json.Valid([]byte(cards[0].Metadata)) {
		header.Metadata = json.RawMessage(cards[0].Metadata)
	}
	if err := x.write(header); err != nil || len(stored) == 0 {
		return err
	}
	return x.Portable.exportLines(ctx, stored, func(line webapi.ExportLine) error {
		return x.write(webapi.TenantExport{Kind: webapi.TenantLine, Chat: chat.ID(), Line: &line})
	})
}

// users exports the time zones and the notes of users.
func (x *tenantExport) users(ctx context.Context) error {
	for place := 0; ; place += tenantPage {
		page, total, err := x.Store.Tenants.Users(ctx, x.tenant, place, tenantPage)
		if err != nil {
			return err
		}
		for _, u := range page {
			zone, err := x.Store.Users.Zone(ctx, u)
			if err == nil && zone != "" {
				err = x.write(webapi.TenantExport{Kind: webapi.TenantUser, User: u.ID(), TimeZone: zone})
			}
			if err != nil {
				return err
			}
			notes, err := x.Store.Users.Notes(ctx, u)
			if node.Unread(err) {
				err = x.write(webapi.TenantExport{Kind: webapi.TenantUnread, User: u.ID(), Error: problem.FromError(err).Message})
			}
			if err != nil {
				return err
			}
			for i := range notes {
				line := webapi.TenantExport{Kind: webapi.TenantNote, User: u.ID(), Note: &notes[i]}
				if err := x.write(line); err != nil {
					return err
				}
			}
		}
		if place+tenantPage >= total {
			return nil
		}
	}
}

// documents exports the documents of collections and chats.
func (x *tenantExport) documents(ctx context.Context) error {
	_, err := x.Runs.TenantDocuments(ctx, x.tenant, func(d api.TenantDocument) error {
		return x.write(webapi.TenantExport{Kind: webapi.TenantDocument, Chat: d.Chat, Collection: d.Collection,
			Document: d.Document})
	})
	return err
}

// usage exports the counters of all days, once per dimension.
func (x *tenantExport) usage(ctx context.Context) error {
	if x.Cfg.Usage == nil {
		return nil
	}
	now := time.Now()
	for _, dimension := range tally.Dimensions {
		q := tally.Query{Tenant: x.tenant, Dimension: dimension, First: now.Add(-tally.Keep), Last: now}
		for {
			page, err := x.Cfg.Usage.Read(ctx, q)
			if err != nil {
				return err
			}
			for _, row := range page.Rows {
				if err := x.write(webapi.TenantExport{Kind: webapi.TenantUsage, GroupBy: dimension, Usage: &row}); err != nil {
					return err
				}
			}
			if page.Next == "" {
				break
			}
			q.Cursor = page.Next
		}
	}
	return nil
}

func (x *tenantExport) audit(ctx context.Context) error {
	for cursor := ""; ; {
		page, err := x.Cfg.Audit.Page(ctx, x.tenant, cursor, audit.MaxPage)
		if err != nil {
			return err
		}
		for i := range page {
			if err := x.write(webapi.TenantExport{Kind: webapi.TenantAudit, Audit: &page[i]}); err != nil {
				return err
			}
		}
		if len(page) < audit.MaxPage {
			return nil
		}
		cursor = page[len(page)-1].ID
	}
}
