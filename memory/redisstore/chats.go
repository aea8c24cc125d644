package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Chats handles the list of chats by last use, and the card of each chat. The list is an index: each run adds its chat,
// and a reader that meets a missing chat removes it. A chat's title is the field title of its meta, if a person set
// one. Otherwise it comes from the field begins: the id of the source message, a space, and the title. A single space
// stands for a chat whose messages were all rewound.
//
// Chats needs no turn. Data derived from a history is written by compare-and-set on the sum, turn and cut in its meta.
// Chats also finds the existing histories (list.go), without writing.
type Chats struct {
	*core
	archives Archives
}

// filledMember is in the list of chats once all earlier chats are. It cannot be a chat's id. Its score is the time when
// the list was complete.
const filledMember = "*filled"

// pinMark is the prefix of a pin in the list of chats, before the id of the pinned chat. It cannot begin a chat's id.
// pinScore, the score of pins, is below the scores of chats.
const pinMark, pinScore = "*pin:", -1

// Pins is the place in a list of chats directly before its pins.
var Pins = Place{Used: pinScore, Member: "~"}

// filledFor is the period after the first filling of the list in which each starting process fills it again. Processes
// of a version without the list may still run in that period.
const filledFor = 24 * time.Hour

// goneAfter is how long a listed chat may have no data before Unlist removes it.
const goneAfter = time.Minute

// Place is a place in the list of chats.
type Place struct {
	Used   int64  // Unix ms of the chat's last run, 0 if unknown
	Member string // the chat's id
	Asleep bool   // the chat is in the cold store
}

// Chat returns the chat at the place in a tenant's list. ok is false if the member is no chat's id.
func (p Place) Chat(tenant memory.Tenant) (chat memory.Chat, ok bool) {
	chat, err := tenant.Chat(p.Member)
	return chat, err == nil
}

// Cursor returns the place as text.
func (p Place) Cursor() string { return strconv.FormatInt(p.Used, 10) + "." + p.Member }

// ParsePlace parses a Cursor. "" is the start of the list. Errors are memory.ErrBadName.
func ParsePlace(cursor string) (p Place, err error) {
	if cursor == "" {
		return p, nil
	}
	used, member, _ := strings.Cut(cursor, ".")
	p.Member = member
	if p.Used, err = strconv.ParseInt(used, 10, 64); err == nil && p.Member != filledMember {
		_, err = memory.Tenant{}.Chat(member)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %.40q is no cursor of this list", memory.ErrBadName, cursor)
	}
	return p, nil
}

// ByUse returns up to count places after cursor in a tenant's list, the latest first. After Pins it returns the pinned
// chats, in no particular order and without their last use, which Used returns.
func (s Chats) ByUse(ctx context.Context, tenant memory.Tenant, cursor Place, count int) ([]Place, error) {
	kinds := []memory.Kind{memory.KindChats, memory.KindCold}
	if s.Forget == nil {
		kinds = kinds[:1]
	}
	places, err := merged(ctx, s.core, tenant, cursor, count, kinds...)
	return places, failure(err, "listing the chats")
}

// Card describes a chat in a list of chats.
type Card struct {
	Title    string
	Messages int    // in the chat's own history and its archive; 0 until counted
	Bytes    int    // of the chat's own history
	Metadata string // JSON, "" for none
	Open     bool   // it has an open run
	Waiting  bool   // it has a waiting run
	Missing  bool   // the chat does not exist
	Pinned   bool

	untitled bool // it has messages, and no process has derived a title yet
	archived bool
}

