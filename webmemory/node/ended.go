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

// IsRunID reports whether s has the form of a run id: 26 characters of base32.
func IsRunID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// Limits of the files of ended runs. The files cover the time until a failover is noticed and a process is restarted.
const (
	EndsLife    = 15 * time.Minute
	endsBytes   = 256 << 20
	endMaxBytes = 16 << 20 // per run
)

// EndStore stores the events of runs that ended or were suspended in this process on disk, in case Redis loses them:
//
//	<dir>/<escaped chat>/<run>         a line of JSON about the run, then a line per event
//	<dir>/<escaped chat>/calls-<run>   a CallLine for each external tool call that a post's runs were granted, each
//	                                   result, and each answer to their waits; run is that of the first attempt
//
// Processes with the same data folder share the files, including files of dead processes. The files survive the death
// of the process, but not a power loss. EndStore is safe for concurrent use.
type EndStore struct {
	Dir string // "" stores nothing
	Log zerolog.Logger
	// TakenBack reports whether run was taken back after turn.
	TakenBack func(chat memory.Chat, run string, turn int64) bool

	mu     sync.Mutex
	bytes  int64 // guarded by mu: approximate size of the files
	failed bool  // guarded by mu: the last write failed
}

// EndHead is the first line of a run's file.
type EndHead struct {
	V    int               `json:"v"` // 1
	Chat memory.StoredChat `json:"chat"`
	Run  string            `json:"run"`
	Turn int64             `json:"turn"` // turn in which the run ended
	Body string            `json:"body"` // hash of the post
	// Conversation is the gateway's conversation at that time.
	Conversation string `json:"conversation,omitempty"`
	// Unkeyed means that no post can repeat the run's post, because it has no idempotency key.
	Unkeyed bool `json:"unkeyed,omitempty"`
	// First is the run of the post's first attempt, if this run is a later attempt.
	First string `json:"first,omitempty"`
	// Events is the URL of the run's events at its apiserver.
	Events string `json:"events,omitempty"`
	// Waiting is the state from which a suspended run resumes; nil for an ended run.
	Waiting *redisstore.Waiting `json:"waiting,omitempty"`
}

// folder returns the folder of a chat. A name that is too long for a file is hashed.
func (e *EndStore) folder(chat memory.Chat) string {
	name := "c-" + escaped(chat)
	if len(name) > 200 {
		name = fmt.Sprintf("h-%x", sha256.Sum256([]byte(chat.String())))
	}
	return filepath.Join(e.Dir, name)
}

// path returns the file of a run, or "" if run cannot be a run id.
func (e *EndStore) path(chat memory.Chat, run string) string {
	if run == "" || strings.ContainsAny(run, "./\\\x00") {
		return ""
	}
	return filepath.Join(e.folder(chat), run)
}

// Keep stores a run's events. Files of a suspended run, and of its calls, last until its waits have expired. The files
// matter only if Redis loses the run too, so repeated failures are logged once.
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
		if head.Waiting != nil { // the file's age counts from here
			until := time.UnixMilli(head.Waiting.Until)
			if err := os.Chtimes(path+".new", until, until); err != nil {
				return err
			}
			calls := e.path(head.Chat.Chat, CallsFile+cmp.Or(head.First, head.Run))
			_ = os.Chtimes(calls, until, until) // most posts have no such file
		}
		return os.Rename(path+".new", path)
	})
}

// put calls write, which adds size bytes to a chat's folder. It creates the folder if necessary. It tries up to three
// times, because a sweep may remove an empty folder at any time.
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

// Find returns the head and the events of a run, or zero values if the file is missing or damaged.
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

// Heads returns the heads of all stored runs, sorted by path.
func (e *EndStore) Heads() (out []EndHead) {
	for _, f := range e.files() {
		file, err := os.Open(f.path)
		if err != nil {
			continue // the file was removed meanwhile
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

// Runs returns the ids of a chat's stored runs.
func (e *EndStore) Runs(chat memory.Chat) (ids []string) {
	if e.Dir == "" {
		return nil
	}
	files, _ := os.ReadDir(e.folder(chat)) // most chats have no folder
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), CallsFile) {
			ids = append(ids, f.Name())
		}
	}
	return ids
}

// Remove deletes the files of a chat's runs for an erasure. It may be called again after an error.
func (e *EndStore) Remove(chat memory.Chat) error {
	if e.Dir == "" {
		return nil
	}
	if err := os.RemoveAll(e.folder(chat)); err != nil {
		return fmt.Errorf("erasing the ended runs of chat %s: %w", chat, err)
	}
	return nil
}

// RemoveRun deletes the file of a run. It is idempotent.
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

// endFile is a file of the store.
type endFile struct {
	path    string
	size    int64
	modTime time.Time
}

func (e *EndStore) files() (files []endFile) {
	if e.Dir == "" {
		return nil
	}
	// Other processes remove files at the same time, so unreadable files are skipped.
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

// Sweep removes expired files. If the total size is too large, it removes the oldest files.
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
		// Leave some room, so that a full folder is not walked for each run.
		if time.Since(f.modTime) <= EndsLife && e.bytes+f.size <= endsBytes*3/4 {
			e.bytes += f.size
			continue
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.Log.Debug().Err(err).Msg("an ended run stays on disk for now")
		}
		_ = os.Remove(filepath.Dir(f.path)) // fails unless the folder is empty
	}
}

// KnownRun is the response of an internal route. It holds a run's events from the first one on, as far as a process has
// shown them.
type KnownRun struct {
	Run    EndHead           `json:"run"`
	Events []json.RawMessage `json:"events"`
}
