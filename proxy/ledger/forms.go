package ledger

import (
	"hash/maphash"

	"github.com/maypok86/otter/v2"
)

// forms is a cache of parsed messages by their bytes, because a client sends the same messages with
// every request. A form depends on these bytes alone, so the cache leaks nothing between tenants.
type forms[F sized] struct {
	*otter.Cache[print, F]
	a, b maphash.Seed
}

// sized estimates its own memory, in bytes.
type sized interface{ size() int }

// print identifies bytes within this process, together with the dialect in which they are read. Its
// hash seeds are secret, so that an attacker cannot construct two contents with the same print.
type print struct {
	a, b uint64
	size int
}

// maxForms bounds a cache, in bytes.
const maxForms = 4 << 20

func newForms[F sized]() *forms[F] {
	return &forms[F]{otter.Must(&otter.Options[print, F]{MaximumWeight: maxForms,
		Weigher: func(_ print, f F) uint32 { return uint32(f.size() + 64) }}), maphash.MakeSeed(), maphash.MakeSeed()}
}

// print is the identity of bytes that are read as chat completions, or else as messages.
func (c *forms[F]) print(content []byte, chat bool) print {
	p := print{maphash.Bytes(c.a, content), maphash.Bytes(c.b, content), 2 * len(content)}
	if chat {
		p.size++
	}
	return p
}
