package redisstore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// archive is the Redis key of a history's archive.
var archive = "{" + key.String() + "}:archive"

// remembered is all that is stored of a history, the oldest first.
func remembered(t *testing.T, w world, key memory.Key) (ids, texts []string) {
	t.Helper()
	segments, err := w.Archives.Segments(ctx, key)
	require.NoError(t, err)
	read, err := w.Archives.Read(ctx, key, segments...)
	require.NoError(t, err)
	at := 0
	for i, raw := range read {
		require.Equal(t, at, segments[i].Position)
		require.Len(t, raw, segments[i].Messages)
		at += len(raw)
		ids = append(ids, memory.IDs(raw)...)
		messages, err := memory.Decode(raw)
		require.NoError(t, err)
		for _, m := range messages {
			texts = append(texts, m.Content)
		}
	}
	h := w.load(t, 0, memory.Empty(key))
	return append(ids, h.IDs()...), append(texts, contents(t, h)...)
}

// talk appends exchanges with their ids under a turn and trims after each.
func talk(t *testing.T, w world, h *memory.History, turn int64, limit, from, to int) *memory.History {
	t.Helper()
	for i := from; i < to; i++ {
		mark := memory.Mark{Run: fmt.Sprint("run", i), Turn: turn}
		for seq, role := range []string{memory.RoleUser, memory.RoleAssistant} {
			mark.Seq = int64(seq + 1)
			m := memory.Message{Role: role, Content: fmt.Sprintf("%s %d ✓", role, i), Timestamp: float64(i),
				ID: memory.MessageID(mark.Run, mark.Seq)}
			var err error
			h, err = w.Append(ctx, h, mark, m.Encode())
			require.NoError(t, err)
		}
		short, err := w.Archives.Trim(ctx, h, turn, limit)
		require.NoError(t, err)
		h = short
	}
	return h
}

// What trims cut off is in the archive, byte for byte and in its order, readable with
// redis-cli and jq, and its sum is that of sha256sum.
func TestNothingLeavesByTrimming(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := talk(t, w, memory.Empty(key), 5, 10, 0, 100)
	require.LessOrEqual(t, h.Len(), 12)
	ids, texts := remembered(t, w, key)
	require.Len(t, ids, 200)
	for i := range 100 {
		require.Equal(t, fmt.Sprintf("run%d.1", i), ids[2*i])
		require.Equal(t, fmt.Sprintf("assistant %d ✓", i), texts[2*i+1])
	}
	first := w.redis.HGet(ctx, archive, "0").Val()
	var messages []memory.Message
	require.NoError(t, json.Unmarshal([]byte(first), &messages))
	about := strings.Fields(w.redis.HGet(ctx, archive, "0:about").Val())
	require.Equal(t, []string{fmt.Sprint(len(messages)), fmt.Sprintf("%x", sha256.Sum256([]byte(first))),
		fmt.Sprint(messages[len(messages)-1].Timestamp)}, about)
	require.Equal(t, fmt.Sprint(200-h.Len()), w.redis.HGet(ctx, "{"+key.String()+"}:meta", "archived").Val())
}

// A history of a version that gave no ids, or laid out by another program, is archived
// with the ids that reading computes.
func TestWhatHadNoIdsIsArchivedWithThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	for seq := int64(1); seq <= 14; seq++ {
		h = appendTo(t, w, h, "r", 5, seq)
	}
	before := h.IDs()
	_, err := w.Archives.Trim(ctx, h, 5, 10)
	require.NoError(t, err)
	ids, texts := remembered(t, w, key)
	require.Equal(t, before, ids)
	require.Equal(t, saying(14), texts)
	raw := w.redis.HGet(ctx, archive, "0").Val()
	require.Contains(t, raw, `"id":"`+before[0]+`"`)
}

// A history of few, large messages is trimmed by its size, and never to nothing.
func TestALargeHistoryIsTrimmed(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	big := strings.Repeat("x", 1<<20)
	for seq := int64(1); seq <= 10; seq++ {
		m := memory.Message{Role: memory.RoleUser, Content: big, Timestamp: float64(seq), ID: memory.MessageID("r", seq)}
		var err error
		h, err = w.Append(ctx, h, memory.Mark{Run: "r", Seq: seq, Turn: 5}, m.Encode())
		require.NoError(t, err)
	}
	short, err := w.Archives.Trim(ctx, h, 5, 0)
	require.NoError(t, err)
	require.Less(t, short.Size(), 8<<20)
	ids, _ := remembered(t, w, key)
	require.Len(t, ids, 10)
	w.Store.Archive.Off = true
	other := memory.ChatKey(memory.MustChat("off"))
	h = memory.Empty(other)
	for seq := int64(1); seq <= 10; seq++ {
		h, err = w.Append(ctx, h, memory.Mark{Run: "r", Seq: seq, Turn: 5}, message(big))
		require.NoError(t, err)
	}
	same, err := w.Archives.Trim(ctx, h, 5, 0)
	require.NoError(t, err)
	require.Same(t, h, same, "without an archive and without a limit nothing may be lost")
}

func TestWithoutAnArchiveATrimDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Store.Archive.Off = true
	h := talk(t, w, memory.Empty(key), 5, 10, 0, 20)
	ids, _ := remembered(t, w, key)
	require.Len(t, ids, h.Len())
	require.Zero(t, w.redis.Exists(ctx, archive).Val())
}

