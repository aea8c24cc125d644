package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// This file is about events that were shown and that Redis does not have, since a
// failover or a restart lost its last writes. Who finds a run open there must not
// close it before he has asked all who may know better: what a client has seen stays
// true, and no event's id gets two contents.

// knownRun is the answer of an internal route: a run's events from the first on, as
// far as a process has shown them.
type knownRun struct {
	Run    endHead           `json:"run"`
	Events []json.RawMessage `json:"events"`
}

func knownPath(chat memory.Chat, run string) string {
	return "/chats/" + url.PathEscape(chat.String()) + "/runs/" + url.PathEscape(run)
}

// getKnown is GET /internal/v1/chats/{chat}/runs/{run}.
func (s *Server) getKnown(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	head, lines := s.knownEvents(chat, c.Param("run"))
	if len(lines) == 0 {
		return errUnknownRun
	}
	out := knownRun{Run: head, Events: make([]json.RawMessage, len(lines))}
	for i, l := range lines {
		out.Events[i] = l
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// askForRun gives the longest answer of the other processes that live, if any
// knows the run.
func (s *Server) askForRun(ctx context.Context, chat memory.Chat, run string) (head endHead, lines [][]byte, err error) {
	others, err := s.others(ctx)
	if err != nil {
		return head, nil, err
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range others {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 2*otherAnswers)
			defer cancel()
			var known knownRun
			err := s.askOther(ctx, p, http.MethodGet, knownPath(chat, run), nil, &known)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, api.ErrUnknownRun) {
				s.log.Warn().Err(err).Str("run", run).Msg("another process could not be asked for a run")
			}
			if len(known.Events) > len(lines) {
				head, lines = known.Run, lines[:0]
				for _, e := range known.Events {
					lines = append(lines, e)
				}
			}
		})
	}
	asking.Wait()
	return head, lines, nil
}

// inquire asks who may know more of a left run than its log in Redis holds, and takes
// that. Where a process may just have come back, on a disk that is not read here, it
// waits one beat for it.
func (d *driver) inquire(ctx context.Context) error {
	for last := false; ; last = true {
		_, lines, err := d.server.askForRun(ctx, d.run.chat, d.run.id)
		if err == nil {
			err = d.retell(ctx, lines)
		}
		if last || d.run.log.Done() || err == nil && d.ownerGone() {
			return err
		}
		select {
		case <-time.After(redisstore.Beat + time.Second):
		case <-d.turn.ctx.Done():
			return context.Cause(d.turn.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ownerGone says that what the process that had the run showed of it is known here:
// it was this one, or a dead one with the same disk.
func (d *driver) ownerGone() bool {
	return d.owner != "" && (d.owner == d.server.spool.Name() || d.server.spool.Dead(d.owner))
}

// retell stores and shows what others have shown of a run, from where its log ends:
// first in the log, then in the histories.
func (d *driver) retell(ctx context.Context, lines [][]byte) error {
	all := d.run.head().events(lines)
	known := int(d.run.log.Last())
	if len(all) <= known {
		return nil
	}
	d.log.Warn().Int("events", len(all)-known).Msg("Redis has lost events of a run; they are told again")
	d.server.metrics.retold.Inc()
	for some := range slices.Chunk(all[known:], batch) {
		if err := d.turn.record(some); err != nil {
			return err
		}
	}
	if err := d.turn.place(ctx, d.turn.Open.Turn, all); err != nil {
		return err
	}
	d.turn.placed = true
	defer func() { d.turn.placed = false }()
	for _, e := range all[known:] {
		if err := d.show(e); err != nil {
			return err
		}
	}
	d.tell()
	return nil
}
