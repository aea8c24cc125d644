package journal

import (
	"errors"
	"fmt"
	"os"
)

// spare is how much room Resume wants to find at least, in bytes, so that a journal does not fail again at once.
const spare = 64 << 10

// Check is nil while the journal takes records: else ErrFailed with its cause, or ErrClosed. It looks whether the file
// is still in its folder.
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

// present is nil while the folder holds the file that is open; the caller holds mu.
func (j *Journal) present() error {
	ours, err := j.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(j.path(fileName))
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(ours, there) {
		return ErrRemoved
	}
	return err
}

// Resume lets a journal that has failed take records again, if the disk takes them: it writes and syncs some bytes
// behind the last record and cuts them off again. After a failed sync nobody knows which records are on the disk, so
// all of them are written anew then, from fill as for Rewrite. An error leaves the journal as it was. Of one that has
// not failed it only says what Check says.
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
	before := j.broken
	j.broken, j.doubtful = nil, false
	if err := j.rewrite(fill); err != nil {
		j.broken, j.doubtful = before, true
		return err
	}
	return nil
}

// probe finds out whether there is room for the record that was refused last, and syncs what is there. What a process
// that is killed meanwhile leaves behind the last record is a torn tail.
func (j *Journal) probe() error {
	err := j.try(stepWrite)
	if err == nil {
		_, err = j.file.WriteAt(make([]byte, max(spare, j.refused)), j.size)
	}
	if err == nil {
		err = j.try(stepSync)
	}
	if err == nil {
		if err = j.file.Sync(); err != nil {
			j.doubtful = true
		}
	}
	if cut := j.file.Truncate(j.size); err == nil {
		err = cut
	}
	return err
}
