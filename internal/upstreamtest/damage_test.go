package upstreamtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

const (
	invalidAt  = "messages.%s: Invalid `signature` in `thinking` block"
	modifiedAt = "messages.%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be " +
		"modified. These blocks must remain as they were in the original response."
	elsewhere = ". The block is bound to a different conversation. Remove the block, or set " +
		"`thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\"."
	needsBeta  = " That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
	invalidRed = "Invalid `data` in `redacted_thinking` block"
)

func swap(i, j int) func([]string) []string {
	return func(b []string) []string {
		b[i], b[j] = b[j], b[i]
		return b
	}
}

func double(i int) func([]string) []string {
	return func(b []string) []string { return append(b[:i+1:i+1], b[i:]...) }
}

// merge makes one block of two thinking blocks that follow each other.
func merge(message string, i, j int) string {
	text := gjson.Get(message, fmt.Sprintf("content.%d.thinking", i)).String() +
		gjson.Get(message, fmt.Sprintf("content.%d.thinking", j)).String()
	return without(set(message, fmt.Sprintf("content.%d.thinking", i), text), j)
}

// Each way to damage a replay has its own refusal, or none.
func TestDamagedReplays(t *testing.T) {
	type messages = []string
	is := func(format, at string) string { return fmt.Sprintf(format, at) }
	bound := func(at string) string { return is(invalidAt, at) + elsewhere + needsBeta }
	for name, c := range map[string]struct {
		damage         func(m messages)
		plain, checked string // without and with the prefix check
	}{
		"nothing": {func(messages) {}, "", ""},

		"text edited": {func(m messages) { m[1] = set(m[1], "content.0.thinking", "other") },
			is(invalidAt, "1.content.0"), is(invalidAt, "1.content.0")},
		"text trimmed": {func(m messages) { m[3] = set(m[3], "content.0.thinking", "tw") },
			is(invalidAt, "3.content.0"), is(invalidAt, "3.content.0")},
		"text emptied": {func(m messages) { m[3] = set(m[3], "content.0.thinking", "") },
			is(invalidAt, "3.content.0"), is(invalidAt, "3.content.0")},
		"text edited, latest": {func(m messages) { m[7] = set(m[7], "content.2.thinking", "other") },
			is(invalidAt, "7.content.2"), is(invalidAt, "7.content.2")},
		"texts merged": {func(m messages) { m[3] = merge(m[3], 0, 3) }, is(invalidAt, "3.content.0"),
			is(invalidAt, "3.content.0")},
		"texts merged, latest": {func(m messages) { m[7] = merge(m[7], 0, 2) }, is(invalidAt, "7.content.0"),
			is(invalidAt, "7.content.0")},
		"signature emptied": {func(m messages) { m[5] = set(m[5], "content.0.signature", "") },
			is(invalidAt, "5.content.0"), is(invalidAt, "5.content.0")},
		"signature of another": {func(m messages) {
			m[5] = set(m[5], "content.0.signature", gjson.Get(m[1], "content.0.signature").String())
		}, is(invalidAt, "5.content.0"), is(invalidAt, "5.content.0")},
		"data altered": {func(m messages) {
			m[3] = set(m[3], "content.1.data", "F"+gjson.Get(m[3], "content.1.data").String()[1:])
		}, invalidRed, invalidRed},
		"data as signature": {func(m messages) {
			m[5] = set(m[5], "content.0.signature", gjson.Get(m[3], "content.1.data").String())
		}, is(invalidAt, "5.content.0"), is(invalidAt, "5.content.0")},

		"doubled": {func(m messages) { m[1] = reorder(m[1], double(0)) }, is(invalidAt, "1.content.1"),
			bound("1.content.1")},
		"doubled, latest": {func(m messages) { m[7] = reorder(m[7], double(0)) }, is(modifiedAt, "7.content.1"),
			is(modifiedAt, "7.content.1")},
		"reordered": {func(m messages) { m[3] = reorder(m[3], swap(0, 3)) }, is(invalidAt, "3.content.0"),
			bound("3.content.0")},
		"reordered, latest": {func(m messages) { m[7] = reorder(m[7], swap(0, 2)) }, is(modifiedAt, "7.content.0"),
			is(modifiedAt, "7.content.0")},
		"moved up, latest": {func(m messages) { m[7] = reorder(m[7], swap(1, 2)) }, is(modifiedAt, "7.content.1"),
			is(modifiedAt, "7.content.1")},
		"last dropped, latest": {func(m messages) { m[7] = without(m[7], 2) }, is(modifiedAt, "7.content.0"),
			is(modifiedAt, "7.content.0")},
		"first dropped, latest": {func(m messages) { m[7] = without(m[7], 0) }, is(modifiedAt, "7.content.1"),
			is(modifiedAt, "7.content.1")},
		"one of an older answer put in": {func(m messages) {
			m[7] = reorder(m[7], func(b []string) []string { return append([]string{gjson.Get(m[1], "content.0").Raw}, b...) })
		}, is(modifiedAt, "7.content.0"), is(modifiedAt, "7.content.0")},
		"all dropped, latest": {func(m messages) { m[7] = without(m[7], 0, 2) }, "", ""},
		"dropped in the middle": {func(m messages) { m[3] = without(m[3], 1) }, is(invalidAt, "3.content.2"),
			bound("3.content.2")},
		"first of a later answer dropped": {func(m messages) { m[3] = without(m[3], 0) }, invalidRed, invalidRed + elsewhere +
			needsBeta},
		"a whole answer's in the middle": {func(m messages) { m[3] = without(m[3], 0, 1, 3) }, "", bound("5.content.0")},
		"a leading run":                  {func(m messages) { m[1] = without(m[1], 0) }, "", ""},
		"a leading run into an answer":   {func(m messages) { m[1], m[3] = without(m[1], 0), without(m[3], 0) }, "", ""},
		"all older ones": {func(m messages) {
			m[1], m[3], m[5] = without(m[1], 0), without(m[3], 0, 1, 3), without(m[5], 0)
		}, "", ""},
		"all there are": {func(m messages) {
			for i := range m {
				m[i] = without(m[i], thinkingPlaces(m[i])...)
			}
		}, "", ""},

		"an answer's text edited": {func(m messages) { m[5] = set(m[5], "content.1.text", "Other.") }, "",
			bound("7.content.0")},
		"text before a thought edited": {func(m messages) { m[3] = set(m[3], "content.2.text", "Other.") },
			is(invalidAt, "3.content.3"), bound("3.content.3")},
		"text before a thought, latest": {func(m messages) { m[7] = set(m[7], "content.1.text", "Other.") },
			is(modifiedAt, "7.content.2"), is(modifiedAt, "7.content.2")},
		"the question edited": {func(m messages) { m[0] = set(m[0], "content", "other") }, "",
			bound("1.content.0")},
		"a later question edited": {func(m messages) { m[6] = set(m[6], "content", "other") }, "",
			bound("7.content.0")},
		"a result edited": {func(m messages) { m[2] = set(m[2], "content.0.content", "5") }, "",
			bound("3.content.0")},
		"the newest result edited": {func(m messages) { m[8] = set(m[8], "content.0.content", "5") }, "", ""},
		"an input edited": {func(m messages) { m[1] = set(m[1], "content.2.input.city", "Rome") }, "",
			bound("3.content.0")},
		"an answer in two messages": {func(m messages) {
			m[3] = without(m[3], 3, 4) + "," + without(m[3], 0, 1, 2)
		}, "", ""},
		"an answer in two messages, latest": {func(m messages) {
			m[7] = without(m[7], 2, 3) + "," + without(m[7], 0, 1)
		}, "", ""},
		"two answers in one message": {func(m messages) {
			mergeRounds(m)
			m[3], m[4], m[5], m[6] = m[5], m[6], m[7], m[8]
			m[7], m[8] = says("assistant", `"ok"`), ask
		}, is(invalidAt, "1.content.3"), bound("1.content.3")},
		"cache control set": {func(m messages) {
			m[4] = strings.Replace(m[4], `"content":"4"`, `"content":"4","cache_control":{"type":"ephemeral"}`, 1)
		}, "", ""},
		"a question as a block": {func(m messages) {
			m[0] = says("user", `[{"type":"text","text":"first","cache_control":{}}]`)
		}, "", ""},
		"a question that says more": {func(m messages) { m[0] = says("user", `[{"type":"text","text":"first"},`+text+`]`) },
			"", bound("1.content.0")},
		"a result as blocks, not an error": {func(m messages) {
			m[2] = strings.Replace(m[2], `"content":"4"`, `"is_error":false,"content":[{"type":"text","text":"4"}]`, 1)
		}, "", ""},
		"members of a block in another order": {func(m messages) { m[6] = `{"content":"second","role":"user"}` }, "", ""},
	} {
		for _, check := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %t", name, check), func(t *testing.T) {
				a := conversation(t,
					upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: check}}), opusMembers(""))
				c.damage(a.messages)
				status, body := a.try(a.messages)
				want := c.plain
				if check {
					want = c.checked
				}
				require.Equal(t, want, message(body), body)
				require.Equal(t, want == "", status == 200)
			})
		}
	}
}

