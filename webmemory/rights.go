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

// act is what a request does, and the scope that it takes. The right to a route is asked before the body is read; the
// right to what is done beside one is asked where it is done, with what is stored at hand, since the words of a request
// do not say what they do.
type act struct {
	does   string // "METHOD /path" as the router has it, "ANY /path" for every method, or what is done beside a route
	scope  access.Scope
	entry  string                   // in the audit log, "" for none
	answer func(*gin.Context) error // nil: it is no route, is not configured, or another one answers it
}

// acts are those that are routes: the router's table, too. What clients are told of each is in a table of the tests of
// package openapi; TestOpenAPIRoutes compares the two. The log's entries about tenants as a whole are in tenants.go, as
// they are in another tenant's log.
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
		{"GET /metrics", access.Open, "", nil}, // the Edge answers it

		{"POST /chat", access.Chat, "", answering(s.admission.ChatPosted)},
		{"POST " + chat + "/messages", access.Chat, "", answering(s.admission.MessagePosted)},
		{"GET " + chat + "/runs/:run/events", access.Chat, "", s.streams.GetEvents},
		{"GET " + chat + "/runs/:run/trace", access.Chat, "", s.traceRoutes.GetTrace},
		{"POST " + chat + "/runs/:run/stop", access.Chat, "", s.resumer.StopRun},
		{"POST " + chat + "/runs/:run/resume", access.ChatOrApprove, "", answering(s.resumer.ResumePosted)},
		{"POST " + webapi.OneShotPath, access.Chat, "", answering(s.oneShotRunner.OneShotPosted)},
		{"GET " + webapi.ApprovalsPath, access.Approve, "", s.resumer.GetApprovals},
		{"POST /mcp", access.AnyKey, "", served(s.Cfg.MCP)}, // what its tools ask is judged as any request

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

		// Documents are the apiserver's. The rows without a handler only add an entry to those above them.
		{"ANY /v1/collections", access.Documents, "", s.documents},
		{"ANY /v1/collections/*rest", access.Documents, "", s.documents},
		{"DELETE /v1/collections/*rest", access.Documents, "documents.erase", nil},
		{"ANY " + chat + "/documents", access.Documents, "", s.documents},
		{"ANY " + chat + "/documents/*id", access.Documents, "", s.documents},
		{"DELETE " + chat + "/documents/*id", access.Documents, "documents.erase", nil},

		// For other processes, and for the agents of a run.
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

		// For the gateway, which asks with the rights of the key that a call of a model came with.
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
			{"DELETE " + prefix + "/v1/responses/:response", write, "", served(s.Cfg.OpenAI)}, // the redaction is in the log
			{"POST " + prefix + "/v1/embeddings", access.Models, "", served(s.Cfg.OpenAI)},
			{"GET " + prefix + "/v1/models", access.Chat, "", served(s.Cfg.OpenAI)},
			{"GET " + prefix + "/v1/models/*model", access.Chat, "", served(s.Cfg.OpenAI)},
		}...)
	}
	const conversation = "/v1/conversations/:conversation"
	acts = append(acts, []act{
		{"POST /v1/conversations", access.Chat, "", served(s.Cfg.OpenAI)},
		{"GET " + conversation, read, "", served(s.Cfg.OpenAI)},
		{"DELETE " + conversation, write, "", served(s.Cfg.OpenAI)}, // the erasure is in the log
		{"POST " + conversation + "/items", access.Chat, "", served(s.Cfg.OpenAI)},
		{"GET " + conversation + "/items", read, "", served(s.Cfg.OpenAI)},
		{"DELETE " + conversation + "/items/:item", write, "", served(s.Cfg.OpenAI)},
	}...)
	return append(acts,
		act{"POST " + chat + "/ui", access.Chat, "", served(s.Cfg.UI)},
		act{"GET " + chat + "/ui/:id/stream", access.Chat, "", served(s.Cfg.UI)},
	)
}

// served is the handler of a route that answers for itself; nil for none.
func served(h http.Handler) func(*gin.Context) error {
	if h == nil {
		return nil
	}
	return func(c *gin.Context) error {
		h.ServeHTTP(c.Writer, c.Request)
		return nil
	}
}

// byName are the rights and the entries of acts by what they do.
func byName(acts []act) (access.Rights, map[string]string) {
	rights, entries := access.Rights{}, map[string]string{}
	for _, a := range acts {
		rights[a.does], entries[a.does] = a.scope, a.entry
	}
	return rights, entries
}

// letIn lets a request in before its body is read, for as long as its key is good, or answers it.
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

// refuse answers a request that may not come in, in the shape of its endpoint.
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
