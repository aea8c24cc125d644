package main

import (
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

	"mneme/scripts/lab"
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
			if c.Workloads {
				return c.workloads()
			}
			return c.run()
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

const messagesVendor = `{kind: anthropic, vendor: anthropic, base_url: "http://VENDOR", thinking: {budget_tokens: 2048}}`

const responsesVendor = `{kind: responses, vendor: openai, base_url: "http://VENDOR/v1"}`

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

// between is one way to the vendor.
type between struct {
	name, addr string
	pids       []int
	responses  bool // by requests of Responses, to a vendor of them
	stored     bool // of these, requests with answers that are stored
}

// ground is where ways to one vendor are started.
type ground struct {
	*lab.Lab
	vendor string
}

func (g ground) at(text, addr string) string {
	// by itself it would choose one that cannot enter the folder
	user := map[bool]string{true: "user root;"}[os.Geteuid() == 0]
	return strings.NewReplacer("DIR", g.Dir, "ADDR", addr, "VENDOR", g.vendor, "USER", user).Replace(text)
}

// bare are the ways that only pass requests on: nginx, if it is there, and the smallest proxy of net/http.
func (g ground) bare() (ways []between) {
	if program, err := exec.LookPath("nginx"); err == nil {
		addr := lab.FreeAddr()
		pid := g.Start(func() error { _, err := http.Get("http://" + addr); return err }, program, "-p", g.Dir, "-c",
			g.File("nginx.conf", g.at(nginxConfig, addr)))
		ways = append(ways, between{name: "nginx", addr: addr, pids: lab.Children(pid)})
	} else {
		fmt.Println("nginx is left out: there is no program of this name on the PATH")
	}
	addr, pid := g.Hop(g.vendor, 0)
	return append(ways, between{name: "net/http", addr: addr, pids: []int{pid}})
}

// gateway starts mneme proxy with a backend, under the name that w has.
func (g ground) gateway(w between, backend string) between {
	addr, pid := g.Gateway(g.at(backend, ""))
	w.addr, w.pids = addr, []int{pid}
	return w
}

func (c *gatewayCmd) run() error {
	c.Requests, c.Rounds, c.Connections = cmp.Or(c.Requests, 5000), cmp.Or(c.Rounds, 5), cmp.Or(c.Connections, 64)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = c.Connections
	l := lab.New(c.Mneme)
	defer l.Stop()
	v := lab.NewVendor(nil)
	defer v.Close()
	g := ground{l, v.Listener.Addr().String()}
	ways := append([]between{{name: "direct", addr: g.vendor}}, g.bare()...)
	ways = append(ways, g.gateway(between{name: "mneme"}, messagesVendor),
		g.gateway(between{name: "responses", responses: true}, responsesVendor),
		g.gateway(between{name: "stored", responses: true, stored: true}, responsesVendor))

	const few = 2500
	memory := map[string]float64{}
	for _, w := range ways {
		w.many(few, c.Connections, false)
		memory[w.name] = lab.Resident(w.pids...)
	}
	for _, stream := range []bool{false, true} {
		n, connections := c.Requests, c.Connections
		if stream {
			n, connections = n/4, connections/4
		}
		fmt.Printf("small requests, stream %v, %d connections, medians of %d rounds of %d\n", stream, connections, c.Rounds,
			n)
		used, rate := map[string][]float64{}, map[string][]float64{}
		for range c.Rounds {
			for _, w := range ways {
				before, began := lab.CPU(w.pids...), time.Now()
				w.many(n, connections, stream)
				used[w.name] = append(used[w.name], 1000*ms(lab.CPU(w.pids...)-before)/float64(n))
				rate[w.name] = append(rate[w.name], float64(n)/time.Since(began).Seconds())
			}
		}
		floor, messages := quantile(used["net/http"], .5), quantile(used["mneme"], .5)
		for _, w := range ways {
			cpu := quantile(used[w.name], .5)
			fmt.Printf("  %-9s CPU %4.0f µs (%.0f–%.0f), %.2f × net/http, %.2f × mneme, %.0f/s\n", w.name, cpu,
				used[w.name][0], slices.Max(used[w.name]), cpu/floor, cpu/messages, quantile(rate[w.name], .5))
		}
	}
	for _, w := range ways[1:] {
		if w.responses {
			continue
		}
		fmt.Printf("%-9s conversation, CPU per kB:", w.name)
		w.grow(c.Turns)
		fmt.Printf("; memory %.0f MB after the first %d requests, %.0f MB now\n", memory[w.name]/1e6, few,
			lab.Resident(w.pids...)/1e6)
	}
	return c.growth()
}

// growth has ./proxy's benchmark of that measure how the cost of a turn grows with a conversation.
func (c *gatewayCmd) growth() error {
	if c.Growth == 0 {
		return nil
	}
	out, err := exec.Command("go", "test", "-run", "^$", "-bench", "Growth", "-benchtime", fmt.Sprintf("%dx", c.Growth),
		"./proxy").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, figures, found := strings.Cut(line, "\t")
		if _, gateways, ok := strings.Cut(name, "/gateways="); ok && found {
			of := map[string]string{} // by their units
			for f := strings.Fields(figures)[1:]; len(f) > 1; f = f[2:] {
				of[f[1]] = f[0]
			}
			fmt.Printf("mneme     conversation over Redis, gateways that take turns: %s; CPU of the 1,000th turn %s µs, "+
				"of the 5th %s µs: ÷ %s\n", gateways[:1], of["µs/turn1000"], of["µs/turn5"], of["turn1000÷turn5"])
		}
	}
	return nil
}

