package proxy

import "context"

// mapModel gives the model the backend's name for it. No other byte changes.
func mapModel(_ context.Context, x *Exchange) error {
	x.model = x.backend.models.find(x.head.Model)
	if x.model != x.head.Model {
		x.call.Body = x.head.WithModel(x.body, x.model)
	}
	return nil
}
