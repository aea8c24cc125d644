package conversations

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/scripts/eval/internal/judged"
)

// textbook is BM25 over messages with their speakers: words in lower case, no stems, no stopwords.
type textbook struct {
	messages []Message
	bm25     *judged.BM25
}

func newTextbook(messages []Message) *textbook {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = m.Text
		if m.Name != "" {
			texts[i] = m.Name + ": " + m.Text
		}
	}
	return &textbook{messages, judged.NewBM25(texts, words)}
}

// words are runs of letters, digits and underscores, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r)
	})
}

// rank gives the messages that share a word with a question, best first.
func (t *textbook) rank(question string) []Hit {
	return t.hits(t.bm25.Rank(question, cmp.Compare[int]))
}

func (t *textbook) hits(order []int) []Hit {
	hits := make([]Hit, len(order))
	for i, index := range order {
		hits[i] = Hit{ID: t.messages[index].ID, Text: t.messages[index].Text}
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
