package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// storedText is all that Redis holds under the keys of a history.
func storedText(w world) string {
	return w.redis.Get(ctx, key.String()).Val() + fmt.Sprint(w.redis.HGetAll(ctx, archive).Val())
}

// ofRun says of which ids a redaction of a run takes the text.
func ofRun(run string) func(string) bool {
	return func(id string) bool { return strings.HasPrefix(id, run+".") }
}

// A redaction takes the words out of the history and its archive; all else stays, and what the archive holds is
// sound. An older copy, anywhere, brings nothing back.
func TestRedact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := talk(t, w, memory.Empty(key), 5, 0, 0, 30)
	h, err := w.Archives.Trim(ctx, old, 5, 10)
	require.NoError(t, err)
	before, texts := remembered(t, w, key)
	for _, run := range []string{"run3", "run29"} {
		got, err := w.Redactions.Redact(ctx, 6, false, key, ofRun(run), nil, run+".")
		require.NoError(t, err)
		require.EqualValues(t, 6, got.Cut())
		require.Equal(t, h.First(), got.First())
		again, err := w.Redactions.Redact(ctx, 6, false, key, ofRun(run), nil, run+".")
		require.NoError(t, err)
		require.Nil(t, again, "it is done")
	}
	ids, left := remembered(t, w, key)
	require.Equal(t, before, ids)
	for i := range left {
		want := texts[i]
		if n := i / 2; n == 3 || n == 29 {
			want = memory.RedactedText
		}
		require.Equal(t, want, left[i])
	}
	require.NotContains(t, storedText(w), "user 3 ✓")
	measured, err := w.Chats.Measure(ctx, key)
	require.NoError(t, err)
	require.Equal(t, 60, measured[0].Messages+measured[0].Archived)

	_, err = w.WriteBack(ctx, old)
	require.NoError(t, err)
	require.NotContains(t, storedText(w), "user 29 ✓")
	now := w.load(t, 7, old)
	require.NotContains(t, strings.Join(contents(t, now), " "), "user 29 ✓")

	// All is lost, and the older copy comes back first.
	require.NoError(t, w.redis.FlushAll(ctx).Err())
	other := world{redisstore.New(w.redis, zerolog.Nop()), w.redis}
	_, err = other.WriteBack(ctx, old)
	require.NoError(t, err)
	_, err = w.WriteBack(ctx, now)
	require.NoError(t, err)
	require.NotContains(t, storedText(w), "user 29 ✓")
	require.Contains(t, storedText(w), "user 28 ✓")
}

// A redaction that Redis has forgotten is made again without a turn; the messages of others stay.
func TestARedactionThatRedisForgot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := talk(t, w, memory.Empty(key), 5, 10, 0, 20)
	segments := w.redis.HGetAll(ctx, archive).Val()
	lose := snapshot(t, w.redis)
	for _, run := range []string{"run2", "run19"} {
		_, err := w.Redactions.Redact(ctx, 6, false, key, ofRun(run), nil, run)
		require.NoError(t, err)
	}
	lose()
	require.NoError(t, w.redis.Del(ctx, archive).Err())
	require.NoError(t, w.redis.HSet(ctx, archive, segments).Err())
	talk(t, w, h, 7, 10, 20, 24)
	for _, run := range []string{"run2", "run19"} {
		got, err := w.Redactions.Redact(ctx, 6, true, key, ofRun(run), nil, run)
		require.NoError(t, err)
		require.NotNil(t, got)
		again, err := w.Redactions.Redact(ctx, 6, true, key, ofRun(run), nil, run)
		require.NoError(t, err)
		require.Nil(t, again)
	}
	_, texts := remembered(t, w, key)
	require.Len(t, texts, 48)
	all := strings.Join(texts, " ")
	for i := range 24 {
		require.Equal(t, i != 2 && i != 19, strings.Contains(all, fmt.Sprintf("user %d ✓", i)), i)
	}
	appendTo(t, w, w.load(t, 7, memory.Empty(key)), "more", 7, 1)
}

// A history of a version that gave no ids is redacted by those that reading computes; the others keep theirs.
func TestRedactWithoutIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.redis.Set(ctx, key.String(), `[ {"role":"user","content":"same","timestamp":1},
		{"role":"user","content":"same","timestamp":1}, {"role":"assistant","content":"ok"} ]`, 0).Err())
	ids := w.load(t, 5, memory.Empty(key)).IDs()
	_, err := w.Redactions.Redact(ctx, 6, false, key, func(id string) bool { return id == ids[1] }, nil, ids[1])
	require.NoError(t, err)
	h := w.load(t, 6, memory.Empty(key))
	require.Equal(t, ids, h.IDs())
	require.Equal(t, []string{"same", memory.RedactedText, "ok"}, contents(t, h))
}

// A damaged segment blocks neither an erasure that Redis forgot nor a redaction: it goes if what is taken away
// may be in it.
func TestDamagedSegmentsBlockNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, value := range map[string]string{
		"no JSON":  `[{"role":"user","content":"user 0 ✓","timestamp":0,"id":"run0.1"`,
		"no array": `{"content":"user 0 ✓","id":"run0.1"}`,
		"another":  `[{"role":"user","content":"user 0 ✓","timestamp":0.5,"id":"run0.1"}]`,
	} {
		for _, about := range []string{"as it was", "damaged", "gone"} {
			t.Run(name+", what describes it is "+about, func(t *testing.T) {
				w := newWorld(t)
				talk(t, w, memory.Empty(key), 5, 10, 0, 40)
				require.NoError(t, w.redis.HSet(ctx, archive, "0", value).Err())
				switch about {
				case "damaged":
					require.NoError(t, w.redis.HSet(ctx, archive, "0:about", "x").Err())
				case "gone":
					require.NoError(t, w.redis.HDel(ctx, archive, "0:about").Err())
				}
				_, err := w.Redactions.Redact(ctx, 6, false, key, ofRun("run39"), nil, "run39.")
				require.NoError(t, err)
				require.Contains(t, storedText(w), "user 0 ✓", "what has nothing to do with it stays")
				_, err = w.Redactions.Redact(ctx, 6, false, key, ofRun("run0"), nil, "run0.")
				require.NoError(t, err)
				require.NotContains(t, storedText(w), "user 0 ✓")

				require.NoError(t, w.redis.HSet(ctx, archive, "0", value).Err())
				cut, err := w.Erasures.Cut(ctx, 20_000, key, true)
				require.NoError(t, err)
				require.True(t, cut)
				require.NotContains(t, storedText(w), "user 0 ✓")
				require.NotContains(t, storedText(w), "user 19 ✓")
				require.Contains(t, storedText(w), "user 20 ✓")
			})
		}
	}
}
