package openaiapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// stored makes a history of words: each is a message of the user, with its answer. Behind "!" it
// has none, behind "~" one that failed, and "-" is nothing that was said, but redacted.
func stored(words string) (all []message) {
	for _, w := range strings.Fields(words) {
		text := strings.TrimRight(w, "!~")
		m := message{ID: fmt.Sprint("m", len(all)+1), User: true, Text: normal(text), ClientID: "c-" + text,
			AnswerID: "a-" + text}
		if text == "-" {
			m.Text = redacted
		}
		all = append(all, m)
		if !strings.HasSuffix(w, "!") {
			all = append(all, message{ID: fmt.Sprint("m", len(all)+1), Failed: strings.HasSuffix(w, "~")})
		}
	}
	return all
}

// asked makes a transcript of words; no answer follows one with "?" behind it.
func asked(words string) (t transcript) {
	for _, w := range strings.Fields(words) {
		t.Users = append(t.Users, normal(strings.TrimRight(w, "?")))
		t.Unanswered = append(t.Unanswered, strings.HasSuffix(w, "?"))
	}
	return t
}

// String says a decision in a word, with where it goes back to.
func (d decision) String() string {
	if d.After == nil {
		return string(d.Outcome)
	}
	return fmt.Sprintf("%s after %q", d.Outcome, *d.After)
}

func TestMatch(t *testing.T) {
	for _, c := range []struct{ name, stored, asked, want string }{
		{"the first message", "", "a", "post"},
		{"one message alone", "a b c", "d", "post"},
		{"one message alone that is there", "a b c", "b", "post"},
		{"whole", "a b c", "a b c d", "post"},
		{"windowed", "a b c", "b c d", "post"},
		{"windowed to one", "a b c", "c d", "post"},
		{"the same words once more", "a b b", "a b b b", "post"},
		{"behind one without an answer", "a b!", "a b c", "post"},
		{"behind one that failed", "a b~", "a b c", "post"},
		{"the memory has lost its beginning", "c d", "a b c d e", "post"},
		{"one was redacted", "a - c", "a b c d", "post"},
		{"sent again, since it has no answer", "a b c!", "a b c", `again after "m4"`},
		{"sent again, since it failed", "a b c~", "b c", `again after "m4"`},
		{"the first one sent again", "a~ b~", "a b", `again after "m2"`},
		{"the last answer once more", "a b c", "a b c", `again after "m4"`},
		{"windowed, the last answer once more", "a b c", "b c", `again after "m4"`},
		{"an answer before once more", "a b c d", "a b", `again after "m2"`},
		{"the last one changed", "a b c", "a b x", `edit after "m4"`},
		{"one before changed", "a b c d", "a x", `edit after "m2"`},
		{"windowed, one before changed", "a b c d", "b x", "mismatch"},
		{"another chat's", "a b c", "x y z", "mismatch"},
		{"of a chat that is not known", "", "x y z", "mismatch"},
		{"reordered", "a b c", "b a c d", "mismatch"},
		{"one left out in the middle", "a b c", "a c d", "mismatch"},
		{"changed in the middle, and gone on", "a b c", "a x c d", "mismatch"},
		{"two places", "a b c a b d", "a b", "mismatch"},
		{"a place, or the beginning changed", "a b c a d", "a d", "mismatch"},
		{"nothing takes the place of what was redacted", "a - c", "a x", "mismatch"},
		{"behind one that was refused", "a b", "a b x? c", "post"},
		{"behind many that were refused", "a b", "x? a y? z? b x? y? c", "post"},
		{"the first ones were refused", "", "x? y? c", "post"},
		{"the first one was refused, another one is of another history", "", "x? y c", "mismatch"},
		{"of another chat, and all were refused", "a b", "x? y? z", "mismatch"},
		{"of another chat, and one was refused", "a b", "x y? z", "mismatch"},
		{"the user's messages alone", "a b", "a? b? c", "post"},
		{"the user's messages alone, of another chat", "a b", "x? y? c", "mismatch"},
		{"windowed, behind one that was refused", "a b c", "c x? d", "post"},
		{"one was refused, and the last answer once more", "a b", "a x? b", `again after "m2"`},
		{"one was refused, and an answer before once more", "a b c", "x? a y? b", `again after "m2"`},
		{"one was refused, and that which failed once more", "a b~", "a x? b", `again after "m2"`},
		{"nothing is changed behind one that was refused", "a b c", "a x? y", "mismatch"},
		{"all before it were refused", "a b c", "x? b", "mismatch"},
		{"the memory has lost its beginning, an answer before once more", "c d e", "a b c d", "mismatch"},
		{"merged by the client", "a b c", "ab c d", "mismatch"},
		{"merged by the client, and windowed", "a b c d", "ab c d e", "mismatch"},
		{"merged by the client with one that failed", "a b~", "a bc", `edit after "m2"`},
		{"one left out that is said twice", "a b b", "a b c", `edit after "m4"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, enough := match(asked(c.asked), stored(c.stored), true)
			require.True(t, enough)
			require.Equal(t, c.want, d.String())
		})
	}
}

func TestMatchByTheClientsIDs(t *testing.T) {
	for _, c := range []struct{ name, asked, id, parent, want string }{
		{"behind the last answer", "a b c d", "c-d", "a-c", "post"},
		{"behind the last answer, whatever else is sent", "x y", "c-d", "a-c", "post"},
		{"behind one before", "a b x", "c-x", "a-a", `edit after "m2"`},
		{"behind a message of the user", "x", "", "c-b", `edit after "m4"`},
		{"behind one that is not known", "a b c d", "", "a-z", "post"},
		{"behind one that is not known, of another history", "x y", "", "a-z", "mismatch"},
		{"a message that is there", "a b2", "c-b", "", `again after "m2"`},
		{"the first one", "a", "c-a", "", `again after ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := asked(c.asked)
			asked.ClientID, asked.Parent = c.id, c.parent
			d, enough := match(asked, stored("a b c"), true)
			require.True(t, enough)
			require.Equal(t, c.want, d.String())
		})
	}
}

