package proxy

import "context"

// mapModel gives the model the backend's name for it. No other byte changes.
func mapModel(_ context.Context, x *Exchange) error {
	x.attempt.doc = x.attempt.doc.WithModel(x.model)
	return nil
}

// MapModel is the name that a backend with this model_map gets for a model.
func MapModel(names map[string]string, model string) string { return newModelMap(names).find(model) }
