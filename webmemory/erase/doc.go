// Package erase removes stored text by erasure, redaction and rewind, and undoes rewinds.
//
// It owns the order of the steps, so that the next holder of a chat's lease can finish the change of a dead process. It
// also owns the tombstones, which keep erased text away after Redis has lost data. Its callers hold the chat's lease.
// The package never takes one.
package erase
