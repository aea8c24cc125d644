package openaiapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// history makes a history of words: each is a message of the user from the client "page", answered by "re WORD". A word
// may end with "!" (no answer yet), "~" (failed), "%" (a partial answer), "^" (answered by "done"), "*" (another client) or
// "&" (without a transcript).
// "-" is redacted. Message n has the id "mN".
func history(words string) (all []message) {
	for _, word := range strings.Fields(words) {
		text := strings.TrimRight(word, "!~%^*&")
		m := message{ID: fmt.Sprint("m", len(all)+1), Run: "run-" + text, User: true, Text: normal(text), Content: text,
			ClientID: "c-" + text, AnswerID: "a-" + text, Client: "page"}
		m.NoTranscript = strings.Contains(word, "&")
		if text == "-" {
			m.Text = redacted
		}
		if strings.Contains(word, "*") {
			m.Client, m.ClientID, m.AnswerID = "bot", "", ""
		}
		all = append(all, m)
		answer := message{ID: fmt.Sprint("m", len(all)+1), Text: normal("re " + text), Failed: strings.Contains(word, "~"),
			Partial: strings.Contains(word, "%")}
		if strings.Contains(word, "^") {
			answer.Text = "done"
		}
		if !strings.Contains(word, "!") {
			all = append(all, answer)
		}
	}
	return all
}

// sent makes a transcript of words of the client "page". Each but the last is answered by "re WORD", after "?" by
// nothing, after "/" by "shortened" and after "^" by "done". A word that begins with "=" is an answer alone.
func sent(words string) (t transcript) {
	t.Client = "page"
	fields := strings.Fields(words)
	for i, word := range fields {
		text := strings.TrimRight(word, "?/^")
		e := exchange{User: normal(text), Answer: normal("re " + text)}
		switch {
		case strings.HasPrefix(word, "="):
			e = exchange{Answer: word[1:]}
		case strings.HasSuffix(word, "?"), i == len(fields)-1:
			e.Answer = ""
		case strings.HasSuffix(word, "/"):
			e.Answer = "shortened"
		case strings.HasSuffix(word, "^"):
			e.Answer = "done"
		}
		t.Exchanges, t.Content = append(t.Exchanges, e), text
	}
	return t
}

// String names a decision and the message that it goes back to.
func (d decision) String() string {
	text := string(d.Outcome)
	if d.ParentID != nil {
		text += fmt.Sprintf(" after %q", *d.ParentID)
	}
	if d.Run != "" {
		text += " " + d.Run
	}
	if d.Diverged {
		text += ", diverged"
	}
	return text
}

func decided(t *testing.T, asked transcript, stored string) string {
	t.Helper()
	d, enough := match(asked, history(stored), true)
	require.True(t, enough)
	return d.String()
}

func TestMatchByText(t *testing.T) {
	for _, c := range []struct{ name, stored, sent, want string }{
		{"the first message", "", "a", "post"},
		{"a single message", "a b c", "d", "post"},
		{"a single message that was sent before", "a b c", "c", "post"},
		{"a single message that failed", "a b~", "b", `replace after "m2"`},
		{"a single message after a failure", "a b~", "c", "post"},
		{"a single message without an answer", "a b!", "b", "post"},

		{"the whole transcript", "a b c", "a b c d", "post"},
		{"its newest part", "a b c", "c d", "post"},
		{"the first exchange and the newest", "a b c", "a c d", "post"},
		{"a summary and the newest exchange", "a b c", "summary? c d", "post"},
		{"an answer before the newest exchange", "a b c", "=summary c d", "post"},
		{"older messages decorated", "a b c", "A x c d", "post"},
		{"older messages reordered", "a b c", "b a c d", "post"},
		{"messages merged", "a b c", "ab c d", "post"},
		{"answers shortened", "a b c", "a/ b/ c/ d", "post"},
		{"answers omitted", "a b c", "a? b? c? d", "post"},
		{"the newest message decorated", "a b c^", "a b X^ d", "post"},
		{"the same words again", "a b b", "a b b b", "post"},
		{"equal answers", "a^ b^ c^", "a^ b^ c^ d", "post"},
		{"equal answers, an older point", "a^ b^ c^", "a^ d", "post, diverged"},
		{"equal answers, the message decorated", "a^ b^ c^", "X^ d", "post"},
		{"a known answer, another message", "a^ b", "X^ d", "post, diverged"},
		{"the newest message came alone", "a b&", "a d", "post, diverged"},
		{"after a message without an answer", "a b!", "a b? c", "post"},
		{"after a failure", "a b~", "a b? c", "post"},
		{"after a redacted message", "a b -", "a b c? d", "post"},
		{"with a message that was never stored", "a b", "a b x? c", "post, diverged"},

		{"the newest answer again", "a b c", "a b c", `replace after "m4"`},
		{"the newest answer again, windowed", "a b c", "b c", `replace after "m4"`},
		{"the newest message changed", "a b c", "a b x", `replace after "m4"`},
		{"the newest message changed, answers shortened", "a b c", "a/ b/ x", `replace after "m4"`},
		{"the newest exchange is another client's", "a b c*", "a b c", "post, diverged"},
		{"a failed message", "a b c~", "a b c", `replace after "m4"`},
		{"a failed message of another transcript", "a b~", "x y b", "post, diverged"},
		{"after messages that were never stored", "a b", "a B? x", "post, diverged"},
		{"after several of them", "a b", "a P? Q? x", "post, diverged"},
		{"no answers, an unknown message before", "a b", "a? B? d", "post, diverged"},

		{"an older point", "a b c d", "a b x", "post, diverged"},
		{"an older answer again", "a b c d", "a b", "post, diverged"},
		{"the first message changed", "a b c d", "x y", "post, diverged"},
		{"another chat's", "a b c", "x y z", "post, diverged"},
		{"a transcript for an empty chat", "", "x y z", "post, diverged"},
		{"a summary instead of everything", "a b c", "summary? d", "post, diverged"},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, decided(t, sent(c.sent), c.stored)) })
	}
}

