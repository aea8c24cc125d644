package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mneme/internal/stack"
)

type gatewayCmd struct {
	Requests, Rounds, Connections, Growth int // zero: the default of what is measured
	Workloads                             bool
	Turns                                 []int
	Mneme                                 string // program; "" to build one
}

func (c *gatewayCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "gateway", Short: "The gateway beside nginx, the smallest proxy of net/http and none",
		Long: `Requests in the messages dialect go straight to a vendor that answers at once, through nginx (left out if ` +
			`it is not on the PATH), through the smallest reverse proxy of net/http, and through mneme proxy with all that it ` +
			`does, without Redis. CPU is that of the process in between. A conversation grows by a question and an answer ` +
			`with thinking at a time and is sent whole; its CPU is that of the ten turns up to the length shown, per kB sent. ` +
			`Responses are sent to a vendor of them through mneme proxy, with store: false and to be stored. ` +
			`The growth of a conversation over Redis is measured by ./proxy's own benchmark, vendor and client in its process.`,
		RunE: func(*cobra.Command, []string) error {
			c.run()
			return c.growth()
		},
	}
	f := b.Flags()
	f.IntVar(&c.Requests, "requests", 0, "In one batch, 5000; streams a quarter of them. Of each workload in all, 8000")
	f.IntVar(&c.Rounds, "rounds", 0, "How often each is measured, one after the other: 5; workloads 10")
	f.IntVar(&c.Connections, "connections", 0, "At one time, 64; streams on a quarter of them. Of workloads 10")
	f.BoolVar(&c.Workloads, "workloads", false, "Instead: chat, messages and Responses, as JSON and as streams, a body "+
		"of 100 kB, and the memory after 2,500 and 35,000 small requests, all without conversations")
	f.IntSliceVar(&c.Turns, "turns", []int{10, 100, 500}, "Where a growing conversation is measured")
	f.IntVar(&c.Growth, "growth", 50, "How often old and young conversations over Redis take turns; 0 leaves them out")
	f.StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	return b
}

// vendors are the backends of gateways, by the dialect of their vendor.
var vendors = map[string]string{
	"messages":  `{kind: anthropic, vendor: anthropic, base_url: "http://VENDOR", thinking: {budget_tokens: 2048}}`,
	"responses": `{kind: responses, vendor: openai, base_url: "http://VENDOR/v1"}`,
	"chat":      `{kind: openai, vendor: openai, base_url: "http://VENDOR/v1"}`,
}

const nginxConfig = `daemon off; pid nginx.pid; error_log stderr; worker_processes auto; USER
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path body; proxy_temp_path proxy; keepalive_requests 100000000;
  fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  upstream vendor { server VENDOR; keepalive 256; keepalive_requests 100000000; }
  server { listen ADDR; location / { proxy_pass http://vendor; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_buffering off; client_max_body_size 64m; } }
}
`

// between is one way to a vendor.
type between struct {
	name, addr string
	pids       []int
}

// ground is where ways to one vendor are started.
type ground struct {
	*lab
	vendor string
}

func (g ground) expand(text, addr string) string {
	// by itself it would choose one that cannot enter the folder
	user := map[bool]string{true: "user root;"}[os.Geteuid() == 0]
	return strings.NewReplacer("DIR", g.Dir, "ADDR", addr, "VENDOR", g.vendor, "USER", user).Replace(text)
}

// bare are the ways that only pass requests on: nginx, if it is there, and the smallest proxy of net/http.
func (g ground) bare() (ways []between) {
	if program, err := exec.LookPath("nginx"); err == nil {
		addr := freeAddr()
		pid := g.Start(func() error { _, err := http.Get("http://" + addr); return err }, program, "-p", g.Dir, "-c",
			g.File("nginx.conf", g.expand(nginxConfig, addr)))
		ways = append(ways, between{name: "nginx", addr: addr, pids: children(pid)})
	} else {
		fmt.Println("nginx is left out: there is no program of this name on the PATH")
	}
	addr, pid := g.Hop(g.vendor, 0)
	return append(ways, between{name: "net/http", addr: addr, pids: []int{pid}})
}

