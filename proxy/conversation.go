package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/memory/telemetry"
	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// conversationHeader names the conversation, in requests and in answers.
const conversationHeader = "X-Ag-Conversation-Id"

// threadHeader is where clients of Responses such as codex name the conversation of a request.
const threadHeader = "Thread-Id"

// continueHeader says, as "true", that a request without any answer goes on from the
// newest one of its conversation.
const continueHeader = "X-Ag-Continue"

const badConversationID = "a conversation's id must be 1 to 128 characters of A-Z a-z 0-9 . _ : -"

var conversationID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// name says where the turns of a request belong. A request that names no
// conversation gets a new one, with an id that cannot be guessed, unless it leaves no
// trace; reconcile may find that it goes on another one.
func (x routedRequest) name(route string, stateless bool) (n scopedRequest, err error) {
	n = scopedRequest{routedRequest: x}
	id := ""
	if id, n.outline, err = x.takeConversation(); err != nil {
		return n, err
	}
	if n.outline, err = n.withPlainBounds(); err != nil {
		return n, err
	}
	if err = n.takeEphemeral(); err != nil {
		return n, err
	}
	n.minted = id == ""
	if n.minted && !x.endpoint.counts {
		id = x.newConversation
	}
	n.scope = ledger.Scope{Tenant: x.in.caller, Route: route, Conversation: id}
	if !x.endpoint.counts && (!n.minted || !stateless) { // else nothing would come of bringing it back
		x.client.Header()[conversationHeader] = []string{id}
		n.inBody = x.in.outline.Members.Get("_gateway").Exists()
	}
	x.result.scopedRequest = n
	return n, nil
}

// tellID puts the conversation's id into the beginning of an answer, if the client asks
// for it there: into the answer itself, or in a stream of the messages dialect into the
// message of its first event.
func (x scopedRequest) tellID(head []byte, stream bool) []byte {
	pos := bytes.IndexByte(head, '{')
	if !x.inBody || pos < 0 {
		return head
	}
	if stream && x.endpoint.dialect == wire.Messages {
		message := gjson.GetBytes(head[pos:], "message")
		if !message.IsObject() {
			return head
		}
		pos += message.Index
	}
	member := slices.Concat([]byte(`"_gateway":{"conversation_id":`), wire.Quote(x.scope.Conversation), []byte(`},`))
	return slices.Insert(slices.Clone(head), pos+1, member...)
}

// reconcile has a request say what its conversation was, if the client has named it or shows an answer of
// it. A request that belongs to nothing yet has its turn kept, and not its history.
func (s *Server) reconcile(ctx context.Context, a adaptedRequest) (x resolvedRequest, err error) {
	x = resolvedRequest{adaptedRequest: a}
	if x.minted && x.stored == nil {
		x.scope, x.matched = s.ledger.Find(ctx, x.scope, x.backend.dialect, x.outline, nil)
		x.minted, x.result.scope = !x.matched, x.scope
	}
	if x.minted || s.config.Stateless {
		if x.stored != nil {
			x.continued = conversation.Start(x.backend.dialect, x.outline, x.ephemeral.print())
		}
		return x, nil
	}
	next, count := x.in.header.Get(continueHeader) == "true", len(x.outline.Messages)
	x.outline, err = conversation.Extend(ctx, s.ledger, x.scope, x.backend.dialect, x.outline, next)
	if err != nil {
		return x, err
	}
	extended := len(x.outline.Messages) - count
	if extended > 0 { // its input is not all that it says
		x.stored, x.responses.Stored = nil, false
	}
	x.continued, err = conversation.Continue(ctx, s.ledger, x.scope, x.backend.dialect, x.outline,
		x.ephemeral.print())
	if err != nil {
		return x, err
	}
	x.continued.Rebuilt += extended
	x.outline = x.continued.Outline
	s.metrics.continued(x)
	if h := x.client.Header(); h.Get(conversationHeader) != "" {
		h.Set(conversationHeader, x.scope.Conversation)
	}
	return x, nil
}

// takeConversation reads the id from one of the three places where clients can
// put it, and takes it out of the body: vendors refuse members that they do not
// know.
func (x routedRequest) takeConversation() (id string, o *wire.Outline, err error) {
	o = x.in.outline
	var e wire.Edits
	for _, name := range []string{"metadata", "_gateway"} {
		members := o.Object(o.Members.Get(name))
		span := members.Get("conversation_id")
		value, ok := o.Text(span)
		switch {
		case span.Exists() && !ok, id != "" && ok && value != id:
			return "", o, wire.Failure{
				Status: 400, Message: name + ".conversation_id must be a string, the same wherever the conversation is named",
			}
		case ok:
			id = value
		}
		switch {
		case name == "_gateway" || span.Exists() && len(members) == 1:
			e.RemoveMembers(o.Members, name)
		case span.Exists():
			e.RemoveMembers(members, "conversation_id")
		}
	}
	if header := x.in.header.Get(conversationHeader); header != "" {
		if id != "" && id != header {
			return "", o, wire.Failure{
				Status: 400, Message: "the header X-AG-Conversation-Id and the body name different conversations",
			}
		}
		id = header
	}
	thread := x.in.header.Get(threadHeader)
	if id == "" && x.endpoint.dialect == wire.Responses && conversationID.MatchString(thread) {
		id = thread
	}
	if id != "" && !conversationID.MatchString(id) {
		return "", o, wire.Failure{Status: 400, Message: badConversationID}
	}
	o, err = o.WithBody(e.Apply(o.Body))
	return id, o, err
}

