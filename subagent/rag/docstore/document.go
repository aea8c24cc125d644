package docstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory"
)

// Document is a document as it is stored. Text is UTF-8; all places are byte
// offsets into it.
type Document struct {
	// Version is the version that the collection got when the document was put.
	Version  int64             `json:"version"`
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Source   string            `json:"source,omitempty"` // where it came from: a path, an address
	Metadata map[string]string `json:"metadata,omitempty"`
	// From is the file that it was read from; zero for a text that came as text.
	SourceFile
	Hash     string    `json:"hash"` // of all the above but the version, and of what follows
	Passages []Passage `json:"passages"`
	Text     string    `json:"text"`
}

// SourceFile describes the file that a document was read from, and the loader.
type SourceFile struct {
	// Origin names the directory, or the single file, that the document is kept in step
	// with; "" for one that was put by itself.
	Origin string `json:"origin,omitempty"`
	// File is the id of the file of many documents that it is one of; "" for a file of
	// its own.
	File string `json:"file,omitempty"`
	// Raw is the SHA-256 of the bytes of its own file, in hex; "" for one of many.
	Raw string `json:"raw,omitempty"`
	// Loader names what read the file, as loader.Identity does.
	Loader string `json:"loader,omitempty"`
	// MetadataKeys are the names in Metadata that whoever put it said, in their order; the
	// others are the file's own.
	MetadataKeys []string `json:"given,omitempty"`
}

// Passage is a piece of a document's text that is found by itself: the bytes from
// Start up to, without, End. Passages may overlap.
type Passage struct {
	Start   int    `json:"start"`
	End     int    `json:"end"`
	Section string `json:"section,omitempty"` // the headings above it, "A > B"
	Page    int    `json:"page,omitempty"`    // it is on, from 1
}

