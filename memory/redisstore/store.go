// Package redisstore implements memory.Store, the second tier of the memory, over plain Redis 6.2 or newer, or Valkey.
// Redis needs no modules. Each history is one JSON array that redis-cli can read. A Store writes the histories itself.
// Its fields, such as Turns and Runs, store everything else.
//
// The package owns the keys that are listed below and starts no goroutine. One Lua script makes each change of a
// history and its meta. The scripts reject writes of turns older than the stored one and never append twice under one
// mark. memory.RedisKey builds and parses all keys. memory/DESIGN.md explains the checks of the scripts.
package redisstore

// The keys:
//
//	chat_history:<chat>               the array
//	subagent:<name>:<chat>            the array
//	{<history key>}:archive           hash: trimmed messages, an array by the position of its first message,
//	                                  and a description of each array, see Archives.Segments
//	{<history key>}:notes             notes of the history: a JSON array of memory.Note
//	{<history key>}:meta              hash: sum, len, count, turn, applied, cut, first, joins, archived, erased,
//	                                  adopted; d:<time> for each set-aside value;
//	                                  for the chat's own history also open, waits, approved, conversation, lost,
//	                                  told, notes, quarantine, pending, a:<rewind>, begins, title, metadata, cold,
//	                                  s:<name>, r:<run>, user, u:<user>; agents and kept if there are many of them
//	{chat_history:<chat>}:turn        the chat's lease, see Turns.Take
//	{chat_history:<chat>}:rewound:<id> hash: messages that a rewind removed, see Rewinds
//	{chat_history:<chat>}:waiting     hash: state of the waiting run, see Suspensions
//	{chat_history:<chat>}:calls:<run> hash: external tool calls by id, their results under
//	                                  <id>:result, see Runs.Claim
//	{chat_history:<chat>}:first       the token that takes the next turn before all others, see Turns.First
//	{<history key>}:damaged:<time>    a set-aside value
//	{<other key>}:damaged:<time>      a set-aside key of the wrong type
//	turns:open                        sorted set: chats with an open run, by the end of the lease
//	events:<chat>:<run>               stream: a run's log, see Runs.Log and Runs.Pack
//	run:<chat>:<run>                  hash: a run's record, which answers repeated posts
//	                                  and tells other processes that the run has a log
//	mneme:waiting                     sorted set: chats with a waiting run, by the first expiry
//	mneme:chats                       sorted set: chats by their last run; *filled when complete; *pin:<chat>
//	mneme:chats#<number>              its shards, see listKey; *filled#<shards> is in the key without a number
//	mneme:cold                        sorted set: sleeping chats by their last run; *filled when complete
//	mneme:cold#<number>               its shards, see coldKeys
//	mneme:woken                       sorted set: woken chats that still have an object, by the time of the wake
//	user_notes:<user>                 notes of a user: a JSON array of memory.Note
//	mneme:users:<tenant>              sorted set: a tenant's users, see Tenants
//	mneme:stored[:<tenant>]           hash: the bytes that a tenant stores, see package bytecount
//	mneme:tenants                     sorted set: tenants by the last use of a key
//	mneme:erasing                     sorted set: tenants and users whose erasure is unfinished
//	mneme:user-zone:<user>            the IANA time zone of a user
//	mneme:user-chats:<user>           sorted set: chats that a user posted in, by the user's last run there
//	mneme:erasures                    sorted set: names of erased data, by the turn
//	mneme:epoch                       random text; if it changes, data was lost
//	mneme:processes                   hash: the running processes, see Processes.Announce
//	mneme:tools:<server>              hash: the pinned definitions of a server's tools, see Tools.Pin
//
// The fields of a Store. A method is called as store.Turns.Take:
//
//	Turns       leases of chats and their fencing tokens, open runs, conversations
//	Runs        records, logs and calls of runs
//	Suspensions waiting runs, their answers, and approved tools
//	Rewinds     rewound messages, and their return
//	Archives    trimmed messages; imports
//	Redactions  redacted messages
//	Erasures    the shared list of erasures, and their repetition
//	Notes       notes of histories
//	Users       notes and time zones of users, and the chats of each user
//	Chats       the list of chats, their titles, and the existing histories
//	Cold        chats that sleep in the cold store
//	Tenants     the list of tenants, and the lists of each tenant
//	Processes   the running processes
//	Tools       the pinned definitions of tools
//	Server      the Redis servers: ids, epoch, write failures
//	Stored      the stored bytes of each tenant, see package bytecount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/bytecount"
	"mneme/memory/redisscript"
)

