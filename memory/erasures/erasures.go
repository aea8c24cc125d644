// Package erasures is the durable list of what was erased, and in which turn: tombstones on this disk, beside those
// in Redis. It is read when Redis comes back from an older state, and lets the processes of one data folder see what
// was erased there. The file is one line of JSON per erasure, {"name":"chat_history:12345","turn":1760000000000},
// where a name is the key of a history, chat:<chat> for everything of a chat, user:<user> for the notes of a user, or
// that of a Redaction.
//
// It owns the file that it is given, which processes share under the lock of a file beside it. It never holds
// anything that users said, and erases nothing by itself.
package erasures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/journal"
)

// Life is how long an erasure is kept: as long as its tombstone in Redis.
const Life = 30 * 24 * time.Hour

// compactFrom is the size in bytes from which the file is compacted: records older than Life go.
const compactFrom = 1 << 20

// Chat is the name under which the erasure of everything of a chat is recorded.
func Chat(chat memory.Chat) string { return "chat:" + chat.String() }

// ChatOf parses a name: the chat, and the history's key if only one history was erased. ok is false
// for a name of another kind.
func ChatOf(name string) (chat memory.Chat, key *memory.Key, ok bool) {
	if id, isChat := strings.CutPrefix(name, "chat:"); isChat {
		chat, err := memory.ParseChat(id)
		return chat, nil, err == nil
	}
	k, ok := memory.ParseKey(name)
	return k.Chat(), &k, ok
}

// ofUser is the prefix of names of users.
const ofUser = "user:"

// User is the name under which the erasure of a user's notes is recorded. Its turn is a Unix time in ms.
func User(u memory.User) string { return ofUser + u.String() }

// UserOf parses a name that User made; ok is false for a name of another kind.
func UserOf(name string) (u memory.User, ok bool) {
	rest, isUser := strings.CutPrefix(name, ofUser)
	u, err := memory.ParseUser(rest)
	return u, isUser && err == nil
}

// byHand is the prefix of names of histories that were changed by hand.
const byHand = "cut:"

// HandCut is the name under which a change of a history by hand is recorded, so that older copies
// of it do not bring back what an operator took away.
func HandCut(key memory.Key) string { return byHand + key.String() }

// HandCutOf parses a name that HandCut made; ok is false for a name of another kind.
func HandCutOf(name string) (key memory.Key, ok bool) {
	rest, hand := strings.CutPrefix(name, byHand)
	key, ok = memory.ParseKey(rest)
	return key, hand && ok
}

// redaction is the prefix of names of redactions.
const redaction = "redacted:"

// Redaction says which messages were redacted: all that one run made in a chat, or those of one history
// that have these ids.
type Redaction struct {
	Chat memory.Chat
	Run  string     // "" for messages by their ids
	Key  memory.Key // of the history, for ids
	IDs  []string
}

// Name is the name under which the redaction is recorded.
func (r Redaction) Name() string {
	if r.Run != "" {
		return redaction + "all:" + r.Run + " " + Chat(r.Chat)
	}
	return redaction + "id:" + strings.Join(r.IDs, ",") + " " + r.Key.String()
}

// Has says whether the redaction covers a message of one of the chat's histories.
func (r Redaction) Has(key memory.Key, id string) bool {
	if r.Run == "" {
		return key == r.Key && slices.Contains(r.IDs, id)
	}
	return memory.RunOf(id) == r.Run
}

// RedactionOf parses a name that Name made; ok is false for a name of another kind.
func RedactionOf(name string) (r Redaction, ok bool) {
	rest, redacted := strings.CutPrefix(name, redaction)
	what, scope, parted := strings.Cut(rest, " ")
	chat, key, valid := ChatOf(scope)
	if !redacted || !parted || !valid {
		return Redaction{}, false
	}
	r.Chat = chat
	if run, isRun := strings.CutPrefix(what, "all:"); isRun && key == nil {
		r.Run = run
		return r, run != ""
	}
	ids, hasIDs := strings.CutPrefix(what, "id:")
	if !hasIDs || key == nil {
		return Redaction{}, false
	}
	r.Key, r.IDs = *key, strings.Split(ids, ",")
	return r, ids != ""
}

