package lab

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
)

// Services are the three of mneme over a Redis of their own.
type Services struct {
	URL   string // of a post; CHAT stands for the chat
	Pids  []int
	Names []string // of the processes
	Addrs []string // theirs
	Redis *redis.Client
}

const config = `data_dir: DIR/data
run_timeout: 30m
redis: {REDIS}
webmemory: {listen: WEB, apiserver: "http://API", max_chats: 100000, SETTINGS}
apiserver: {listen: API, proxy: "http://PROXY", max_runs: RUNS}
proxy:
  listen: PROXY
  backends:
    vendor: {kind: openai, base_url: "http://VENDOR/v1", model_map: {master: front, "*": back}}
`

// Services starts them over a Redis of their own, apart or as mneme up; settings are further ones
// of webmemory.
func (l *Lab) Services(v *Vendor, apart bool, settings ...string) Services {
	_, client := l.Redis()
	return l.Replica(Services{Redis: client}, v, apart, settings...)
}

// Replica starts further ones over the Redis of others, or over stores of their own if these have none.
func (l *Lab) Replica(of Services, v *Vendor, apart bool, settings ...string) Services {
	web, api, proxy := FreeAddr(), FreeAddr(), FreeAddr()
	// Folders of their own: one process must not find what another left.
	dir := strconv.Itoa(l.Mark())
	store := `embedded_listen: ""`
	if of.Redis != nil {
		store = fmt.Sprintf(`url: "redis://%s"`, of.Redis.Options().Addr)
	}
	file := l.File("mneme-"+dir+".yaml", strings.NewReplacer("DIR", filepath.Join(l.Dir, dir),
		"REDIS", store, "WEB", web, "API", api, "PROXY", proxy,
		"VENDOR", v.Listener.Addr().String(), "RUNS", strconv.Itoa(cmp.Or(l.Runs, 100_000)),
		"SETTINGS", strings.Join(settings, ", ")).Replace(config)+l.Settings)
	s := Services{URL: "http://" + web + "/v1/chats/CHAT/messages", Redis: of.Redis, Names: []string{"up"},
		Addrs: []string{web}}
	if apart {
		s.Names, s.Addrs = []string{"proxy", "apiserver", "webmemory"}, []string{proxy, api, web}
	}
	for i, name := range s.Names {
		s.Pids = append(s.Pids, l.Start(Ready(s.Addrs[i]), l.Mneme, name, "--config", file))
	}
	return s
}

// Info is Redis's CPU in ms and its bytes in and out.
func Info(client *redis.Client) (figures [3]float64) {
	info := Must(client.InfoMap(context.Background(), "cpu", "stats").Result())
	value := func(section, name string) float64 { return Must(strconv.ParseFloat(info[section][name], 64)) }
	return [3]float64{1000 * (value("CPU", "used_cpu_sys") + value("CPU", "used_cpu_user")),
		value("Stats", "total_net_input_bytes"), value("Stats", "total_net_output_bytes")}
}

// Monitor counts the commands that clients send during do, by their names, and those
// that scripts call.
func (s *Services) Monitor(do func()) (sent map[string]int, scripted int) {
	sent = map[string]int{}
	for _, line := range s.Lines(do) {
		// +1763800000.123456 [0 127.0.0.1:40000] "hset" "key"; of a script [0 lua].
		source, rest, _ := strings.Cut(line, "] \"")
		name, _, _ := strings.Cut(rest, "\"")
		if strings.HasSuffix(source, " lua") {
			scripted++
		} else {
			sent[strings.ToLower(name)]++
		}
	}
	return sent, scripted
}

// Lines are what MONITOR shows of the commands during do.
func (s *Services) Lines(do func()) (all []string) {
	conn := Must(net.Dial("tcp", s.Redis.Options().Addr))
	defer conn.Close()
	Must(fmt.Fprint(conn, "MONITOR\r\n"))
	lines := bufio.NewReader(conn)
	Must(lines.ReadString('\n'))
	done := make(chan error)
	go func() { // ends with the mark, or with conn
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, "end of bench") {
				done <- err
				return
			}
			all = append(all, line)
		}
	}()
	do()
	Must(s.Redis.Echo(context.Background(), "end of bench").Result())
	Must(0, <-done)
	return all
}