// hardLimit is the size of a history, in bytes, above which an append is rejected. append.lua has the same number. No
// new exchange begins above memory.MaxHistory. The difference exceeds the largest exchange, so a running exchange
// always has room.
const hardLimit = 2 * memory.MaxHistory

// Store is a memory.Store over Redis. Its fields store everything except the histories, see the table above. The
// settings (such as WaitReplicas, RunLife, Secret, Archive and OnCut) and Counts are promoted from core and apply to
// all fields. Set them before the first call. A Store is safe for concurrent use.
//
// The Store itself writes the histories, each an array with its meta. A history is written under the number of a turn.
// Every script rejects a number below the one in the meta. Writes without a turn restore lost data and are
// compare-and-sets.
type Store struct {
	*core

	Turns       Turns
	Runs        Runs
	Suspensions Suspensions
	Rewinds     Rewinds
	Archives    Archives
	Redactions  Redactions
	Erasures    Erasures
	Notes       Notes
	Users       Users
	Chats       Chats
	Cold        Cold
	Tenants     Tenants
	Processes   Processes
	Tools       Tools
	Server      Server
	Stored      bytecount.Counts
}

var _ memory.Store = (*Store)(nil)

// New returns a store over client, which the caller closes. New adds a hook to client that sets aside keys of the store
// that have the wrong type.
func New(client redis.UniversalClient, log zerolog.Logger) *Store {
	c := &core{
		redis: client, log: log, LossLog: log, now: time.Now,
		RunLife: 10 * time.Minute, ResumeLife: 15 * time.Minute,
	}
	s := &Store{core: c}
	s.Archives = Archives{c, s}
	s.Notes = Notes{c}
	s.Erasures = Erasures{c, s, s.Archives, s.Notes}
	s.Redactions = Redactions{c, s, s.Archives}
	s.Rewinds = Rewinds{c, s, s.Archives}
	s.Stored = bytecount.New(client)
	s.Users = Users{c, s.Erasures, s.Stored}
	s.Turns = Turns{c, s.Users}
	s.Suspensions = Suspensions{c}
	s.Runs = Runs{c, s.Suspensions}
	s.Chats = Chats{c, s.Archives}
	s.Cold = Cold{c, s}
	s.Tenants = Tenants{c, s.Stored}
	s.Processes = Processes{c}
	s.Tools = Tools{c}
	mends := mender{c, s.Users}
	s.Server = Server{c, mends}
	client.AddHook(mends)
	return s
}

// Load implements memory.Store. It validates the copies in one round trip. The bytes of a history move only if the
// caller has no copy of it. If a history cannot be read, Load returns an error instead of an empty history.
func (s *Store) Load(ctx context.Context, turn int64, copies ...*memory.History) ([]*memory.History, error) {
	cmds := make([]*redis.Cmd, len(copies))
	values := make([]*redis.StringCmd, len(copies))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, have := range copies {
			cmds[i] = loadScript.EvalSha(ctx, p, historyKeys(have.Key()), loadArgs(turn, have)...)
			if have.Size() == 0 {
				values[i] = p.Get(ctx, have.Key().String())
			}
		}
	})
	current := make([]*memory.History, len(copies))
	for i, have := range copies {
		r, err := read(cmds[i])
		if redisscript.Unknown(cmds[i].Err()) {
			r, err = s.look(ctx, turn, have)
		}
		if err == nil {
			current[i], err = s.settle(ctx, turn, have, r, values[i])
		}
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", have.Key(), err)
		}
		if turn > looking {
			current[i].ProvenIn(turn)
		}
	}
	return current, nil
}

