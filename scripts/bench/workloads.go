package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/scripts/lab"
)

// workload is a kind of requests, all of them the same.
type workload struct {
	name, dialect, path, body string
	ends                      string // is in a whole answer alone
}

// workloads are those that GoModel publishes its figures of, and a long one.
func workloads() (all []workload) {
	const claude = `"model":"claude-sonnet-4-5","max_tokens":8192,"thinking":{"type":"enabled","budget_tokens":2048},`
	long := strings.Repeat(`{"role":"user","content":"`+strings.Repeat("Which month sold the most?", 38)+`"},`+
		`{"role":"assistant","content":"`+strings.Repeat("June, as in the year before.", 36)+`"},`, 50)
	for _, w := range []workload{
		{"chat", "chat", "/v1/chat/completions", `"model":"m","stream_options":{"include_usage":true},"messages":[ASKED]`,
			"[DONE]"},
		{"messages", "messages", "/v1/messages", claude + `"messages":[ASKED]`, "message_stop"},
		{"Responses", "responses", "/v1/responses", `"model":"gpt-5.1","max_output_tokens":8192,"store":false,` +
			`"include":["reasoning.encrypted_content"],"reasoning":{"effort":"medium","summary":"auto"},"input":[ASKED]`,
			"response.completed"},
		{"messages of 100 kB", "messages", "/v1/messages", claude + `"messages":[` + long + "ASKED]", ""},
	} {
		name, body := w.name, strings.Replace(w.body, "ASKED", `{"role":"user","content":"What is to be checked?"}`, 1)
		whole := strings.Replace(body, `"stream_options":{"include_usage":true},`, "", 1)
		all = append(all, workload{name + ", JSON", w.dialect, w.path, `{"stream":false,` + whole + "}", `"usage"`})
		if w.ends != "" {
			w.name, w.body = name+", stream", `{"stream":true,`+body+"}"
			all = append(all, w)
		}
	}
	return all
}

// send sends n of them and gives how long each took, sorted.
func (l workload) send(w between, n, connections int) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			for j := i; j < n; j += connections {
				began := time.Now()
				r := lab.Must(http.NewRequest(http.MethodPost, "http://"+w.addr+l.path, strings.NewReader(l.body)))
				r.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
				resp := lab.Must(http.DefaultTransport.RoundTrip(r))
				text := lab.Must(io.ReadAll(resp.Body))
				_ = resp.Body.Close()
				took[j] = time.Since(began)
				if resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(l.ends)) {
					panic(fmt.Errorf("%s by %s: %s %.300s", l.name, w.name, resp.Status, text))
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// workloads measures all ways by turns.
func (c *gatewayCmd) workloads() error {
	c.Requests, c.Rounds, c.Connections = cmp.Or(c.Requests, 8000), cmp.Or(c.Rounds, 10), cmp.Or(c.Connections, 10)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = c.Connections
	l := lab.New(c.Mneme)
	defer l.Stop()
	v := lab.NewVendor(nil)
	defer v.Close()
	g, loads := ground{l, v.Listener.Addr().String()}, workloads()

	mark, small := l.Mark(), loads[slices.IndexFunc(loads, func(l workload) bool { return l.dialect == "messages" })]
	for _, w := range append(g.bare(), g.gateway(between{name: "mneme"}, messagesVendor)) {
		small.send(w, 2500, c.Connections)
		early := lab.Resident(w.pids...)
		small.send(w, 32_500, c.Connections)
		fmt.Printf("%-9s RSS %3.0f MB after 2,500 of %s, %3.0f MB after 35,000\n", w.name, early/1e6, small.name,
			lab.Resident(w.pids...)/1e6)
	}
	l.StopTo(mark)

	ways := map[string][]between{} // by the dialect; the gateways have one backend each
	passing := g.bare()
	for dialect, backend := range map[string]string{"messages": messagesVendor, "responses": responsesVendor,
		"chat": `{kind: openai, vendor: openai, base_url: "http://VENDOR/v1"}`} {
		w := g.gateway(between{name: "mneme-" + dialect}, backend)
		w.name = "mneme"
		ways[dialect] = append(slices.Clone(passing), w)
	}
	type figures struct {
		took           []time.Duration
		cpu, rate, rss []float64
	}
	all := map[string]*figures{}
	for round := range c.Rounds + 1 {
		for _, load := range loads {
			for _, w := range ways[load.dialect] {
				f := all[load.name+w.name]
				if f == nil || round == 1 { // the first one warms up
					f = new(figures)
					all[load.name+w.name] = f
				}
				n, before, began := max(1, c.Requests/c.Rounds), lab.CPU(w.pids...), time.Now()
				f.took = append(f.took, load.send(w, n, c.Connections)...)
				f.rate = append(f.rate, float64(n)/time.Since(began).Seconds())
				f.cpu = append(f.cpu, 1000*ms(lab.CPU(w.pids...)-before)/float64(n))
				f.rss = []float64{lab.Resident(w.pids...) / 1e6}
			}
		}
	}
	fmt.Printf("%d requests of each workload in %d rounds, %d connections; CPU ÷ net/http's in the same round: median, "+
		"quartiles\n%-24s %-9s %7s %7s %8s %7s  %-18s %4s\n", c.Requests, c.Rounds, c.Connections, "workload", "way",
		"p50 ms", "p99 ms", "per s", "CPU µs", "CPU ÷ net/http", "RSS MB")
	for _, load := range loads {
		floor := slices.Clone(all[load.name+"net/http"].cpu)
		for _, w := range ways[load.dialect] {
			f, ratio := all[load.name+w.name], slices.Clone(floor)
			for i, cpu := range f.cpu {
				ratio[i] = cpu / floor[i]
			}
			fmt.Printf("%-24s %-9s %7.2f %7.2f %8.0f %7.0f  %5.2f (%.2f–%.2f)  %4.0f\n", load.name, w.name,
				ms(quantile(f.took, .5)), ms(quantile(f.took, .99)), quantile(f.rate, .5), quantile(f.cpu, .5),
				quantile(ratio, .5), quantile(ratio, .25), quantile(ratio, .75), f.rss[0])
		}
	}
	return nil
}