// needConversationID refuses a request whose path names no conversation.
func needConversationID(c *gin.Context) {
	if !conversationID.MatchString(c.Param("id")) {
		c.Abort()
		refuseRoute(c, http.StatusBadRequest, badConversationID)
	}
}

// eraseConversation forgets a conversation of the caller's on all its routes. One that is
// unknown is erased, too.
func (s *Server) eraseConversation(c *gin.Context) {
	id := c.Param("id")
	err := errors.Join(s.ledger.Forget(c.Request.Context(), caller(c.Request), id),
		s.eraseSessions(c.Request.Context(), caller(c.Request), id))
	if err != nil {
		s.log.Error().Err(err).EmbedObject(telemetry.FromContext(c.Request.Context())).Str("conversation",
			id).Msg("a conversation could not be erased")
		refuseRoute(c, http.StatusServiceUnavailable, "the conversation could not be erased everywhere; try again")
		return
	}
	s.log.Info().EmbedObject(telemetry.FromContext(c.Request.Context())).Str("conversation", id).Msg("conversation erased")
	c.Status(http.StatusNoContent)
}

// Bounds of one request that erases what a tenant has.
const (
	eraseAtOnce   = 100 // conversations
	eraseTenantIn = 15 * time.Second
)

// eraseTenant is DELETE /v1/conversations, which another service of ours sends: some conversations of a tenant go.
// It answers {"erased":…,"left":…} and is to be sent again until nothing
// is left.
func (s *Server) eraseTenant(c *gin.Context) {
	who, ok := access.Authenticated(c.Request.Context())
	if !ok || who.Operator() {
		refuseRoute(c, http.StatusConflict, "only what a tenant other than the default one has is erased as a whole")
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), eraseTenantIn)
	defer cancel()
	tenant, erased := who.Tenant.String(), 0
	names, total, err := s.ledger.Conversations(ctx, tenant, eraseAtOnce)
	for _, name := range names {
		if err == nil {
			err = errors.Join(s.ledger.Forget(ctx, tenant, name), s.eraseSessions(ctx, tenant, name))
		}
		if err == nil {
			erased++
		}
	}
	if err != nil && erased == 0 {
		s.log.Error().Err(err).EmbedObject(telemetry.FromContext(c.Request.Context())).
			Msg("the conversations of a tenant could not be erased")
		refuseRoute(c, http.StatusServiceUnavailable, "the conversations could not be erased everywhere; try again")
		return
	}
	c.JSON(http.StatusOK, struct {
		Erased    int `json:"erased"`
		Remaining int `json:"left"`
	}{erased, total - erased})
}

// maxKeep is how far ahead a conversation can be kept.
const maxKeep = 8 * 24 * time.Hour

// keepConversation has a conversation of the caller's outlive its TTL on all its routes. One that
// is unknown is kept from its first turn on.
func (s *Server) keepConversation(c *gin.Context) {
	id := c.Param("id")
	var req struct {
		Until int64 `json:"until"`
	}
	if err := json.UnmarshalRead(http.MaxBytesReader(c.Writer, c.Request.Body, 4<<10), &req); err != nil {
		refuseRoute(c, http.StatusBadRequest, `the body must be JSON like {"until":1760000000}, in Unix seconds`)
		return
	}
	now := time.Now()
	if req.Until <= now.Unix() || req.Until > now.Add(maxKeep).Unix() {
		refuseRoute(c, http.StatusBadRequest, "until must be Unix seconds between now and 8 days from now")
		return
	}
	until := time.Unix(req.Until, 0)
	if err := s.ledger.Keep(c.Request.Context(), caller(c.Request), id, until); err != nil {
		s.log.Error().Err(err).EmbedObject(telemetry.FromContext(c.Request.Context())).Str("conversation", id).
			Msg("a conversation could not be kept")
		refuseRoute(c, http.StatusServiceUnavailable, "the conversation is kept in this process only; try again")
		return
	}
	s.log.Info().EmbedObject(telemetry.FromContext(c.Request.Context())).Str("conversation", id).Time("until", until).
		Msg("conversation kept")
	c.Status(http.StatusNoContent)
}

// caller is the owner of the conversations that a request is about: where keys are asked for its tenant, by name, so
// that a key can be rotated and services can ask for several tenants; else its credential. The default tenant's are
// those of callers without a credential: what mneme's own services have said without keys is found when keys are
// turned on, and the other way round.
func caller(r *http.Request) string {
	switch p, ok := access.Authenticated(r.Context()); {
	case !ok:
		return tenant(r.Header)
	case p.Operator():
		return ""
	default:
		return p.Tenant.String()
	}
}

// tenant tells callers apart by the credential that they present.
func tenant(h http.Header) string {
	credential := cmp.Or(h.Get("X-Api-Key"), strings.TrimPrefix(h.Get("Authorization"), "Bearer "))
	if credential == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:])
}
