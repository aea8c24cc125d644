package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/bytecount"
	"mneme/memory/erasures"
	"mneme/memory/redisscript"
)

// Users stores the data of a user across chats: the notes (a JSON array), the time zone, and the list of the user's
// chats by last run. In a chat's meta, the field user names the chat's user. A field u:<user> marks each user with a
// note from the chat. This field is written before the note. Notes are changed by compare-and-set without a turn. The
// chat's turn fences the fields of its meta.
type Users struct {
	*core
	erasures Erasures
	stored   bytecount.Counts
}

// severalUsers marks a chat of several users, of no user, or with posts from before users were recorded.
const severalUsers = "*"

// asideMember is the prefix of members of a user's list that stand for set-aside notes. Their score is 0.
const asideMember = "*"

// Notes returns the notes of a user, in order of creation. Unreadable notes are a memory.DamagedError.
func (s Users) Notes(ctx context.Context, u memory.User) ([]memory.Note, error) {
	value, err := s.redis.Get(ctx, userNotesKey(u)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, failure(err, "reading the notes of the user %s", u)
	}
	return readNotes(userNotesKey(u), value)
}

// ChangeNotes is [Notes.Change] for the notes of a user, without a turn. Concurrent callers do not undo each other's
// changes.
func (s Users) ChangeNotes(ctx context.Context, u memory.User,
	change func([]memory.Note) ([]memory.Note, error)) error {
	key := userNotesKey(u)
	if err := s.list(ctx, u); err != nil {
		return failure(err, "listing the user %s", u)
	}
	return s.changeNotes(ctx, key, func() error { return s.setNotesAside(ctx, u) },
		func(old string, notes []memory.Note) (bool, error) {
			fresh, err := encodeNotes(notes)
			if err != nil || string(fresh) == old {
				return err == nil, err
			}
			r, err := s.call(ctx, notesScript, []string{key, key}, NoTurn, old, fresh)
			if err == nil && r.Word() == "ok" {
				err = s.stored.User(ctx, u, int64(len(fresh)))
			}
			return r.Word() == "ok", err
		}, change)
}

// NoteOfUser records in a chat, under its turn, that a user has a note from it. So the note is removed with the chat.
// It returns memory.ErrMoved if the chat has a newer turn.
func (s Users) NoteOfUser(ctx context.Context, turn int64, chat memory.Chat, u memory.User) error {
	_, err := s.call(ctx, indexScript, []string{chatMeta(chat)}, turn, "u:"+u.ID())
	return failure(err, "noting a user in chat %s", chat)
}

// VoidNotes removes notes of users that were made from a chat and for which void returns true. It returns their number
// and needs no turn.
func (s Users) VoidNotes(ctx context.Context, chat memory.Chat, void func(memory.Note) bool) (removed int,
	err error) {
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return 0, failure(err, "listing the users of chat %s", chat)
	}
	for _, f := range fields {
		id, isUser := strings.CutPrefix(f, "u:")
		u, bad := chat.Tenant().User(id)
		if !isUser || bad != nil {
			continue
		}
		err := s.ChangeNotes(ctx, u, func(notes []memory.Note) ([]memory.Note, error) {
			rest := slices.DeleteFunc(slices.Clone(notes), func(n memory.Note) bool { return n.Chat == chat.ID() && void(n) })
			removed += len(notes) - len(rest)
			return rest, nil
		})
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// Zone returns a user's IANA time zone, "" for none.
func (s Users) Zone(ctx context.Context, u memory.User) (string, error) {
	zone, err := s.redis.Get(ctx, userZoneKey(u)).Result()
	return zone, readFailure(err, "reading the time zone of the user %s", u)
}

// SetZone stores a user's time zone; "" removes it.
func (s Users) SetZone(ctx context.Context, u memory.User, zone string) error {
	err := s.list(ctx, u)
	switch {
	case err != nil:
	case zone == "":
		err = s.redis.Del(ctx, userZoneKey(u)).Err()
	default:
		err = s.redis.Set(ctx, userZoneKey(u), zone, 0).Err()
	}
	return failure(err, "storing the time zone of the user %s", u)
}

// EraseNotes removes a user's notes, set-aside notes and time zone. It returns the number of notes. It first records
// the erasure in Redis under timestamp, a Unix time in ms, see VoidOldNotes.
func (s Users) EraseNotes(ctx context.Context, timestamp int64, u memory.User) (removed int, err error) {
	if err := s.erasures.Note(ctx, timestamp, erasures.User(u)); err != nil {
		return 0, err
	}
	notes, err := s.Notes(ctx, u)
	if err != nil && !errors.Is(err, memory.ErrDamaged) {
		return 0, err
	}
	if err = s.eraseAside(ctx, u); err == nil {
		err = s.redis.Del(ctx, userNotesKey(u)).Err()
	}
	if err == nil {
		err = s.stored.User(ctx, u, 0)
	}
	time.Sleep(time.Until(time.UnixMilli(timestamp + 1))) // VoidOldNotes removes notes of the same millisecond
	return len(notes), failure(err, "erasing the notes of the user %s", u)
}

// VoidOldNotes repeats an erasure after Redis was restored to an older state. It removes the notes up to timestamp, a
// Unix time in ms. It always removes the time zone, which has no timestamp.
func (s Users) VoidOldNotes(ctx context.Context, timestamp int64, u memory.User) error {
	if err := s.eraseAside(ctx, u); err != nil {
		return failure(err, "erasing the notes of the user %s", u)
	}
	return s.ChangeNotes(ctx, u, func(notes []memory.Note) ([]memory.Note, error) {
		return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.TS*1000 < float64(timestamp+1) }), nil
	})
}

