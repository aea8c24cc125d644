package recall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/memory"
)

var (
	chat  = memory.MustChat("c")
	key   = memory.ChatKey(chat)
	start = time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
)

func at(t time.Time) float64 { return float64(t.Unix()) }

// said is a stored message.
func said(id, role, text string, t time.Time) json.RawMessage {
	return memory.Message{ID: id, Role: role, Content: text, Timestamp: at(t)}.Encode()
}

// told is an index of what a user said, a day apart, with a reply to each.
func told(texts ...string) *Index {
	ix := New(key)
	for i, text := range texts {
		day := start.AddDate(0, 0, i)
		ix.Append(said(fmt.Sprintf("u.%d", i), memory.RoleUser, text, day),
			said(fmt.Sprintf("a.%d", i), memory.RoleAssistant, "Noted.", day.Add(time.Second)))
	}
	return ix
}

func ask(ix *Index, text string) Result {
	return Search([]*Index{ix}, Query{Text: text, AskedAt: start.AddDate(1, 0, 0)})
}

func ids(r Result) (list []string) {
	for _, h := range r.Hits {
		list = append(list, h.ID)
	}
	return list
}

func TestWhatWasToldIsFound(t *testing.T) {
	ix := told("My name is Aliya.", "I am allergic to hazelnuts.", "The weather is fine.", "Мы ездили в Берлин с Ёлкой.")
	assert.Equal(t, "u.1", ids(ask(ix, "What am I allergic to?"))[0])
	assert.Equal(t, "u.3", ids(ask(ix, "когда была поездка с елкой в Берлине"))[0])
	assert.Empty(t, ask(ix, "quantum chromodynamics").Hits)
	assert.Zero(t, ask(ix, "quantum chromodynamics").Strength)
	hit := ask(ix, "allergic").Hits[0]
	assert.Equal(t, []string{"u.1", "a.1"}, hit.Exchange)
	assert.Equal(t, memory.RoleUser, hit.Role)
	assert.Equal(t, key, hit.Key)
	assert.InDelta(t, at(start.AddDate(0, 0, 1)), hit.TS, 0)
}

func TestAnAnswerIsFoundByItsQuestion(t *testing.T) {
	ix := told("The weather is fine.", "Bread again.")
	ix.Append(said("q", memory.RoleUser, "Which dentist did Ann recommend?", start.AddDate(0, 1, 0)),
		said("c", memory.RoleAssistant, "", start.AddDate(0, 1, 0)),
		said("r", memory.RoleTool, `{"rows":1}`, start.AddDate(0, 1, 0)),
		said("a", memory.RoleAssistant, "Doctor Novak in the Main Street.", start.AddDate(0, 1, 0)))
	r := ask(ix, "the dentist from Ann")
	assert.Contains(t, ids(r), "a")
	assert.Equal(t, []string{"q", "c", "r", "a"}, r.Hits[0].Exchange)
}

func TestAnIndexGrowsAtBothEnds(t *testing.T) {
	ix := New(key)
	ix.Append(said("m.5", memory.RoleUser, "violet", start.AddDate(0, 0, 5)))
	assert.True(t, ask(ix, "violet").Partial)
	ix.Prepend(said("m.3", memory.RoleUser, "violet and green things", start.AddDate(0, 0, 3)),
		said("m.4", memory.RoleAssistant, "of course", start.AddDate(0, 0, 4)))
	ix.Append(said("m.6", memory.RoleUser, "violet or blue things", start.AddDate(0, 0, 6)))
	ix.Prepend(said("m.1", memory.RoleUser, "violet or red things", start.AddDate(0, 0, 1)),
		said("m.3", memory.RoleUser, "known already", start.AddDate(0, 0, 3)))
	ix.MarkComplete()
	r := Search([]*Index{ix}, Query{Text: "violet", OldestFirst: true})
	assert.Equal(t, []string{"m.1", "m.3", "m.5", "m.6"}, ids(r))
	assert.False(t, r.Partial)
	assert.Equal(t, 5, ix.Len(), "one that stands in archive and history counts once")
	assert.Equal(t, []string{"m.3", "m.4"}, r.Hits[1].Exchange)
}

