package redisstore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Turns is about the leases of chats. It keeps the lease and the claim of the next one, keys of their own that end by
// themselves, in the chat's meta what a turn begins with (turn, open, conversation, lost, told), and the set of chats
// with an open run. What is written of a lease is fenced by its token. Take raises the number of the chat's turn, which
// fences all that is written in the chat's histories.
type Turns struct {
	*core
	users Users // in the lists of which a run is noted
}

// OpenRun is what a turn's holder leaves for the process that comes after it, should it
// die: enough to bring the run to its end.
type OpenRun struct {
	Run     string `json:"run"`
	Turn    int64  `json:"turn"`
	Events  string `json:"events,omitempty"` // URL of its events; empty before the run was accepted, or without our seal
	Seal    string `json:"seal,omitempty"`   // of Events, while it is in Redis
	Body    string `json:"body"`             // hash of the post
	Process string `json:"by,omitempty"`     // the process that began it
	Trace   string `json:"trace,omitempty"`  // traceparent of the post
	First   string `json:"first,omitempty"`  // run of the first attempt at the post, if this is another one
	// Attempt is this one's number, and Unkeyed says that no post can repeat the run.
	Attempt int  `json:"attempt,omitempty"`
	Unkeyed bool `json:"unkeyed,omitempty"`

	// User is the one under whom it was posted, zero for a user that has no notes. Posted says that it just was, which
	// the chat is to note.
	User   memory.User `json:"user,omitzero"`
	Posted bool        `json:"-"`
	// Title is the title of a chat that begins with the run; "" for none is made.
	Title string `json:"-"`
}

// Turn is what the holder of a chat's lease has: the right to write into its histories. The
// number is the fencing token; stores refuse writes under a smaller one than they have seen.
type Turn struct {
	Number       int64          // raised with every turn; fences older ones
	Conversation string         // the gateway's conversation of this chat
	Open         *OpenRun       // a run that an earlier holder left open
	Waiting      *Rest          // a run that waits for an answer
	Pending      string         // a change of the memory that an earlier holder has begun and not finished
	Agents       []memory.Agent // subagents that have a history in this chat
	Erased       string         // the turn of the chat's last erasure, "0" for none
}

// HeldError says that another process has the chat's lease, or is to get it first.
type HeldError struct {
	Remaining time.Duration // until its claim ends, unless renewed
	Claimed   bool          // it waits for the turn too, and comes first: see First
	Erasing   bool          // it is there to erase: a post that waits for the turn should give up
	Erased    string        // as in Turn
	Token     string        // of the holder, or of the claim that comes first
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("the chat's turn is taken for %v more", e.Remaining)
}

// EraserToken begins the tokens under which a chat's turn is taken to erase in it:
// they go before all others.
const EraserToken = "erase:"

// ErasedIn is the turn of the chat's last erasure, 0 for none.
func (t Turn) ErasedIn() int64 {
	return integer(t.Erased)
}

// DropConversation takes the chat's conversation away: the next Take keeps another one.
func (s Turns) DropConversation(ctx context.Context, chat memory.Chat) error {
	return failure(s.redis.HDel(ctx, chatMeta(chat), "conversation").Err(),
		"dropping the conversation of chat %s", chat)
}

