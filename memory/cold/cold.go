// Package cold keeps chats that have been idle for long outside of Redis: each as one object, in a folder or in a store
// that speaks the S3 API. An object is gzip of JSON, which zcat and jq read, since it outlives versions of Redis and of
// this service; a DUMP of Redis would not.
//
// It owns what lies below the configured folder or prefix, and no goroutine. It knows nothing of leases: its caller sees
// that one process at a time writes the object of a chat.
package cold

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
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
	// Put writes an object in the place of one of its name: whoever reads sees the old one or the new one, whole.
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

// maxPart bounds a part of a name, in bytes: file systems have 255, of which a draft takes some.
const maxPart = 200

// suffix ends all names.
const suffix = ".json.gz"

// Name is that of a chat's object in a folder. It says the tenant and the chat, and is the same on file systems that
// tell no capitals from small letters: what is neither a small letter, a digit nor one of . _ - is written as = and two
// hexadecimal digits. A long id goes over several parts, of which each but the last ends in =.
func Name(folder string, chat memory.Chat) string {
	var escaped strings.Builder
	for _, c := range []byte(chat.ID()) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			escaped.WriteByte(c)
		} else {
			fmt.Fprintf(&escaped, "=%02x", c)
		}
	}
	id, parts := escaped.String(), ""
	for ; len(id) > maxPart; id = id[maxPart:] {
		parts += id[:maxPart] + "=/"
	}
	return folder + chat.Tenant().String() + "/" + parts + id + suffix
}

// ChatOf reads what Name makes; ok is false for the name of anything else.
func ChatOf(folder, name string) (chat memory.Chat, ok bool) {
	tenant, escaped, _ := strings.Cut(strings.TrimPrefix(name, folder), "/")
	escaped = strings.ReplaceAll(strings.TrimSuffix(escaped, suffix), "=/", "")
	var id []byte
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '=' {
			id = append(id, escaped[i])
			continue
		}
		c, err := strconv.ParseUint(escaped[min(i+1, len(escaped)):min(i+3, len(escaped))], 16, 8)
		if err != nil {
			return chat, false
		}
		id, i = append(id, byte(c)), i+2
	}
	of, err := memory.ParseTenant(tenant)
	if err == nil {
		chat, err = of.Chat(string(id))
	}
	return chat, err == nil && Name(folder, chat) == name
}

// Object is a chat as it sleeps.
type Object struct {
	Chat   memory.Chat
	Used   int64 // Unix ms of the last run
	Turn   int64 // under which it was read: what was taken away later is not in a chat that this object would bring back
	Frozen int64 // Unix ms
	Card   Card
	Keys   []Key
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
	Name   string
	String string
	Hash   map[string]string
}

// keyJSON is a Key in an object. What is not UTF-8 is in base64, as JSON has no other bytes.
type keyJSON struct {
	Key    string            `json:"key"`
	String string            `json:"string,omitempty"`
	Hash   map[string]string `json:"hash,omitempty"`
	Base64 bool              `json:"base64,omitempty"` // of String, and of the fields and values of Hash
}

// MarshalJSON implements json.Marshaler.
func (k Key) MarshalJSON() ([]byte, error) {
	out := keyJSON{Key: k.Name, String: k.String, Hash: k.Hash, Base64: !utf8.ValidString(k.String)}
	for field, value := range k.Hash {
		out.Base64 = out.Base64 || !utf8.ValidString(field+value)
	}
	if out.Base64 {
		_ = out.recode(func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil })
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *Key) UnmarshalJSON(text []byte) error {
	var in keyJSON
	err := json.Unmarshal(text, &in)
	if err == nil && in.Base64 {
		err = in.recode(func(s string) (string, error) {
			raw, err := base64.StdEncoding.DecodeString(s)
			return string(raw), err
		})
	}
	*k = Key{in.Key, in.String, in.Hash}
	return err
}

