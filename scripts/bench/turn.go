package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/scripts/lab"
)

type turnCmd struct {
	Turns  int    `default:"200" help:"Turns of each way in one round (${default})."`
	Rounds int    `default:"5" help:"How often both ways are measured, one after the other (${default})."`
	Mneme  string `placeholder:"FILE" help:"A built mneme; without it one is built from ./cmd/mneme."`
	Live   int    `placeholder:"N" help:"Instead: N answers open at once, in mneme up and in the three services."`
	Files  uint64 `default:"20000" help:"Limit of descriptors for every process of --live (${default})."`
}

func (turnCmd) Help() string {
	return `A turn is one message to the master: three model calls, one delegation to a subagent, 20 deltas, from a vendor that answers at once. webmemory, apiserver and proxy are three processes over sockets and a redis-server of their own. The chain is three processes of net/http that pass on the same three calls and their streams and remember nothing. Both are measured in the same run, round after round, one turn at a time, chats of ten turns each.

CPU is the kernel's count of the processes' threads. Redis is CPU time of redis-server (INFO cpu) and bytes of INFO stats. Commands are those that clients sent, each of a pipeline by itself, counted by MONITOR in turns of their own; those that scripts call are left out.

With --live N answers are held open in the middle of their last call: memory (RSS), goroutines and descriptors of each service, from its /metrics, less those before; then all are let go and must complete.

Examples:
  go run ./scripts/bench turn
  go build -o /tmp/mneme ./cmd/mneme && go run ./scripts/bench turn --mneme /tmp/mneme --turns 500
  go run ./scripts/bench turn --live 2000`
}

// way is one of the two that are compared.
type way struct {
	name    string
	url     string // CHAT stands for the chat
	pids    []int
	cpu     []float64 // ms per turn, by round
	latency []time.Duration
	chats   int
}

func (c *turnCmd) Run() error {
	l := lab.New(c.Mneme)
	defer l.Stop()
	if c.Live > 0 {
		return c.live(l)
	}
	v := newVendor(nil)
	defer v.Close()
	s := start(l, v, true)
	ways := []*way{{name: "mneme", url: s.url, pids: s.pids}, chain(l, v)}
	for _, w := range ways {
		w.turns(50)
		w.latency = nil
	}
	var load [3]float64 // ms of CPU, bytes in, bytes out of Redis
	for range c.Rounds {
		for _, w := range ways {
			before, used := info(s.redis), lab.CPU(w.pids...)
			w.turns(c.Turns)
			w.cpu = append(w.cpu, ms(lab.CPU(w.pids...)-used)/float64(c.Turns))
			for i, after := range info(s.redis) {
				if w == ways[0] {
					load[i] += (after - before[i]) / float64(c.Turns*c.Rounds)
				}
			}
		}
	}
	fmt.Printf("a turn: three model calls, one delegation, 20 deltas; %d rounds of %d turns, medians\n", c.Rounds, c.Turns)
	var cpus, p50 [2]float64
	for i, w := range ways {
		cpus[i], p50[i] = quantile(w.cpu, .5), ms(quantile(w.latency, .5))
		fmt.Printf("  %-6s CPU %.2f ms (%.2f–%.2f), p50 %.2f ms, p95 %.2f ms\n",
			w.name, cpus[i], quantile(w.cpu, 0), quantile(w.cpu, 1), p50[i], ms(quantile(w.latency, .95)))
	}
	fmt.Printf("  mneme ÷ chain: CPU %.1f ×, p50 %.1f ×\n", cpus[0]/cpus[1], p50[0]/p50[1])
	fmt.Printf("  Redis  CPU %.2f ms, %.0f bytes in, %.0f bytes out\n", load[0], load[1], load[2])
	const watched = 50
	sent, scripted := s.monitor(func() { ways[0].turns(watched) })
	all := 0
	for _, n := range sent {
		all += n
	}
	fmt.Printf("  commands sent: %.1f; scripts called %.1f more\n", float64(all)/watched, float64(scripted)/watched)
	for _, name := range slices.SortedFunc(maps.Keys(sent), func(a, b string) int { return sent[b] - sent[a] }) {
		fmt.Printf("    %-10s %.1f\n", name, float64(sent[name])/watched)
	}
	return nil
}

// turns makes so many, ten in a chat.
func (w *way) turns(n int) {
	for i := range n {
		if i%10 == 0 {
			w.chats++
		}
		began := time.Now()
		lab.Must(0, say(w.url, fmt.Sprintf("%s-%d-%d", w.name, os.Getpid(), w.chats)))
		w.latency = append(w.latency, time.Since(began))
	}
}