func loadArgs(turn int64, have *memory.History) []any {
	return []any{turn, have.Sum().String(), have.Size()}
}

func (s *Store) look(ctx context.Context, turn int64, have *memory.History) (redisscript.Reply, error) {
	return s.call(ctx, loadScript, historyKeys(have.Key()), loadArgs(turn, have)...)
}

// settle returns the history that the reply r of the load script describes. Under a turn it also repairs Redis. Each
// repair is a compare-and-set. If the stored value changed meanwhile, settle reads again. value holds the bytes that
// were read in the same round trip, nil for none.
func (s *Store) settle(ctx context.Context, turn int64, have *memory.History, r redisscript.Reply,
	value *redis.StringCmd) (*memory.History, error) {
	if short := have.TrimTo(parseLoadInfo(r).first); short != nil && slices.Contains([]string{"whole", "tail"}, r.Word()) {
		// Another process has trimmed the history, so the rest of the copy need not move.
		less, err := s.look(ctx, turn, short)
		if err == nil && less.Word() != "whole" {
			h, err := s.interpret(ctx, turn, short, less, nil)
			if !errors.Is(err, errChanged) {
				return h, err
			}
		}
	}
	for range attempts {
		h, err := s.interpret(ctx, turn, have, r, value)
		if !errors.Is(err, errChanged) {
			return h, err
		}
		// Take the whole stored value.
		value = nil
		if r, err = s.look(ctx, turn, memory.Empty(have.Key())); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it changed under every attempt to read it", memory.ErrUnavailable)
}

// bytesOf returns the stored value of a history. It reads the value unless value already holds it.
func (s *Store) bytesOf(ctx context.Context, key memory.Key, value *redis.StringCmd) ([]byte, error) {
	if value == nil || value.Err() != nil {
		value = s.redis.Get(ctx, key.String())
	}
	raw, err := value.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, errChanged
	}
	return raw, unavailable(err)
}

// errChanged indicates that a compare-and-set failed, or that the reply does not prove the copy. The caller reads
// again.
var errChanged = errors.New("the stored value changed")

// interpret makes one attempt of settle. It acts on the reply words of load.lua:
//
//	same     the stored history equals the copy
//	tail     messages were appended to the copy; the chain of sums proves it
//	whole    the stored content differs from the copy and matches its meta
//	foreign  no meta describes the stored value: another program wrote it, or it is damaged
//	deleted  a meta describes a missing value: the history was deleted by hand
//	absent   neither exists: the history is new or erased, or Redis lost it
func (s *Store) interpret(ctx context.Context, turn int64, have *memory.History, r redisscript.Reply,
	value *redis.StringCmd) (*memory.History, error) {
	key, f := have.Key(), parseLoadInfo(r)
	switch r.Word() {
	case "same":
		h, err := s.proven(ctx, turn, have)
		return f.applyTo(h), err
	case "tail":
		h, err := grow(have, r.Part(5))
		if err != nil || h.Sum().String() != r.Part(4) {
			return nil, errChanged
		}
		return f.applyTo(h), nil
	case "whole":
		h, sound, err := s.readStored(ctx, turn, key, r, value)
		if err != nil || !sound {
			return h, err
		}
		return s.regain(ctx, turn, have, f.applyTo(h))
	case "foreign":
		raw, err := s.bytesOf(ctx, key, value)
		if err != nil {
			return nil, err
		}
		return s.adopt(ctx, turn, have, f, r.Part(4) != "", raw)
	case "deleted":
		if s.LostData != nil && turn != looking && s.LostData(ctx) {
			return s.restore(ctx, turn, have, f, r.Word())
		}
		return s.accept(ctx, turn, key)
	case "absent":
		return s.restore(ctx, turn, have, f, r.Word())
	}
	return nil, fmt.Errorf("%w: unexpected reply %q", memory.ErrUnavailable, r.Word())
}