// run measures all loads by all ways, round after round.
func (c *gatewayCmd) run() {
	if c.Workloads {
		c.Requests, c.Rounds, c.Connections = cmp.Or(c.Requests, 8000), cmp.Or(c.Rounds, 10), cmp.Or(c.Connections, 10)
	} else {
		c.Rounds, c.Connections = cmp.Or(c.Rounds, 5), cmp.Or(c.Connections, 64)
		c.Requests = cmp.Or(c.Requests, 5000) * c.Rounds
	}
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = c.Connections
	l := newLab(c.Mneme)
	defer l.Stop()
	v := newVendor(nil)
	defer v.Close()
	g, loads := ground{l, v.Listener.Addr().String()}, loads(c.Workloads)
	passing := append([]between{{name: "direct", addr: g.vendor}}, g.bare()...)
	gateways := map[string]between{}
	for dialect, backend := range vendors {
		addr, pid := g.Gateway(g.expand(backend, ""))
		gateways[dialect] = between{"mneme", addr, []int{pid}}
	}
	small := loads[slices.IndexFunc(loads, func(l load) bool { return l.dialect == "messages" })]
	for _, w := range append(slices.Clone(passing[1:]), gateways["messages"]) {
		small.send(w, 2500, c.Connections)
		fmt.Printf("%-9s RSS %3.0f MB after 2,500 of %s", w.name, resident(w.pids...)/1e6, small.name)
		if c.Workloads {
			small.send(w, 32_500, c.Connections)
			fmt.Printf(", %3.0f MB after 35,000", resident(w.pids...)/1e6)
		} else {
			fmt.Print("; a conversation, CPU per kB:")
			w.grow(c.Turns)
		}
		fmt.Println()
	}
	type figures struct {
		took      []time.Duration
		cpu, rate []float64
		rss       float64
	}
	results := map[string]*figures{}
	for round := range c.Rounds + 1 {
		for _, load := range loads {
			for _, w := range append(slices.Clone(passing), gateways[load.dialect]) {
				f := results[load.name+w.name]
				if f == nil || round == 1 { // the first one warms up
					f = new(figures)
					results[load.name+w.name] = f
				}
				n, connections := max(1, c.Requests/c.Rounds), c.Connections
				if !c.Workloads && load.stream {
					n, connections = max(1, n/4), max(1, connections/4)
				}
				cpuStart, began := cpuOf(w.pids...), time.Now()
				f.took = append(f.took, load.send(w, n, connections)...)
				f.rate = append(f.rate, float64(n)/time.Since(began).Seconds())
				f.cpu = append(f.cpu, 1000*ms(cpuOf(w.pids...)-cpuStart)/float64(n))
				f.rss = resident(w.pids...) / 1e6
			}
		}
	}
	fmt.Printf("%d requests of each in %d rounds, %d connections; ratios of CPU in the same round: median, quartiles\n"+
		"%-24s %-9s %7s %7s %8s %7s %-19s %-19s %s\n", c.Requests, c.Rounds, c.Connections, "requests", "way", "p50 ms",
		"p99 ms", "per s", "CPU µs", "÷ net/http", "÷ messages by mneme", "RSS MB")
	for _, load := range loads {
		for _, w := range append(slices.Clone(passing), gateways[load.dialect]) {
			f := results[load.name+w.name]
			ratio := func(base *figures) string {
				pairs := slices.Clone(f.cpu)
				for i := range pairs {
					pairs[i] /= base.cpu[i]
				}
				return fmt.Sprintf("%5.2f (%.2f–%.2f)", median(pairs), quantile(pairs, .25), quantile(pairs, .75))
			}
			fmt.Printf("%-24s %-9s %7.2f %7.2f %8.0f %7.0f %-19s %-19s %6.0f\n", load.name, w.name, ms(median(f.took)),
				ms(quantile(f.took, .99)), median(f.rate), median(f.cpu), ratio(results[load.name+"net/http"]),
				ratio(results[loadName("messages", load.stream)+"mneme"]), f.rss)
		}
	}
}

// growth has ./proxy's benchmark of that measure how the cost of a turn grows with a conversation.
func (c *gatewayCmd) growth() error {
	if c.Growth == 0 || c.Workloads {
		return nil
	}
	out, err := stack.Go("test", "-run", "^$", "-bench", "Growth", "-benchtime", fmt.Sprintf("%dx", c.Growth),
		"./proxy").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, figures, hasFigures := strings.Cut(line, "\t")
		if _, gateways, ok := strings.Cut(name, "/gateways="); ok && hasFigures {
			byUnit := map[string]string{} // by their units
			for f := strings.Fields(figures)[1:]; len(f) > 1; f = f[2:] {
				byUnit[f[1]] = f[0]
			}
			fmt.Printf("mneme     conversation over Redis, gateways that take turns: %s; CPU of the 1,000th turn %s µs, "+
				"of the 5th %s µs: ÷ %s\n", gateways[:1], byUnit["µs/turn1000"], byUnit["µs/turn5"], byUnit["turn1000÷turn5"])
		}
	}
	return nil
}

// load is a kind of requests, all of them the same but for the NAME in some.
type load struct {
	name, dialect, path, body string
	endMarker                 string // is in a whole answer alone
	stream                    bool
}

