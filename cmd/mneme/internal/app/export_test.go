package app

import (
	"context"

	"mneme/cmd/mneme/internal/config"
	"mneme/memory/telemetry"
)

// UpSeen is Up that hands out what the services count in, once all of them run.
func UpSeen(seen chan<- map[string]*telemetry.Service) func(context.Context, config.Config, Options) error {
	return func(ctx context.Context, cfg config.Config, o Options) error {
		return run(ctx, cfg, o, func(a *app) error {
			err := a.startAll(cfg, o)
			seen <- a.services
			return err
		})
	}
}

// UpOverSockets is Up with services that reach each other over the network, as processes
// apart do.
func UpOverSockets(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, cfg, o, func(a *app) error {
		a.sockets = true
		return a.startAll(cfg, o)
	})
}
