package ledger

import (
	"hash/maphash"
	"sync"
)

// forms is a cache of parsed messages by their bytes, because a client sends the same messages with
// every request. A form depends on these bytes alone, so the cache leaks nothing between tenants.
//
// It has two generations: a hit moves to the younger one, and when that is full the older one is
// dropped.
type forms[F sized] struct {
	a, b maphash.Seed

	mu         sync.Mutex
	young, old map[print]F // guarded by mu
	bytes      int         // of young; guarded by mu
}

// sized estimates its own memory, in bytes.
type sized interface{ size() int }

// print identifies bytes within this process, together with the dialect in which they are read. Its
// hash seeds are secret, so that an attacker cannot construct two contents with the same print.
type print struct {
	a, b uint64
	size int
}

// maxForms bounds one generation, in bytes.
const maxForms = 2 << 20

func newForms[F sized]() *forms[F] {
	return &forms[F]{a: maphash.MakeSeed(), b: maphash.MakeSeed(), young: map[print]F{}}
}

// print is the identity of bytes that are read as chat completions, or else as messages.
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

// keep adds to the younger generation. The caller holds mu.
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
