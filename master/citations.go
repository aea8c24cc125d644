package master

import (
	"fmt"
	"strings"
	"sync"

	"mneme/memory/event"
)

// citations gathers what the subagents of a run cited, for the master's answer.
type citations struct {
	mu  sync.Mutex
	all []event.Citation // guarded by mu
}

func (c *citations) add(more []event.Citation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, more...)
}

// in gives those whose marker [n] the text holds, each number once.
func (c *citations) in(text string) []event.Citation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []event.Citation
	seen := map[int]bool{}
	for _, cite := range c.all {
		if !seen[cite.N] && strings.Contains(text, fmt.Sprintf("[%d]", cite.N)) {
			seen[cite.N] = true
			out = append(out, cite)
		}
	}
	return out
}
