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

// Chat is a conversation of an export.
type Chat struct {
	ID       string // valid as a chat's: the service, and the conversation's own id
	Title    string // as the service shows it; may be empty
	Messages []memory.Message
}

// Take is given the chats of an export, in its order. A conversation that cannot be read comes as an error that names
// it, without a chat. What it returns ends the reading.
type Take func(chat Chat, broken error) error

// Services are those whose exports are read.
var Services = []string{"chatgpt", "claude", "mem0"}

// Bounds of what is read, in bytes, however small the archive that unfolds to it. A conversation is held in memory, and
// so are all memories of mem0.
const (
	maxConversation = 64 << 20
	maxBetween      = 1 << 20 // what stands between two, which encoding/json reads again for each piece that arrives
	maxExport       = 16 << 30
	maxMemories     = 1 << 30
)

// Read reads an export of a service from a file of a size. The error says what is wrong with the file as a whole, or is
// that of take.
func Read(file io.ReaderAt, size int64, service string, take Take) error {
	r := &reader{service: service, take: take, total: maxExport, users: map[string][]memory.Message{}}
	if service == "mem0" {
		r.total = maxMemories
	}
	magic := make([]byte, 2)
	_, _ = file.ReadAt(magic, 0)
	if string(magic) != "PK" {
		if err := r.stream(io.NewSectionReader(file, 0, size)); err != nil {
			return err
		}
		return r.giveUsers()
	}
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return fmt.Errorf("the archive is damaged or cut short (%w): download it again", err)
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
	return r.giveUsers()
}

// reader reads one export.
type reader struct {
	service string
	take    Take
	from    io.Reader
	left    int64                       // bytes of from that the conversation at hand may still take
	total   int64                       // bytes that the export may still take
	seen    int                         // conversations or memories so far
	users   map[string][]memory.Message // mem0's memories by their user: they come in any order
}

// Read is the bounded reading of from.
func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 || r.total <= 0 {
		return 0, fmt.Errorf("it has more than %d MiB in one entry, or is too large for an export", maxConversation>>20)
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.left)])
	r.left, r.total = r.left-int64(n), r.total-int64(n)
	return n, err
}

// stream reads one JSON text: an array of conversations, or an object whose member results is one.
func (r *reader) stream(from io.Reader) error {
	r.from, r.left = from, maxBetween
	in := bufio.NewReader(r)
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" { // a byte order mark
		_, _ = in.Discard(3)
	}
	d := json.NewDecoder(in)
	first, err := d.Token()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("there is nothing in it")
	case err != nil:
		return fmt.Errorf("it is neither a zip archive nor JSON (%w)", err)
	case first == json.Delim('{'):
		for first = nil; first == nil && d.More(); r.left = maxBetween {
			key, err := d.Token()
			if err == nil && key == "results" {
				first, err = d.Token()
			} else if err == nil {
				r.left = maxConversation
				err = d.Decode(new(json.RawMessage)) // passed over
			}
			if err != nil {
				return r.damaged(err)
			}
		}
	}
	if first != json.Delim('[') {
		return fmt.Errorf("it is JSON, but no export of %s: an array of conversations, or of memories, is due", r.service)
	}
	for r.left = maxBetween; d.More(); r.left = maxBetween {
		r.left = maxConversation
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return r.damaged(err)
		}
		if err := r.give(raw); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return r.damaged(err)
	}
	r.left = r.total
	if _, err := io.Copy(io.Discard, in); err != nil { // an archive's checksum is compared at its end
		return r.damaged(err)
	}
	return nil
}

func (r *reader) damaged(err error) error {
	return fmt.Errorf("it is damaged or cut short behind entry %d (%w)", r.seen, err)
}

// present is a member of an object of which only its presence counts.
type present bool

func (p *present) UnmarshalJSON([]byte) error { *p = true; return nil }