func TestBoundsHoldBeforeRanking(t *testing.T) {
	ix := told("violet one thing", "violet two things", "violet three things", "violet four things")
	r := Search([]*Index{ix}, Query{Text: "violet", From: start.AddDate(0, 0, 1), To: start.AddDate(0, 0, 3),
		OldestFirst: true})
	isReply := func(id string) bool { return strings.HasPrefix(id, "a.") }
	found := slices.DeleteFunc(ids(r), isReply) // which are alike
	assert.Equal(t, []string{"u.1", "u.2"}, found)
}

func TestTimeInAQuestionSpeaksForItsMessages(t *testing.T) {
	ix := New(key)
	for i := range 300 {
		day := start.AddDate(0, 0, i)
		ix.Append(said(fmt.Sprintf("d.%d", i), memory.RoleUser, fmt.Sprintf("Lunch with person%d in Berlin.", i), day))
	}
	for _, question := range []string{"What did I say about Berlin in May?", "что я говорил о Berlin в мае",
		"Berlin 2024-05", "what did I tell you in May 2024?"} {
		r := Search([]*Index{ix}, Query{Text: question, AskedAt: start.AddDate(0, 0, 300), Budget: 200})
		require.NotEmpty(t, r.Hits, question)
		for _, h := range r.Hits {
			assert.Equal(t, time.May, time.Unix(int64(h.TS), 0).UTC().Month(), question)
		}
	}
	r := Search([]*Index{ix}, Query{Text: "what was yesterday?", AskedAt: start.AddDate(0, 0, 200)})
	require.NotEmpty(t, r.Hits)
	assert.Equal(t, "d.199", r.Hits[0].ID)
}

// A month without a year is the latest, unless another year's has what is asked for.
func TestAMonthIsThatOfTheYearThatHasTheWords(t *testing.T) {
	for _, others := range []string{"The trip was long, and the trip was dull.", "May is full of meetings, and so it goes on.", "Май полон встреч, и так и идёт дальше.",
		"I said that the bike is broken.", "Lunch with Novak again."} {
		ix := New(key)
		for i := range 1000 {
			day := start.AddDate(0, 0, i)
			text := fmt.Sprintf("Day %d: the garden, the dog and the cat. The mayor called.", i)
			if day.Month() == time.May && day.Year() > start.Year() {
				text = fmt.Sprint(others, " ", i)
			}
			if day.Month() == time.May && day.Year() == start.Year() && day.Day() == 20 {
				text = "The trip to Berlin begins, the hotel is by the river."
			}
			if day.Month() >= time.July && day.Month() <= time.September {
				text = fmt.Sprint("A trip to Berlin again. ", i)
			}
			ix.Append(said(fmt.Sprintf("d.%d", i), memory.RoleUser, text, day))
		}
		for _, question := range []string{"what did I say about Berlin in May?", "что я говорил о Berlin в мае?",
			"what did I say about the trip to Berlin in May?"} {
			r := Search([]*Index{ix}, Query{Text: question, AskedAt: start.AddDate(0, 0, 1000)})
			require.NotEmpty(t, r.Hits, question)
			assert.Contains(t, r.Hits[0].Text, "to Berlin begins", "%s behind %s", question, others)
		}
	}
}

func TestSeenMessagesAreNotShown(t *testing.T) {
	ix := told("violet one thing", "violet two things")
	r := Search([]*Index{ix}, Query{Text: "violet", Visible: func(_ memory.Key, id string) bool { return id != "u.0" }})
	assert.Equal(t, []string{"u.0"}, ids(r))
}

func TestEqualMessagesAreShownOnce(t *testing.T) {
	ix := told("Is it violet?", "Is it violet?", "Is it violet?", "It is violet, not blue.")
	r := ask(ix, "violet")
	assert.Len(t, r.Hits, 3, "the reply is one of them: %v", ids(r))
}

