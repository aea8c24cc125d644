// Package erase removes stored words: erasure, redaction, and rewind with its undo.
//
// It owns the order of the steps, so that the next holder of a chat's lease can finish a change whose process died, and
// the tombstones that keep erased words away after Redis has lost data. Its callers hold the chat's lease. It never
// takes one.
package erase
