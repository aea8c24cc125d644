package upstreamtest

import (
	"slices"
	"sync"
)

// made is an item of Responses that was given.
type made struct {
	// reasoning is the reasoning item that its unit begins with, empty for none; first says that it stood
	// right behind it.
	reasoning string
	first     bool
	// compaction is the newest one that the model knew or gave before; empty for none.
	compaction string
	answer     *given
	stored     members // the item itself; nil if it is not persisted
}

// given is an answer that was given as items.
type given struct {
	own  []string // its reasoning: ids, or texts where the vendor has those back
	keys []string // of its items in itemMemory
}

// kept is a persisted response.
type kept struct {
	response string
	size     int
}

// itemMemory knows the items and responses of the newest answers.
type itemMemory struct {
	limit int

	mu        sync.Mutex // guards the rest
	order     []*given
	persisted []kept               // those of responses, oldest first
	size      int                  // of persisted
	items     map[string]*made     // by id, and by the id of the call
	responses map[string][]members // the whole context behind each persisted response, by its id
}

func newItemMemory(limit int) *itemMemory {
	return &itemMemory{limit: limit, items: map[string]*made{}, responses: map[string][]members{}}
}

// add remembers an answer.
func (m *itemMemory) add(answer *given, items map[string]*made) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, item := range items {
		m.items[key] = item
		answer.keys = append(answer.keys, key)
	}
	m.order = append(m.order, answer)
	if len(m.order) <= m.limit {
		return
	}
	oldest := m.order[0]
	m.order = slices.Delete(m.order, 0, 1)
	for _, key := range oldest.keys {
		if item := m.items[key]; item != nil && item.answer == oldest {
			delete(m.items, key)
		}
	}
}

// persist keeps the context behind a response; size is what of it no other response has, in bytes.
func (m *itemMemory) persist(response string, context []members, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.responses[response] = context
	m.persisted = append(m.persisted, kept{response, size})
	m.size += size
	for len(m.persisted) > m.limit || m.size > maxKept && len(m.persisted) > 1 {
		oldest := m.persisted[0]
		m.persisted = slices.Delete(m.persisted, 0, 1)
		m.size -= oldest.size
		delete(m.responses, oldest.response)
	}
}

// response is the context behind a persisted response.
func (m *itemMemory) response(id string) (context []members, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	context, ok = m.responses[id]
	return context, ok
}

// made is the item of this id, nil if it is forgotten.
func (m *itemMemory) made(id string) *made {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items[id]
}

// stored is the persisted item of this id, nil if there is none.
func (m *itemMemory) stored(id string) members {
	if item := m.made(id); item != nil {
		return item.stored
	}
	return nil
}

// of is what is known of an item of a request, by its id or that of its call.
func (m *itemMemory) of(item members) *made {
	if known := m.made(item.str("id")); known != nil {
		return known
	}
	if kind := itemKind(item); kind != callItem && kind != customItem {
		return nil
	}
	return m.made(item.str("call_id"))
}
