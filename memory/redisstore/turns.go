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

// Turns handles the leases of chats. The lease and the claim of the next lease are keys that expire. The chat's meta
// stores the fields that a turn starts with (turn, open, conversation, lost, told). A set lists the chats with an open
// run. A lease's token fences changes of the lease and of the open run. Take raises the number of the chat's turn,
// which fences all writes to the chat's histories.
type Turns struct {
	*core
	users Users // lists the chats of a run's user
}

// OpenRun describes an open run. If the holder of the turn dies, the next holder finishes the run with it.
type OpenRun struct {
	Run     string `json:"run"`
	Turn    int64  `json:"turn"`
	Events  string `json:"events,omitempty"` // URL of its events; empty before acceptance, or if Seal is wrong
	Seal    string `json:"seal,omitempty"`   // signature of Run and Events; only in Redis
	Body    string `json:"body"`             // hash of the post
	Process string `json:"by,omitempty"`     // the process that began the run
	Trace   string `json:"trace,omitempty"`  // traceparent of the post
	First   string `json:"first,omitempty"`  // run of the first attempt at the post, if this is a later one
	// Attempt is the number of this attempt. Unkeyed reports that no post can repeat the run.
	Attempt int  `json:"attempt,omitempty"`
	Unkeyed bool `json:"unkeyed,omitempty"`

	// User is the user of the post, zero for a user without notes. Posted reports that the post is new, so Open records
	// its user in the chat.
	User   memory.User `json:"user,omitzero"`
	Posted bool        `json:"-"`
	// Title is the title of a chat that starts with this run; Open stores no title for "".
	Title string `json:"-"`
}

// Turn is the right to write into a chat's histories. Its Number is the fencing token: stores reject writes with a
// smaller number than the stored one.
type Turn struct {
	Number       int64          // raised with every turn; fences older turns
	Conversation string         // the gateway's conversation of the chat
	Open         *OpenRun       // a run that an earlier holder left open
	Waiting      *Rest          // a run that waits for an answer
	Pending      string         // a change of the memory that an earlier holder did not finish
	Agents       []memory.Agent // subagents with a history in the chat
	Erased       string         // the turn of the chat's last erasure, "0" for none
}

// HeldError indicates that another process holds the chat's lease or has a claim to it.
type HeldError struct {
	Remaining time.Duration // until the lease or claim ends, unless renewed
	Claimed   bool          // another process waits for the turn and takes it first, see First
	Erasing   bool          // the claim is an eraser's, so waiting posts should give up
	Erased    string        // as in Turn
	Token     string        // of the holder or of the first claim
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("the chat's turn is taken for %v more", e.Remaining)
}

// EraserToken is the prefix of tokens that take a chat's turn to erase data. They take precedence over all others.
const EraserToken = "erase:"

// ErasedIn returns the turn of the chat's last erasure, 0 for none.
func (t Turn) ErasedIn() int64 {
	return integer(t.Erased)
}

// DropConversation removes the chat's conversation. The next Take stores a new one.
func (s Turns) DropConversation(ctx context.Context, chat memory.Chat) error {
	return failure(s.redis.HDel(ctx, chatMeta(chat), "conversation").Err(),
		"dropping the conversation of chat %s", chat)
}

// Take takes the chat's lease for ttl under the caller's token and raises the chat's number in the same step. The
// number is at least the Unix time in ms, so it exceeds every earlier number even after data loss. conversation is
// stored if the chat has none. If another token holds the lease or has claimed it, Take returns a *HeldError.
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

// record returns the run as stored in Redis. Requests to the services carry the services' secret. A seal protects the
// address, so that mneme never sends the secret to an address of another program.
func (r OpenRun) record(secret string) ([]byte, error) {
	r.Seal = r.seal(secret)
	return json.Marshal(r)
}