// An archive may be bounded by its messages or by their age, in whole segments.
func TestABoundedArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Store.Archive.MaxMessages = 20
	talk(t, w, memory.Empty(key), 5, 10, 0, 100)
	segments, err := w.Archives.Segments(ctx, key)
	require.NoError(t, err)
	kept := 0
	for _, seg := range segments {
		kept += seg.Messages
	}
	require.LessOrEqual(t, kept, 20)
	require.Greater(t, kept, 10)
	require.EqualValues(t, 2*len(segments)+2, w.redis.HLen(ctx, archive).Val())
	bytes := 0
	for _, seg := range segments {
		bytes += len(w.redis.HGet(ctx, archive, fmt.Sprint(seg.Position)).Val())
	}
	measured, err := w.Chats.Measure(ctx, key)
	require.NoError(t, err)
	require.Equal(t, []int{kept, bytes}, []int{measured[0].Archived, measured[0].ArchivedBytes})

	aged := newWorld(t)
	aged.Store.Archive.MaxAge = time.Hour
	talk(t, aged, memory.Empty(key), 5, 10, 0, 100) // of 1970
	require.Zero(t, aged.redis.Exists(ctx, archive).Val())
}

// An erasure takes the archive along, and one that Redis has forgotten takes it once more:
// what was said since stays.
func TestAnErasureTakesTheArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := talk(t, w, memory.Empty(key), 5, 10, 0, 50)
	lose := snapshot(t, w.redis)
	require.NoError(t, w.Erase(ctx, 6, key))
	require.Zero(t, w.redis.Exists(ctx, archive, key.String()).Val())
	lose()
	const erased = 60_000
	talk(t, w, h, erased, 10, 50, 90) // from second 60 on these are of after the erasure
	cut, err := w.Erasures.Cut(ctx, erased, key, true)
	require.NoError(t, err)
	require.True(t, cut)
	_, texts := withHoles(t, w)
	for i := range 60 {
		require.NotContains(t, texts, fmt.Sprintf("user %d ✓", i))
	}
	for i := 60; i < 90; i++ {
		require.Contains(t, texts, fmt.Sprintf("user %d ✓", i))
	}
}

// withHoles is all an archive that has holes.
func withHoles(t *testing.T, w world) (ids, texts []string) {
	t.Helper()
	segments, err := w.Archives.Segments(ctx, key)
	require.NoError(t, err)
	read, err := w.Archives.Read(ctx, key, segments...)
	require.NoError(t, err)
	for _, raw := range read {
		messages, err := memory.Decode(raw)
		require.NoError(t, err)
		for _, m := range messages {
			ids, texts = append(ids, m.ID), append(texts, m.Content)
		}
	}
	h := w.load(t, 0, memory.Empty(key))
	return append(ids, h.IDs()...), append(texts, contents(t, h)...)
}

// A trim of a copy that is not what is stored changes nothing.
func TestATrimOfAnOldCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := talk(t, w, memory.Empty(key), 5, 0, 0, 20)
	talk(t, w, h, 5, 0, 20, 21)
	stored := w.redis.Get(ctx, key.String()).Val()
	same, err := w.Archives.Trim(ctx, h, 5, 10)
	require.NoError(t, err)
	require.Same(t, h, same)
	require.Equal(t, stored, w.redis.Get(ctx, key.String()).Val())
	require.Zero(t, w.redis.Exists(ctx, archive).Val())
}

// A segment that another program changed is an error that names it, and no other memory.
func TestADamagedSegment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	talk(t, w, memory.Empty(key), 5, 10, 0, 20)
	for _, value := range []string{"", "[]", `[{"role":"user","content":"another"}]`, "[{"} {
		require.NoError(t, w.redis.HSet(ctx, archive, "0", value).Err())
		segments, err := w.Archives.Segments(ctx, key)
		require.NoError(t, err)
		_, err = w.Archives.Read(ctx, key, segments[0])
		require.ErrorIs(t, err, memory.ErrDamaged)
		require.ErrorContains(t, err, archive+" 0")
	}
}

// Older copies do not bring back into the history what is in the archive.
func TestAnOldCopyDoesNotBringBackWhatWasArchived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := talk(t, w, memory.Empty(key), 5, 0, 0, 20)
	other := world{redisstore.New(w.redis, zerolog.Nop()), w.redis}
	_, err := other.Archives.Trim(ctx, other.load(t, 5, memory.Empty(key)), 5, 10)
	require.NoError(t, err)
	_, err = w.WriteBack(ctx, old)
	require.NoError(t, err)
	ids, _ := remembered(t, w, key)
	require.Len(t, ids, 40)
	require.False(t, bytes.Contains([]byte(w.redis.Get(ctx, key.String()).Val()), []byte("run0.1")))
}

// An erasure that is made once more leaves what was imported since, old as it is.
func TestAnErasureLeavesALaterImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	talk(t, w, memory.Empty(key), 5, 10, 0, 20)
	require.NoError(t, w.Erase(ctx, 60_000, key))
	w.load(t, 60_001, memory.Empty(key))
	im, err := w.Archives.Import(ctx, 60_001, key, 10)
	require.NoError(t, err)
	for i := range 30 {
		m := memory.Message{Role: memory.RoleUser, Content: "kept", Timestamp: float64(i), ID: fmt.Sprint("m", i)}
		require.NoError(t, im.Add(ctx, m.Encode()))
	}
	h, err := im.Close(ctx)
	require.NoError(t, err)
	for _, lost := range []bool{false, true} {
		if lost { // and brought back by a copy
			require.NoError(t, w.redis.Del(ctx, key.String(), "{"+key.String()+"}:meta").Err())
			_, err := w.WriteBack(ctx, h)
			require.NoError(t, err)
		}
		cut, err := w.Erasures.Cut(ctx, 60_000, key, true)
		require.NoError(t, err)
		require.False(t, cut)
		ids, _ := remembered(t, w, key)
		require.Len(t, ids, 30)
	}
}
