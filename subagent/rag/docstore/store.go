// Package docstore keeps documents in plain Redis (6.2 or newer, Valkey too, no
// modules), readable with redis-cli:
//
//	documents:{<tenant>}                       set: the names of its collections, without those of chats
//	documents:{<tenant>}:chats                 set: the ids of its chats that may have documents; of no default tenant
//	documents:{<tenant>:<collection>}          hash: id → document, JSON
//	documents:{<tenant>:<collection>}:heads    hash: id → the document without its text, JSON
//	documents:{<tenant>:<collection>}:ids      sorted set: the ids, in their order
//	documents:{<tenant>:<collection>}:meta     hash: version and mark of the last change, bytes, created (Unix ms)
//	documents:{<tenant>:<collection>}:log      stream: a change each, its version in the id; op, id, mark
//	documents:{<tenant>:<collection>}:vectors  hash: "<space> <hash of a passage's text>" → 32-bit floats, little-endian
//
// so that redis-cli HGET documents:{default:docs} guide.md | jq prints a
// document. Every change of a collection is one script over its keys, which are in
// one Cluster slot: no reader sees half of one.
//
// # The log
//
// A change raises the collection's version by one and leaves an entry in the log,
// a deletion too. An index somewhere else is kept in step by reading the entries
// behind the last one it knows. That one carries a random mark: if the store does
// not have it as the index does, because the log was cut, the collection was made
// anew or the store lost its end, then what follows proves nothing, and the
// index must be built anew (ErrGap).
package docstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/bytecount"
	"mneme/memory/redisscript"
)

// Errors of a Store; test with errors.Is. A refused document or name is an *Error.
var (
	// ErrUnavailable: the store could not be reached or did not answer; it says
	// nothing about what is stored.
	ErrUnavailable = errors.New("the document store cannot be reached")
	// ErrNoCollection: there is no such collection.
	ErrNoCollection = errors.New("there is no such collection")
	// ErrNoDocument: the collection has no such document.
	ErrNoDocument = errors.New("there is no such document")
	// ErrGap: the log does not go on from where the caller is.
	ErrGap = errors.New("the change log does not reach back")
)

// defaultLog is how many changes a log keeps, about.
const defaultLog = 10_000

// Store keeps documents. Safe for concurrent use.
type Store struct {
	redis  redis.UniversalClient
	log    int64
	stored bytecount.Counts
}

// New is a Store over client, which the caller closes. Logs keep about this many
// changes; 0 is 10,000.
func New(client redis.UniversalClient, log int64) *Store {
	if log <= 0 {
		log = defaultLog
	}
	return &Store{redis: client, log: log, stored: bytecount.New(client)}
}

// Status says what became of a document that was put.
type Status string

// What becomes of a document.
const (
	StatusNew       Status = "new"
	StatusChanged   Status = "changed"
	StatusUnchanged Status = "unchanged" // the stored one has the same content; nothing was written
)

// Written is what became of one document.
type Written struct {
	Status Status
	Mark   Mark // of the change; its version alone if nothing was written
	Err    error
}

// Put puts documents, each in place of the one with its id, in their order and one
// round trip. Each is visible as a whole or not at all; one that fails leaves the
// others alone. Version and Hash of the documents are not read.
//
// A document with an Origin takes the place of one of the same origin or of none, and
// of the same file loaded by itself or with its directory; any other is refused as a
// Conflict. One without replaces any.
func (s *Store) Put(ctx context.Context, c Collection, documents ...Document) []Written {
	results := make([]Written, len(documents))
	var args [][]any
	var places []int // of what is sent, in documents
	for i, d := range documents {
		e, err := d.encode()
		if err != nil {
			results[i].Err = err
			continue
		}
		mark := rand.Text()
		results[i].Mark.text = mark
		args = append(args, []any{d.ID, e.hash, e.body, e.head, e.size, mark, s.log, d.Origin, cmp.Or(d.File, d.ID)})
		places = append(places, i)
	}
	for n, cmd := range s.runAll(ctx, putScript, c, args) {
		w, d := &results[places[n]], documents[places[n]]
		r, err := read(cmd)
		switch {
		case err != nil:
			*w = Written{Err: fmt.Errorf("putting document %q: %w", d.ID, err)}
		case r.Word() == string(Conflict):
			*w = Written{Err: conflict(d, r.Part(1))}
		case r.Word() == string(StatusUnchanged):
			w.Status, w.Mark = StatusUnchanged, Mark{Version: number(r.Part(1))}
		default:
			w.Status = Status(r.Word())
			w.Mark.Version = number(r.Part(1))
		}
	}
	if slices.ContainsFunc(results, func(w Written) bool { return w.Status == StatusNew || w.Status == StatusChanged }) {
		s.count(ctx, c)
	}
	return results
}

