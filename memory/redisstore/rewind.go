package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// Rewinds is about taking messages back and putting them back. A rewind changes several histories,
// which lie in several slots of a Cluster, so it is a redo log: what goes is set aside first, in one key
// of the chat's; then the chat's meta says that the rewind has begun, and from then on each holder of the
// chat's turn brings it to its end. Each step may be done again.
//
//	{chat_history:<chat>}:rewound:<id>   about          JSON: SetAside
//	                                     runs           "run run …" whose messages went
//	                                     <history>/<n>  JSON: piece, from 0 on
//
// The chat's meta lists these keys, as a:<id>, and says in pending what was begun. All of it is written under
// the number of the chat's turn, and the histories by compare-and-set besides.
type Rewinds struct {
	*core
	histories *Store
	archives  Archives
}

// SetAsideLife is how long what a rewind took back is kept.
const SetAsideLife = 24 * time.Hour

// MaxSetAside bounds the rewinds of a chat that are kept. The oldest one is deleted first.
const MaxSetAside = 100

// SetAside describes what a rewind took back.
type SetAside struct {
	ID        string         `json:"id"` // the number of the turn
	TS        float64        `json:"ts"` // Unix seconds
	Target    string         `json:"to,omitempty"`
	Histories []AsideHistory `json:"histories"`

	Runs  []string  `json:"-"`
	Until time.Time `json:"-"`
}

// AsideHistory is one history of the chat, as the rewind left it.
type AsideHistory struct {
	Key       string `json:"key"`
	Messages  int    `json:"messages"`       // that were taken back
	Remaining int    `json:"kept"`           // that stayed
	Last      string `json:"last,omitempty"` // id of the last one that stayed
	Pieces    int    `json:"pieces"`

	IDs map[string]bool `json:"-"` // of the messages that were taken back; nil: the pieces say
}

// Turn is the number of the turn in which the rewind was made.
func (a SetAside) Turn() int64 { return integer(a.ID) }

// MessageCount is how many messages were taken back.
func (a SetAside) MessageCount() (n int) {
	for _, h := range a.Histories {
		n += h.Messages
	}
	return n
}

// Piece are messages that followed one another.
type Piece struct {
	PrevID   string            `json:"after"` // id of the message before them; "" for none
	Messages []json.RawMessage `json:"messages"`
}

// SetAside sets a piece of a history aside, under a turn.
func (s Rewinds) SetAside(ctx context.Context, turn int64, chat memory.Chat, id string, key memory.Key, n int,
	p Piece) error {
	// By hand, since an encoder changes the bytes of a message.
	value := fmt.Appendf(nil, `{"after":%q,"messages":%s}`, p.PrevID, memory.Array(p.Messages))
	return s.setAsideField(ctx, turn, chat, id, pieceField(key.String(), n), value)
}

func pieceField(key string, n int) string { return key + "/" + strconv.Itoa(n) }

func (s Rewinds) setAsideField(ctx context.Context, turn int64, chat memory.Chat, id, field string, value any) error {
	_, err := s.call(ctx, setAsideScript, []string{chatMeta(chat), rewoundKey(chat, id)}, turn, id,
		SetAsideLife.Milliseconds(), s.now().Add(SetAsideLife).UnixMilli(), field, value)
	return failure(err, "setting messages of chat %s aside", chat)
}

// Begin notes, under the turn of a rewind, that all of it is set aside: from then on it is listed, and pending.
func (s Rewinds) Begin(ctx context.Context, chat memory.Chat, change string, a SetAside, ttl time.Duration) error {
	description, err := json.Marshal(a)
	if err == nil {
		err = s.setAsideField(ctx, a.Turn(), chat, a.ID, "runs", strings.Join(a.Runs, " "))
	}
	if err != nil {
		return err
	}
	return s.pending(ctx, a.Turn(), chat, change, a.ID, ttl, description)
}

// Pending notes, under a turn, that a change of the chat's memory has begun, or with "" that it is done.
// id is what was set aside for it, "" for nothing. Should the process die, others find the chat by its
// lease's end, as one with an open run.
func (s Rewinds) Pending(ctx context.Context, turn int64, chat memory.Chat, change, id string,
	ttl time.Duration) error {
	return s.pending(ctx, turn, chat, change, id, ttl, nil)
}

func (s Rewinds) pending(ctx context.Context, turn int64, chat memory.Chat, change, id string, ttl time.Duration,
	description []byte) error {
	keys := []string{chatMeta(chat)}
	if id != "" {
		keys = append(keys, rewoundKey(chat, id))
	}
	var err error
	if change != "" {
		err = s.redis.ZAdd(ctx, openChats, redis.Z{Score: s.deadline(ttl), Member: chat.String()}).Err()
	}
	if err == nil {
		_, err = s.call(ctx, pendingScript, keys, turn, change, SetAsideLife.Milliseconds(),
			s.now().Add(SetAsideLife).UnixMilli(), description)
	}
	return failure(err, "noting a change of chat %s", chat)
}

