package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Ways to the vendor.
const (
	wayDirect = "direct"
	wayNginx  = "nginx"
	// wayNetHTTP is Relay: what any gateway costs that is made of net/http.
	wayNetHTTP = "net/http"
	wayMneme   = "mneme"
	// wayForgets is mneme with its state machine off: without conversations.
	wayForgets = "stateless"
)

// nginxMissing stands where nginx would have been measured.
const nginxMissing = "nginx not installed: apt-get install nginx-light"

// stopTime is how long a process may take to end when it is asked to.
const stopTime = 10 * time.Second

// vendorKey is the environment variable that holds the key for the vendor.
const vendorKey = "BENCH_VENDOR_KEY"

// gateway is a way to the vendor while it is open.
type gateway struct {
	addr string // host:port
	pid  int    // of the process in between; 0 on the direct way
	stop func()
}

// processes are those in between.
func (g *gateway) processes() ([]int, error) {
	if g.pid == 0 {
		return nil, nil
	}
	return family(g.pid)
}

// child is a process of the benchmark. It ends with its context or by stop, which
// must be called in any case.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

func startChild(cmd *exec.Cmd) (*child, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	askedWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(cmd.Path), err)
	}
	c := &child{cmd, make(chan struct{})}
	go func() { // ends with the process
		_ = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(stopTime):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// startVendor starts the vendor and tells its address.
func startVendor(ctx context.Context, command func(context.Context) *exec.Cmd) (addr string, stop func(), err error) {
	cmd := command(ctx)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe() // held open: its end is the process's
	if err != nil {
		return "", nil, err
	}
	// Not StdoutPipe, which the end of the process closes under its reader.
	out, w, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer out.Close()
	cmd.Stdout = w
	c, err := startChild(cmd)
	_ = w.Close()
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = in.Close(); c.stop() }
	if err := json.NewDecoder(out).Decode(&addr); err != nil {
		stop()
		return "", nil, fmt.Errorf("the vendor did not start: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return addr, stop, nil
}

// launcher starts gateways in front of one vendor.
type launcher struct {
	dir    string // for all that they write
	vendor string // host:port
}

// nginx starts an nginx with next to no configuration.
func (l launcher) nginx(ctx context.Context, program string) (*gateway, error) {
	return l.launch(ctx, wayNginx, func(dir, addr string) (*exec.Cmd, error) {
		file := filepath.Join(dir, "nginx.conf")
		text := strings.NewReplacer("ADDR", addr, "VENDOR", l.vendor).Replace(nginxConfig)
		if os.Geteuid() == 0 {
			text = "user root;\n" + text // by itself it would choose a user who cannot enter dir
		}
		return exec.CommandContext(ctx, program, "-p", dir, "-c", file), os.WriteFile(file, []byte(text), 0o600)
	})
}

// nginxConfig is what a proxy of event streams needs, and files of its own. By
// itself nginx would close a connection after 1,000 requests.
const nginxConfig = `daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 100000000;
  upstream vendor { server VENDOR; keepalive 256; keepalive_requests 100000000; }
  server {
    listen ADDR;
    location / {
      proxy_pass http://vendor;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      client_max_body_size 64m;
    }
  }
}
`

// relay starts the smallest proxy of net/http; command makes its process from the
// address to listen on and the vendor's.
func (l launcher) relay(ctx context.Context, command func(ctx context.Context, listen, vendor string) *exec.Cmd) (*gateway, error) {
	return l.launch(ctx, wayNetHTTP, func(_, addr string) (*exec.Cmd, error) { return command(ctx, addr, l.vendor), nil })
}

// mneme starts this program's gateway; command makes its process from the name
// of a configuration file.
func (l launcher) mneme(ctx context.Context, way string, command func(ctx context.Context, config string) *exec.Cmd) (*gateway, error) {
	return l.launch(ctx, way, func(dir, addr string) (*exec.Cmd, error) {
		file := filepath.Join(dir, "mneme.yaml")
		text := strings.NewReplacer("ADDR", addr, "VENDOR", l.vendor, "DIR", dir, "KEY", vendorKey, "CONVERSATIONS", strconv.FormatBool(way == wayMneme)).Replace(mnemeConfig)
		cmd := command(ctx, file)
		cmd.Env = append(withoutOurs(cmd.Environ()), vendorKey+"=sk-of-the-gateway")
		return cmd, os.WriteFile(file, []byte(text), 0o600)
	})
}

// withoutOurs is an environment without what is set for the services of this machine:
// it must not change what is measured.
func withoutOurs(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		return strings.HasPrefix(variable, "MNEME_") || strings.HasPrefix(variable, "GATEWAY_") || strings.HasPrefix(variable, "STATE_MACHINE_")
	})
}

// mnemeConfig leaves everything at its default that the benchmark does not need.
const mnemeConfig = `data_dir: DIR/data
redis: {embedded_listen: ""}
proxy:
  listen: ADDR
  state_machine: {enabled: CONVERSATIONS}
  backends:
    vendor: {kind: anthropic, vendor: anthropic, base_url: "http://VENDOR", api_key_env: KEY, thinking: {budget_tokens: 2048}}
`

// launch starts a process that prepare makes for a directory and an address, and
// waits until the vendor can be reached through it, or it is ready to.
func (l launcher) launch(ctx context.Context, name string, prepare func(dir, addr string) (*exec.Cmd, error)) (g *gateway, err error) {
	for range 5 { // a free port may be taken before the process gets to it
		if g, err = l.try(ctx, name, prepare); err == nil || ctx.Err() != nil {
			return g, err
		}
	}
	return nil, err
}

func (l launcher) try(ctx context.Context, name string, prepare func(dir, addr string) (*exec.Cmd, error)) (*gateway, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.dir, "gateway-")
	if err != nil {
		return nil, err
	}
	g := &gateway{addr: net.JoinHostPort("127.0.0.1", port)}
	cmd, err := prepare(dir, g.addr)
	if err != nil {
		return nil, err
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	g.pid = cmd.Process.Pid
	g.stop = func() { c.stop(); os.RemoveAll(dir) }
	if err := c.ready(ctx, g.addr); err != nil {
		complaint, _ := os.ReadFile(output.Name())
		g.stop()
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(complaint))
	}
	return g, nil
}

// ready waits until /readyz is answered, by the gateway or by the vendor behind it.
func (c *child) ready(ctx context.Context, addr string) error {
	asker := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for range 1000 {
		resp, err := asker.Get("http://" + addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-c.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("it does not answer")
}
