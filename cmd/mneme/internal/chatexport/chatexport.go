// Package chatexport reads what other services give their users of what was said: the data exports of ChatGPT and
// Claude, and the memories of mem0. It makes chats of them, with their own times.
//
// None of the formats is promised by its maker. They are known from what reads them in public: ChatGPT's from the
// description in github.com/mitkury/chatgpt-export-parser and the files conversations-000.json and so on that newer
// exports have; Claude's from github.com/Sinity/polylogue and from viewers that follow parent_message_uuid; mem0's from
// its API reference, docs.mem0.ai/api-reference/memory.
package chatexport

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"mneme/memory"
)

// Chat is a conversation of an export, and the chat that it becomes.
type Chat struct {
	memory.Chat        // named after the service and the conversation's own id
	Title       string // as the service shows it; may be empty
	Messages    []memory.Message
}

// Take is given the chats of an export, in its order. A conversation that cannot be read comes as an error that names
// it, without a chat. What it returns ends the reading.
type Take func(chat Chat, broken error) error

// Services are those whose exports are read.
var Services = []string{chatGPT, claude, mem0}

const chatGPT, claude, mem0 = "chatgpt", "claude", "mem0"

// Bounds of what is read, in bytes, however small the archive that unfolds to it.
const (
	maxEntry  = 128 << 20 // a conversation, or a page of memories; it is held in memory
	maxBefore = 1 << 20   // white space before it, which encoding/json reads again for each piece that arrives
	maxExport = 16 << 30
)

// Read reads an export of a service from a file of a size. The error says what is wrong with the file as a whole, or is
// that of take.
func Read(file io.ReaderAt, size int64, service string, take Take) error {
	r := &reader{service: service, take: take, total: maxExport, users: map[string][]memory.Message{}}
	archive, err := zip.NewReader(file, size)
	if err != nil || service == mem0 { // which exports no archive, and whose memories are all held
		return r.stream(io.NewSectionReader(file, 0, size))
	}
	// Other files of the archives are chat.html, user.json, users.json, projects.json and the like.
	parts := slices.DeleteFunc(archive.File, func(f *zip.File) bool {
		name := path.Base(f.Name)
		return !strings.HasPrefix(name, "conversations") || !strings.HasSuffix(name, ".json")
	})
	slices.SortFunc(parts, func(a, b *zip.File) int { return cmp.Compare(a.Name, b.Name) })
	if len(parts) == 0 {
		return errors.New("the archive has no conversations.json, so it is no data export of ChatGPT or Claude")
	}
	for _, part := range parts {
		in, err := part.Open()
		if err == nil {
			err = r.stream(in)
			in.Close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path.Base(part.Name), err)
		}
	}
	return nil
}

// reader reads one export.
type reader struct {
	service          string
	take             Take
	src              io.Reader
	remaining, total int64                       // bytes of from that the entry at hand, and the export, may still take
	count            int                         // entries so far
	users            map[string][]memory.Message // mem0's memories by their user: they come in any order
}

// Read is the bounded reading of from.
func (r *reader) Read(p []byte) (int, error) {
	if r.remaining <= 0 || r.total <= 0 {
		return 0, fmt.Errorf("it has more than %d MiB in one entry, or is too large for an export", maxEntry>>20)
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.remaining)])
	r.remaining, r.total = r.remaining-int64(n), r.total-int64(n)
	return n, err
}

// stream reads the objects of an array of JSON, or those that stand behind one another.
func (r *reader) stream(src io.Reader) error {
	r.src, r.remaining = src, maxBefore
	in := bufio.NewReader(r)
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
		_, _ = in.Discard(len(mark)) // a byte order mark
	}
	head, err := in.Peek(64)
	head = bytes.TrimSpace(head)
	switch {
	case len(head) == 0:
		return fmt.Errorf("there is nothing in it to read (%w)", cmp.Or(err, io.EOF))
	case head[0] != '[' && head[0] != '{':
		return errors.New("it is neither JSON nor the whole archive that was downloaded")
	}
	array := head[0] == '[' // head is gone with the next reading
	d := json.NewDecoder(in)
	if err = nil; array {
		_, err = d.Token()
	}
	for r.remaining = maxBefore; err == nil && d.More(); r.remaining = maxBefore {
		r.remaining = maxEntry
		var raw json.RawMessage
		if err = d.Decode(&raw); err == nil {
			if stop := r.give(raw); stop != nil {
				return stop
			}
		}
	}
	if err == nil && array {
		_, err = d.Token()
	}
	if err != nil {
		return fmt.Errorf("it is damaged or cut short behind entry %d (%w)", r.count, err)
	}
	return r.giveUsers()
}

// give gives one entry of the export on.
func (r *reader) give(raw json.RawMessage) error {
	var e entry
	err := json.Unmarshal(raw, &e)
	if r.service == mem0 && e.Results != nil {
		for _, one := range e.Results {
			if err := r.give(one); err != nil {
				return err
			}
		}
		return nil
	}
	r.count++
	is := map[string]bool{chatGPT: e.Mapping != nil, claude: e.Messages != nil, mem0: e.Memory != nil || e.Results != nil}
	id, title := cmp.Or(e.ConversationID, e.ID, e.UUID), cmp.Or(e.Title, e.Name)
	var list []memory.Message
	switch {
	case err != nil:
		err = fmt.Errorf("it has not the shape of what %s exports (%w)", r.service, err)
	case !is[r.service]:
		for other, so := range is {
			if so {
				return fmt.Errorf("this is what %s exports: use --from %s", other, other)
			}
		}
		err = errors.New("it has not the shape of what " + r.service + " exports")
	case r.service == mem0 && e.message().Role == "":
		err = errors.New("it has no text")
	case r.service == mem0:
		user := cmp.Or(e.User, e.Agent, e.Run, "unnamed")
		r.users[user] = append(r.users[user], e.message())
		return nil
	case id == "":
		err = errors.New("it has no id")
	default:
		list, err = e.branch()
	}
	if err != nil {
		return r.take(Chat{}, fmt.Errorf("entry %d (%q): %w", r.count, memory.Shorten(title, 60), err))
	}
	return r.take(Chat{chatOf(r.service, id), title, list}, nil)
}

// giveUsers gives on what mem0 remembers, a chat for each user.
func (r *reader) giveUsers() error {
	for _, user := range slices.Sorted(maps.Keys(r.users)) {
		list := r.users[user]
		slices.SortStableFunc(list, func(a, b memory.Message) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
		if err := r.take(Chat{chatOf(r.service, user), "mem0: " + user, list}, nil); err != nil {
			return err
		}
	}
	return nil
}

// chatOf is the chat that a conversation becomes. Of an id with characters that no id here has, a hash stands in its
// name.
func chatOf(service, id string) memory.Chat {
	chat, err := memory.Tenant{}.Chat(service + "-" + id)
	if err != nil {
		return memory.MustChat(fmt.Sprintf("%s-%x", service, sha256.Sum256([]byte(id))))
	}
	return chat
}
