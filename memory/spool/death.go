package spool

import (
	"os"
	"path/filepath"
	"time"
)

// A failure detector that is never wrong about a living process: a process is known by the name of
// the first folder that it makes; it holds the folder's file lock for as long as it lives. A
// process that can take that lock has proven that the process is dead. The folder is deleted once
// it is drained, so the proof is kept beside it, as an empty file <folder>.dead.

const (
	dead = ".dead"
	// deadFor is how long a proof of death is kept, which is far longer than any process waits
	// for a dead one.
	deadFor = 24 * time.Hour
)

// Name is this process's id: the name of the folder that it holds the lock of from Open to Close.
// Where the disk had no room for a folder yet, the lock is held from when there is room; until
// then no process can prove that this process is dead.
func (s *Spool) Name() string { return s.name }

// Dead reports whether the process with this name is proven to be dead. False means that it lives,
// or that nothing is known, as for a process that spools to another disk.
func (s *Spool) Dead(name string) bool {
	if !folderName.MatchString(name) || name == s.Name() {
		return false
	}
	path := filepath.Join(s.dir, name)
	if _, err := os.Lstat(path); err == nil {
		s.adopt(path)
	}
	_, err := os.Lstat(path + dead)
	return err == nil
}

// Deaths is how many processes this one has found dead.
func (s *Spool) Deaths() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deaths
}

// certify writes the proof of a death. Without it others only wait longer, so a failure is logged
// and not returned.
func (s *Spool) certify(path string) {
	f, err := os.OpenFile(path+dead, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.log.Warn().Err(err).Str("folder", path).Msg("that a process is dead could not be noted")
	}
}

// forgetDead removes a proof of death that is older than deadFor.
func forgetDead(f os.DirEntry, path string) {
	info, err := f.Info()
	if err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > deadFor {
		_ = os.Remove(path) // after a failure the next call tries again
	}
}