// One message alone, of a client that sends transcripts and of another one. Behind "^" a message came in a transcript.
func TestMatchOneAlone(t *testing.T) {
	for _, c := range []struct{ name, stored, asked, parent, want string }{
		{"the first of a chat", "", "a", "", "post"},
		{"behind messages that came alone", "a b", "c", "", "post"},
		{"the words of the first, which came alone", "a b", "a", "", "post"},
		{"the first was answered, and nothing else was said", "a", "a", "", "post"},
		{"the first failed", "a~", "a", "", `again after ""`},
		{"the first failed, and another word", "a~", "b", "", "post"},
		{"the newest failed", "a b~", "b", "", `again after "m2"`},
		{"the newest has no answer yet", "a b!", "b", "", "post"},
		{"one before failed", "a~ b", "a", "", "post"},
		{"the first once more", "a b^ c^", "a", "", `again after ""`},
		{"the first changed", "a b^ c^", "x", "", `edit after ""`},
		{"the words of the newest", "a b^ c^", "c", "", `edit after ""`},
		{"the changed first failed", "x^~", "x", "", `again after ""`},
		{"it follows something", "a b^ c^", "x", "a-z", "post"},
		{"another client has spoken since", "a b^ c", "x", "", "post"},
		{"the first was redacted", "- b^", "x", "", "post"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, history := asked(c.asked), stored(strings.ReplaceAll(c.stored, "^", ""))
			asked.From, asked.Parent = "page", c.parent
			for i, word := range strings.Fields(c.stored) {
				if strings.Contains(word, "^") {
					history[2*i].From = "page"
				}
			}
			d, enough := match(asked, history, true)
			require.True(t, enough)
			require.Equal(t, c.want, d.String())
			require.Equal(t, strings.Contains(c.stored, "^") && d.Outcome != post, d.Marked)
			asked.From = "bot"
			if d, _ := match(asked, history, true); d.Outcome != post {
				require.Contains(t, c.name, "failed")
			}
		})
	}
	_, enough := match(transcript{Users: []string{"a"}}, stored("a")[1:], false)
	require.False(t, enough, "whose the newest message of the user is, is not known yet")
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