// Take takes the chat's lease for ttl under a token of the caller's, and raises the chat's
// number in the same step. The number is above every earlier one, also when Redis lost data,
// since it is at least the Unix time in ms. conversation is kept for a chat that has none
// yet. A *HeldError is a refusal.
func (s Turns) Take(ctx context.Context, chat memory.Chat, token, conversation string, ttl time.Duration) (Turn,
	error) {
	r, err := s.call(ctx, takeScript, append(turnKeys(chat), firstKey(chat)), token, ttl.Milliseconds(),
		s.now().UnixMilli(), conversation)
	if err != nil {
		return Turn{}, fmt.Errorf("taking the turn of chat %s: %w", chat, err)
	}
	if word := r.Word(); word == "held" || word == "claimed" || word == "erasing" {
		return Turn{}, &HeldError{
			Remaining: time.Duration(integer(r.Part(1))) * time.Millisecond, Claimed: word == "claimed",
			Erasing: word == "erasing",
			Erased:  r.Part(2), Token: r.Part(3),
		}
	}
	number, err := strconv.ParseInt(r.Part(1), 10, 64)
	if err != nil || len(r) < 7 {
		return Turn{}, fmt.Errorf("taking the turn of chat %s: %w: unexpected reply %v", chat, memory.ErrUnavailable, r)
	}
	turn := Turn{Number: number, Erased: r.Part(2), Conversation: r.Part(3)}
	turn.Open = readOpenRun([]byte(r.Part(4)), s.Secret)
	turn.Pending = r.Part(5)
	turn.Waiting = readRest(r.Part(6))
	for _, name := range r[7:] {
		if agent, err := memory.ParseAgent(name); err == nil {
			turn.Agents = append(turn.Agents, agent)
		}
	}
	return turn, nil
}

// record is the run as it is noted in Redis. Its address has a seal, since the receiver of a service's request gets the
// services' secret: another address that a foreign program writes there is not followed.
func (r OpenRun) record(secret string) ([]byte, error) {
	r.Seal = r.seal(secret)
	return json.Marshal(r)
}

func (r OpenRun) seal(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%s %s", r.Run, r.Events) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// readOpenRun is nil for what is no record of ours. The run has no address if that was written by another one.
func readOpenRun(record []byte, secret string) *OpenRun {
	var open OpenRun
	if json.Unmarshal(record, &open) != nil || open.Run == "" {
		return nil
	}
	if !hmac.Equal([]byte(open.Seal), []byte(open.seal(secret))) {
		open.Events = ""
	}
	open.Seal = ""
	return &open
}

// First claims the chat's next lease for token, for as long as ttl: until then Take refuses
// all other tokens, so that a process that polls at the right moment does not overtake the one
// that waits longest. Of several claims the earliest holds, but an eraser's replaces any.
// Calling it again renews the claim.
func (s Turns) First(ctx context.Context, chat memory.Chat, token string, ttl time.Duration) error {
	key := firstKey(chat)
	var err error
	if strings.HasPrefix(token, EraserToken) {
		err = s.redis.Set(ctx, key, token, ttl).Err()
	} else {
		var fresh bool
		if fresh, err = s.redis.SetNX(ctx, key, token, ttl).Result(); err == nil && !fresh {
			err = s.claim(ctx, chat, token, ttl)
		}
	}
	return failure(err, "claiming the next turn of chat %s", chat)
}

// Yield gives up what First claimed for token.
func (s Turns) Yield(ctx context.Context, chat memory.Chat, token string) error {
	return failure(s.claim(ctx, chat, token, 0), "yielding the next turn of chat %s", chat)
}

// claim prolongs token's claim, or ends it if ttl is 0.
func (s Turns) claim(ctx context.Context, chat memory.Chat, token string, ttl time.Duration) error {
	keys := []string{firstKey(chat), chatMeta(chat)}
	return renewScript.Run(ctx, s.redis, keys, token, ttl.Milliseconds(), "").Err()
}

// Lease names a lease that a process has, or had.
type Lease struct {
	Chat  memory.Chat
	Token string
}

// RenewAll prolongs leases, in two round trips; false for one that is no longer held under
// its token. For a chat with an open run the time at which others may look after it moves
// along. Each has an answer, or an error, of its own, in the order of the leases.
func (s Turns) RenewAll(ctx context.Context, ttl time.Duration, leases []Lease) (renewed []bool, failed []error) {
	renewed, failed = make([]bool, len(leases)), make([]error, len(leases))
	calls := make([]redisscript.Call, len(leases))
	for i, l := range leases {
		calls[i] = redisscript.Call{Script: renewScript, Keys: turnKeys(l.Chat), Args: []any{l.Token, ttl.Milliseconds(), ""}}
	}
	var open []redis.Z
	for i, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		l, err := leases[i], error(nil)
		if renewed[i], err = cmd.Bool(); err != nil {
			failed[i] = failure(err, "renewing the turn of chat %s", l.Chat)
		}
		if renewed[i] {
			open = append(open, redis.Z{Score: s.deadline(ttl), Member: l.Chat.String()})
		}
	}
	if len(open) == 0 {
		return renewed, failed
	}
	if err := s.redis.ZAddXX(ctx, openChats, open...).Err(); err != nil {
		for i, l := range leases {
			if renewed[i] {
				renewed[i], failed[i] = false, failure(err, "renewing the turn of chat %s", l.Chat)
			}
		}
	}
	return renewed, failed
}

