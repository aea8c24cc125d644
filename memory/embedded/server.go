package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/journal"
)

// maxOutside bounds the connections to the TCP listener at a time.
const maxOutside = 128

// errClosed is returned by Dial after Close.
var errClosed = errors.New("the embedded store is closed")

// Options say where the store keeps its data and where one may look at it.
type Options struct {
	Dir    string // the journal's folder, created with mode 0700; one process at a time
	Listen string // host:port of the read-only TCP listener, port 0 for any; "" for none
	Log    zerolog.Logger

	now func() time.Time // the wall clock; tests set their own
}

// Server is an open store: an engine in memory, a journal and the connections to it. Its methods
// may be called from any goroutine.
type Server struct {
	log      zerolog.Logger
	now      func() time.Time
	journal  *journal.Journal
	listener net.Listener // nil without Options.Listen
	stop     chan struct{}
	running  sync.WaitGroup // every goroutine of the server; Close waits for them

	// mu makes commands serial, which gives the journal its order.
	mu     sync.Mutex
	engine *engine // nil when it could not be rebuilt: everything is refused
	broken error   // why writes are refused
	live   int64   // size of the live data when it was last known, in bytes of journal
	writes int64   // records that were appended since the store was opened

	rounds rounds // compactions that were asked for

	connMu  sync.Mutex
	closed  bool
	clients map[*client]struct{}
	outside int // clients of the TCP listener
}

// Open reads the journal of opts.Dir and starts serving. ctx bounds the opening only; Close ends the store.
//
// Errors are sentences for the user: *journal.InUseError and *journal.CorruptError may be in them, and a folder that
// cannot be used or a port that is taken name the setting to change.
func Open(ctx context.Context, opts Options) (*Server, error) {
	s := &Server{log: opts.Log, now: opts.now, stop: make(chan struct{}), clients: map[*client]struct{}{}}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.load(ctx, opts.Dir); err != nil {
		return nil, err
	}
	if opts.Listen != "" {
		var lc net.ListenConfig
		var err error
		if s.listener, err = lc.Listen(ctx, "tcp", opts.Listen); err != nil {
			return nil, errors.Join(listenError(opts.Listen, err), s.journal.Close())
		}
		s.running.Go(s.accept)
	}
	s.running.Go(s.tend)
	return s, nil
}

// listenError is the sentence for a port that cannot be used.
func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the embedded store cannot listen on %s: the port is taken; stop the program that uses it, "+
			"or set redis.embedded_listen to another address", addr)
	}
	return fmt.Errorf("the embedded store cannot listen on %s (redis.embedded_listen): %w", addr, err)
}

// load opens the journal and rebuilds the engine's state from it.
func (s *Server) load(ctx context.Context, dir string) error {
	e, err := newEngine()
	if err != nil {
		return err
	}
	var j *journal.Journal
	var recovered journal.Recovered
	err = e.restore(func(replay func([]byte) error) (err error) {
		j, recovered, err = journal.Open(dir, journal.Options{}, func(payload []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return replay(payload)
		})
		return err
	})
	if _, ok := errors.AsType[*journal.InUseError](err); ok {
		return err // says it all
	}
	if err != nil {
		if j != nil {
			err = errors.Join(err, j.Close())
		}
		return fmt.Errorf("the embedded store cannot use its folder %s (in data_dir): %w", dir, err)
	}
	switch {
	case recovered.Altered:
		s.log.Error().Int64("bytes", recovered.Dropped).Str("dir", dir).
			Msg("embedded store: the last write in the journal was damaged and is dropped, though it may have been " +
				"acknowledged; a backup may have it")
	case recovered.Dropped > 0:
		s.log.Warn().Int64("bytes", recovered.Dropped).Str("dir", dir).
			Msg("embedded store: dropped a write that was cut short when the last process ended; it had not been acknowledged")
	}
	s.journal, s.engine = j, e
	e.advance(s.now())
	if err := s.measure(); err != nil {
		return errors.Join(fmt.Errorf("the embedded store cannot use its folder %s (in data_dir): %w", dir, err), j.Close())
	}
	s.compactIfLarge(false)
	return nil
}

// Addr is the address of the TCP listener, nil when there is none.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Dial opens a connection that may write, whatever network and addr say: it is the Dialer of the program's own go-redis
// client. It fails with errClosed after Close.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	if !s.admit(newClient(s, ours, false)) {
		return nil, errClosed
	}
	return theirs, nil
}

// Close ends every connection, waits for the commands that run, syncs the journal and lets go of the folder. A second
// Close does nothing.
func (s *Server) Close() error {
	s.connMu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
		if s.listener != nil {
			s.listener.Close()
		}
		for c := range s.clients {
			c.conn.Close()
		}
	}
	s.connMu.Unlock()
	s.running.Wait()
	return s.journal.Close()
}

// accept takes clients of the TCP listener until Close closes it.
func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no free file descriptor, which passes
			select {
			case <-s.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.admit(newClient(s, conn, true))
	}
}

// admit starts to serve a client. It closes the connection and reports false after Close, and when
// too many are connected from outside.
func (s *Server) admit(c *client) bool {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if s.closed || c.outside && s.outside == maxOutside {
		c.conn.Close()
		return false
	}
	if c.outside {
		s.outside++
	}
	s.clients[c] = struct{}{}
	s.running.Go(func() {
		c.serve()
		s.connMu.Lock()
		defer s.connMu.Unlock()
		delete(s.clients, c)
		if c.outside {
			s.outside--
		}
	})
	return true
}

// start runs work in a goroutine that Close waits for. It reports false after Close.
func (s *Server) start(work func()) bool {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if !s.closed {
		s.running.Go(work)
	}
	return !s.closed
}