func TestMatchByIDs(t *testing.T) {
	for _, c := range []struct{ name, stored, sent, id, parent, want string }{
		{"after the newest answer", "a b c", "a b c d", "c-d", "a-c", "post"},
		{"after the newest answer, whatever the words", "a b c", "x y", "c-d", "a-c", "post"},
		{"after an older answer", "a b c", "a b x", "c-x", "a-a", `replace after "m2"`},
		{"after a message of the user", "a b c", "x", "", "c-b", `replace after "m4"`},
		{"after an older answer, another client follows", "a b c*", "a b x", "c-x", "a-a", "post, diverged"},
		{"after an unknown message", "a b c", "a b c d", "", "a-z", "post"},
		{"after an unknown message, another chat's words", "a b c", "x y", "", "a-z", "post, diverged"},
		{"an older message again", "a b c", "b", "c-b", "", `replace after "m2"`},
		{"an older message again, another client follows", "a b c*", "b", "c-b", "", "post"},
		{"an older message changed, with its transcript", "a b c", "a x", "c-b", "", `replace after "m2"`},
		{"other words under a known id", "a b c", "title", "c-c", "", "task"},
		{"other words under a known id and parent", "a b c", "title", "c-c", "a-b", "task"},
		{"the message of a task that came first", "a b title+c", "c", "c-title+c", "", `replace after "m4"`},
		{"other words under the id of a message without an answer", "a b c!", "title", "c-c", "", "post"},
		{"a task that contains the message, before its answer", "a b c!", "title:c", "c-c", "", "task"},
		{"other words under a known id, after the whole transcript", "a b c", "a b c title", "c-c", "", "post"},
		{"an unknown id", "a b c", "d", "c-d", "", "post"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := sent(c.sent)
			asked.ClientID, asked.Parent = c.id, c.parent
			require.Equal(t, c.want, decided(t, asked, c.stored))
		})
	}
}

func TestMatchReplacements(t *testing.T) {
	for _, c := range []struct {
		name, stored, sent, id string
		newest                 bool
		want                   string
	}{
		{"regenerate the newest", "a b c", "a b c", "c-c", true, `replace after "m4"`},
		{"regenerate from a stale tab", "a b c", "a", "c-a", true, "conflict"},
		{"regenerate a message that was refused", "a b", "a b c", "c-c", true, "post"},
		{"regenerate an older one by its id", "a b c", "a b", "c-b", false, `replace after "m2"`},
		{"by the stored id", "a b c", "a b", "m3", false, `replace after "m2"`},
		{"edit the first", "a b c", "x", "c-a", false, `replace after ""`},
		{"edit an unknown message", "a b c", "a b c x", "c-x", false, "post"},
		{"edit an unknown message at the place of the newest", "a b c*", "a b x", "c-x", false, "post, diverged"},
		{"regenerate an unknown message at the place of the newest", "a b c*", "a b x", "c-x", true, "conflict"},
		{"regenerate an unknown message in a chat of others", "a b", "x", "c-x", true, "conflict"},
		{"regenerate an unknown message in an empty chat", "", "x", "c-x", true, "post"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := sent(c.sent)
			asked.ClientID, asked.Newest, asked.Replaces = c.id, c.newest, !c.newest
			require.Equal(t, c.want, decided(t, asked, c.stored))
		})
	}
}