func TestHistoriesOfAChatAreSearchedTogether(t *testing.T) {
	own, other := told("The invoice is due on Friday."), New(memory.SubagentKey("billing", chat))
	other.Append(said("s.1", memory.RoleUser, "Find the invoice of the violet shop.", start),
		said("s.2", memory.RoleAssistant, "It has the number 4711.", start))
	r := Search([]*Index{own, other}, Query{Text: "number of the violet invoice"})
	assert.Equal(t, memory.Agent("billing"), r.Hits[0].Key.Agent())
	assert.Contains(t, ids(r), "u.0")
}

func TestVectorsFindWhatWordsDoNot(t *testing.T) {
	ix := told("I'm Aliya.", "It rains.", "Bread again.")
	assert.Len(t, ix.Unplaced(100, 100), 6)
	ix.Place(map[string][]float32{"u.0": {1, 0, 0}, "u.1": {0, 1, 0}, "u.2": {0, 0, 1}, "nobody": {1, 1, 1}})
	assert.Len(t, ix.Unplaced(100, 100), 3)
	assert.Len(t, ix.Unplaced(100, 2), 2)
	assert.Len(t, ix.Unplaced(1, 100), 1)
	r := Search([]*Index{ix}, Query{Text: "What is my name?", Vector: []float32{1, 0.1, 0}})
	assert.Equal(t, "u.0", ids(r)[0])
}

func TestUnreadableMessagesAreNotFound(t *testing.T) {
	ix := New(key)
	ix.Append(json.RawMessage(`{"content":"violet"}`), json.RawMessage(`nonsense`), json.RawMessage(``),
		memory.Failed("timeout").Encode(), said("ok", memory.RoleUser, "violet", start))
	assert.Equal(t, []string{"ok"}, ids(ask(ix, "violet timeout")))
	assert.Empty(t, Search(nil, Query{Text: "violet"}).Hits)
	assert.Empty(t, ask(New(key), "violet").Hits)
}

// Every text is a literal piece of the message with its id, and they fit into the budget.
func TestHitsAreLiteralAndFitProperty(t *testing.T) {
	vocabulary := strings.Fields("violet blue river Берлин ёлка hotel 2024-05-01 naïve 日本語 the and\n\n wrote: code() 😀 " +
		"«цитата» yesterday в мае " + strings.Repeat("x", 700))
	rapid.Check(t, func(t *rapid.T) {
		texts := map[string]string{}
		var raw []json.RawMessage
		for i := range rapid.IntRange(0, 40).Draw(t, "messages") {
			id := fmt.Sprintf("m.%d", i)
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 400).Draw(t, "words"), " ")
			role := rapid.SampledFrom([]string{memory.RoleUser, memory.RoleAssistant, memory.RoleTool}).Draw(t, "role")
			texts[id] = text
			raw = append(raw, said(id, role, text, start.Add(time.Duration(i)*time.Hour)))
		}
		ix := New(key)
		cut := rapid.IntRange(0, len(raw)).Draw(t, "cut")
		ix.Append(raw[cut:]...)
		ix.Prepend(raw[:cut]...)
		q := Query{
			Text:    strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 6).Draw(t, "query"), " "),
			AskedAt: start.AddDate(0, 5, 0), Budget: rapid.IntRange(1, 5000).Draw(t, "budget"),
			Overhead:    rapid.IntRange(0, 100).Draw(t, "overhead"),
			OldestFirst: rapid.Bool().Draw(t, "order"),
		}
		characters := 0
		r := Search([]*Index{ix}, q)
		for i, h := range r.Hits {
			require.NotEmpty(t, h.Text)
			require.Contains(t, texts[h.ID], h.Text)
			require.True(t, utf8.ValidString(h.Text))
			length := utf8.RuneCountInString(h.Text)
			if h.Role != memory.RoleTool {
				require.GreaterOrEqual(t, length, min(pieceLength, utf8.RuneCountInString(texts[h.ID])))
			}
			require.Contains(t, h.Exchange, h.ID)
			characters += q.Overhead + length
			if i > 0 && q.OldestFirst {
				require.LessOrEqual(t, r.Hits[i-1].TS, h.TS)
			} else if i > 0 {
				require.GreaterOrEqual(t, r.Hits[i-1].Score, h.Score)
			}
		}
		require.LessOrEqual(t, (characters+3)/4, q.Budget)
	})
}