// eraseAside removes the set-aside notes and the time zone of a user.
func (s Users) eraseAside(ctx context.Context, u memory.User) error {
	damaged, err := s.redis.ZRangeByScore(ctx, userChatsKey(u), &redis.ZRangeBy{Min: "0", Max: "0"}).Result()
	for i := 0; i < len(damaged) && err == nil; i++ {
		err = s.redis.Del(ctx, userDamagedKey(u, strings.TrimPrefix(damaged[i], asideMember))).Err()
	}
	if err == nil && len(damaged) > 0 {
		err = s.redis.ZRemRangeByScore(ctx, userChatsKey(u), "0", "0").Err()
	}
	if err == nil {
		err = s.redis.Del(ctx, userZoneKey(u)).Err()
	}
	return err
}

// UserErasure is the erasure of a user that a request began at Timestamp, a Unix time in ms.
type UserErasure struct {
	User      memory.User
	Timestamp int64
	Chats     bool // also erase the user's chats
}

// member returns the entry of the erasure in the list of unfinished erasures. No tenant has such a name.
func (e UserErasure) member() string {
	kind := "notes"
	if e.Chats {
		kind = "chats"
	}
	return fmt.Sprintf("%s:%d:%s", kind, e.Timestamp, e.User)
}

// Erasing records an unfinished erasure. If its process does not call Erasing again within ttl, another process
// finishes the erasure.
func (s Users) Erasing(ctx context.Context, e UserErasure, ttl time.Duration) error {
	err := s.redis.ZAdd(ctx, string(memory.KindErasing), redis.Z{Score: s.deadline(ttl), Member: e.member()}).Err()
	return failure(err, "noting the erasure of the user %s", e.User)
}

// Erased records that an erasure is finished.
func (s Users) Erased(ctx context.Context, e UserErasure) error {
	err := s.redis.ZRem(ctx, string(memory.KindErasing), e.member()).Err()
	return failure(err, "noting the erasure of the user %s", e.User)
}

// HalfErased returns the unfinished erasures that no process renews.
func (s Users) HalfErased(ctx context.Context) (list []UserErasure, err error) {
	members, err := s.redis.ZRangeByScore(ctx, string(memory.KindErasing),
		&redis.ZRangeBy{Min: "0", Max: strconv.FormatFloat(s.deadline(0), 'f', 0, 64)}).Result()
	for _, m := range members {
		kind, rest, _ := strings.Cut(m, ":")
		timestamp, id, ok := strings.Cut(rest, ":")
		if u, bad := memory.ParseUser(id); ok && bad == nil && (kind == "chats" || kind == "notes") {
			list = append(list, UserErasure{u, integer(timestamp), kind == "chats"})
		}
	}
	return list, failure(err, "looking for erasures of users")
}

