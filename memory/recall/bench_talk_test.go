package recall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mneme/memory"
)

// tongue is a made-up language with the function words of a real one.
type tongue struct {
	function           string // words that half of a text consists of
	consonants, vowels string
	endings            string
	before, after      string // a question's words around its subject
}

var tongues = map[string]tongue{
	"english": {
		"the and of to a in is it you that he was for on are with as his they be at one have this from or had by but",
		"b c d f g h l m n p r s t w st ch sh th tr", "a e i o u ea ou ee", "s ing ed er ly tion",
		"what did I say about", "?",
	},
	"german": {
		"der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass",
		"b d f g h k l m n r s t w sch st ch pf z", "a e i o u ei au ie ä ü", "en er ung e lich heit",
		"was habe ich über", "gesagt?",
	},
}

// speech draws texts. Words of syllables have ranks, and the frequencies of a Zipf distribution.
type speech struct {
	tongue
	*rand.Rand
	zipf *rand.Zipf
}

func newSpeech(language string) speech {
	r := rand.New(rand.NewPCG(1, 2))
	return speech{tongues[language], r, rand.NewZipf(r, 1.1, 20, 60_000)}
}

func (s speech) content(rank uint64) string {
	consonants, vowels, endings := strings.Fields(s.consonants), strings.Fields(s.vowels), strings.Fields(s.endings)
	var b strings.Builder
	n := rank + 7
	for ; n > 0; n /= uint64(len(vowels)) {
		b.WriteString(consonants[n%uint64(len(consonants))])
		n /= uint64(len(consonants))
		b.WriteString(vowels[n%uint64(len(vowels))])
	}
	return b.String() + endings[rank%uint64(len(endings))]
}

func (s speech) text(least, most int) string {
	function := strings.Fields(s.function)
	var list []string
	for range least + s.IntN(most-least+1) {
		if s.IntN(2) == 0 {
			list = append(list, function[s.IntN(len(function))])
		} else {
			list = append(list, s.content(s.zipf.Uint64()))
		}
	}
	return strings.Join(list, " ") + "."
}

func (s speech) messages(n int) []json.RawMessage {
	raw := make([]json.RawMessage, n)
	for i := range raw {
		role := memory.RoleUser
		if i%2 == 1 {
			role = memory.RoleAssistant
		}
		raw[i] = said(fmt.Sprintf("m.%d", i), role, s.text(8, 60), start.Add(time.Duration(i)*time.Minute))
	}
	return raw
}

// questions have words of the ranks from least to most.
func (s speech) questions(n int, least, most uint64) []string {
	list := make([]string, n)
	for i := range list {
		words := []string{s.before}
		for range 3 + s.IntN(5) {
			words = append(words, s.content(least+s.Uint64N(most-least)))
		}
		list[i] = strings.Join(append(words, s.after), " ")
	}
	return list
}

// Searches in large chats, of 500,000 messages, too, unless -short is given: for common and for rare words, with a bound
// and with a time, and as they run before each answer (needed). Reported are wall and processor times.
func BenchmarkQuestions(b *testing.B) {
	for _, messages := range []int{100_000, 500_000} {
		if messages > 100_000 && testing.Short() {
			continue
		}
		for language := range tongues {
			b.Run(fmt.Sprintf("%d/%s", messages, language), func(b *testing.B) { questions(b, language, messages) })
		}
	}
}

func questions(b *testing.B, language string, messages int) {
	const segment = 1_000
	s := newSpeech(language)
	ix := New(key)
	for some := range slices.Chunk(s.messages(messages), segment) {
		ix.Append(some...)
	}
	common, rare := s.questions(100, 0, 200), s.questions(100, 3_000, 50_000)
	search := func(name string, questions []string, q Query) {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			q.AskedAt = start.AddDate(0, 0, 30)
			var times, used []time.Duration
			for i := 0; b.Loop(); i++ {
				q.Text = questions[i%len(questions)]
				began, had := time.Now(), cpu()
				Search([]*Index{ix}, q)
				times, used = append(times, time.Since(began)), append(used, cpu()-had)
			}
			report(b, times, "ms")
			report(b, used, "cpu-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
	search("common", common, Query{})
	search("rare", rare, Query{})
	search("common-needed", common, Query{Needed: true})
	search("rare-needed", rare, Query{Needed: true})
	search("common-bounded", common, Query{From: start.AddDate(0, 0, 20)})
	timed := make([]string, len(rare))
	for i, q := range common {
		timed[i] = q + " last week"
	}
	search("common-timed", timed, Query{})
}

func report(b *testing.B, times []time.Duration, unit string) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, unit+"/p50")
	b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, unit+"/p95")
}
