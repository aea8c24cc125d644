package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
)

type turnCmd struct {
	Turns, Rounds int
	Mneme         string // program; "" to build one
	Draw          string // file
	Age, Live     int
	Growth        bool
	OpenAI        bool
	Limits        bool
	Traces        bool
	Long          int // messages; 0 for none
	Files         uint64
}

func (c *turnCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "turn", Short: "CPU, latency and Redis of one turn beside a bare chain; with --live the memory of open answers",
		Long: `A turn is one message to the master: three model calls, one delegation to a subagent, 20 deltas, from a vendor that answers at once. webmemory, apiserver and proxy are three processes over sockets and a redis-server of their own. The chain is three processes of net/http that pass on the same three calls and their streams and remember nothing. All are measured in the same run, round after round, one turn at a time, chats of ten turns each.

CPU is the kernel's count of the processes' threads. The embedded default is one process, mneme up, over the store in it. Redis is CPU time of redis-server (INFO cpu) and bytes of INFO stats. Commands are those that clients sent, each of a pipeline by itself, counted by MONITOR in turns of their own; those that scripts call are left out.

With --openai the two that are compared are chat completions, whose client sends the whole transcript, and mneme's own streams, of the same three services. Target: at most 1.15 times the CPU.

With --limits the two that are compared are the three services with a key, a tenant and a user that have rates and budgets each, and the same services that ask nobody, over one Redis. Target: at most 1.1 times the CPU.

With --traces the two that are compared are the three services that send traces to a collector, and the same services without one, over one Redis. Target: at most 1.10 times the CPU, by the upper bound of the ratios' median (95 %).

With --growth one chat of the three services grows to --age turns, with windows of four messages. Blocks of ten of its last turns are measured in turns with the turns 5 to 14 of new chats. The same again with another three services over the same Redis, which answer every other turn.

With --long N one chat has N messages that were imported. Blocks of ten turns in it are measured in turns with blocks of chats of ten messages, with recall off and with recall for every turn, where nothing is found; and searches of it, from the first on, which has no index.

With --live N answers are held open in the middle of their last call: memory (RSS), goroutines and descriptors of each service, from its /metrics, less those before; then all are let go and must complete.

Examples:
  go -C scripts run ./bench turn
  go build -o /tmp/mneme ./cmd/mneme && go -C scripts run ./bench turn --mneme /tmp/mneme --turns 500
  go -C scripts run ./bench turn --openai
  go -C scripts run ./bench turn --limits
  go -C scripts run ./bench turn --traces --turns 20 --rounds 81
  go -C scripts run ./bench turn --growth
  go -C scripts run ./bench turn --long 100000
  go -C scripts run ./bench turn --live 2000`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	f := b.Flags()
	f.IntVar(&c.Turns, "turns", 200, "Turns of each way in one round")
	f.IntVar(&c.Rounds, "rounds", 5, "How often both ways are measured, one after the other")
	f.StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	f.StringVar(&c.Draw, "draw", "", "Instead: one chat of each way grows for --age turns; its CPU per turn as a picture, `FILE`, SVG")
	f.IntVar(&c.Age, "age", 1000, "Turns of an old chat")
	f.BoolVar(&c.OpenAI, "openai", false, "Instead: chat completions beside mneme's own streams")
	f.BoolVar(&c.Limits, "limits", false, "Instead: turns with a key, rates and budgets beside turns without")
	f.BoolVar(&c.Traces, "traces", false, "Instead: turns that are traced beside turns that are not")
	f.BoolVar(&c.Growth, "growth", false, "Instead: turns of a chat that has --age of them beside those of young ones")
	f.IntVar(&c.Long, "long", 0, "Instead: turns and searches of a chat of `N` messages beside chats of ten")
	f.IntVar(&c.Live, "live", 0, "Instead: `N` answers open at once, in mneme up and in the three services")
	f.Uint64Var(&c.Files, "files", 20000, "Limit of descriptors for every process of --live")
	return b
}

func (c *turnCmd) run() error {
	l := newLab(c.Mneme)
	defer l.Stop()
	if c.Live > 0 {
		return c.live(l)
	}
	v := newVendor(nil)
	defer v.Close()
	switch {
	case c.Limits:
		c.limits(l, v)
	case c.Traces:
		c.traces(l, v)
	case c.Growth:
		c.growth(l, v)
	case c.Long > 0:
		c.long(l, v)
	case c.Draw != "":
		c.age(wayOf("mneme", l.Services(v, true)).warm(), chain(l, v).warm())
	case c.OpenAI:
		s := l.Services(v, true)
		base, _, _ := strings.Cut(s.URL, "/v1/chats/")
		openai := wayOf("openai", s)
		openai.urls = []string{base + "/c/CHAT" + completions}
		c.compare(openai.warm(), wayOf("mneme", s).warm())
	default:
		mneme, own := wayOf("mneme", l.Services(v, true)), wayOf("embedded", l.Replica(services{}, v, false))
		c.compare(mneme.warm(), own.warm(), chain(l, v).warm())
		mneme.commands()
	}
	return nil
}