// Posted is a chat in a user's list of chats.
type Posted struct {
	Chat  memory.Chat
	place Place
}

// PostedBy returns up to count chats of a user from offset on, the least recently used first, and the number of such
// chats. It skips chats whose last run is after until, a Unix time in ms.
func (s Users) PostedBy(ctx context.Context, u memory.User, until int64, offset, count int) (chats []Posted, total int,
	err error) {
	var page *redis.ZSliceCmd
	var number *redis.IntCmd
	last := strconv.FormatInt(until, 10)
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		page = p.ZRangeByScoreWithScores(ctx, userChatsKey(u),
			&redis.ZRangeBy{Min: "(0", Max: last, Offset: int64(offset), Count: int64(count)})
		number = p.ZCount(ctx, userChatsKey(u), "(0", last)
	})
	if err != nil {
		return nil, 0, failure(err, "listing the chats of the user %s", u)
	}
	for _, z := range page.Val() {
		id, _ := z.Member.(string)
		posted := Posted{place: Place{Used: int64(z.Score), Member: id}}
		if posted.Chat, err = u.Tenant().Chat(id); err == nil {
			chats = append(chats, posted)
			continue
		}
		// written by another program
		if err := s.redis.ZRem(ctx, userChatsKey(u), id).Err(); err != nil {
			return nil, 0, failure(err, "listing the chats of the user %s", u)
		}
	}
	return chats, int(number.Val()), nil
}

// Recent returns the last count chats that a user posted in.
func (s Users) Recent(ctx context.Context, u memory.User, count int) (chats []memory.Chat, err error) {
	ids, err := s.redis.ZRevRangeByScore(ctx, userChatsKey(u),
		&redis.ZRangeBy{Min: "(0", Max: "+inf", Count: int64(count)}).Result()
	if err != nil {
		return nil, failure(err, "listing the chats of the user %s", u)
	}
	for _, id := range ids {
		if chat, err := u.Tenant().Chat(id); err == nil { // else another program wrote it
			chats = append(chats, chat)
		}
	}
	return chats, nil
}

// Own returns the chats among posted in which only the user has posted, and the entries of their quarantines.
func (s Users) Own(ctx context.Context, u memory.User, posted ...memory.Chat) (chats []memory.Chat,
	hidden memory.Quarantine, err error) {
	metas := make([]*redis.SliceCmd, len(posted))
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, chat := range posted {
			metas[i] = p.HMGet(ctx, chatMeta(chat), "user", quarantined)
		}
	})
	if err != nil {
		return nil, nil, failure(err, "looking who posted in the chats of the user %s", u)
	}
	for i, chat := range posted {
		if meta := metas[i].Val(); meta[0] == u.ID() {
			chats = append(chats, chat)
			hidden = append(hidden, membersOf(textAt(meta, 1))...)
		}
	}
	return chats, hidden, nil
}

// PostedAlone reports whether only the user has posted in a chat, and whether the chat exists.
func (s Users) PostedAlone(ctx context.Context, u memory.User, chat memory.Chat) (sole, exists bool, err error) {
	var owner *redis.StringCmd
	var size *redis.IntCmd
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		owner, size = p.HGet(ctx, chatMeta(chat), "user"), p.StrLen(ctx, memory.ChatKey(chat).String())
	})
	return owner.Val() == u.ID(), owner.Val() != "" || size.Val() > 0,
		readFailure(err, "looking who posted in chat %s", chat)
}

// Unpost removes a chat from the list of PostedBy, unless the user has posted in it since.
func (s Users) Unpost(ctx context.Context, u memory.User, p Posted) error {
	_, err := s.call(ctx, staleScript, []string{userChatsKey(u)}, p.place.Member, p.place.Used)
	return failure(err, "taking chat %s off the list of the user %s", p.Chat, u)
}

