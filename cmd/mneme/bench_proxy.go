package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/bench"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
)

type benchProxyCmd struct {
	Requests    int      `default:"5000" help:"Small requests in one batch; batches of other requests are shorter in proportion (${default})."`
	Rounds      int      `default:"7" help:"How often everything is measured (${default})."`
	Connections int      `default:"64" help:"At one time (${default})."`
	Only        []string `placeholder:"ROW" help:"Measure only these: json, stream, translated, history, memory, N-turns for each N of --turns."`
	Turns       []int    `default:"10,100,1000" help:"Lengths of the conversations that are measured by kilobyte."`
	Profile     string   `placeholder:"DIR" help:"Then run each load once more and write CPU and allocation profiles of the gateway there."`
	JSON        bool     `help:"Print JSON."`
}

func (benchProxyCmd) Help() string {
	return `Compares, within one run and round after round, requests straight to a vendor that answers at once, through an nginx, through the smallest reverse proxy that net/http allows and through mneme proxy: what CPU time the processes in between take, how many requests get through, how much memory they hold. It takes about five minutes and needs Linux; nginx is left out if it is not on the PATH. The exit code does not depend on what was measured.

Examples:
  mneme bench proxy
  mneme bench proxy --only json --rounds 3
  mneme bench proxy --profile /tmp/profiles && go tool pprof -top /tmp/profiles/json.cpu.pprof
  mneme bench proxy --json | jq .metrics`
}

func (c benchProxyCmd) Run(ctx context.Context, con *console) error {
	if slices.ContainsFunc(c.Turns, func(n int) bool { return n < 1 }) {
		return errors.New("--turns must be 1 or more")
	}
	if c.Requests < 1 || c.Rounds < 1 || c.Connections < 1 {
		return errors.New("--requests, --rounds and --connections must be 1 or more")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it as a gateway: %w", err)
	}
	ctx, release := untilSignal(ctx)
	defer release()
	tell, done := con.progress()
	report, err := bench.Proxy(ctx, bench.ProxyOptions{
		Requests: c.Requests, Rounds: c.Rounds, Connections: c.Connections, Turns: c.Turns, Only: c.Only, Profiles: c.Profile,
		Vendor: func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, self, "bench", "vendor") },
		Relay: func(ctx context.Context, listen, vendor string) *exec.Cmd {
			return exec.CommandContext(ctx, self, "bench", "relay", "--listen", listen, "--vendor", vendor)
		},
		Gateway: func(ctx context.Context, config string) *exec.Cmd {
			return exec.CommandContext(ctx, self, "proxy", "--config", config)
		},
		Profiled: func(ctx context.Context, config, cpu, allocs string) *exec.Cmd {
			return exec.CommandContext(ctx, self, "bench", "gateway", "--config", config, "--cpu", cpu, "--allocs", allocs)
		},
		Progress: tell,
	})
	done()
	if err != nil {
		return err
	}
	return con.print(report, c.JSON)
}

// progress says on standard error what is being done, on a terminal in one line
// that done clears.
func (con *console) progress() (tell func(doing string), done func()) {
	if !term.IsTerminal(con.stderr) {
		return func(doing string) { fmt.Fprintln(con.stderr, doing) }, func() {}
	}
	return func(doing string) { fmt.Fprint(con.stderr, "\r\x1b[K"+doing) }, func() { fmt.Fprint(con.stderr, "\r\x1b[K") }
}

// print prints a benchmark's report for people or as JSON.
func (con *console) print(report interface{ WriteText(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return report.WriteText(con.stdout)
	}
	e := json.NewEncoder(con.stdout)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

type benchVendorCmd struct{}

func (benchVendorCmd) Run(ctx context.Context, con *console) error {
	return bench.Vendor(ctx, con.stdin, con.stdout)
}

type benchRelayCmd struct {
	Listen string `required:"" placeholder:"ADDR" help:"Where to listen, host:port."`
	Vendor string `required:"" placeholder:"ADDR" help:"Where the vendor listens, host:port."`
}

func (c benchRelayCmd) Run(ctx context.Context) error { return bench.Relay(ctx, c.Listen, c.Vendor) }

// benchGatewayCmd is mneme proxy that profiles itself from its start to its end.
type benchGatewayCmd struct {
	serveFlags
	CPU    string `required:"" placeholder:"FILE" help:"File for the CPU profile."`
	Allocs string `required:"" placeholder:"FILE" help:"File for the profile of allocations."`
}

func (c benchGatewayCmd) Run(ctx context.Context, con *console) (err error) {
	cpu, err := os.Create(c.CPU)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	if err := c.serve(ctx, con, app.Proxy, config.Config.RequireKeys); err != nil {
		return err
	}
	allocs, err := os.Create(c.Allocs)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
}
