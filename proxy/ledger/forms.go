package ledger

import (
	"hash/maphash"
	"sync"
)

// forms remembers what was read of messages by their bytes: a client sends the
// same ones with every request. What is read of a message depends on these bytes
// alone, so that nothing passes here from one tenant to another.
//
// There are two generations; what is asked for moves to the younger, and the
// older is forgotten when that is full.
type forms[F sized] struct {
	a, b maphash.Seed

	mu         sync.Mutex
	young, old map[print]F // guarded by mu
	bytes      int         // of young; guarded by mu
}

// sized tells roughly how many bytes it takes in memory.
type sized interface{ size() int }

// print identifies bytes within this process, and the dialect in which they are
// read. Its seeds are secret, so that nobody can look for two contents that have
// one.
type print struct {
	a, b uint64
	size int
}

// maxForms bounds a generation, in bytes.
const maxForms = 2 << 20

func newForms[F sized]() *forms[F] {
	return &forms[F]{a: maphash.MakeSeed(), b: maphash.MakeSeed(), young: map[print]F{}}
}

// print is that of bytes that are read as chat completions, or as the other dialect.
func (c *forms[F]) print(content []byte, chat bool) print {
	p := print{maphash.Bytes(c.a, content), maphash.Bytes(c.b, content), 2 * len(content)}
	if chat {
		p.size++
	}
	return p
}

func (c *forms[F]) get(p print) (f F, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok = c.young[p]; ok {
		return f, true
	}
	if f, ok = c.old[p]; ok {
		c.keep(p, f)
	}
	return f, ok
}

func (c *forms[F]) put(p print, f F) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(p, f)
}

// keep needs mu.
func (c *forms[F]) keep(p print, f F) {
	if _, known := c.young[p]; known {
		return
	}
	size := f.size() + 64
	if c.bytes+size > maxForms {
		c.old, c.young, c.bytes = c.young, map[print]F{}, 0
	}
	c.young[p] = f
	c.bytes += size
}
