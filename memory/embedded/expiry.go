package embedded

import (
	"container/heap"
	"strconv"
	"strings"
	"time"
)

// The engine's own clock of expiries stands still, since miniredis walks all keys whenever it moves. So every expiry
// in the engine counts from the fixed instant base, whenever it is set: a key that lives five seconds more, a minute
// behind base, has a TTL of 65 seconds there. expiries says when the next one is due.

// expiries is a heap of the keys that may expire, by their TTL in the engine. A key whose expiry was taken away or put
// off stays where it is until its turn comes, and is looked at then; one that is to expire earlier has a second place.
type expiries struct {
	order []expiry
	first map[string]time.Duration // the earliest place of each key
}

// expiry is one place of a key.
type expiry struct {
	key string
	ttl time.Duration // from base
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (x *expiries) Len() int           { return len(x.order) }
func (x *expiries) Less(i, j int) bool { return x.order[i].ttl < x.order[j].ttl }
func (x *expiries) Swap(i, j int)      { x.order[i], x.order[j] = x.order[j], x.order[i] }
func (x *expiries) Push(e any)         { x.order = append(x.order, e.(expiry)) }
func (x *expiries) Pop() any {
	last := len(x.order) - 1
	e := x.order[last]
	x.order[last] = expiry{} // lets go of the key
	x.order = x.order[:last]
	return e
}

// set notes a key's TTL, 0 for none.
func (x *expiries) set(key string, ttl time.Duration) {
	if first, ok := x.first[key]; ttl > 0 && (!ok || ttl < first) {
		x.first[key] = ttl
		heap.Push(x, expiry{key, ttl})
	}
}

// due takes the first key whose TTL is over; ok is false if there is none.
func (x *expiries) due(elapsed time.Duration) (key string, ok bool) {
	for x.Len() > 0 && x.order[0].ttl <= elapsed {
		e := heap.Pop(x).(expiry)
		if x.first[e.key] == e.ttl { // else it had an earlier place
			delete(x.first, e.key)
			return e.key, true
		}
	}
	return "", false
}

// elapsed is the time since base.
func (e *engine) elapsed() time.Duration { return e.clock.Sub(e.base) }

// ttl is how long a key lives yet, and what miniredis knows of it; 0 for one that does not expire or is not there.
func (e *engine) ttl(key string) (remaining, stored time.Duration) {
	if stored = e.mini.DB(0).TTL(key); stored > 0 {
		remaining = stored - e.elapsed()
	}
	return remaining, stored
}

// expire deletes the keys that are due and says whether there were any.
func (e *engine) expire() (deleted bool) {
	for {
		key, ok := e.expiries.due(e.elapsed())
		if !ok {
			return deleted
		}
		if remaining, stored := e.ttl(key); remaining > 0 {
			e.expiries.set(key, stored)
		} else if stored > 0 {
			e.mini.Del(key)
			deleted = true
		}
	}
}

// noteExpiry looks at the expiry of the key that a command may have given one.
func (e *engine) noteExpiry(args []string) {
	key := 1
	switch strings.ToUpper(args[0]) {
	case "RENAME", "RENAMENX": // the expiry goes along
		key = 2
	default:
		if _, _, ok := expiryArg(args); !ok {
			return
		}
	}
	if len(args) > key {
		_, stored := e.ttl(args[key])
		e.expiries.set(args[key], stored)
	}
}

// timeToLive answers the commands that tell an expiry; ok is false for any other.
func (e *engine) timeToLive(args []string) (n int, ok bool) {
	name := strings.ToUpper(args[0])
	if unit := strings.TrimPrefix(name, "P"); len(args) != 2 || unit != "TTL" && unit != "EXPIRETIME" {
		return 0, false
	}
	remaining, stored := e.ttl(args[1])
	switch {
	case !e.mini.Exists(args[1]):
		return -2, true
	case stored <= 0:
		return -1, true
	}
	if strings.HasSuffix(name, "EXPIRETIME") {
		remaining = time.Duration(e.clock.Add(remaining).UnixNano())
	}
	if strings.HasPrefix(name, "P") {
		return int(remaining.Milliseconds()), true
	}
	return int((remaining + time.Second/2) / time.Second), true // rounded, as Redis does
}

// rebaseExpiry rewrites a command that runs at the instant at so that the expiry it sets counts
// from base. Commands that set none, or one in the past (which deletes the key), are returned
// unchanged.
func rebaseExpiry(args []string, now, base time.Time) []string {
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
	remaining := n
	if strings.HasSuffix(option, "AT") {
		remaining -= now.UnixMilli()
	}
	if remaining <= 0 {
		return args
	}
	out := append([]string(nil), args...)
	out[i] = strconv.FormatInt(remaining+now.Sub(base).Milliseconds(), 10)
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
