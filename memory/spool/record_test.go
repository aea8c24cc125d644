package spool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

func TestRecordsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Entry{
			Queue: rapid.SampledFrom(workKeys).Draw(t, "queue"),
			Mark: memory.Mark{Run: rapid.StringMatching(`[a-z2-7]{0,26}`).Draw(t, "run"), Seq: rapid.Int64().Draw(t, "seq"),
				Turn: rapid.Int64().Draw(t, "turn")},
			Bytes: rapid.SliceOfN(rapid.Byte(), 1, -1).Draw(t, "bytes"),
		}
		stamp := rapid.Int64Min(1).Draw(t, "at")
		at, got, done, err := decode(encodeEntry(stamp, want))
		require.NoError(t, err)
		require.Empty(t, done)
		require.Equal(t, stamp, at)
		require.Equal(t, want, got)

		list := rapid.SliceOfN(rapid.Int64(), 1, 9).Draw(t, "done")
		_, _, done, err = decode(encodeDone(list))
		require.NoError(t, err)
		require.Equal(t, list, done)
	})
}

func TestRecordsOnDiskReadAsDocumented(t *testing.T) {
	e := Entry{notes, memory.Mark{Run: "abc", Seq: 7, Turn: 1760000000000}, []byte(`{"role":"user"}`)}
	require.Equal(t, `{"v":1,"at":5,"key":"subagent:analytic:alice:1","run":"abc","seq":7,"turn":1760000000000}`+"\n"+
		`{"role":"user"}`,
		string(encodeEntry(5, e)))
	e.Queue = runs
	require.Equal(t, `{"v":1,"at":5,"key":"chat_history:alice","event":true,"run":"abc","seq":7,"turn":1760000000000}`+
		"\n"+`{"role":"user"}`,
		string(encodeEntry(5, e)))
	require.Equal(t, `{"v":1,"done":[5,6]}`, string(encodeDone([]int64{5, 6})))
}

func FuzzDecode(f *testing.F) {
	f.Add(encodeEntry(1, entry(alice, 1, 1)))
	f.Add(encodeDone([]int64{1, 2}))
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte("{\"v\":1,\"key\":\"chat_history:\"}\n"))
	f.Fuzz(func(t *testing.T, record []byte) {
		at, e, done, err := decode(record)
		if err != nil || len(done) > 0 {
			return
		}
		at2, again, _, err := decode(encodeEntry(at, e))
		require.NoError(t, err)
		require.Equal(t, at, at2)
		require.Equal(t, e.Queue, again.Queue)
		require.Equal(t, e.Mark, again.Mark)
		require.Equal(t, string(e.Bytes), string(again.Bytes))
	})
}
