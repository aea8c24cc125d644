package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// engine runs commands on miniredis and collects their effects. It is not safe for concurrent use.
type engine struct {
	mini     *miniredis.Miniredis
	scripts  *scripts
	clock    time.Time // the time that the engine knows, in whole milliseconds
	base     time.Time // the instant from which all expiries in miniredis count
	expiries expiries

	effects [][]string // writes since the last take
	expired bool       // keys expired since the last take
	failed  error      // a command of a script made miniredis panic

	// A connection of the engine's own, for what scripts call and for the store's questions.
	peer  *server.Peer
	reply bytes.Buffer
	in    *bufio.Reader
}

func newEngine() (*engine, error) {
	e := &engine{mini: miniredis.NewMiniRedis(), expiries: expiries{first: map[string]time.Duration{}}}
	e.peer, e.in = server.NewPeer(bufio.NewWriterSize(&e.reply, 512)), bufio.NewReaderSize(&e.reply, 512)
	e.scripts = &scripts{cache: map[string]*lua.LFunction{}, call: e.fromScript}
	// miniredis starts without a listener by Dial. The connection is not needed: commands are
	// dispatched directly.
	conn, err := e.mini.Dial()
	if err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	return e, conn.Close()
}

// run executes one command and writes its reply to peer. An error means that the engine panicked:
// it may hold its own lock for ever and must not be used again. (miniredis is made for tests; KEYS
// [z-a] makes it panic.)
func (e *engine) run(peer *server.Peer, args []string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the engine failed on %s: %v", strings.ToUpper(args[0]), cause)
		}
	}()
	if classes[strings.ToUpper(args[0])] == script {
		e.scripts.run(peer, args)
	} else {
		e.command(peer, args)
	}
	peer.Flush()
	return e.failed
}

// command executes a command that is no script.
func (e *engine) command(peer *server.Peer, args []string) {
	if n, ok := e.timeToLive(args); ok {
		peer.WriteInt(n)
		return
	}
	if classes[strings.ToUpper(args[0])] != write {
		e.mini.Server().Dispatch(peer, args)
		return
	}
	e.effects = append(e.effects, args)
	e.mini.Server().Dispatch(peer, rebaseExpiry(args, e.clock, e.base))
	e.noteExpiry(args)
}

// fromScript executes a command that a script calls. Lua would make an error of a panic, which the script may catch;
// run must hear of it.
func (e *engine) fromScript(args []string) (reply any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			e.failed = fmt.Errorf("the engine failed on %s: %v", strings.ToUpper(args[0]), cause)
		}
		if e.failed != nil {
			err = e.failed
		}
	}()
	if e.failed != nil {
		return nil, e.failed
	}
	if sentence := scriptRefusal(args); sentence != "" {
		return nil, errors.New(sentence)
	}
	e.command(e.peer, args)
	return e.answer()
}

// answer is the reply that the engine's own connection has got.
func (e *engine) answer() (any, error) {
	e.peer.Flush()
	defer e.reply.Reset()
	e.in.Reset(&e.reply)
	return server.ParseReply(e.in)
}

// query runs a command of the store's own and parses its reply.
func (e *engine) query(args ...string) (any, error) {
	if err := e.run(e.peer, args); err != nil {
		return nil, err
	}
	return e.answer()
}

// take returns the effects since the last take as one record; false when there are none.
func (e *engine) take() (record, bool) {
	if len(e.effects) == 0 {
		return record{}, false
	}
	r := record{timestamp: e.clock, expired: e.expired, commands: e.effects}
	e.effects, e.expired = nil, false
	return r, true
}

// advance moves the engine's clock to now, which expires keys.
func (e *engine) advance(now time.Time) {
	e.tell(now.Truncate(time.Millisecond))
	if e.expire() {
		e.expired = true
	}
}

// tell tells the engine the time, by which no key expires yet. It may be an earlier one, after the wall clock was set
// back: remaining lifetimes then stay as they are.
func (e *engine) tell(now time.Time) {
	switch {
	case now.Equal(e.clock):
		return
	case e.base.IsZero():
		e.base = now
	case now.Before(e.clock):
		e.base = e.base.Add(now.Sub(e.clock))
	}
	e.clock = now
	e.mini.SetTime(now)
}

func (e *engine) keyCount() int {
	reply, err := e.query("DBSIZE")
	if n, ok := reply.(int); err == nil && ok {
		return n
	}
	return 0
}