// messagesHead begins a request in the messages dialect.
const messagesHead = `"model":"claude-sonnet-4-5","max_tokens":8192,"thinking":{"type":"enabled","budget_tokens":2048},`

func loadName(dialect string, stream bool) string {
	return dialect + map[bool]string{true: ", stream", false: ", JSON"}[stream]
}

// loads are small questions, each the first of its conversation; as workloads those that GoModel publishes its figures
// of, which have no conversations, and a long one.
func loads(workloads bool) (variants []load) {
	const responses = `"model":"gpt-5.1","max_output_tokens":8192,"include":["reasoning.encrypted_content"],` +
		`"reasoning":{"effort":"medium","summary":"auto"},"input":[ASKED],"store":`
	kinds := []load{{"messages", "messages", "/v1/messages", messagesHead + `"messages":[ASKED]`, "message_stop", true},
		{"Responses", "responses", "/v1/responses", responses + "false", "response.completed", true}}
	content := "Order NAME: what is to be checked?"
	if workloads {
		content = "What is to be checked?"
		long := strings.Repeat(`{"role":"user","content":"`+strings.Repeat("Which month sold the most?", 38)+`"},`+
			`{"role":"assistant","content":"`+strings.Repeat("June, as in the year before.", 36)+`"},`, 50)
		kinds = append(kinds, load{"chat", "chat", "/v1/chat/completions",
			`"model":"m","stream_options":{"include_usage":true},"messages":[ASKED]`, "[DONE]", true},
			load{"messages of 100 kB", "messages", "/v1/messages", messagesHead + `"messages":[` + long + "ASKED]", "", false})
	} else {
		kinds = append(kinds, load{"stored", "responses", "/v1/responses", responses + "true", "response.completed", true})
	}
	for _, l := range kinds {
		body, streams := strings.Replace(l.body, "ASKED", `{"role":"user","content":"`+content+`"}`, 1), l.stream
		plain := l
		plain.name, plain.stream, plain.endMarker = loadName(l.name, false), false, `"usage"`
		plain.body = `{"stream":false,` + strings.Replace(body, `"stream_options":{"include_usage":true},`, "", 1) + "}"
		variants = append(variants, plain)
		if streams {
			l.name, l.body = loadName(l.name, true), `{"stream":true,`+body+"}"
			variants = append(variants, l)
		}
	}
	return variants
}

// send sends n of them and gives how long each took.
func (l load) send(w between, n, connections int) []time.Duration {
	took := make([]time.Duration, n)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			for j := i; j < n; j += connections {
				began, name := time.Now(), ""
				if strings.Contains(l.body, "NAME") {
					name = fmt.Sprintf("%s-%d-%d", w.name, began.UnixNano(), j)
				}
				if text := w.post(l.path, name, strings.Replace(l.body, "NAME", name, 1)); !bytes.Contains(text,
					[]byte(l.endMarker)) {
					panic(fmt.Errorf("%s by %s: %.300s", l.name, w.name, text))
				}
				took[j] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return took
}

// post gives the answer to a request, in a conversation unless its name is empty.
func (w between) post(path, conversation, body string) (answer []byte) {
	r := must(http.NewRequest(http.MethodPost, "http://"+w.addr+path, strings.NewReader(body)))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
	if conversation != "" {
		r.Header.Set("X-Ag-Conversation-Id", conversation)
	}
	resp := must(http.DefaultTransport.RoundTrip(r))
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))
	if resp.StatusCode != http.StatusOK {
		panic(fmt.Errorf("%s: %s %.300s", w.name, resp.Status, text))
	}
	return text
}

// grow makes one conversation and prints what the last ten turns up to each length took.
func (w between) grow(lengths []int) {
	const last = 10
	var messages []string
	var cpuStart time.Duration
	bytesSent, name := 0, fmt.Sprintf("long-%d", time.Now().UnixNano())
	for turn := 1; turn <= slices.Max(lengths); turn++ {
		if slices.Contains(lengths, turn+last-1) || cpuStart == 0 {
			cpuStart, bytesSent = cmp.Or(cpuOf(w.pids...), 1), 0
		}
		messages = append(messages,
			fmt.Sprintf(`{"role":"user","content":"Question %d: which month sold the most, and why?"}`, turn))
		body := "{" + messagesHead + `"messages":[` + strings.Join(messages, ",") + "]}"
		var reply struct{ Content json.RawMessage }
		must(0, json.Unmarshal(w.post("/v1/messages", name, body), &reply))
		messages = append(messages, `{"role":"assistant","content":`+string(reply.Content)+`}`)
		if bytesSent += len(body); slices.Contains(lengths, turn) {
			fmt.Printf(" %d turns %.1f µs", turn, 1000*ms(cpuOf(w.pids...)-cpuStart)/float64(bytesSent)*1000)
		}
	}
}