// count counts the bytes of a collection, until they are the same after the count as before: another change may come in
// between. If it fails, the next change counts them.
func (s *Store) count(ctx context.Context, c Collection) {
	size := func() (int64, error) {
		bytes, err := s.redis.HGet(ctx, c.metaKey(), "bytes").Int64()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return bytes, err
	}
	for bytes, err := size(); err == nil; {
		if err = s.stored.Collection(ctx, c.tenant, c.name, bytes); err != nil {
			return
		}
		was := bytes
		if bytes, err = size(); bytes == was {
			return
		}
	}
}

// conflict refuses a document with an id that one of another origin has.
func conflict(d Document, origin string) *Error {
	return refuse(Conflict,
		"the collection has a document with the id %.300q from %.300q already: give this one another id "+
			"(mneme ingest --prefix NAME), delete the other one, or, if both are the same files, say so (--origin %.300q)", d.ID,
		origin, origin)
}

// Delete deletes documents in one round trip, and gives the marks of the changes. A zero
// Mark stands for a document that was not there.
func (s *Store) Delete(ctx context.Context, c Collection, ids ...string) ([]Mark, error) {
	marks := make([]Mark, len(ids))
	args := make([][]any, len(ids))
	for i, id := range ids {
		marks[i].text = rand.Text()
		args[i] = []any{id, marks[i].text, s.log}
	}
	for i, cmd := range s.runAll(ctx, deleteScript, c, args) {
		r, err := read(cmd)
		if err != nil {
			return nil, fmt.Errorf("deleting document %q: %w", ids[i], err)
		}
		if r.Word() == "absent" {
			marks[i] = Mark{}
			continue
		}
		marks[i].Version = number(r.Part(1))
	}
	s.count(ctx, c)
	return marks, nil
}

// Get reads one document.
func (s *Store) Get(ctx context.Context, c Collection, id string) (Document, error) {
	documents, err := s.GetAll(ctx, c, id)
	if err != nil {
		return Document{}, err
	}
	if d, ok := documents[id]; ok {
		return d, nil
	}
	if _, err := s.Info(ctx, c); err != nil {
		return Document{}, err
	}
	return Document{}, fmt.Errorf("%w: %q", ErrNoDocument, id)
}

// GetAll reads documents by id in one round trip; those that are not there are left out, whether there is the
// collection or not.
func (s *Store) GetAll(ctx context.Context, c Collection, ids ...string) (map[string]Document, error) {
	list, err := readAll[Document](ctx, s, c, c.documentsKey(), ids)
	documents := map[string]Document{}
	for _, d := range list {
		documents[d.ID] = d
	}
	return documents, err
}

// Heads reads the heads of documents by id in one round trip; those that are not there are left out, whether there is
// the collection or not.
func (s *Store) Heads(ctx context.Context, c Collection, ids ...string) ([]Head, error) {
	return readAll[Head](ctx, s, c, c.headsKey(), ids)
}

// readAll reads fields of one of a collection's hashes, in their order and without those that are not there.
func readAll[T Document | Head](ctx context.Context, s *Store, c Collection, key string, ids []string) ([]T, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	values, err := s.redis.HMGet(ctx, key, ids...).Result()
	if err != nil {
		return nil, fmt.Errorf("reading documents of %s: %w", c, unavailable(err))
	}
	var list []T
	for i, v := range values {
		text, ok := v.(string)
		if !ok {
			continue
		}
		var one T
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			return nil, fmt.Errorf("document %q of %s is damaged in the store, put it again: %w", ids[i], c, err)
		}
		list = append(list, one)
	}
	return list, nil
}

