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

// Rewinds removes messages (a rewind) and puts them back. A rewind changes several histories in several slots of a
// Cluster, so it works as a redo log. First, the removed messages are set aside in one key of the chat. Then the chat's
// meta records that the rewind has begun. From then on, each holder of the chat's turn finishes it. Each step can be
// repeated.
//
//	{chat_history:<chat>}:rewound:<id>   about          JSON: SetAside
//	                                     runs           "run run …" whose messages were removed
//	                                     <history>/<n>  JSON: Piece, from 0 on
//
// The chat's meta lists these keys as a:<id>, and its field pending holds the unfinished change. The number of the
// chat's turn fences all these writes. The writes to histories are also compare-and-sets.
type Rewinds struct {
	*core
	histories *Store
	archives  Archives
}

// SetAsideLife is how long set-aside messages are stored.
const SetAsideLife = 24 * time.Hour

// MaxSetAside bounds the stored rewinds of a chat. The oldest one is deleted first.
const MaxSetAside = 100

// SetAside describes the set-aside messages of a rewind.
type SetAside struct {
	ID        string         `json:"id"` // number of the rewind's turn
	TS        float64        `json:"ts"` // Unix seconds
	Target    string         `json:"to,omitempty"`
	Histories []AsideHistory `json:"histories"`

	Runs  []string  `json:"-"`
	Until time.Time `json:"-"`
}

// AsideHistory describes one history of the chat after the rewind.
type AsideHistory struct {
	Key       string `json:"key"`
	Messages  int    `json:"messages"`       // number of removed messages
	Remaining int    `json:"kept"`           // number of remaining messages
	Last      string `json:"last,omitempty"` // id of the last remaining message
	Pieces    int    `json:"pieces"`

	IDs map[string]bool `json:"-"` // ids of the removed messages; nil: read the pieces
}

// Turn returns the number of the rewind's turn.
func (a SetAside) Turn() int64 { return integer(a.ID) }

// MessageCount returns the number of removed messages.
func (a SetAside) MessageCount() (n int) {
	for _, h := range a.Histories {
		n += h.Messages
	}
	return n
}

// Piece holds consecutive messages.
type Piece struct {
	PrevID   string            `json:"after"` // id of the message before them, "" for none
	Messages []json.RawMessage `json:"messages"`
}

// SetAside sets piece n of a history aside, under a turn.
func (s Rewinds) SetAside(ctx context.Context, turn int64, chat memory.Chat, id string, key memory.Key, n int,
	p Piece) error {
	// Not with an encoder, which would change the bytes of a message.
	value := fmt.Appendf(nil, `{"after":%q,"messages":%s}`, p.PrevID, memory.Array(p.Messages))
	return s.setAsideField(ctx, turn, chat, id, pieceField(key.String(), n), value)
}

func pieceField(key string, n int) string { return key + "/" + strconv.Itoa(n) }

func (s Rewinds) setAsideField(ctx context.Context, turn int64, chat memory.Chat, id, field string, value any) error {
	_, err := s.call(ctx, setAsideScript, []string{chatMeta(chat), rewoundKey(chat, id)}, turn, id,
		SetAsideLife.Milliseconds(), s.now().Add(SetAsideLife).UnixMilli(), field, value)
	return failure(err, "setting messages of chat %s aside", chat)
}

// Begin records, under the turn of a rewind, that all its messages are set aside. From then on the rewind is listed and
// pending.
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

// Pending records, under a turn, that a change of the chat's memory has begun. "" means that the change is finished. id
// is the id of the set-aside messages, "" for none. If the process dies, others find the chat when its lease expires,
// like a chat with an open run.
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

// List returns the stored rewinds of a chat, the oldest first.
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

// Read returns the description of a rewind, nil if there is none.
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
	if ttl < 0 { // without expiry while it is pending
		ttl = SetAsideLife
	}
	a.Runs, a.Until = strings.Fields(textAt(values, 1)), s.now().Add(ttl)
	return &a, nil
}

// Pieces iterates over the set-aside pieces of a history. It stops after an error.
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

// Drop deletes the rewinds of a chat from before a turn, except for the newest keep ones.
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

// Remove deletes the set-aside messages of one rewind.
func (s Rewinds) Remove(ctx context.Context, chat memory.Chat, id string) error {
	_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Unlink(ctx, rewoundKey(chat, id))
		p.HDel(ctx, chatMeta(chat), "a:"+id)
		return nil
	})
	return failure(err, "dropping what was set aside of chat %s", chat)
}

// TakeBack removes messages from a history and its archive, as a deliberate change in the turn cut. It then refills the
// history from the archive, up to limit messages. turn is the writer's turn, 0 for a change that Redis has forgotten.
// If no messages are removed, TakeBack returns have.
//
// clean and full report whether a segment is known to keep all of its messages, or to lose all. Such segments need not
// be read.
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

// part is a segment of an archive and its remaining messages.
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
	var parts []part // segments that move back into the history, the newest first
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
	stays := min(h.Excess(limit, trimBytes*4/5), front) // number of messages that stay in the archive
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

// PutBack inserts messages after the one with id p.PrevID ("" for the front), in a history or its archive. It is a
// deliberate change in a turn. If the history becomes too long, the oldest messages move to the archive.
func (s Rewinds) PutBack(ctx context.Context, turn int64, have *memory.History, limit int, p Piece) (*memory.History,
	error) {
	key := have.Key()
	segments, err := s.redis.Exists(ctx, archiveKey(key)).Result() // listing them for each piece is quadratic
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
