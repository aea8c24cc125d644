// Command bench measures what mneme costs, each time beside something that does less,
// in one run: a turn of the three services beside a chain of bare HTTP hops, memory
// beside rewriting a history whole, the gateway beside nginx and the smallest reverse
// proxy of net/http. It needs Linux and a redis-server on the PATH.
//
//	go -C scripts run ./bench turn --help
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-analyze/charts"
	"github.com/spf13/cobra"
)

var bg = context.Background()

func main() {
	root := &cobra.Command{Use: "bench", Short: "Measures what mneme costs", SilenceUsage: true}
	var hop hopCmd
	hops := &cobra.Command{
		Use: "hop", Short: "One hop of net/http; turn and gateway start it", Hidden: true,
		RunE: func(*cobra.Command, []string) error { return hop.Run() },
	}
	hops.Flags().StringVar(&hop.Listen, "listen", "", "Its address")
	hops.Flags().StringVar(&hop.Target, "to", "", "Whom it calls")
	hops.Flags().IntVar(&hop.Calls, "calls", 0, "So many calls of one request; 0 passes it on")
	root.AddCommand(new(turnCmd).command(), new(memoryCmd).command(), new(gatewayCmd).command(),
		unitsCmd(), slotsCmd(), floodCmd(), hops)
	defer func() { // what must panics with; the processes have been stopped on the way
		if failed := recover(); failed != nil {
			fmt.Fprintln(os.Stderr, "bench:", failed)
			os.Exit(1)
		}
	}()
	if root.Execute() != nil { // it has said why
		os.Exit(1)
	}
}

// quantile is the value below which a share of the values is.
func quantile[T int | float64 | time.Duration](values []T, share float64) T {
	values = slices.Sorted(slices.Values(values))
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

func median[T int | float64 | time.Duration](values []T) T { return quantile(values, .5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// draw writes lines over the labels of the x axis as SVG; no file, no picture.
func draw(file, title string, names, labels []string, lines ...[]float64) {
	if file == "" {
		return
	}
	p := must(charts.LineRender(lines, charts.SVGOutputOptionFunc(), charts.TitleTextOptionFunc(title),
		charts.XAxisLabelsOptionFunc(labels),
		charts.LegendOptionFunc(charts.LegendOption{SeriesNames: names, Offset: charts.OffsetStr{Top: "30"}}),
		charts.DimensionsOptionFunc(720, 400)))
	must(0, os.WriteFile(file, must(p.Bytes()), 0o644))
}