// MaxPage is how many documents one List gives at most.
const MaxPage = 1000

// List gives the heads of count documents in the order of their ids, from behind
// cursor on ("" is the start); the next cursor is "" at the end.
func (s *Store) List(ctx context.Context, c Collection, cursor string, count int) (heads []Head, next string,
	err error) {
	count = max(1, min(count, MaxPage))
	r, err := s.run(ctx, listScript, c, cursor, count)
	if err != nil {
		return nil, "", fmt.Errorf("listing the documents of %s: %w", c, err)
	}
	heads = make([]Head, 0, len(r)-1)
	for _, text := range r[1:] {
		var h Head
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			return nil, "", fmt.Errorf("the list of documents of %s is damaged in the store: %w", c, err)
		}
		heads = append(heads, h)
	}
	if len(heads) == count {
		next = heads[count-1].ID
	}
	return heads, next, nil
}

// Info is what is known of a collection as a whole.
type Info struct {
	Name      string    `json:"name"`
	Version   int64     `json:"version"` // raised by every change
	Documents int64     `json:"documents"`
	Bytes     int64     `json:"bytes"` // of the stored documents
	Created   time.Time `json:"created"`
}

// Create makes a collection; false if there is one already.
func (s *Store) Create(ctx context.Context, c Collection) (bool, error) {
	if err := s.listChat(ctx, c); err != nil {
		return false, fmt.Errorf("creating collection %s: %w", c, err)
	}
	r, err := s.run(ctx, createScript, c, rand.Text(), time.Now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("creating collection %s: %w", c, err)
	}
	if c.chat.IsZero() {
		// Behind the collection itself, and in Drop before: of two at the same time
		// none leaves a collection that is not listed.
		if err := s.redis.SAdd(ctx, namesKey(c.tenant), c.name).Err(); err != nil {
			return false, fmt.Errorf("creating collection %s: %w", c, unavailable(err))
		}
	}
	return r.Word() == "created", nil
}

// Drop removes a collection with its documents; false if there was none.
func (s *Store) Drop(ctx context.Context, c Collection) (bool, error) {
	if c.chat.IsZero() {
		if err := s.redis.SRem(ctx, namesKey(c.tenant), c.name).Err(); err != nil {
			return false, fmt.Errorf("dropping collection %s: %w", c, unavailable(err))
		}
	}
	_, err := s.run(ctx, dropScript, c)
	if err == nil {
		s.count(ctx, c)
	}
	if (err == nil || errors.Is(err, ErrNoCollection)) && !c.chat.IsZero() && c.tenant != (memory.Tenant{}) {
		if err := s.redis.SRem(ctx, chatsKey(c.tenant), c.chat.ID()).Err(); err != nil {
			return false, fmt.Errorf("dropping collection %s: %w", c, unavailable(err))
		}
	}
	if errors.Is(err, ErrNoCollection) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("dropping collection %s: %w", c, err)
	}
	return true, nil
}

// chatsKey is the set of the ids of a tenant's chats that may have documents. The default tenant has none: no request
// asks for all that it has.
func chatsKey(tenant memory.Tenant) string { return namesKey(tenant) + ":chats" }

// listChat notes that a chat is about to have documents.
func (s *Store) listChat(ctx context.Context, c Collection) error {
	if c.chat.IsZero() || c.tenant == (memory.Tenant{}) {
		return nil
	}
	return unavailable(s.redis.SAdd(ctx, chatsKey(c.tenant), c.chat.ID()).Err())
}

// ListCollections gives all collections of a tenant other than the default one, those of chats too, and some that may not be there.
func (s *Store) ListCollections(ctx context.Context, tenant memory.Tenant) ([]Collection, error) {
	var names, chats *redis.StringSliceCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		names, chats = p.SMembers(ctx, namesKey(tenant)), p.SMembers(ctx, chatsKey(tenant))
	})
	if err != nil {
		return nil, fmt.Errorf("listing all collections: %w", unavailable(err))
	}
	var collections []Collection
	for _, name := range names.Val() {
		if c, err := NamedCollection(tenant, name); err == nil {
			collections = append(collections, c)
		}
	}
	for _, id := range chats.Val() {
		if chat, err := tenant.Chat(id); err == nil {
			collections = append(collections, Collection{tenant: tenant, name: "chat:" + id, chat: chat})
		}
	}
	return collections, nil
}

