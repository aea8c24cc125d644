package node

import (
	"sync"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// Conversations are those that the gateway has of chats used here. Each lease carries the
// chat's: should Redis lose which one that is, it is offered again, with the thinking that
// the gateway kept; and an erasure reaches all of them.
type Conversations struct {
	mu    sync.Mutex
	Turns map[memory.Chat]map[string]int64 // guarded by mu: the newest turn of each, by its id
}

// Note takes note of a chat's conversation, and of the lease's number.
func (c *Conversations) Note(chat memory.Chat, id string, turn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Turns[chat] == nil {
		makeRoom(c.Turns)
		c.Turns[chat] = map[string]int64{}
	}
	c.Turns[chat][id] = max(c.Turns[chat][id], turn)
}

// Newest is the chat's last one, "" if none is known.
func (c *Conversations) Newest(chat memory.Chat) (id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, turn := range c.Turns[chat] {
		if turn > c.Turns[chat][id] {
			id = other
		}
	}
	return id
}

// Erased says whether a lease carries a conversation that was erased since it was last
// used here: this process had not heard of the erasure, and has offered it again to a
// Redis that had lost it.
func (c *Conversations) Erased(chat memory.Chat, turn redisstore.Turn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, ok := c.Turns[chat][turn.Conversation]
	return ok && newest <= turn.ErasedIn()
}

// until are the conversations of a chat that were not used after a number.
func (c *Conversations) until(chat memory.Chat, turn int64) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, newest := range c.Turns[chat] {
		if newest <= turn {
			ids = append(ids, id)
		}
	}
	return ids
}
