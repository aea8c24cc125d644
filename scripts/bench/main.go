// Command bench measures what mneme costs, each time beside something that does less,
// in one run: a turn of the three services beside a chain of bare HTTP hops, memory
// beside rewriting a history whole, the gateway beside nginx and the smallest reverse
// proxy of net/http, searching by itself. It needs Linux and a redis-server on the PATH.
//
//	go run ./scripts/bench turn --help
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-analyze/charts"

	"mneme/scripts/lab"
)

type commands struct {
	Turn      turnCmd      `cmd:"" help:"CPU, latency and Redis of one turn beside a bare chain; with --live the memory of open answers."`
	Memory    memoryCmd    `cmd:"" help:"Remembering beside rewriting the history whole, over its length."`
	Gateway   gatewayCmd   `cmd:"" help:"The gateway beside nginx, the smallest proxy of net/http and none."`
	Retrieval retrievalCmd `cmd:"" help:"Indexing and searching made-up documents."`

	Hop lab.HopCmd `cmd:"" hidden:"" help:"One hop of net/http; turn and gateway start it."`
}

var bg = context.Background()

func main() {
	k := kong.Parse(&commands{}, kong.Name("bench"), kong.Description("Measures what mneme costs."), kong.UsageOnError())
	defer func() { // what lab.Must panics with; the processes have been stopped on the way
		if failed := recover(); failed != nil {
			fmt.Fprintln(os.Stderr, "bench:", failed)
			os.Exit(1)
		}
	}()
	lab.Must(0, k.Run())
}

// quantile is the value below which a share of the values is; it sorts them.
func quantile[T int | float64 | time.Duration](values []T, share float64) T {
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// draw writes lines over the labels of the x axis as SVG; no file, no picture.
func draw(file, title string, names, labels []string, lines ...[]float64) {
	if file == "" {
		return
	}
	p := lab.Must(charts.LineRender(lines, charts.SVGOutputOptionFunc(), charts.TitleTextOptionFunc(title),
		charts.XAxisLabelsOptionFunc(labels),
		charts.LegendOptionFunc(charts.LegendOption{SeriesNames: names, Offset: charts.OffsetStr{Top: "30"}}),
		charts.DimensionsOptionFunc(720, 400)))
	lab.Must(0, os.WriteFile(file, lab.Must(p.Bytes()), 0o644))
}