// recode changes all values, and the hash is another one then.
func (k *keyJSON) recode(code func(string) (string, error)) (err error) {
	k.String, err = code(k.String)
	var hash map[string]string
	for field, value := range k.Hash {
		field, bad := code(field)
		value, worse := code(value)
		if err = errors.Join(err, bad, worse); hash == nil {
			hash = map[string]string{}
		}
		hash[field] = value
	}
	k.Hash = hash
	return err
}

// format is the number of the form that Encode writes.
const format = 1

// form is the JSON of an object.
type form struct {
	Format int             `json:"format"`
	Chat   string          `json:"chat"`
	Tenant memory.Tenant   `json:"tenant"`
	Used   int64           `json:"used"`
	Turn   int64           `json:"turn"`
	Frozen int64           `json:"frozen"`
	Card   Card            `json:"card"`
	Keys   json.RawMessage `json:"keys"`
	SHA256 string          `json:"sha256"` // of the bytes of keys
}

// Encode is the object's data.
func (o Object) Encode() ([]byte, error) {
	keys, err := json.Marshal(o.Keys)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(form{format, o.Chat.ID(), o.Chat.Tenant(), o.Used, o.Turn, o.Frozen, o.Card, keys, sum(keys)})
	if err != nil {
		return nil, err
	}
	return zipped(text)
}

func zipped(text []byte) ([]byte, error) {
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	_, err := zip.Write(text)
	err = errors.Join(err, zip.Close()) // which writes the rest
	return data.Bytes(), err
}

func unzipped(data []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(zip)
}

func sum(keys []byte) string {
	s := sha256.Sum256(keys)
	return hex.EncodeToString(s[:])
}

// Decode reads the data of a chat's object. The error is a memory.DamagedError that has the object's name: the data is
// not whole, not of this form, or of another chat.
func Decode(chat memory.Chat, data []byte) (o Object, err error) {
	var f form
	text, err := unzipped(data)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	switch {
	case err != nil:
	case f.Format != format:
		err = fmt.Errorf("its format is %d and not %d, as that of another version", f.Format, format)
	case f.SHA256 != sum(f.Keys):
		err = errors.New("its keys do not have its sum")
	case f.Chat != chat.ID() || f.Tenant != chat.Tenant():
		err = errors.New("it is another chat's")
	default:
		err = json.Unmarshal(f.Keys, &o.Keys)
	}
	for _, k := range o.Keys {
		if of, known := memory.ParseRedisKey(k.Name); err == nil && (!known || of.Key.Chat() != chat) {
			err = fmt.Errorf("it has the key %q, which is none of the chat's", k.Name)
		}
	}
	if err != nil {
		return Object{}, &memory.DamagedError{Key: Name(Chats, chat), Cause: err}
	}
	o.Chat, o.Used, o.Turn, o.Frozen, o.Card = chat, f.Used, f.Turn, f.Frozen, f.Card
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

// Forget deletes the object of a chat, of which something was taken away in a turn. First a mark says so: an object that
// was read from Redis before that turn, and is written by a process that was paused, brings nothing back.
func Forget(ctx context.Context, s Store, chat memory.Chat, turn int64) error {
	mark, err := zipped(fmt.Appendf(nil, `{"turn":%d}`, turn))
	if err == nil {
		err = s.Put(ctx, Name(Erased, chat), mark)
	}
	if err == nil {
		err = s.Delete(ctx, Name(Chats, chat))
	}
	return err
}

// Forgotten is the turn of the last Forget of a chat, 0 for none.
func Forgotten(ctx context.Context, s Store, chat memory.Chat) (int64, error) {
	var mark struct{ Turn int64 }
	data, err := s.Get(ctx, Name(Erased, chat))
	if errors.Is(err, ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text, err := unzipped(data)
	if err == nil {
		err = json.Unmarshal(text, &mark)
	}
	if err != nil {
		err = &memory.DamagedError{Key: Name(Erased, chat), Cause: err}
	}
	return mark.Turn, err
}

// Absent is the Store of a service that has none, and finds that chats sleep in one.
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
