package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Archives stores the messages that trims remove from histories. Each history has a hash of message arrays by the
// position of their first message. The number of the chat's turn fences trims and imports. Every other change is a
// compare-and-set on the segments that it read.
type Archives struct {
	*core
	histories *Store
}

// trimBytes is the size of a history, in bytes of JSON, above which a trim ignores the number of messages.
const trimBytes = 8 << 20

// Archive configures what happens to trimmed messages.
type Archive struct {
	Off         bool          // trimmed messages are deleted
	MaxMessages int           // limit per history, in whole segments; 0: none
	MaxAge      time.Duration // limit of the age of a segment's newest message; 0: none
}

// Segment describes consecutive messages that one trim removed from a history.
type Segment struct {
	Position    int // position of its first message in the whole history
	Messages    int
	Newest      float64 // the newest timestamp among them, in Unix seconds
	Missing     bool    // the messages are missing; Messages 0: their number is unknown
	description string  // as stored

	described bool // description was valid
}

// Trim moves the oldest messages of a history into its archive. It does so if the history exceeds limit by more than a
// quarter (0 is no limit), or exceeds 8 MiB. The remaining messages start with a user message, and each has an id. If
// the copy is outdated, Trim changes nothing.
func (s Archives) Trim(ctx context.Context, have *memory.History, turn int64, limit int) (*memory.History, error) {
	many := limit > 0 && have.Len() > limit+limit/4
	large := have.Size() > trimBytes && !(s.Archive.Off && limit == 0)
	if !many && !large {
		return have, nil
	}
	n := have.Excess(limit, trimBytes*4/5)
	if n == 0 {
		return have, nil
	}
	short, err := s.trim(ctx, have, turn, n)
	if errors.Is(err, errChanged) {
		return have, nil
	}
	if err != nil {
		return nil, failure(err, "trimming %s", have.Key())
	}
	short.ProvenIn(turn)
	return short, nil
}

func (s Archives) trim(ctx context.Context, have *memory.History, turn int64, n int) (*memory.History, error) {
	key := have.Key()
	// Earlier versions wrote messages without ids, and other programs write different spaces.
	if identified := have.Identified(); identified.Sum() != have.Sum() || identified.Size() != have.Size() {
		identified.Follows(have.Cut(), have.First())
		err := s.histories.replace(ctx, change{
			turn: turn, expected: "version", old: have.Sum().String(), oldLen: have.Size(), fresh: identified,
		})
		if err != nil {
			return nil, err
		}
		have = identified
	}
	place := len("[")
	for _, raw := range have.Raw(0)[:n] {
		place += len(raw) + len(",")
	}
	short := have.DropFirst(n)
	r, err := s.call(ctx, trimScript, append(historyKeys(key), archiveKey(key)), turn, have.Sum().String(), have.Size(),
		place, short.Sum().String(), short.Len(), short.First(), n, !s.Archive.Off, describe(have.Raw(0)[:n]))
	switch {
	case err != nil:
		return nil, err
	case r.Word() != "ok":
		return nil, errChanged
	}
	if err := s.retire(ctx, key); err != nil { // the next trim tries again
		s.log.Warn().Err(err).Str("key", key.String()).Msg("old segments of an archive could not be dropped")
	}
	return short, nil
}

// describe returns the stored description of a segment: the number of its messages, the SHA-256 of its array, and its
// newest timestamp.
func describe(raw []json.RawMessage) string {
	newest := 0.0
	for _, m := range raw {
		_, timestamp := memory.HeadOf(m)
		newest = max(newest, timestamp)
	}
	sum := sha256.Sum256(memory.Array(raw))
	return fmt.Sprintf("%d %x %s", len(raw), sum, strconv.FormatFloat(newest, 'f', -1, 64))
}

// descriptionField returns the field with the description of the segment at a position.
func descriptionField(position int) string { return strconv.Itoa(position) + ":about" }

// Segments returns the readable segments and the gaps in the archive of a history, the oldest first.
func (s Archives) Segments(ctx context.Context, key memory.Key) ([]Segment, error) {
	segments, err := s.AllSegments(ctx, key)
	return slices.DeleteFunc(segments, func(seg Segment) bool { return !seg.described }), err
}

