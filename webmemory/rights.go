package webmemory

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/chats"
	"mneme/webmemory/node"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/openapi"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
	"mneme/webmemory/uistream"
	"mneme/webmemory/web"
)

// act is an action of a request and the scope that it needs. A route's scope is checked before the body is read.
// Further actions are checked where they happen, because they depend on stored data.
type act struct {
	does   string // "METHOD /path" of the router, "ANY /path" for all, or a further action
	scope  access.Scope
	entry  string                   // audit entry, "" for none
	answer func(*gin.Context) error // nil if not a route, not configured, or handled elsewhere
}

// acts returns the table of routes. TestOpenAPIRoutes compares it with a table in the tests of package openapi, which
// describes the routes for clients. Package chats writes the audit entries about whole tenants, which belong to another
// tenant's log.
func (s *routes) acts() []act {
	const (
		chat, subagent = "/v1/chats/:chat", "/v1/chats/:chat/subagents/:name"
		internal       = node.InternalPath + "/chats/:chat"
		run, calls     = node.InternalPath + "/runs/:run", node.InternalPath + "/runs/:run/calls"
		read, write    = access.MemoryRead, access.MemoryWrite
	)
	answering, keys, tenants := s.admission.Answering, s.keyring.on, s.tenancy.On
	acts := []act{
		{"GET /", access.Open, "", getPage},
		{"GET " + web.Folder + "*file", access.Open, "", getPage},
		{"GET /openapi.json", access.Open, "", served(http.HandlerFunc(openapi.Serve))},
		{"GET /healthz", access.Open, "", s.monitor.healthz},
		{"GET /readyz", access.Open, "", s.monitor.readyz},
		{"GET /metrics", access.Open, "", nil}, // telemetry.Service.Edge handles it

		{"POST /chat", access.Chat, "", answering(s.admission.ChatPosted)},
		{"POST " + chat + "/messages", access.Chat, "", answering(s.admission.MessagePosted)},
		{"GET " + chat + "/runs/:run/events", access.Chat, "", s.streams.GetEvents},
		{"GET " + chat + "/runs/:run/trace", access.Chat, "", s.traceRoutes.GetTrace},
		{"POST " + chat + "/runs/:run/stop", access.Chat, "", s.resumer.StopRun},
		{"POST " + chat + "/runs/:run/resume", access.ChatOrApprove, "", answering(s.resumer.ResumePosted)},
		{"POST " + webapi.OneShotPath, access.Chat, "", answering(s.oneShotRunner.OneShotPosted)},
		{"GET " + webapi.ApprovalsPath, access.Approve, "", s.resumer.GetApprovals},
		{"POST /mcp", access.AnyKey, "", served(s.Cfg.MCP)}, // requests of its tools are checked like all others

		{"GET /v1/chats", read, "", s.chatList.ListChats},
		{"GET " + chat, read, "", problem.Param(problem.ChatOf, s.chatList.GetChat)},
		{"PATCH " + chat, write, "", problem.InChat(node.MaxBody, s.chatList.PatchChat)},
		{"DELETE " + chat, write, "chat.erase", problem.Param(problem.ChatOf, s.eraseRoutes.DeleteChat)},
		{"GET " + chat + "/recall", read, "", problem.Param(problem.ChatOf, s.searcher.GetRecall)},
		{"GET " + chat + "/export", read, "", problem.Param(problem.ChatOf, s.portable.ExportChat)},
		{"POST " + chat + "/import", write, "", problem.Param(problem.ChatOf, s.portable.ImportChat)},
		{"GET " + chat + "/messages/:id/influence", read, "", problem.Param(problem.ChatOf, s.historyRoutes.GetInfluence)},
		{"GET " + chat + "/quarantine", read, "", problem.Param(problem.ChatOf, s.historyRoutes.GetQuarantine)},
		{"POST " + chat + "/quarantine", write, "chat.quarantine",
			problem.InChat(node.MaxBody, s.historyRoutes.PostQuarantine)},
		{"DELETE " + chat + "/quarantine", write, "chat.release", problem.Param(problem.ChatOf,
			s.historyRoutes.DeleteQuarantine)},
		{"POST " + chat + "/fork", write, "", problem.InChat(node.MaxBody, s.portable.PostFork)},
		{"POST " + chat + "/rewind", write, "chat.rewind", problem.InChat(node.MaxBody, s.rewindRoutes.PostRewind)},
		{"GET " + chat + "/set-aside", read, "", problem.Param(problem.ChatOf, s.rewindRoutes.GetSetAside)},
		{"POST " + chat + "/set-aside/:id/restore", write, "chat.restore",
			s.growing(problem.Param(problem.ChatOf, s.rewindRoutes.PostRestore))},
		{"GET /v1/users/:user", read, "", problem.Param(problem.UserOf, s.noteRoutes.GetUser)},
		{"PUT /v1/users/:user", write, "", s.growing(problem.Body(api.DecodeKnown, node.MaxBody, s.noteRoutes.PutUser))},
		{"DELETE /v1/users/:user", write, "user.erase", problem.Param(problem.UserOf, s.eraseRoutes.DeleteUser)},
		{"GET /v1/users/:user/recall", read, "", problem.Param(problem.UserOf, s.searcher.GetUserRecall)},

		{"GET " + webapi.UsagePath, read, "", s.auditor.readUsage},
		{"GET " + webapi.AuditPath, access.Admin, "", s.auditor.getAudit},
		{"GET " + webapi.SelfPath, access.AnyKey, "", self},
		{"GET " + webapi.KeysPath, access.Admin, "", keys(s.keyring.listKeys)},
		{"POST " + webapi.KeysPath, access.Admin, "key.create",
			keys(problem.Body(api.DecodeKnown, maxKeyBody, s.keyring.createKey))},
		{"POST " + webapi.KeysPath + "/:key/rotate", access.Admin, "key.rotate",
			keys(problem.Body(api.DecodeKnown, maxKeyBody, s.keyring.rotateKey))},
		{"DELETE " + webapi.KeysPath + "/:key", access.Admin, "key.revoke", keys(s.keyring.revokeKey)},
		{"GET " + webapi.TenantsPath, access.Admin, "", tenants(s.tenancy.ListTenants)},
		{"GET " + webapi.TenantsPath + "/:tenant/export", access.Admin, "", tenants(problem.Param(chats.TenantIn,
			s.tenancy.ExportTenant))},
		{"DELETE " + webapi.TenantsPath + "/:tenant", access.Admin, "", tenants(problem.Param(chats.TenantIn,
			s.tenancy.DeleteTenant))},

		// The apiserver stores documents. Rows without a handler only add an audit entry to the rows above them.
		{"ANY /v1/collections", access.Documents, "", s.documents},
		{"ANY /v1/collections/*rest", access.Documents, "", s.documents},
		{"DELETE /v1/collections/*rest", access.Documents, "documents.erase", nil},
		{"ANY " + chat + "/documents", access.Documents, "", s.documents},
		{"ANY " + chat + "/documents/*id", access.Documents, "", s.documents},
		{"DELETE " + chat + "/documents/*id", access.Documents, "documents.erase", nil},

		// Routes for other processes and for the agents of a run.
		{"POST " + run + "/recall", access.Internal, "", runs.ToAgents(s.registry, s.heardRoutes.PostRecall)},
		{"POST " + run + "/notes", access.Internal, "", runs.ToAgents(s.registry, s.noteRoutes.PostRemember)},
		{"POST " + run + "/forget", access.Internal, "", runs.ToAgents(s.registry, s.noteRoutes.PostForget)},
		{"POST " + calls, access.Internal, "", runs.ToAgents(s.registry, s.toolCalls.PostClaim)},
		{"POST " + calls + "/:call", access.Internal, "", runs.ToAgents(s.registry, s.toolCalls.PostSettle)},
		{"GET " + internal + "/runs/:run", access.Internal, "", problem.Param(problem.ChatOfAny, s.registry.GetKnown)},
		{"GET " + internal + "/calls/:run", access.Internal, "", problem.Param(problem.ChatOfAny, s.EndStore.Get)},
		{"POST " + node.InternalPath + "/erasures", access.Internal, "", problem.Body(api.DecodeBody, node.MaxBody,
			s.tombstones.PostErasure)},
		{"POST " + node.InternalPath + "/rewinds", access.Internal, "", problem.Body(api.DecodeBody, node.MaxBody,
			s.rewinder.PostRewound)},

		// Routes for the gateway, which calls them with the rights of the model call's key.
		{"POST " + internal + "/heard", access.InternalChat, "",
			s.growing(problem.Body(api.DecodeBody, turns.MaxHeard, s.heardRoutes.PostHeard))},
		{"POST " + internal + "/recalled", access.InternalRead, "",
			problem.Body(api.DecodeBody, node.MaxBody, s.heardRoutes.PostRecalled)},
	}
	for _, prefix := range []string{chat, subagent} {
		acts = append(acts, []act{
			{"GET " + prefix + "/history", read, "", problem.Param(problem.KeyOf, s.historyRoutes.GetHistory)},
			{"DELETE " + prefix + "/history", write, "history.erase", problem.Param(problem.KeyOf, s.eraseRoutes.DeleteHistory)},
			{"DELETE " + prefix + "/messages/:id", write, "message.redact", problem.Param(problem.KeyOf,
				s.redactRoutes.RedactMessage)},
		}...)
	}
	for _, prefix := range []string{chat, subagent, "/v1/users/:user"} {
		acts = append(acts, []act{
			{"GET " + prefix + "/notes", read, "", s.noteRoutes.GetNotes},
			{"POST " + prefix + "/notes", write, "", s.growing(problem.Body(api.DecodeBody, node.MaxBody,
				s.noteRoutes.PostNote))},
			{"PATCH " + prefix + "/notes/:id", write, "", problem.Body(api.DecodeBody, node.MaxBody, s.noteRoutes.PatchNote)},
			{"DELETE " + prefix + "/notes/:id", write, "note.erase", s.noteRoutes.DeleteNote},
		}...)
	}
	for _, prefix := range []string{"", "/c/:chat"} {
		acts = append(acts, []act{
			{"POST " + prefix + "/v1/chat/completions", access.Chat, "", served(s.Cfg.OpenAI)},
			{"POST " + prefix + "/v1/responses", access.Chat, "", served(s.Cfg.OpenAI)},
			{"GET " + prefix + "/v1/responses/:response", read, "", served(s.Cfg.OpenAI)},
			{"DELETE " + prefix + "/v1/responses/:response", write, "", served(s.Cfg.OpenAI)}, // the redaction is audited
			{"POST " + prefix + "/v1/embeddings", access.Models, "", served(s.Cfg.OpenAI)},
			{"GET " + prefix + "/v1/models", access.Chat, "", served(s.Cfg.OpenAI)},
			{"GET " + prefix + "/v1/models/*model", access.Chat, "", served(s.Cfg.OpenAI)},
		}...)
	}
	const conversation = "/v1/conversations/:conversation"
	acts = append(acts, []act{
		{"POST /v1/conversations", access.Chat, "", served(s.Cfg.OpenAI)},
		{"GET " + conversation, read, "", served(s.Cfg.OpenAI)},
		{"DELETE " + conversation, write, "", served(s.Cfg.OpenAI)}, // the erasure is audited
		{"POST " + conversation + "/items", access.Chat, "", served(s.Cfg.OpenAI)},
		{"GET " + conversation + "/items", read, "", served(s.Cfg.OpenAI)},
		{"DELETE " + conversation + "/items/:item", write, "", served(s.Cfg.OpenAI)},
	}...)
	return append(acts,
		act{"POST " + chat + "/ui", access.Chat, "", served(s.Cfg.UI)},
		act{"GET " + chat + "/ui/:id/stream", access.Chat, "", served(s.Cfg.UI)},
	)
}

