// Package webtest is a double of webmemory for tests of the commands: its public
// routes over runs that a test plays by hand and histories in memory.
package webtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// Server is a webmemory that runs what Play plays.
type Server struct {
	*httptest.Server
	// Play is a run: it emits what happens and returns. Set it before the first post.
	Play func(*Run)
	// Refuse, if it gives a status, is asked first about every request.
	Refuse func(*http.Request) (status int, code, message string)

	mu        sync.Mutex
	histories event.Copies    // guarded by mu
	runs      map[string]*Run // guarded by mu; by id
	posts     int             // guarded by mu; runs started
	cuts      []int           // guarded by mu; events after which the next connections break
}

// Run is one run of the Server.
type Run struct {
	ID, Message string
	Agent       memory.Agent // the agent that the post was for; empty for the master
	Chat        memory.Chat
	Stopped     chan struct{}           // closed when a stop was asked for
	Answers     chan []event.WaitAnswer // what people answer

	server  *Server
	fold    *event.Histories
	events  []event.Event // guarded by server.mu
	changed chan struct{} // guarded by server.mu; closed at the next event
	stop    sync.Once
}

// New starts a Server that ends with the test.
func New(t *testing.T, play func(*Run)) *Server {
	s := &Server{Play: play, histories: event.Copies{}, runs: map[string]*Run{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chats/{chat}/messages", s.post)
	mux.HandleFunc("GET /v1/chats/{chat}/runs/{run}/events", s.resume)
	mux.HandleFunc("POST /v1/chats/{chat}/runs/{run}/stop", s.stop)
	mux.HandleFunc("POST /v1/chats/{chat}/runs/{run}/resume", s.answer)
	mux.HandleFunc("GET /v1/chats", s.chats)
	mux.HandleFunc("GET /v1/chats/{chat}", s.chat)
	mux.HandleFunc("DELETE /v1/chats/{chat}", s.erase)
	for _, path := range []string{"/v1/chats/{chat}/history", "/v1/chats/{chat}/subagents/{name}/history"} {
		mux.HandleFunc("GET "+path, s.history)
		mux.HandleFunc("DELETE "+path, s.erase)
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		api.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Refuse != nil {
			if status, code, message := s.Refuse(r); status != 0 {
				api.WriteProblem(w, &api.Problem{Status: status, Code: code, Message: message, Retryable: status >= 500})
				return
			}
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Cut breaks the next connections of events, each after so many of them.
func (s *Server) Cut(counts ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts = counts
}

// Posts is the number of runs that were started.
func (s *Server) Posts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posts
}

// Remember puts a message into a history.
func (s *Server) Remember(key memory.Key, m memory.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.histories.Append(key, 0, m)
}

// Start begins a run as a post does.
func (s *Server) Start(chat memory.Chat, id, message string) *Run {
	return s.start(chat, "", id, message)
}

func (s *Server) start(chat memory.Chat, agent memory.Agent, id, message string) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.runs[id]; run != nil {
		return run
	}
	run := &Run{
		ID: id, Message: message, Agent: agent, Chat: chat, Stopped: make(chan struct{}),
		Answers: make(chan []event.WaitAnswer, 1), server: s,
		fold: event.NewHistories(chat, s.histories), changed: make(chan struct{}),
	}
	s.runs[id] = run
	s.posts++
	go s.Play(run) // ends when the test's Play returns
	return run
}

// Emit appends events of no subagent.
func (r *Run) Emit(payloads ...event.Payload) { r.EmitFrom("", "", payloads...) }

// EmitFrom appends events of one delegation.
func (r *Run) EmitFrom(agent memory.Agent, call string, payloads ...event.Payload) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for _, p := range payloads {
		e := event.New(event.Head{
			RunID: r.ID, Seq: int64(len(r.events) + 1), TS: 1763711157.25, Subagent: agent, CallID: call,
		}, p)
		r.events = append(r.events, e)
		_ = r.fold.Apply(e) // a Copies never fails
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	var p webapi.MessageRequest
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		api.WriteProblem(w, api.BadRequest(err))
		return
	}
	id := "run-" + r.Header.Get(webapi.IdempotencyKey)
	s.send(w, r, s.start(memory.MustChat(r.PathValue("chat")), memory.Agent(p.AgentVersion), id, p.Message), 0)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	run := s.runs[r.PathValue("run")]
	s.mu.Unlock()
	if run == nil {
		api.WriteProblem(w, api.ErrUnknownRun)
		return
	}
	cursor, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	s.send(w, r, run, cursor)
}

// answer hands answers to a run that waits, and sends what follows.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	var body webapi.ResumeRequest
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		api.WriteProblem(w, api.BadRequest(err))
		return
	}
	s.mu.Lock()
	run := s.runs[r.PathValue("run")]
	cursor := len(run.events)
	s.mu.Unlock()
	run.Answers <- body.Answers
	s.send(w, r, run, cursor)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, run *Run, cursor int) {
	s.mu.Lock()
	cut := -1
	if len(s.cuts) > 0 {
		cut, s.cuts = s.cuts[0], s.cuts[1:]
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	for n := 0; ; {
		s.mu.Lock()
		events, changed := run.events[min(cursor, len(run.events)):], run.changed
		s.mu.Unlock()
		_ = flush()
		for _, e := range events {
			if n == cut {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, ": comment\nid: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Role(), e.Line())
			_ = flush()
			cursor, n = cursor+1, n+1
			if e.Terminal() || e.Blocking() && cursor == s.emitted(run) {
				return
			}
		}
		if n == cut {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// emitted is how many events a run has.
func (s *Server) emitted(run *Run) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(run.events)
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	run := s.runs[r.PathValue("run")]
	s.mu.Unlock()
	if run == nil {
		api.WriteProblem(w, api.ErrUnknownRun)
		return
	}
	run.stop.Do(func() { close(run.Stopped) })
	w.WriteHeader(http.StatusAccepted)
}

// chats gives pages of two, so that paging shows.
func (s *Server) chats(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for key := range s.histories {
		ids = append(ids, key.Chat().String())
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= r.FormValue("cursor") })
	var page webapi.ChatList
	for _, id := range ids[:min(2, len(ids))] {
		page.Chats = append(page.Chats, webapi.ChatEntry{ChatID: memory.MustChat(id)})
	}
	if len(ids) > 2 {
		page.NextCursor = ids[1]
	}
	api.WriteJSON(w, http.StatusOK, page)
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := webapi.ChatInfo{ChatID: memory.MustChat(r.PathValue("chat"))}
	for key, messages := range s.histories {
		if key.Chat() == info.ChatID {
			size := 1
			for _, m := range messages {
				size += len(m.Encode()) + 1
			}
			info.Histories = append(info.Histories, webapi.HistoryInfo{
				Key: key.String(), Subagent: key.Agent(), Messages: len(messages), Bytes: size,
			})
		}
	}
	slices.SortFunc(info.Histories, func(a, b webapi.HistoryInfo) int { return strings.Compare(a.Key, b.Key) })
	for _, run := range s.runs {
		if run.Chat == info.ChatID && !slices.ContainsFunc(run.events, event.Event.Terminal) {
			info.Run = run.ID
			if n := len(run.events); n > 0 && run.events[n-1].Blocking() {
				info.Run, info.Waiting = "", &webapi.Waiting{Outcome: webapi.OutcomeWaiting, RunID: run.ID,
					Pending: run.events[n-1].Payload.(*event.RunWaiting).Pending}
			}
		}
	}
	api.WriteJSON(w, http.StatusOK, info)
}

func requestKey(r *http.Request) memory.Key {
	chat := memory.MustChat(r.PathValue("chat"))
	if name := r.PathValue("name"); name != "" {
		return memory.SubagentKey(memory.Agent(name), chat)
	}
	return memory.ChatKey(chat)
}

// history gives pages of three at most, so that paging shows.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages := s.histories[requestKey(r)]
	offset, _ := strconv.Atoi(r.FormValue("offset"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	if offset < 0 {
		offset = max(0, len(messages)+offset)
	}
	end := min(len(messages), offset+min(limit, 3))
	page := webapi.HistoryPage{
		Key: requestKey(r).String(), Total: len(messages), Offset: offset, Messages: []json.RawMessage{},
	}
	for _, m := range messages[min(offset, len(messages)):end] {
		page.Messages = append(page.Messages, m.Encode())
	}
	if end < len(messages) {
		page.NextOffset = end
	}
	api.WriteJSON(w, http.StatusOK, page)
}

func (s *Server) erase(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entireChat := !strings.HasSuffix(r.URL.Path, "/history")
	erased := []string{}
	for key := range s.histories {
		if key == requestKey(r) || entireChat && key.Chat().String() == r.PathValue("chat") {
			erased = append(erased, key.String())
			delete(s.histories, key)
		}
	}
	slices.Sort(erased)
	api.WriteJSON(w, http.StatusOK, webapi.Erased{Erased: erased})
}
