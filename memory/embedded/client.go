package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"mneme/memory/journal"
)

const (
	// maxUnread is how many bytes of replies may wait for a client that does not read.
	maxUnread    = 1 << 30
	writeTimeout = time.Minute
)

// client is one connection. Its fields belong to the goroutine that runs serve.
type client struct {
	store   *Server
	conn    net.Conn
	outside bool         // the connection came in by the TCP listener, which is read-only
	peer    *server.Peer // the engine's view of the connection; writes into reply
	reply   bytes.Buffer

	queueing    bool // between MULTI and EXEC
	spoiled     bool // a command in the queue was refused, EXEC will be too
	queue       [][]string
	queuedBytes int
}

func newClient(store *Server, conn net.Conn, outside bool) *client {
	c := &client{store: store, conn: conn, outside: outside}
	c.peer = server.NewPeer(bufio.NewWriter(&c.reply))
	return c
}

// serve answers commands until the connection ends. Replies go through an outbox with a writer of
// its own, because a client may send a long pipeline before it reads the first reply: if the reader
// waited for the client to read, both sides would wait for ever.
func (c *client) serve() {
	var out outbox
	out.changed.L = &out.mu
	var writer sync.WaitGroup
	writer.Go(func() { out.writeTo(c.conn) })
	defer writer.Wait()
	defer out.finish()

	lim := insideLimits
	if c.outside {
		lim = outsideLimits
	}
	in := bufio.NewReaderSize(c.conn, 1<<15)
	for !c.peer.Closed() {
		args, err := readCommand(in, lim)
		switch {
		case errors.Is(err, errProtocol):
			c.peer.WriteError("ERR " + err.Error())
			c.peer.Close()
		case err != nil:
			return
		case len(args) > 0:
			c.handle(args)
		}
		c.peer.Flush()
		if !out.add(c.reply.Bytes()) {
			return
		}
		c.reply = bytes.Buffer{}
	}
}

// handle implements transactions (MULTI, EXEC, DISCARD) itself instead of leaving them to the
// engine, because the commands of a transaction have to reach the journal as one record.
func (c *client) handle(args []string) {
	switch strings.ToUpper(args[0]) {
	case "MULTI":
		if c.queueing {
			c.peer.WriteError("ERR MULTI calls can not be nested")
			return
		}
		c.queueing = true
		c.peer.WriteOK()
	case "DISCARD":
		if !c.queueing {
			c.peer.WriteError("ERR DISCARD without MULTI")
			return
		}
		c.endQueue()
		c.peer.WriteOK()
	case "EXEC":
		c.exec()
	case "WATCH", "UNWATCH":
		c.spoiled = c.queueing
		c.peer.WriteError(unsupportedCommand(args[0]) + ", or use a script")
	default:
		c.command(args)
	}
}

// command runs a command, or queues it inside a transaction.
func (c *client) command(args []string) {
	if sentence := refusal(c.outside, args); sentence != "" {
		c.spoiled = c.queueing
		c.peer.WriteError(sentence)
		return
	}
	if !c.queueing {
		c.store.execute(c, [][]string{args}, false)
		return
	}
	for _, arg := range args {
		c.queuedBytes += len(arg)
	}
	if c.queuedBytes > insideLimits.bytes || len(c.queue) == insideLimits.args {
		c.spoiled = true
		c.peer.WriteError("ERR the transaction is larger than mneme's embedded store allows")
		return
	}
	c.queue = append(c.queue, args)
	c.peer.WriteInline("QUEUED")
}

// exec runs the queued commands as one unit, or refuses them all if one of them was refused.
func (c *client) exec() {
	if !c.queueing {
		c.peer.WriteError("ERR EXEC without MULTI")
		return
	}
	queue, spoiled := c.queue, c.spoiled
	c.endQueue()
	if spoiled {
		c.peer.WriteError("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.store.execute(c, queue, true)
}

func (c *client) endQueue() {
	c.queueing, c.spoiled, c.queue, c.queuedBytes = false, false, nil, 0
}

// replaceReply drops what was answered so far in favour of an error, for a change that was rolled
// back.
func (c *client) replaceReply(sentence string) {
	c.peer.Flush()
	c.reply.Reset()
	c.peer.WriteError(sentence)
}

// outbox is a queue of replies between the goroutine that runs commands and the one that writes to
// the connection. It is bounded by maxUnread.
type outbox struct {
	mu       sync.Mutex
	changed  sync.Cond
	waiting  []byte
	finished bool
}

// add queues a reply and keeps its bytes. It reports false when the client is gone or has left
// more than maxUnread bytes unread.
func (o *outbox) add(reply []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || len(o.waiting)+len(reply) > maxUnread {
		return false
	}
	if len(o.waiting) == 0 {
		o.waiting = reply
	} else {
		o.waiting = append(o.waiting, reply...)
	}
	o.changed.Signal()
	return true
}

// finish says that no reply follows; those that are queued are still sent.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.changed.Signal()
}

// take waits for replies and returns all that are queued; nil means that none will follow.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) == 0 && !o.finished {
		o.changed.Wait()
	}
	b := o.waiting
	o.waiting = nil
	return b
}

// writeTo sends replies until the outbox is finished and empty or the client is gone, and closes
// the connection, which ends the reader too.
func (o *outbox) writeTo(conn net.Conn) {
	defer conn.Close() // ends the reader's wait as well
	defer o.finish()
	for {
		b := o.take()
		if b == nil {
			return
		}
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

// misconf is the reply while the journal takes no record: the error code that Redis has for a store
// that cannot persist.
func misconf(cause error) string {
	advice := "make room or mend the disk, and it goes on by itself"
	if errors.Is(cause, journal.ErrRemoved) {
		advice = "put its folder back, or copy what is needed with mneme memory get while this process runs, and start anew"
	}
	return fmt.Sprintf("MISCONF mneme's embedded store takes no writes: %v; %s", cause, advice)
}