// served returns the handler of a route that h serves, or nil if h is nil.
func served(h http.Handler) func(*gin.Context) error {
	if h == nil {
		return nil
	}
	return func(c *gin.Context) error {
		h.ServeHTTP(c.Writer, c.Request)
		return nil
	}
}

// byName returns the scopes and the audit entries of acts, by route.
func byName(acts []act) (access.Rights, map[string]string) {
	rights, entries := access.Rights{}, map[string]string{}
	for _, a := range acts {
		rights[a.does], entries[a.does] = a.scope, a.entry
	}
	return rights, entries
}

// letIn admits a request before its body is read, for as long as its key is valid, or rejects it.
func (s *routes) letIn(c *gin.Context) {
	r, err := s.Cfg.Gate.Admit(c.Request, s.rights, c.FullPath())
	if err != nil {
		_ = c.Error(err) // for the request's line in the log
		c.Abort()
		s.refuse(c, err)
		return
	}
	in, release := s.Cfg.Gate.Stay(r)
	defer release()
	c.Request = in
	c.Next()
}

// refuse responds to a rejected request in the format of its endpoint.
func (s *routes) refuse(c *gin.Context, err error) {
	p := problem.FromError(err)
	if no := new(access.Refusal); errors.As(err, &no) && no.Challenge != "" {
		c.Header("WWW-Authenticate", no.Challenge)
	}
	path := c.FullPath()
	openAI := []string{"/v1/chat/completions", "/v1/conversations", "/v1/embeddings", "/v1/models", "/v1/responses"}
	switch {
	case slices.ContainsFunc(openAI, func(route string) bool { return strings.Contains(path, route) }):
		openaiapi.Refuse(c.Writer, p)
	case strings.HasPrefix(path, "/v1/chats/:chat/ui"):
		uistream.Refuse(c.Writer, p)
	default:
		s.fail(c, p)
	}
}
