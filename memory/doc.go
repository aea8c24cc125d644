// Package memory holds what everything else stands on: the message and its stored JSON, the history and its content
// chain, the keys under which Redis keeps it, the Store that tiers and backends implement, and the two functions that
// turn a stored history into what a model may be sent: Window and Repair. A history is stored as one compact JSON
// array per key, so that redis-cli GET subagent:analytic:12345 | jq always prints it.
//
// It owns the names of all keys (RedisKey): no other package makes or reads one. It has no goroutine, does no input
// or output, and never changes a message that was stored. DESIGN.md beside this file says how appends stay atomic,
// proven and fenced.
package memory
