package webmemory

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// This file is about stopping a run: one that goes on is stopped where it is, one that waits is ended as if its waits
// were denied.

// stopRun is POST …/runs/{run}/stop.
func (s *resumer) stopRun(c *gin.Context) error {
	chat, r, err := s.registry.find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	if r != nil && r.over(0) {
		api.WriteJSON(c.Writer, http.StatusOK, webapi.StopStatus{RunID: id, Status: webapi.Over})
		return nil
	}
	open, err := s.store.Turns.OpenRun(c.Request.Context(), chat)
	switch {
	case r != nil:
		err = s.stop(c.Request.Context(), r)
	case err == nil && open != nil && open.Run == id:
		err = s.leaser.stopOpen(c.Request.Context(), open)
	case err == nil && s.waitsFor(c.Request.Context(), chat, id):
		if err := s.denyNow(c.Request.Context(), chat, id, stoppedRun); err != nil {
			return err
		}
		api.WriteJSON(c.Writer, http.StatusOK, webapi.StopStatus{RunID: id, Status: webapi.Over})
		return nil
	case err == nil:
		record, failed := s.store.Runs.Record(c.Request.Context(), chat, id)
		if failed != nil {
			return failed
		}
		if record == nil {
			return errUnknownRun
		}
		api.WriteJSON(c.Writer, http.StatusOK, webapi.StopStatus{RunID: id, Status: webapi.Over})
		return nil
	}
	if err != nil {
		return asking(err)
	}
	api.WriteJSON(c.Writer, http.StatusAccepted, webapi.StopStatus{RunID: id, Status: webapi.Stopping})
	return nil
}

// stop asks the apiserver to end a run; its last events come as ever.
func (s *resumer) stop(ctx context.Context, r *run) error {
	r.mu.Lock()
	at := r.at
	r.mu.Unlock()
	if at == nil {
		return nil // still waiting for its turn: it is withdrawn when its client leaves
	}
	return at.Stop(ctx, r.id)
}

// denyNow ends a run that waits, and waits until that is done. What does not wait any more is fine.
func (s *resumer) denyNow(ctx context.Context, chat memory.Chat, id string, why *denial) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.QueueWait)
	defer cancel()
	for s.waitsFor(ctx, chat, id) {
		w, err := s.leaser.takeTurn(ctx, waiting, chat, "", behind)
		if err != nil {
			return err
		}
		var left *run
		switch {
		case w.Open != nil:
			left = s.runner.resume(w)
		case w.Waits != nil && w.Waits.Run == id:
			left = s.runner.deny(w, why)
		default:
			return w.release(w.end, &s.log)
		}
		select {
		case <-left.done:
		case <-waiting.Done():
			return ended(waiting)
		}
	}
	return nil
}

// waitsFor says whether a chat's run waits, as far as can be seen.
func (s *resumer) waitsFor(ctx context.Context, chat memory.Chat, id string) bool {
	rest, err := s.store.Waits.Rest(ctx, chat)
	return err == nil && rest != nil && rest.Run == id
}