// A message that was appended is found by every search that begins afterwards, whatever is
// put in front meanwhile.
func TestWhatIsAppendedIsFoundAtOnce(t *testing.T) {
	ix := New(key)
	var group sync.WaitGroup
	const each = 150
	for w := range 3 {
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("w%d.%d", w, i)
				ix.Append(said(id, memory.RoleUser, fmt.Sprintf("the number%dof%d is here", i, w), start))
				r := ask(ix, fmt.Sprintf("number%dof%d", i, w))
				if assert.NotEmpty(t, r.Hits, id) {
					assert.Equal(t, id, r.Hits[0].ID)
				}
			}
		})
	}
	group.Go(func() {
		for i := range each {
			ix.Prepend(said(fmt.Sprintf("old.%d", i), memory.RoleUser, fmt.Sprintf("old stories number %d", i), start))
			_ = ix.Size()
		}
	})
	group.Wait()
	assert.Equal(t, 4*each, ix.Len())
}

// conversation is n messages of words that are distributed as in texts, by Zipf's law.
func conversation(n int) []json.RawMessage {
	draw := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(draw, 1.1, 4, 60_000)
	raw := make([]json.RawMessage, n)
	for i := range raw {
		var text strings.Builder
		for range 20 + draw.IntN(60) {
			fmt.Fprintf(&text, "w%d ", zipf.Uint64())
		}
		role := memory.RoleUser
		if i%2 == 1 {
			role = memory.RoleAssistant
		}
		raw[i] = said(fmt.Sprintf("m.%d", i), role, text.String(), start.Add(time.Duration(i)*time.Minute))
	}
	return raw
}

// However an index came to its messages, it finds what one finds that was given them at once.
func TestTheWayToAnIndexDoesNotMatterProperty(t *testing.T) {
	testtier.Slow(t)
	vocabulary := strings.Fields("violet blue river hotel Берлин ёлка nine apple stone glass")
	rapid.Check(t, func(t *rapid.T) {
		ix := New(key)
		var order []string // of the ids, as they stand in the history
		texts := map[string]string{}
		made := 0
		fresh := func() json.RawMessage {
			id := fmt.Sprintf("m.%d", made)
			words := rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 4).Draw(t, "text")
			texts[id] = fmt.Sprintf("%s u%d", strings.Join(words, " "), made)
			made++
			return said(id, memory.RoleUser, texts[id], start)
		}
		known := func() string {
			if len(order) == 0 {
				return "nobody"
			}
			return rapid.SampledFrom(order).Draw(t, "id")
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":  func(*rapid.T) { ix.Append(fresh(), fresh()); order = append(order, idsBefore(made)...) },
			"prepend": func(*rapid.T) { ix.Prepend(fresh(), fresh()); order = append(idsBefore(made), order...) },
			"again": func(*rapid.T) {
				if id := known(); id != "nobody" {
					ix.Prepend(said(id, memory.RoleUser, "violet forged", start))
				}
			},
		})
		whole := New(key)
		for _, id := range order {
			whole.Append(said(id, memory.RoleUser, texts[id], start))
		}
		require.Equal(t, len(order), ix.Len())
		for _, word := range vocabulary {
			q := Query{Text: word, AskedAt: start, Budget: 4000}
			require.ElementsMatch(t, ids(Search([]*Index{whole}, q)), ids(Search([]*Index{ix}, q)), word)
		}
	})
}

// idsBefore are the ids of the last two messages that were made.
func idsBefore(made int) []string {
	return []string{fmt.Sprintf("m.%d", made-2), fmt.Sprintf("m.%d", made-1)}
}

// What shares little with a question is not found above a floor, unless a time is spoken of.
func TestNothingIsFoundBelowTheFloor(t *testing.T) {
	ix := told("My name is Aliya.", "I like green tea and long walks by the sea in summer.", "We saw a film.")
	above := func(text string) []string {
		return ids(Search([]*Index{ix}, Query{Text: text, AskedAt: start.AddDate(1, 0, 0), Floor: 0.3}))
	}
	assert.Contains(t, above("What is my name?"), "u.0")
	const loose = "Did the sea level rise faster than scientists had predicted during previous decades?"
	assert.NotEmpty(t, ids(ask(ix, loose)))
	assert.Empty(t, above(loose))
	assert.NotEmpty(t, above("What did scientists predict about sea levels and decades in "+start.Month().String()+"?"))
}

