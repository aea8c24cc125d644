package chats

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// RewindRoutes is the routes of rewinds and of what they set aside. It takes the chat's turn.
type RewindRoutes struct {
	*node.Core
	Histories *past.Histories
	Rewinder  *erase.Rewinder
	Leaser    *turns.Leaser
}

// PostRewind is POST …/rewind. It stops what runs, as an erasure does.
func (s *RewindRoutes) PostRewind(c *gin.Context, chat memory.Chat, body erase.RewindRequest) error {
	target := ""
	if body.Target == nil {
		return problem.BadRequest("to is missing: the id of the last message that stays, or null for none.")
	}
	if string(body.Target) != "null" && (json.Unmarshal(body.Target, &target) != nil || target == "") {
		return problem.BadRequest("to is the id of a message or null, not %.80s.", body.Target)
	}
	// Before anything is stopped for it.
	headCache := past.Heads{}
	v, err := s.Histories.Look(c.Request.Context(), chat, headCache)
	if err == nil && len(v) == 0 {
		err = problem.ErrUnknownChat
	}
	if err == nil {
		_, err = s.Histories.Locate(c.Request.Context(), chat, v, target)
	}
	if err != nil {
		return err
	}
	return turns.TakeAway(s.Leaser, c, chat, runs.Erasing, node.ScanTimeout,
		func(ctx context.Context, w *runs.Writer) (webapi.SetAside, error) {
			return s.Rewinder.RewindUnder(ctx, w, target, headCache)
		})
}

// GetSetAside is GET …/set-aside.
func (s *RewindRoutes) GetSetAside(c *gin.Context, chat memory.Chat) error {
	setAsides, err := s.Store.Rewinds.List(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	out := webapi.SetAsides{SetAside: []webapi.SetAside{}}
	for _, a := range setAsides {
		out.SetAside = append(out.SetAside, erase.SetAsideEntry(a))
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// PostRestore is POST …/set-aside/{id}/restore. It waits for a run that goes on, and is refused then.
func (s *RewindRoutes) PostRestore(c *gin.Context, chat memory.Chat) error {
	ctx := c.Request.Context()
	readAside := func(ctx context.Context) (*redisstore.SetAside, error) {
		a, err := s.Store.Rewinds.Read(ctx, chat, c.Param("id"))
		if err == nil && a == nil {
			err = erase.ErrUnknownSetAside
		}
		return a, err
	}
	if _, err := readAside(ctx); err != nil {
		return err
	}
	var out webapi.SetAside
	err := s.Leaser.UnderTurn(context.WithoutCancel(ctx), chat, func(ctx context.Context, w *runs.Writer) error {
		a, err := readAside(ctx)
		if err != nil {
			return err
		}
		if err := s.Histories.UnchangedSince(ctx, w.Histories, a); err != nil {
			return err
		}
		out = erase.SetAsideEntry(*a)
		return s.Rewinder.RestoreUnder(ctx, w, a)
	})
	return api.Answer(c.Writer, http.StatusOK, out, err)
}
