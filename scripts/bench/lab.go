package main

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

// lab holds processes and the folder for all that they write.
type lab struct {
	Dir      string
	Mneme    string // the program
	Settings string // lines that the configurations of services have, too
	Backend  string // of the gateway, if it is not one of chat completions
	Runs     int    // apiserver.max_runs; 0 for more than any benchmark has
	stops    []func()
}

// newLab builds mneme unless a program is given. Stop must be called in any case.
func newLab(mneme string) *lab {
	l := &lab{Dir: must(os.MkdirTemp("", "mneme-lab-"))}
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

// must is v. A benchmark has no caller to hand an error to: it panics, so that what was
// started is stopped by the deferred calls, and its main prints the error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Stop ends the processes, the last one first, and removes the folder.
func (l *lab) Stop() { l.StopTo(0) }

// Mark is what StopTo takes to end what is started behind it.
func (l *lab) Mark() int { return len(l.stops) }

// StopTo ends the processes that were started behind the mark.
func (l *lab) StopTo(mark int) {
	for _, stop := range slices.Backward(l.stops[mark:]) {
		stop()
	}
	l.stops = l.stops[:mark]
}

// Start runs a program until Stop and waits until ready says that it answers.
func (l *lab) Start(ready func() error, program string, args ...string) (pid int) {
	return l.run(&stack.Process{Name: filepath.Base(program), Args: append([]string{program}, args...), Dir: l.Dir,
		Ready: ready})
}

func (l *lab) run(p *stack.Process) (pid int) {
	p.Log = filepath.Join(l.Dir, fmt.Sprintf("%s-%d.log", p.Name, l.Mark()))
	must(0, p.Start())
	l.stops = append(l.stops, func() { p.Stop(20 * time.Second) })
	must(0, p.Await(30*time.Second))
	return p.Pid()
}

// Redis starts a redis-server that keeps nothing on disk.
func (l *lab) Redis() *redis.Client {
	addr := freeAddr()
	client := redis.NewClient(&redis.Options{Addr: addr})
	l.stops = append(l.stops, func() { _ = client.Close() })
	l.run(stack.Redis(l.Dir, addr))
	return client
}

// File writes a file into the folder.
func (l *lab) File(name, text string) string {
	path := filepath.Join(l.Dir, name)
	must(0, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// freeAddr is an address of loopback that no other process has while this one runs.
func freeAddr() string {
	addr, _, err := freeport.Claim()
	return must(addr, err)
}

// cpuOf is how long the processes' threads have run, the kernel's part too, in
// nanoseconds from its own accounting: rusage counts a process when it has ended, and
// /proc/PID/stat in hundredths of a second.
func cpuOf(pids ...int) (sum time.Duration) {
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

// resident is the processes' memory in bytes. What they share counts for each.
func resident(pids ...int) (sum float64) {
	for _, pid := range pids {
		fields := strings.Fields(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)))))
		sum += must(strconv.ParseFloat(fields[1], 64)) * float64(os.Getpagesize())
	}
	return sum
}

// children is a process and those that it has started.
func children(parent int) []int {
	pids := []int{parent}
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)))
	for _, child := range strings.Fields(string(text)) {
		pids = append(pids, must(strconv.Atoi(child)))
	}
	return pids
}