// RenewLast prolongs the lease of a turn that is given back next, and says how many entries
// the log of its run has. Nothing but their number shows that some are missing: a Redis that
// came back with an older state may lack some in the middle, and has taken later ones since.
func (s Turns) RenewLast(
	ctx context.Context, chat memory.Chat, token string, ttl time.Duration, run string,
) (renewed bool, entries int, err error) {
	renew := redisscript.Command(ctx, renewScript, turnKeys(chat), token, ttl.Milliseconds(), "")
	count := redis.NewIntCmd(ctx, "xlen", eventsKey(chat, run))
	if err = redisscript.InOrder(ctx, s.redis, []*redis.Script{renewScript}, renew, count); err == nil {
		renewed, err = renew.Bool()
	}
	if err != nil {
		return false, 0, failure(err, "renewing the turn of chat %s", chat)
	}
	return renewed, int(count.Val()), nil
}

// Open notes the run that the turn is taken for, before it begins: others finish
// it should this process die. It prolongs the lease too, and says what the run may have
// to tell of, and whether the chat may have notes.
func (s Turns) Open(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, run OpenRun) (Loss,
	error) {
	record, err := run.record(s.Secret)
	if err != nil {
		return Loss{}, err
	}
	// The set first: a chat that is in it without an open run is only looked at once too often.
	set := redis.NewIntCmd(ctx, "zadd", openChats, s.deadline(ttl), chat.String())
	used := redis.NewIntCmd(ctx, "zadd", s.chatsKey(chat), s.deadline(0), chat.ID())
	who, lists, notes := s.users.openedBy(ctx, chat, run)
	opening := ""
	if run.Title != "" {
		opening = beginning(memory.MessageID(run.Run, 1), run.Title)
	}
	open := redisscript.Command(ctx, openScript, append(turnKeys(chat), memory.ChatKey(chat).String()),
		token, ttl.Milliseconds(), record, opening, who)
	epoch := redis.NewStringCmd(ctx, "get", epochKey)
	first, cmds := []redis.Cmder{set, used}, []redis.Cmder{open, epoch}
	if notes != nil {
		first, cmds = append(first, lists...), append(cmds, notes)
	}
	if cluster, slots := s.redis.(*redis.ClusterClient); slots { // the lists at once
		_, err := cluster.Pipelined(ctx, func(p redis.Pipeliner) (err error) {
			for _, cmd := range first {
				err = errors.Join(err, p.Process(ctx, cmd))
			}
			return err
		})
		if err != nil {
			return Loss{}, failure(err, "opening a run of chat %s", chat)
		}
		first = nil
	}
	r, err := s.inOrder(ctx, openScript, open, append(first, cmds...)...)
	if err != nil {
		return Loss{}, failure(err, "opening a run of chat %s", chat)
	}
	loss := Loss{Recovered: r.Part(1) != "", ReportedEpoch: r.Part(2), Epoch: epoch.Val(), Notes: r.Part(3) != ""}
	_ = json.Unmarshal([]byte(r.Part(4)), &loss.Approved) // what is no list approves nothing
	_ = json.Unmarshal([]byte(r.Part(5)), &loss.Quarantine)
	if loss.UserNotes, err = s.users.openedNotes(ctx, run.User, notes); err != nil {
		return Loss{}, failure(err, "opening a run of chat %s", chat)
	}
	return loss, nil
}

