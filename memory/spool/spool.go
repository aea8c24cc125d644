package spool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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

// defaultMaxBytes is the bound on the waiting entries when Options sets none. While Redis is away
// only runs that already hold their lease write here, so more than some megabytes are rare.
const defaultMaxBytes = 256 << 20

// ErrFull is backpressure: it refuses an entry that would take the spool above Options.MaxBytes.
// Nothing was written.
var ErrFull = errors.New("the spool is full: Redis has been away for too long")

// Options bound a spool. The zero value is ready to use.
type Options struct {
	// MaxBytes bounds the entries, which are also kept in memory; 0 means 256 MiB. The
	// files may be twice as large until they are compacted, and three times during that. Adopted
	// entries count towards the bound but are never refused.
	MaxBytes int64
}

// Spool is a durable queue for appends that Redis could not take: those of this process, and those
// adopted from dead ones. Its methods may be called from any goroutine; it starts none.
type Spool struct {
	dir  string
	name string // this process's id, which is the name of its first folder
	opts Options
	log  zerolog.Logger

	mu sync.Mutex
	// the first folder, kept until Close as its lock shows that this process lives; nil without room for it
	own      *segment
	active   *segment // the folder that Add writes to; nil after a failed write, until Add makes a new one
	segments []*segment
	queues   map[Queue][]*pending    // waiting entries in the order of before; no list is empty
	draining map[Queue]chan struct{} // the queues that are being drained; closed when that ends
	bytes    int64
	last     int64 // the highest time of append, Unix µs; the next one is above it
	closed   bool
	deaths   int             // dead processes of which folders were adopted
	refused  map[string]bool // folders that could not be adopted, so that each is logged once
}

// Open makes this process's folder under dir, which is created with mode 0700 when absent, and
// adopts the folders of dead processes. A folder that cannot be read is logged and left as it is
// for the operator; the service starts without it. It also starts when the disk is full: Add fails
// until there is room.
func Open(dir string, opts Options, log zerolog.Logger) (*Spool, error) {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaultMaxBytes)
	s := &Spool{
		dir: dir, opts: opts, log: log, name: newFolderName(),
		queues:   map[Queue][]*pending{},
		draining: map[Queue]chan struct{}{},
		refused:  map[string]bool{},
	}
	err := s.start()
	if journal.NoRoom(err) {
		log.Error().Err(err).Str("dir", dir).
			Msg("the spool has no room on its disk; what Redis does not take cannot be kept until there is some")
		return s, nil
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open the spool in %s: %w", dir, err)
	}
	return s, nil
}

func (s *Spool) start() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := journal.SyncDir(filepath.Dir(s.dir)); err != nil {
		return err
	}
	if err := s.Adopt(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activate()
}

// Adopt takes over the folders of processes that died since Open or since the last call. A folder
// that cannot be read is logged and left as it is.
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
		name, deleted := strings.CutSuffix(f.Name(), deletedSuffix)
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
	reported := s.refused[path]
	s.refused[path] = true
	s.mu.Unlock()
	if !reported {
		s.log.Error().Err(err).Str("folder", path).
			Msg("a spool folder of a dead process cannot be taken over and stays as it is")
	}
}

// adopt takes over one folder if its process is dead.
func (s *Spool) adopt(path string) {
	if s.holds(path) {
		return
	}
	if err := s.adoptFolder(path); err != nil {
		s.unadopted(path, err)
	}
}

// adoptFolder is adopt with the error returned; nil for the folder of a living process.
func (s *Spool) adoptFolder(path string) error {
	// A starting process takes the lock before it writes the journal's file. Without this check its
	// new folder could be adopted in between.
	if _, err := os.Stat(filepath.Join(path, "journal")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	g, err := openSegment(path)
	// Another process has it, or has just deleted it.
	if _, ok := errors.AsType[*journal.InUseError](err); ok || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.certify(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return g.journal.Close() // the next process adopts it
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

// ReadOthers reads what living processes on the same disk have spooled of a chat: events first, then
// histories, each queue in its order. Those processes keep the entries and apply them too, so the
// caller must apply them idempotently by (run, seq).
func (s *Spool) ReadOthers(chat memory.Chat) ([]Entry, error) {
	folders, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for other spools in %s: %w", s.dir, err)
	}
	var list []*pending
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
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b *pending) int {
		return cmp.Or(strings.Compare(a.kind(), b.kind()), strings.Compare(a.Key.String(), b.Key.String()), compare(a, b))
	})
	return entriesOf(list), nil
}

