package node

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// IsRunID says whether a text looks like what runID makes: 26 characters of base32.
func IsRunID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// Bounds of what is kept of ended runs on disk: it is for the time in which a failover
// is noticed and a process restarted.
const (
	EndsLife    = 15 * time.Minute
	endsBytes   = 256 << 20
	endMaxBytes = 16 << 20 // of one run
)

// EndStore keeps the events of runs that ended or were suspended here on disk, for when Redis loses them:
//
//	<dir>/<escaped chat>/<run>         a line of JSON about the run, then a line per event
//	<dir>/<escaped chat>/calls-<run>   a CallLine for each call of a tool outside that a post's runs were granted, each
//	                                   result, and each answer to their waits; run is that of the first attempt
//
// Processes of one data folder share them, and find those of the dead. The files
// survive the death of the process, not a power loss. Safe for concurrent use.
type EndStore struct {
	Dir string // "" keeps nothing
	Log zerolog.Logger
	// TakenBack says whether a run of a turn was taken back since.
	TakenBack func(chat memory.Chat, run string, turn int64) bool

	mu     sync.Mutex
	bytes  int64 // guarded by mu: about what the files take
	failed bool  // guarded by mu
}

// EndHead is the first line of a file.
type EndHead struct {
	V    int               `json:"v"` // 1
	Chat memory.StoredChat `json:"chat"`
	Run  string            `json:"run"`
	Turn int64             `json:"turn"` // in which it ended
	Body string            `json:"body"` // hash of the post
	// Conversation is the gateway's of that time.
	Conversation string `json:"conversation,omitempty"`
	// Unkeyed: no post can repeat it.
	Unkeyed bool `json:"unkeyed,omitempty"`
	// First is the run of the first attempt at the post, if this is another one.
	First string `json:"first,omitempty"`
	// Events is the URL of the run's events at the apiserver that has it.
	Events string `json:"events,omitempty"`
	// Waiting is what the run goes on from, if it is suspended; nil for one that ended.
	Waiting *redisstore.Waiting `json:"waiting,omitempty"`
}

// folder is a chat's. A name that would be too long for a file is hashed.
func (e *EndStore) folder(chat memory.Chat) string {
	name := "c-" + escaped(chat)
	if len(name) > 200 {
		name = fmt.Sprintf("h-%x", sha256.Sum256([]byte(chat.String())))
	}
	return filepath.Join(e.Dir, name)
}

// path is the file of a run; empty for what is no id of a run.
func (e *EndStore) path(chat memory.Chat, run string) string {
	if run == "" || strings.ContainsAny(run, "./\\\x00") {
		return ""
	}
	return filepath.Join(e.folder(chat), run)
}

// Keep writes a run's events. Those of one that waits, and its calls, last until its waits have expired. What cannot be
// kept is only missed if Redis loses the run too, so a failure is reported once.
func (e *EndStore) Keep(head EndHead, lines [][]byte) {
	path := e.path(head.Chat.Chat, head.Run)
	if e.Dir == "" || path == "" {
		return
	}
	head.V = 1
	first, err := json.Marshal(head)
	if err != nil {
		return
	}
	size := len(first) + 1
	for _, l := range lines {
		size += len(l) + 1
	}
	if size > endMaxBytes {
		return
	}
	text := append(bytes.Join(append([][]byte{first}, lines...), []byte("\n")), '\n')
	e.put(head.Chat.Chat, size, func() error {
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			return err
		}
		if head.Waiting != nil { // from when on its age is counted
			until := time.UnixMilli(head.Waiting.Until)
			if err := os.Chtimes(path+".new", until, until); err != nil {
				return err
			}
			calls := e.path(head.Chat.Chat, CallsFile+cmp.Or(head.First, head.Run))
			_ = os.Chtimes(calls, until, until) // of a run that was granted none there is no such file
		}
		return os.Rename(path+".new", path)
	})
}

