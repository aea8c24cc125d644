// Package cold keeps chats that have been idle for long outside of Redis: each as one object, in a folder or in a store
// that speaks the S3 API. An object is gzip of JSON, which zcat and jq read, since it outlives versions of Redis and of
// this service; a DUMP of Redis would not.
//
// It owns what lies below the configured folder or prefix, and no goroutine. It knows nothing of leases: its caller
// sees that one process at a time writes the object of a chat.
package cold

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/memory"
)

// Store keeps objects by their names, which are paths with slashes. What it answers was on the disk, or with as many
// servers as the store promises, before it answered. An error that is not ErrNone says that the store cannot be asked.
// Safe for concurrent use.
type Store interface {
	// Put writes an object in the place of one of its name: a reader sees the old one or the new one, whole.
	Put(ctx context.Context, name string, data []byte) error
	// Get is an object. ErrNone: there is none of the name.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete removes an object, and what a killed Put left of it. That there is none is no error.
	Delete(ctx context.Context, name string) error
	// List calls each for all objects of which the names begin with a folder, in no certain order.
	List(ctx context.Context, folder string, each func(name string, changed time.Time) error) error
}

// ErrNone says that there is no object of a name.
var ErrNone = errors.New("there is no such object")

// Folders of a store: objects of chats, and marks that say in which turn something of a chat was taken away.
const (
	Chats  = "chats/"
	Erased = "erased/"
)

// suffix ends the names of chats' objects, markSuffix those of marks, which are a number each.
const suffix, markSuffix = ".json.gz", ".turn"

// ids writes ids as file systems can have them that tell no capitals from small letters.
var ids = base32.StdEncoding.WithPadding(base32.NoPadding)

// Name is that of a chat's object in a folder, of its tenant and its id, which is in base32, in small letters.
func Name(folder string, chat memory.Chat) string {
	ext := suffix
	if folder == Erased {
		ext = markSuffix
	}
	return folder + chat.Tenant().String() + "/" + strings.ToLower(ids.EncodeToString([]byte(chat.ID()))) + ext
}

// ChatOf reads what Name makes; ok is false for the name of anything else.
func ChatOf(folder, name string) (chat memory.Chat, ok bool) {
	tenant, id, _ := strings.Cut(strings.TrimPrefix(name, folder), "/")
	raw, err := ids.DecodeString(strings.ToUpper(strings.TrimSuffix(id, suffix)))
	owner, bad := memory.ParseTenant(tenant)
	chat, worse := owner.Chat(string(raw))
	return chat, err == nil && bad == nil && worse == nil && Name(folder, chat) == name
}

// Object is a chat as it sleeps.
type Object struct {
	Format int           `json:"format"`
	Chat   string        `json:"chat"`
	Tenant memory.Tenant `json:"tenant"`
	Used   int64         `json:"used"` // Unix ms of the last run
	// Turn under which it was read: what was taken away later is not to come back by this object.
	Turn   int64  `json:"turn"`
	Frozen int64  `json:"frozen"` // Unix ms
	Card   Card   `json:"card"`
	Keys   []Key  `json:"keys"`
	SHA256 string `json:"sha256"` // of the keys, as JSON
}

// Card is what the list of chats says of one.
type Card struct {
	Title    string `json:"title,omitempty"`
	Messages int    `json:"messages"`
	Bytes    int    `json:"bytes"`
	Metadata string `json:"metadata,omitempty"` // JSON
}

// Key is one key of Redis: a string, or else a hash.
type Key struct {
	Name   string          `json:"key"`
	String Text            `json:"string,omitempty"`
	Hash   map[string]Text `json:"hash,omitempty"`
}

// Text is a value of Redis: in JSON a string, or, if it is not UTF-8, {"base64": "…"}.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(map[string][]byte{"base64": []byte(t)})
	}
	return memory.EncodeJSON(string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*string)(t)) == nil {
		return nil
	}
	var odd struct{ Base64 []byte }
	err := json.Unmarshal(text, &odd)
	*t = Text(odd.Base64)
	return err
}

// format is the number of the form of an object.
const format = 1

// Encode is the object's data, with its format and its sum.
func (o Object) Encode() ([]byte, error) {
	o.Format, o.SHA256 = format, o.sum()
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	_, err = zip.Write(text)
	err = errors.Join(err, zip.Close()) // which writes the rest
	return data.Bytes(), err
}

func (o Object) sum() string {
	keys, _ := json.Marshal(o.Keys) // texts, which cannot fail
	s := sha256.Sum256(keys)
	return hex.EncodeToString(s[:])
}

// Decode reads the data of a chat's object. The error is a memory.DamagedError that has the object's name: the data is
// not whole, not of this form, or of another chat.
func Decode(chat memory.Chat, data []byte) (o Object, err error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(zip)
	}
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	switch {
	case err != nil:
	case o.Format != format:
		err = fmt.Errorf("its format is %d and not %d, as that of another version", o.Format, format)
	case o.SHA256 != o.sum() || o.Chat != chat.ID() || o.Tenant != chat.Tenant():
		err = errors.New("its keys do not have its sum, or it is another chat's")
	}
	for _, k := range o.Keys {
		if redisKey, ok := memory.ParseRedisKey(k.Name); err == nil && (!ok || redisKey.Key.Chat() != chat) {
			err = fmt.Errorf("it has the key %q, which is none of the chat's", k.Name)
		}
	}
	if err != nil {
		return Object{}, &memory.DamagedError{Key: Name(Chats, chat), Cause: err}
	}
	return o, nil
}

// Take is the object of a chat, see Decode; ErrNone if there is none.
func Take(ctx context.Context, s Store, chat memory.Chat) (Object, error) {
	data, err := s.Get(ctx, Name(Chats, chat))
	if err != nil {
		return Object{}, err
	}
	return Decode(chat, data)
}

// Forget deletes the object of a chat, of which something was taken away in a turn. First a mark says so: an object
// that was read from Redis before that turn, and is written by a process that was paused, brings nothing back.
func Forget(ctx context.Context, s Store, chat memory.Chat, turn int64) error {
	err := s.Put(ctx, Name(Erased, chat), strconv.AppendInt(nil, turn, 10))
	if err == nil {
		err = s.Delete(ctx, Name(Chats, chat))
	}
	return err
}

// Forgotten is the turn of the last Forget of a chat, 0 for none.
func Forgotten(ctx context.Context, s Store, chat memory.Chat) (int64, error) {
	mark, err := s.Get(ctx, Name(Erased, chat))
	if errors.Is(err, ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	turn, err := strconv.ParseInt(string(mark), 10, 64)
	if err != nil {
		err = &memory.DamagedError{Key: Name(Erased, chat), Cause: err}
	}
	return turn, err
}

// Absent is the Store of a service that has none, and finds that chats sleep in one. Every method fails.
type Absent struct{}

var errAbsent = errors.New("no cold store is configured: set cold.store")

// Put implements Store.
func (Absent) Put(context.Context, string, []byte) error { return errAbsent }

// Get implements Store.
func (Absent) Get(context.Context, string) ([]byte, error) { return nil, errAbsent }

// Delete implements Store.
func (Absent) Delete(context.Context, string) error { return errAbsent }

// List implements Store.
func (Absent) List(context.Context, string, func(string, time.Time) error) error { return errAbsent }
