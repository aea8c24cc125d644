package proxy

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// Stage does one thing to an exchange. An error ends the pipeline; as long as
// nothing has been written it becomes an answer in the door's dialect.
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

// build makes the pipelines. They differ in who answers: the active backend,
// the one that the configuration gives a teammate, the one for embeddings.
func (s *Server) build() {
	s.main = pipeline{s.routeActive, mapModel, translate, headers, send, reply}
	s.teammate = pipeline{s.routeTeammate, mapModel, translate, headers, send, reply}
	s.embeddings = pipeline{s.routeEmbeddings, headers, send, reply}
}

// Exchange is one request on its way through a pipeline, and its answer.
type Exchange struct {
	door     door
	teammate string      // the name in /teammate/<name>, empty for none
	header   http.Header // as received
	query    string
	body     []byte // as received; stages never write into it
	head     wire.Head
	log      zerolog.Logger

	backend *backend
	model   string    // the backend's name for head.Model
	call    wire.Call // as it leaves
	asked   chatwire.Asked
	resp    *http.Response // its body is closed by the server
	client  *clientWriter
}

// translated reports whether door and backend speak different dialects.
func (x *Exchange) translated() bool { return x.door.dialect != x.backend.dialect }

// A door is a kind of request that the gateway takes.
type door struct {
	name    string
	dialect wire.Dialect
	path    map[wire.Dialect]string // at a backend of that dialect
}

var (
	messagesPath = map[wire.Dialect]string{wire.Messages: "/v1/messages", wire.Chat: "/chat/completions"}

	messagesDoor   = door{"messages", wire.Messages, messagesPath}
	chatDoor       = door{"chat", wire.Chat, messagesPath}
	countDoor      = door{"count_tokens", wire.Messages, map[wire.Dialect]string{wire.Messages: "/v1/messages/count_tokens"}}
	embeddingsDoor = door{"embeddings", wire.Chat, map[wire.Dialect]string{wire.Chat: "/embeddings"}}
)
