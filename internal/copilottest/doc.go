// Package copilottest is what tests run against in place of the Copilot CLI: a
// fake of its server, over real TCP or a pipe in memory.
//
// Its framing is that of another project (sourcegraph/jsonrpc2), so that a mistake
// in ours cannot be made on both sides and cancel out. What it sends by itself has
// the members, the order and the noise of recorded connections to version 1.0.102.
//
// A test changes what it does in two places: Handle replaces the answer to a
// method, Script what a turn does between its first and its last event. Conn.Raw
// writes bytes that no library would.
package copilottest
