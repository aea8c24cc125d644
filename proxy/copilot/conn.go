package copilot

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
	"github.com/tidwall/gjson"
)

const (
	maxHeader    = 64 << 10 // bytes
	maxSkipped   = 16       // frames in a row that are no messages
	maxPosts     = 1024     // unwritten messages without a waiting caller
	maxAbandoned = 1024     // unanswered calls without a waiting caller
)

// lenient accepts duplicate member names, because a model may have written the value.
var lenient = jsontext.AllowDuplicateNames(true)

// decode decodes params or a result. It ignores members that v does not have.
func decode(raw jsontext.Value, v any) error { return json.Unmarshal(raw, v, lenient) }

// conn is a JSON-RPC connection to the CLI. It implements the stream and the handler of the library's
// connection. The library's reader calls ReadObject and Handle. It must never wait for anything else.
type conn struct {
	router *Router
	net    net.Conn
	limit  *io.LimitedReader // of the current frame
	in     *bufio.Reader
	params jsontext.Value // of the message that the reader handles

	rpc    func() *jsonrpc2.Conn // starts the reader at its first call
	ctx    context.Context       // ends with the connection; its cause is why
	cancel context.CancelCauseFunc
	posts  chan func(*jsonrpc2.Conn) error // messages without a waiting caller, in order

	abandoned atomic.Int64 // unanswered calls without a waiting caller
}

func newConn(c net.Conn, r *Router) *conn {
	out := &conn{router: r, net: c, limit: &io.LimitedReader{R: c}, posts: make(chan func(*jsonrpc2.Conn) error, maxPosts)}
	out.in = bufio.NewReaderSize(out.limit, maxHeader)
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	out.rpc = sync.OnceValue(func() *jsonrpc2.Conn {
		return jsonrpc2.NewConn(out.ctx, out, out, jsonrpc2.SetLogger(&r.config.Log))
	})
	go out.writePosts() // ends with the connection
	return out
}

// ReadObject implements [jsonrpc2.ObjectStream]. It skips a frame that is no message. Broken framing ends
// the connection, because the start of the next frame is unknown.
func (c *conn) ReadObject(message any) error {
	for range maxSkipped {
		body, err := c.readFrame()
		if err != nil {
			return c.fail(fmt.Errorf("reading: %w", err))
		}
		c.router.counters.framesIn.Add(1)
		// The library decodes params to maps. That is slow and changes the order of a tool call's
		// arguments, so Handle gets them from here.
		head := gjson.GetManyBytes(body, "id", "method", "params")
		if c.params = jsontext.Value(head[2].Raw); head[1].Exists() {
			body = fmt.Appendf(nil, `{"id":%s,"method":%s}`, cmp.Or(head[0].Raw, "null"), head[1].Raw)
		}
		if err = decode(body, message); err == nil {
			return nil
		}
		c.router.config.Log.Warn().Err(err).Msg("skipped a frame that is no message")
	}
	return c.fail(fmt.Errorf("%w: %d frames in a row that are no messages", ErrProtocol, maxSkipped))
}

// readFrame returns the body of the next frame. It rejects a body above MaxFrame before it reads it.
func (c *conn) readFrame() ([]byte, error) {
	limit := c.router.config.MaxFrame
	c.limit.N = int64(limit) + maxHeader
	header, err := textproto.NewReader(c.in).ReadMIMEHeader()
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if err != nil {
		return nil, err
	}
	text := header.Get("Content-Length")
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case n > uint64(limit):
		return nil, fmt.Errorf("%w: %.20s bytes, above %d", ErrFrameTooLarge, text, limit)
	case err != nil || n == 0:
		return nil, fmt.Errorf("%w: Content-Length is %.40q", ErrProtocol, text)
	}
	body := make([]byte, n)
	_, err = io.ReadFull(c.in, body)
	return body, err
}

// WriteObject implements [jsonrpc2.ObjectStream]. A message above MaxFrame fails alone. A failed write may
// have left half a frame, so it ends the connection.
func (c *conn) WriteObject(message any) error {
	if err := c.Err(); err != nil {
		return err
	}
	body, err := json.Marshal(message, lenient)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if limit := c.router.config.MaxFrame; len(body) > limit {
		return fmt.Errorf("%w: %d bytes, above %d", ErrFrameTooLarge, len(body), limit)
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(c.router.config.WriteTimeout)) // Write reports the failure
	if _, err := c.net.Write(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n%s", len(body), body)); err != nil {
		return c.fail(fmt.Errorf("writing: %w", err))
	}
	c.router.counters.framesOut.Add(1)
	return nil
}

