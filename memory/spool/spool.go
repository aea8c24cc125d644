package spool

import (
	"cmp"
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
	name string // this process's, and that of its first folder
	opts Options
	log  zerolog.Logger

	mu       sync.Mutex
	own      *segment // the first folder, which stays until Close; nil while there is no room for one
	active   *segment // where Add writes; nil after a failed write, until Add makes a new one
	segments []*segment
	queues   map[Queue][]*pending // ordered by before, none empty
	draining map[Queue]chan struct{}
	bytes    int64
	last     int64 // highest at
	closed   bool
	deaths   int             // processes that this one found dead
	refused  map[string]bool // folders that could not be taken over, as was logged
}

// Open makes this process's folder under dir, which is created with mode 0700 when absent, and adopts the folders of
// dead processes. One that cannot be read is logged and left as it is for a person to mend: it is no reason not to serve.
// Nor is a full disk: Add fails until there is room.
func Open(dir string, opts Options, log zerolog.Logger) (*Spool, error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	s := &Spool{
		dir: dir, opts: opts, log: log, name: newFolderName(),
		queues:   map[Queue][]*pending{},
		draining: map[Queue]chan struct{}{},
		refused:  map[string]bool{},
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err == nil {
		err = s.Adopt()
	}
	if err == nil {
		s.mu.Lock()
		err = s.activate()
		s.mu.Unlock()
	}
	if journal.NoRoom(err) {
		log.Error().Err(err).Str("dir", dir).Msg("the spool has no room on its disk; what Redis does not take cannot be kept until there is some")
		return s, nil
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open the spool in %s: %w", dir, err)
	}
	return s, nil
}

// Adopt takes the folders of processes that died since Open, or since the last call. One that cannot be read is logged
// and left as it is.
func (s *Spool) Adopt() error {
	folders, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed; Add makes it anew
	}
	if err != nil {
		return err
	}
	for _, f := range folders {
		path := filepath.Join(s.dir, f.Name())
		name, deleted := strings.CutSuffix(f.Name(), gone)
		switch {
		case strings.HasSuffix(name, dead):
			forgetDead(f, path)
		case !f.IsDir() || !folderName.MatchString(name):
		case deleted:
			if err := os.RemoveAll(path); err != nil {
				s.unadopted(path, err)
			}
		default:
			s.adopt(path)
		}
	}
	return nil
}

// unadopted logs, once, that a folder could not be taken over.
func (s *Spool) unadopted(path string, err error) {
	s.mu.Lock()
	known := s.refused[path]
	s.refused[path] = true
	s.mu.Unlock()
	if known {
		return
	}
	s.log.Error().Err(err).Str("folder", path).Msg("a spool folder of a dead process cannot be taken over and stays as it is")
}

// adopt takes one folder, if its process is dead.
func (s *Spool) adopt(path string) {
	if s.holds(path) {
		return
	}
	if err := s.adoptFolder(path); err != nil {
		s.unadopted(path, err)
	}
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
	s.certify(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return g.journal.Close() // for the next one
	}
	s.segments = append(s.segments, g)
	s.deaths++
	for _, p := range g.live {
		s.insert(p)
	}
	if len(g.live) > 0 {
		s.log.Info().Str("folder", path).Int("appends", len(g.live)).Msg("took over the spool of a dead process")
	}
	s.tidy(g)
	return nil
}

// Beside is what living processes hold of a chat in folders next to this one's: events first, then by history, each
// queue in its order. They go on holding it; whoever applies it must do so idempotently by (run, seq), as they will.
func (s *Spool) Beside(chat memory.Chat) ([]Entry, error) {
	folders, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for other spools in %s: %w", s.dir, err)
	}
	var found []*pending
	for _, f := range folders {
		path := filepath.Join(s.dir, f.Name())
		if !f.IsDir() || !folderName.MatchString(f.Name()) || s.holds(path) {
			continue
		}
		g := newSegment(path)
		switch err := journal.Read(path, journal.Options{}, g.replay); {
		case errors.Is(err, os.ErrNotExist): // its process has just begun, or ended
			continue
		case err != nil:
			return nil, fmt.Errorf("read another process's spool: %w", err)
		}
		for _, p := range g.live {
			if p.Key.Chat() == chat {
				found = append(found, p)
			}
		}
	}
	slices.SortFunc(found, func(a, b *pending) int {
		switch {
		case a.Events != b.Events && a.Events:
			return -1
		case a.Events != b.Events:
			return 1
		}
		return cmp.Or(strings.Compare(a.Key.String(), b.Key.String()), before(a, b))
	})
	entries := make([]Entry, len(found))
	for i, p := range found {
		entries[i] = p.Entry
	}
	return entries, nil
}

// holds reports whether the folder at path is one of this process's.
func (s *Spool) holds(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == path })
}

