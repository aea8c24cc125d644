package webmemory

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/openapi"
	"mneme/webmemory/problem"
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
		internal       = internalPath + "/chats/:chat"
		run, calls     = internalPath + "/runs/:run", internalPath + "/runs/:run/calls"
		read, write    = access.MemoryRead, access.MemoryWrite
	)
	answering, keys, tenants := s.admission.answering, s.keyring.on, s.tenancy.on
	acts := []act{
		{"GET /", access.Open, "", getPage},
		{"GET " + web.Folder + "*file", access.Open, "", getPage},
		{"GET /openapi.json", access.Open, "", served(http.HandlerFunc(openapi.Serve))},
		{"GET /healthz", access.Open, "", s.monitor.healthz},
		{"GET /readyz", access.Open, "", s.monitor.readyz},
		{"GET /metrics", access.Open, "", nil}, // the Edge answers it

		{"POST /chat", access.Chat, "", answering(s.admission.chatPosted)},
		{"POST " + chat + "/messages", access.Chat, "", answering(s.admission.messagePosted)},
		{"GET " + chat + "/runs/:run/events", access.Chat, "", s.streams.getEvents},
		{"GET " + chat + "/runs/:run/trace", access.Chat, "", s.traceRoutes.getTrace},
		{"POST " + chat + "/runs/:run/stop", access.Chat, "", s.resumer.stopRun},
		{"POST " + chat + "/runs/:run/resume", access.ChatOrApprove, "", answering(s.resumer.resumePosted)},
		{"POST " + webapi.OneShotPath, access.Chat, "", answering(s.oneShotRunner.oneShotPosted)},
		{"GET " + webapi.ApprovalsPath, access.Approve, "", s.resumer.getApprovals},
		{"POST /mcp", access.AnyKey, "", served(s.cfg.MCP)}, // what its tools ask is judged as any request

		{"GET /v1/chats", read, "", s.chatList.listChats},
		{"GET " + chat, read, "", problem.Param(problem.ChatOf, s.chatList.getChat)},
		{"PATCH " + chat, write, "", problem.InChat(maxBody, s.chatList.patchChat)},
		{"DELETE " + chat, write, "chat.erase", problem.Param(problem.ChatOf, s.eraseRoutes.deleteChat)},
		{"GET " + chat + "/recall", read, "", problem.Param(problem.ChatOf, s.searcher.getRecall)},
		{"GET " + chat + "/export", read, "", problem.Param(problem.ChatOf, s.portable.exportChat)},
		{"POST " + chat + "/import", write, "", problem.Param(problem.ChatOf, s.portable.importChat)},
		{"GET " + chat + "/messages/:id/influence", read, "", problem.Param(problem.ChatOf, s.historyRoutes.getInfluence)},
		{"GET " + chat + "/quarantine", read, "", problem.Param(problem.ChatOf, s.historyRoutes.getQuarantine)},
		{"POST " + chat + "/quarantine", write, "chat.quarantine", problem.InChat(maxBody, s.historyRoutes.postQuarantine)},
		{"DELETE " + chat + "/quarantine", write, "chat.release", problem.Param(problem.ChatOf,
			s.historyRoutes.deleteQuarantine)},
		{"POST " + chat + "/fork", write, "", problem.InChat(maxBody, s.portable.postFork)},
		{"POST " + chat + "/rewind", write, "chat.rewind", problem.InChat(maxBody, s.rewindRoutes.postRewind)},
		{"GET " + chat + "/set-aside", read, "", problem.Param(problem.ChatOf, s.rewindRoutes.getSetAside)},
		{"POST " + chat + "/set-aside/:id/restore", write, "chat.restore",
			s.growing(problem.Param(problem.ChatOf, s.rewindRoutes.postRestore))},
		{"GET /v1/users/:user", read, "", problem.Param(problem.UserOf, s.noteRoutes.getUser)},
		{"PUT /v1/users/:user", write, "", s.growing(problem.Body(api.DecodeKnown, maxBody, s.noteRoutes.putUser))},
		{"DELETE /v1/users/:user", write, "user.erase", problem.Param(problem.UserOf, s.eraseRoutes.deleteUser)},
		{"GET /v1/users/:user/recall", read, "", problem.Param(problem.UserOf, s.searcher.getUserRecall)},

		{"GET " + webapi.UsagePath, read, "", s.auditor.readUsage},
		{"GET " + webapi.AuditPath, access.Admin, "", s.auditor.getAudit},
		{"GET " + webapi.SelfPath, access.AnyKey, "", self},
		{"GET " + webapi.KeysPath, access.Admin, "", keys(s.keyring.listKeys)},
		{"POST " + webapi.KeysPath, access.Admin, "key.create",
			keys(problem.Body(api.DecodeKnown, maxKeyBody, s.keyring.createKey))},
		{"POST " + webapi.KeysPath + "/:key/rotate", access.Admin, "key.rotate",
			keys(problem.Body(api.DecodeKnown, maxKeyBody, s.keyring.rotateKey))},
		{"DELETE " + webapi.KeysPath + "/:key", access.Admin, "key.revoke", keys(s.keyring.revokeKey)},
		{"GET " + webapi.TenantsPath, access.Admin, "", tenants(s.tenancy.listTenants)},
		{"GET " + webapi.TenantsPath + "/:tenant/export", access.Admin, "", tenants(problem.Param(tenantIn,
			s.tenancy.exportTenant))},
		{"DELETE " + webapi.TenantsPath + "/:tenant", access.Admin, "", tenants(problem.Param(tenantIn,
			s.tenancy.deleteTenant))},

		// Documents are the apiserver's. The rows without a handler only add an entry to those above them.
		{"ANY /v1/collections", access.Documents, "", s.documents},
		{"ANY /v1/collections/*rest", access.Documents, "", s.documents},
		{"DELETE /v1/collections/*rest", access.Documents, "documents.erase", nil},
		{"ANY " + chat + "/documents", access.Documents, "", s.documents},
		{"ANY " + chat + "/documents/*id", access.Documents, "", s.documents},
		{"DELETE " + chat + "/documents/*id", access.Documents, "documents.erase", nil},

		// For other processes, and for the agents of a run.
		{"POST " + run + "/recall", access.Internal, "", toAgents(s.registry, s.heardRoutes.postRecall)},
		{"POST " + run + "/notes", access.Internal, "", toAgents(s.registry, s.noteRoutes.postRemember)},
		{"POST " + run + "/forget", access.Internal, "", toAgents(s.registry, s.noteRoutes.postForget)},
		{"POST " + calls, access.Internal, "", toAgents(s.registry, s.toolCalls.postClaim)},
		{"POST " + calls + "/:call", access.Internal, "", toAgents(s.registry, s.toolCalls.postSettle)},
		{"GET " + internal + "/runs/:run", access.Internal, "", problem.Param(problem.ChatOfAny, s.registry.getKnown)},
		{"GET " + internal + "/calls/:run", access.Internal, "", problem.Param(problem.ChatOfAny, s.endStore.get)},
		{"POST " + internalPath + "/erasures", access.Internal, "", problem.Body(api.DecodeBody, maxBody,
			s.tombstones.postErasure)},
		{"POST " + internalPath + "/rewinds", access.Internal, "", problem.Body(api.DecodeBody, maxBody,
			s.rewinder.postRewound)},

		// For the gateway, which asks with the rights of the key that a call of a model came with.
		{"POST " + internal + "/heard", access.InternalChat, "",
			s.growing(problem.Body(api.DecodeBody, maxHeard, s.heardRoutes.postHeard))},
		{"POST " + internal + "/recalled", access.InternalRead, "",
			problem.Body(api.DecodeBody, maxBody, s.heardRoutes.postRecalled)},
	}
	for _, prefix := range []string{chat, subagent} {
		acts = append(acts, []act{
			{"GET " + prefix + "/history", read, "", problem.Param(problem.KeyOf, s.historyRoutes.getHistory)},
			{"DELETE " + prefix + "/history", write, "history.erase", problem.Param(problem.KeyOf, s.eraseRoutes.deleteHistory)},
			{"DELETE " + prefix + "/messages/:id", write, "message.redact", problem.Param(problem.KeyOf,
				s.redactRoutes.redactMessage)},
		}...)
	}
	for _, prefix := range []string{chat, subagent, "/v1/users/:user"} {
		acts = append(acts, []act{
			{"GET " + prefix + "/notes", read, "", s.noteRoutes.getNotes},
			{"POST " + prefix + "/notes", write, "", s.growing(problem.Body(api.DecodeBody, maxBody, s.noteRoutes.postNote))},
			{"PATCH " + prefix + "/notes/:id", write, "", problem.Body(api.DecodeBody, maxBody, s.noteRoutes.patchNote)},
			{"DELETE " + prefix + "/notes/:id", write, "note.erase", s.noteRoutes.deleteNote},
		}...)
	}
	for _, prefix := range []string{"", "/c/:chat"} {
		acts = append(acts, []act{
			{"POST " + prefix + "/v1/chat/completions", access.Chat, "", served(s.cfg.OpenAI)},
			{"POST " + prefix + "/v1/responses", access.Chat, "", served(s.cfg.OpenAI)},
			{"GET " + prefix + "/v1/responses/:response", read, "", served(s.cfg.OpenAI)},
			{"DELETE " + prefix + "/v1/responses/:response", write, "", served(s.cfg.OpenAI)}, // the redaction is in the log
			{"POST " + prefix + "/v1/embeddings", access.Models, "", served(s.cfg.OpenAI)},
			{"GET " + prefix + "/v1/models", access.Chat, "", served(s.cfg.OpenAI)},
			{"GET " + prefix + "/v1/models/*model", access.Chat, "", served(s.cfg.OpenAI)},
		}...)
	}
	const conversation = "/v1/conversations/:conversation"
	acts = append(acts, []act{
		{"POST /v1/conversations", access.Chat, "", served(s.cfg.OpenAI)},
		{"GET " + conversation, read, "", served(s.cfg.OpenAI)},
		{"DELETE " + conversation, write, "", served(s.cfg.OpenAI)}, // the erasure is in the log
		{"POST " + conversation + "/items", access.Chat, "", served(s.cfg.OpenAI)},
		{"GET " + conversation + "/items", read, "", served(s.cfg.OpenAI)},
		{"DELETE " + conversation + "/items/:item", write, "", served(s.cfg.OpenAI)},
	}...)
	return append(acts,
		act{"POST " + chat + "/ui", access.Chat, "", served(s.cfg.UI)},
		act{"GET " + chat + "/ui/:id/stream", access.Chat, "", served(s.cfg.UI)},
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

// What requests may do beside their route. So may an answer to a wait, by the wait's kind and the decision: see doing.
const (
	rewinds     = "after"                               // a message that takes back more than the newest exchange
	regenerates = "after, of the newest exchange alone" // which clients do that show a transcript
)

// besideRights and besideEntries are those of what may be done beside a route.
var besideRights, besideEntries = byName([]act{
	{regenerates, access.Chat, "", nil},
	{rewinds, access.MemoryWrite, "chat.rewind", nil},
	{"client_result approve", access.Chat, "", nil},
	{"client_result deny", access.Chat, "", nil},
	{"approval approve", access.Approve, "approval.approve", nil},
	{"approval edit", access.Approve, "approval.edit", nil},
	{"approval deny", access.ChatOrApprove, "approval.deny", nil}, // as a new message does, and a stop of the run
	{"question approve", access.Approve, "question.approve", nil},
	{"question deny", access.ChatOrApprove, "question.deny", nil},
})

// byName are the rights and the entries of acts by what they do.
func byName(acts []act) (access.Rights, map[string]string) {
	rights, entries := access.Rights{}, map[string]string{}
	for _, a := range acts {
		rights[a.does], entries[a.does] = a.scope, a.entry
	}
	return rights, entries
}

// checkRight is nil if the caller may do what a request does beside its route.
func checkRight(ctx context.Context, what string) error {
	return access.FromContext(ctx).Need(besideRights[what])
}

// doing is what an answer does: it follows from the kind of its wait, and not from what the answer has. "" for one to
// none of the waits.
func doing(a event.WaitAnswer, pending []event.Wait) string {
	for _, w := range pending {
		if w.ID == a.ID {
			return w.Kind + " " + a.Decision
		}
	}
	return ""
}

// letIn lets a request in before its body is read, for as long as its key is good, or answers it.
func (s *routes) letIn(c *gin.Context) {
	r, err := s.cfg.Gate.Admit(c.Request, s.rights, c.FullPath())
	if err != nil {
		_ = c.Error(err) // for the request's line in the log
		c.Abort()
		s.refuse(c, err)
		return
	}
	in, release := s.cfg.Gate.Stay(r)
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