// Cards describes chats in one round trip. Each chat without a title takes a few more.
func (s Chats) Cards(ctx context.Context, chats ...memory.Chat) ([]Card, error) {
	metas, archives := make([]*redis.SliceCmd, len(chats)), make([]*redis.StringCmd, len(chats))
	sizes, pins := make([]*redis.IntCmd, len(chats)), make([]*redis.FloatCmd, len(chats))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, chat := range chats {
			key := memory.ChatKey(chat)
			metas[i] = p.HMGet(ctx, metaKey(key), "title", "begins", "metadata", "open", "waits", "count", "len")
			archives[i] = p.HGet(ctx, archiveKey(key), "messages")
			sizes[i] = p.StrLen(ctx, key.String())
			pins[i] = p.ZScore(ctx, s.chatsKey(chat), pinMark+chat.ID())
		}
	})
	cards := make([]Card, len(chats))
	var untitled []int
	for i := range chats {
		for _, err := range []error{metas[i].Err(), archives[i].Err(), sizes[i].Err(), pins[i].Err()} {
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, failure(err, "describing chat %s", chats[i])
			}
		}
		cards[i] = cardOf(metas[i].Val(), int(sizes[i].Val()), int(integer(archives[i].Val())))
		cards[i].Pinned = pins[i].Err() == nil
		if cards[i].untitled {
			untitled = append(untitled, i)
		}
	}
	for _, i := range untitled {
		var err error
		if cards[i].Title, err = s.deriveTitle(ctx, chats[i], cards[i].archived); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

func cardOf(meta []any, size, archived int) Card {
	title, opening := textAt(meta, 0), textAt(meta, 1)
	if size == 0 && integer(textAt(meta, 6)) > 0 { // it was deleted by hand
		opening = ""
	}
	c := Card{
		Messages: int(integer(textAt(meta, 5))) + archived, Bytes: size, Metadata: textAt(meta, 2),
		Open: readOpenRun([]byte(textAt(meta, 3)), "") != nil, Waiting: readRest(textAt(meta, 4)) != nil,
		archived: archived > 0,
	}
	if size == 0 {
		c.Messages = archived
	}
	_, c.Title, _ = strings.Cut(opening, " ")
	if title != "" {
		c.Title = title
	}
	exists := size > 0 || archived > 0
	c.Missing = !exists && opening == "" && title == "" && c.Metadata == "" && !c.Open && !c.Waiting
	c.untitled = exists && strings.TrimSpace(opening) == "" && title == ""
	return c
}

// Unlist removes a missing chat from the list, unless the chat was used since p was read. It ignores places younger
// than goneAfter.
func (s Chats) Unlist(ctx context.Context, tenant memory.Tenant, p Place) error {
	if s.now().UnixMilli()-p.Used < goneAfter.Milliseconds() {
		return nil
	}
	list := s.listKey(memory.KindChats, tenant, p.Member)
	_, err := s.call(ctx, staleScript, []string{list}, p.Member, p.Used)
	if err == nil {
		err = s.redis.ZRem(ctx, list, pinMark+p.Member).Err()
	}
	return failure(err, "taking chat %s off the list", p.Member)
}

// List adds chats to the list and derives missing titles. The last use of a new entry is the chat's turn, which is
// based on the time.
func (s Chats) List(ctx context.Context, chats ...memory.Chat) error {
	turns := make([]*redis.StringCmd, len(chats))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, chat := range chats {
			turns[i] = p.HGet(ctx, chatMeta(chat), "turn")
		}
	})
	members := map[string][]redis.Z{}
	for i, chat := range chats {
		if err := turns[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return failure(err, "listing chat %s", chat)
		}
		list := s.chatsKey(chat)
		members[list] = append(members[list], redis.Z{Score: float64(integer(turns[i].Val())), Member: chat.ID()})
	}
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for list, members := range members {
			p.ZAddNX(ctx, list, members...)
		}
	})
	if err != nil {
		return failure(err, "listing chats")
	}
	_, err = s.Cards(ctx, chats...)
	return err
}

// Used returns the places of a tenant's chats, with the time of each chat's last run, 0 if unknown.
func (s Chats) Used(ctx context.Context, tenant memory.Tenant, ids ...string) ([]Place, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	awake, asleep := make([]*redis.FloatCmd, len(ids)), make([][]*redis.FloatCmd, len(ids))
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for i, id := range ids {
			awake[i] = p.ZScore(ctx, s.listKey(memory.KindChats, tenant, id), id)
			if chat, ok := (Place{Member: id}).Chat(tenant); ok {
				asleep[i] = coldScores(ctx, s.core, p, chat)
			}
		}
	})
	if err != nil {
		return nil, failure(err, "looking when chats were used")
	}
	places := make([]Place, len(ids))
	for i, id := range ids {
		used, sleeps := latest(asleep[i])
		places[i] = Place{Used: max(int64(awake[i].Val()), used), Member: id, Asleep: sleeps && awake[i].Err() != nil}
	}
	return places, nil
}

