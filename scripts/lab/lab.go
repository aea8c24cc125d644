// Package lab starts the processes that benchmarks measure and soaks disturb: mneme,
// redis-server and whatever stands beside them. It needs Linux.
package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/freeport"
	"mneme/internal/stack"
)

// Lab holds processes and the folder for all that they write.
type Lab struct {
	Dir      string
	Mneme    string // the program
	Settings string // lines that the configurations of services have, too
	Runs     int    // apiserver.max_runs; 0 for more than any benchmark has
	stops    []func()
}

// New builds mneme unless a program is given. Stop must be called in any case.
func New(mneme string) *Lab {
	l := &Lab{Dir: Must(os.MkdirTemp("", "mneme-lab-"))}
	l.stops = append(l.stops, func() { os.RemoveAll(l.Dir) })
	var err error
	if mneme == "" {
		l.Mneme, err = stack.Build(l.Dir)
	} else {
		l.Mneme, err = filepath.Abs(mneme) // processes run in the folder
	}
	if err != nil {
		l.Stop()
		panic(err)
	}
	return l
}

// Must is v. A benchmark has no caller to hand an error to: it panics, so that what was
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

// Start runs a program until Stop and waits until ready says that it answers.
func (l *Lab) Start(ready func() error, program string, args ...string) (pid int) {
	return l.run(&stack.Process{Name: filepath.Base(program), Args: append([]string{program}, args...), Dir: l.Dir,
		Ready: ready})
}

func (l *Lab) run(p *stack.Process) (pid int) {
	p.Log = filepath.Join(l.Dir, fmt.Sprintf("%s-%d.log", p.Name, l.Mark()))
	Must(0, p.Start())
	l.stops = append(l.stops, func() { p.Stop(20 * time.Second) })
	Must(0, p.Await(30*time.Second))
	return p.Pid()
}

// Redis starts a redis-server that keeps nothing on disk.
func (l *Lab) Redis() *redis.Client {
	addr := FreeAddr()
	client := redis.NewClient(&redis.Options{Addr: addr})
	l.stops = append(l.stops, func() { _ = client.Close() })
	l.run(stack.Redis(l.Dir, addr))
	return client
}

// File writes a file into the folder.
func (l *Lab) File(name, text string) string {
	path := filepath.Join(l.Dir, name)
	Must(0, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// FreeAddr is an address of loopback that no other process has while this one runs.
func FreeAddr() string {
	addr, _, err := freeport.Claim()
	return Must(addr, err)
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

// Metrics are the values of a service's metrics that have no labels.
func Metrics(addr string) (map[string]float64, error) {
	text, err := stack.Get("http://" + addr + "/metrics")
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(number, 64); err == nil {
			values[name] = value
		}
	}
	return values, err
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
