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
		err = j.rename()
	}
	if err != nil {
		if file != nil {
			file.Close()
		}
		_ = os.Remove(j.path(newName))
		return fmt.Errorf("rewrite %s: %w", j.path(fileName), err)
	}
	_ = j.file.Close() // the rename has unlinked the old file
	j.file, j.size, j.unsynced = file, size, false

	// The rename itself must survive a power loss. Until the directory is synced, either file may
	// be found after one.
	if err = j.try(stepSyncDir); err == nil {
		err = j.syncDir()
	}
	if err != nil {
		j.doubtful = true
		return j.fail(fmt.Errorf("rewrite %s: %w", j.path(fileName), err))
	}
	return nil
}

// writeNew leaves a whole, synced journal under the new name. The file is returned also with an error, to be closed.
func (j *Journal) writeNew(fill func(emit func([]byte) error) error) (*os.File, int64, error) {
	if err := j.try(stepCreate); err != nil {
		return nil, 0, err
	}
	file, err := os.OpenFile(j.path(newName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	var (
		out   = bufio.NewWriterSize(file, 1<<16)
		size  = int64(len(magic))
		frame []byte
	)
	if _, err := out.WriteString(magic); err != nil {
		return file, 0, err
	}
	err = fill(func(payload []byte) error {
		if len(payload) == 0 || len(payload) > j.opts.MaxRecord {
			return fmt.Errorf("%d bytes, must be 1 to %d: %w", len(payload), j.opts.MaxRecord, ErrRecordSize)
		}
		frame = appendFrame(frame[:0], payload)
		size += int64(len(frame))
		if err := j.try(stepFill); err != nil {
			return err
		}
		_, err := out.Write(frame)
		return err
	})
	err = errors.Join(err, out.Flush())
	if err == nil {
		err = j.try(stepSyncNew)
	}
	if err == nil {
		err = file.Sync()
	}
	return file, size, err
}

// rename puts the new file in the journal's place in one atomic step.
func (j *Journal) rename() error {
	if err := j.try(stepRename); err != nil {
		return err
	}
	return os.Rename(j.path(newName), j.path(fileName))
}