// say sends a message and reads the answer's stream to its end.
func say(url, chat string) error {
	resp, err := http.Post(strings.Replace(url, "CHAT", chat, 1), "application/json",
		strings.NewReader(`{"message": "Which month sold the most, and why?", "stream": true}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), `"outcome":"completed"`) && strings.Count(string(body), "[DONE]") != 3 {
		err = fmt.Errorf("the turn did not complete: %.300s", body)
	}
	return err
}

// services are the three of mneme over a Redis of their own.
type services struct {
	url   string
	pids  []int
	names []string // of the processes
	addrs []string // theirs
	redis *redis.Client
}

const config = `data_dir: DIR/data
run_timeout: 30m
redis: {url: "redis://REDIS"}
webmemory: {listen: WEB, apiserver: "http://API", max_chats: 100000}
apiserver: {listen: API, proxy: "http://PROXY", max_runs: 100000}
proxy:
  listen: PROXY
  backends:
    vendor: {kind: openai, base_url: "http://VENDOR/v1", model_map: {master: front, "*": back}}
`

// start starts them, apart or as mneme up.
func start(l *lab.Lab, v *vendor, apart bool) services {
	redis, client := l.Redis()
	web, api, proxy := lab.FreeAddr(), lab.FreeAddr(), lab.FreeAddr()
	file := l.File("mneme.yaml", strings.NewReplacer("DIR", l.Dir, "REDIS", redis, "WEB", web, "API", api, "PROXY", proxy,
		"VENDOR", v.Listener.Addr().String()).Replace(config))
	s := services{url: "http://" + web + "/v1/chats/CHAT/messages", redis: client, names: []string{"up"}, addrs: []string{web}}
	if apart {
		s.names, s.addrs = []string{"proxy", "apiserver", "webmemory"}, []string{proxy, api, web}
	}
	for i, name := range s.names {
		s.pids = append(s.pids, l.Start(lab.Ready(s.addrs[i]), l.Mneme, name, "--config", file))
	}
	return s
}

// info is Redis's CPU in ms and its bytes in and out.
func info(client *redis.Client) (figures [3]float64) {
	info := lab.Must(client.InfoMap(bg, "cpu", "stats").Result())
	value := func(section, name string) float64 { return lab.Must(strconv.ParseFloat(info[section][name], 64)) }
	return [3]float64{1000 * (value("CPU", "used_cpu_sys") + value("CPU", "used_cpu_user")),
		value("Stats", "total_net_input_bytes"), value("Stats", "total_net_output_bytes")}
}

// monitor counts the commands that clients send during do, by their names, and those
// that scripts call.
func (s *services) monitor(do func()) (sent map[string]int, scripted int) {
	conn := lab.Must(net.Dial("tcp", s.redis.Options().Addr))
	defer conn.Close()
	lab.Must(fmt.Fprint(conn, "MONITOR\r\n"))
	lines := bufio.NewReader(conn)
	lab.Must(lines.ReadString('\n'))
	sent = map[string]int{}
	done := make(chan error)
	go func() { // ends with the mark, or with conn
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, "end of bench") {
				done <- err
				return
			}
			// +1763800000.123456 [0 127.0.0.1:40000] "hset" "key"; of a script [0 lua].
			source, rest, _ := strings.Cut(line, "] \"")
			name, _, _ := strings.Cut(rest, "\"")
			if strings.HasSuffix(source, " lua") {
				scripted++
			} else {
				sent[strings.ToLower(name)]++
			}
		}
	}()
	do()
	lab.Must(s.redis.Echo(bg, "end of bench").Result())
	lab.Must(0, <-done)
	return sent, scripted
}

// chain starts the bare one.
func chain(l *lab.Lab, v *vendor) *way {
	w := &way{name: "chain"}
	to := v.Listener.Addr().String()
	for _, calls := range []int{0, 3, 0} { // the gateway's place, the apiserver's, webmemory's
		var pid int
		to, pid = hop(l, to, calls)
		w.pids = append(w.pids, pid)
	}
	w.url = "http://" + to + "/CHAT"
	return w
}

func hop(l *lab.Lab, to string, calls int) (addr string, pid int) {
	addr = lab.FreeAddr()
	return addr, l.Start(lab.Ready(addr), lab.Must(os.Executable()), "hop", "--listen", addr, "--to", to, "--calls", strconv.Itoa(calls))
}

// hopCmd passes requests on and streams what comes back: the least that net/http can do.
type hopCmd struct {
	Listen, To string
	Calls      int // it makes so many of one; 0: it passes the one on
}

func (c hopCmd) Run() error {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 256
	call := strings.Repeat("x", 4<<10) // about as long as a model call of a short chat
	pass := func(w http.ResponseWriter, r *http.Request, header http.Header, body string) {
		r2 := lab.Must(http.NewRequestWithContext(r.Context(), r.Method, "http://"+c.To+r.URL.Path, strings.NewReader(body)))
		r2.Header = header
		resp := lab.Must(http.DefaultTransport.RoundTrip(r2))
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		buffer := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(buffer)
			lab.Must(w.Write(buffer[:n]))
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}
	return http.ListenAndServe(c.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := string(lab.Must(io.ReadAll(r.Body)))
		switch {
		case r.Method == http.MethodGet:
			lab.Must(io.WriteString(w, "ready"))
		case c.Calls == 0:
			pass(w, r, r.Header, sent)
		}
		for i := range c.Calls {
			pass(w, r, http.Header{answerHeader: {strconv.Itoa(i)}}, call)
		}
	}))
}
