package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/internal/stack"
)

// services are the three of mneme over a Redis of their own.
type services struct {
	URL   string // of a post; CHAT stands for the chat
	Pids  []int
	Names []string // of the processes
	Addrs []string // theirs
	Proxy string   // address of the gateway
	Redis *redis.Client
}

const config = `run_timeout: 30m
redis: {embedded_listen: "", url: "REDIS"}
webmemory: {max_chats: 100000, SETTINGS}
apiserver: {max_runs: RUNS}
proxy: {backends: {vendor: BACKEND}}
`

const frontAndBack = `{kind: openai, base_url: "http://VENDOR/v1", model_map: {master: front, "*": back}}`

// Services starts them over a Redis of their own, apart or as mneme up; settings are further ones
// of webmemory.
func (l *lab) Services(v *vendor, separate bool, settings ...string) services {
	return l.Replica(services{Redis: l.Redis()}, v, separate, settings...)
}

// Replica starts further ones over the Redis of others, or over stores of their own if these have none.
func (l *lab) Replica(base services, v *vendor, separate bool, settings ...string) services {
	addrs := must(stack.Claim())
	store, dir := "", strconv.Itoa(l.Mark())
	if base.Redis != nil {
		store = "redis://" + base.Redis.Options().Addr
	}
	text := strings.Replace(config, "BACKEND", cmp.Or(l.Backend, frontAndBack), 1)
	file := l.File("mneme-"+dir+".yaml", strings.NewReplacer("REDIS", store, "VENDOR", v.Listener.Addr().String(),
		"RUNS", strconv.Itoa(cmp.Or(l.Runs, 100_000)), "SETTINGS", strings.Join(settings, ", ")).Replace(text)+l.Settings)
	s := services{URL: "http://" + addrs.Webmemory + "/v1/chats/CHAT/messages", Redis: base.Redis, Names: []string{"up"},
		Proxy: addrs.Proxy}
	if separate {
		s.Names = []string{"proxy", "apiserver", "webmemory"}
	}
	for _, name := range s.Names {
		s.Addrs = append(s.Addrs, addrs.Addr(name))
		// Folders of their own: one process must not find what another left.
		s.Pids = append(s.Pids, l.run(stack.Mneme(l.Mneme, name, l.Dir, addrs, "MNEME_CONFIG="+file,
			"MNEME_DATA_DIR="+filepath.Join(l.Dir, dir))))
	}
	return s
}

// Gateway starts a gateway that has one backend, and no Redis.
func (l *lab) Gateway(backend string) (addr string, pid int) {
	addrs, dir := must(stack.Claim()), strconv.Itoa(l.Mark())
	file := l.File("gateway-"+dir+".yaml", "redis: {embedded_listen: \"\"}\nproxy: {backends: {vendor: "+backend+"}}\n")
	return addrs.Proxy, l.run(stack.Mneme(l.Mneme, "proxy", l.Dir, addrs, "MNEME_CONFIG="+file,
		"MNEME_DATA_DIR="+filepath.Join(l.Dir, dir)))
}

// infoOf is Redis's CPU in ms and its bytes in and out.
func infoOf(client *redis.Client) (figures [3]float64) {
	info := must(client.InfoMap(context.Background(), "cpu", "stats").Result())
	value := func(section, name string) float64 { return must(strconv.ParseFloat(info[section][name], 64)) }
	return [3]float64{1000 * (value("CPU", "used_cpu_sys") + value("CPU", "used_cpu_user")),
		value("Stats", "total_net_input_bytes"), value("Stats", "total_net_output_bytes")}
}

// Monitor counts the commands that clients send during do, by their names, and those
// that scripts call.
func (s *services) Monitor(do func()) (counts map[string]int, scripted int) {
	counts = map[string]int{}
	for _, line := range s.Lines(do) {
		// +1763800000.123456 [0 127.0.0.1:40000] "hset" "key"; of a script [0 lua].
		source, rest, _ := strings.Cut(line, "] \"")
		name, _, _ := strings.Cut(rest, "\"")
		if strings.HasSuffix(source, " lua") {
			scripted++
		} else {
			counts[strings.ToLower(name)]++
		}
	}
	return counts, scripted
}

// Lines are what MONITOR shows of the commands during do.
func (s *services) Lines(do func()) (commands []string) {
	conn := must(net.Dial("tcp", s.Redis.Options().Addr))
	defer conn.Close()
	must(fmt.Fprint(conn, "MONITOR\r\n"))
	lines := bufio.NewReader(conn)
	must(lines.ReadString('\n'))
	done := make(chan error)
	go func() { // ends with the mark, or with conn
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, "end of bench") {
				done <- err
				return
			}
			commands = append(commands, line)
		}
	}()
	do()
	must(s.Redis.Echo(context.Background(), "end of bench").Result())
	must(0, <-done)
	return commands
}