// Close implements [jsonrpc2.ObjectStream]. The library calls it after the connection has ended.
func (c *conn) Close() error { return c.net.Close() }

// Handle implements [jsonrpc2.Handler].
func (c *conn) Handle(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) {
	switch b := (*inbox)(c.router); {
	case r.Notif:
		b.notify(r.Method, c.params)
	case r.Method == methodToolCall:
		b.callTool(r.ID, c.params)
	default:
		c.refuse(r.ID, jsonrpc2.CodeMethodNotFound, "Unhandled method "+r.Method)
	}
}

// call calls a method of the CLI and decodes its result, unless result is nil or the CLI returns null. It
// returns at the answer, the end of ctx or the end of the connection. An *RPCError is a refusal by the CLI.
// The end of ctx does not interrupt the write of a frame.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	body, err := json.Marshal(params, lenient)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	c.router.counters.pending.Add(1)
	defer c.router.counters.pending.Add(-1)
	var raw jsontext.Value
	answers := make(chan error)
	go func() { // ends with the answer or the connection
		err := c.exchange(method, body, &raw)
		select {
		case answers <- err:
		case <-ctx.Done():
			c.abandoned.Add(-1)
			(*inbox)(c.router).late(method, raw, err)
		}
	}()
	select {
	case err = <-answers:
	case <-ctx.Done():
		if c.abandoned.Add(1) > maxAbandoned {
			_ = c.fail(fmt.Errorf("%w: it left %d calls unanswered", ErrHangs, maxAbandoned))
		}
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
	if err != nil || result == nil || string(raw) == "null" {
		return err
	}
	if err := decode(raw, result); err != nil {
		return fmt.Errorf("%w: the result of %s: %w", ErrProtocol, method, err)
	}
	return nil
}

// exchange sends a call and waits for the answer or the end of the connection.
func (c *conn) exchange(method string, params jsontext.Value, result *jsontext.Value) error {
	err := c.rpc().Call(context.Background(), method, params, result)
	var refused *jsonrpc2.Error
	switch {
	case errors.As(err, &refused):
		return &RPCError{Code: int(refused.Code), Message: refused.Message, Method: method}
	case err != nil && c.Err() != nil:
		return fmt.Errorf("%s: %w", method, c.Err())
	}
	return err
}

// post calls a method without waiting for the answer. It never blocks.
func (c *conn) post(method string, params any) {
	c.send(func(rpc *jsonrpc2.Conn) error {
		_, err := rpc.DispatchCall(context.Background(), method, params)
		return err
	})
}

// refuse answers a call by the CLI with an error. It never blocks.
func (c *conn) refuse(id jsonrpc2.ID, code int64, message string) {
	c.send(func(rpc *jsonrpc2.Conn) error {
		return rpc.ReplyWithError(context.Background(), id, &jsonrpc2.Error{Code: code, Message: message})
	})
}

// reply answers a call by the CLI. It never blocks. A result above MaxFrame is an error.
func (c *conn) reply(id jsonrpc2.ID, result any) error {
	body, err := json.Marshal(result, lenient)
	switch {
	case err != nil:
		return fmt.Errorf("encoding a result: %w", err)
	case len(body) > c.router.config.MaxFrame-1024: // for the members beside it
		return fmt.Errorf("%w: a result of %d bytes", ErrFrameTooLarge, len(body))
	case !c.send(func(rpc *jsonrpc2.Conn) error { return rpc.Reply(context.Background(), id, jsontext.Value(body)) }):
		return errors.New("too many messages wait for the CLI")
	}
	return nil
}

// send queues a message. It never blocks. It reports false if maxPosts messages are waiting.
func (c *conn) send(write func(*jsonrpc2.Conn) error) bool {
	select {
	case c.posts <- write:
		return true
	default:
		c.router.config.Log.Warn().Msg("dropped a message for the CLI: too many are waiting")
		return false
	}
}

func (c *conn) writePosts() {
	for {
		select {
		case write := <-c.posts:
			if err := write(c.rpc()); err != nil && c.Err() == nil {
				c.router.config.Log.Warn().Err(err).Msg("dropped a message for the CLI")
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// Err returns why the connection ended, or nil while it is open.
func (c *conn) Err() error { return context.Cause(c.ctx) }

// stop ends the connection from this side. It may be called again.
func (c *conn) stop() {
	c.cancel(ErrRouterStopped)
	_ = c.net.Close()
}

// fail ends the connection for a reason, which it returns. The first reason is kept.
func (c *conn) fail(cause error) error {
	c.cancel(fmt.Errorf("%w: %w", ErrTransportClosed, cause))
	return cause
}