// memoryOf is a chat's memory as a post with After and IfLast changes it.
type memoryOf struct {
	history, aside []message
	ids            int
}

func (m *memoryOf) say(text, from string, fails bool) {
	m.ids += 2
	m.history = append(m.history, message{ID: fmt.Sprint("i", m.ids-1), User: true, Text: normal(text),
		ClientID: fmt.Sprint("c", m.ids), AnswerID: fmt.Sprint("a", m.ids), From: from},
		message{ID: fmt.Sprint("i", m.ids), Failed: fails})
}

// take is a post of a decision. One with an IfLast that is not the last is refused.
func (m *memoryOf) take(t *rapid.T, d decision, asked transcript, text string) {
	last := ""
	if len(m.history) > 0 {
		last = m.history[len(m.history)-1].ID
	}
	if d.Outcome == mismatch {
		return
	}
	if d.Last == nil && (d.Outcome != post || d.After != nil) {
		t.Fatalf("%s whatever was said meanwhile", d)
	}
	if d.Last != nil && *d.Last != last {
		t.Fatalf("the last message is %q, not %q", last, *d.Last)
	}
	if d.After != nil {
		at := slices.IndexFunc(m.history, func(h message) bool { return h.ID == *d.After })
		if at < 0 && *d.After != "" {
			t.Fatalf("nothing has the id %q", *d.After)
		}
		m.aside = append(m.aside, m.history[at+1:]...)
		m.history = m.history[: at+1 : at+1]
	}
	from := ""
	if d.Marked {
		from = asked.From
	}
	m.say(text, from, rapid.IntRange(0, 4).Draw(t, "fails") == 0)
}

// alone is what one message alone, without ids, has to be.
func (m *memoryOf) alone(asked transcript) string {
	newest := len(m.history) - 2
	switch text := asked.Users[0]; {
	case newest < 0:
	case asked.From != "" && m.history[newest].From == asked.From && m.history[0].Text == text:
		return `again after ""`
	case asked.From != "" && m.history[newest].From == asked.From:
		return `edit after ""`
	case m.history[newest+1].Failed && m.history[newest].Text == text && newest == 0:
		return `again after ""`
	case m.history[newest+1].Failed && m.history[newest].Text == text:
		return fmt.Sprintf("again after %q", m.history[newest-1].ID)
	}
	return "post"
}

// again says whether the newest message of the user failed and is what is asked.
func (m *memoryOf) again(asked transcript) bool {
	n := len(m.history)
	return n > 0 && m.history[n-1].Failed && m.history[n-2].Text == asked.Users[len(asked.Users)-1]
}

// paged is match over a history that is read from its end.
func paged(t *rapid.T, asked transcript, history []message) decision {
	for from := len(history); ; {
		from = max(from-rapid.IntRange(1, 6).Draw(t, "page"), 0)
		if d, enough := match(asked, history[from:], from == 0); enough {
			return d
		} else if from == 0 {
			t.Fatal("all of it is not enough")
		}
	}
}

// refused puts a message into a transcript that was never answered, in front of another one.
func (t *transcript) refused(at int, text string) {
	t.Users, t.Unanswered = slices.Insert(t.Users, at, text), slices.Insert(t.Unanswered, at, true)
}

