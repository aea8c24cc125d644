package embedded

import (
	"fmt"
	"slices"
	"strings"
)

// class says how a command may be run and what of it is journaled.
type class int

const (
	unsupported class = iota
	session           // concerns the connection or the server, not the data
	read
	write
	script // journaled by the writes that it calls
)

// classes is the allow-list of commands. A command may be listed as a write only if its replay has
// the same effect as its first run, and if a snapshot keeps that effect (snapshot.go).
var classes = func() map[string]class {
	table := make(map[string]class)
	for c, names := range map[class]string{
		session: `AUTH CLIENT COMMAND ECHO HELLO INFO PING QUIT SELECT WAIT`,
		read: `BITCOUNT BITPOS GET GETBIT GETRANGE MGET STRLEN
			DBSIZE DUMP EXISTS EXPIRETIME KEYS MEMORY OBJECT PEXPIRETIME PTTL RANDOMKEY SCAN TIME TOUCH TTL TYPE
			HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD HSCAN HSTRLEN HVALS
			LINDEX LLEN LPOS LRANGE
			SCARD SDIFF SINTER SINTERCARD SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER SSCAN SUNION
			ZCARD ZCOUNT ZINTER ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE
			ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION
			XINFO XLEN XRANGE XREAD XREVRANGE`,
		write: `APPEND DECR DECRBY GETDEL GETEX GETSET INCR INCRBY INCRBYFLOAT MSET MSETNX PSETEX SET SETBIT SETEX SETNX
			SETRANGE
			DEL EXPIRE EXPIREAT FLUSHALL FLUSHDB PERSIST PEXPIRE PEXPIREAT RENAME RENAMENX UNLINK
			HDEL HINCRBY HINCRBYFLOAT HMSET HSET HSETNX
			LINSERT LMOVE LPOP LPUSH LPUSHX LREM LSET LTRIM RPOP RPOPLPUSH RPUSH RPUSHX
			SADD SMOVE SREM
			ZADD ZINCRBY ZPOPMAX ZPOPMIN ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE
			XADD XDEL XTRIM`,
		script: `EVAL EVALSHA SCRIPT`,
	} {
		for _, name := range strings.Fields(names) {
			table[name] = c
		}
	}
	return table
}()

const readOnlyOutside = "READONLY mneme's embedded store is read-only from outside; use 'mneme memory rm', " +
	"or set redis.url to a real Redis"

func unsupportedCommand(name string) string {
	return fmt.Sprintf("ERR mneme's embedded store does not support '%s'; set redis.url to a real Redis for it", name)
}

// refusal is the error reply for a command that may not run on this connection, or "".
func refusal(outside bool, args []string) string {
	name := strings.ToUpper(args[0])
	switch c := classes[name]; {
	case c == unsupported:
		return unsupportedCommand(args[0])
	case outside && (c == write || c == script):
		return readOnlyOutside
	case name == "XREAD" && blocks(args):
		// It would wait while it holds the store's lock.
		return unsupportedCommand("XREAD BLOCK") + ", or poll"
	case name == "SELECT" && len(args) == 2 && args[1] != "0":
		return "ERR DB index is out of range: mneme's embedded store has database 0 only"
	}
	return ""
}

// scriptRefusal is refusal for a command that a script calls.
func scriptRefusal(args []string) string {
	if c := classes[strings.ToUpper(args[0])]; c != read && c != write {
		return fmt.Sprintf("ERR mneme's embedded store does not allow '%s' in a script", args[0])
	}
	return refusal(false, args)
}

// blocks reports whether an XREAD has the BLOCK option, which stands before STREAMS.
func blocks(args []string) bool {
	index := func(option string) int {
		return slices.IndexFunc(args, func(arg string) bool { return strings.EqualFold(arg, option) })
	}
	block, streams := index("BLOCK"), index("STREAMS")
	return block >= 0 && (streams < 0 || block < streams)
}
