package offline

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// grammarWords are the words on which the model's reading turns, so that random texts of them reach every branch.
func grammarWords() []string {
	all := []string{"Aliya", "analytic", "knowledge", "Bob's", "Алия", "аналитику", "кошек", "врачом", "42", "2026-05-01", "31 декабря", "Christmas",
		"mine", "ours", "a", "for", "called", "years", "лет", "days", "дней", "«", "»", "\"", "*", "+", "(", ")", "✓", "@"}
	for _, set := range []map[string]bool{interrogatives, auxiliaries, selfWords, thirdWords, genericNouns, commands, negations, itWords, ruPrepositions,
		exclamations, possession, categoryWords, kindWords, formerWords} {
		all = append(all, slices.Collect(maps.Keys(set))...)
	}
	sets := []phraseSet{fillers, openers, sequencers, joiners, askMe, corrections, partings, knows, that, mustKnow, greetings, imperatives, coordinators}
	for _, set := range append(sets, slices.Collect(maps.Values(directives))...) {
		for _, list := range set {
			for _, p := range list {
				all = append(all, strings.Join(p, " "))
			}
		}
	}
	for w := range maps.Values(relations) {
		all = append(all, strings.Fields(w)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Any text is answered, by a master and by a subagent, after any other text.
func TestAnyTextIsAnswered(t *testing.T) {
	vocabulary := grammarWords()
	toolsOf := func(tools ...simTool) []tool {
		data, err := json.Marshal(tools)
		require.NoError(t, err)
		var out []tool
		require.NoError(t, json.Unmarshal(data, &out))
		return out
	}
	kits := [][]tool{toolsOf(simAgents...), toolsOf(calcTool, dateTool), toolsOf(searchTool), nil}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom(vocabulary)
		mark := rapid.SampledFrom([]string{" ", " ", " ", " ", ", ", ". ", "? ", ": ", " — ", "\n", "! "})
		var messages []message
		for range rapid.IntRange(1, 3).Draw(t, "messages") {
			var sb strings.Builder
			for range rapid.IntRange(1, 14).Draw(t, "words") {
				sb.WriteString(word.Draw(t, "word"))
				sb.WriteString(mark.Draw(t, "mark"))
			}
			messages = append(messages, message{Role: "user", Content: content{{Type: "text", Text: sb.String()}}})
		}
		rep := decide(&request{Model: "m", Messages: messages, Tools: rapid.SampledFrom(kits).Draw(t, "kit")})
		require.True(t, rep.text != "" || len(rep.calls) > 0)
	})
}