// Info describes a collection.
func (s *Store) Info(ctx context.Context, c Collection) (Info, error) {
	infos, err := s.infos(ctx, []Collection{c})
	if err != nil {
		return Info{}, fmt.Errorf("collection %s: %w", c, err)
	}
	if len(infos) == 0 {
		return Info{}, fmt.Errorf("collection %s: %w", c, ErrNoCollection)
	}
	return infos[0], nil
}

// Collections describes a tenant's collections in no certain order, without those
// of chats.
func (s *Store) Collections(ctx context.Context, tenant memory.Tenant) ([]Info, error) {
	names, err := s.redis.SMembers(ctx, namesKey(tenant)).Result()
	if err != nil {
		return nil, fmt.Errorf("listing the collections: %w", unavailable(err))
	}
	var collections []Collection
	for _, name := range names {
		if c, err := NamedCollection(tenant, name); err == nil { // else the set was changed by hand
			collections = append(collections, c)
		}
	}
	infos, err := s.infos(ctx, collections)
	if err != nil {
		return nil, fmt.Errorf("listing the collections: %w", err)
	}
	return infos, nil
}

// infos describes those of the collections that there are.
func (s *Store) infos(ctx context.Context, collections []Collection) ([]Info, error) {
	metas := make([]*redis.MapStringStringCmd, len(collections))
	counts := make([]*redis.IntCmd, len(collections))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, c := range collections {
			metas[i] = p.HGetAll(ctx, c.metaKey())
			counts[i] = p.HLen(ctx, c.documentsKey())
		}
	})
	var infos []Info
	for i, c := range collections {
		if err := errors.Join(metas[i].Err(), counts[i].Err()); err != nil {
			return nil, unavailable(err)
		}
		meta := metas[i].Val()
		if len(meta) == 0 {
			continue
		}
		infos = append(infos, Info{Name: c.name, Version: number(meta["version"]), Documents: counts[i].Val(),
			Bytes: number(meta["bytes"]), Created: time.UnixMilli(number(meta["created"]))})
	}
	return infos, nil
}

//go:embed lua
var lua embed.FS

var (
	createScript  = redisscript.New(lua, "create")
	putScript     = redisscript.New(lua, "put")
	deleteScript  = redisscript.New(lua, "delete")
	dropScript    = redisscript.New(lua, "drop")
	fedScript     = redisscript.New(lua, "fed")
	listScript    = redisscript.New(lua, "list")
	vectorsScript = redisscript.New(lua, "vectors")
)

// read is a script's reply. Whatever Redis says instead of one of our words means that it
// could not serve us.
func read(cmd *redis.Cmd) (redisscript.Reply, error) {
	r, err := redisscript.Read(cmd)
	if err != nil {
		return nil, unavailable(err, redisscript.Keys(cmd)...)
	}
	switch r.Word() {
	case "":
		return nil, fmt.Errorf("%w: it gave an empty reply", ErrUnavailable)
	case "missing":
		return nil, ErrNoCollection
	}
	return r, nil
}

// unavailable returns an error of Redis as ErrUnavailable, and as a memory.RefusedError if Redis refused the command. keys
// are the command's keys, if they are known.
func unavailable(err error, keys ...string) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, redisscript.Unavailable(err, keys...))
}

// run runs one script over a collection. All scripts take all keys of it, so that each is in one Cluster slot.
func (s *Store) run(ctx context.Context, script *redis.Script, c Collection, args ...any) (redisscript.Reply, error) {
	return read(script.Run(ctx, s.redis, c.keys(), args...))
}

// runAll runs a script over a collection once for each of the arguments, in one round
// trip.
func (s *Store) runAll(ctx context.Context, script *redis.Script, c Collection, args [][]any) []*redis.Cmd {
	calls := make([]redisscript.Call, len(args))
	for i, a := range args {
		calls[i] = redisscript.Call{Script: script, Keys: c.keys(), Args: a}
	}
	return redisscript.Run(ctx, s.redis, calls...)
}

// number reads a number that Redis keeps; 0 for what an operator made of it by hand.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