type record struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// File is the list of erasures of one data folder. Safe for concurrent use.
type File struct {
	path string // "" keeps it in memory only

	mu    sync.Mutex
	turns map[string]int64 // guarded by mu
	info  os.FileInfo      // guarded by mu: the file as it was last read; nil before
	// redacted are the redactions among turns, by their chats; guarded by mu, nil until they are asked for.
	redacted map[memory.Chat][]Redacted
}

// Redacted is a redaction and the turn in which it was made.
type Redacted struct {
	Redaction
	Turn int64
}

// Redactions are those of a chat.
func (f *File) Redactions(chat memory.Chat) []Redacted {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.redacted == nil {
		f.redacted = map[memory.Chat][]Redacted{}
		for name, turn := range f.turns {
			if r, ok := RedactionOf(name); ok {
				f.redacted[r.Chat] = append(f.redacted[r.Chat], Redacted{r, turn})
			}
		}
	}
	return f.redacted[chat]
}

// Open reads the list at path, which need not exist; "" is a list in memory.
func Open(path string) (*File, error) {
	f := &File{path: path, turns: map[string]int64{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f, f.refresh()
}

// Turns are the newest turns in which something was erased, by name. Older erasures under the same
// name are implied.
func (f *File) Turns() (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.refresh()
	return maps.Clone(f.turns), err
}

// Lookup are the newest turns in which what has the names of turns was erased, without those that are not known.
func (f *File) Lookup(turns map[string]int64) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.refresh()
	newest := map[string]int64{}
	for name := range turns {
		if turn, ok := f.turns[name]; ok {
			newest[name] = turn
		}
	}
	return newest, err
}

// HistoryTurn is the newest turn in which a history was erased, alone or with its chat; 0 if
// none is known.
func (f *File) HistoryTurn(key memory.Key) int64 {
	return max(f.Turn(key.String()), f.Turn(Chat(key.Chat())))
}

// Turn is the newest turn in which what has this name was erased; 0 if none is known.
func (f *File) Turn(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns[name]
}

// Add records erasures. When it returns nil they are synced to the disk.
func (f *File) Add(turns map[string]int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" || len(turns) == 0 {
		f.merge(turns)
		return nil
	}
	if err := f.write(turns); err != nil {
		return fmt.Errorf("noting erasures in %s: %w", f.path, err)
	}
	return nil
}

// merge takes over turns that are newer than the known ones.
func (f *File) merge(turns map[string]int64) {
	if len(turns) > 0 {
		f.redacted = nil
	}
	for name, turn := range turns {
		f.turns[name] = max(f.turns[name], turn)
	}
}

// write appends to the file under a lock that all processes of the folder share.
func (f *File) write(turns map[string]int64) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	lock, err := journal.WaitForLock(f.path + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := f.refresh(); err != nil {
		return err
	}
	var text bytes.Buffer
	for name, turn := range turns {
		if turn > f.turns[name] {
			encode(&text, name, turn)
		}
	}
	if text.Len() == 0 {
		return nil
	}
	f.merge(turns)
	if f.info != nil && f.info.Size() > compactFrom {
		return f.compact()
	}
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	// The newline comes first, so that a line that a crash cut short does not corrupt the next one.
	if _, err := out.Write(append([]byte("\n"), text.Bytes()...)); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(out.Sync(), out.Close())
}

func encode(text *bytes.Buffer, name string, turn int64) {
	_ = json.NewEncoder(text).Encode(record{name, turn}) // a string and a number always encode
}

// compact rewrites the file without records that are older than Life.
func (f *File) compact() error {
	var text bytes.Buffer
	oldest := time.Now().Add(-Life).UnixMilli()
	for name, turn := range f.turns {
		if turn < oldest {
			delete(f.turns, name)
			continue
		}
		encode(&text, name, turn)
	}
	return journal.Replace(f.path, ".new", func(out io.Writer) error {
		_, err := text.WriteTo(out)
		return err
	})
}

// refresh reads the file again if another process has changed it. Lines that are not erasures are
// passed over, such as one that a crash cut short.
func (f *File) refresh() error {
	if f.path == "" {
		return nil
	}
	info, err := os.Stat(f.path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() &&
		info.ModTime().Equal(f.info.ModTime()) {
		return nil
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var r record
		if json.Unmarshal(line, &r) == nil && r.Turn > f.turns[r.Name] {
			f.turns[r.Name] = r.Turn
		}
	}
	f.info, f.redacted = info, nil
	return nil
}