// Head is what is known of a document without reading it.
type Head struct {
	Version  int64             `json:"version"`
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Source   string            `json:"source,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	SourceFile
	Hash     string `json:"hash"`
	Passages int    `json:"passages"`
	Bytes    int    `json:"bytes"` // of the stored document
	// Outdated is that another loader would read its file now, and maybe otherwise. It
	// is not stored.
	Outdated bool `json:"outdated,omitempty"`
}

// Limits of what is stored, in bytes unless said otherwise.
const (
	MaxText     = 50 << 20
	maxID       = 256 // characters
	MaxTitle    = 1 << 10
	MaxSource   = 4 << 10
	MaxMetadata = 16 << 10 // keys and values together

	// maxStored bounds the JSON of a document. What every store of ours takes in one
	// command is a little above.
	maxStored = 120 << 20
)

// Code is the reason of a refusal, for programs.
type Code string

// The reasons why a document or a name is refused.
const (
	BadCollection Code = "bad_collection"
	BadID         Code = "bad_id"
	BadText       Code = "bad_text"
	TooLarge      Code = "too_large"
	BadTitle      Code = "bad_title"
	BadSource     Code = "bad_source"
	BadMetadata   Code = "bad_metadata"
	Conflict      Code = "conflict" // the id is another origin's
)

// Error refuses a document or a name. Its text is a sentence for its sender.
type Error struct {
	Code     Code
	Sentence string
}

func (e *Error) Error() string { return e.Sentence }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

// CheckID says what is wrong with a document's id; an *Error, or nil.
func CheckID(id string) error {
	switch n := utf8.RuneCountInString(id); {
	case n == 0:
		return refuse(BadID, "a document needs an id")
	case n > maxID:
		return refuse(BadID, "a document's id has at most %d characters, this one has %d", maxID, n)
	case !utf8.ValidString(id) || !printable(id):
		return refuse(BadID, "a document's id consists of printable characters, %.80q does not", id)
	}
	return nil
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// check says what is wrong with a document.
func (d Document) check() error {
	if err := CheckID(d.ID); err != nil {
		return err
	}
	switch {
	case len(d.Text) > MaxText:
		return refuse(TooLarge, "a document's text is at most %d MB, this one has %d bytes", MaxText>>20, len(d.Text))
	case !utf8.ValidString(d.Text):
		return refuse(BadText, "the document's text is not UTF-8")
	case strings.TrimSpace(d.Text) == "":
		return refuse(BadText, "the document has no text")
	case len(d.Title) > MaxTitle || !utf8.ValidString(d.Title):
		return refuse(BadTitle, "a document's title is UTF-8 of at most %d bytes", MaxTitle)
	case len(d.Source) > MaxSource || !utf8.ValidString(d.Source):
		return refuse(BadSource, "a document's source is UTF-8 of at most %d bytes", MaxSource)
	}
	size := 0
	for key, value := range d.Metadata {
		size += len(key) + len(value)
		if !utf8.ValidString(key + value) {
			return refuse(BadMetadata, "the document's metadata is not UTF-8")
		}
	}
	if size > MaxMetadata {
		return refuse(BadMetadata, "a document's metadata has at most %d bytes, this one's has %d", MaxMetadata, size)
	}
	for _, p := range d.Passages {
		if p.Start < 0 || p.End < p.Start || p.End > len(d.Text) {
			return fmt.Errorf("document %q: the passage from %d to %d is not in its text", d.ID, p.Start, p.End)
		}
	}
	return nil
}

// stored is a document as the script takes it: JSON without the version in front.
type stored struct {
	hash       string
	body, head []byte
	size       int
}

const versionField = `{"version":0`

// encode checks a document and lays it out. Version and Hash are not read.
func (d Document) encode() (stored, error) {
	if err := d.check(); err != nil {
		return stored{}, err
	}
	d.Version, d.Hash = 0, ""
	if d.Passages == nil {
		d.Passages = []Passage{}
	}
	sum := sha256.Sum256(encode(d))
	d.Hash = hex.EncodeToString(sum[:])
	body := encode(d)
	if len(body) > maxStored {
		return stored{}, refuse(TooLarge, "the stored document would have %d bytes, the limit is %d", len(body), maxStored)
	}
	head := encode(Head{ID: d.ID, Title: d.Title, Source: d.Source, Metadata: d.Metadata, SourceFile: d.SourceFile,
		Hash: d.Hash, Passages: len(d.Passages), Bytes: len(body)})
	return stored{d.Hash, body[len(versionField):], head[len(versionField):], len(body)}, nil
}

func encode(v any) []byte {
	b, err := memory.EncodeJSON(v)
	if err != nil {
		panic(fmt.Sprintf("docstore: %T does not encode: %v", v, err)) // only strings, numbers and lists of them
	}
	return b
}

// Collection names documents that are searched together. It is comparable; Named
// and OfChat are the only ways to one.
type Collection struct {
	tenant memory.Tenant
	name   string
	chat   memory.Chat // the owner of the documents; empty for a collection by name
}

// NamedCollection is a tenant's collection of this name. Names are 1 to 64 characters of a-z 0-9
// _ -; others are refused with an *Error.
func NamedCollection(tenant memory.Tenant, name string) (Collection, error) {
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return Collection{}, refuse(BadCollection, "a collection's name is 1 to 64 characters of a-z 0-9 _ -, not %.80q",
			name)
	}
	return Collection{tenant: tenant, name: name}, nil
}

// OfChat is the collection of what was loaded into one chat. No name leads to it. The zero Chat is refused.
func OfChat(chat memory.Chat) (Collection, error) {
	if chat.IsZero() {
		return Collection{}, fmt.Errorf("the documents of a chat: %w: no chat is named", memory.ErrBadName)
	}
	return Collection{tenant: chat.Tenant(), name: "chat:" + chat.ID(), chat: chat}, nil
}

// String is the collection's name, "chat:<id>" for a chat's.
func (c Collection) String() string { return c.name }

// Tenant is the collection's tenant.
func (c Collection) Tenant() memory.Tenant { return c.tenant }

// Chat is the chat that has these documents, empty for a collection by name.
func (c Collection) Chat() memory.Chat { return c.chat }

// documentsKey begins the names of all keys of the collection. The braces are a Cluster hash tag: they put all of them
// into one slot.
func (c Collection) documentsKey() string {
	return "documents:{" + c.tenant.String() + ":" + c.name + "}"
}
func (c Collection) headsKey() string   { return c.documentsKey() + ":heads" }
func (c Collection) idsKey() string     { return c.documentsKey() + ":ids" }
func (c Collection) metaKey() string    { return c.documentsKey() + ":meta" }
func (c Collection) logKey() string     { return c.documentsKey() + ":log" }
func (c Collection) vectorsKey() string { return c.documentsKey() + ":vectors" }

// keys are all of them, in the order in which every script takes them.
func (c Collection) keys() []string {
	return []string{c.documentsKey(), c.headsKey(), c.idsKey(), c.metaKey(), c.logKey(), c.vectorsKey()}
}

// namesKey is the set of the names of a tenant's collections.
func namesKey(tenant memory.Tenant) string { return "documents:{" + tenant.String() + "}" }