// many posts n small questions, each the first of its conversation.
func (w between) many(n, connections int, stream bool) {
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			for j := i; j < n; j += connections {
				name := fmt.Sprintf("%s-%d-%d", w.name, time.Now().UnixNano(), j)
				w.post(name, stream, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"Order %s: what is to be checked?"}`,
					name)))
			}
		})
	}
	all.Wait()
}

// post sends a conversation and gives what the answer's content is, and the bytes sent.
func (w between) post(name string, stream bool, messages ...json.RawMessage) (content json.RawMessage, sent int) {
	body := lab.Must(json.Marshal(map[string]any{"model": "claude-sonnet-4-5", "max_tokens": 8192, "stream": stream,
		"thinking": map[string]any{"type": "enabled", "budget_tokens": 2048}, "messages": messages}))
	path, ends := "/v1/messages", "message_stop"
	if w.responses {
		path, ends = "/v1/responses", "response.completed"
		body = lab.Must(json.Marshal(map[string]any{"model": "gpt-5.1", "max_output_tokens": 8192, "stream": stream,
			"store": w.stored, "include": []string{"reasoning.encrypted_content"},
			"reasoning": map[string]string{"effort": "medium", "summary": "auto"}, "input": messages}))
	}
	r := lab.Must(http.NewRequest(http.MethodPost, "http://"+w.addr+path, strings.NewReader(string(body))))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"},
		"X-Ag-Conversation-Id": {name}}
	resp := lab.Must(http.DefaultTransport.RoundTrip(r))
	defer resp.Body.Close()
	text := lab.Must(io.ReadAll(resp.Body))
	var said struct{ Content json.RawMessage }
	if resp.StatusCode != http.StatusOK || !stream && json.Unmarshal(text, &said) != nil || stream &&
		!strings.Contains(string(text), ends) {
		panic(fmt.Errorf("%s: %s %.300s", w.name, resp.Status, text))
	}
	return said.Content, len(body)
}

// grow makes one conversation and prints what the last ten turns up to each length took.
func (w between) grow(lengths []int) {
	const last = 10
	var messages []json.RawMessage
	var before time.Duration
	sent, name := 0, fmt.Sprintf("long-%d", time.Now().UnixNano())
	for turn := 1; turn <= slices.Max(lengths); turn++ {
		if slices.Contains(lengths, turn+last-1) || before == 0 {
			before, sent = cmp.Or(lab.CPU(w.pids...), 1), 0
		}
		messages = append(messages,
			json.RawMessage(fmt.Sprintf(`{"role":"user","content":"Question %d: which month sold the most, and why?"}`, turn)))
		content, n := w.post(name, false, messages...)
		messages = append(messages, json.RawMessage(`{"role":"assistant","content":`+string(content)+`}`))
		if sent += n; slices.Contains(lengths, turn) {
			fmt.Printf(" %d turns %.1f µs", turn, 1000*ms(lab.CPU(w.pids...)-before)/float64(sent)*1000)
		}
	}
}
