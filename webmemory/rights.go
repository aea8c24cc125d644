package webmemory

import (
	"errors"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/web"
)

// rights say what each route needs where keys are asked for. A route that is not here is refused.
var rights = access.Rights{
	"GET /":                         access.Open,
	"GET " + web.Folder + "*file":   access.Open,
	"GET /openapi.json":             access.Open,
	"GET /healthz":                  access.Open,
	"GET /readyz":                   access.Open,
	"GET /metrics":                  access.Open,
	"POST /chat":                    access.Chat,
	"POST " + webapi.OneShotPath:    access.Chat,
	"POST /v1/chats/:chat/messages": access.Chat,

	"POST " + webapi.OneShotResumePath(":run"):    access.Chat,
	"GET /v1/chats/:chat/runs/:run/events":        access.Chat,
	"GET /v1/chats/:chat/runs/:run/trace":         access.Chat,
	"POST /v1/chats/:chat/runs/:run/stop":         access.Chat,
	"POST /v1/chats/:chat/runs/:run/resume":       access.Chat, // answers for a person need Approve too
	"GET " + webapi.ApprovalsPath:                 access.Approve,
	"POST /v1/chat/completions":                   access.Chat,
	"GET /v1/models":                              access.Chat,
	"GET /v1/models/*model":                       access.Chat,
	"POST /c/:chat/v1/chat/completions":           access.Chat,
	"GET /c/:chat/v1/models":                      access.Chat,
	"GET /c/:chat/v1/models/*model":               access.Chat,
	"POST /mcp":                                   access.AnyKey, // what its tools ask is judged as any request
	"GET /v1/chats":                               access.MemoryRead,
	"GET /v1/chats/:chat":                         access.MemoryRead,
	"GET /v1/chats/:chat/recall":                  access.MemoryRead,
	"GET /v1/chats/:chat/export":                  access.MemoryRead,
	"GET /v1/chats/:chat/set-aside":               access.MemoryRead,
	"GET /v1/chats/:chat/history":                 access.MemoryRead,
	"GET /v1/chats/:chat/notes":                   access.MemoryRead,
	"GET /v1/chats/:chat/subagents/:name/history": access.MemoryRead,
	"GET /v1/chats/:chat/subagents/:name/notes":   access.MemoryRead,

	"PATCH /v1/chats/:chat":                               access.MemoryWrite,
	"DELETE /v1/chats/:chat":                              access.MemoryWrite,
	"DELETE /v1/chats/:chat/messages/:id":                 access.MemoryWrite,
	"DELETE /v1/chats/:chat/subagents/:name/messages/:id": access.MemoryWrite,
	"POST /v1/chats/:chat/import":                         access.MemoryWrite,
	"POST /v1/chats/:chat/rewind":                         access.MemoryWrite,
	"POST /v1/chats/:chat/set-aside/:id/restore":          access.MemoryWrite,
	"POST /v1/chats/:chat/fork":                           access.MemoryWrite,
	"DELETE /v1/chats/:chat/history":                      access.MemoryWrite,
	"DELETE /v1/chats/:chat/subagents/:name/history":      access.MemoryWrite,
	"POST /v1/chats/:chat/notes":                          access.MemoryWrite,
	"PATCH /v1/chats/:chat/notes/:id":                     access.MemoryWrite,
	"DELETE /v1/chats/:chat/notes/:id":                    access.MemoryWrite,
	"POST /v1/chats/:chat/subagents/:name/notes":          access.MemoryWrite,
	"PATCH /v1/chats/:chat/subagents/:name/notes/:id":     access.MemoryWrite,
	"DELETE /v1/chats/:chat/subagents/:name/notes/:id":    access.MemoryWrite,

	"GET /v1/users/:user/notes":        access.MemoryRead,
	"POST /v1/users/:user/notes":       access.MemoryWrite,
	"PATCH /v1/users/:user/notes/:id":  access.MemoryWrite,
	"DELETE /v1/users/:user/notes/:id": access.MemoryWrite,
	"DELETE /v1/users/:user":           access.MemoryWrite,

	"ANY /v1/collections":               access.Documents,
	"ANY /v1/collections/*rest":         access.Documents,
	"ANY /v1/chats/:chat/documents":     access.Documents,
	"ANY /v1/chats/:chat/documents/*id": access.Documents,

	"GET " + webapi.TenantsPath:                     access.Admin,
	"GET " + webapi.TenantsPath + "/:tenant/export": access.Admin,
	"DELETE " + webapi.TenantsPath + "/:tenant":     access.Admin,

	"GET " + webapi.UsagePath:                  access.MemoryRead,
	"GET " + webapi.AuditPath:                  access.Admin,
	"GET " + webapi.KeysPath:                   access.Admin,
	"POST " + webapi.KeysPath:                  access.Admin,
	"GET " + webapi.SelfPath:                   access.AnyKey,
	"DELETE " + webapi.KeysPath + "/:key":      access.Admin,
	"POST " + webapi.KeysPath + "/:key/rotate": access.Admin,

	"POST " + internalPath + "/runs/:run/recall":      access.Internal,
	"POST " + internalPath + "/runs/:run/notes":       access.Internal,
	"POST " + internalPath + "/runs/:run/calls":       access.Internal,
	"POST " + internalPath + "/runs/:run/calls/:call": access.Internal,
	"GET " + internalPath + "/chats/:chat/runs/:run":  access.Internal,
	"POST " + internalPath + "/erasures":              access.Internal,
	"POST " + internalPath + "/rewinds":               access.Internal,
}

// letIn lets a request in before its body is read, for as long as its key is good, or answers it.
func (s *Server) letIn(c *gin.Context) {
	r, err := s.cfg.Gate.Admit(c.Request, rights, c.FullPath())
	if err == nil {
		in, over := s.cfg.Gate.Stay(r)
		defer over()
		c.Request = in
		c.Next()
		return
	}
	_ = c.Error(err) // for the request's line in the log
	c.Abort()
	s.refuse(c, err)
}

// refuse answers a request that may not come in, in the shape of its endpoint.
func (s *Server) refuse(c *gin.Context, err error) {
	p := problemOf(err)
	if no := new(access.Refusal); errors.As(err, &no) && no.Challenge != "" {
		c.Header("WWW-Authenticate", no.Challenge)
	}
	if path := c.FullPath(); strings.HasSuffix(path, "/v1/chat/completions") || strings.Contains(path, "/v1/models") {
		openaiapi.Refuse(c.Writer, p)
		return
	}
	s.fail(c, p)
}

// mayAnswer says whether who resumes a run may give these answers: a person's yes, which has no
// result, takes the scope Approve.
func mayAnswer(c *gin.Context, answers []event.WaitAnswer) error {
	yes := func(a event.WaitAnswer) bool { return a.Decision != event.Deny && len(a.Result) == 0 }
	if !slices.ContainsFunc(answers, yes) {
		return nil
	}
	return access.From(c.Request.Context()).Need(access.Approve)
}
