package webmemory

import (
	"context"
	"errors"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/web"
)

// act is what requests do: the scope that it takes, and its entry in the audit log, "" for none. does names what does
// it: routes by method and path as the router has them, and what requests may do beside their route. For a route its
// right is asked before the body is read; for the others where they are done, with what is stored at hand, since the
// words of a request do not say what they do.
type act struct {
	scope access.Scope
	entry string
	does  []string
}

// What requests may do beside their route. So may an answer to a wait, by the wait's kind and the decision: see doing.
const (
	rewinds     = "after"                               // a message that takes back more than the newest exchange
	regenerates = "after, of the newest exchange alone" // which clients do that show a transcript
)

// acts are all that there are; a route that is not here is refused. The log's entries about tenants as a whole are in
// tenants.go: they are in another tenant's log.
var acts = []act{
	{access.Open, "", []string{"GET /", "GET " + web.Folder + "*file", "GET /openapi.json", "GET /healthz", "GET /readyz",
		"GET /metrics"}},
	{access.AnyKey, "", []string{"GET " + webapi.SelfPath, "POST /mcp"}}, // what its tools ask is judged as any request

	{access.Chat, "", []string{
		"POST /chat", "POST " + webapi.OneShotPath, "POST /v1/chats/:chat/messages", regenerates,
		"POST " + webapi.OneShotResumePath(":run"), "POST /v1/chats/:chat/runs/:run/resume",
		"client_result approve", "client_result deny",
		"GET /v1/chats/:chat/runs/:run/events", "GET /v1/chats/:chat/runs/:run/trace", "POST /v1/chats/:chat/runs/:run/stop",
		"POST /v1/chat/completions", "GET /v1/models", "GET /v1/models/*model",
		"POST /c/:chat/v1/chat/completions", "GET /c/:chat/v1/models", "GET /c/:chat/v1/models/*model"}},
	{access.Chat, "approval.deny", []string{"approval deny"}}, // as a new message does, and a stop of the run
	{access.Chat, "question.deny", []string{"question deny"}},
	{access.Approve, "", []string{"GET " + webapi.ApprovalsPath}},
	{access.Approve, "approval.approve", []string{"approval approve"}},
	{access.Approve, "approval.edit", []string{"approval edit"}},
	{access.Approve, "question.approve", []string{"question approve"}},

	{access.MemoryRead, "", []string{
		"GET /v1/chats", "GET /v1/chats/:chat", "GET /v1/chats/:chat/recall", "GET /v1/chats/:chat/export",
		"GET /v1/chats/:chat/set-aside", "GET /v1/chats/:chat/history", "GET /v1/chats/:chat/notes",
		"GET /v1/chats/:chat/subagents/:name/history", "GET /v1/chats/:chat/subagents/:name/notes",
		"GET /v1/users/:user/notes", "GET " + webapi.UsagePath}},
	{access.MemoryWrite, "", []string{
		"PATCH /v1/chats/:chat", "POST /v1/chats/:chat/import", "POST /v1/chats/:chat/fork",
		"POST /v1/chats/:chat/notes", "PATCH /v1/chats/:chat/notes/:id", "POST /v1/chats/:chat/subagents/:name/notes",
		"PATCH /v1/chats/:chat/subagents/:name/notes/:id", "POST /v1/users/:user/notes", "PATCH /v1/users/:user/notes/:id"}},
	{access.MemoryWrite, "chat.erase", []string{"DELETE /v1/chats/:chat"}},
	{access.MemoryWrite, "chat.rewind", []string{"POST /v1/chats/:chat/rewind", rewinds}},
	{access.MemoryWrite, "chat.restore", []string{"POST /v1/chats/:chat/set-aside/:id/restore"}},
	{access.MemoryWrite, "history.erase", []string{
		"DELETE /v1/chats/:chat/history", "DELETE /v1/chats/:chat/subagents/:name/history"}},
	{access.MemoryWrite, "message.redact", []string{
		"DELETE /v1/chats/:chat/messages/:id", "DELETE /v1/chats/:chat/subagents/:name/messages/:id"}},
	{access.MemoryWrite, "note.erase", []string{"DELETE /v1/chats/:chat/notes/:id",
		"DELETE /v1/chats/:chat/subagents/:name/notes/:id", "DELETE /v1/users/:user/notes/:id"}},
	{access.MemoryWrite, "user.erase", []string{"DELETE /v1/users/:user"}},

	{access.Documents, "", []string{"ANY /v1/collections", "ANY /v1/collections/*rest", "ANY /v1/chats/:chat/documents",
		"ANY /v1/chats/:chat/documents/*id"}},
	{access.Documents, "documents.erase", []string{
		"DELETE /v1/collections/*rest", "DELETE /v1/chats/:chat/documents/*id"}},

	{access.Admin, "", []string{"GET " + webapi.AuditPath, "GET " + webapi.KeysPath, "GET " + webapi.TenantsPath,
		"GET " + webapi.TenantsPath + "/:tenant/export", "DELETE " + webapi.TenantsPath + "/:tenant"}},
	{access.Admin, "key.create", []string{"POST " + webapi.KeysPath}},
	{access.Admin, "key.rotate", []string{"POST " + webapi.KeysPath + "/:key/rotate"}},
	{access.Admin, "key.revoke", []string{"DELETE " + webapi.KeysPath + "/:key"}},
	{access.Internal, "", []string{
		"POST " + internalPath + "/runs/:run/recall", "POST " + internalPath + "/runs/:run/notes",
		"POST " + internalPath + "/runs/:run/calls", "POST " + internalPath + "/runs/:run/calls/:call",
		"GET " + internalPath + "/chats/:chat/runs/:run", "GET " + internalPath + "/chats/:chat/calls/:run",
		"POST " + internalPath + "/erasures", "POST " + internalPath + "/rewinds"}},
}

// rights and entries are acts by what does them.
var rights, entries = func() (access.Rights, map[string]string) {
	rights, entries := access.Rights{}, map[string]string{}
	for _, a := range acts {
		for _, what := range a.does {
			rights[what], entries[what] = a.scope, a.entry
		}
	}
	return rights, entries
}()

// may is nil if the caller may do what a request does beside its route.
func may(ctx context.Context, what string) error { return access.From(ctx).Need(rights[what]) }

// doing is what an answer does: it follows from the kind of its wait, and not from what the answer has. "" for one to
// none of the waits.
func doing(a event.WaitAnswer, waits []event.Wait) string {
	for _, w := range waits {
		if w.ID == a.ID {
			return w.Kind + " " + a.Decision
		}
	}
	return ""
}

// letIn lets a request in before its body is read, for as long as its key is good, or answers it.
func (s *routes) letIn(c *gin.Context) {
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
func (s *routes) refuse(c *gin.Context, err error) {
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