// PostedLike gives chat the user of the chat as. chat is empty and will receive the messages of as. The caller holds
// the turn of chat.
func (s Users) PostedLike(ctx context.Context, chat, as memory.Chat) error {
	id, err := s.field(ctx, chatMeta(as), "user")
	if err == nil && id == "" {
		return nil
	}
	if u, bad := chat.Tenant().User(id); err == nil && bad == nil {
		if err = s.list(ctx, u); err != nil {
			return failure(err, "listing the user %s", u)
		}
		err = s.redis.ZAdd(ctx, userChatsKey(u), redis.Z{Score: s.deadline(0), Member: chat.ID()}).Err()
	}
	if err == nil {
		var current string
		if current, err = s.field(ctx, chatMeta(chat), "user"); current != "" && current != id { // perhaps set aside
			id = severalUsers
		}
	}
	if err == nil {
		err = s.redis.HSet(ctx, chatMeta(chat), "user", id).Err()
	}
	return failure(err, "noting who posted in chat %s", chat)
}

// unposted removes a chat from the list of its only user.
func (s Users) unposted(ctx context.Context, chat memory.Chat) error {
	id, err := s.field(ctx, chatMeta(chat), "user")
	if u, bad := chat.Tenant().User(id); err == nil && bad == nil {
		err = s.redis.ZRem(ctx, userChatsKey(u), chat.ID()).Err()
	}
	return err
}

// setNotesAside moves unreadable notes to another key. The user's list records the key, so that an erasure finds it.
func (s Users) setNotesAside(ctx context.Context, u memory.User) error {
	timestamp := s.timestamp()
	if err := s.redis.ZAdd(ctx, userChatsKey(u), redis.Z{Member: asideMember + timestamp}).Err(); err != nil {
		return err
	}
	return s.moveAside(ctx, []string{userNotesKey(u), userDamagedKey(u, timestamp)}, listOfNotes, "", unreadNotes)
}

// openedBy prepares Open for the user of a post. It returns the user argument of openScript (who), the commands before
// the script (lists), and the command after it (notes).
func (s Users) openedBy(ctx context.Context, chat memory.Chat, run OpenRun) (who string, lists []redis.Cmder,
	notes *redis.StringCmd) {
	switch {
	case !run.Posted:
		return "", nil, nil
	case run.User.IsZero():
		return severalUsers, nil, nil
	}
	if listed := s.listed(ctx, run.User); listed != nil {
		lists = append(lists, listed)
	}
	lists = append(lists, redis.NewIntCmd(ctx, "zadd", userChatsKey(run.User), s.deadline(0), chat.ID()))
	return run.User.ID(), lists, redis.NewStringCmd(ctx, "get", userNotesKey(run.User))
}

// openedNotes returns the notes that Open read for a run's user. It sets unreadable notes aside.
func (s Users) openedNotes(ctx context.Context, u memory.User, cmd *redis.StringCmd) ([]memory.Note, error) {
	if cmd == nil {
		return nil, nil
	}
	notes, err := readNotes(userNotesKey(u), cmd.Val())
	if err != nil {
		return nil, s.setNotesAside(ctx, u)
	}
	return notes, nil
}

func userZoneKey(u memory.User) string { return memory.UserKey(memory.KindUserZone, u) }

func userNotesKey(u memory.User) string { return memory.UserKey(memory.KindUserNotes, u) }

func userDamagedKey(u memory.User, timestamp string) string {
	return memory.RedisKey{Kind: memory.KindUserNotes, Run: u.String(), DamagedAt: timestamp}.String()
}

// userChatsKey returns the key of the chats that a user posted in, scored by the Unix ms of the user's last run there.
func userChatsKey(u memory.User) string { return memory.UserKey(memory.KindUserChats, u) }

// listed returns the command that adds a user to the tenant's list. It runs before any data of the user is written. It
// is nil for a user of the default tenant.
func (s Users) listed(ctx context.Context, u memory.User) *redis.IntCmd {
	if (u.Tenant() == memory.Tenant{}) {
		return nil
	}
	return redis.NewIntCmd(ctx, "zadd", memory.ListKey(memory.KindUsers, u.Tenant()), s.deadline(0), u.ID())
}

func (s Users) list(ctx context.Context, u memory.User) error {
	if cmd := s.listed(ctx, u); cmd != nil {
		return s.redis.Process(ctx, cmd)
	}
	return nil
}
