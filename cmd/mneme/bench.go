package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"mneme/cmd/mneme/internal/bench"
	"mneme/cmd/mneme/internal/term"
)

type benchCmd struct {
	Memory  benchMemoryCmd  `cmd:"" help:"Measure what remembering costs."`
	Writers benchWritersCmd `cmd:"" hidden:"" help:"One process of writers; bench memory starts it."`
}

type benchMemoryCmd struct {
	Redis string `placeholder:"URL" help:"Use this Redis, in an empty database, instead of starting a redis-server."`
	Force bool   `help:"Use it even if its database holds keys; they are left alone."`
	Runs  int    `default:"21" help:"How often everything is measured (${default})."`
	JSON  bool   `help:"Print JSON."`
}

func (benchMemoryCmd) Help() string {
	return `Compares, within one run, a turn's memory at 10 to 10,000 stored messages, the original service's way, and bare Redis commands; then 8 writers in two processes write into one chat at once. It takes less than a minute and needs a redis-server on the PATH, or --redis. The exit code does not depend on what was measured.

Examples:
  mneme bench memory
  mneme bench memory --redis redis://127.0.0.1:6379/9
  mneme bench memory --json | jq .reaches`
}

func (c benchMemoryCmd) Run(ctx context.Context, con *console) error {
	if c.Runs < 1 {
		return errors.New("--runs must be 1 or more")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it as a writer: %w", err)
	}
	ctx, release := untilSignal(ctx)
	defer release()
	line := term.IsTerminal(con.stderr)
	report, err := bench.Memory(ctx, bench.Options{
		URL: c.Redis, Force: c.Force, Runs: c.Runs,
		Writer: func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, self, "bench", "writers") },
		Progress: func(doing string) {
			if line {
				doing = "\r\x1b[K" + doing // over the one before
			} else {
				doing += "\n"
			}
			fmt.Fprint(con.stderr, doing)
		},
	})
	if line {
		fmt.Fprint(con.stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if !c.JSON {
		return report.WriteText(con.stdout)
	}
	e := json.NewEncoder(con.stdout)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

type benchWritersCmd struct{}

func (benchWritersCmd) Run(ctx context.Context, con *console) error {
	return bench.Write(ctx, con.stdin, con.stdout)
}
