// Package redisstore is tier two of the memory: one JSON array per history in plain Redis (6.2 or newer, Valkey too,
// no modules), readable with redis-cli. A Store is the histories themselves; what else is kept lies in rooms, which
// are fields of it.
//
// It owns the keys that are listed below, and no goroutine. Every change of a history is one Lua script over it and
// its meta, which never writes for a turn that is over and never appends twice under one mark. memory.RedisKey makes
// and reads all of the keys; memory/DESIGN.md says what the scripts check and why.
package redisstore

// The keys:
//
//	chat_history:<chat>               the array
//	subagent:<name>:<chat>            the array
//	{<history key>}:archive           hash: what trims cut off, an array of messages by the position of its
//	                                  first one, and beside it what describes it, see Archives.Segments
//	{<history key>}:notes             its notes: a JSON array of memory.Note
//	{<history key>}:meta              hash: sum, len, count, turn, applied, cut, first, archived, erased, adopted;
//	                                  d:<time> for each value that was set aside;
//	                                  on the chat's also open, waits, approved, conversation, lost, told, notes,
//	                                  quarantine, pending, a:<rewind>, begins, title, metadata, cold,
//	                                  s:<name>, r:<run>, user, u:<user>; agents and kept where there are many of them
//	{chat_history:<chat>}:turn        the chat's lease, see Turns.Take
//	{chat_history:<chat>}:rewound:<id> hash: what a rewind took back, see Rewinds
//	{chat_history:<chat>}:waiting     hash: what a run goes on from that waits, see Waits
//	{chat_history:<chat>}:calls:<run> hash: calls of tools outside by their ids, and their results under
//	                                  <id>:result, see Runs.Claim
//	{chat_history:<chat>}:first       the token that takes the next turn before all others, see Turns.First
//	{<history key>}:damaged:<time>    a value that was set aside
//	{<other key>}:damaged:<time>      a key of the wrong type that was set aside
//	turns:open                        sorted set: chats with an open run, by the lease's end
//	events:<chat>:<run>               stream: a run's log, see Runs.Log and Runs.Pack
//	run:<chat>:<run>                  hash: what a repeated post is answered from, and
//	                                  what tells other processes that the run has a log
//	mneme:waiting                     sorted set: chats of which a run waits, by the first expiry
//	mneme:chats                       sorted set: chats, by their last run; *filled when all are in it; *pin:<chat>
//	mneme:chats#<number>              the same in shards, see listKey; *filled#<shards> is in the key without a number
//	mneme:cold                        sorted set: chats that sleep, by their last run; *filled when all are in it
//	mneme:cold#<number>               the same in shards, see coldKeys
//	user_notes:<user>                 the notes of a user: a JSON array of memory.Note
//	mneme:users:<tenant>              sorted set: a tenant's users, see Tenants
//	mneme:stored[:<tenant>]           hash: the bytes that a tenant stores, see package bytecount
//	mneme:tenants, mneme:erasing      sorted sets: tenants by the last use of a key, and those that are being erased
//	mneme:user-zone:<user>            the IANA time zone of a user
//	mneme:user-chats:<user>           sorted set: chats that a user posted in, by the user's last run there
//	mneme:erasures                    sorted set: what was erased, by the turn
//	mneme:epoch                       random text; another one means that data was lost
//	mneme:processes                   hash: the processes that live, see Processes.Announce
//	mneme:tools:<server>              hash: the pinned definitions of a server's tools, see Tools.Pin
//
// The rooms; a method is called as store.Turns.Take:
//
//	Turns       the lease of a chat and the number that fences, the run that is open, the conversation
//	Runs        records, logs and calls of runs
//	Waits       runs that wait, their answers, and tools that were approved
//	Rewinds     what was taken back, and is put back
//	Archives    what trims cut off; imports
//	Redactions  messages that say nothing any more
//	Erasures    what was erased, for all processes, and erasing it once more
//	Notes       the notes of histories
//	Users       the notes and time zones of users, and the chats that each posted in
//	Chats       the list of chats, their titles, and which histories there are
//	Cold        chats that sleep in the cold store
//	Tenants     which there are, and the lists of what each has
//	Processes   the processes that live
//	Tools       the pinned definitions of tools
//	Server      the Redis servers: their ids, their epoch, whether they take writes
//
// memory.RedisKey makes and reads all of these keys. Every change of a history is one Lua
// script over it and its meta; memory/DESIGN.md says what the scripts check and why.

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

// hardLimit is the size of a history, in bytes, above which an append is refused; append.lua
// has the same number. It lies above memory.MaxHistory, from which on no new exchange
// begins, by more than one exchange can hold, so that what a run has acknowledged since it
// began always finds room.
const hardLimit = 2 * memory.MaxHistory

// Store is a memory.Store over Redis, and holds the rooms in which lies what else is kept there, see the table above.
// Its settings (WaitReplicas, RunLife, ResumeLife, Secret, Archive, Compact, OnCut) and its Counts are those of all
// rooms: they are fields that core has, to be set before the first call. Safe for concurrent use.
//
// Of its own it keeps the histories, each an array with a meta beside it. A history is written under the number of a
// turn: every script refuses a number below the one in the meta. Writes of no turn, which bring back what Redis lost,
// are compare-and-sets on what was seen.
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

// New is a store over client, which the caller closes. The client gets a hook, by
// which keys of the store that turn out to be of the wrong type are set aside.
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

// Load implements memory.Store: cache validation in one round trip, in which the bytes of
// a history move only if the caller has no copy of it. What is found under a key decides,
// never a failure to look: a history that could not be read fails the call, and is not
// taken for an empty one.
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