// AllSegments is Segments including segments without a valid description, whose Messages is 0. If the archive's totals
// count further messages, a Missing segment represents them.
func (s Archives) AllSegments(ctx context.Context, key memory.Key) ([]Segment, error) {
	var totals, meta *redis.SliceCmd
	var fields *redis.StringSliceCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		totals, fields = p.HMGet(ctx, archiveKey(key), "messages"), p.HKeys(ctx, archiveKey(key))
		meta = p.HMGet(ctx, metaKey(key), "first", "joins", "archived")
	})
	if err != nil {
		return nil, failure(err, "listing the archive of %s", key)
	}
	detached := isDetached(textAt(meta.Val(), 0), textAt(meta.Val(), 1), textAt(meta.Val(), 2))
	if len(fields.Val()) == 0 {
		return s.withGaps(nil, nil, detached), nil
	}
	segments := segmentsIn(slices.Values(fields.Val()))
	descriptions := make([]string, len(segments), len(segments)+1)
	for i, seg := range segments {
		descriptions[i] = descriptionField(seg.Position)
	}
	values, err := s.redis.HMGet(ctx, archiveKey(key), append(descriptions, "messages")...).Result()
	if err != nil {
		return nil, failure(err, "listing the archive of %s", key)
	}
	total := textAt(values, len(segments))
	for i := range segments {
		segments[i].description = textAt(values, i)
	}
	if total != totals.Val()[0] { // the archive changed between the two reads
		total = ""
	}
	return s.withGaps(parsed(segments, int(integer(total))), fields.Val(), detached), nil
}

// isDetached reports whether messages between an archive and its history are missing. The arguments are fields of the
// meta, see common.lua.
func isDetached(first, joins, archived string) bool {
	id, moved, _ := strings.Cut(joins, " ")
	return first != "" && (joins == "?" || joins != "" && integer(moved) == integer(archived) && id != first)
}

// withGaps returns the segments with a Missing one for each gap in fields. If detached is true, it appends another one.
func (s *core) withGaps(segments []Segment, fields []string, detached bool) []Segment {
	for _, f := range fields {
		text, gap := strings.CutSuffix(f, ":gap")
		position, err := strconv.Atoi(text)
		if i := slices.IndexFunc(segments, func(seg Segment) bool { return seg.Position >= position }); gap && err == nil &&
			i >= 0 && !segments[i].Missing {
			segments = slices.Insert(segments, i, Segment{Position: position, Missing: true, described: true})
		}
	}
	if detached && !s.Archive.Off {
		end := 0
		if n := len(segments); n > 0 {
			end = segments[n-1].Position + segments[n-1].Messages
		}
		segments = append(segments, Segment{Position: end, Missing: true, described: true})
	}
	return segments
}

// segmentsIn returns the segments in the fields of an archive, in order.
func segmentsIn(fields iter.Seq[string]) (segments []Segment) {
	for f := range fields {
		position, err := strconv.Atoi(strings.TrimSuffix(f, ":about"))
		if err == nil && (f == descriptionField(position) || f == strconv.Itoa(position)) {
			segments = append(segments, Segment{Position: position})
		}
	}
	slices.SortFunc(segments, func(a, b Segment) int { return a.Position - b.Position })
	return slices.Compact(segments)
}

// parsed parses the descriptions of segments. If total counts messages that no segment has, it adds a Missing segment.
func parsed(segments []Segment, total int) []Segment {
	missing := total
	for i := range segments {
		seg, sum := &segments[i], ""
		_, err := fmt.Sscan(seg.description, &seg.Messages, &sum, &seg.Newest)
		if seg.described = err == nil && seg.Messages >= 0; !seg.described {
			seg.Messages = 0
			missing = 0 // this segment may have them
		}
		missing -= seg.Messages
	}
	if missing > 0 {
		segments = withMissing(segments, missing)
	}
	return segments
}

// withMissing inserts a Missing segment where the positions leave room for it. Redactions and rewinds also leave room
// in an archive.
func withMissing(segments []Segment, messages int) []Segment {
	i, position := 0, 0
	for i < len(segments) && segments[i].Position < position+messages {
		position = segments[i].Position + segments[i].Messages
		i++
	}
	return slices.Insert(segments, i, Segment{Position: position, Messages: messages, Missing: true, described: true})
}

// Archived returns, in one round trip, how many messages trims have removed from each history since its start. An index
// over a history and its archive is checked against this number.
func (s Archives) Archived(ctx context.Context, keys ...memory.Key) ([]int, error) {
	cmds := make([]*redis.StringCmd, len(keys))
	_, _ = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) { // each command keeps its own error
		for i, key := range keys {
			cmds[i] = p.HGet(ctx, metaKey(key), "archived")
		}
	})
	out := make([]int, len(keys))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, failure(err, "looking at the archive of %s", keys[i])
		}
		out[i] = int(integer(cmd.Val()))
	}
	return out, nil
}

