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

// start runs services until the context ends. The functions of package app have this type.
type start func(context.Context, config.Config, app.Options) error

// serviceCommand returns a command that runs a service. With a check, the service is a gateway only.
func serviceCommand(con *console, name, short, long string, run start, check func(config.Config) error) *cobra.Command {
	c, load := newCommand(name, short, long), config.Load
	if check != nil {
		load = config.LoadGateway
	}
	return withConfiguration(con, c, load, func(ctx context.Context, cfg config.Config, _ []string) error {
		return serve(ctx, con, cfg, run, check)
	})
}

func webmemoryCommand(con *console) *cobra.Command {
	return serviceCommand(con, "webmemory", "Run the public service: chats and their memory.", `Examples:
  mneme webmemory
  MNEME_REDIS_URL=redis://localhost:6379 MNEME_WEBMEMORY_APISERVER=http://localhost:8081 mneme webmemory`, app.Webmemory, nil)
}

func apiserverCommand(con *console) *cobra.Command {
	return serviceCommand(con, "apiserver", "Run the service of the agents.", `Examples:
  mneme apiserver
  MNEME_APISERVER_PROXY=http://localhost:8082 mneme apiserver`, app.Apiserver, nil)
}

// proxyCommand runs the gateway, and also holds the command proxy use.
func proxyCommand(con *console) *cobra.Command {
	c := serviceCommand(con, "proxy", "The gateway to the models.", `Without a command it runs.

Examples:
  mneme proxy
  mneme proxy --config my.yaml`, app.Proxy, config.Config.RequireKeys)
	c.AddCommand(proxyUseCommand(con))
	return c
}

// serve checks the configuration and runs the service until a signal. With a check, the process runs the gateway. Once
// the gateway listens, serve logs the faults of its backends.
func serve(ctx context.Context, con *console, cfg config.Config, start start, check func(config.Config) error) error {
	if check != nil {
		if err := check(cfg); err != nil {
			return err
		}
	}
	file, err := config.OpenLog(cfg)
	if err != nil {
		return err
	}
	var logs []io.Writer
	if file != nil {
		defer file.Close()
		logs = append(logs, file)
	}
	ctx, release := cancelOnSignal(ctx)
	defer release()
	attached := term.IsTerminal(con.stdin)
	hangups := make(chan os.Signal, 1) // signals that arrive together are one
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	o := app.Options{Out: con.stdout, Log: newLogger(con.stderr, cfg.Log, logs...), Reload: hangups,
		Load: func() (config.Config, error) {
			if attached && !term.IsTerminal(con.stdin) {
				release() // the signal says that the terminal was closed
				return cfg, errors.New("the terminal is gone, so this ends")
			}
			fresh, err := config.Reload(cfg, con.environ)
			if err != nil || check == nil {
				return fresh, err
			}
			return fresh, check(fresh)
		}}
	if check != nil {
		var checks sync.WaitGroup
		defer checks.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o.Ready = func(app.Addrs) { checks.Go(func() { logProblems(ctx, cfg, o.Log) }) }
	}
	return start(ctx, cfg, o)
}

// logProblems asks the backends for their models, which costs nothing. It logs a warning for each unusable backend.
func logProblems(ctx context.Context, cfg config.Config, log zerolog.Logger) {
	for _, r := range models.Check(ctx, cfg) {
		if err := r.Err(cfg); err != nil && ctx.Err() == nil {
			log.Warn().Str("service", "proxy").Str("backend", r.Backend).Msg(err.Error())
		}
	}
}

// cancelOnSignal returns a context that ends at the first SIGINT or SIGTERM. The second one ends the process.
func cancelOnSignal(parent context.Context) (context.Context, func()) {
	ctx, release := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release)
	return ctx, release
}
