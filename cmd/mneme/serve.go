package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
)

// serveFlags are common to the commands that run services.
type serveFlags struct {
	Config string `placeholder:"FILE" env:"MNEME_CONFIG" help:"Configuration file; mneme.yaml is read without this flag if it is there."`
}

type (
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

// serve loads the configuration and runs the service, see the function serve.
func (f serveFlags) serve(ctx context.Context, con *console, start service, check func(config.Config) error) error {
	cfg, err := config.Load(f.Config, con.environ)
	if err != nil {
		return err
	}
	return serve(ctx, con, cfg, start, check)
}

// serve lets check look at the configuration, and runs the service until a signal. A
// check means that the process runs the gateway: its backends are looked at once it
// listens, and what is wrong with them is logged.
func serve(ctx context.Context, con *console, cfg config.Config, start service, check func(config.Config) error) error {
	if check != nil {
		if err := check(cfg); err != nil {
			return err
		}
	}
	ctx, release := untilSignal(ctx)
	defer release()
	o := app.Options{Out: con.stdout, Log: logger(cfg.Log, con)}
	if check != nil {
		var looking sync.WaitGroup
		defer looking.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o.Ready = func(app.Addrs) { looking.Go(func() { logProblems(ctx, cfg, o.Log) }) }
	}
	return start(ctx, cfg, o)
}

// logProblems asks the backends for their models, which costs nothing, and logs a
// sentence for each that calls would fail at.
func logProblems(ctx context.Context, cfg config.Config, log zerolog.Logger) {
	for _, r := range models.Check(ctx, cfg) {
		if err := r.Err(cfg); err != nil && ctx.Err() == nil {
			log.Warn().Str("service", "proxy").Str("backend", r.Backend).Msg(err.Error())
		}
	}
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
		out = zerolog.ConsoleWriter{Out: con.stderr, TimeFormat: time.TimeOnly,
			NoColor: !term.StyleFor(con.stderr).Coloured()}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}
