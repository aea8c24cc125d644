package proxy

import (
	"context"

	"mneme/proxy/wire"
)

// routeActive picks the backend that is active when the request begins.
func (s *Server) routeActive(_ context.Context, x *Exchange) error {
	x.routeTo(s.active.Load())
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

// routeEmbeddings picks the backend for embeddings, from every door.
func (s *Server) routeEmbeddings(_ context.Context, x *Exchange) error {
	if s.embedder == nil {
		return wire.Failure{Status: 501, Message: "no backend for embeddings is configured: set proxy.embeddings_backend to a backend of kind openai"}
	}
	x.routeTo(s.embedder)
	return nil
}

func (x *Exchange) routeTo(b *backend) {
	if x.door.name == countDoor.name {
		b = b.counter()
	}
	x.backend = b
	x.model = x.head.Model
	x.call = wire.Call{Dialect: b.dialect, Path: x.door.path[b.dialect], Body: x.body, Stream: x.head.Stream}
	if !x.translated() && x.query != "" {
		x.call.Path += "?" + x.query
	}
}