// List lists what rewinds took back of a chat, the oldest first.
func (s Rewinds) List(ctx context.Context, chat memory.Chat) ([]SetAside, error) {
	ids, err := s.ids(ctx, chat)
	if err != nil {
		return nil, err
	}
	var out []SetAside
	for _, id := range ids {
		a, err := s.Read(ctx, chat, id)
		if err != nil {
			return nil, err
		}
		if a != nil {
			out = append(out, *a)
		}
	}
	return out, nil
}

func (s Rewinds) ids(ctx context.Context, chat memory.Chat) (ids []string, err error) {
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return nil, failure(err, "listing what was set aside of chat %s", chat)
	}
	for _, f := range fields {
		if id, ok := strings.CutPrefix(f, "a:"); ok && integer(id) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return int(integer(a) - integer(b)) })
	return ids, nil
}

// Read describes what a rewind took back; nil if there is no such thing.
func (s Rewinds) Read(ctx context.Context, chat memory.Chat, id string) (*SetAside, error) {
	key := rewoundKey(chat, id)
	if integer(id) <= 0 {
		return nil, nil
	}
	values, err := s.redis.HMGet(ctx, key, "about", "runs").Result()
	if err != nil {
		return nil, failure(err, "reading what was set aside of chat %s", chat)
	}
	var a SetAside
	if json.Unmarshal([]byte(textAt(values, 0)), &a) != nil || a.ID != id {
		return nil, nil
	}
	ttl, err := s.redis.PTTL(ctx, key).Result()
	if err != nil {
		return nil, failure(err, "reading what was set aside of chat %s", chat)
	}
	if ttl < 0 { // it is being used
		ttl = SetAsideLife
	}
	a.Runs, a.Until = strings.Fields(textAt(values, 1)), s.now().Add(ttl)
	return &a, nil
}