// chain starts the bare one.
func chain(l *lab, v *vendor) *way {
	w, addr := &way{name: "chain"}, v.Listener.Addr().String()
	for _, calls := range []int{0, 3, 0} { // the gateway's place, the apiserver's, webmemory's
		var pid int
		addr, pid = l.Hop(addr, calls)
		w.pids = append(w.pids, pid)
	}
	w.urls = []string{"http://" + addr + "/CHAT"}
	return w
}

// traces compares turns that are traced with turns that are not, in one run. A collector takes each span at once.
func (c *turnCmd) traces(l *lab, v *vendor) {
	s, spanBytes := l.Services(v, true), new(atomic.Int64)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		spanBytes.Add(n)
	}))
	defer collector.Close()
	off := wayOf("off", s)
	must(0, os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL))
	on := wayOf("on", l.Replica(s, v, true))
	c.compare(on.warm(), off.warm())
	pairs := make([]float64, len(on.cpu))
	for i := range pairs {
		pairs[i] = on.cpu[i] / off.cpu[i]
	}
	// The order statistic that the median exceeds in one of twenty cases, by the normal approximation of the binomial.
	n := float64(len(pairs))
	fmt.Printf("  upper bound of the median %.3f ×; %.0f bytes of spans a turn\n",
		quantile(pairs, (math.Ceil(n/2+1.645*math.Sqrt(n)/2)-1)/n), float64(spanBytes.Load())/float64(on.turnCount))
}

// age lets one chat of each way grow and draws what its turns took, by fifteenths.
func (c *turnCmd) age(ways ...*way) {
	labels, step := []string{}, max(c.Age/15, 1)
	for turn := step; turn <= c.Age; turn += step {
		for _, w := range ways {
			w.measure(step, func() {
				for range step {
					w.turn("old", 0)
				}
			})
		}
		labels = append(labels, strconv.Itoa(turn))
	}
	for _, w := range ways {
		fmt.Printf("%-6s CPU per turn in ms, by %d: %.2f\n", w.name, step, w.cpu)
	}
	draw(c.Draw, "CPU of a turn in ms, over the turns that a chat has", []string{"mneme", "the bare chain"}, labels,
		ways[0].cpu, ways[1].cpu)
}

// The key of the turns that are limited, and six limits that none of them meets.
const (
	limitedKey             = "mn_bench_0123456789abcdefghijklmnopqrstuv"
	manyAtATime, muchInAll = "100000000/m,100000000000tokens/m", "100000000000tokens/month"
)

// limits compares turns with a key, rates and budgets with turns of services without keys, in one run.
func (c *turnCmd) limits(l *lab, v *vendor) {
	s := l.Services(v, true)
	l.Settings = fmt.Sprintf(`auth: {mode: keys, keys_file: %s}
limits:
  tenants: {acme: {rate: "%[2]s", budget: "%[3]s"}}
  users: {rate: "%[2]s", budget: "%[3]s"}
`, l.File("keys.yaml", fmt.Sprintf("keys:\n- {id: bench, tenant: acme, scopes: [chat], rate: %q, budget: %q, hash: %x}\n",
		manyAtATime, muchInAll, sha256.Sum256([]byte(limitedKey)))), manyAtATime, muchInAll)
	free, limited := wayOf("free", s), wayOf("limited", l.Replica(s, v, true))
	limited.key, limited.user, free.user = limitedKey, "ann", "ann"
	free.warm()
	keys := len(must(s.Redis.Keys(bg, "mneme:limits*").Result()))
	c.compare(limited.warm(), free)
	fmt.Println("  keys of limits in Redis after turns without:", keys)
}

// growth compares turns of an old chat with those of chats that have just begun, by turns in one
// run, where windows are full from the fifth turn on.
func (c *turnCmd) growth(l *lab, v *vendor) {
	const windows = "context_window: 4, subagent_context_window: 4"
	for replicas, name := range []string{"alone", "with a second replica that answers every other turn"} {
		mark := l.Mark()
		group := []services{l.Services(v, true, windows)}
		for range replicas {
			group = append(group, l.Replica(group[0], v, true, windows))
		}
		w := wayOf("", group...)
		for range c.Age - 60 { // which ages adds
			w.turn("old", 0)
		}
		w.latency = nil
		fmt.Printf("a chat's %dth turn beside the 5th to 14th of others, %s\n", c.Age, name)
		ages(w, "old", func(round int) string {
			chat := fmt.Sprintf("young-%d-%d", os.Getpid(), round)
			for i := range 4 {
				must(0, say(w.urls[i%len(w.urls)], chat, question))
			}
			return chat
		})
		l.StopTo(mark)
	}
}