// activate makes the folder that Add writes to.
func (s *Spool) activate() error {
	name := s.name
	if s.own != nil {
		name = newFolderName()
	}
	g, err := createSegment(s.dir, name)
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrFailed, err)
	}
	if s.own == nil {
		s.own = g
	}
	s.active = g
	s.segments = append(s.segments, g)
	return nil
}

// Check is nil while the spool can take entries: the file that Add writes to is in its folder, or, after a failure, a new
// one could be made. What was in a file that somebody removed is still drained, but would not survive this process.
func (s *Spool) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if g := s.active; g != nil {
		err := g.journal.Check()
		if err == nil {
			return nil
		}
		s.failed(g, err)
		s.log.Error().Err(err).Str("folder", g.dir).Int("appends", len(g.live)).
			Msg("the spool's file takes no more; another one is made")
		s.tidy(g)
	}
	if err := s.activate(); err != nil {
		return fmt.Errorf("the spool in %s takes nothing: %w", s.dir, err)
	}
	return nil
}

// insert makes p visible to drains.
func (s *Spool) insert(p *pending) {
	list := s.queues[p.Queue]
	at, _ := slices.BinarySearchFunc(list, p, before)
	s.queues[p.Queue] = slices.Insert(list, at, p)
	s.bytes += p.size
	s.last = max(s.last, p.at)
}

// drop takes entries of any histories out of memory; those that are out already are passed over.
func (s *Spool) drop(entries []*pending) {
	for _, p := range entries {
		list := s.queues[p.Queue]
		i, ok := slices.BinarySearchFunc(list, p, before)
		if !ok || list[i] != p {
			continue
		}
		if list = slices.Delete(list, i, i+1); len(list) > 0 {
			s.queues[p.Queue] = list
		} else {
			delete(s.queues, p.Queue)
		}
		s.bytes -= p.size
		p.segment.drop(p)
	}
}

// Add keeps entries, in their order. When it returns nil they are on the disk, synced; Adds that meet share their syncs.
//
// ErrFull refuses these alone. journal.ErrFailed means that the disk did not take them, with the cause wrapped; what was
// added before can still be drained, and each later Add tries a new folder, so that it works again once there is room. In
// both cases none of them must be acknowledged. After journal.ErrFailed their bytes may have reached the disk
// nevertheless and be found by a later Open.
func (s *Spool) Add(entries ...Entry) error {
	added, err := s.append(entries)
	if err == nil && len(added) > 0 {
		err = added[0].segment.journal.Sync()
	}
	if err != nil {
		err = s.withdraw(added, err)
	}
	if err != nil {
		e := entries[0]
		return fmt.Errorf("spool %d appends from event %d of run %s on for %s: %w", len(entries), e.Mark.Seq, e.Mark.Run, e.Queue, err)
	}
	return nil
}

// append writes entries into one file, not yet synced. After an error those before it are returned.
func (s *Spool) append(entries []Entry) (added []*pending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	if s.active == nil {
		if err := s.activate(); err != nil {
			return nil, err
		}
	}
	g := s.active
	at, total := max(s.last+1, time.Now().UnixMicro()), s.bytes
	records := make([][]byte, len(entries))
	for i, e := range entries {
		records[i] = encodeEntry(at+int64(i), e)
		total += int64(len(records[i]))
	}
	if total > s.opts.MaxBytes {
		return nil, fmt.Errorf("%w (%d bytes wait, at most %d may)", ErrFull, s.bytes, s.opts.MaxBytes)
	}
	for i, e := range entries {
		if err := g.journal.Append(records[i]); err != nil {
			s.failed(g, err)
			s.tidy(g)
			return added, err
		}
		p := &pending{Entry: e, at: at + int64(i), size: int64(len(records[i])), segment: g}
		g.put(p)
		s.insert(p)
		added = append(added, p)
	}
	return added, nil
}

// withdraw takes back entries that are not all on the disk. Those that were drained meanwhile are kept elsewhere; if all
// were, there is no error left.
func (s *Spool) withdraw(added []*pending, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := len(added) > 0
	for _, p := range added {
		s.failed(p.segment, cause)
		if p.segment.live[p.at] == p {
			taken = false
			s.drop([]*pending{p})
			s.tidy(p.segment)
		}
	}
	if taken {
		return nil
	}
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

// Pending is how many entries of one queue wait. While it is not 0, later appends of that queue must come to the spool
// as well, or they would overtake these.
func (s *Spool) Pending(q Queue) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[q])
}

// Queues are those that have entries, the one with the oldest first.
func (s *Spool) Queues() []Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	heads := make([]*pending, 0, len(s.queues))
	for _, list := range s.queues {
		heads = append(heads, list[0])
	}
	slices.SortFunc(heads, before)
	queues := make([]Queue, len(heads))
	for i, p := range heads {
		queues[i] = p.Queue
	}
	return queues
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
		if g == s.own && len(g.live) == 0 {
			// A lease that could not be given back is not waited for.
			s.certify(g.dir)
		}
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
