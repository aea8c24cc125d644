package webmemory

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/access/audit"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// This file is about the log of who did what can hurt others: which requests are in it, and how it is read.

// audited names what requests do that succeed, by method and path as the router has it. An approval is written where
// it is answered, since its answer may stream for long.
var audited = map[string]string{
	"DELETE /v1/chats/:chat":                              "chat.erase",
	"DELETE /v1/chats/:chat/history":                      "history.erase",
	"DELETE /v1/chats/:chat/subagents/:name/history":      "history.erase",
	"DELETE /v1/chats/:chat/messages/:id":                 "message.redact",
	"DELETE /v1/chats/:chat/subagents/:name/messages/:id": "message.redact",
	"DELETE /v1/chats/:chat/notes/:id":                    "note.erase",
	"DELETE /v1/chats/:chat/subagents/:name/notes/:id":    "note.erase",
	"POST /v1/chats/:chat/rewind":                         "chat.rewind",
	"POST /v1/chats/:chat/set-aside/:id/restore":          "chat.restore",
	"DELETE /v1/users/:user":                              "user.erase",
	"DELETE /v1/users/:user/notes/:id":                    "note.erase",
	"DELETE /v1/collections/*rest":                        "documents.erase",
	"DELETE /v1/chats/:chat/documents/*id":                "documents.erase",
	"DELETE " + webapi.KeysPath + "/:key":                 "key.revoke",
	"POST " + webapi.KeysPath + "/:key/rotate":            "key.rotate",
}

// Actions beside those of audited.
const (
	readAsAdmin = "memory.read" // by who has the scope admin, and not that of reading
	approval    = "approval."   // and the decision
)

var errAuditOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeAuditOff,
	Message: "This service keeps no log of who did what."}

// audit writes what a request did, once it has succeeded.
func (s *Server) audit(c *gin.Context) {
	c.Next()
	if c.Writer.Status() >= http.StatusBadRequest {
		return
	}
	route := c.Request.Method + " " + c.FullPath()
	action := audited[route]
	if p := access.From(c.Request.Context()); rights[route] == access.MemoryRead && p.Key != "" &&
		!slices.Contains(p.Scopes, access.MemoryRead) {
		action = readAsAdmin
	}
	if action != "" {
		s.did(c, action, strings.TrimPrefix(c.Request.URL.EscapedPath(), "/v1/"))
	}
}

// did writes that a request did something to a target of its tenant's. What was done stays done if that fails.
func (s *Server) did(c *gin.Context, action, target string) { s.didTo(c, tenantOf(c), action, target) }

// didTo is did for what is a tenant's that need not be the request's.
func (s *Server) didTo(c *gin.Context, of memory.Tenant, action, target string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), storeTimeout)
	defer cancel()
	if err := s.cfg.Audit.Write(ctx, of, action, target); err != nil {
		s.metrics.unaudited.Inc()
		s.log.Error().Err(err).Str("action", action).Str("target", target).Str("key", access.From(ctx).Key).
			Msg("an entry of the audit log was not kept")
	}
}

// approved writes what somebody answered to the approvals that a run waited for.
func (s *Server) approved(c *gin.Context, chat memory.Chat, run string, answers []event.WaitAnswer) {
	for _, a := range answers {
		if len(a.Result) == 0 { // else it is what a tool of the client's gave
			s.did(c, approval+a.Decision, "chats/"+chat.ID()+"/runs/"+run+"/"+a.ID)
		}
	}
}

// getAudit is GET /v1/audit: the caller's tenant's entries, and for an admin of the default tenant those of any.
func (s *Server) getAudit(c *gin.Context) error {
	if s.cfg.Audit == nil {
		return errAuditOff
	}
	limit, err := number(c, "limit", pageSize, 1, maxPage)
	if err != nil {
		return err
	}
	of := tenantOf(c)
	if name := c.Query("tenant"); name != "" {
		if of, err = memory.ParseTenant(name); err != nil {
			return err
		}
		if !governs(c, of) {
			return badRequest("tenant is the key's own: an admin of a tenant reads what was done in this tenant only.")
		}
	}
	entries, err := s.cfg.Audit.Page(c.Request.Context(), of, c.Query("cursor"), limit)
	if err != nil {
		return err
	}
	out := webapi.AuditPage{Entries: append([]audit.Entry{}, entries...)}
	if len(entries) == limit {
		out.NextCursor = entries[limit-1].ID
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}
