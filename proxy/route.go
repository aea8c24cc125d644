package proxy

import (
	"context"

	"mneme/proxy/wire"
)

// routeActive picks the backend that is active when the request begins.
func (s *Server) routeActive(ctx context.Context, x *Exchange) error {
	x.routeTo(s.activeBackend(ctx))
	return nil
}

// routeTeammate picks the backend that the configuration gives the teammate,
// whatever is active.
func (s *Server) routeTeammate(_ context.Context, x *Exchange) error {
	x.routeTo(s.teammateBackend(x.teammate))
	return nil
}

func (s *Server) teammateBackend(name string) *backend {
	if b, ok := s.teammates[name]; ok {
		return b
	}
	return s.teammateDefault
}

// routeEmbeddings picks the backend for embeddings, from every endpoint.
func (s *Server) routeEmbeddings(_ context.Context, x *Exchange) error {
	if s.embedder == nil {
		return wire.Failure{
			Status:  501,
			Message: "no backend for embeddings is configured: set proxy.embeddings_backend to a backend of kind openai",
		}
	}
	x.routeTo(s.embedder)
	x.model, x.attempt.doc = x.asked.Model, x.asked
	return nil
}

func (x *Exchange) routeTo(b *backend) {
	x.backend = b
	x.model = b.models.find(x.in.outline.Model)
	x.profile = b.profile(x.model)
	x.asked = x.in.outline
	x.tellWindow()
}

// counter has tokens counted by the gateway where the backend cannot.
func counter(_ context.Context, x *Exchange) error {
	x.backend = x.backend.counter()
	return nil
}
