package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"mneme/memory/textindex"
)

// The shape of the made-up texts.
const (
	vocabulary  = 80_000
	perDocument = 4   // passages
	passageMin  = 60  // words
	passageMax  = 180 // words
	turns       = 3   // of the conversation before every other query
	questionMin = 3   // words
	questionMax = 12  // words
)

// texts makes documents and queries whose words are about as frequent as those of
// English without its stopwords: the commonest stands in every second passage, the
// hundredth in every tenth. It makes the same ones in every run.
type texts struct {
	random *rand.Rand
	words  *rand.Zipf
	asked  int
}

func newTexts() *texts {
	r := rand.New(rand.NewPCG(1, 2))
	return &texts{random: r, words: rand.NewZipf(r, 1.01, 30, vocabulary-1)}
}

func (t *texts) document(number, passages int) textindex.Document {
	d := textindex.Document{ID: documentID(number), Title: t.text(3, 8)}
	section := t.text(2, 5)
	for range passages {
		d.Passages = append(d.Passages, textindex.Passage{Section: section, Text: t.text(passageMin, passageMax)})
	}
	return d
}

func documentID(number int) string { return fmt.Sprintf("document-%06d", number) }

// query is a question; every other one has a conversation before it.
func (t *texts) query() textindex.Query {
	q := textindex.Query{Text: t.text(questionMin, questionMax), Limit: 10}
	if t.asked++; t.asked%2 == 0 {
		return q
	}
	for range turns {
		q.History = append(q.History,
			textindex.Message{Role: textindex.RoleUser, Text: t.text(questionMin, questionMax)},
			textindex.Message{Role: textindex.RoleAssistant, Text: t.text(passageMin, passageMax)})
	}
	return q
}

// text has from least to most words.
func (t *texts) text(least, most int) string {
	var b strings.Builder
	for i := range least + t.random.IntN(most-least+1) {
		if i > 0 {
			b.WriteByte(' ')
		}
		t.word(&b)
	}
	return b.String()
}

// word writes a word of syllables, the frequent ones being short.
func (t *texts) word(b *strings.Builder) {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	for n := t.words.Uint64() + 1; n > 0; n /= uint64(len(consonants) * len(vowels)) {
		syllable := int(n % uint64(len(consonants)*len(vowels)))
		b.WriteByte(consonants[syllable%len(consonants)])
		b.WriteByte(vowels[syllable/len(consonants)])
	}
}
