package embedded

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// A replay must not advance the engine's clock with every record, since each advance walks all
// keys. While it runs, expiries in the engine count from the fixed instant replayBase; only where
// keys did expire (record.expired) is the time advanced. Commands still see the time of their
// record, since miniredis takes stream ids and absolute times from SetTime.

// replay applies one journal record.
func (e *engine) replay(payload []byte) error {
	r, err := parseRecord(payload)
	if err != nil {
		return err
	}
	switch {
	case e.replayBase.IsZero():
		e.replayBase = r.at
	case r.at.Before(e.clock): // the wall clock was set back: remaining lifetimes stay as they are
		e.pass(e.clock)
		e.replayBase = r.at
	case r.expired:
		e.pass(r.at)
	}
	e.clock = r.at
	e.mini.SetTime(r.at)
	for _, args := range r.commands {
		// Nobody reads the replies: a command that failed when it first ran fails again.
		peer := server.NewPeer(bufio.NewWriter(io.Discard))
		if err := e.run(peer, rebaseExpiry(args, r.at, e.replayBase)); err != nil {
			return err
		}
	}
	e.effects = nil
	return nil
}

// pass advances every expiry to the instant at.
func (e *engine) pass(at time.Time) {
	e.mini.FastForward(at.Sub(e.replayBase))
	e.replayBase = at
}

// endReplay lets expiries follow the engine's clock again.
func (e *engine) endReplay() {
	if !e.replayBase.IsZero() {
		e.pass(e.clock)
		e.mini.SetTime(e.clock)
	}
	e.mini.ClockTTL(true)
}

// rebaseExpiry rewrites a command that was run at the instant at so that the expiry it sets counts
// from base. Commands that set none, or one in the past (which deletes the key), are returned
// unchanged.
func rebaseExpiry(args []string, at, base time.Time) []string {
	i, option, ok := expiryArg(args)
	if !ok {
		return args
	}
	n, err := strconv.ParseInt(args[i], 10, 64)
	if err != nil {
		return args
	}
	if !strings.HasPrefix(option, "P") {
		n *= 1000
	}
	left := n
	if strings.HasSuffix(option, "AT") {
		left -= at.UnixMilli()
	}
	if left <= 0 {
		return args
	}
	out := append([]string(nil), args...)
	out[i] = strconv.FormatInt(left+at.Sub(base).Milliseconds(), 10)
	switch name := strings.ToUpper(args[0]); name {
	case "SET", "GETEX":
		out[i-1] = "PX"
	case "SETEX", "PSETEX":
		out[0] = "PSETEX"
	default:
		out[0] = "PEXPIRE"
	}
	return out
}

// expiryArg finds the argument by which a command sets an expiry, and the option that gives its
// unit and kind: EX, PX, EXAT or PXAT.
func expiryArg(args []string) (i int, option string, ok bool) {
	options := 0
	switch strings.ToUpper(args[0]) {
	case "EXPIRE", "SETEX":
		return 2, "EX", len(args) > 2
	case "PEXPIRE", "PSETEX":
		return 2, "PX", len(args) > 2
	case "EXPIREAT":
		return 2, "EXAT", len(args) > 2
	case "PEXPIREAT":
		return 2, "PXAT", len(args) > 2
	case "SET":
		options = 3
	case "GETEX":
		options = 2
	default:
		return 0, "", false
	}
	for i := options; i+1 < len(args); i++ {
		switch option := strings.ToUpper(args[i]); option {
		case "EX", "PX", "EXAT", "PXAT":
			return i + 1, option, true
		}
	}
	return 0, "", false
}