// Ids beyond what is read of the history are looked for before a request that names one is decided.
func TestMatchReadsOn(t *testing.T) {
	for _, newest := range []bool{true, false} {
		asked := sent("a")
		asked.ClientID, asked.Newest, asked.Replaces = "c-a", newest, !newest
		_, enough := match(asked, history("a b c")[2:], false)
		require.False(t, enough)
	}
	asked := sent("x")
	asked.Parent = "a-a"
	_, enough := match(asked, history("a b c")[4:], false)
	require.False(t, enough)
}

func TestMatchRetries(t *testing.T) {
	for _, c := range []struct{ name, stored, sent, want string }{
		{"its answer is being made", "a b!", "b", "join run-b"},
		{"its answer is being made, with the transcript", "a b!", "a b", "join run-b"},
		{"its run was stopped", "a b~", "b", `replace after "m2"`},
		{"its answer was cut", "a b%", "b", `replace after "m2"`},
		{"its answer was cut, and the transcript has it", "a b%", "a b b", "post"},
		{"its transcript diverged", "a b!", "x y b", "join run-b"},
		{"the message did not arrive", "a b", "c", "post"},
		{"the words were answered before", "a b", "b", "post"},
		{"the client left before the answer", "a lost", "lost", "join run-lost"},
		{"another client's message", "a b*!", "b", "post"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := sent(c.sent)
			asked.Retry, asked.Abandoned = true, func(run string) bool { return run == "run-lost" }
			require.Equal(t, c.want, decided(t, asked, c.stored))
		})
	}
}

func TestNormal(t *testing.T) {
	require.Equal(t, normal("caf\u00e9 \u1112\u1161"), normal("cafe\u0301 \ud558"), "spelled in two ways")
	require.Equal(t, normal(strings.Repeat("\u00e9", 40)), normal(strings.Repeat("e\u0301", 40)))
	for _, text := range []string{"a b", " a\n\tb ", "ab", "a\u200bb\ufeff", "<think>x\ny</think>a b",
		"<details type=\"reasoning\" done=\"true\">\n> x\n</details>\na b"} {
		require.Equal(t, "ab", normal(text), text)
	}
	require.NotEqual(t, normal("Ab"), normal("ab"))
	require.Len(t, normal(strings.Repeat("long ", 100)), maxText)
	require.NotEqual(t, normal(strings.Repeat("long ", 100)), normal(strings.Repeat("long ", 101)))
}

// Whatever a client without ids sends to whatever chat, at most the newest exchange is set aside: if it failed, or if it is
// the client's own and the transcript ends with the exchange before.
func TestWithoutIDsTheNewestExchangeAtMostIsReplaced(t *testing.T) {
	words := rapid.SampledFrom([]string{"a", "b", "c", "go-on", "ok", "herons"})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(marks ...string) (text string) {
			for range rapid.IntRange(0, 8).Draw(t, "count") {
				text += " " + words.Draw(t, "word") + rapid.SampledFrom(marks).Draw(t, "mark")
			}
			return text
		}
		stored := history(draw("", "", "~", "%", "!", "^", "*"))
		asked := sent(draw("", "", "?", "/", "^") + " " + words.Draw(t, "new"))
		asked.Retry, asked.Abandoned = rapid.Bool().Draw(t, "retry"), func(run string) bool { return run == "run-ok" }
		asked.Client = rapid.SampledFrom([]string{"page", "bot", ""}).Draw(t, "from")
		d, from := decision{}, len(stored)
		for enough := false; !enough; {
			from = max(from-rapid.IntRange(1, 6).Draw(t, "page"), 0)
			if d, enough = match(asked, stored[from:], from == 0); !enough && from == 0 {
				t.Fatal("the whole history does not suffice")
			}
		}
		newest := len(stored) - 1
		for newest > 0 && !stored[newest].User {
			newest--
		}
		switch d.Outcome {
		case join:
			if stored[newest].Run != d.Run {
				t.Fatalf("joins %s", d.Run)
			}
		case post:
		case replace:
			before := ""
			if newest > 0 {
				before = stored[newest-1].ID
			}
			failed := slices.ContainsFunc(stored[newest:], func(m message) bool { return m.Failed })
			own := asked.Client != "" && stored[newest].Client == asked.Client
			if *d.ParentID != before || !own && !failed {
				t.Fatalf("%v sets aside %v", d, stored[newest:])
			}
			if d.Guess {
				last := asked.Exchanges[len(asked.Exchanges)-2]
				same := func(m message) bool { return m.Text == last.User || last.Answer != "" && m.Text == last.Answer }
				if !slices.ContainsFunc(stored[max(newest-2, 0):newest], same) {
					t.Fatalf("%v after %v", d, last)
				}
			}
		default:
			t.Fatalf("%v", d)
		}
		if d.Outcome != post && d.Last == nil {
			t.Fatal("it depends on the newest message, and does not say so")
		}
	})
}
