package stack

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mneme/internal/freeport"
)

// Go returns a go command that runs in the folder of mneme's go.mod, also for a caller in a module that replaces mneme.
func Go(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "mneme").Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		cmd.Err = fmt.Errorf("finding the sources of mneme; run this in a checkout: %w", err)
	}
	cmd.Dir = strings.TrimSpace(string(root))
	return cmd
}

// Build builds mneme with further flags of go build into dir, which is an absolute path.
func Build(dir string, flags ...string) (program string, err error) {
	program = filepath.Join(dir, "mneme")
	args := append(append([]string{"build"}, flags...), "-o", program, "./cmd/mneme")
	if out, err := Go(args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mneme: %w: %s", err, out)
	}
	return program, nil
}

// Addrs is where services listen, or will.
type Addrs struct{ Webmemory, Apiserver, Proxy string }

// Claim gives addresses of loopback that no other process has while this one runs.
func Claim() (a Addrs, err error) {
	for _, addr := range []*string{&a.Webmemory, &a.Apiserver, &a.Proxy} {
		if *addr, _, err = freeport.Claim(); err != nil {
			return a, err
		}
	}
	return a, nil
}

// Environ are the settings by which services listen there, and reach each other.
func (a Addrs) Environ() (environ []string) {
	for _, x := range [][3]string{{a.Webmemory, "WEBMEMORY", ""}, {a.Apiserver, "APISERVER", "WEBMEMORY_APISERVER"},
		{a.Proxy, "PROXY", "APISERVER_PROXY"}} {
		if addr, name, reached := x[0], x[1], x[2]; addr != "" {
			environ = append(environ, "MNEME_"+name+"_LISTEN="+addr)
			if reached != "" {
				environ = append(environ, "MNEME_"+reached+"=http://"+addr)
			}
		}
	}
	return environ
}

// Addr is the address of a service; that of all in one process is webmemory's.
func (a Addrs) Addr(service string) string {
	switch service {
	case "apiserver":
		return a.Apiserver
	case "proxy":
		return a.Proxy
	}
	return a.Webmemory
}

// Mneme is a service of a program, "proxy" or "up" say, which runs and logs in dir. A setting that stands later in
// environ counts.
func Mneme(program, service, dir string, addrs Addrs, environ ...string) *Process {
	return &Process{Name: service, Args: []string{program, service}, Env: append(addrs.Environ(), environ...), Dir: dir,
		Log: filepath.Join(dir, service+".log"), Ready: Ready(addrs.Addr(service))}
}

// Ready asks a service whether it is ready.
func Ready(addr string) func() error {
	return func() error { _, err := Get("http://" + addr + "/readyz"); return err }
}

// probe asks services about themselves; one that is paused does not answer.
var probe = http.Client{Timeout: 5 * time.Second}

// Get reads what is at a URL.
func Get(url string) (string, error) {
	resp, err := probe.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %.300s", url, resp.Status, body)
	}
	return string(body), err
}

// Metrics are the values of a service's metrics that have no labels.
func Metrics(addr string) (map[string]float64, error) {
	text, err := Get("http://" + addr + "/metrics")
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(number, 64); err == nil {
			values[name] = value
		}
	}
	return values, err
}

// RedisServer is the program that Redis and Sentinel start: redis-server, or what REDIS_SERVER in the environment
// names, such as valkey-server.
func RedisServer() string { return cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server") }

// Redis is a redis-server with its files in dir, which keeps nothing unless args say otherwise.
func Redis(dir, addr string, args ...string) *Process {
	_, port, _ := net.SplitHostPort(addr)
	return redisServer(dir, addr, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", "no"}, args...)...)
}

// Sentinel is one that watches a master, and takes it for lost once so many agree that it was silent for so long. It
// keeps what it learns in a file, without which it does not start.
func Sentinel(dir, addr, name, master string, agree int, silent time.Duration) (*Process, error) {
	_, port, _ := net.SplitHostPort(addr)
	host, masterPort, _ := net.SplitHostPort(master)
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s %s %s %d\n"+
		"sentinel down-after-milliseconds %[3]s %[7]d\nsentinel failover-timeout %[3]s 3000\n",
		port, dir, name, host, masterPort, agree, silent.Milliseconds())
	return redisServer(dir, addr, file, "--sentinel"), os.WriteFile(file, []byte(text), 0o600)
}

// MoveRedis makes a process that Redis returned the server of another folder and address. If it runs, its port and
// folder must have been set by CONFIG SET.
func MoveRedis(p *Process, dir, addr string) {
	p.Args, p.Dir, p.Log, p.Ready = Redis(dir, addr).Args, dir, filepath.Join(dir, "log"), redisReady(p, addr)
}

func redisServer(dir, addr string, args ...string) *Process {
	p := &Process{Name: RedisServer(), Args: append([]string{RedisServer()}, args...), Dir: dir,
		Log: filepath.Join(dir, "log")}
	p.Ready = redisReady(p, addr)
	return p
}

// redisReady reports whether p answers at addr.
func redisReady(p *Process, addr string) func() error {
	return func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n")
		reply, _ := io.ReadAll(conn) // a partial reply is enough
		// It answers no PING while it reads its files. Another process at its address is not this one.
		if text := string(reply); !strings.HasPrefix(text, "+PONG") ||
			!strings.Contains(text, fmt.Sprintf("process_id:%d\r", p.Pid())) {
			return fmt.Errorf("%s answers %.100q", addr, text)
		}
		return nil
	}
}
