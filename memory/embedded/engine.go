package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// engine runs commands on miniredis and collects their effects. It is not safe for concurrent use.
type engine struct {
	mini  *miniredis.Miniredis
	clock time.Time     // the time that the engine knows, in whole milliseconds
	pause time.Duration // the clock is not advanced again before this much has passed

	running *server.Peer // the connection whose command runs; a script's calls come on others
	effects [][]string   // writes since the last take
	expired bool         // keys expired since the last take

	replayBase time.Time // during a replay: the instant from which all expiries in the engine count
}

func newEngine() (*engine, error) {
	e := &engine{mini: miniredis.NewMiniRedis()}
	// miniredis starts without a listener by Dial. The connection is not needed: commands are
	// dispatched directly.
	conn, err := e.mini.Dial()
	if err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	conn.Close()
	e.mini.Server().SetPreHook(e.beforeCommand)
	return e, nil
}

// beforeCommand is miniredis' hook before every command, those that a script calls included.
// Returning true keeps the command from running.
func (e *engine) beforeCommand(peer *server.Peer, name string, args ...string) bool {
	if peer == e.running {
		return false
	}
	command := append([]string{name}, args...)
	if sentence := scriptRefusal(command); sentence != "" {
		peer.WriteError(sentence)
		return true
	}
	if classes[name] == write {
		e.effects = append(e.effects, command)
	}
	return false
}

// run executes one command and writes its reply to peer. An error means that the engine panicked:
// it may hold its own lock for ever and must not be used again. (miniredis is made for tests; KEYS
// [z-a] makes it panic.)
func (e *engine) run(peer *server.Peer, args []string) (err error) {
	defer func() {
		e.running = nil
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the engine failed on %s: %v", strings.ToUpper(args[0]), cause)
		}
	}()
	e.running = peer
	if classes[strings.ToUpper(args[0])] == write {
		e.effects = append(e.effects, args)
	}
	e.mini.Server().Dispatch(peer, args)
	peer.Flush()
	return nil
}

// take returns the effects since the last take as one record; false when there are none.
func (e *engine) take() (record, bool) {
	if len(e.effects) == 0 {
		return record{}, false
	}
	r := record{at: e.clock, expired: e.expired, commands: e.effects}
	e.effects, e.expired = nil, false
	return r, true
}

// advance moves the engine's clock to now, which expires keys. miniredis walks all keys for that,
// so it is done for at most about a tenth of the time; meanwhile keys live a little longer than
// asked.
func (e *engine) advance(now time.Time) {
	now = now.Truncate(time.Millisecond)
	passed := now.Sub(e.clock)
	if passed == 0 || passed > 0 && passed < e.pause {
		return
	}
	started := time.Now()
	before := e.keyCount()
	e.clock = now
	// an earlier time too, after the wall clock was set back: remaining lifetimes then stay as they are
	e.mini.SetTime(now)
	if e.keyCount() < before {
		e.expired = true
	}
	e.pause = min(10*time.Since(started), time.Second)
}

func (e *engine) keyCount() int {
	reply, err := e.query("DBSIZE")
	if n, ok := reply.(int); err == nil && ok {
		return n
	}
	return 0
}

// query runs a command of the store's own and parses its reply.
func (e *engine) query(args ...string) (any, error) {
	var reply bytes.Buffer
	if err := e.run(server.NewPeer(bufio.NewWriter(&reply)), args); err != nil {
		return nil, err
	}
	return server.ParseReply(bufio.NewReader(&reply))
}
