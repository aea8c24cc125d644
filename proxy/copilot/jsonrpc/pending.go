package jsonrpc

import (
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// remembered is how many calls without a caller are known at a time.
const remembered = 1024

// outcome is how a call ended: a result or an error.
type outcome struct {
	result jsontext.Value
	err    error
}

// waiting is a call that a goroutine waits for.
type waiting struct {
	method string
	// answered has room for the one outcome that the goroutine that takes the entry sends.
	answered chan outcome
}

// orphan is a call that no goroutine waits for.
type orphan struct {
	id     int64 // 0: none
	method string
	posted bool // no goroutine ever did
}

// table holds the calls to the peer. The goroutine that takes an entry out ends its call,
// so that happens once.
type table struct {
	mu      sync.Mutex
	last    int64 // id
	calls   map[int64]waiting
	orphans [remembered]orphan // a ring: a peer that never answers costs no memory
	next    int                // in orphans
}

// add makes an entry and its id.
func (t *table) add(w waiting) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[int64]waiting{}
	}
	t.last++
	t.calls[t.last] = w
	return t.last
}

// post makes an id for a call that no goroutine waits for.
func (t *table) post(method string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.remember(orphan{id: t.last, method: method, posted: true})
	return t.last
}

func (t *table) remember(o orphan) {
	t.orphans[t.next] = o
	t.next = (t.next + 1) % remembered
}

// take ends an entry.
func (t *table) take(id int64) (waiting, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.calls[id]
	delete(t.calls, id)
	return w, ok
}

// giveUp ends an entry when its caller goes; sent says whether an answer may come. False
// means that another goroutine has ended it.
func (t *table) giveUp(id int64, sent bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.calls[id]
	delete(t.calls, id)
	if ok && sent {
		t.remember(orphan{id: id, method: w.method})
	}
	return ok
}

// takeOrphan ends a call that no goroutine waits for.
func (t *table) takeOrphan(id int64) (orphan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, o := range t.orphans {
		if o.id == id && id != 0 {
			t.orphans[i] = orphan{}
			return o, true
		}
	}
	return orphan{}, false
}

// clear ends all entries at the end of the connection; their callers see that end.
func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.calls)
}

func (t *table) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}
