package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mneme/internal/stack"
)

// live measures what an open answer holds, in mneme up and in the three services.
func (c *turnCmd) live(l *lab) error {
	limit := syscall.Rlimit{Cur: c.Files, Max: c.Files} // children inherit what is set here
	must(0, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	http.DefaultTransport.(*http.Transport).MaxIdleConns = 1 // what is closed is no descriptor of this process
	fmt.Printf("%d answers at once, held in the middle of their last call, at most %d descriptors a process; each "+
		"answer's share:\n", c.Live, c.Files)
	for i, name := range []string{"mneme up", "three services"} {
		mark := l.Mark()
		release := make(chan struct{})
		v := newVendor(release)
		s := l.Services(v, i == 1)
		c.open(name, v, s, release)
		v.CloseClientConnections()
		v.Close()
		l.StopTo(mark)
	}
	return nil
}

// holding is a service's memory in KB, its goroutines and its descriptors.
func holding(addr string) [3]float64 {
	m := must(stack.Metrics(addr))
	return [3]float64{m["process_resident_memory_bytes"] / 1e3, m["go_goroutines"], m["process_open_fds"]}
}

// open opens the answers, measures, lets them go and waits for their ends.
func (c *turnCmd) open(name string, v *vendor, s services, release chan struct{}) {
	baseline := make([][3]float64, len(s.Addrs))
	for i := range s.Addrs {
		baseline[i] = holding(s.Addrs[i])
	}
	var wg sync.WaitGroup
	var completed, failed atomic.Int64
	began := time.Now()
	await := func(count int) { // until so many are held, or have failed
		for v.Waiting.Load()+failed.Load() < int64(count) && time.Since(began) < 10*time.Minute {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range c.Live {
		await(i - 64) // more at once would only queue for the processors
		wg.Go(func() {
			err := say(s.URL, fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i), question)
			if err == nil {
				completed.Add(1)
			} else if failed.Add(1) == 1 {
				fmt.Fprintln(os.Stderr, "bench: the first answer that did not complete:", err)
			}
		})
	}
	await(c.Live)
	fmt.Printf("  %s: %d open after %.0f s\n", name, v.Waiting.Load(), time.Since(began).Seconds())
	n := float64(c.Live)
	for i, service := range s.Names {
		h, b := holding(s.Addrs[i]), baseline[i]
		fmt.Printf("    %-10s RSS %.0f KB, %.1f goroutines, %.1f descriptors\n", service, (h[0]-b[0])/n, (h[1]-b[1])/n,
			(h[2]-b[2])/n)
	}
	close(release)
	wg.Wait()
	fmt.Printf("    completed %d of %d\n", completed.Load(), c.Live)
}
