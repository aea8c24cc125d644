package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"mneme/cmd/mneme/internal/bench"
)

type benchCmd struct {
	Memory    benchMemoryCmd    `cmd:"" help:"Measure what remembering costs."`
	Proxy     benchProxyCmd     `cmd:"" help:"Measure what the gateway costs, beside nginx."`
	Retrieval benchRetrievalCmd `cmd:"" help:"Measure what searching costs."`

	Vendor  benchVendorCmd  `cmd:"" hidden:"" help:"A vendor that answers at once; bench proxy starts it."`
	Relay   benchRelayCmd   `cmd:"" hidden:"" help:"The smallest reverse proxy of net/http; bench proxy starts it."`
	Gateway benchGatewayCmd `cmd:"" hidden:"" help:"A gateway that profiles itself; bench proxy starts it."`
	Library benchLibraryCmd `cmd:"" hidden:"" help:"One process that keeps documents searchable; bench retrieval starts it."`
	Writers benchWritersCmd `cmd:"" hidden:"" help:"One process of writers; bench memory starts it."`
}

type benchMemoryCmd struct {
	Redis  string `placeholder:"URL" help:"Use this Redis, in an empty database, instead of starting a redis-server."`
	Force  bool   `help:"Use it even if its database holds keys; they are left alone."`
	Runs   int    `default:"21" help:"How often everything is measured (${default})."`
	Filler int    `default:"20000" placeholder:"KEYS" help:"Keys of other chats, for what one chat costs among many (${default})."`
	JSON   bool   `help:"Print JSON."`
}

func (benchMemoryCmd) Help() string {
	return `Compares, within one run, a turn's memory at 10 to 10,000 stored messages, the original service's way, and bare Redis commands; then 8 writers in two processes write into one chat at once; then mneme is asked for one chat, and erases it, over HTTP, in a database of few keys and in one of many. It takes less than a minute and needs a redis-server on the PATH. With --redis that Redis is measured, but the comparison of two databases is left out. The exit code does not depend on what was measured.

Examples:
  mneme bench memory
  mneme bench memory --redis redis://127.0.0.1:6379/9
  mneme bench memory --filler 1000000
  mneme bench memory --json | jq .reaches`
}

func (c benchMemoryCmd) Run(ctx context.Context, con *console) error {
	if c.Runs < 1 || c.Filler < 1 {
		return errors.New("--runs and --filler must be 1 or more")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it as a writer: %w", err)
	}
	var services func(context.Context, string) *exec.Cmd
	if c.Redis == "" {
		services = func(ctx context.Context, config string) *exec.Cmd {
			return exec.CommandContext(ctx, self, "up", "--offline", "--config", config)
		}
	}
	ctx, release := untilSignal(ctx)
	defer release()
	tell, done := con.progress()
	report, err := bench.Memory(ctx, bench.Options{
		URL: c.Redis, Force: c.Force, Runs: c.Runs, Filler: c.Filler, Services: services,
		Writer:   func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, self, "bench", "writers") },
		Progress: tell,
	})
	done()
	if err != nil {
		return err
	}
	return con.print(report, c.JSON)
}

type benchWritersCmd struct{}

func (benchWritersCmd) Run(ctx context.Context, con *console) error {
	return bench.Write(ctx, con.stdin, con.stdout)
}