// Pieces walks what was set aside of a history.
func (s Rewinds) Pieces(ctx context.Context, chat memory.Chat, id string,
	h AsideHistory) func(func(Piece, error) bool) {
	return func(yield func(Piece, error) bool) {
		for n := range h.Pieces {
			var p Piece
			text, err := s.redis.HGet(ctx, rewoundKey(chat, id), pieceField(h.Key, n)).Bytes()
			switch {
			case errors.Is(err, redis.Nil):
				err = fmt.Errorf("%w: a piece of it is gone", memory.ErrDamaged)
			case err == nil:
				if err = json.Unmarshal(text, &p); err != nil {
					err = fmt.Errorf("%w: %w", memory.ErrDamaged, err)
				}
			}
			if err != nil {
				err = failure(err, "reading what was set aside of %s", h.Key)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// Drop deletes what rewinds before a turn took back of a chat; keep of them stay, the newest.
func (s Rewinds) Drop(ctx context.Context, chat memory.Chat, turn int64, keep int) error {
	ids, err := s.ids(ctx, chat)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return integer(id) >= turn })
	for _, id := range ids[:max(len(ids)-keep, 0)] {
		if err := s.Remove(ctx, chat, id); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes what one rewind took back.
func (s Rewinds) Remove(ctx context.Context, chat memory.Chat, id string) error {
	_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Unlink(ctx, rewoundKey(chat, id))
		p.HDel(ctx, chatMeta(chat), "a:"+id)
		return nil
	})
	return failure(err, "dropping what was set aside of chat %s", chat)
}

// TakeBack takes messages out of a history and its archive, as a deliberate change in the turn cut, and
// fills what is at hand up from the archive, to limit messages. turn is the writer's, 0 for a change that
// Redis has forgotten, which is no turn's write. clean and whole say of which segments it is known that none of their
// messages go, or all of them: these need not be read. The history comes back itself if nothing of it goes.
func (s Rewinds) TakeBack(ctx context.Context, turn, cut int64, have *memory.History, limit int,
	remove func(id string, raw json.RawMessage) bool, clean, full func(Segment) bool) (*memory.History, error) {
	for try := range attempts {
		h, err := s.takeBack(ctx, turn, cut, have, limit, remove, clean, full)
		if !errors.Is(err, errChanged) {
			return h, failure(err, "taking messages of %s back", have.Key())
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
		if have, err = s.histories.reload(ctx, turn, memory.Empty(have.Key())); err != nil {
			return nil, failure(err, "taking messages of %s back", have.Key())
		}
	}
	return nil, fmt.Errorf("%w: %s changed under every attempt", memory.ErrUnavailable, have.Key())
}

// part is a segment of an archive, and what stays of it.
type part struct {
	Segment
	rest []json.RawMessage
}

func (s Rewinds) takeBack(ctx context.Context, turn, cut int64, have *memory.History, limit int,
	remove func(id string, raw json.RawMessage) bool, clean, full func(Segment) bool) (*memory.History, error) {
	key := have.Key()
	stay := func(raw []json.RawMessage) (rest []json.RawMessage) {
		for i, id := range memory.IDs(raw) {
			if !remove(id, raw[i]) {
				rest = append(rest, memory.WithID(raw[i], id))
			}
		}
		return rest
	}
	hot := stay(have.Raw(0))
	short := len(hot) < have.Len()
	segments, err := s.archives.Segments(ctx, key)
	if err != nil {
		return nil, err
	}
	segments = slices.DeleteFunc(segments, Segment.isMissing)
	var args []any
	write := func(seg Segment, rest []json.RawMessage) {
		description, value := "", ""
		if len(rest) > 0 {
			description, value = describe(rest), string(memory.Array(rest))
		}
		args = append(args, seg.Position, seg.description, description, value)
	}
	var parts []part // that are taken up again, the newest first
	count, size := len(hot), len(memory.Array(hot))
	filling := func() bool { return short && (count == 0 || count < limit) && size < trimBytes }
	for end := len(segments); end > 0; end -= min(end, 32) {
		batch := segments[max(end-32, 0):end]
		if !filling() {
			batch = slices.DeleteFunc(slices.Clone(batch), clean)
		}
		read, err := s.archives.Read(ctx, key, slices.DeleteFunc(slices.Clone(batch), full)...)
		if err != nil {
			return nil, err
		}
		for _, seg := range slices.Backward(batch) {
			var rest []json.RawMessage
			shorter := full(seg)
			if !shorter {
				raw := read[len(read)-1]
				read, rest = read[:len(read)-1], stay(raw)
				shorter = len(rest) < len(raw)
			}
			if filling() {
				parts = append(parts, part{seg, rest})
				count, size = count+len(rest), size+len(memory.Array(rest))
			} else if shorter {
				write(seg, rest)
			}
		}
	}
	if !short && len(args) == 0 {
		return have, nil
	}
	slices.Reverse(parts)
	h := memory.Empty(key)
	front := 0
	for _, p := range parts {
		front += len(p.rest)
		h = h.With(p.rest...)
	}
	h = h.With(hot...)
	archived, first := "", ""
	stays := min(h.Excess(limit, trimBytes*4/5), front) // in the archive
	raw := h.Raw(stays)
	for _, p := range parts {
		n := min(stays, len(p.rest))
		if stays -= n; n < len(p.rest) && archived == "" || len(p.rest) == 0 && archived == "" && stays == 0 {
			archived = strconv.Itoa(p.Position + n)
		}
		if n < p.Messages || n < len(p.rest) {
			write(p.Segment, p.rest[:n])
		}
	}
	if h = memory.Empty(key).With(raw...); h.Len() > 0 && (have.First() != "" || len(segments) > 0) {
		first = h.IDs()[0]
	}
	value := []byte{}
	if h.Len() > 0 {
		value = h.JSON()
	}
	r, err := s.call(ctx, rewindScript, append(historyKeys(key), archiveKey(key)), append([]any{turn,
		have.Sum().String(), have.Size(), value, h.Sum().String(), h.Len(), first, archived, cut, int(tombstone.Seconds())},
		args...)...)
	switch {
	case err != nil:
		return nil, err
	case r.Word() != "ok":
		return nil, errChanged
	}
	h.Follows(cut, first)
	h.ProvenIn(max(turn, cut))
	return h, nil
}

// PutBack puts messages behind the one with an id ("" for the front), in a history or its archive, as a
// deliberate change in a turn. Of a history that grows too long for it the oldest go to the archive.
func (s Rewinds) PutBack(ctx context.Context, turn int64, have *memory.History, limit int, p Piece) (*memory.History,
	error) {
	key := have.Key()
	segments, err := s.redis.Exists(ctx, archiveKey(key)).Result() // listing them for each piece would be quadratic
	if err != nil {
		return nil, failure(err, "putting messages of %s back", key)
	}
	raw := have.Identified().Raw(0)
	i := slices.Index(have.IDs(), p.PrevID) + 1
	if i == 0 && (p.PrevID != "" || segments > 0) {
		archived := false
		changed, err := s.archives.rearchive(ctx, key, nil, func(raw []json.RawMessage) ([]json.RawMessage, error) {
			i := slices.Index(memory.IDs(raw), p.PrevID) + 1
			if archived || i == 0 && p.PrevID != "" {
				return raw, nil
			}
			archived = true
			return slices.Concat(raw[:i], p.Messages, raw[i:]), nil
		}, func(string) bool { return false })
		if err == nil && !changed {
			err = fmt.Errorf("%w: what stood before is gone", memory.ErrUnavailable)
		}
		if err != nil {
			return nil, failure(err, "putting messages of %s back", key)
		}
	} else {
		raw = slices.Concat(raw[:i], p.Messages, raw[i:])
	}
	fresh := memory.Empty(key).With(raw...)
	first := ""
	if have.First() != "" || segments > 0 {
		first = fresh.IDs()[0]
	}
	fresh.Follows(turn, first)
	c := change{turn: turn, expected: "version", old: have.Sum().String(), oldLen: have.Size(), fresh: fresh, cut: turn}
	if have.Len() == 0 {
		c.expected, c.old = "absent", ""
	}
	if err := s.histories.replace(ctx, c); err != nil {
		return nil, failure(err, "putting messages of %s back", key)
	}
	fresh.ProvenIn(turn)
	return s.archives.Trim(ctx, fresh, turn, limit)
}
