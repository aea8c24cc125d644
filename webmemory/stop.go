package webmemory

import (
	"context"
	"errors"
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
	status, err := s.stop(c.Request.Context(), chat, id, r)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if status == webapi.Stopping {
		code = http.StatusAccepted
	}
	return api.Answer(c.Writer, code, webapi.StopStatus{RunID: id, Status: status}, nil)
}

// stop stops a chat's run, which is r if this process has it.
func (s *resumer) stop(ctx context.Context, chat memory.Chat, id string, r *run) (status string, err error) {
	if r != nil && r.expired(0) && !r.log.Waiting() {
		return webapi.Finished, nil
	}
	open, err := s.store.Turns.OpenRun(ctx, chat)
	switch {
	case r != nil && !r.expired(0):
		err = s.stopHere(ctx, r)
	case err == nil && open != nil && open.Run == id:
		err = s.leaser.stopOpen(ctx, open)
	case err == nil && s.waitsFor(ctx, chat, id):
		return webapi.Finished, s.denyNow(ctx, chat, id, stoppedRun)
	case err == nil:
		record, err := s.store.Runs.Record(ctx, chat, id)
		if err == nil && record == nil {
			err = errUnknownRun
		}
		return webapi.Finished, err
	}
	if errors.Is(err, api.ErrWaits) { // it is about to be suspended
		return webapi.Finished, s.denyNow(ctx, chat, id, stoppedRun)
	}
	if err != nil {
		return "", asking(err)
	}
	return webapi.Stopping, nil
}

// stopHere asks the apiserver to end a run; its last events come as ever.
func (s *resumer) stopHere(ctx context.Context, r *run) error {
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	if client == nil {
		return nil // still waiting for its turn: it is withdrawn when its client leaves
	}
	return client.Stop(ctx, r.id)
}

// denyNow ends a run that waits, or is about to, and waits until that is done. What does not wait any more is fine.
func (s *resumer) denyNow(ctx context.Context, chat memory.Chat, id string, why *denial) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.QueueWait)
	defer cancel()
	for retry := true; retry; retry = s.waitsFor(ctx, chat, id) {
		w, err := s.leaser.takeTurn(ctx, waiting, chat, "", placeLast)
		if err != nil {
			return err
		}
		var prev *run
		switch {
		case w.Open != nil:
			prev = s.runner.resume(w)
		case w.Waiting != nil && w.Waiting.Run == id:
			prev = s.runner.deny(w, why)
		default:
			return w.release(w.end, &s.log)
		}
		select {
		case <-prev.done:
		case <-waiting.Done():
			return waitError(waiting)
		}
	}
	return nil
}

// waitsFor says whether a chat's run waits, as far as can be seen.
func (s *resumer) waitsFor(ctx context.Context, chat memory.Chat, id string) bool {
	rest, err := s.store.Suspensions.Rest(ctx, chat)
	return err == nil && rest != nil && rest.Run == id
}
