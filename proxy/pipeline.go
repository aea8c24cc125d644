package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/access/price"
	"mneme/memory/telemetry"
	"mneme/proxy/chatwire"
	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/responseswire"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// A pipeline takes a request to its answer. Each stage returns the value that the next one takes: *request,
// routedRequest, scopedRequest, adaptedRequest, resolvedRequest, attempt. So a stage can neither run too early nor see
// what a later one decides. An error ends the pipeline. If nothing has been written yet, it becomes an answer in the
// endpoint's dialect.
type pipeline func(ctx context.Context, x *request) error

// main answers by the backend or the route that is active when the request begins. It can be
// switched, so a thinking session decides what thinking the backend gets to see.
func (s *Server) main(ctx context.Context, x *request) error {
	a, err := answerBy(ctx, s, x, s.activeRoute(ctx), scopeMain, s.begin)
	if err != nil {
		return err
	}
	return a.listen().reply(ctx)
}

// teammate answers by the backend or the route that the configuration gives the teammate,
// whatever is active: turns are recorded and put back, and that is all.
func (s *Server) teammate(ctx context.Context, x *request) error {
	a, err := answerBy(ctx, s, x, s.teammateRoute(x.teammate), scopeTeammate+"/"+x.teammate, s.putBack)
	if err != nil {
		return err
	}
	s.tellCLI(a)
	return a.listen().reply(ctx)
}

// read finds out what a request says, for the backend that it goes to.
func (s *Server) read(ctx context.Context, r routedRequest, scope string) (resolvedRequest, error) {
	if err := s.admit(ctx, r); err != nil {
		return resolvedRequest{}, err
	}
	n, err := r.name(scope, s.config.Stateless)
	if err != nil {
		return resolvedRequest{}, err
	}
	if n, err = s.goOn(ctx, n); err != nil {
		return resolvedRequest{}, err
	}
	var a adaptedRequest
	if err := fair.Share(ctx, func(context.Context) (err error) {
		if a, err = n.translate(); err != nil {
			err = errUnfit{err}
		}
		return err
	}); err != nil {
		return resolvedRequest{}, err
	}
	x, err := s.reconcile(ctx, a)
	if err != nil {
		return x, err
	}
	if x, err = recollect(ctx, s, x); err != nil {
		return x, err
	}
	return x.withEphemeral()
}

// embeddings goes past everything: the request leaves as it came.
func (s *Server) embeddings(ctx context.Context, x *request) error {
	if s.embedder == nil {
		return wire.Failure{
			Status:  501,
			Message: "no backend for embeddings is configured: set proxy.embeddings_backend to a backend of kind openai",
		}
	}
	r := x.route(s.embedder)
	r.model = x.in.outline.Model
	x.result.routedRequest = r
	if err := s.admit(ctx, r); err != nil {
		return err
	}
	a := &attempt{replayed: replayed{doc: x.in.outline}}
	a.routedRequest = r
	x.result.attempt = a
	if err := a.send(ctx, a.headers(sanitize.Output{})); err != nil {
		return err
	}
	return a.listen().reply(ctx)
}

// request is one call of a client, and where its answer goes.
type request struct {
	endpoint        endpoint
	pipeline        string // main or teammate, for logs and metrics
	teammate        string // the name in /teammate/<name>, empty for none
	in              received
	client          *clientWriter
	newConversation string       // the id of the conversation that begins with it, unless it goes on one
	prices          *price.Table // for all of the request
	notes
	result result
}

// received is a request as it came. Stages never write into it.
type received struct {
	header  http.Header
	query   string
	caller  string // the owner of the conversations that it is about
	outline *wire.Outline
}

// model is the name that the client used; empty if the request was unreadable.
func (r received) model() string {
	if r.outline == nil {
		return ""
	}
	return r.outline.Model
}

// notes are how the log speaks of a request.
type notes struct {
	id     string // of the request, for logs and records
	trail  telemetry.Trail
	logger zerolog.Logger
	often  zerolog.Logger // for what many requests may say alike
}

// log is for lines about this request. Most requests have only one, at their end,
// which is written without it.
func (n *notes) log() *zerolog.Logger {
	l := n.logger.With().Str("request_id", n.id).EmbedObject(n.trail).Logger()
	return &l
}

