package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/telemetry"
	"mneme/proxy/chatwire"
	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// Stage does one thing to an exchange. An error ends the pipeline; as long as
// nothing has been written it becomes an answer in the endpoint's dialect.
type Stage func(ctx context.Context, x *Exchange) error

// pipeline is a row of stages. A stage never asks what another one decided.
type pipeline []Stage

func (p pipeline) run(ctx context.Context, x *Exchange) error {
	for _, stage := range p {
		if err := stage(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// build makes the pipelines, one for each kind of route. From translate on
// everything is in the backend's dialect. An attempt begins with the request as it
// is then; another follows where a refusal can be cured, see attempts.
//
// The main pipeline's backend can be switched, so a Session decides what thinking
// it gets to see. A teammate's is configuration: its turns are recorded and put
// back, and that is all. Counting tokens leaves no trace.
func (s *Server) build() {
	s.main = pipeline{s.routeActive, s.name(scopeMain), translate, s.reconcile,
		s.attempts(s.begin, amend, mapModel, s.sanitize, headers, send), observe, reply}
	s.teammate = pipeline{s.routeTeammate, s.name(scopeTeammate), translate, s.reconcile,
		s.attempts(s.putBack, amend, mapModel, s.sanitize, headers, send), observe, s.tellCLI, reply}

	s.mainCount = pipeline{s.routeActive, counter, readName(scopeMain), s.reconcile,
		s.attempts(s.begin, amend, mapModel, s.sanitize, headers, send), reply}
	s.teammateCount = pipeline{s.routeTeammate, counter, readName(scopeTeammate), s.reconcile,
		s.attempts(s.putBack, amend, mapModel, s.sanitize, headers, send), reply}

	s.embeddings = pipeline{s.routeEmbeddings, headers, send, reply}
}

// Exchange is one request on its way through a pipeline, and its answer.
type Exchange struct {
	endpoint endpoint
	pipeline string // main or teammate, for logs and metrics
	teammate string // the name in /teammate/<name>, empty for none
	in       received
	id       string // of the request, for logs and records
	trail    telemetry.Trail
	logger   zerolog.Logger
	often    zerolog.Logger // for what many requests may say alike

	backend *backend
	model   string // the backend's name for the request's
	profile sanitize.Profile
	scope   ledger.Scope // where its turns belong
	minted  bool         // the conversation's id was made for this request

	asked     *wire.Outline           // the request in the backend's dialect, with which an attempt begins
	continued *conversation.Continued // what its conversation makes of it; nil for a request without one
	attempt   attempt
	answer    *backendAnswer // of the last attempt; closed by the server

	shown    chatwire.Asked     // how the answer is to be shown, where it is translated
	observer *thinking.Observer // nil for answers that are not recorded

	registered bool // the answer is in the ledger
	tokens     *usage.Reader
	client     *clientWriter
	elsewhere  time.Duration // that was the backend's
	firstByte  time.Duration // part of it, until the last attempt's answer began
	reason     reason        // why the backend refused; empty if it did not
}

// log is for lines about this request. Most requests have only one, at their end,
// which is written without it.
func (x *Exchange) log() *zerolog.Logger {
	l := x.logger.With().Str("request_id", x.id).EmbedObject(x.trail).Logger()
	return &l
}

// received is a request as it came. Stages never write into it.
type received struct {
	header  http.Header
	query   string
	outline *wire.Outline
}

// model is the name that the client used; empty if the request was unreadable.
func (r received) model() string {
	if r.outline == nil {
		return ""
	}
	return r.outline.Model
}

// attempt is one try to get an answer.
type attempt struct {
	cures  []*cure          // what it changes; none in the first
	doc    *wire.Outline    // the request as it becomes on its way
	replay *thinking.Replay // what is known of the turns in it
	report thinking.Report  // what became of the thinking in it
	fitted sanitize.Output  // what the last hop made of it
	header http.Header      // as it leaves, apart from the backend's credential
}

// translated reports whether endpoint and backend speak different dialects.
func (x *Exchange) translated() bool { return x.endpoint.dialect != x.backend.dialect }

// An endpoint is a kind of request that the gateway takes.
type endpoint struct {
	name    string
	dialect wire.Dialect
	path    map[wire.Dialect]string // at a backend of that dialect
}

var (
	messagesPath = map[wire.Dialect]string{wire.Messages: "/v1/messages", wire.Chat: "/chat/completions"}

	messagesEndpoint = endpoint{"messages", wire.Messages, messagesPath}
	chatEndpoint     = endpoint{"chat", wire.Chat, messagesPath}
	countEndpoint    = endpoint{"count_tokens", wire.Messages, map[wire.Dialect]string{
		wire.Messages: "/v1/messages/count_tokens",
	}}
	embeddingsEndpoint = endpoint{"embeddings", wire.Chat, map[wire.Dialect]string{wire.Chat: "/embeddings"}}
)
