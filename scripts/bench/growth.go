package main

import (
	"fmt"
	"os"
	"time"

	"mneme/scripts/lab"
)

// growth compares turns of an old chat with those of chats that have just begun, by turns in one
// run, where windows are full from the fifth turn on.
func (c *turnCmd) growth(l *lab.Lab, v *lab.Vendor) {
	const rounds, block = 5, 10
	for replicas, name := range []string{"alone", "with a second replica that answers every other turn"} {
		mark := l.Mark()
		s := l.Services(v, true, "context_window: 4", "subagent_context_window: 4")
		pids, urls := s.Pids, []string{s.URL}
		for range replicas {
			more := l.Replica(s, v, true, "context_window: 4", "subagent_context_window: 4")
			pids, urls = append(pids, more.Pids...), append(urls, more.URL)
		}
		answered := 0
		turns := func(chat string, n int) {
			for range n {
				answered++
				lab.Must(0, say(urls[answered%len(urls)], chat))
			}
		}
		fresh := func(n int) (name string) {
			name = fmt.Sprintf("young-%d-%d", os.Getpid(), n)
			turns(name, 4)
			return name
		}
		turns("old", c.Age-rounds*block)
		var took [2]time.Duration
		var load [2][3]float64
		var commands [2]int
		for i := range rounds + 1 {
			for age, chat := range []string{fresh(i), "old"} {
				if i == rounds {
					sent, _ := s.Monitor(func() { turns(chat, block) })
					for _, n := range sent {
						commands[age] += n
					}
					continue
				}
				before, used := lab.Info(s.Redis), lab.CPU(pids...)
				turns(chat, block)
				took[age] += lab.CPU(pids...) - used
				for j, after := range lab.Info(s.Redis) {
					load[age][j] += after - before[j]
				}
			}
		}
		fmt.Printf("a chat's %dth turn ÷ a 5th, %s: CPU %.2f\n", c.Age, name, float64(took[1])/float64(took[0]))
		for age, turn := range []int{5, c.Age} {
			n := float64(rounds * block)
			fmt.Printf("  %4dth CPU %.2f ms; Redis CPU %.2f ms, %.0f bytes in, %.0f bytes out, %.1f commands\n", turn,
				ms(took[age])/n, load[age][0]/n, load[age][1]/n, load[age][2]/n, float64(commands[age])/block)
		}
		l.StopTo(mark)
	}
}
