package node

import (
	"sync"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// Conversations records the gateway's conversations of chats that were used in this process. If Redis loses which one a
// chat has, the chat's lease offers it again, with the thinking that the gateway stored. An erasure covers all of them.
type Conversations struct {
	mu    sync.Mutex
	Turns map[memory.Chat]map[string]int64 // guarded by mu: newest turn of each conversation, by chat and id
}

// Note records the conversation of a chat and the turn of its lease.
func (c *Conversations) Note(chat memory.Chat, id string, turn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Turns[chat] == nil {
		makeRoom(c.Turns)
		c.Turns[chat] = map[string]int64{}
	}
	c.Turns[chat][id] = max(c.Turns[chat][id], turn)
}

// Newest returns the id of the chat's most recently used conversation, "" if none is known.
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

// Erased reports whether a lease carries a conversation that was erased after its last use in this process. This
// process missed the erasure and offered the conversation again to a Redis that had lost it.
func (c *Conversations) Erased(chat memory.Chat, turn redisstore.Turn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, ok := c.Turns[chat][turn.Conversation]
	return ok && newest <= turn.ErasedIn()
}

// until returns the conversations of a chat that were not used after turn.
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