// filledMark returns the mark of a complete list, for the current number of shards. The mark is in the default tenant's
// list. For several shards its score is negative, so that it does not count as a chat.
func (s Chats) filledMark() (list string, mark redis.Z) {
	mark = redis.Z{Score: s.deadline(0), Member: filledMember}
	if s.ListShards > 1 {
		mark = redis.Z{Score: -mark.Score, Member: fmt.Sprintf("%s#%d", filledMember, s.ListShards)}
	}
	return memory.ListKey(memory.KindChats, memory.Tenant{}), mark
}

// Listed reports whether the list of chats was completed more than filledFor ago.
func (s Chats) Listed(ctx context.Context) (bool, error) {
	list, mark := s.filledMark()
	score, err := s.redis.ZScore(ctx, list, mark.Member.(string)).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	ago := math.Abs(mark.Score) - math.Abs(score)
	return ago > float64(filledFor.Milliseconds()), failure(err, "looking at the list of chats")
}

// AllListed records that all chats are in the list.
func (s Chats) AllListed(ctx context.Context) error {
	list, mark := s.filledMark()
	return failure(s.redis.ZAddNX(ctx, list, mark).Err(), "noting that the chats are listed")
}

// ChangeCard sets a chat's title, metadata and pin. "" removes a title or metadata, and nil leaves a value unchanged.
// It returns false if the chat does not exist.
func (s Chats) ChangeCard(ctx context.Context, chat memory.Chat, title, metadata *string, pinned *bool) (bool, error) {
	var fields []any
	if title != nil {
		fields = append(fields, "title", *title)
	}
	if metadata != nil {
		fields = append(fields, "metadata", *metadata)
	}
	change := s.call
	if len(fields) == 0 {
		change = s.callKeeping
	}
	r, err := change(ctx, cardScript, []string{chatMeta(chat), memory.ChatKey(chat).String()}, fields...)
	list, pin := s.chatsKey(chat), pinMark+chat.ID()
	switch exists := err == nil && r.Word() == "ok"; {
	case !exists || pinned == nil:
	case *pinned:
		err = s.redis.ZAdd(ctx, list, redis.Z{Score: pinScore, Member: pin}).Err()
	default:
		err = s.redis.ZRem(ctx, list, pin).Err()
	}
	return r.Word() == "ok", failure(err, "describing chat %s", chat)
}

// beginning returns the value of the field begins.
func beginning(id, title string) string { return id + " " + title }

// TitleSet returns the title that ChangeCard set, "" for none.
func (s Chats) TitleSet(ctx context.Context, chat memory.Chat) (string, error) {
	title, err := s.field(ctx, chatMeta(chat), "title")
	return title, failure(err, "reading the title of chat %s", chat)
}

// RedactTitle redacts a title that was derived from a message whose id has accepts. It removes a title that a person
// set, because it may repeat any message in other words.
func (s Chats) RedactTitle(ctx context.Context, chat memory.Chat, has func(id string) bool) error {
	if err := s.redis.HDel(ctx, chatMeta(chat), "title").Err(); err != nil {
		return failure(err, "redacting the title of chat %s", chat)
	}
	return s.changeBeginning(ctx, chat, memory.RedactedText, has)
}

// MakeTitle replaces the title that was derived from a chat's first message. The new title is removed together with
// that message. It changes nothing if that message is missing or redacted.
func (s Chats) MakeTitle(ctx context.Context, chat memory.Chat, title string) error {
	return s.changeBeginning(ctx, chat, title, func(id string) bool { return id != "" && id != "-" })
}

// changeBeginning changes the title that was derived from a message whose id has accepts, unless the title is redacted.
func (s Chats) changeBeginning(ctx context.Context, chat memory.Chat, newTitle string, has func(id string) bool) error {
	for range attempts {
		opening, expected, err := s.openingOf(ctx, chat)
		id, title, _ := strings.Cut(opening, " ")
		if err != nil || opening == "" || title == memory.RedactedText || !has(id) {
			return failure(err, "changing the title of chat %s", chat)
		}
		r, err := s.call(ctx, beginsScript, []string{chatMeta(chat)}, append(expected, opening, beginning(id, newTitle))...)
		if err != nil || r.Word() == "ok" {
			return failure(err, "changing the title of chat %s", chat)
		}
	}
	return fmt.Errorf("%w: the title of chat %s changed under every attempt", memory.ErrUnavailable, chat)
}

