// Package services lets other programs of this repository run the services of mneme in their
// own process. It owns nothing: it names what is in cmd/mneme/internal, and mneme does not use it.
package services

import (
	"context"
	"net/http"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
)

// What a configuration is, and what a service takes beside it.
type (
	Config  = config.Config
	Backend = config.Backend
	Secret  = config.Secret
	Options = app.Options
	Addrs   = app.Addrs
)

// OpenAI is the kind of a backend that speaks chat completions.
const OpenAI = config.KindOpenAI

// Default is the configuration without a file.
func Default() Config { return config.Default() }

// Load reads a configuration as mneme does.
func Load(path string, environ []string) (Config, error) { return config.Load(path, environ) }

// Up starts all services in this process, until stop. It returns when they listen.
func Up(ctx context.Context, cfg Config, o Options) (at Addrs, stop func(), err error) {
	return app.Start(ctx, app.Up, cfg, o)
}

// Webmemory is Up with the public service alone.
func Webmemory(ctx context.Context, cfg Config, o Options) (at Addrs, stop func(), err error) {
	return app.Start(ctx, app.Webmemory, cfg, o)
}

// Gateway starts a gateway of its own. It reaches vendors by a transport; nil is the network.
func Gateway(ctx context.Context, cfg Config, to http.RoundTripper) (url string, stop func(), err error) {
	return app.Gateway(ctx, cfg, to)
}