// Read returns the messages of segments, in their order. A segment that was removed meanwhile has none. If a segment
// does not match its description, Read returns a memory.DamagedError.
func (s Archives) Read(ctx context.Context, key memory.Key, segments ...Segment) ([][]json.RawMessage, error) {
	values, err := s.segmentValues(ctx, key, segments)
	if err != nil {
		return nil, err
	}
	out := make([][]json.RawMessage, len(segments))
	for i, v := range values {
		if text, ok := v.(string); ok && !segments[i].Missing {
			if out[i], err = segments[i].messagesIn([]byte(text)); err != nil {
				return nil, &memory.DamagedError{Key: fmt.Sprintf("%s %d", archiveKey(key), segments[i].Position), Cause: err}
			}
		}
	}
	return out, nil
}

// messagesIn returns the messages of a segment's value. It returns an error if the value's sum is wrong.
func (seg Segment) messagesIn(value []byte) ([]json.RawMessage, error) {
	_, sum, _ := strings.Cut(seg.description, " ")
	sum, _, _ = strings.Cut(sum, " ")
	if digest := sha256.Sum256(value); hex.EncodeToString(digest[:]) != sum {
		return nil, errors.New("its sum is another one")
	}
	return memory.Elements(value)
}

// segmentValues returns the stored values of segments, nil for a removed segment.
func (s Archives) segmentValues(ctx context.Context, key memory.Key, segments []Segment) ([]any, error) {
	if len(segments) == 0 {
		return nil, nil
	}
	fields := make([]string, len(segments))
	for i, seg := range segments {
		fields[i] = strconv.Itoa(seg.Position)
	}
	values, err := s.redis.HMGet(ctx, archiveKey(key), fields...).Result()
	return values, failure(err, "reading the archive of %s", key)
}

// retire drops the oldest segments of a limited archive.
func (s Archives) retire(ctx context.Context, key memory.Key) error {
	if s.Archive.MaxMessages <= 0 && s.Archive.MaxAge <= 0 {
		return nil
	}
	segments, err := s.Segments(ctx, key)
	if err != nil {
		return err
	}
	most, oldest := math.MaxInt, 0.0
	if s.Archive.MaxMessages > 0 {
		most = s.Archive.MaxMessages
	}
	if s.Archive.MaxAge > 0 {
		oldest = float64(s.now().Add(-s.Archive.MaxAge).UnixMilli()) / 1000
	}
	var args []any
	total := 0
	for _, seg := range slices.Backward(slices.DeleteFunc(segments, Segment.isMissing)) {
		if total += seg.Messages; total > most || seg.Newest < oldest {
			args = append(args, seg.Position, seg.description, "", "")
		}
	}
	if len(args) > 0 {
		_, err = s.call(ctx, rearchiveScript, []string{archiveKey(key)}, args...)
	}
	return err
}

func (seg Segment) isMissing() bool { return seg.Missing }

// rearchive passes the messages of each segment through keep and writes the segments that changed. It deletes empty
// segments, and unreadable segments for which drop returns true, because single messages cannot be removed from these.
// It skips segments for which clean returns true; clean may be nil. It starts over if a segment changed meanwhile.
func (s Archives) rearchive(ctx context.Context, key memory.Key, clean func(Segment) bool,
	keep func([]json.RawMessage) ([]json.RawMessage, error), drop func(value string) bool) (changed bool, err error) {
	for range attempts {
		segments, err := s.AllSegments(ctx, key)
		if err != nil {
			return false, err
		}
		segments = slices.DeleteFunc(segments, Segment.isMissing)
		if clean != nil {
			segments = slices.DeleteFunc(segments, clean)
		}
		var args []any
		for chunk := range slices.Chunk(segments, 64) {
			values, err := s.segmentValues(ctx, key, chunk)
			if err != nil {
				return false, err
			}
			for i, v := range values {
				value, ok := v.(string)
				description, fresh, err := rewritten(key, value, keep)
				if errors.Is(err, memory.ErrDamaged) {
					if err = nil; ok && !drop(value) {
						fresh = value
					} else if ok {
						s.log.Error().Str("key", archiveKey(key)).Int("position", chunk[i].Position).Int("messages",
							chunk[i].Messages).Msg("a damaged part of an archive was dropped: what is taken away may be in it")
					}
				}
				if err != nil {
					return false, err
				}
				if ok && fresh != value {
					args = append(args, chunk[i].Position, chunk[i].description, description, fresh)
				}
			}
		}
		if len(args) == 0 {
			return false, nil
		}
		r, err := s.call(ctx, rearchiveScript, []string{archiveKey(key)}, args...)
		if err != nil || r.Word() == "ok" {
			return err == nil, err
		}
	}
	return false, fmt.Errorf("%w: the archive changed under every attempt", memory.ErrUnavailable)
}