// settle turns what the load script found into the history that it means, and puts right in
// Redis what a turn may put right. Each repair is a compare-and-set on what was found; if
// that has changed meanwhile, settle looks once more. value holds the bytes that were read
// in the same round trip, nil for none.
func (s *Store) settle(ctx context.Context, turn int64, have *memory.History, r redisscript.Reply,
	value *redis.StringCmd) (*memory.History, error) {
	if short := have.TrimTo(parseLoadInfo(r).first); short != nil && slices.Contains([]string{"whole", "tail"}, r.Word()) {
		// Another process has trimmed it: what the copy has of the rest need not move.
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
		// Whatever is there now, take all of it.
		value = nil
		if r, err = s.look(ctx, turn, memory.Empty(have.Key())); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it changed under every attempt to read it", memory.ErrUnavailable)
}

// bytesOf is the whole value of a history, read now unless it was read along.
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

// errChanged says that a compare-and-set met another value than was found, or that what was
// found does not prove the copy: look again.
var errChanged = errors.New("the stored value changed")

// interpret is one attempt of settle. By the words of load.lua:
//
//	same     the copy is what is stored
//	tail     messages were added behind the copy; the chain of sums proves that they belong there
//	whole    there is other content than the copy's, as its meta describes it
//	foreign  there is a value that no meta describes: another program wrote it, or it is damaged
//	deleted  a meta describes a value that is not there: it was deleted by hand
//	absent   there is neither: a new or an erased history, or one that Redis lost
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

// applyTo notes on a history that is stored so what was found beside it. The stored turn may
// still go on, and may change the history on purpose later on. So what is only looked at
// counts as proven in the turn before it, or in that of the last deliberate change, which it
// follows; a caller that has a turn of its own notes that afterwards.
func (f loadInfo) applyTo(h *memory.History) *memory.History {
	if h != nil {
		h.Follows(f.cut, f.first)
		h.ProvenIn(max(f.turn-1, f.cut))
	}
	return h
}

// readStored reads a history that the meta describes. The sum in the meta is believed at first,
// since computing it costs more than reading; see proveAfter. sound is false where h, or the
// lack of it, is the final answer: a look must not change what does not fit its meta.
func (s *Store) readStored(ctx context.Context, turn int64, key memory.Key, r redisscript.Reply,
	value *redis.StringCmd) (h *memory.History, sound bool, err error) {
	raw, err := s.bytesOf(ctx, key, value)
	if err != nil {
		return nil, false, err
	}
	sum, err := memory.ParseSum(r.Part(4))
	count, _ := strconv.Atoi(r.Part(5)) // another number than there are makes it parse
	if err == nil {
		h, err = memory.ReadHistory(key, raw, sum, count)
	}
	if err == nil && h.Sum() == sum {
		return h, true, nil
	}
	// Another client may have written between the two that were read.
	if now, failed := s.redis.HGet(ctx, metaKey(key), "sum").Result(); failed == nil && now != r.Part(4) {
		return nil, false, errChanged
	}
	if turn <= looking {
		h, err = memory.ParseHistory(key, raw)
		return h, false, err
	}
	return nil, false, s.distrust(ctx, key, r.Part(4))
}

// proveAfter is how long a history is used with the sum that was read beside it and not
// computed. A foreign write that kept the length and did not touch the meta is found then.
const proveAfter = 30 * time.Second

// proven is the caller's copy, of which Redis says that it is current. Once it has been in
// use for proveAfter, its bytes must have the sum that they were read with.
func (s *Store) proven(ctx context.Context, turn int64, have *memory.History) (*memory.History, error) {
	if t := have.ReadAt(); t.IsZero() || s.now().Sub(t) < proveAfter || have.Proven() {
		return have, nil
	}
	if turn <= looking {
		return have, nil // a look changes nothing; the next turn will
	}
	return nil, s.distrust(ctx, have.Key(), have.Sum().String())
}

// distrust drops a sum that does not describe its value. The next look finds a foreign value
// therefore, and adopts it or sets it aside.
func (s *Store) distrust(ctx context.Context, key memory.Key, sum string) error {
	if err := distrustScript.Run(ctx, s.redis, historyKeys(key), sum).Err(); err != nil {
		return unavailable(err)
	}
	return errChanged
}

// grow adds a tail, ",{…},{…}]" or "]", to a copy.
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

// Append implements memory.Store. Apart from the first message of a subagent in
// a chat it is one round trip of constant cost. It is optimistic: the script refuses a copy
// that is not what is stored, and the append comes again with what is. The mark makes it
// idempotent, so that a command that go-redis sends twice adds one message.
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

// Erase implements memory.Store. Copies that were set aside as damaged go too.
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

// EraseChat removes these histories, which should be all of the chat, and what is
// kept of its runs, its conversation and its open run.
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

// erase removes a history and what was set aside of it. keep leaves what a chat's meta
// says beside its history.
func (s *Store) erase(ctx context.Context, turn int64, key memory.Key, keep bool) error {
	damaged, err := s.setAsideOf(ctx, key)
	if err == nil {
		keys := append(historyKeys(key), archiveKey(key), notesKey(key))
		_, err = s.call(ctx, eraseScript, append(keys, damaged...), turn, int(tombstone.Seconds()), keep)
	}
	return err
}

// setAsideOf names the keys of what was set aside of a history.
func (s *Store) setAsideOf(ctx context.Context, key memory.Key) ([]string, error) {
	fields, err := s.redis.HKeys(ctx, metaKey(key)).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var names []string
	for _, f := range fields {
		// A name in braces is a key in another slot; without any, another program wrote the field.
		if timestamp, ok := strings.CutPrefix(f, "d:"); ok && timestamp != "" && !strings.HasPrefix(timestamp, "{") {
			names = append(names, damagedKey(key, timestamp))
		}
	}
	return names, nil
}
