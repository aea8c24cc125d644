package spool

import (
	"os"
	"path/filepath"
	"time"
)

// A process is known by the name of the first folder that it makes, whose lock it holds for as long as it lives. Who can
// take that lock has proven its death. The folder itself goes when it is drained, so the proof is kept beside it: an
// empty file <folder>.dead.

const (
	dead = ".dead"
	// deadFor is how long such a proof is kept: far longer than anybody waits for a dead process.
	deadFor = 24 * time.Hour
)

// Name is this process's id: that of the folder whose lock it holds from Open to Close, or, where there was no room for
// one, from when there is. Until then nobody takes this process for dead, nor proves that it is.
func (s *Spool) Name() string { return s.name }

// Dead reports whether the process that has this name is proven to be dead. A living process is never taken for dead; of
// one that has another disk nothing is known.
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

// certify keeps the proof of a death. Without it others wait longer, so a failure is only logged.
func (s *Spool) certify(path string) {
	f, err := os.OpenFile(path+dead, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.log.Warn().Err(err).Str("folder", path).Msg("that a process is dead could not be noted")
	}
}

// forgetDead removes a proof that nobody needs any more.
func forgetDead(f os.DirEntry, path string) {
	info, err := f.Info()
	if err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > deadFor {
		_ = os.Remove(path) // the next one who looks tries again
	}
}