// applyTo records the cut and the first message of f on h and returns h. The stored turn may still be running and may
// change the history deliberately. So h counts as proven only in the turn before the stored one, or in the turn of the
// last deliberate change. A caller with its own turn calls ProvenIn again.
func (f loadInfo) applyTo(h *memory.History) *memory.History {
	if h != nil {
		h.Follows(f.cut, f.first)
		h.ProvenIn(max(f.turn-1, f.cut))
	}
	return h
}

// readStored reads a history that its meta describes. It trusts the sum in the meta at first, because computing the sum
// costs more than reading; see proveAfter. If sound is false, h is the final answer, even if nil. A read without a turn
// must not repair a value that does not match its meta.
func (s *Store) readStored(ctx context.Context, turn int64, key memory.Key, r redisscript.Reply,
	value *redis.StringCmd) (h *memory.History, sound bool, err error) {
	raw, err := s.bytesOf(ctx, key, value)
	if err != nil {
		return nil, false, err
	}
	sum, err := memory.ParseSum(r.Part(4))
	count, _ := strconv.Atoi(r.Part(5)) // an unparsable count differs, so ReadHistory parses
	if err == nil {
		h, err = memory.ReadHistory(key, raw, sum, count)
	}
	if err == nil && h.Sum() == sum {
		return h, true, nil
	}
	// Another client may have written between the two reads.
	if now, failed := s.redis.HGet(ctx, metaKey(key), "sum").Result(); failed == nil && now != r.Part(4) {
		return nil, false, errChanged
	}
	if turn <= looking {
		h, err = memory.ParseHistory(key, raw)
		return h, false, err
	}
	return nil, false, s.distrust(ctx, key, r.Part(4))
}

// proveAfter is how long a history is used with the stored sum before the sum is computed. The check finds other
// programs' writes that kept the length and the meta.
const proveAfter = 30 * time.Second

// proven returns the caller's copy, which Redis reports as current. Once the copy has been in use for proveAfter, its
// bytes must match its sum.
func (s *Store) proven(ctx context.Context, turn int64, have *memory.History) (*memory.History, error) {
	if t := have.ReadAt(); t.IsZero() || s.now().Sub(t) < proveAfter || have.Proven() {
		return have, nil
	}
	if turn <= looking {
		return have, nil // reads change nothing; the next turn repairs it
	}
	return nil, s.distrust(ctx, have.Key(), have.Sum().String())
}

// distrust deletes a sum that does not match its value, and returns errChanged. The next load then finds a foreign
// value and adopts it or sets it aside.
func (s *Store) distrust(ctx context.Context, key memory.Key, sum string) error {
	if err := distrustScript.Run(ctx, s.redis, historyKeys(key), sum).Err(); err != nil {
		return unavailable(err)
	}
	return errChanged
}

// grow returns have with a tail appended. The tail is ",{…},{…}]" or "]".
func grow(have *memory.History, tail string) (*memory.History, error) {
	if len(tail) < 2 || tail[0] != ',' {
		return nil, errChanged
	}
	suffix, err := memory.ParseHistory(have.Key(), []byte("["+tail[1:]))
	if err != nil {
		return nil, err
	}
	return have.With(suffix.Raw(0)...), nil
}

