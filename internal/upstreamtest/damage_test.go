package upstreamtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
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

// prepend puts the first block of another message before the blocks of a message.
func prepend(other string) func([]string) []string {
	return func(b []string) []string { return append([]string{gjson.Get(other, "content.0").Raw}, b...) }
}

// merge joins the texts of two thinking blocks in the first of them.
func merge(message string, i, j int) string {
	at := func(k int) string { return fmt.Sprintf("content.%d.thinking", k) }
	return drop(set(message, at(i), gjson.Get(message, at(i)).String()+gjson.Get(message, at(j)).String()), j)
}

// mergeRounds makes one round of the first two rounds of a conversation.
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

// Each damage to a replay has its own refusal, or none.
func TestDamagedReplays(t *testing.T) {
	type messages = []string
	invalid := func(at string) string { return fmt.Sprintf(invalidAt, at) }
	modified := func(at string) string { return fmt.Sprintf(modifiedAt, at) }
	bound := func(at string) string { return invalid(at) + elsewhere + needsBeta }
	for name, c := range map[string]struct {
		damage         func(m messages)
		plain, checked string // without and with the prefix check; "=" is the same
	}{
		"nothing":              {func(messages) {}, "", "="},
		"text edited":          {func(m messages) { m[1] = set(m[1], "content.0.thinking", "other") }, invalid("1.content.0"), "="},
		"text trimmed":         {func(m messages) { m[3] = set(m[3], "content.0.thinking", "tw") }, invalid("3.content.0"), "="},
		"text emptied":         {func(m messages) { m[3] = set(m[3], "content.0.thinking", "") }, invalid("3.content.0"), "="},
		"text edited, latest":  {func(m messages) { m[7] = set(m[7], "content.2.thinking", "other") }, invalid("7.content.2"), "="},
		"texts merged":         {func(m messages) { m[3] = merge(m[3], 0, 3) }, invalid("3.content.0"), "="},
		"texts merged, latest": {func(m messages) { m[7] = merge(m[7], 0, 2) }, invalid("7.content.0"), "="},
		"signature emptied":    {func(m messages) { m[5] = set(m[5], "content.0.signature", "") }, invalid("5.content.0"), "="},
		"signature of another": {func(m messages) {
			m[5] = set(m[5], "content.0.signature", gjson.Get(m[1], "content.0.signature").String())
		}, invalid("5.content.0"), "="},
		"data altered": {func(m messages) {
			m[3] = set(m[3], "content.1.data", "F"+gjson.Get(m[3], "content.1.data").String()[1:])
		}, invalidRed, "="},
		"data as signature": {func(m messages) {
			m[5] = set(m[5], "content.0.signature", gjson.Get(m[3], "content.1.data").String())
		}, invalid("5.content.0"), "="},

		"doubled":                         {func(m messages) { m[1] = reorder(m[1], double(0)) }, invalid("1.content.1"), bound("1.content.1")},
		"doubled, latest":                 {func(m messages) { m[7] = reorder(m[7], double(0)) }, modified("7.content.1"), "="},
		"reordered":                       {func(m messages) { m[3] = reorder(m[3], swap(0, 3)) }, invalid("3.content.0"), bound("3.content.0")},
		"reordered, latest":               {func(m messages) { m[7] = reorder(m[7], swap(0, 2)) }, modified("7.content.0"), "="},
		"moved up, latest":                {func(m messages) { m[7] = reorder(m[7], swap(1, 2)) }, modified("7.content.1"), "="},
		"last dropped, latest":            {func(m messages) { m[7] = drop(m[7], 2) }, modified("7.content.0"), "="},
		"first dropped, latest":           {func(m messages) { m[7] = drop(m[7], 0) }, modified("7.content.1"), "="},
		"an older one put in":             {func(m messages) { m[7] = reorder(m[7], prepend(m[1])) }, modified("7.content.0"), "="},
		"all dropped, latest":             {func(m messages) { m[7] = drop(m[7], 0, 2) }, "", "="},
		"dropped in the middle":           {func(m messages) { m[3] = drop(m[3], 1) }, invalid("3.content.2"), bound("3.content.2")},
		"first of a later answer dropped": {func(m messages) { m[3] = drop(m[3], 0) }, invalidRed, invalidRed + elsewhere + needsBeta},
		"a whole answer's in the middle":  {func(m messages) { m[3] = drop(m[3], 0, 1, 3) }, "", bound("5.content.0")},
		"a leading run":                   {func(m messages) { m[1] = drop(m[1], 0) }, "", "="},
		"a leading run into an answer":    {func(m messages) { m[1], m[3] = drop(m[1], 0), drop(m[3], 0) }, "", "="},
		"all older ones":                  {func(m messages) { m[1], m[3], m[5] = drop(m[1], 0), drop(m[3], 0, 1, 3), drop(m[5], 0) }, "", "="},
		"all": {func(m messages) {
			m[1], m[3], m[5], m[7] = drop(m[1], 0), drop(m[3], 0, 1, 3), drop(m[5], 0), drop(m[7], 0, 2)
		}, "", "="},

		"an answer's text edited":       {func(m messages) { m[5] = set(m[5], "content.1.text", "Other.") }, "", bound("7.content.0")},
		"text before a thought edited":  {func(m messages) { m[3] = set(m[3], "content.2.text", "Other.") }, invalid("3.content.3"), bound("3.content.3")},
		"text before a thought, latest": {func(m messages) { m[7] = set(m[7], "content.1.text", "Other.") }, modified("7.content.2"), "="},
		"the question edited":           {func(m messages) { m[0] = set(m[0], "content", "other") }, "", bound("1.content.0")},
		"a later question edited":       {func(m messages) { m[6] = set(m[6], "content", "other") }, "", bound("7.content.0")},
		"a result edited":               {func(m messages) { m[2] = set(m[2], "content.0.content", "5") }, "", bound("3.content.0")},
		"the newest result edited":      {func(m messages) { m[8] = set(m[8], "content.0.content", "5") }, "", "="},
		"an input edited":               {func(m messages) { m[1] = set(m[1], "content.2.input.city", "Rome") }, "", bound("3.content.0")},
		"an answer in two messages":     {func(m messages) { m[3] = drop(m[3], 3, 4) + "," + drop(m[3], 0, 1, 2) }, "", "="},
		"the latest in two messages":    {func(m messages) { m[7] = drop(m[7], 2, 3) + "," + drop(m[7], 0, 1) }, "", "="},
		"two answers in one message": {func(m messages) {
			mergeRounds(m)
			m[3], m[4], m[5], m[6], m[7], m[8] = m[5], m[6], m[7], m[8], message("assistant", `"ok"`), ask
		}, invalid("1.content.3"), bound("1.content.3")},
		"cache control set": {func(m messages) {
			m[4] = strings.Replace(m[4], `"content":"4"`, `"content":"4","cache_control":{"type":"ephemeral"}`, 1)
		}, "", "="},
		"a question as a block":     {func(m messages) { m[0] = question(`{"type":"text","text":"first","cache_control":{}}`) }, "", "="},
		"a question with more text": {func(m messages) { m[0] = question(`{"type":"text","text":"first"}`, text) }, "", bound("1.content.0")},
		"a result as blocks, not an error": {func(m messages) {
			m[2] = strings.Replace(m[2], `"content":"4"`, `"is_error":false,"content":[{"type":"text","text":"4"}]`, 1)
		}, "", "="},
		"members in another order": {func(m messages) { m[6] = `{"content":"second","role":"user"}` }, "", "="},
	} {
		for _, check := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %t", name, check), func(t *testing.T) {
				a := conversation(t, New(Config{Thinking: ThinkingRules{PrefixCheck: check}}))
				c.damage(a.messages)
				want := c.plain
				if check && c.checked != "=" {
					want = c.checked
				}
				a.check(want, a.messages...)
			})
		}
	}
}

// An answer that continues the client's text is a part of it, in one message or in two.
func TestContinuedAnswers(t *testing.T) {
	older := strings.Replace(opusMembers, opus48, "m", 1) // a name that continues answers
	a := &agent{t: t, v: New(Config{Thinking: ThinkingRules{PrefixCheck: true, Generation: Adaptive}}), members: older}
	a.ask("tell")
	a.messages = append(a.messages, message("assistant", `"Once"`))
	a.v.Queue(Reply(Think("t"), Say("upon a time")))
	a.send()
	two := append(a.messages, ask)
	a.check("", two...)
	a.check("", two[0], message("assistant", `[{"type":"text","text":"Once"},`+gjson.Get(two[2], "content").Raw[1:]), ask)
	a.check(fmt.Sprintf(invalidAt, "1.content.0")+elsewhere+needsBeta, two[0], two[2], ask)
}
