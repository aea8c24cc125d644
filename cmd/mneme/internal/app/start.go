package app

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/config"
)

// Start runs a service in this process until stop, which returns how the service has ended.
// It returns when everything of the service listens, and in place of what o.Ready says.
func Start(
	ctx context.Context, service func(context.Context, config.Config, Options) error, cfg config.Config, o Options,
) (addrs Addrs, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, exit := make(chan Addrs, 1), make(chan error, 1)
	o.Ready = func(a Addrs) { ready <- a }
	go func() { exit <- service(ctx, cfg, o) }() // ends with ctx
	select {
	case addrs = <-ready:
		return addrs, func() error { cancel(); return <-exit }, nil
	case err = <-exit:
		cancel()
		return addrs, nil, err
	}
}

// Gateway starts a gateway in this process that shares nothing with those that run. It
// reaches vendors by a transport; nil is the network.
func Gateway(ctx context.Context, cfg config.Config, transport http.RoundTripper) (url string, stop func(), err error) {
	cfg.Redis, cfg.TLS = config.Redis{}, config.TLS{}
	cfg.Proxy.Listen = "127.0.0.1:0"
	addrs, end, err := Start(ctx, Proxy, cfg, Options{Log: zerolog.Nop(), Transport: transport})
	return "http://" + addrs.Proxy, func() { _ = end() }, err
}
