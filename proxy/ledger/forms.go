package ledger

import (
	"hash/maphash"
	"sync"

	"mneme/proxy/wire"
)

// forms remembers the forms of messages by their bytes: a client sends the same
// ones with every request. What a form is depends on these bytes alone, so that
// nothing passes here from one tenant to another.
//
// There are two generations; what is asked for moves to the younger, and the
// older is forgotten when that is full.
type forms struct {
	a, b maphash.Seed

	mu         sync.Mutex
	young, old map[print]*form // guarded by mu
	bytes      int             // of young; guarded by mu
}

// print identifies bytes within this process. Its seeds are secret, so that
// nobody can look for two contents that have one.
type print struct {
	a, b uint64
	size int
}

// maxForms bounds a generation, in bytes.
const maxForms = 2 << 20

func newForms() *forms {
	return &forms{a: maphash.MakeSeed(), b: maphash.MakeSeed(), young: map[print]*form{}}
}

func (c *forms) print(content []byte, d wire.Dialect) print {
	p := print{maphash.Bytes(c.a, content), maphash.Bytes(c.b, content), 2 * len(content)}
	if d == wire.Chat {
		p.size++
	}
	return p
}

func (c *forms) get(p print) *form {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.young[p]
	if f == nil {
		if f = c.old[p]; f != nil {
			c.keep(p, f)
		}
	}
	return f
}

func (c *forms) put(p print, f *form) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(p, f)
}

// keep needs mu.
func (c *forms) keep(p print, f *form) {
	if _, known := c.young[p]; known {
		return
	}
	size := f.size() + 64
	if c.bytes+size > maxForms {
		c.old, c.young, c.bytes = c.young, map[print]*form{}, 0
	}
	c.young[p] = f
	c.bytes += size
}