// holds reports whether the folder at path is one of this process's.
func (s *Spool) holds(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == path })
}

// activate makes the folder that Add writes to. The caller holds mu.
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

// Check is the spool's health: nil while Add can write, because its file is in place or a new one
// could be made after a failure. Entries of a file that was removed from outside are still drained
// from memory, but would be lost with this process.
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

// insert adds p to its queue, at its place in the order.
func (s *Spool) insert(p *pending) {
	list := s.queues[p.Queue]
	i, _ := slices.BinarySearchFunc(list, p, compare)
	s.queues[p.Queue] = slices.Insert(list, i, p)
	s.bytes += p.size
	s.last = max(s.last, p.timestamp)
}

// drop takes entries out of their queues and segments; those that are out already are passed over.
func (s *Spool) drop(entries []*pending) {
	for _, p := range entries {
		list := s.queues[p.Queue]
		i, ok := slices.BinarySearchFunc(list, p, compare)
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

// Add stores entries durably, in their order. When it returns nil they are synced to the disk and
// may be acknowledged; concurrent Adds share a sync (group commit).
//
// ErrFull refuses these entries alone. journal.ErrFailed means that the disk did not take them,
// with the cause wrapped; entries added before can still be drained, and each later Add tries a new
// folder, so that the spool works again once the disk does. In both cases none of them may be
// acknowledged. After journal.ErrFailed their bytes may nevertheless be on the disk and be found by
// a later Open.
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
		return fmt.Errorf("spool %d appends from event %d of run %s on for %s: %w", len(entries), e.Mark.Seq, e.Mark.Run,
			e.Queue, err)
	}
	return nil
}

// append writes entries into one file, not yet synced. After an error it returns those that were
// written before it.
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
	timestamp, total := max(s.last+1, time.Now().UnixMicro()), s.bytes
	records := make([][]byte, len(entries))
	for i, e := range entries {
		records[i] = encodeEntry(timestamp+int64(i), e)
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
		p := &pending{Entry: e, timestamp: timestamp + int64(i), size: int64(len(records[i])), segment: g}
		g.put(p)
		s.insert(p)
		added = append(added, p)
	}
	return added, nil
}

// withdraw takes back entries after a failed write or sync. It returns nil if all of them were
// drained to Redis meanwhile, since they are safe there.
func (s *Spool) withdraw(added []*pending, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	drained := len(added) > 0
	for _, p := range added {
		s.failed(p.segment, cause)
		if p.segment.live[p.timestamp] == p {
			drained = false
			s.drop([]*pending{p})
			s.tidy(p.segment)
		}
	}
	if drained {
		return nil
	}
	return cause
}

// failed gives up a segment with a journal that takes no more records; its entries stay to be drained.
func (s *Spool) failed(g *segment, err error) {
	if !errors.Is(err, journal.ErrFailed) {
		return
	}
	g.failed = true
	if g == s.active {
		s.active = nil
	}
}

// Pending is how many entries of one queue wait. While it is not 0, later appends of that queue
// must go through the spool as well, or they would overtake these.
func (s *Spool) Pending(q Queue) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[q])
}

// Queues are those with waiting entries, ordered by their oldest one.
func (s *Spool) Queues() []Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.queues), func(a, b Queue) int { return compare(s.queues[a][0], s.queues[b][0]) })
}

// Bytes is the size of the waiting entries' records.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Close releases the folders; the next Open on this disk adopts what was not drained. Drains should
// have ended before: entries that they apply after this are handed out again. A second Close does
// nothing.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.active = true, nil
	var failed error
	for _, g := range s.segments {
		var err error
		if g == s.own && len(g.live) == 0 {
			// Nothing waits here, so nothing can come from this process any more: its leases need
			// not be waited for.
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
