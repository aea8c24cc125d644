package jsonrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
)

// Handler takes what the peer sends on its own. The reader calls it: it must not
// wait for anything, a Call least of all; Reply and Post it may use. Params and
// results are its to keep.
type Handler interface {
	// Notify takes a notification.
	Notify(c *Conn, method string, params jsontext.Value)
	// Request takes a call by the peer and says whether this side will Reply. False refuses
	// it as unknown, so that the peer does not wait forever.
	Request(c *Conn, id ID, method string, params jsontext.Value) bool
	// Late takes the result of a call after its context had ended. Failed ones are only
	// counted.
	Late(c *Conn, method string, result jsontext.Value)
}

// Config bounds a Conn. A zero value means its default.
type Config struct {
	MaxFrame     int           // bytes of a body, either way; 32 MiB
	WriteTimeout time.Duration // for one frame; 10 s
	MaxQueue     int           // replies and posts that wait for the writer; 1024
	Log          zerolog.Logger
}

// maxSkipped is the length of a run of unsound frames that ends the connection.
const maxSkipped = 16

// Conn is a connection. Its methods may be called from any goroutine.
type Conn struct {
	conn     net.Conn
	config   Config
	handler  Handler
	table    table
	counters counters

	calls chan []byte // frames that a caller waits to hand over; unbuffered
	posts chan []byte // frames that no caller waits for

	done  chan struct{} // closed by end, after err was set
	once  sync.Once
	err   error
	tasks sync.WaitGroup // reader and writer
}

// New starts to speak over a connection, which belongs to the Conn from now on.
// Close ends it.
func New(conn net.Conn, handler Handler, config Config) *Conn {
	config.MaxFrame = cmp.Or(config.MaxFrame, 32<<20)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, 10*time.Second)
	config.MaxQueue = cmp.Or(config.MaxQueue, 1024)
	c := &Conn{
		conn: conn, config: config, handler: handler,
		calls: make(chan []byte), posts: make(chan []byte, config.MaxQueue), done: make(chan struct{}),
	}
	c.tasks.Go(c.read)
	c.tasks.Go(c.write)
	return c
}

// Call calls a method of the peer and decodes its result, if result is not nil.
// A null result leaves it as it is.
//
// It ends with the answer, with ctx, or with the connection. An *Error is the
// peer's; ErrUnsent comes with the cause of ctx when the peer has not heard of the
// call. A frame that is being written is not torn by the end of ctx.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	w := waiting{method: method, answered: make(chan outcome, 1)}
	id := c.table.add(w)
	out, err := c.encode(call{Version: version, ID: id, Method: method, Params: params})
	if err != nil {
		c.table.giveUp(id, false)
		return err
	}
	select {
	case c.calls <- out:
	case <-ctx.Done():
		c.table.giveUp(id, false)
		return fmt.Errorf("%s: %w: %w", method, ErrUnsent, context.Cause(ctx))
	case <-c.done:
		c.table.giveUp(id, false)
		return fmt.Errorf("%s: %w", method, c.err)
	}
	select {
	case o := <-w.answered:
		return o.decode(method, result)
	case <-ctx.Done():
		if c.table.giveUp(id, true) {
			return fmt.Errorf("%s: %w", method, context.Cause(ctx))
		}
	case <-c.done:
	}
	// The answer is being handed over, or was the last thing that was read.
	select {
	case o := <-w.answered:
		return o.decode(method, result)
	case <-c.done:
	}
	select {
	case o := <-w.answered:
		return o.decode(method, result)
	default:
		return fmt.Errorf("%s: %w", method, c.err)
	}
}

func (o outcome) decode(method string, result any) error {
	if o.err != nil || result == nil || string(o.result) == "null" {
		return o.err
	}
	if err := Decode(o.result, result); err != nil {
		return fmt.Errorf("%w: the result of %s: %w", ErrProtocol, method, err)
	}
	return nil
}

// Post calls a method without waiting for its answer. It never waits; false means that
// the queue of the writer is full and nothing will be sent.
func (c *Conn) Post(method string, params any) bool {
	return c.enqueue(call{Version: version, ID: c.table.post(method), Method: method, Params: params})
}

// Reply answers a call by the peer, with refused if that is not nil. It never
// waits; false means that the queue of the writer is full and the peer will wait
// in vain.
func (c *Conn) Reply(id ID, result any, refused *Error) bool {
	if refused != nil {
		return c.enqueue(refusal{Version: version, ID: id, Error: refused})
	}
	return c.enqueue(answer{Version: version, ID: id, Result: result})
}

func (c *Conn) enqueue(message any) bool {
	out, err := c.encode(message)
	if err == nil {
		select {
		case c.posts <- out:
			return true
		default:
			err = errors.New("the queue of the writer is full")
		}
	}
	c.counters.dropped.Add(1)
	c.config.Log.Warn().Err(err).Msg("a message for the peer was dropped")
	return false
}

// Done is closed when the connection has ended; Err then says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended: ErrStopped, or ErrTransportClosed with its
// cause. It is nil before Done is closed.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and waits for its goroutines. It may be called again,
// but not by a Handler.
func (c *Conn) Close() error {
	c.end(ErrStopped)
	c.tasks.Wait()
	return nil
}

// Fail ends the connection as if it had broken for this reason.
func (c *Conn) Fail(cause error) { c.end(fmt.Errorf("%w: %w", ErrTransportClosed, cause)) }

// end ends the connection; the first reason stays.
func (c *Conn) end(err error) {
	c.once.Do(func() {
		c.err = err
		_ = c.conn.Close() // wakes the reader and a write that hangs
		close(c.done)
		c.table.clear()
	})
}

// write is the goroutine that writes.
func (c *Conn) write() {
	for {
		var out []byte
		select {
		case out = <-c.calls:
		case out = <-c.posts:
		case <-c.done:
			return
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.config.WriteTimeout)) // a failure shows in Write
		if _, err := c.conn.Write(out); err != nil {
			c.Fail(fmt.Errorf("writing: %w", err))
			return
		}
		c.counters.framesOut.Add(1)
	}
}
