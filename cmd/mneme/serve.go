package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
)

const webmemoryHelp = `Examples:
  mneme webmemory
  MNEME_REDIS_URL=redis://localhost:6379 MNEME_WEBMEMORY_APISERVER=http://localhost:8081 mneme webmemory`

const apiserverHelp = `Examples:
  mneme apiserver
  MNEME_APISERVER_PROXY=http://localhost:8082 mneme apiserver`

const proxyHelp = `Examples:
  mneme proxy
  mneme proxy --config my.yaml`

// start runs services until the context ends, as those of package app.
type start func(context.Context, config.Config, app.Options) error

// service is a command that runs one. A check means that it is a gateway alone.
func (con *console) service(name, short, long string, start start, check func(config.Config) error) *cobra.Command {
	c, load := newCommand(name, short, long), config.Load
	if check != nil {
		load = config.LoadGateway
	}
	return withConfiguration(con, c, load, func(ctx context.Context, cfg config.Config, _ []string) error {
		return serve(con, ctx, cfg, start, check)
	})
}

// proxy runs the gateway itself too, so that other commands can stand beside that.
func (con *console) proxy() *cobra.Command {
	c := con.service("proxy", "The gateway to the models.", "Without a command it runs.\n\n"+proxyHelp, app.Proxy,
		config.Config.RequireKeys)
	c.AddCommand(con.proxyUse())
	return c
}

// serve lets check look at the configuration, and runs the service until a signal. A
// check means that the process runs the gateway: its backends are looked at once it
// listens, and what is wrong with them is logged.
func serve(con *console, ctx context.Context, cfg config.Config, start start, check func(config.Config) error) error {
	if check != nil {
		if err := check(cfg); err != nil {
			return err
		}
	}
	file, err := config.OpenLog(cfg)
	if err != nil {
		return err
	}
	var also []io.Writer
	if file != nil {
		defer file.Close()
		also = append(also, file)
	}
	ctx, release := untilSignal(ctx)
	defer release()
	attached := term.IsTerminal(con.stdin)
	hangups := make(chan os.Signal, 1) // those that come together are one
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	o := app.Options{Out: con.stdout, Log: newLogger(con.stderr, cfg.Log, also...), Reload: hangups,
		Load: func() (config.Config, error) {
			if attached && !term.IsTerminal(con.stdin) {
				release() // the signal says that the terminal was closed
				return cfg, errors.New("the terminal is gone, so this ends")
			}
			fresh, err := config.Again(cfg, con.environ)
			if err == nil && check != nil {
				err = check(fresh)
			}
			return fresh, err
		}}
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

// untilSignal ends the context at the first SIGINT or SIGTERM; the second one ends the process.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, release := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release)
	return ctx, release
}
