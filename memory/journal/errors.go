package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrFailed is what Append, Sync and Rewrite return once a write, a sync or the end of a rewrite has failed. It wraps
	// the cause. Every record that was acknowledged before is still in the file; only opening the journal anew clears it.
	ErrFailed = errors.New("the journal takes no more records since a write failed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the journal is closed")
	// ErrRecordSize refuses an empty record or one above Options.MaxRecord. Nothing was written.
	ErrRecordSize = errors.New("record size out of bounds")
	// ErrNotJournal means that the file exists and does not start as a journal does.
	ErrNotJournal = errors.New("not a journal, or one of a newer version")
)

// InUseError refuses a directory that another journal has open, in this process or another.
type InUseError struct {
	Dir string
	PID int // 0 when the owner has not written its id yet
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: data is in use by another process", e.Dir)
	}
	return fmt.Sprintf("%s: data is in use by process %d", e.Dir, e.PID)
}

// CorruptError reports a damaged record that has sound ones behind it.
type CorruptError struct {
	Path   string
	Offset int64 // where the damaged record starts, in bytes
	Next   int64 // where the next sound record starts
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d and has sound records from byte %d on: restore the file from a copy, "+
		"or keep only what is before the damage with: truncate -s %d %s", e.Path, e.Offset, e.Next, e.Offset, e.Path)
}
