package evaluate

import (
	"math/rand/v2"
	"strings"

	"mneme/memory"
)

// afterOthers is what is added to the name of a wording whose queries come behind
// conversations on other topics.
const afterOthers = ", after other topics"

// Of the conversations on other topics there are 1 to mostTopics before a query, and
// each ends with an answer, the first answerBytes of a document that is relevant to it.
const (
	mostTopics  = 10
	answerBytes = 300
)

// afterOthers gives the queries of a wording, each in a chat that was about something
// else before: other queries of the wording with their conversations and answers, none
// with a relevant document in common. What is chosen is the same on every run.
func (s *Set) afterOthers(f form) form {
	texts := s.texts()
	random := rand.New(rand.NewPCG(1, 2))
	later := form{name: f.name + afterOthers}
	for _, q := range f.queries {
		var earlier []memory.Message
		for range 1 + random.IntN(mostTopics) {
			other := f.queries[random.IntN(len(f.queries))]
			if s.onTopicOf(q, other) {
				continue
			}
			earlier = append(earlier, other.history...)
			earlier = append(earlier, memory.Message{Role: memory.RoleUser, Content: other.text},
				memory.Message{Role: memory.RoleAssistant, Content: s.answer(other, texts)})
		}
		later.queries = append(later.queries, query{q.id, q.text, append(earlier, q.history...)})
	}
	return later
}

// onTopicOf says whether two queries have a relevant document or a conversation's
// first turn in common.
func (s *Set) onTopicOf(q, other query) bool {
	for id, grade := range s.grades[q.id] {
		if grade > 0 && s.grades[other.id][id] > 0 {
			return true
		}
	}
	return q.opening() == other.opening()
}

func (q query) opening() string {
	if len(q.history) > 0 {
		return q.history[0].Content
	}
	return q.text
}

// answer is the beginning of the relevant document that comes first in the set.
func (s *Set) answer(q query, texts func(id string, passage int) string) string {
	for _, d := range s.documents {
		if s.grades[q.id][d.ID] > 0 {
			text := texts(d.ID, 0)
			return strings.ToValidUTF8(text[:min(len(text), answerBytes)], "")
		}
	}
	return ""
}
