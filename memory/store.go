package memory

import (
	"context"
	"errors"
)

// Errors of every Store; test with errors.Is.
var (
	// ErrMoved: a newer turn owns the chat; this writer must stop writing.
	ErrMoved = errors.New("the chat's turn has moved on")
	// ErrUnavailable: the store could not be reached or did not answer; it says
	// nothing about what is stored, and never stands for an empty history.
	ErrUnavailable = errors.New("the memory store cannot be reached")
	// ErrReadOnly: the store answers and takes no writes, as when its disk is full.
	// It comes with ErrUnavailable.
	ErrReadOnly = errors.New("the memory store takes no writes")
	// ErrRefused: the store answers and refuses what the memory needs, until an operator
	// changes that. It comes with ErrUnavailable, in a RefusedError.
	ErrRefused = errors.New("the memory store refuses what the memory needs")
	// ErrFull: the message would make the history larger than a store keeps.
	ErrFull = errors.New("the history is full")
)

// RefusedError is ErrRefused with its cause and its fix.
type RefusedError struct {
	What string // such as "the command evalsha"
	Fix  string // a sentence
	Err  error  // as the store says it
}

func (e *RefusedError) Error() string { return "Redis refuses " + e.What + ": " + e.Err.Error() }

func (e *RefusedError) Unwrap() []error { return []error{ErrRefused, ErrUnavailable, e.Err} }

// Limits that hold for every stored history, in bytes.
const (
	MaxMessage    = 1 << 20   // the content of one message
	MaxToolResult = 256 << 10 // the content of one tool result; longer ones are cut
	MaxHistory    = 64 << 20  // the whole stored array; above it no new exchange begins
)

// Mark says where a message comes from: event Seq of Run, written by the holder
// of Turn. A message is a duplicate if its (Run, Seq) was applied before; one with an
// older Turn than the stored one is refused. Seq grows within a run.
type Mark struct {
	Run  string
	Seq  int64
	Turn int64
}

// Store keeps histories beyond the process. A History handed in is the caller's
// copy of what it believes to be stored; Empty stands for "no copy".
type Store interface {
	// Load brings each copy up to date, in order, and returns the current ones:
	// the very copy where the store can prove that it is still the content. A
	// turn above 0 is raised on every history first, so that an older holder is
	// refused from then on; 0 only looks. If one history cannot be read, the
	// call fails as a whole.
	Load(ctx context.Context, turn int64, copies ...*History) ([]*History, error)
	// Append adds one encoded message behind what is stored, however stale the
	// copy, and returns the history with it. ErrMoved if a newer turn owns it.
	Append(ctx context.Context, copy *History, mark Mark, message []byte) (*History, error)
	// Erase removes the histories and everything kept beside them; turn as for
	// Load, so that appends of older turns die on it.
	Erase(ctx context.Context, turn int64, keys ...Key) error
}