// put writes something of so many bytes into a chat's folder, which is there in most cases; a sweep may remove an empty
// one at any time.
func (e *EndStore) put(chat memory.Chat, size int, write func() error) {
	var err error
	for range 3 {
		if err = write(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if mkdirErr := os.MkdirAll(e.folder(chat), 0o700); mkdirErr != nil {
			err = mkdirErr
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !e.failed {
		e.Log.Warn().Err(err).Msg("ended runs and calls of tools cannot be kept on disk; what a failover of Redis loses of " +
			"them is lost")
	}
	e.failed = err != nil
	if e.bytes += int64(size); e.bytes > endsBytes {
		e.sweepHeld()
	}
}

// Find reads a run's events; none if they are not there, or not whole.
func (e *EndStore) Find(chat memory.Chat, run string) (EndHead, [][]byte) {
	path := e.path(chat, run)
	if e.Dir == "" || path == "" {
		return EndHead{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return EndHead{}, nil
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	var head EndHead
	if json.Unmarshal(first, &head) != nil || head.V != 1 || head.Chat.Chat != chat || head.Run != run {
		return EndHead{}, nil
	}
	return head, bytes.Split(bytes.TrimSuffix(rest, []byte("\n")), []byte("\n"))
}

// Heads are those of all runs that are kept, by chat and run.
func (e *EndStore) Heads() (out []EndHead) {
	for _, f := range e.files() {
		file, err := os.Open(f.path)
		if err != nil {
			continue // it went meanwhile
		}
		first, err := bufio.NewReader(file).ReadBytes('\n')
		_ = file.Close()
		var head EndHead
		if err == nil && json.Unmarshal(first, &head) == nil && head.V == 1 && e.path(head.Chat.Chat, head.Run) == f.path {
			out = append(out, head)
		}
	}
	return out
}

// Runs names the runs of a chat that are kept.
func (e *EndStore) Runs(chat memory.Chat) (ids []string) {
	if e.Dir == "" {
		return nil
	}
	files, _ := os.ReadDir(e.folder(chat)) // absent in most cases
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), CallsFile) {
			ids = append(ids, f.Name())
		}
	}
	return ids
}

// Remove deletes what is kept of a chat's runs. It is for an erasure: after an error
// it may be called again.
func (e *EndStore) Remove(chat memory.Chat) error {
	if e.Dir == "" {
		return nil
	}
	if err := os.RemoveAll(e.folder(chat)); err != nil {
		return fmt.Errorf("erasing the ended runs of chat %s: %w", chat, err)
	}
	return nil
}

// RemoveRun deletes what is kept of one run. It may be called again.
func (e *EndStore) RemoveRun(chat memory.Chat, run string) error {
	path := e.path(chat, run)
	if e.Dir == "" || path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking back run %s of chat %s: %w", run, chat, err)
	}
	return nil
}

// endFile is one file of the folder.
type endFile struct {
	path    string
	size    int64
	modTime time.Time
}

func (e *EndStore) files() (files []endFile) {
	if e.Dir == "" {
		return nil
	}
	// Others remove files at the same time; what cannot be looked at is passed over.
	_ = filepath.WalkDir(e.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			files = append(files, endFile{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	return files
}

// Sweep removes what is too old, and the oldest of what is too much.
func (e *EndStore) Sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweepHeld()
}

func (e *EndStore) sweepHeld() {
	files := e.files()
	slices.SortFunc(files, func(a, b endFile) int {
		return cmp.Or(b.modTime.Compare(a.modTime),
			strings.Compare(a.path, b.path))
	})
	e.bytes = 0
	for _, f := range files {
		// Room for a while, so that a full folder is not walked for each run.
		if time.Since(f.modTime) <= EndsLife && e.bytes+f.size <= endsBytes*3/4 {
			e.bytes += f.size
			continue
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.Log.Debug().Err(err).Msg("an ended run stays on disk for now")
		}
		_ = os.Remove(filepath.Dir(f.path)) // if it was the last one there
	}
}

// KnownRun is the answer of an internal route: a run's events from the first on, as
// far as a process has shown them.
type KnownRun struct {
	Run    EndHead           `json:"run"`
	Events []json.RawMessage `json:"events"`
}
