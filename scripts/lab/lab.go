// Package lab starts the processes that benchmarks measure and soaks disturb: mneme,
// redis-server and whatever stands beside them. It needs Linux.
package lab

import (
	"bytes"
	"context"
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

// Lab holds processes and the folder for all that they write.
type Lab struct {
	Dir   string
	Mneme string // the program
	stops []func()
}

// New builds mneme unless a program is given. Stop must be called in any case.
func New(mneme string) *Lab {
	l := &Lab{Dir: Must(os.MkdirTemp("", "mneme-lab-")), Mneme: mneme}
	l.stops = append(l.stops, func() { os.RemoveAll(l.Dir) })
	if mneme == "" {
		l.Mneme = filepath.Join(l.Dir, "mneme")
		if out, err := exec.Command("go", "build", "-o", l.Mneme, "./cmd/mneme").CombinedOutput(); err != nil {
			l.Stop()
			panic(fmt.Errorf("building mneme, from the root of the repository: %w: %s", err, out))
		}
	}
	return l
}

// Must is v. A benchmark has nobody to hand an error to: it panics, so that what was
// started is stopped by the deferred calls, and its main prints the error.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Stop ends the processes, the last one first, and removes the folder.
func (l *Lab) Stop() { l.StopTo(0) }

// Mark is what StopTo takes to end what is started behind it.
func (l *Lab) Mark() int { return len(l.stops) }

// StopTo ends the processes that were started behind the mark.
func (l *Lab) StopTo(mark int) {
	for _, stop := range slices.Backward(l.stops[mark:]) {
		stop()
	}
	l.stops = l.stops[:mark]
}

// Start runs a program until Stop and waits until ready says that it answers. The kernel
// ends it when this process is killed before it could.
func (l *Lab) Start(ready func() error, program string, args ...string) (pid int) {
	var output bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &output, &output, l.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // settings of this machine's own services
		return strings.HasPrefix(v, "MNEME_") || strings.HasPrefix(v, "GATEWAY_") || strings.HasPrefix(v, "STATE_MACHINE_")
	})
	Must(0, cmd.Start())
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }() // ends with the process
	l.stops = append(l.stops, func() {
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

// Redis starts a redis-server that keeps nothing on disk.
func (l *Lab) Redis() (addr string, client *redis.Client) {
	addr = FreeAddr()
	client = redis.NewClient(&redis.Options{Addr: addr})
	_, port, _ := net.SplitHostPort(addr)
	l.stops = append(l.stops, func() { _ = client.Close() })
	l.Start(func() error { return client.Ping(context.Background()).Err() },
		"redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	return addr, client
}

// File writes a file into the folder.
func (l *Lab) File(name, text string) string {
	path := filepath.Join(l.Dir, name)
	Must(0, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// FreeAddr is an address of loopback that nobody listens on.
func FreeAddr() string {
	listener := Must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

// Ready asks a service whether it is ready.
func Ready(addr string) func() error {
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

// CPU is how long the processes' threads have run, the kernel's part too, in
// nanoseconds from its own accounting: rusage counts a process when it has ended, and
// /proc/PID/stat in hundredths of a second.
func CPU(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		for _, file := range Must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))) {
			text, _ := os.ReadFile(file) // a thread that has ended is gone
			ran, _, _ := strings.Cut(string(text), " ")
			ns, _ := strconv.ParseInt(ran, 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// Metric sums the value of one metric without labels over the services.
func Metric(name string, addrs ...string) (sum float64) {
	for _, addr := range addrs {
		for line := range strings.Lines(Must(get("http://" + addr + "/metrics"))) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				sum += Must(strconv.ParseFloat(strings.TrimSpace(value), 64))
			}
		}
	}
	return sum
}

// Resident is the processes' memory in bytes. What they share counts for each.
func Resident(pids ...int) (sum float64) {
	for _, pid := range pids {
		fields := strings.Fields(string(Must(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)))))
		sum += Must(strconv.ParseFloat(fields[1], 64)) * float64(os.Getpagesize())
	}
	return sum
}

// Children is a process and those that it has started.
func Children(parent int) []int {
	pids := []int{parent}
	text := Must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)))
	for _, child := range strings.Fields(string(text)) {
		pids = append(pids, Must(strconv.Atoi(child)))
	}
	return pids
}
