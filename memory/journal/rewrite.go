package journal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

// Rewrite replaces all records by those that fill emits. It writes a new file, syncs it, renames it over the old one
// and syncs the directory: a crash at any instant leaves the old records or the new ones, whole. Appends wait.
//
// An error before the rename (of fill, or of the disk) leaves the journal as it was and open for appends. An error
// after it fails the journal, since which of the two a power loss would bring back is unknown.
func (j *Journal) Rewrite(fill func(emit func(payload []byte) error) error) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if err := j.present(); err != nil { // another journal may be in this one's place
		return j.fail(fmt.Errorf("rewrite %s: %w", j.path(fileName), err))
	}
	return j.rewrite(fill)
}

// rewrite is Rewrite for a holder of both locks.
func (j *Journal) rewrite(fill func(emit func(payload []byte) error) error) error {
	file, size, err := j.writeNew(fill)
	if err == nil {
		if err = j.rename(); err != nil {
			file.Close()
		}
	}
	if err != nil {
		_ = os.Remove(j.path(newName))
		return fmt.Errorf("rewrite %s: %w", j.path(fileName), err)
	}
	_ = j.file.Close() // the rename has unlinked the old file
	j.file, j.size, j.unsynced = file, size, false

	// The rename itself must survive a power loss. Until the directory is synced, either file may
	// be found after one.
	if err := j.step(stepSyncDir, j.syncDir); err != nil {
		j.doubtful = true
		return j.fail(fmt.Errorf("rewrite %s: %w", j.path(fileName), err))
	}
	return nil
}

// writeNew leaves a whole, synced journal under the new name, and its file open.
func (j *Journal) writeNew(fill func(emit func([]byte) error) error) (file *os.File, size int64, err error) {
	err = j.step(stepCreate, func() (err error) {
		file, err = os.OpenFile(j.path(newName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	out := bufio.NewWriterSize(file, 1<<16)
	_, _ = out.WriteString(magic) // into an empty buffer
	size = int64(len(magic))
	var frame []byte
	err = fill(func(payload []byte) error {
		if err := j.fits(payload); err != nil {
			return err
		}
		frame = appendFrame(frame[:0], payload)
		size += int64(len(frame))
		return j.step(stepFill, func() error {
			_, err := out.Write(frame)
			return err
		})
	})
	if err = errors.Join(err, out.Flush()); err == nil {
		err = j.step(stepSyncNew, file.Sync)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, size, nil
}

// begin makes a journal without records, whole from its first moment: one that is shorter than its magic bytes was
// emptied by something else.
func (j *Journal) begin() error {
	file, _, err := j.writeNew(func(func([]byte) error) error { return nil })
	if err != nil {
		return err
	}
	if err := errors.Join(file.Close(), j.rename()); err != nil {
		return err
	}
	return j.syncDir()
}

// rename puts the new file in the journal's place in one atomic step.
func (j *Journal) rename() error {
	return j.step(stepRename, func() error { return os.Rename(j.path(newName), j.path(fileName)) })
}