// rewritten returns the messages of a segment that keep returns, and their description. Both are empty if no message
// remains. It accepts a segment that another program changed if the segment is a valid history.
func rewritten(key memory.Key, value string, keep func([]json.RawMessage) ([]json.RawMessage, error)) (description,
	fresh string, err error) {
	h, err := memory.ParseHistory(key, []byte(value))
	if err != nil {
		return "", "", err
	}
	rest, err := keep(h.Raw(0))
	switch {
	case err != nil, len(rest) == 0:
		return "", "", err
	case slices.EqualFunc(rest, h.Raw(0), equalBytes):
		return "", value, nil
	}
	return describe(rest), string(memory.Array(rest)), nil
}

// segmentMessages and segmentBytes bound a segment that an import writes.
const (
	segmentMessages = 256
	segmentBytes    = 1 << 20
)

// Importer fills an empty history, oldest message first. Call Add for each message, then Close.
type Importer struct {
	archives Archives
	turn     int64
	limit    int
	position int             // number of archived messages
	history  *memory.History // the other messages
}

// Import starts to fill a history under a turn. The history's stored turn must already have been raised to it. At most
// limit messages (0: any number) of at most 8 MiB stay in the history. The others go to the archive, or are dropped if
// archiving is off.
func (s Archives) Import(ctx context.Context, turn int64, key memory.Key, limit int) (*Importer, error) {
	if key.Agent() != "" {
		if _, err := s.indexHistory(ctx, key, turn); err != nil {
			return nil, err
		}
	}
	im := &Importer{archives: s, turn: turn, limit: limit, history: memory.Empty(key)}
	return im, im.segment(ctx, 0, "", "")
}

// Add adds the next message, which must have an id.
func (im *Importer) Add(ctx context.Context, message json.RawMessage) error {
	im.history = im.history.With(message)
	if im.history.Size() > 2*trimBytes || im.limit > 0 && im.history.Len() > 2*im.limit+segmentMessages {
		return im.shorten(ctx)
	}
	return nil
}

// shorten archives the messages above the limits.
func (im *Importer) shorten(ctx context.Context) error {
	n := im.history.Excess(im.limit, trimBytes*4/5)
	if n == 0 && im.limit > 0 { // no exchange boundary fits, so any message may be the first
		n = max(im.history.Len()-im.limit, 0)
	}
	if n == 0 {
		return nil
	}
	excess := im.history.Raw(0)[:n]
	im.history = im.history.DropFirst(n)
	for len(excess) > 0 {
		size, count := 0, 0
		for count < len(excess) && count < segmentMessages && (count == 0 || size+len(excess[count]) <= segmentBytes) {
			size += len(excess[count])
			count++
		}
		if err := im.archive(ctx, excess[:count]); err != nil {
			return err
		}
		excess = excess[count:]
	}
	return nil
}

func (im *Importer) archive(ctx context.Context, raw []json.RawMessage) error {
	if im.archives.Archive.Off {
		return nil
	}
	err := im.segment(ctx, len(raw), describe(raw), string(memory.Array(raw)))
	im.position += len(raw)
	return err
}

func (im *Importer) segment(ctx context.Context, count int, description, value string) error {
	r, err := im.archives.call(ctx, segmentScript, append(historyKeys(im.history.Key()), archiveKey(im.history.Key())),
		im.turn, im.position, count, description, value)
	if err == nil && r.Word() != "ok" {
		err = fmt.Errorf("%w: somebody else writes into the history", memory.ErrUnavailable)
	}
	return failure(err, "importing %s", im.history.Key())
}

// Close stores the remaining history and marks the import as a deliberate change.
func (im *Importer) Close(ctx context.Context) (*memory.History, error) {
	if err := im.shorten(ctx); err != nil {
		return nil, err
	}
	h := im.history
	if h.Len() == 0 {
		return h, nil
	}
	first := ""
	if im.position > 0 {
		first = h.IDs()[0]
	}
	h.Follows(im.turn, first)
	err := im.archives.histories.replace(ctx, change{turn: im.turn, expected: "absent", old: "", fresh: h, cut: im.turn})
	if err != nil {
		return nil, failure(err, "importing %s", h.Key())
	}
	h.ProvenIn(im.turn)
	return h, im.archives.retire(ctx, h.Key())
}

// Remembered returns the number of messages in a history and its archive.
func (s Archives) Remembered(ctx context.Context, h *memory.History) (n int, err error) {
	segments, err := s.Segments(ctx, h.Key())
	for _, seg := range segments {
		n += seg.Messages
	}
	return n + h.Len(), err
}
