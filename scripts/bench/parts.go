package main

import (
	"bytes"
	"fmt"
	"io"
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

	"github.com/redis/go-redis/v9"
)

// bed holds the processes of a benchmark and the folder for all that they write.
type bed struct {
	dir   string
	mneme string // the program that is measured
	stops []func()
}

// newBed builds mneme unless a program is given.
func newBed(mneme string) *bed {
	b := &bed{dir: must(os.MkdirTemp("", "mneme-bench-")), mneme: mneme}
	b.stops = append(b.stops, func() { os.RemoveAll(b.dir) })
	if mneme == "" {
		b.mneme = filepath.Join(b.dir, "mneme")
		if out, err := exec.Command("go", "build", "-o", b.mneme, "./cmd/mneme").CombinedOutput(); err != nil {
			b.stop()
			panic(fmt.Errorf("building mneme, from the root of the repository: %w: %s", err, out))
		}
	}
	return b
}

// stop ends the processes, the last one first.
func (b *bed) stop() { b.stopTo(0) }

// stopTo ends those that were started behind the first n.
func (b *bed) stopTo(n int) {
	for _, stop := range slices.Backward(b.stops[n:]) {
		stop()
	}
	b.stops = b.stops[:n]
}

// start runs a program until stop and waits until ready says that it answers. The kernel
// ends it when this process is killed before it could.
func (b *bed) start(ready func() error, program string, args ...string) (pid int) {
	var output bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &output, &output, b.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // settings of this machine's own services
		return strings.HasPrefix(v, "MNEME_") || strings.HasPrefix(v, "GATEWAY_") || strings.HasPrefix(v, "STATE_MACHINE_")
	})
	must(0, cmd.Start())
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }() // ends with the process
	b.stops = append(b.stops, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
	})
	for began := time.Now(); ; {
		err := ready()
		if err == nil {
			return cmd.Process.Pid
		}
		select {
		case <-exited:
			panic(fmt.Errorf("%s ended: %s", strings.Join(cmd.Args, " "), output.Bytes()))
		case <-time.After(10 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			panic(fmt.Errorf("%s does not answer: %w", strings.Join(cmd.Args, " "), err))
		}
	}
}

// redis starts a redis-server that keeps nothing on disk.
func (b *bed) redis() (addr string, pid int, client *redis.Client) {
	addr = freeAddr()
	client = redis.NewClient(&redis.Options{Addr: addr})
	_, port, _ := net.SplitHostPort(addr)
	b.stops = append(b.stops, func() { _ = client.Close() })
	pid = b.start(func() error { return client.Ping(bg).Err() },
		"redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	return addr, pid, client
}

// file writes a file into the folder.
func (b *bed) file(name, text string) string {
	path := filepath.Join(b.dir, name)
	must(0, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func freeAddr() string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// answers asks a service whether it is ready.
func answers(addr string) func() error {
	return func() error {
		text, err := get("http://" + addr + "/readyz")
		if err == nil && !strings.Contains(text, "ready") {
			err = fmt.Errorf("it says %.200s", text)
		}
		return err
	}
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// cpu is how long the processes' threads have run, the kernel's part too, in
// nanoseconds from its own accounting: rusage counts a process when it has ended, and
// /proc/PID/stat in hundredths of a second.
func cpu(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		for _, file := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))) {
			text, _ := os.ReadFile(file) // a thread that has ended is gone
			ran, _, _ := strings.Cut(string(text), " ")
			ns, _ := strconv.ParseInt(ran, 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// metric sums the value of one metric without labels over the services.
func metric(name string, addrs ...string) (sum float64) {
	for _, addr := range addrs {
		for line := range strings.Lines(must(get("http://" + addr + "/metrics"))) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				sum += must(strconv.ParseFloat(strings.TrimSpace(value), 64))
			}
		}
	}
	return sum
}

// quantile is the value below which a share of the values is; it sorts them.
func quantile[T int | float64 | time.Duration](values []T, share float64) T {
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