// Release gives a turn back, its run over or never begun; a turn that others hold
// by now stays theirs.
func (s Turns) Release(ctx context.Context, chat memory.Chat, token string) error {
	ok, err := s.giveBack(ctx, chat, token, "-")
	return s.released(ctx, chat, ok, err)
}

// released takes a chat off the list of those with an open run, if its turn was given back.
func (s Turns) released(ctx context.Context, chat memory.Chat, ok bool, err error) error {
	if err == nil && ok {
		err = s.redis.ZRem(ctx, openChats, chat.String()).Err()
	}
	return failure(err, "giving back the turn of chat %s", chat)
}

// Close is Release for a turn of which the run is over, and notes in the index until when
// something is kept of the run. first is the run of the first attempt at its post.
func (s Turns) Close(ctx context.Context, chat memory.Chat, token, run, first string, keyed bool) error {
	now := s.now()
	done, err := closeScript.Run(ctx, s.redis, append(turnKeys(chat), waitingKey(chat), callsKey(chat, first)),
		token, "r:"+run, now.Add(s.keptLife(keyed)).UnixMilli(), now.UnixMilli(), "r:"+first).Int()
	if err == nil && done == 2 {
		err = s.redis.ZRem(ctx, waitsKey(chat.Tenant()), chat.ID()).Err()
	}
	return s.released(ctx, chat, done > 0, err)
}

// Leave gives a turn back while its run is still open, so that another process
// may finish it at once.
func (s Turns) Leave(ctx context.Context, chat memory.Chat, token string) error {
	ok, err := s.giveBack(ctx, chat, token, "")
	if err == nil && ok {
		err = s.redis.ZAddXX(ctx, openChats, redis.Z{Score: s.deadline(0), Member: chat.String()}).Err()
	}
	return failure(err, "leaving the turn of chat %s", chat)
}

// maxAbandoned bounds how many chats Abandoned gives at once: a process that dies may have had thousands.
const maxAbandoned = 1000

// Abandoned lists chats with an open run of which no process renews the lease.
func (s Turns) Abandoned(ctx context.Context) ([]memory.Chat, error) {
	members, err := s.redis.ZRangeByScore(ctx, openChats, &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(s.now().UnixMilli(), 10), Count: maxAbandoned,
	}).Result()
	if err != nil {
		return nil, failure(err, "looking for abandoned runs")
	}
	var chats []memory.Chat
	for _, m := range members {
		if chat, err := memory.ParseChat(m); err == nil {
			chats = append(chats, chat)
		}
	}
	return chats, nil
}

// ReleaseAll gives back every turn, under whatever token it is held. It is for a store that no
// other process can use: the holder of a lease was a process before this one, and is gone.
func (s Turns) ReleaseAll(ctx context.Context) error {
	err := s.scan(ctx, leaseKey(memory.AnyChat), func(key string) error { return s.redis.Del(ctx, key).Err() })
	if err != nil {
		return failure(err, "giving back the turns of a process before")
	}
	members, err := s.redis.ZRangeWithScores(ctx, openChats, 0, -1).Result()
	for i := range members {
		members[i].Score = 0
	}
	if len(members) > 0 {
		err = s.redis.ZAddXX(ctx, openChats, members...).Err()
	}
	return failure(err, "giving back the turns of a process before")
}

