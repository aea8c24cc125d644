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

	"mneme/scripts/lab"
)

// live measures what an open answer holds, in mneme up and in the three services.
func (c *turnCmd) live(l *lab.Lab) error {
	limit := syscall.Rlimit{Cur: c.Files, Max: c.Files} // children inherit what is set here
	lab.Must(0, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	http.DefaultTransport.(*http.Transport).MaxIdleConns = 1 // what is closed is no descriptor of this process
	fmt.Printf("%d answers at once, held in the middle of their last call, at most %d descriptors a process; each "+
		"answer's share:\n", c.Live, c.Files)
	for i, name := range []string{"mneme up", "three services"} {
		mark := l.Mark()
		let := make(chan struct{})
		v := lab.NewVendor(let)
		s := l.Services(v, i == 1)
		c.open(name, v, s, let)
		v.CloseClientConnections()
		v.Close()
		l.StopTo(mark)
	}
	return nil
}

// holds is what the services have in use.
type holds struct{ rss, goroutines, files float64 }

func holding(a string) holds {
	m := lab.Must(lab.Metrics(a))
	return holds{m["process_resident_memory_bytes"] / 1e3, m["go_goroutines"], m["process_open_fds"]}
}

// open opens the answers, measures, lets them go and waits for their ends.
func (c *turnCmd) open(name string, v *lab.Vendor, s lab.Services, let chan struct{}) {
	var wait sync.WaitGroup
	var completed, failed atomic.Int64
	say := func(i int) {
		if err := say(s.URL, fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i)); err != nil {
			if failed.Add(1) == 1 {
				fmt.Fprintln(os.Stderr, "bench: the first answer that did not complete:", err)
			}
			return
		}
		completed.Add(1)
	}
	before := make([]holds, len(s.Addrs))
	for i := range s.Addrs {
		before[i] = holding(s.Addrs[i])
	}
	began := time.Now()
	starting := make(chan struct{}, 64) // more at once would only queue for the processors
	for i := range c.Live {
		starting <- struct{}{}
		held := v.Held.Load()
		wait.Go(func() { say(i) })
		go func() { // the next may start when one more is held
			for v.Held.Load() <= held && failed.Load() == 0 && time.Since(began) < 10*time.Minute {
				time.Sleep(time.Millisecond)
			}
			<-starting
		}()
	}
	for v.Held.Load()+failed.Load() < int64(c.Live) && time.Since(began) < 10*time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("  %s: %d open after %.0f s\n", name, v.Held.Load(), time.Since(began).Seconds())
	n := float64(c.Live)
	for i, service := range s.Names {
		h := holding(s.Addrs[i])
		fmt.Printf("    %-10s RSS %.0f KB, %.1f goroutines, %.1f descriptors\n", service, (h.rss-before[i].rss)/n,
			(h.goroutines-before[i].goroutines)/n, (h.files-before[i].files)/n)
	}
	close(let)
	wait.Wait()
	fmt.Printf("    completed %d of %d\n", completed.Load(), c.Live)
}
