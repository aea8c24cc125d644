package copilot

import "context"

// CreateUnpermitted is Create, but the CLI is refused the tools that it was given.
func (r *Router) CreateUnpermitted(ctx context.Context, config SessionConfig) (*Session, error) {
	route := newRoute(newSessionID(), nil, r.config)
	if err := r.register(route); err != nil {
		return nil, err
	}
	if err := r.conn.call(ctx, methodCreate, newCreateParams(route.id, config), nil); err != nil {
		return nil, err
	}
	return newSession(r, route), nil
}