// Regain takes a lease again that Redis has lost, under the same token and number, with the
// run that is open in it, nil for none. It answers false where another process holds the
// chat's lease, or has taken a newer number since: then this holder is fenced.
func (s Turns) Regain(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, turn Turn,
	run *OpenRun) (bool, error) {
	record := []byte{}
	var err error
	if run != nil {
		if record, err = run.record(s.Secret); err != nil {
			return false, err
		}
		// As in Open, the set first.
		err = s.redis.ZAdd(ctx, openChats, redis.Z{Score: s.deadline(ttl), Member: chat.String()}).Err()
	}
	ok := false
	if err == nil {
		ok, err = regainScript.Run(ctx, s.redis, turnKeys(chat),
			token, ttl.Milliseconds(), turn.Number, turn.Conversation, record).Bool()
	}
	return ok, failure(err, "taking the turn of chat %s again", chat)
}

// Latest is the number of a chat's newest turn, 0 if there was none.
func (s Turns) Latest(ctx context.Context, chat memory.Chat) (int64, error) {
	text, err := s.field(ctx, chatMeta(chat), "turn")
	return integer(text), failure(err, "looking for the turn of chat %s", chat)
}

// OpenRun is the run of a chat that is not over, if there is one.
func (s Turns) OpenRun(ctx context.Context, chat memory.Chat) (*OpenRun, error) {
	text, err := s.field(ctx, chatMeta(chat), "open")
	if text == "" {
		return nil, failure(err, "looking for the open run of chat %s", chat)
	}
	return readOpenRun([]byte(text), s.Secret), nil
}

// Holders are the tokens under which the turns of chats with an open run are held; empty
// where there is no lease.
func (s Turns) Holders(ctx context.Context) (map[memory.Chat]string, error) {
	members, err := s.redis.ZRange(ctx, openChats, 0, maxHolders).Result()
	if err != nil {
		return nil, failure(err, "looking who holds the turns of open runs")
	}
	leases := map[memory.Chat]*redis.StringCmd{}
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, m := range members {
			if chat, err := memory.ParseChat(m); err == nil {
				leases[chat] = p.Get(ctx, leaseKey(chat))
			}
		}
	})
	tokens := map[memory.Chat]string{}
	for chat, lease := range leases {
		tokens[chat] = lease.Val()
	}
	return tokens, failure(err, "looking who holds the turns of open runs")
}

// maxHolders bounds how many chats Holders looks at.
const maxHolders = 10_000

// Loss is what a run may have to tell of, and what else Open finds.
type Loss struct {
	Recovered     bool   // something of the chat was brought back, and no run has told yet
	ReportedEpoch string // the epoch of which a run of the chat told last
	Epoch         string // the store's mark; "" if it has none
	Notes         bool   // the chat may have notes
	// UserNotes are those of the user under whom the run is posted, in whatever state.
	UserNotes []memory.Note
	// Approved are the tools that were approved in the chat for good.
	Approved []string
	// Quarantine is the chat's.
	Quarantine memory.Quarantine
}

// TellLoss notes that a run of the chat has told of what it lost.
func (s Turns) TellLoss(ctx context.Context, chat memory.Chat, epoch string) error {
	meta := chatMeta(chat)
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.HDel(ctx, meta, "lost")
		p.HSet(ctx, meta, "told", epoch)
	})
	return failure(err, "noting that a loss of chat %s was told", chat)
}

// Conversation is the gateway's conversation of a chat, "" for none.
func (s Turns) Conversation(ctx context.Context, chat memory.Chat) (string, error) {
	id, err := s.field(ctx, chatMeta(chat), "conversation")
	return id, failure(err, "looking for the conversation of chat %s", chat)
}

// ChangeConversation gives a chat another conversation of the gateway's, and names the one that it had.
func (s Turns) ChangeConversation(ctx context.Context, chat memory.Chat, fresh string) (old string, err error) {
	old, err = s.Conversation(ctx, chat)
	if err == nil {
		err = s.redis.HSet(ctx, chatMeta(chat), "conversation", fresh).Err()
	}
	return old, failure(err, "changing the conversation of chat %s", chat)
}
