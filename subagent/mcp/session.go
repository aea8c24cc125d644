package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme"
)

// errEnded is why the session with a program is over.
var errEnded = errors.New("its program has ended")

// oldEra is the last version of the protocol that has sessions.
const oldEra = "2025-11-25"

// session is one with a server. It ends when fail was called.
type session struct {
	*mcp.ClientSession
	ctx      context.Context // until the session breaks; its cause says why
	fail     func(error)
	conn     mcp.Connection
	process  *process // nil over HTTP
	link     *link    // nil for a program
	server   *server
	running  sync.WaitGroup
	answered atomic.Bool  // at least one call
	calls    atomic.Int64 // under way

	mu       sync.Mutex
	progress map[string]func(string) // by progress token
}

// open makes a session. Each other attempt is of the older era only, for servers that are silent
// on what they do not know.
func (s *server) open(ctx context.Context, attempt int) (*session, error) {
	sctx, cancel := context.WithCancelCause(context.Background())
	se := &session{ctx: sctx, fail: cancel, server: s, progress: map[string]func(string){}}
	var transport mcp.Transport
	if len(s.config.Command) > 0 {
		var err error
		if se.process, err = start(s.config, s.log); err != nil {
			cancel(err)
			return nil, fmt.Errorf("%w: %w", errEnded, err)
		}
		context.AfterFunc(sctx, se.process.closePipes)
		transport = &mcp.IOTransport{
			Reader:        readCloser{newLines(sctx, se.process.out, isMessage, cancel), se.process.out},
			Writer:        input{se.process.in, cancel},
			MaxLineLength: maxMessage + 1,
		}
	} else {
		se.link = newLink(se, s.config)
		transport = &mcp.StreamableClientTransport{
			Endpoint: s.config.URL, HTTPClient: se.link.client(), MaxEventSize: maxMessage,
		}
	}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	options := &mcp.ClientSessionOptions{}
	if attempt%2 == 1 {
		options.ProtocolVersion = oldEra
	}
	var err error
	se.ClientSession, err = s.client(se).Connect(sctx, &trackedTransport{transport, &se.conn}, options)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(sctx); cause != nil {
			err = cause
		}
		if se.process != nil && (errors.Is(err, io.EOF) || errors.Is(err, mcp.ErrConnectionClosed)) {
			err = fmt.Errorf("%w: %w", errEnded, err)
		}
		se.fail(err)
		se.end()
		return nil, err
	}
	se.running.Go(func() { // until the connection ends, which end sees to
		err := se.Wait()
		if se.process != nil && (err == nil || errors.Is(err, io.EOF)) {
			err = errEnded
		}
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		se.fail(err)
	})
	return se, nil
}

// client is what the SDK needs to know of us.
func (s *server) client(se *session) *mcp.Client {
	c := mcp.NewClient(&mcp.Implementation{Name: "mneme", Version: mneme.Version()}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}},
		},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case s.relist <- struct{}{}:
			default: // it will be read anyway
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { se.tell(r.Params) },
	})
	c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if p, ok := r.GetParams().(*mcp.InitializeParams); ok {
				p.Capabilities = &mcp.ClientCapabilities{} // in that era a question cannot wait for days
			}
			return next(ctx, method, r)
		}
	})
	return c
}

// end ends what is left of a session, and its process.
func (se *session) end() {
	if se.process != nil {
		se.process.stop(se.server.log)
	}
	if se.conn != nil {
		_ = se.conn.Close() // over HTTP it tells the server
	}
	se.fail(context.Canceled)
	if se.ClientSession != nil {
		_ = se.Close()
	}
	se.running.Wait()
	if se.link != nil {
		se.link.next.CloseIdleConnections()
	}
}

// trackedTransport is a transport with a connection that is noted, so that it can be closed whatever the SDK waits for.
type trackedTransport struct {
	mcp.Transport
	conn *mcp.Connection
}

func (n *trackedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := n.Transport.Connect(ctx)
	*n.conn = c
	return c, err
}

type readCloser struct {
	io.Reader
	io.Closer
}