// Whatever clients send, in whatever state, everything that was ever stored is still stored or set
// aside; a mismatch changes nothing; and a client that only leaves out what is old, keeps what was refused, and
// whatever becomes of answers and white space, goes on with the chat. One message alone is a post, but for one that
// failed just now, and for the first one of a client that sends transcripts.
func TestNothingStoredIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SampledFrom([]string{"a", "b", "c", "go on", "ok", "a long question about herons", ""})
		clients := rapid.SampledFrom([]string{"", "page", "other page"})
		var m memoryOf
		for range rapid.IntRange(0, 12).Draw(t, "stored") {
			m.say(words.Draw(t, "said"), clients.Draw(t, "from"), rapid.IntRange(0, 4).Draw(t, "fails") == 0)
		}
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			var users []string
			for _, s := range m.history {
				if s.User {
					users = append(users, s.Text)
				}
			}
			honest := rapid.Bool().Draw(t, "honest")
			window := rapid.IntRange(0, len(users)).Draw(t, "window")
			held := slices.Clone(users[len(users)-window:])
			if !honest {
				for range rapid.IntRange(0, 4).Draw(t, "mangled") {
					held = mangle(t, held, words)
				}
			}
			text := words.Draw(t, "asked")
			asked := transcript{Users: append(held, normal(text)), Unanswered: make([]bool, len(held)+1)}
			for range rapid.IntRange(0, 2).Draw(t, "refused") {
				asked.refused(rapid.IntRange(0, len(asked.Users)-1).Draw(t, "at"), fmt.Sprint("refused", len(asked.Users)))
			}
			if !honest {
				for i := range asked.Unanswered {
					asked.Unanswered[i] = asked.Unanswered[i] || rapid.Bool().Draw(t, "answer dropped")
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "alone") == 0 {
				asked.Users, asked.Unanswered = []string{normal(text)}, nil
			}
			asked.From = clients.Draw(t, "client")
			if rapid.IntRange(0, 3).Draw(t, "ids") == 0 {
				asked.Parent = fmt.Sprint("a", 2*rapid.IntRange(1, 20).Draw(t, "parent"))
				asked.ClientID = fmt.Sprint("c", 2*rapid.IntRange(1, 40).Draw(t, "id"))
			}
			before := append(slices.Clone(m.history), m.aside...)
			d := paged(t, asked, m.history)
			one := len(asked.Users) == 1
			if honest && !one && (window > 0 || len(users) == 0) && asked.Parent == "" && !m.again(asked) &&
				(d.Outcome != post || d.After != nil) {
				t.Fatalf("%q behind %q is %s", asked.Users, users, d)
			}
			if one && asked.ClientID == "" && d.String() != m.alone(asked) {
				t.Fatalf("%q alone behind %q is %s", asked.Users, users, d)
			}
			if asked.ClientID == "" {
				if all, _ := match(asked, m.history, true); all.String() != d.String() {
					t.Fatalf("%s by pages, %s at once", d, all)
				}
			}
			history := slices.Clone(m.history)
			m.take(t, d, asked, text)
			if d.Outcome == mismatch && !slices.Equal(history, m.history) {
				t.Fatal("a mismatch changed something")
			}
			for _, s := range before {
				if !slices.Contains(m.history, s) && !slices.Contains(m.aside, s) {
					t.Fatalf("%s is lost", s.ID)
				}
			}
		}
	})
}

// mangle changes what a client holds.
func mangle(t *rapid.T, held []string, words *rapid.Generator[string]) []string {
	if len(held) == 0 {
		return []string{normal(words.Draw(t, "foreign"))}
	}
	at := rapid.IntRange(0, len(held)-1).Draw(t, "at")
	switch rapid.IntRange(0, 6).Draw(t, "how") {
	case 0: // left out
		return slices.Delete(held, at, at+1)
	case 1: // another text
		held[at] = normal(words.Draw(t, "changed"))
	case 2: // twice
		return slices.Insert(held, at, held[at])
	case 3: // reordered
		other := rapid.IntRange(0, len(held)-1).Draw(t, "other")
		held[at], held[other] = held[other], held[at]
	case 4: // merged with the next one
		if at+1 < len(held) {
			held[at] += held[at+1]
			return slices.Delete(held, at+1, at+2)
		}
	case 5: // of another chat, whose beginning may be the same
		for i := at; i < len(held); i++ {
			held[i] = normal(words.Draw(t, "of another chat"))
		}
	default: // cut off at the end
		return held[:at]
	}
	return held
}