// A question that names a time and nothing else is answered with what was said then, and with all of it.
func TestATimeAloneIsAskedFor(t *testing.T) {
	var texts []string
	for i := range 366 { // a message each day of a year
		texts = append(texts, fmt.Sprintf("On that day %d people happened to decide about plan%d.", i+2, i))
	}
	ix := told(texts...)
	for text, want := range map[string][2]string{
		"What happened in November 2024?":                    {"2024-11-01", "2024-12-01"},
		"What did we decide in November?":                    {"2024-11-01", "2024-12-01"},
		"Remind me what we talked about on Monday last week": {"2024-12-23", "2024-12-24"},
		"Что было в июле прошлого года?":                     {"2024-07-01", "2024-08-01"},
	} {
		asked := start.AddDate(1, 0, 0)
		if strings.Contains(text, "прошлого") {
			asked = start.AddDate(1, 6, 0)
		}
		r := Search([]*Index{ix}, Query{Text: text, AskedAt: asked, Budget: 4000})
		from, _ := time.Parse(time.DateOnly, want[0])
		to, _ := time.Parse(time.DateOnly, want[1])
		days := map[string]bool{}
		for _, h := range r.Hits {
			day := time.Unix(int64(h.TS), 0).UTC()
			require.False(t, day.Before(from) || !day.Before(to), "%s: %s", text, day)
			days[day.Format(time.DateOnly)] = true
		}
		require.Len(t, days, int(to.Sub(from).Hours()/24), text)
	}
	// With something else in it the time is one reason among others.
	other := told("The wedding is planned.", "We bought a car.", "The wedding was lovely.")
	require.Contains(t, ids(ask(other, "Where was the wedding with Anna on 1 January 2024?")), "u.2")
}

// An agent that is given the same task again remembers what came of it, not the task and "Done.".
func TestRepeatedTasksAndAcknowledgementsStandBehindEvidence(t *testing.T) {
	for _, c := range []struct{ task, done, evidence string }{
		{"Check which room the workshop in Lyon has.", "Done.", "The workshop in Lyon is in room 204."},
		{"Prüfe, welchen Raum der Workshop in Lyon hat.", "Erledigt, danke!", "Der Workshop in Lyon ist in Raum 204."},
		{"Проверь, в каком зале семинар в Лионе.", "Готово, спасибо.", "Семинар в Лионе проходит в зале 204."},
		{"Comprueba qué sala tiene el taller de Lyon.", "Hecho.", "El taller de Lyon es en la sala 204."},
		{"Vérifie quelle salle a l'atelier de Lyon.", "C'est fait.", "L'atelier de Lyon est dans la salle 204."},
		{"Controlla quale sala ha il laboratorio di Lione.", "Fatto, grazie.", "Il laboratorio di Lione è nella sala 204."},
	} {
		ix := New(key)
		for i := range 6 {
			answer := c.done
			if i == 2 {
				answer = c.evidence
			}
			day := start.AddDate(0, 0, i)
			ix.Append(said(fmt.Sprint("t", i), memory.RoleUser, c.task, day))
			ix.Append(said(fmt.Sprint("a", i), memory.RoleAssistant, answer, day))
		}
		hits := ask(ix, c.task).Hits
		require.NotEmpty(t, hits, c.task)
		require.Equal(t, c.evidence, hits[0].Text, c.task)
	}
}

func TestShortAnswersAreNoAcknowledgements(t *testing.T) {
	for _, text := range []string{"No.", "Yes!", "Rome.", "Done by Anna.", "OK, 204", "Вале 5", "Gracia"} {
		require.True(t, Query{}.isInformative(text), text)
	}
	for _, text := range []string{"Done.", "OK, thanks!", "Готово", "Alles klar, danke.", "C'est noté"} {
		require.False(t, Query{}.isInformative(strings.TrimPrefix(text, "C'est ")), text)
	}
}
