package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

var (
	// ErrFailed is what Append, Sync and Rewrite return once a write, a sync or the end of a rewrite has failed. It wraps
	// the cause. Every record that was acknowledged before is still in the file; Resume clears it once the disk works.
	ErrFailed = errors.New("the journal takes no records since a write failed")
	// ErrRemoved is the cause of an ErrFailed: the file is not in its folder any more, or another one is in its place.
	// What would be written to it would be gone when the process ends.
	ErrRemoved = errors.New("the journal's file was removed or replaced while it was open")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the journal is closed")
	// ErrRecordSize refuses an empty record or one above Options.MaxRecord. Nothing was written.
	ErrRecordSize = errors.New("record size out of bounds")
	// ErrNotJournal means that the file exists and does not start as a journal does.
	ErrNotJournal = errors.New("not a journal, or one of a newer version")
	// ErrEmptied means that the file is shorter than a journal without records is.
	ErrEmptied = errors.New("something has emptied it: put a copy back, or remove the file to begin with an empty memory")
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
	return fmt.Sprintf("%s is damaged at byte %d and has sound records from byte %d on: keep every sound record "+
		"on both sides with: mneme journal salvage %s", e.Path, e.Offset, e.Next, shellWord(filepath.Dir(e.Path)))
}

// shellWord quotes a path for a POSIX shell if it has characters that the shell would interpret.
func shellWord(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+=:@,", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