// openingOf returns the field begins, and the meta values that beginsScript compares.
func (s Chats) openingOf(ctx context.Context, chat memory.Chat) (opening string, expected []any, err error) {
	fields, err := s.redis.HMGet(ctx, chatMeta(chat), "sum", "turn", "cut", "begins").Result()
	if err != nil {
		return "", nil, unavailable(err)
	}
	return textAt(fields, 3), []any{textAt(fields, 0), textAt(fields, 1), textAt(fields, 2)}, nil
}

// ListNew adds a chat whose messages do not come from runs to the list, or updates its last use.
func (s Chats) ListNew(ctx context.Context, chat memory.Chat) error {
	err := s.redis.ZAdd(ctx, s.chatsKey(chat), redis.Z{Score: s.deadline(0), Member: chat.ID()}).Err()
	if err == nil {
		_, err = s.Cards(ctx, chat)
	}
	return failure(err, "listing chat %s", chat)
}

// deriveTitle returns the title that the first user message of a chat yields. It stores the title, unless the history
// has changed meanwhile or has no meta.
func (s Chats) deriveTitle(ctx context.Context, chat memory.Chat, archived bool) (title string, err error) {
	key := memory.ChatKey(chat)
	opening, expected, err := s.openingOf(ctx, chat)
	if err != nil {
		return "", failure(err, "looking how chat %s begins", chat)
	}
	var first json.RawMessage
	if archived {
		if first, err = s.firstArchived(ctx, key); err != nil {
			return "", err
		}
	}
	for size := 8 << 10; first == nil && size <= 8<<20; size <<= 10 {
		text, err := s.redis.GetRange(ctx, key.String(), 0, int64(size-1)).Bytes()
		if err != nil {
			return "", failure(err, "looking how chat %s begins", chat)
		}
		if first = firstOfUser(text); len(text) < size {
			break
		}
	}
	id := "-" // no message
	if first != nil {
		var m memory.Message
		_ = json.Unmarshal(first, &m) // it has a role
		id, title = memory.IDs([]json.RawMessage{first})[0], memory.Title(m.Content)
	}
	// without a sum, no later change would remove the title; or there already is one
	if expected[0] == "" || strings.TrimSpace(opening) != "" {
		return title, nil
	}
	_, err = s.call(ctx, beginsScript, []string{metaKey(key)}, append(expected, opening, beginning(id, title))...)
	return title, failure(err, "noting how chat %s begins", chat)
}

// firstArchived returns the oldest user message in an archive. It returns nil if the first segment has none or is
// damaged.
func (s Chats) firstArchived(ctx context.Context, key memory.Key) (json.RawMessage, error) {
	segments, err := s.archives.Segments(ctx, key)
	if err != nil || len(segments) == 0 || segments[0].Missing {
		return nil, err
	}
	read, err := s.archives.Read(ctx, key, segments[0])
	if errors.Is(err, memory.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return firstOfUser(memory.Array(read[0])), nil
}

// firstOfUser returns the first user message in an array that may be truncated, nil for none.
func firstOfUser(array []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(array))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		var raw json.RawMessage
		var m struct{ Role string }
		if d.Decode(&raw) != nil || json.Unmarshal(raw, &m) != nil {
			return nil
		}
		if m.Role == memory.RoleUser {
			return raw
		}
	}
	return nil
}

// Quarantine adds entries to a chat's quarantine, or releases them. full reports that the quarantine has no room for
// them.
func (s Chats) Quarantine(ctx context.Context, chat memory.Chat, release bool, entries ...string) (full bool,
	err error) {
	full, err = s.changeMembers(ctx, chat, NoTurn, quarantined, release, entries...)
	return full, failure(err, "changing the quarantine of chat %s", chat)
}

// Quarantined returns a chat's quarantine.
func (s Chats) Quarantined(ctx context.Context, chat memory.Chat) (memory.Quarantine, error) {
	entries, err := s.members(ctx, chat, quarantined)
	return entries, failure(err, "reading the quarantine of chat %s", chat)
}

// quarantined is the field of a chat's meta that holds its quarantine.
const quarantined = "quarantine"