// Append implements memory.Store. It takes one round trip of constant cost, except for a subagent's first message in a
// chat. It is optimistic: the script rejects an outdated copy, and Append retries with the stored history. The mark
// makes it idempotent, so a command that go-redis sends twice adds one message.
func (s *Store) Append(ctx context.Context, have *memory.History, mark memory.Mark, message []byte) (_ *memory.History,
	err error) {
	key := have.Key()
	defer func() {
		if err != nil {
			err = fmt.Errorf("appending to %s: %w", key, err)
		}
	}()
	if have.Len() == 0 && key.Agent() != "" {
		if _, err := s.indexHistory(ctx, key, mark.Turn); err != nil {
			return nil, err
		}
	}
	for try := range attempts {
		grown := have.With(message)
		r, err := s.replicated(ctx, appendScript, historyKeys(key),
			mark.Run, mark.Seq, mark.Turn, have.Sum().String(), have.Size(), message, grown.Sum().String())
		if err != nil {
			return nil, err
		}
		switch word := r.Word(); {
		case word == "ok", word == "duplicate" && r.Part(1) == grown.Sum().String():
			grown.ProvenIn(mark.Turn)
			return grown, nil
		case word == "full":
			return nil, fmt.Errorf("%w: it may hold %d MiB", memory.ErrFull, hardLimit>>20)
		case word == "duplicate":
			return s.reload(ctx, mark.Turn, have)
		case word == "stale":
			s.Counts.Stale.Add(1)
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
		if have, err = s.reload(ctx, mark.Turn, have); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it changed under every attempt", memory.ErrUnavailable)
}

func (s *Store) reload(ctx context.Context, turn int64, have *memory.History) (*memory.History, error) {
	r, err := s.look(ctx, turn, have)
	if err != nil {
		return nil, err
	}
	h, err := s.settle(ctx, turn, have, r, nil)
	if err == nil {
		h.ProvenIn(turn)
	}
	return h, err
}

// Erase implements memory.Store. It also erases set-aside copies of damaged values.
func (s *Store) Erase(ctx context.Context, turn int64, keys ...memory.Key) error {
	for _, key := range keys {
		err := s.erase(ctx, turn, key, key.Agent() == "")
		if err == nil && key.Agent() != "" {
			err = s.redis.HDel(ctx, chatMeta(key.Chat()), "s:"+string(key.Agent()), "agents").Err()
		}
		if err != nil {
			return failure(err, "erasing %s", key)
		}
	}
	return nil
}

// EraseChat erases the histories under keys, which should be all histories of the chat. It also erases the chat's runs,
// its conversation and its open run.
func (s *Store) EraseChat(ctx context.Context, turn int64, chat memory.Chat, keys ...memory.Key) error {
	if err := s.Runs.Erase(ctx, chat); err != nil {
		return err
	}
	if err := s.Erase(ctx, turn, keys...); err != nil {
		return err
	}
	err := s.Users.unposted(ctx, chat)
	if err == nil {
		err = s.erase(ctx, turn, memory.ChatKey(chat), false)
	}
	if err == nil {
		err = s.unlist(ctx, memory.KindChats, chat.Tenant(), chat.ID())
	}
	return failure(err, "erasing %s", memory.ChatKey(chat))
}

// erase removes a history and its set-aside values. If keep is true, the other fields of the chat's meta stay.
func (s *Store) erase(ctx context.Context, turn int64, key memory.Key, keep bool) error {
	damaged, err := s.setAsideOf(ctx, key)
	if err == nil {
		keys := append(historyKeys(key), archiveKey(key), notesKey(key))
		_, err = s.call(ctx, eraseScript, append(keys, damaged...), turn, int(tombstone.Seconds()), keep)
	}
	return err
}

// setAsideOf returns the keys of the set-aside values of a history.
func (s *Store) setAsideOf(ctx context.Context, key memory.Key) ([]string, error) {
	fields, err := s.redis.HKeys(ctx, metaKey(key)).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var names []string
	for _, f := range fields {
		// A name in braces is a key in another slot. Another program wrote a field with an empty name.
		if timestamp, ok := strings.CutPrefix(f, "d:"); ok && timestamp != "" && !strings.HasPrefix(timestamp, "{") {
			names = append(names, damagedKey(key, timestamp))
		}
	}
	return names, nil
}
