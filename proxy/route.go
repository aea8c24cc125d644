package proxy

// route sends the request to a backend, and the client is told its window. Where the
// backend cannot count tokens the gateway does.
func (x *request) route(b *backend) routed {
	model := b.models.find(x.in.outline.Model)
	to := routed{request: x, backend: b, model: model, profile: b.profile(model)}
	if x.endpoint.counts {
		to.backend = b.counter()
	}
	x.result.routed = to
	to.tellWindow()
	return to
}

func (s *Server) teammateBackend(name string) *backend {
	if b, ok := s.teammates[name]; ok {
		return b
	}
	return s.teammateDefault
}
