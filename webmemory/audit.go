package webmemory

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/access/audit"
	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// This file is about the audit log, of acts that can hurt others and their actors: how it is written and read;
// rights.go says what is in it.

// auditor is the routes of what is counted and noted of callers: the audit log and the usage of models. What is noted
// is decided by rights.go.
type auditor struct{ *node.Core }

// readAsAdmin is the entry for reading by the scope admin without the scope of reading.
const readAsAdmin = "memory.read"

// auditTarget is where a handler sets the target of its request's entry that is not the path.
const auditTarget = "audit target"

var errAuditOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeAuditOff,
	Message: "This service keeps no log of who did what."}

// audit writes what a request did, once it has succeeded.
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

// getAudit is GET /v1/audit: the caller's tenant's entries, and for an admin of the default tenant those of any.
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
