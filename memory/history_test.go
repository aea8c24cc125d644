package memory_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

var key = memory.SubagentKey("analytic", memory.MustChat("12345"))

// user is a stored user message.
func user(text string) []byte {
	return memory.Message{Role: memory.RoleUser, Content: text}.Encode()
}

func rawTexts(raw []json.RawMessage) []string {
	list := []string{}
	for _, m := range raw {
		list = append(list, string(m))
	}
	return list
}

func TestParseHistoryOfAnyLayout(t *testing.T) {
	const one, two = `{"role":"user","content":"[1, {\"2\": 3}]"}`, `{"role":"assistant","content":null}`
	for _, c := range []struct {
		name, stored string
		want         []string
	}{
		{"empty", `[]`, []string{}},
		{"empty with space", " [ \n] ", []string{}},
		{"compact", `[` + one + `,` + two + `]`, []string{one, two}},
		{"python", `[{"role": "user", "content": "a, b"}, {"role": "tool", "content": "c"}]`, []string{
			`{"role": "user", "content": "a, b"}`, `{"role": "tool", "content": "c"}`,
		}},
		{"pretty-printed", "[\n  {\n    \"role\": \"user\"\n  },\n  {\n    \"role\": \"tool\"\n  }\n]", []string{
			"{\n    \"role\": \"user\"\n  }", "{\n    \"role\": \"tool\"\n  }",
		}},
		{"trailing newline", `[` + one + "]\n", []string{one}},
		{"windows line ends", "[\r\n" + one + "\t,\r\n\t" + two + "\r\n]\r\n", []string{one, two}},
		{"space before the comma", `[` + one + ` ,` + two + ` ]`, []string{one, two}},
		{"role last", `[{"content":[{"role":5}],"role":"user"}]`, []string{`{"content":[{"role":5}],"role":"user"}`}},
		{"unknown role", `[{"role":"developer"}]`, []string{`{"role":"developer"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := memory.ParseHistory(key, []byte(c.stored))
			require.NoError(t, err)
			require.Equal(t, c.want, rawTexts(h.Raw(0)))
			require.Equal(t, len(c.want), h.Len())
			require.Equal(t, len(c.stored), h.Size())
			require.Equal(t, key, h.Key())
			require.Equal(t, "["+strings.Join(c.want, ",")+"]", string(h.JSON()))
		})
	}
}

func TestParseHistoryOfDamage(t *testing.T) {
	for _, stored := range []string{
		``, ` `, `null`, `{}`, `"[]"`, `5`, `[`, `]`, `[]]`, `[]x`, `[] []`, `[[]]`, `[1]`, `["x"]`, `[null]`, `[true]`,
		`[{}]`, `[{"role":""}]`, `[{"role":null}]`, `[{"role":5}]`, `[{"content":"x"}]`,
		`[{"role":"user"}`, `[{"role":"user"},`, `[{"role":"user"},]`, `[,{"role":"user"}]`,
		`[{"role":"user"},,{"role":"user"}]`,
		`[{"role":"user"} {"role":"user"}]`, `[{"role":"user"}}`, `[{"role":"us`, `[{"role":"user","content":"cut of`,
		`{"role":"user"}`,
		`[{"role":"user"}]{"role":"user"}`, "\ufeff[]", "\x00", `[{'role':'user'}]`,
	} {
		h, err := memory.ParseHistory(key, []byte(stored))
		require.ErrorIs(t, err, memory.ErrDamaged, stored)
		require.ErrorContains(t, err, "subagent:analytic:12345")
		require.Nil(t, h)
	}
}

func FuzzParseHistory(f *testing.F) {
	for _, s := range []string{`[]`, `[{"role":"user","content":"a"} , {"role":"tool"}]`, "[\n{\"role\":\"a\"}\n]\n",
		`[{"role":"a"},]`, `[{"Role":"a"}]`, `[{"role":"\\\"}{"},{"role":"a\u0022","x":[{"role":"}"}]}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		h, err := memory.ParseHistory(key, stored)
		if err != nil {
			require.ErrorIs(t, err, memory.ErrDamaged)
			var all []struct{ Role string }
			ours := json.Unmarshal(stored, &all) == nil && all != nil
			for _, m := range all {
				ours = ours && m.Role != ""
			}
			require.False(t, ours, "an array of messages was refused: %v", err)
			return
		}
		require.True(t, json.Valid(stored))
		again, err := memory.ParseHistory(key, h.JSON())
		require.NoError(t, err)
		require.Equal(t, h.Sum(), again.Sum())
		require.Equal(t, rawTexts(h.Raw(0)), rawTexts(again.Raw(0)))
		require.Equal(t, len(h.JSON()), again.Size())
	})
}

func TestEmptyHistory(t *testing.T) {
	h := memory.Empty(key)
	require.Equal(t, key, h.Key())
	require.Zero(t, h.Len())
	require.Zero(t, h.Size())
	require.Equal(t, strings.Repeat("0", 64), h.Sum().String())
	require.Equal(t, "[]", string(h.JSON()))
	require.Empty(t, h.Raw(0))
	require.Empty(t, h.Raw(5))
	stored, err := memory.ParseHistory(key, []byte("[]"))
	require.NoError(t, err)
	require.Equal(t, h.Sum(), stored.Sum())
}

// chain is the sum as its documentation defines it.
func chain(messages [][]byte) memory.Sum {
	var sum memory.Sum
	for _, m := range messages {
		sum = sha256.Sum256(append(sum[:], m...))
	}
	return sum
}

// Histories that grow from one another in any order stay what they were: no line
// ever sees a message of another.
func TestHistoriesAreImmutable(t *testing.T) {
	type line struct {
		history  *memory.History
		messages [][]byte
	}
	rapid.Check(t, func(t *rapid.T) {
		start := memory.Empty(key)
		var stored [][]byte
		for i := range rapid.IntRange(0, 3).Draw(t, "stored") {
			stored = append(stored, user(fmt.Sprint("stored ", i)))
		}
		if stored != nil || rapid.Bool().Draw(t, "present") {
			var err error
			start, err = memory.ParseHistory(key, slices.Concat([]byte("["), bytes.Join(stored, []byte(",")), []byte("]")))
			require.NoError(t, err)
		}
		lines := []line{{start, stored}}
		for range rapid.IntRange(1, 30).Draw(t, "appends") {
			parent := lines[rapid.IntRange(0, len(lines)-1).Draw(t, "parent")]
			m := user(rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "text"))
			lines = append(lines, line{parent.history.With(m), append(slices.Clone(parent.messages), m)})
		}
		for i, l := range lines {
			h := l.history
			require.Equal(t, len(l.messages), h.Len())
			require.Equal(t, chain(l.messages), h.Sum())
			require.Equal(t, "["+string(bytes.Join(l.messages, []byte(",")))+"]", string(h.JSON()))
			if i > 0 {
				require.Equal(t, len(h.JSON()), h.Size())
			}
			from := rapid.IntRange(0, h.Len()+2).Draw(t, "from")
			require.Len(t, h.Raw(from), max(0, h.Len()-from))
			again, err := memory.ParseHistory(key, h.JSON())
			require.NoError(t, err)
			require.Equal(t, h.Sum(), again.Sum())
		}
	})
}

// A caller that appends to what Raw gave writes into no history.
func TestRawCannotBeGrownInto(t *testing.T) {
	h := memory.Empty(key).With(user("a"))
	longer := h.With(user("b"))
	_ = append(h.Raw(0), user("mine"))
	_ = append(h.Raw(1), user("mine"))
	require.Equal(t, string(user("b")), string(longer.Raw(1)[0]))
}

func TestSumTellsContentsApart(t *testing.T) {
	sum := func(stored string) memory.Sum {
		h, err := memory.ParseHistory(key, []byte(stored))
		require.NoError(t, err)
		return h.Sum()
	}
	a, b := `{"role":"user","content":"a"}`, `{"role":"user","content":"b"}`
	require.Equal(t, sum("["+a+","+b+"]"), sum("[ "+a+" ,\n"+b+"]\n"), "the layout between messages is no content")
	different := []memory.Sum{
		sum("[]"), sum("[" + a + "]"), sum("[" + b + "]"), sum("[" + a + "," + b + "]"), sum("[" + b + "," + a + "]"),
		sum("[" + a + "," + a + "]"),
		sum(`[{"role": "user","content":"a"}]`), // other bytes of the same message
	}
	for i, x := range different {
		for _, y := range different[i+1:] {
			require.NotEqual(t, x, y)
		}
	}
}

// Many turns that grow one pinned history at once, under the race detector.
func TestConcurrentAppends(t *testing.T) {
	parent := memory.Empty(key).With(user("parent"))
	var group sync.WaitGroup
	lines := make([]*memory.History, 16)
	for i := range lines {
		group.Go(func() {
			h := parent
			for j := range 50 {
				h = h.With(user(fmt.Sprint(i, " ", j)))
				if parent.Len() != 1 || len(parent.Raw(0)) != 1 {
					t.Error("the parent has changed")
				}
			}
			lines[i] = h
		})
	}
	group.Wait()
	for i, h := range lines {
		want := [][]byte{user("parent")}
		for j := range 50 {
			want = append(want, user(fmt.Sprint(i, " ", j)))
		}
		require.Equal(t, "["+string(bytes.Join(want, []byte(",")))+"]", string(h.JSON()))
		require.Equal(t, chain(want), h.Sum())
	}
}
