package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/journal"
)

// DefaultMaxBytes is the bound when Options does not say otherwise. While Redis is away only runs that already have
// their turn write here, so more than some megabytes is rare.
const DefaultMaxBytes = 256 << 20

// ErrFull refuses an entry that would take the spool above Options.MaxBytes. Nothing was written.
var ErrFull = errors.New("the spool is full: Redis has been away for too long")

// Options bound a spool. The zero value is ready to use.
type Options struct {
	// MaxBytes bounds the entries, which are also kept in memory; 0 means DefaultMaxBytes. The files may be twice as
	// large until they are compacted, and three times during that. What was adopted counts, but is never refused.
	MaxBytes int64
}

// Spool holds the appends of this process and those adopted from dead ones. Its methods may be called from any
// goroutine; it starts none.
type Spool struct {
	dir  string
	opts Options
	log  zerolog.Logger

	mu        sync.Mutex
	active    *segment // where Add writes; nil after a failed write, until Add makes a new one
	segments  []*segment
	histories map[memory.Key][]*pending // ordered by before, none empty
	draining  map[memory.Key]chan struct{}
	bytes     int64
	last      int64 // highest at
	closed    bool
}

// Open makes this process's folder under dir, which is created with mode 0700 when absent, and adopts the folders of
// dead processes. One that cannot be read is logged and left as it is for a person to mend: it is no reason not to serve.
func Open(dir string, opts Options, log zerolog.Logger) (*Spool, error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	s := &Spool{
		dir: dir, opts: opts, log: log,
		histories: map[memory.Key][]*pending{},
		draining:  map[memory.Key]chan struct{}{},
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err == nil {
		err = s.adopt()
	}
	if err == nil {
		err = s.activate()
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open the spool in %s: %w", dir, err)
	}
	return s, nil
}

// adopt takes every folder whose lock is free.
func (s *Spool) adopt() error {
	folders, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, f := range folders {
		path := filepath.Join(s.dir, f.Name())
		name, deleted := strings.CutSuffix(f.Name(), gone)
		if !f.IsDir() || !folderName.MatchString(name) {
			continue
		}
		if deleted {
			err = os.RemoveAll(path)
		} else {
			err = s.adoptFolder(path)
		}
		if err != nil {
			s.log.Error().Err(err).Str("folder", path).Msg("a spool folder of a dead process cannot be taken over and stays as it is")
		}
	}
	return nil
}

func (s *Spool) adoptFolder(path string) error {
	// A living process takes its lock before there is a journal. Without this check its folder could be taken from under
	// it in between.
	if _, err := os.Stat(filepath.Join(path, "journal")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	g, err := adoptSegment(path)
	var lives *journal.InUseError
	if errors.As(err, &lives) || errors.Is(err, os.ErrNotExist) { // the latter: another process has just deleted it
		return nil
	}
	if err != nil {
		return err
	}
	s.segments = append(s.segments, g)
	for _, p := range g.live {
		s.insert(p)
	}
	if len(g.live) > 0 {
		s.log.Info().Str("folder", path).Int("appends", len(g.live)).Msg("took over the spool of a dead process")
	}
	s.tidy(g)
	return nil
}

// activate makes the folder that Add writes to.
func (s *Spool) activate() error {
	g, err := createSegment(s.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrFailed, err)
	}
	s.active = g
	s.segments = append(s.segments, g)
	return nil
}

// insert makes p visible to drains.
func (s *Spool) insert(p *pending) {
	list := s.histories[p.Key]
	at, _ := slices.BinarySearchFunc(list, p, before)
	s.histories[p.Key] = slices.Insert(list, at, p)
	s.bytes += p.size
	s.last = max(s.last, p.at)
}

// drop takes entries of any histories out of memory; those that are out already are passed over.
func (s *Spool) drop(entries []*pending) {
	for _, p := range entries {
		list := s.histories[p.Key]
		i, ok := slices.BinarySearchFunc(list, p, before)
		if !ok || list[i] != p {
			continue
		}
		if list = slices.Delete(list, i, i+1); len(list) > 0 {
			s.histories[p.Key] = list
		} else {
			delete(s.histories, p.Key)
		}
		s.bytes -= p.size
		p.segment.drop(p)
	}
}

// Add keeps e. When it returns nil the entry is on the disk, synced; Adds that meet share their syncs.
//
// ErrFull refuses e alone. journal.ErrFailed means that the disk did not take it, with the cause wrapped; what was added
// before can still be drained, and each later Add tries a new folder, so that it works again once there is room. In both
// cases e must not be acknowledged. After journal.ErrFailed its bytes may have reached the disk nevertheless and be found
// by a later Open.
func (s *Spool) Add(e Entry) error {
	p, err := s.append(e)
	if err == nil {
		if err = p.segment.journal.Sync(); err != nil {
			err = s.withdraw(p, err)
		}
	}
	if err != nil {
		return fmt.Errorf("spool event %d of run %s for %s: %w", e.Mark.Seq, e.Mark.Run, e.Key, err)
	}
	return nil
}

// append writes e, not yet synced.
func (s *Spool) append(e Entry) (*pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	at := max(s.last+1, time.Now().UnixMicro())
	record := encodeEntry(at, e)
	if s.bytes+int64(len(record)) > s.opts.MaxBytes {
		return nil, fmt.Errorf("%w (%d bytes wait, at most %d may)", ErrFull, s.bytes, s.opts.MaxBytes)
	}
	if s.active == nil {
		if err := s.activate(); err != nil {
			return nil, err
		}
	}
	g := s.active
	if err := g.journal.Append(record); err != nil {
		s.failed(g, err)
		s.tidy(g)
		return nil, err
	}
	p := &pending{Entry: e, at: at, size: int64(len(record)), segment: g}
	g.put(p)
	s.insert(p)
	return p, nil
}

// withdraw takes back an entry that could not be synced, unless it was drained meanwhile: then it is kept elsewhere.
func (s *Spool) withdraw(p *pending, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(p.segment, cause)
	if p.segment.live[p.at] != p {
		return nil
	}
	s.drop([]*pending{p})
	s.tidy(p.segment)
	return cause
}

// failed gives up a folder whose journal takes no more; its entries stay to be drained.
func (s *Spool) failed(g *segment, err error) {
	if !errors.Is(err, journal.ErrFailed) {
		return
	}
	g.failed = true
	if g == s.active {
		s.active = nil
	}
}

// Pending is how many entries of one history wait. While it is not 0, later appends of that history must come to the
// spool as well, or they would overtake these.
func (s *Spool) Pending(key memory.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.histories[key])
}

// Keys are the histories that have entries, the one with the oldest first.
func (s *Spool) Keys() []memory.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	heads := make([]*pending, 0, len(s.histories))
	for _, list := range s.histories {
		heads = append(heads, list[0])
	}
	slices.SortFunc(heads, before)
	keys := make([]memory.Key, len(heads))
	for i, p := range heads {
		keys[i] = p.Key
	}
	return keys
}

// Bytes is the size of what waits.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Close lets go of the folders; the next Open finds what was not drained. Drains should have ended before: what they
// apply from now on is found again. A second Close does nothing.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.active = true, nil
	var failed error
	for _, g := range s.segments {
		var err error
		if len(g.live) == 0 {
			err = g.remove()
		}
		failed = errors.Join(failed, err, g.journal.Close())
	}
	s.segments = nil
	if failed != nil {
		return fmt.Errorf("close the spool: %w", failed)
	}
	return nil
}
