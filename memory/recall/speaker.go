package recall

import (
	"slices"

	"mneme/memory"
	"mneme/memory/textindex"
)

const (
	// speakerFavor is the factor for messages of the speaker that a question asks about. It was chosen on judged
	// conversations.
	speakerFavor = 2.5
	// maxNames bounds the names that are compared with a question. With more of them no speaker is selected.
	maxNames = 1000
)

// speaker selects the messages of a name or of a role. The zero value selects none.
type speaker struct{ role, name string }

// speakerOf returns the speaker that a question asks about: the only one whose name it has. Of a chat with at most one
// name, it is the user if the question has a word such as "my".
func speakerOf(indexes []*Index, question string) (who speaker) {
	names := map[string]bool{}
	for _, ix := range indexes {
		if ix.addNames(names); len(names) > maxNames {
			return speaker{}
		}
	}
	terms := textindex.Terms(question)
	for name := range names {
		if !slices.ContainsFunc(textindex.Terms(name), func(term string) bool { return slices.Contains(terms, term) }) {
			continue
		}
		if who.name != "" {
			return speaker{}
		}
		who.name = name
	}
	own := slices.ContainsFunc(wordsIn(question), func(w string) bool { return clues.has(w, "o") })
	if who.name == "" && len(names) <= 1 && own {
		who.role = memory.RoleUser
	}
	return who
}

// addNames adds the names of the speakers, and stops when there are more than maxNames.
func (ix *Index) addNames(names map[string]bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for name := range ix.names {
		if names[name] = true; len(names) > maxNames {
			return
		}
	}
}

func (s speaker) matches(e *entry) bool {
	return s.name != "" && e.name == s.name || s.role != "" && e.role == s.role
}
