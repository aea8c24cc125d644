package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// defaultMaxRecord is the largest record, in bytes, when Options does not say otherwise.
const defaultMaxRecord = 256 << 20

const (
	fileName = "journal"
	newName  = "journal.new"
	lockName = "lock"
)

// Options bound a journal. The zero value is ready to use.
type Options struct {
	// MaxRecord is the largest record in bytes; 0 means 256 MiB.
	MaxRecord int

	// fault, if set, is asked before each step that changes the disk, and its error is that step's:
	// fault injection for tests.
	fault func(step) error
}

// step names one change of the disk, for fault injection.
type step string

const (
	stepWrite    step = "write"
	stepTruncate step = "truncate"
	stepSync     step = "sync"
	stepCreate   step = "create"
	stepFill     step = "fill"
	stepSyncNew  step = "sync new"
	stepRename   step = "rename"
	stepSyncDir  step = "sync directory"
)

// Recovered says what Open found.
type Recovered struct {
	Dropped int64 // bytes of a tail cut off
	// Altered says that the tail was no beginning of a record: something has changed bytes of one that may have been
	// acknowledged, or the power failed while it was written.
	Altered bool
}

// Journal is an append-only log in a directory that this process has locked. Its methods may be
// called from any goroutine. After a failed write or sync it is broken: reads go on, appends are
// refused until Resume finds that the disk works again.
type Journal struct {
	dir  string
	opts Options
	lock io.Closer

	// syncMu is held while the file is synced or replaced, so that a sync neither stops appends nor
	// meets a closed file. Lock order: syncMu before mu.
	syncMu sync.Mutex

	mu       sync.Mutex
	file     *os.File
	size     int64  // offset behind the last acknowledged record; bytes behind it are left of a failed write
	unsynced bool   // records were appended since the last sync
	broken   error  // ErrFailed with its cause, or ErrClosed; nil while appends are taken
	doubtful bool   // a sync failed, so that the disk may lack records that were acknowledged before
	refused  int    // length of the frame that was written last without success, in bytes
	frame    []byte // reused between appends
}

// Open takes the lock of dir (created with mode 0700 when absent) and calls replay for each record, oldest first; the
// payload is valid during the call only. A torn tail is cut off.
//
// Errors: *InUseError when someone has dir open, *CorruptError for damage in the middle, ErrNotJournal, ErrRecordSize
// for a record above the limit, an error of replay, and what the file system says.
func Open(dir string, opts Options, replay func(payload []byte) error) (*Journal, Recovered, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, Recovered{}, fmt.Errorf("create the journal's directory: %w", err)
	}
	lock, err := Lock(dir)
	if err != nil {
		return nil, Recovered{}, err
	}
	j := newJournal(dir, opts)
	j.lock = lock
	rec, err := j.load(replay)
	if err != nil {
		if j.file != nil {
			j.file.Close()
		}
		lock.Close()
		return nil, Recovered{}, err
	}
	return j, rec, nil
}

// Read calls fn for each record of the journal in dir, which another process may be writing to: a record that is only
// half there counts as a torn tail. It takes no lock and changes nothing. Errors are as for Open, without the lock's.
func Read(dir string, opts Options, fn func(payload []byte) error) error {
	f, s, err := newJournal(dir, opts).reader()
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	defer f.Close()
	head, err := s.head()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(magic, head) {
		return s.foreign(head)
	}
	_, err = s.each(fn)
	return err
}

// newJournal is the journal of a directory, not open yet.
func newJournal(dir string, opts Options) *Journal {
	opts.MaxRecord = cmp.Or(opts.MaxRecord, defaultMaxRecord)
	return &Journal{dir: dir, opts: opts}
}

