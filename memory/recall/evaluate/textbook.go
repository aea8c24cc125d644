package evaluate

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textbook is BM25 as textbooks have it (Okapi, Robertson and Zaragoza 2009), over
// messages with their speakers: words in lower case, no stems, no stopwords.
type textbook struct {
	messages []Message
	counts   []map[string]int
	lengths  []int
	average  float64
	in       map[string]int // in how many messages a word stands
}

// The usual parameters.
const (
	k1 = 1.2
	b  = 0.75
)

func newTextbook(messages []Message) *textbook {
	t := &textbook{messages: messages, in: map[string]int{}}
	for _, m := range messages {
		text := m.Text
		if m.Name != "" {
			text = m.Name + ": " + text
		}
		counts, n := map[string]int{}, 0
		for _, w := range words(text) {
			counts[w]++
			n++
		}
		for w := range counts {
			t.in[w]++
		}
		t.counts, t.lengths = append(t.counts, counts), append(t.lengths, n)
		t.average += float64(n) / float64(len(messages))
	}
	return t
}

// words are runs of letters, digits and underscores, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r)
	})
}

// rank gives the messages that share a word with a question, best first.
func (t *textbook) rank(question string) []Hit {
	scores := make([]float64, len(t.messages))
	for _, w := range words(question) {
		df := float64(t.in[w])
		idf := math.Log(1 + (float64(len(t.messages))-df+0.5)/(df+0.5))
		for i, counts := range t.counts {
			if tf := float64(counts[w]); tf > 0 {
				scores[i] += idf * tf * (k1 + 1) / (tf + k1*(1-b+b*float64(t.lengths[i])/t.average))
			}
		}
	}
	var order []int
	for i, score := range scores {
		if score > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case scores[i] > scores[j]:
			return -1
		case scores[i] < scores[j]:
			return 1
		}
		return 0
	})
	return t.hits(order)
}

func (t *textbook) hits(order []int) []Hit {
	hits := make([]Hit, len(order))
	for i, at := range order {
		hits[i] = Hit{ID: t.messages[at].ID, Text: t.messages[at].Text}
	}
	return hits
}

// window is the newest messages, newest first.
func (t *textbook) window() []Hit {
	var order []int
	for i := range t.messages {
		order = append(order, len(t.messages)-1-i)
	}
	return t.hits(order)
}

// fitting are the first hits that fit into a budget, up to the first that does not.
func fitting(hits []Hit, budget int) []Hit {
	characters := 0
	for i, h := range hits {
		if characters += utf8.RuneCountInString(h.Text); tokens(characters) > budget {
			return hits[:i]
		}
	}
	return hits
}

// tokens is how many tokens characters count as.
func tokens(characters int) int { return (characters + 3) / 4 }
