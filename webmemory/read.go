package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// pageSize is how many messages or chats one answer lists, maxPage the most.
const pageSize, maxPage = 100, 1000

// listChats is GET /v1/chats.
func (s *Server) listChats(c *gin.Context) error {
	limit, err := number(c, "limit", pageSize, 1, maxPage)
	if err != nil {
		return err
	}
	chats, next, err := s.store.Chats(c.Request.Context(), c.Query("cursor"), limit)
	if err != nil {
		return err
	}
	out := webapi.ChatList{Chats: []webapi.ChatEntry{}, NextCursor: next}
	for _, chat := range chats {
		out.Chats = append(out.Chats, webapi.ChatEntry{ChatID: chat})
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// getChat is GET /v1/chats/{chat}.
func (s *Server) getChat(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	stored, err := s.store.Histories(c.Request.Context(), chat, s.cfg.Agents...)
	if err != nil {
		return err
	}
	out := webapi.ChatInfo{ChatID: chat, Histories: []webapi.HistoryInfo{}}
	open, err := s.store.OpenRun(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	if open != nil {
		out.Run = open.Run
	}
	for _, h := range stored {
		if h.Messages == 0 {
			// A value that another program wrote has no count yet.
			if h.Messages, err = s.count(c.Request.Context(), h.Key); err != nil {
				return err
			}
		}
		out.Histories = append(out.Histories, webapi.HistoryInfo{
			Key: h.Key.String(), Subagent: h.Key.Agent(), Messages: h.Messages, Bytes: h.Bytes,
		})
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

func (s *Server) count(ctx context.Context, key memory.Key) (int, error) {
	h, err := s.cache.Load(ctx, 0, memory.Empty(key))
	if err != nil {
		return 0, err
	}
	return h[0].Len(), nil
}

// getHistory is GET …/history of a chat or of one of its subagents. A negative
// offset counts from the end.
func (s *Server) getHistory(c *gin.Context) error {
	key, err := keyOf(c)
	if err != nil {
		return err
	}
	limit, err := number(c, "limit", pageSize, 1, maxPage)
	if err != nil {
		return err
	}
	offset, err := number(c, "offset", 0, -1<<31, 1<<31-1)
	if err != nil {
		return err
	}
	h, stale, err := s.current(c.Request.Context(), key)
	if err != nil {
		return err
	}
	if offset < 0 {
		offset = max(h.Len()+offset, 0)
	}
	offset = min(offset, h.Len())
	messages := h.Raw(offset)
	out := webapi.HistoryPage{Key: key.String(), Total: h.Len(), Offset: offset, Messages: messages, Stale: stale}
	if len(messages) > limit {
		out.Messages, out.NextOffset = messages[:limit], offset+limit
	}
	if out.Messages == nil {
		out.Messages = []json.RawMessage{}
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// staleFor is how long after the last contact with Redis copies are still shown.
// Later on they could be of a chat that was erased elsewhere.
const staleFor = time.Minute

// current is a history as stored, or, while Redis is away, as it was known.
func (s *Server) current(ctx context.Context, key memory.Key) (h *memory.History, stale bool, err error) {
	loaded, err := s.cache.Load(ctx, 0, memory.Empty(key))
	if err == nil {
		return loaded[0], false, nil
	}
	_, since := s.health.get()
	h = s.cache.Peek(key)
	if !errors.Is(err, memory.ErrUnavailable) || h == nil || !since.IsZero() && time.Since(since) > staleFor {
		return nil, false, err
	}
	return h, true, nil
}

func keyOf(c *gin.Context) (memory.Key, error) {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return memory.Key{}, err
	}
	name, ok := c.Params.Get("name")
	if !ok {
		return memory.ChatKey(chat), nil
	}
	agent, err := memory.ParseAgent(name)
	return memory.SubagentKey(agent, chat), err
}

// flag is a query parameter that is true or false; it is false when it is absent.
func flag(c *gin.Context, name string) (bool, error) {
	switch text := c.Query(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, badRequest("%s is true or false, not %.40q.", name, text)
	}
}

func number(c *gin.Context, name string, otherwise, low, high int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, badRequest("%s is a whole number from %d to %d, not %.40q.", name, low, high, text)
	}
	return n, nil
}

// outdated says whether a run that is kept here must not be shown any more: it was
// left to another process, or its chat was erased through another one. While Redis
// is away nobody can know.
func (s *Server) outdated(ctx context.Context, r *run) bool {
	if r.log.Aborted() {
		return true
	}
	if !r.over(0) {
		return false
	}
	erased, err := s.store.Erased(ctx, memory.ChatKey(r.chat))
	if err != nil || erased <= r.turn.Load() {
		return false // that Redis does not know the run says nothing: it may have lost it
	}
	s.forgetRun(r)
	return true
}

// find is the run of a path if it is, or lately was, in this process.
func (s *Server) find(c *gin.Context) (chat memory.Chat, r *run, err error) {
	chat, err = memory.ParseChat(c.Param("chat"))
	if err != nil {
		return memory.Chat{}, nil, err
	}
	s.mu.Lock()
	r = s.live[c.Param("run")]
	s.mu.Unlock()
	if r != nil && (r.chat != chat || s.outdated(c.Request.Context(), r)) {
		r = nil
	}
	return chat, r, nil
}

var errUnknownRun = &api.Problem{
	Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
	Message: "This chat has no such run, or it ended long ago; what it stored is in the chat's history.",
}

// getEvents is GET …/runs/{run}/events: the events after Last-Event-ID, from
// whichever process has the run.
func (s *Server) getEvents(c *gin.Context) error {
	chat, r, err := s.find(c)
	if err != nil {
		return err
	}
	if r == nil || !r.accepted() {
		ctx := c.Request.Context()
		record, err := s.store.Record(ctx, chat, c.Param("run"))
		if err != nil {
			return err
		}
		if record == nil {
			return errUnknownRun
		}
		r = s.mirror(ctx, chat, c.Param("run"), len(record.Result) > 0)
	}
	return s.serveEvents(c, r)
}

// accepted says whether the post of a run is past the point where it may still turn
// out that another process has the run.
func (r *run) accepted() bool {
	select {
	case <-r.posted:
		return true
	default:
		return false
	}
}

// serveEvents answers with a run's events from the request's position on.
func (s *Server) serveEvents(c *gin.Context, r *run) error {
	if r.elsewhere {
		if err := s.caughtUp(r, c.Request); err != nil {
			return err
		}
	}
	c.Header(webapi.RunID, r.id)
	s.show(c, r)
	return nil
}

// caughtUp waits until the log of a run that another process had holds what the
// request has seen already: what that process showed may have to come out of its
// spool first. An event that does not come, since the run was closed without it, is
// gone. Of a finished run it waits for one event more, which tells whether there is
// anything to send.
func (s *Server) caughtUp(r *run, req *http.Request) error {
	after, err := api.LastEventID(req)
	if err != nil {
		return err
	}
	want := after
	if r.finished {
		want++
	}
	ctx, cancel := context.WithTimeout(req.Context(), s.cfg.ResumeWait)
	defer cancel()
	err = r.log.Reach(ctx, want)
	switch {
	case err == nil, errors.Is(err, api.ErrGone) && r.log.Done() && r.log.Last() == after:
		return nil
	case req.Context().Err() != nil:
		return context.Cause(req.Context())
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if _, away := s.health.get(); !away.IsZero() {
		return memory.ErrUnavailable
	}
	return api.ErrGone
}

// stopRun is POST …/runs/{run}/stop.
func (s *Server) stopRun(c *gin.Context) error {
	chat, r, err := s.find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	if r != nil && r.over(0) {
		api.WriteJSON(c.Writer, http.StatusOK, webapi.StopStatus{RunID: id, Status: webapi.Over})
		return nil
	}
	open, err := s.store.OpenRun(c.Request.Context(), chat)
	switch {
	case r != nil:
		err = s.stop(c.Request.Context(), r)
	case err == nil && open != nil && open.Run == id:
		err = s.stopOpen(c.Request.Context(), open)
	case err == nil:
		record, failed := s.store.Record(c.Request.Context(), chat, id)
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
func (s *Server) stop(ctx context.Context, r *run) error {
	r.mu.Lock()
	at := r.at
	r.mu.Unlock()
	if at == nil {
		return nil // still waiting for its turn: it is withdrawn when its client leaves
	}
	return at.Stop(ctx, r.id)
}