// In a loop that is not over, the rule on the latest turn reaches over all of its
// answers.
func TestDamagedLoops(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(m []string) []string
		want   string
	}{
		"nothing":                 {func(m []string) []string { return m }, ""},
		"first answer's dropped":  {func(m []string) []string { m[1] = without(m[1], 0); return m }, "3.content.0"},
		"second answer's dropped": {func(m []string) []string { m[3] = without(m[3], 0, 1, 3); return m }, "1.content.0"},
		"a redacted one filtered": {func(m []string) []string { m[3] = without(m[3], 1); return m }, "3.content.2"},
		"all dropped": {func(m []string) []string {
			m[1], m[3] = without(m[1], 0), without(m[3], 0, 1, 3)
			return m
		}, ""},
		"one moved to the other": {func(m []string) []string {
			m[3] = reorder(m[3], func(b []string) []string { return append([]string{gjson.Get(m[1], "content.0").Raw}, b...) })
			m[1] = without(m[1], 0)
			return m
		}, "3.content.0"},
		"answers merged": {mergeRounds, "1.content.3"},
		"an answer in two messages": {func(m []string) []string {
			m[3] = without(m[3], 3, 4) + "," + without(m[3], 0, 1, 2)
			return m
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := conversation(t, upstreamtest.New(upstreamtest.Config{}), opusMembers(""))
			_, body := a.try(c.damage(a.messages[:5]))
			lost := map[string]int{"all dropped": 4}[name]
			require.Equal(t, lost, a.v.Last().Lost)
			if c.want == "" {
				require.Empty(t, message(body))
				return
			}
			require.Equal(t, fmt.Sprintf(modifiedAt, c.want), message(body))
		})
	}
}

