package chats

import (
	"context"

	"github.com/gin-gonic/gin"

	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// EraseRoutes is DELETE of chats, of histories and of what a user said. It takes the turn of each chat before all posts
// that wait for it.
type EraseRoutes struct {
	*node.Core
	Eraser     *erase.Eraser
	Tombstones *erase.Tombstones
	Leaser     *turns.Leaser
}

// DeleteHistory is DELETE …/history of a chat or of one of its subagents.
func (s *EraseRoutes) DeleteHistory(c *gin.Context, key memory.Key) error {
	return s.erase(c, key.Chat(), erase.Scope{History: &key})
}

// DeleteChat is DELETE /v1/chats/{chat}; with scan=true it also looks through all
// keys of Redis for what no index names.
func (s *EraseRoutes) DeleteChat(c *gin.Context, chat memory.Chat) error {
	scan, err := problem.Flag(c, "scan")
	if err != nil {
		return err
	}
	return s.erase(c, chat, erase.Scope{Scan: scan})
}

// erase removes what is wanted gone of a chat.
func (s *EraseRoutes) erase(c *gin.Context, chat memory.Chat, what erase.Scope) error {
	allowed := 2*node.StoreTimeout + redisstore.Beat
	if what.Scan {
		allowed = node.ScanTimeout
	}
	p := runs.Deleting
	if what.History != nil {
		p = runs.Erasing
	}
	return turns.TakeAway(s.Leaser, c, chat, p, allowed, func(ctx context.Context, w *runs.Writer) (webapi.Erased, error) {
		return s.Eraser.EraseUnder(ctx, w, what)
	})
}
