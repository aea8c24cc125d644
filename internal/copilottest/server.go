package copilottest

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/sourcegraph/jsonrpc2"
)

// Message is a call by the client.
type Message struct {
	ID     *json.RawMessage `json:"id"` // nil: a notification
	Method string           `json:"method"`
	Params json.RawMessage  `json:"params"`
	Result json.RawMessage  `json:"result"` // of an answer
	Error  json.RawMessage  `json:"error"`  // of an answer
}

// Session is the id of the session that a message is about, or empty.
func (m Message) Session() string {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal(m.Params, &p)
	return p.SessionID
}

// Handler answers a call. Calls of one connection come one after the other; a
// handler that waits holds up the next ones, see Conn.Go.
type Handler func(c *Conn, m Message)

// Server is a fake CLI. Its methods may be called from any goroutine.
type Server struct {
	// Token, if set before the first connection, is what connect must present.
	Token string
	// Protocol is the version that connect tells; 3 if it is 0.
	Protocol int

	t        testing.TB
	listener net.Listener
	tasks    sync.WaitGroup

	mu       sync.Mutex
	stopped  bool
	conns    []*Conn
	handlers map[string]Handler
	script   func(*Turn)
	messages []Message
	arrived  chan struct{} // closed and replaced at every message
	// transcripts are the sessions that can be resumed, with what was said in them.
	transcripts map[string][]string
}

// New is a server that listens nowhere, see Pipe. It ends with the test, which
// waits for its goroutines.
func New(t testing.TB) *Server {
	s := &Server{t: t, handlers: map[string]Handler{}, transcripts: map[string][]string{}, arrived: make(chan struct{}),
		script: Echo}
	t.Cleanup(s.Stop)
	return s
}

// Start is a server on a free port of loopback.
func Start(t testing.TB) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(t)
	s.listener = listener
	s.tasks.Go(s.accept)
	return s
}

// Pipe is the client's end of a connection in memory, for tests that own the time.
func (s *Server) Pipe() net.Conn {
	near, far := net.Pipe()
	s.serve(far)
	return near
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stop ends the server and every connection. It may be called again.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.Drop()
	s.tasks.Wait()
}

// Drop ends every connection. Sessions stay known and can be resumed, as on a CLI
// that was killed and started again.
func (s *Server) Drop() {
	for _, c := range s.Conns() {
		c.Close()
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.serve(conn)
	}
}

// serve answers a connection until it ends.
func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Conn{
		Net: conn, server: s, cancel: cancel, ctx: ctx, pending: map[int]chan Message{}, live: map[string]*session{},
		stream: jsonrpc2.NewBufferedStream(conn, jsonrpc2.VSCodeObjectCodec{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		c.Close()
		return
	}
	s.conns = append(s.conns, c)
	s.tasks.Go(c.serve)
}

// Conns are the connections, oldest first, those that have ended included.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.conns)
}

// Handle replaces what the server does with a method. The handler may call Default.
func (s *Server) Handle(method string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[method] = h
}

// Script replaces what turns do; the first is Echo.
func (s *Server) Script(f func(*Turn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}

// Calls returns the calls of a method, in order of arrival.
func (s *Server) Calls(method string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callsLocked(method)
}

func (s *Server) callsLocked(method string) []Message {
	var out []Message
	for _, m := range s.messages {
		if m.Method == method {
			out = append(out, m)
		}
	}
	return out
}

// Await waits until there were n calls of a method, and returns them. An answer to
// a call by the server counts as method "".
func (s *Server) Await(ctx context.Context, method string, n int) []Message {
	s.t.Helper()
	for {
		s.mu.Lock()
		calls, arrived := s.callsLocked(method), s.arrived
		s.mu.Unlock()
		if len(calls) >= n {
			return calls
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			s.t.Errorf("waited for %d calls of %q, there were %d", n, method, len(calls))
			return calls
		}
	}
}

// Live are the sessions that some connection has, sorted.
func (s *Server) Live() []string {
	var out []string
	for _, c := range s.Conns() {
		c.mu.Lock()
		for id := range c.live {
			out = append(out, id)
		}
		c.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// Transcript returns the prompts and answers of a session, in order.
func (s *Server) Transcript(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.transcripts[id])
}

func (s *Server) say(id, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if transcript, ok := s.transcripts[id]; ok {
		s.transcripts[id] = append(transcript, text)
	}
}

// note keeps a message and finds its handler.
func (s *Server) note(m Message) Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
	close(s.arrived)
	s.arrived = make(chan struct{})
	if h := s.handlers[m.Method]; h != nil {
		return h
	}
	return s.Default
}
