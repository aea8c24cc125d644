package spool

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/journal"
)

// gone is the suffix of a folder that is being deleted; it is never read.
const deletedSuffix = ".gone"

// compactFrom is how many bytes of a folder may be garbage before it is compacted for that.
const compactFrom = 1 << 20

// folderName matches the names that newFolderName makes; notHost what it replaces in a host's name.
var (
	folderName = regexp.MustCompile(`^.+-[0-9]+-[a-z2-7]{12}$`)
	notHost    = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
)

// segment is one folder of the spool that this process holds the lock of, with its journal.
// Guarded by Spool.mu, except that the journal syncs without it.
type segment struct {
	dir     string
	journal *journal.Journal
	live    map[int64]*pending // the entries that wait, by their time of append
	bytes   int64              // size of the live entries' records
	// every history that the file has text of, live or not, with the oldest turn of that text
	oldestTurn map[memory.Key]int64
	failed     bool // the journal takes no more records
}

// newFolderName makes the unique name <host>-<pid>-<random>.
func newFolderName() string {
	host, err := os.Hostname()
	if host = notHost.ReplaceAllString(host, "_"); err != nil || host == "" {
		host = "host"
	}
	host = host[:min(len(host), 64)]
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:12]))
}

// createSegment makes a folder of this process's own under dir. When it returns, the folder
// survives a power loss.
func createSegment(dir, name string) (*segment, error) {
	path := filepath.Join(dir, name)
	g, err := openSegment(path)
	if err == nil {
		if err = journal.SyncDir(dir); err == nil {
			return g, nil
		}
		_ = g.journal.Close()
	}
	_ = os.RemoveAll(path) // nothing was written to it
	return nil, err
}

// openSegment opens a folder and takes its lock. *journal.InUseError means that its process lives.
func openSegment(dir string) (g *segment, err error) {
	g = newSegment(dir)
	g.journal, _, err = journal.Open(dir, journal.Options{}, g.replay)
	return g, err
}

func newSegment(dir string) *segment {
	return &segment{dir: dir, live: map[int64]*pending{}, oldestTurn: map[memory.Key]int64{}}
}

// replay rebuilds the live entries from the journal's records.
func (g *segment) replay(record []byte) error {
	timestamp, e, done, err := decode(record)
	if err != nil {
		return err
	}
	for _, t := range done {
		if p := g.live[t]; p != nil {
			g.drop(p)
		}
	}
	if len(done) == 0 {
		g.put(&pending{Entry: e, timestamp: timestamp, size: int64(len(record)), segment: g})
	}
	return nil
}

// put adds an entry that is in the file.
func (g *segment) put(p *pending) {
	g.live[p.timestamp] = p
	g.bytes += p.size
	g.hold(p)
}

// hold notes that the file has text of the entry's history.
func (g *segment) hold(p *pending) {
	if turn, ok := g.oldestTurn[p.Key]; !ok || p.Mark.Turn < turn {
		g.oldestTurn[p.Key] = p.Mark.Turn
	}
}

// drop takes an entry out of the live ones. Its text stays in the file until the next compaction.
func (g *segment) drop(p *pending) {
	delete(g.live, p.timestamp)
	g.bytes -= p.size
}

// has reports whether the file has text that is erased, be it of live entries or of garbage that
// waits for compaction.
func (g *segment) has(erased func(memory.Key) int64) bool {
	for k, oldest := range g.oldestTurn {
		if oldest < erased(k) {
			return true
		}
	}
	return false
}

// wasteful reports whether the file is worth a compaction.
func (g *segment) wasteful() bool {
	if len(g.live) == 0 {
		return len(g.oldestTurn) > 0
	}
	return g.journal.Size() > 2*g.bytes+compactFrom
}

// sorted are the live entries in the order in which they were added, without those that erased
// covers; a nil erased covers none.
func (g *segment) sorted(erased func(Entry) bool) []*pending {
	list := slices.SortedFunc(maps.Values(g.live), func(a, b *pending) int {
		return cmp.Compare(a.timestamp,
			b.timestamp)
	})
	return slices.DeleteFunc(list, func(p *pending) bool { return erased != nil && erased(p.Entry) })
}

// rewrite compacts the file: it leaves nothing in it but the entries in keep, which are live ones.
func (g *segment) rewrite(keep []*pending) error {
	err := g.journal.Rewrite(func(emit func([]byte) error) error {
		for _, p := range keep {
			if err := emit(encodeEntry(p.timestamp, p.Entry)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	clear(g.oldestTurn)
	for _, p := range keep {
		g.hold(p)
	}
	return nil
}

// remove deletes the folder. It is renamed first, so that a crash leaves it whole or marked as
// gone, and the lock is released last, so that no process adopts a folder that is half deleted. It
// may be called again after an error.
func (g *segment) remove() error {
	if err := os.Rename(g.dir, g.dir+deletedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := errors.Join(os.RemoveAll(g.dir+deletedSuffix), journal.SyncDir(filepath.Dir(g.dir)))
	if err == nil {
		_ = g.journal.Close() // the file has no name by now
	}
	return err
}

// pending is an entry that was neither drained nor erased.
type pending struct {
	Entry
	timestamp int64
	size      int64 // of its record, in bytes
	segment   *segment
}

// compare orders the entries of a queue for draining, by turn and then by time of append; and queues
// among each other by their first entries.
func compare(a, b *pending) int {
	return cmp.Or(cmp.Compare(a.Mark.Turn, b.Mark.Turn), cmp.Compare(a.timestamp, b.timestamp),
		cmp.Compare(a.segment.dir, b.segment.dir))
}
