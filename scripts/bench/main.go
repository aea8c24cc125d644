// Command bench measures what mneme costs, each time beside something that does less,
// in one run: a turn of the three services beside a chain of bare HTTP hops, memory
// beside rewriting a history whole, the gateway beside nginx and the smallest reverse
// proxy of net/http, searching by itself. It needs Linux and a redis-server on the PATH.
//
//	go run ./scripts/bench turn --help
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

type commands struct {
	Turn turnCmd `cmd:"" help:"CPU, latency and Redis of one turn beside a bare chain; with --live the memory of open answers."`

	Hop hopCmd `cmd:"" hidden:"" help:"One hop of the bare chain; bench turn starts it."`
}

func main() {
	k := kong.Parse(&commands{}, kong.Name("bench"), kong.Description("Measures what mneme costs."), kong.UsageOnError())
	defer func() { // what must panics with; the processes have been stopped on the way
		if failed := recover(); failed != nil {
			fmt.Fprintln(os.Stderr, "bench:", failed)
			os.Exit(1)
		}
	}()
	must(0, k.Run())
}

// must is v. A benchmark has nobody to hand an error to: it panics, so that what was
// started is stopped by the deferred calls, and main prints the error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