// give gives one element of the export on.
func (r *reader) give(raw json.RawMessage) error {
	var has struct {
		ChatGPT present `json:"mapping"`
		Claude  present `json:"chat_messages"`
		Mem0    present `json:"memory"`
		Results []json.RawMessage
	}
	if r.seen++; json.Unmarshal(raw, &has) != nil {
		return r.broken("", errors.New("it is no object of JSON"))
	}
	if r.service == "mem0" && has.Results != nil { // a page of several
		r.seen--
		for _, one := range has.Results {
			if err := r.give(one); err != nil {
				return err
			}
		}
		return nil
	}
	shapes := map[string]present{"chatgpt": has.ChatGPT, "claude": has.Claude, "mem0": has.Mem0}
	if !shapes[r.service] {
		for other, is := range shapes {
			if is {
				return fmt.Errorf("this is what %s exports: use --from %s", other, other)
			}
		}
		return r.broken("", errors.New("it has not the shape of one"))
	}
	var chat Chat
	var err error
	switch r.service {
	case "mem0":
		if err = r.remember(raw); err != nil {
			return r.broken("", err)
		}
		return nil
	case "chatgpt":
		chat, err = chatGPT(raw)
	case "claude":
		chat, err = claude(raw)
	}
	if err == nil {
		chat.ID, err = chatID(r.service, chat.ID)
	}
	if err != nil {
		return r.broken(chat.Title, err)
	}
	return r.take(chat, nil)
}

// broken gives on that the element read last cannot be.
func (r *reader) broken(title string, err error) error {
	if title != "" {
		title = fmt.Sprintf(" (%q)", memory.Shorten(title, 60))
	}
	return r.take(Chat{}, fmt.Errorf("entry %d%s: %w", r.seen, title, err))
}

// chatID makes the id of a chat. Of one with characters that no id here has, it is a hash.
func chatID(service, id string) (string, error) {
	if id == "" {
		return "", errors.New("it has no id")
	}
	name := service + "-" + id
	if _, err := (memory.Tenant{}).Chat(name); err != nil {
		name = fmt.Sprintf("%s-%x", service, sha256.Sum256([]byte(id)))
	}
	return name, nil
}

// said is a message of a role here; one of no role is left out.
func said(role, service string, text []string, at float64) (m memory.Message) {
	text = slices.DeleteFunc(text, func(part string) bool { return part == "" })
	m.Role, m.Timestamp, m.Content = role, at, strings.TrimSpace(strings.Join(text, "\n\n"))
	switch {
	case role == memory.RoleUser && m.Content != "":
		m.Origin = memory.Origin{From: memory.FromUser}
	case role == memory.RoleAssistant && m.Content != "":
		m.Origin = memory.Origin{From: memory.FromAgent, Source: service}
	default:
		m.Role = ""
	}
	return m
}

// node is a message in the tree of a conversation, in which edits and new answers are branches.
type node struct {
	parent string
	memory.Message
}

// branch is what leads to a leaf: the messages that the user saw last. What has no time has that of the one before it,
// the first one that of the conversation.
func branch(nodes map[string]node, leaf string, at float64) (list []memory.Message, err error) {
	for id := leaf; id != "" && !strings.HasPrefix(id, "00000000-0000-"); { // Claude's name for no message
		n, there := nodes[id]
		if !there {
			return nil, fmt.Errorf("its message %.60q is missing, or stands behind itself", id)
		}
		delete(nodes, id)
		if n.Role != "" {
			list = append(list, n.Message)
		}
		id = n.parent
	}
	slices.Reverse(list)
	for i := range list {
		at = cmp.Or(list[i].Timestamp, at)
		list[i].Timestamp = at
	}
	return list, nil
}

// giveUsers gives on what mem0 remembers, a chat for each user.
func (r *reader) giveUsers() error {
	for _, user := range slices.Sorted(maps.Keys(r.users)) {
		list := r.users[user]
		slices.SortStableFunc(list, func(a, b memory.Message) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
		id, err := chatID(r.service, user)
		if err != nil {
			return err
		}
		if err := r.take(Chat{ID: id, Title: "mem0: " + user, Messages: list}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Lines are a chat's messages as webmemory imports them.
func (c Chat) Lines() io.Reader {
	var b bytes.Buffer
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "{\"message\":%s}\n", m.Encode())
	}
	return &b
}
