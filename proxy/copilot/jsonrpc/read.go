package jsonrpc

import (
	"errors"
	"fmt"
)

// read is the goroutine that reads. What it read is handed over before the end of
// the connection shows.
func (c *Conn) read() {
	in := newFrames(c.conn, c.config.MaxFrame)
	skipped := 0
	for {
		body, err := in.next()
		if err != nil {
			c.Fail(fmt.Errorf("reading: %w", err))
			return
		}
		c.counters.framesIn.Add(1)
		m, err := parse(body)
		if err == nil {
			skipped = 0
			c.take(m)
			continue
		}
		c.counters.skipped.Add(1)
		c.config.Log.Warn().Err(err).Int("bytes", len(body)).Msg("skipped a frame that is no message")
		if skipped++; skipped >= maxSkipped {
			c.Fail(fmt.Errorf("%w: %d frames in a row that are no messages", ErrProtocol, skipped))
			return
		}
	}
}

// take hands a message over.
func (c *Conn) take(m incoming) {
	switch {
	case m.Method == "":
		c.takeAnswer(m)
	case m.ID == nil:
		c.handler.Notify(c, m.Method, m.Params)
	case !c.handler.Request(c, m.ID, m.Method, m.Params):
		c.counters.refused.Add(1)
		c.Reply(m.ID, nil, &Error{Code: CodeMethodNotFound, Message: "Unhandled method " + m.Method})
	}
}

func (c *Conn) takeAnswer(m incoming) {
	if string(m.ID) == "null" {
		c.counters.anonymous.Add(1)
		c.config.Log.Warn().Err(m.Error.orNil()).Msg("the peer could not read a message")
		return
	}
	id, ok := number(m.ID)
	if !ok {
		c.stray(m)
		return
	}
	if w, ok := c.table.take(id); ok {
		w.answered <- m.outcome(w.method) // has room
		return
	}
	o, ok := c.table.takeOrphan(id)
	if !ok {
		c.stray(m)
		return
	}
	end := m.outcome(o.method)
	if !o.posted {
		c.counters.late.Add(1)
	}
	switch {
	case end.err != nil:
		c.config.Log.Debug().Err(end.err).Msg("a call that nobody waits for failed")
	case !o.posted:
		c.handler.Late(c, o.method, end.result)
	}
}

// outcome is what an answer says. An error counts even beside a result.
func (m incoming) outcome(method string) outcome {
	switch {
	case m.Error != nil:
		m.Error.Method = method
		return outcome{err: m.Error}
	case m.Result == nil:
		return outcome{err: fmt.Errorf("%w: an answer to %s with neither result nor error", ErrProtocol, method)}
	}
	return outcome{result: m.Result}
}

// stray counts an answer that belongs to no call.
func (c *Conn) stray(m incoming) {
	c.counters.unknown.Add(1)
	c.config.Log.Debug().Str("id", string(m.ID)).Msg("an answer to no call")
}

// orNil is e as an error, for a log.
func (e *Error) orNil() error {
	if e == nil {
		return errors.New("it does not say why")
	}
	return e
}
