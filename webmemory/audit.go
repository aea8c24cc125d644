package webmemory

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// auditor serves model usage and the audit log, which records requests that can harm others and their callers.
// rights.go selects these requests.
type auditor struct{ *node.Core }

// readAsAdmin is the entry for a read with access.Admin but without access.MemoryRead.
const readAsAdmin = "memory.read"

// auditTarget is the context key of an audit target other than the path.
const auditTarget = "audit target"

var errAuditOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeAuditOff,
	Message: "This service keeps no log of who did what."}

// audit writes the audit entry of a successful request.
func (s *routes) audit(c *gin.Context) {
	c.Next()
	if c.Writer.Status() >= http.StatusBadRequest || c.GetBool(node.NothingDone) {
		return
	}
	route := c.Request.Method + " " + c.FullPath()
	entry := s.entries[route]
	if p := access.FromContext(c.Request.Context()); s.rights[route] == access.MemoryRead && p.Key != "" &&
		!slices.Contains(p.Scopes, access.MemoryRead) {
		entry = readAsAdmin
	}
	target := cmp.Or(c.GetString(auditTarget), strings.TrimPrefix(c.Request.URL.EscapedPath(), "/v1/"))
	s.WriteAudit(c.Request.Context(), problem.TenantOf(c), entry, target)
}

// getAudit handles GET /v1/audit for the caller's tenant. An admin of the default tenant may read any tenant.
func (s *auditor) getAudit(c *gin.Context) error {
	if s.Cfg.Audit == nil {
		return errAuditOff
	}
	limit, err := problem.Number(c, "limit", node.PageSize, 1, node.MaxPage)
	if err != nil {
		return err
	}
	tenant, err := tenantAsked(c)
	if err != nil {
		return err
	}
	entries, err := s.Cfg.Audit.Page(c.Request.Context(), tenant, c.Query("cursor"), limit)
	if err != nil {
		return err
	}
	out := webapi.AuditPage{Entries: append([]audit.Entry{}, entries...)}
	if len(entries) == limit {
		out.NextCursor = entries[limit-1].ID
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

var errUsageOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeUsageOff,
	Message: "This service is not told where usage is counted."}

// readUsage returns a page of daily usage and cost counters, which the gateway keeps in the same Redis. An admin of the
// default tenant may read any tenant.
func (s *auditor) readUsage(c *gin.Context) error {
	if s.Cfg.Usage == nil {
		return errUsageOff
	}
	now := time.Now()
	q := tally.Query{Dimension: tally.Dimension(cmp.Or(c.Query("by"), string(tally.ByTenant))),
		Name: c.Query("chat"), Cursor: c.Query("cursor")}
	if q.Name != "" && c.Query("by") != "" && q.Dimension != tally.ByChat {
		return problem.BadRequest("chat goes with by=chat only.")
	}
	if q.Name != "" {
		q.Dimension = tally.ByChat
	}
	var err, sinceErr, untilErr error
	if q.Tenant, err = tenantAsked(c); err != nil {
		return err
	}
	q.First, sinceErr = tally.ParseDay(cmp.Or(c.Query("since"), "30d"), now)
	q.Last, untilErr = tally.ParseDay(cmp.Or(c.Query("until"), "0d"), now)
	err = errors.Join(sinceErr, untilErr)
	var page tally.Page
	if err == nil {
		page, err = s.Cfg.Usage.Read(c.Request.Context(), q)
	}
	if errors.Is(err, tally.ErrQuery) {
		return problem.BadRequest("%s.", strings.ReplaceAll(err.Error(), tally.ErrQuery.Error()+": ", ""))
	}
	return api.Answer(c.Writer, http.StatusOK, page, err)
}
