package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
)

// spare is the least room, in bytes, that Resume wants to find, so that a journal that works again
// does not fail at the next record.
const spare = 64 << 10

// Check is the journal's health: nil while it takes records, else ErrFailed with its cause, or
// ErrClosed. It notices a file that was removed from its directory or replaced.
func (j *Journal) Check() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if err := j.present(); err != nil {
		return j.fail(fmt.Errorf("%s: %w", j.path(fileName), err))
	}
	return nil
}

// present is nil while the directory holds the very file that is open (same device and inode), else
// ErrRemoved. The caller holds mu.
func (j *Journal) present() error {
	ours, err := j.file.Stat()
	if err != nil {
		return err
	}
	onDisk, err := os.Stat(j.path(fileName))
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(ours, onDisk) {
		return ErrRemoved
	}
	return err
}

// Resume lets a journal that has failed take records again, if the disk works: it writes and syncs
// some bytes behind the last record and truncates them. After a failed sync it is unknown which
// records are on the disk, so all of them are then written anew, from fill as for Rewrite. On an
// error the journal stays as it was. On a journal that has not failed it returns what Check
// returns.
func (j *Journal) Resume(fill func(emit func(payload []byte) error) error) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !errors.Is(j.broken, ErrFailed) {
		return j.broken
	}
	if err := j.present(); err != nil {
		return fmt.Errorf("resume %s: %w", j.path(fileName), err)
	}
	if !j.doubtful {
		if err := j.probe(); err != nil {
			return fmt.Errorf("resume %s: %w", j.path(fileName), err)
		}
		j.broken, j.unsynced = nil, false
		return nil
	}
	prevErr := j.broken
	j.broken, j.doubtful = nil, false
	if err := j.rewrite(fill); err != nil {
		j.broken, j.doubtful = prevErr, true
		return err
	}
	return nil
}

// probe writes as many bytes as the record that was refused last had, syncs, and truncates them. If
// the process is killed meanwhile, what is left behind the last record is a torn tail.
func (j *Journal) probe() error {
	err := j.step(stepWrite, func() error {
		_, err := j.file.WriteAt(make([]byte, max(spare, j.refused)), j.size)
		return err
	})
	if err == nil {
		err = j.step(stepSync, func() error {
			err := j.file.Sync()
			j.doubtful = err != nil
			return err
		})
	}
	return cmp.Or(err, j.file.Truncate(j.size))
}
