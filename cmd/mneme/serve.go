package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
)

// serveFlags are common to the commands that run services.
type serveFlags struct {
	Config string `placeholder:"FILE" env:"MNEME_CONFIG" help:"Configuration file; mneme.yaml is read without this flag if it is there."`
}

type (
	upCmd        struct{ serveFlags }
	webmemoryCmd struct{ serveFlags }
	apiserverCmd struct{ serveFlags }

	// proxyCmd has one default command, so that others can stand beside it.
	proxyCmd struct {
		Serve proxyServeCmd `cmd:"" default:"withargs" help:"Run the gateway (what plain mneme proxy does)."`
		Use   proxyUseCmd   `cmd:"" help:"Show the gateway's backends, or switch the active one."`
		Usage proxyUsageCmd `cmd:"" help:"Print the tokens that model calls took."`
	}
	proxyServeCmd struct{ serveFlags }
)

func (upCmd) Help() string {
	return `Starts webmemory on 127.0.0.1:8080, the apiserver on :8081, the proxy on :8082 and, unless redis.url is set, a store in ./data that redis-cli -p 6380 can read. Without a configured backend an offline demonstration model answers.

Examples:
  mneme up
  mneme up --config my.yaml
  MNEME_DATA_DIR=/var/lib/mneme mneme up`
}

func (webmemoryCmd) Help() string {
	return `Examples:
  mneme webmemory
  MNEME_REDIS_URL=redis://localhost:6379 MNEME_WEBMEMORY_APISERVER=http://localhost:8081 mneme webmemory`
}

func (apiserverCmd) Help() string {
	return `Examples:
  mneme apiserver
  MNEME_APISERVER_PROXY=http://localhost:8082 mneme apiserver`
}

func (proxyServeCmd) Help() string {
	return `Examples:
  mneme proxy
  mneme proxy --config my.yaml`
}

func (c upCmd) Run(ctx context.Context, con *console) error {
	return c.serve(ctx, con, app.Up, func(cfg config.Config) error {
		return cmp.Or(cfg.RequireKeys(), cfg.RequireEmbeddings())
	})
}

func (c webmemoryCmd) Run(ctx context.Context, con *console) error {
	return c.serve(ctx, con, app.Webmemory, nil)
}

func (c apiserverCmd) Run(ctx context.Context, con *console) error {
	return c.serve(ctx, con, app.Apiserver, nil)
}

func (c proxyServeCmd) Run(ctx context.Context, con *console) error {
	return c.serve(ctx, con, app.Proxy, config.Config.RequireKeys)
}

type service func(context.Context, config.Config, app.Options) error

// serve loads the configuration, lets check look at it, and runs the service
// until a signal.
func (f serveFlags) serve(ctx context.Context, con *console, start service, check func(config.Config) error) error {
	cfg, err := config.Load(f.Config, con.environ)
	if err == nil && check != nil {
		err = check(cfg)
	}
	if err != nil {
		return err
	}
	ctx, release := untilSignal(ctx)
	defer release()
	return start(ctx, cfg, app.Options{Out: con.stdout, Log: logger(cfg.Log, con)})
}

// untilSignal ends the context at the first SIGINT or SIGTERM and the process at
// the second.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() { // ended by release
		for range 2 {
			select {
			case <-signals:
				if ctx.Err() != nil {
					os.Exit(exitFailure)
				}
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// logger writes to standard error: for people if that is a terminal, else JSON.
func logger(c config.Log, con *console) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		level = zerolog.InfoLevel // Validate lets no other name through
	}
	out := con.stderr
	if c.Format == "console" || c.Format == "auto" && term.IsTerminal(con.stderr) {
		out = zerolog.ConsoleWriter{Out: con.stderr, TimeFormat: time.TimeOnly, NoColor: !term.StyleFor(con.stderr).Coloured()}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}