// reader opens the file as it is, to be read from outside.
func (j *Journal) reader() (*os.File, scanner, error) {
	f, err := os.Open(j.path(fileName))
	if err != nil {
		return nil, scanner{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, scanner{}, errors.Join(err, f.Close())
	}
	return f, j.scan(f, info.Size()), nil
}

// load recovers the journal after a start: it removes an unfinished rewrite, replays the records
// and truncates a torn tail.
func (j *Journal) load(replay func([]byte) error) (Recovered, error) {
	// A rewrite takes effect by its rename. What an interrupted one left under its temporary name
	// was never part of the journal.
	if err := os.Remove(j.path(newName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Recovered{}, fmt.Errorf("remove an unfinished rewrite: %w", err)
	}
	_, err := os.Stat(j.path(fileName))
	if errors.Is(err, os.ErrNotExist) {
		err = j.begin()
	}
	if err == nil {
		j.file, err = os.OpenFile(j.path(fileName), os.O_RDWR, 0o600)
	}
	if err != nil {
		return Recovered{}, fmt.Errorf("open the journal: %w", err)
	}
	info, err := j.file.Stat()
	if err != nil {
		return Recovered{}, fmt.Errorf("open the journal: %w", err)
	}
	size := info.Size()
	s := j.scan(j.file, size)
	head, err := s.head()
	if err != nil {
		return Recovered{}, err
	}
	if head != magic {
		return Recovered{}, s.foreign(head)
	}
	end, err := s.each(replay)
	if err != nil {
		return Recovered{}, err
	}
	altered, err := s.altered(end)
	if err != nil {
		return Recovered{}, err
	}
	if end < size {
		if err := j.file.Truncate(end); err != nil {
			return Recovered{}, fmt.Errorf("cut off the torn tail of %s: %w", j.path(fileName), err)
		}
	}
	j.size, j.unsynced = end, true
	return Recovered{Dropped: size - end, Altered: altered}, nil
}

// Append adds a record. When it returns nil the operating system has the record, in the file that
// the directory holds, so that it survives the end of this process but not yet a power loss (see
// Sync). After an error of the disk nothing of the record is left, and the journal takes no more
// until Resume: ErrFailed. ErrRecordSize refuses this record only.
func (j *Journal) Append(payload []byte) error {
	if err := j.fits(payload); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	// The buffer is kept for the next append unless a large record has grown it.
	frame := appendFrame(j.frame[:0], payload)
	if cap(frame) <= 1<<20 {
		j.frame = frame
	}
	err := j.step(stepWrite, func() error {
		_, err := j.file.WriteAt(frame, j.size)
		return err
	})
	if err == nil {
		err = j.present()
	}
	if err != nil {
		j.refused = len(frame)
		// Should the truncation fail too, the half record is a torn tail for the next Open.
		_ = j.step(stepTruncate, func() error { return j.file.Truncate(j.size) })
		return j.fail(fmt.Errorf("append to %s: %w", j.path(fileName), err))
	}
	j.size += int64(len(frame))
	j.unsynced = true
	return nil
}

// fits refuses a record that no journal takes.
func (j *Journal) fits(payload []byte) error {
	if len(payload) == 0 || len(payload) > j.opts.MaxRecord {
		return fmt.Errorf("%d bytes, must be 1 to %d: %w", len(payload), j.opts.MaxRecord, ErrRecordSize)
	}
	return nil
}

// Replay calls fn for each record from the first to the last, as Open does. Appends wait meanwhile.
// It works on a failed journal too: then it shows exactly the records that were acknowledged.
func (j *Journal) Replay(fn func(payload []byte) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.broken, ErrClosed) {
		return j.broken
	}
	end, err := j.scan(j.file, j.size).each(fn)
	if err == nil && end < j.size {
		err = fmt.Errorf("%s lost records behind byte %d while open", j.path(fileName), end)
	}
	return err
}

// Sync makes what was appended so far survive a power loss (fsync). Appends go on meanwhile. A
// failed sync fails the journal and is never repeated on the same pages: the operating system may
// have dropped those that it could not write, and would then report success.
func (j *Journal) Sync() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	return j.syncHeld()
}

// syncHeld is Sync for a holder of syncMu.
func (j *Journal) syncHeld() error {
	j.mu.Lock()
	file, unsynced, broken := j.file, j.unsynced, j.broken
	j.unsynced = false
	j.mu.Unlock()
	if broken != nil || !unsynced {
		return broken
	}
	if err := j.step(stepSync, file.Sync); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.doubtful = true
		return j.fail(fmt.Errorf("sync %s: %w", j.path(fileName), err))
	}
	return nil
}

// Size is the length of the journal in bytes.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Close syncs, closes the file and lets go of the lock. A second Close does nothing.
func (j *Journal) Close() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	prevErr := j.broken
	j.mu.Unlock()
	if errors.Is(prevErr, ErrClosed) {
		return nil
	}
	var err error
	if prevErr == nil { // an earlier failure was returned to its caller
		err = j.syncHeld()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = ErrClosed
	return errors.Join(err, j.file.Close(), j.lock.Close())
}

// fail breaks the journal; the caller holds mu.
func (j *Journal) fail(cause error) error {
	if j.broken == nil {
		j.broken = fmt.Errorf("%w: %w", ErrFailed, cause)
	}
	return j.broken
}

// step changes the disk, unless a test makes it fail.
func (j *Journal) step(name step, change func() error) error {
	if j.opts.fault != nil {
		if err := j.opts.fault(name); err != nil {
			return err
		}
	}
	return change()
}

func (j *Journal) path(name string) string { return filepath.Join(j.dir, name) }

func (j *Journal) scan(f io.ReaderAt, size int64) scanner {
	return scanner{file: f, path: j.path(fileName), size: size, maxRecord: j.opts.MaxRecord}
}

func (j *Journal) syncDir() error { return SyncDir(j.dir) }

// Replace has save write a file that gets the name path once it is whole and on the disk. Until then its name is path, a
// number and ending.
func Replace(path, ending string, save func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+ending)
	if err != nil {
		return err
	}
	if err = save(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory survive a power loss.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