func (r OpenRun) seal(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%s %s", r.Run, r.Events) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// readOpenRun parses a stored run. It returns nil for anything else. If the seal is wrong, the run has no address.
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

// First claims the chat's next lease for token, for ttl. Until then Take rejects all other tokens, so that a polling
// process does not overtake the process that waits longest. The earliest of several claims wins, but an eraser's claim
// replaces any. Calling First again renews the claim.
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

// Yield gives up token's claim of First.
func (s Turns) Yield(ctx context.Context, chat memory.Chat, token string) error {
	return failure(s.claim(ctx, chat, token, 0), "yielding the next turn of chat %s", chat)
}

// claim renews token's claim, or ends it if ttl is 0.
func (s Turns) claim(ctx context.Context, chat memory.Chat, token string, ttl time.Duration) error {
	keys := []string{firstKey(chat), chatMeta(chat)}
	return renewScript.Run(ctx, s.redis, keys, token, ttl.Milliseconds(), "").Err()
}

// Lease names a current or former lease of a process.
type Lease struct {
	Chat  memory.Chat
	Token string
}

// RenewAll renews leases in two round trips. The results are in the order of leases, each with its own error. renewed
// is false for a lease that its token no longer holds. It also delays the takeover of open runs by other processes.
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

// RenewLast renews a lease just before its release, and returns the number of entries in the log of its run. Only this
// number reveals missing entries: a Redis that was restored to an older state may lack some in the middle.
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

// Open records the run of a turn before the run starts, so that other processes can finish it if this process dies. It
// also renews the lease. The result holds the losses that the run must report and other data of the chat.
func (s Turns) Open(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, run OpenRun) (Loss,
	error) {
	record, err := run.record(s.Secret)
	if err != nil {
		return Loss{}, err
	}
	// Add to the set first. A listed chat without an open run costs only one needless check.
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
	if cluster, slots := s.redis.(*redis.ClusterClient); slots { // all first commands at once
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
	_ = json.Unmarshal([]byte(r.Part(4)), &loss.Approved) // an unreadable list approves nothing
	_ = json.Unmarshal([]byte(r.Part(5)), &loss.Quarantine)
	if loss.UserNotes, err = s.users.openedNotes(ctx, run.User, notes); err != nil {
		return Loss{}, failure(err, "opening a run of chat %s", chat)
	}
	return loss, nil
}

// Release releases a turn whose run has finished or never started. If another process holds the turn by now, its lease
// stays.
func (s Turns) Release(ctx context.Context, chat memory.Chat, token string) error {
	ok, err := s.giveBack(ctx, chat, token, "-")
	return s.released(ctx, chat, ok, err)
}

// released removes a chat from the chats with an open run if its lease was released (ok).
func (s Turns) released(ctx context.Context, chat memory.Chat, ok bool, err error) error {
	if err == nil && ok {
		err = s.redis.ZRem(ctx, openChats, chat.String()).Err()
	}
	return failure(err, "giving back the turn of chat %s", chat)
}

// Close is Release for a turn with a finished run. It also records in the index until when data of the run is stored.
// first is the run of the first attempt at the post.
func (s Turns) Close(ctx context.Context, chat memory.Chat, token, run, first string, keyed bool) error {
	now := s.now()
	done, err := closeScript.Run(ctx, s.redis, append(turnKeys(chat), waitingKey(chat), callsKey(chat, first)),
		token, "r:"+run, now.Add(s.keptLife(keyed)).UnixMilli(), now.UnixMilli(), "r:"+first).Int()
	if err == nil && done == 2 {
		err = s.redis.ZRem(ctx, waitsKey(chat.Tenant()), chat.ID()).Err()
	}
	return s.released(ctx, chat, done > 0, err)
}

// Leave releases a turn while its run is open, so that another process can finish the run at once.
func (s Turns) Leave(ctx context.Context, chat memory.Chat, token string) error {
	ok, err := s.giveBack(ctx, chat, token, "")
	if err == nil && ok {
		err = s.redis.ZAddXX(ctx, openChats, redis.Z{Score: s.deadline(0), Member: chat.String()}).Err()
	}
	return failure(err, "leaving the turn of chat %s", chat)
}

// maxAbandoned bounds the result of Abandoned, because a dead process may have had thousands of chats.
const maxAbandoned = 1000

// Abandoned returns chats with an open run whose lease has expired.
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

// ReleaseAll releases every turn, whatever its token. Call it only if no other process can use the store, so that all
// holders have ended.
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

// Regain restores a lease that Redis lost, under the same token and number. run is the open run of the turn, nil for
// none. Regain returns false if the chat's lease exists or a newer number is stored. Then this holder is fenced.
func (s Turns) Regain(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, turn Turn,
	run *OpenRun) (bool, error) {
	record := []byte{}
	var err error
	if run != nil {
		if record, err = run.record(s.Secret); err != nil {
			return false, err
		}
		// Add to the set first, as in Open.
		err = s.redis.ZAdd(ctx, openChats, redis.Z{Score: s.deadline(ttl), Member: chat.String()}).Err()
	}
	ok := false
	if err == nil {
		ok, err = regainScript.Run(ctx, s.redis, turnKeys(chat),
			token, ttl.Milliseconds(), turn.Number, turn.Conversation, record).Bool()
	}
	return ok, failure(err, "taking the turn of chat %s again", chat)
}

// Latest returns the number of a chat's newest turn, 0 for none.
func (s Turns) Latest(ctx context.Context, chat memory.Chat) (int64, error) {
	text, err := s.field(ctx, chatMeta(chat), "turn")
	return integer(text), failure(err, "looking for the turn of chat %s", chat)
}

// OpenRun returns the open run of a chat, nil for none.
func (s Turns) OpenRun(ctx context.Context, chat memory.Chat) (*OpenRun, error) {
	text, err := s.field(ctx, chatMeta(chat), "open")
	if text == "" {
		return nil, failure(err, "looking for the open run of chat %s", chat)
	}
	return readOpenRun([]byte(text), s.Secret), nil
}

// Holders returns the tokens that hold the turns of chats with an open run. A token is empty if there is no lease.
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

// maxHolders bounds the number of chats that Holders reads.
const maxHolders = 10_000

// Loss is the result of Open: losses that the run may have to report, and other data of the chat.
type Loss struct {
	Recovered     bool   // data of the chat was restored, and no run has reported it yet
	ReportedEpoch string // the epoch that a run of the chat last reported
	Epoch         string // the store's epoch, "" for none
	Notes         bool   // the chat may have notes
	// UserNotes are the notes of the run's user, in any state.
	UserNotes []memory.Note
	// Approved are the tools that were approved permanently in the chat.
	Approved []string
	// Quarantine is the quarantine of the chat.
	Quarantine memory.Quarantine
}

// TellLoss records that a run of the chat reported the loss.
func (s Turns) TellLoss(ctx context.Context, chat memory.Chat, epoch string) error {
	meta := chatMeta(chat)
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.HDel(ctx, meta, "lost")
		p.HSet(ctx, meta, "told", epoch)
	})
	return failure(err, "noting that a loss of chat %s was told", chat)
}

// Conversation returns the gateway's conversation of a chat, "" for none.
func (s Turns) Conversation(ctx context.Context, chat memory.Chat) (string, error) {
	id, err := s.field(ctx, chatMeta(chat), "conversation")
	return id, failure(err, "looking for the conversation of chat %s", chat)
}

// ChangeConversation replaces the gateway's conversation of a chat and returns the previous one.
func (s Turns) ChangeConversation(ctx context.Context, chat memory.Chat, fresh string) (old string, err error) {
	old, err = s.Conversation(ctx, chat)
	if err == nil {
		err = s.redis.HSet(ctx, chatMeta(chat), "conversation", fresh).Err()
	}
	return old, failure(err, "changing the conversation of chat %s", chat)
}