// result is what came of a request, for its line in the log, metrics and the records of
// usage. Stages write it; only serve reads it, when the pipeline has ended.
type result struct {
	scopedRequest           // zero for a request that was not routed
	attempt       *attempt  // the one that gives the client's answer, nil for none; serve closes the answer
	listener      *listener // nil unless the client gets an answer
	waited        waited
	reason        reason                      // why the backend refused; empty if it did not
	fail          func(f wire.Failure) []byte // how a stream that was begun ends by an error; nil: by the dialect's event

	answer    int64      // tokens that bound an answer which the request leaves open; 0 where no tokens are bounded
	admitted  *admitted  // nil where nothing bounds the call
	leave     func()     // its place among the calls at once; nil if it has none
	others    bool       // another backend can be asked if this one fails
	until     time.Time  // by then all backends together have answered, or failed; zero for a route of one
	turn      *agentTurn // that is recorded; nil for none
	attempts  int        // requests that the backend was sent, those that were repeated for a failure too
	sentCalls []sentCall // what the attempts sent
}

// waited is the time that was the backend's.
type waited struct {
	total     time.Duration
	firstByte time.Duration // part of it, until the last attempt's answer began
}

// routedRequest is a request and where it goes.
type routedRequest struct {
	*request
	backend   *backend
	model     string     // the backend's name for the request's
	modelInfo *modelInfo // of the model
}

// scopedRequest is a request and its conversation.
type scopedRequest struct {
	routedRequest
	scope   ledger.Scope  // where its turns belong
	minted  bool          // the conversation begins with this request
	matched bool          // it goes on a conversation that its client has not named
	inBody  bool          // the answer's body has the id too
	outline *wire.Outline // without what only the gateway had to know

	ephemeral ephemeral // not in outline until a request says what its conversation was

	stored *ledger.Response // what the answer will be as a stored response, without its body; nil for none
	passes bool             // it goes on from a stored response and is no turn of that conversation itself
}

// adaptedRequest is a request in the backend's dialect, like everything after it: what was
// recorded, what goes back and what a vendor refuses.
type adaptedRequest struct {
	scopedRequest
	answerOptions chatwire.AnswerOptions      // how the answer is to be shown
	responses     responseswire.AnswerOptions // the same for the Responses endpoint
	// the request as the client made it, if the vendor speaks its Responses; else nil
	native   *responseswire.Native
	newest   []string // kinds of content of the user's very last message that no text can replace
	replaced bool     // translation put a text in the place of content that it cannot carry
	previous string   // of native: the stored response that it goes on from; empty for none
	leftOut  []string // members of the request that translation has no place for
}

// resolvedRequest is a request and what its conversation makes of it.
type resolvedRequest struct {
	adaptedRequest
	continued *conversation.Continued // nil for a request without a conversation
}

// attempt is one try to get an answer.
type attempt struct {
	resolvedRequest
	cures   []*cure          // what it changes; none in the first
	fitting sanitize.Profile // for the last hop, see said.fitted
	replayed
	changes []sanitize.Change // that the last hop made
	rules   []sanitize.Rule   // that it keeps: those that are known, and those of cures

	toolNames map[string]string // see sanitize.Output

	leavesInclude bool    // the model has refused to give encrypted reasoning
	asksReasoning bool    // it asks for encrypted reasoning, which its client did not
	answer        *answer // nil until there is one
}

// replayed is a request with the thinking in it that is sent.
type replayed struct {
	doc    *wire.Outline
	replay *thinking.Replay // what is known of the turns in it
	report thinking.Report  // what became of the thinking in it
}

// translated reports whether endpoint and backend speak different dialects.
func (x routedRequest) translated() bool { return x.endpoint.dialect != x.backend.dialect }

// foreign reports whether the client and the vendor speak different dialects.
func (x routedRequest) foreign() bool { return x.endpoint.dialect != x.backend.speaks }

// An endpoint is a kind of request that the gateway takes.
type endpoint struct {
	name    string
	dialect wire.Dialect
	counts  bool                    // tokens, and leaves no trace
	path    map[wire.Dialect]string // at a backend of that dialect
}

var (
	messagesPath = map[wire.Dialect]string{
		wire.Messages: "/v1/messages", wire.Chat: "/chat/completions", wire.Responses: "/responses",
		wire.Interactions: "/interactions",
	}

	messagesEndpoint = endpoint{"messages", wire.Messages, false, messagesPath}
	chatEndpoint     = endpoint{"chat", wire.Chat, false, messagesPath}

	responsesEndpoint = endpoint{"responses", wire.Responses, false, messagesPath}

	countEndpoint = endpoint{"count_tokens", wire.Messages, true, map[wire.Dialect]string{
		wire.Messages: "/v1/messages/count_tokens",
	}}
	embeddingsEndpoint = endpoint{"embeddings", wire.Chat, false, map[wire.Dialect]string{wire.Chat: "/embeddings"}}
)
