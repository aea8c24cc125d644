//go:build unix

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Lock takes a directory for this process, as Open does, for other files than a
// journal's, and writes this process's id into the lock. An *InUseError says that another process has it.
//
// The lock is the open file: closing it, or the end of the process however it came, lets go. The file itself stays,
// since removing it would race with a next owner.
func Lock(dir string) (io.Closer, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(f, 32))
		f.Close()
		pid, _ := strconv.Atoi(strings.TrimSpace(string(owner)))
		return nil, &InUseError{Dir: dir, PID: pid}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The id is for people to read; a full disk, which may not take it, is no reason not to open what is there.
	if err := writeOwner(f); err != nil && !NoRoom(err) {
		f.Close()
		return nil, fmt.Errorf("write the lock: %w", err)
	}
	return f, nil
}

func writeOwner(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// WaitForLock takes the lock that the file at path is, once no other process has it. Closing lets go.
func WaitForLock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// NoRoom says that an error of the file system means a full disk, which passes.
func NoRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