// mergeRounds makes one round, in the first three messages, of the two that begin
// a conversation.
func mergeRounds(m []string) []string {
	m[1] = reorder(m[1], func(b []string) []string {
		for _, later := range gjson.Get(m[3], "content").Array() {
			b = append(b, later.Raw)
		}
		return b
	})
	m[2] = reorder(m[2], func(b []string) []string { return append(b, gjson.Get(m[4], "content.0").Raw) })
	return m[:3]
}

// An answer that goes on with what the client has begun is a part of it, in one
// message or in two.
func TestAnswersThatGoOn(t *testing.T) {
	a := &agent{t: t, v: upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}}),
		members: opusMembers("")}
	a.ask("tell")
	a.messages = append(a.messages, says("assistant", `"Once"`))
	a.v.Queue(upstreamtest.Reply(upstreamtest.Think("t"), upstreamtest.Say("upon a time")))
	status, body := a.send()
	require.Equal(t, 200, status, body)
	two := append(a.messages, ask)
	one := []string{two[0], says("assistant", `[{"type":"text","text":"Once"},`+gjson.Get(two[2], "content").Raw[1:]), ask}
	for _, list := range [][]string{two, one} {
		status, body = a.try(list)
		require.Equal(t, 200, status, body)
	}
	_, body = a.try([]string{two[0], two[2], ask})
	require.Equal(t, fmt.Sprintf(invalidAt, "1.content.0")+elsewhere+needsBeta, message(body))
}
