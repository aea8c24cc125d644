package offline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// asked is what the model, as a subagent, says after these questions when the passages were found for the last one.
func asked(t require.TestingT, found []passage, questions ...string) string {
	data, err := json.Marshal(map[string]any{"passages": found})
	require.NoError(t, err)
	raw, err := json.Marshal(searchTool)
	require.NoError(t, err)
	var search tool
	require.NoError(t, json.Unmarshal(raw, &search))
	var messages []message
	for _, q := range questions {
		messages = append(messages, message{Role: "user", Content: content{{Type: "text", Text: q}}})
	}
	result, err := json.Marshal(string(data))
	require.NoError(t, err)
	last := fmt.Sprintf(`[{"role":"assistant","content":[{"type":"tool_use","id":"u","name":%q,"input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":%s}]}]`, search.Name, result)
	var exchange []message
	require.NoError(t, json.Unmarshal([]byte(last), &exchange))
	return decide(&request{Model: "m", Messages: append(messages, exchange...), Tools: []tool{search}}).text
}

// Which of two things a follow-up asks for, and of which of two properties, shows in the answer whatever they are
// called and in whatever order the document has them.
func TestFollowUpsWithWordsNeverSeen(t *testing.T) {
	name := func(label string) *rapid.Generator[string] {
		return rapid.StringMatching(`[bdgklmnprtvz][aou][bdgklmnprtvz][aou]x`)
	}
	rapid.Check(t, func(t *rapid.T) {
		things := rapid.SliceOfNDistinct(name("thing"), 2, 2, rapid.ID[string]).Draw(t, "things")
		facts := map[string][2]string{ // thing → mass, price
			things[0]: {"417 grams", "53 crowns"}, things[1]: {"682 grams", "91 crowns"},
		}
		var text []string
		for _, thing := range rapid.Permutation(things).Draw(t, "order") {
			part := []string{
				fmt.Sprintf("The %s lantern weighs %s.", thing, facts[thing][0]),
				fmt.Sprintf("The %s lantern costs %s.", thing, facts[thing][1]),
			}
			text = append(text, strings.Join(rapid.Permutation(part).Draw(t, "sentences"), " "))
		}
		found := []passage{{N: 1, Title: "Lanterns", Text: strings.Join(text, rapid.SampledFrom([]string{" ", "\n\n"}).Draw(t, "between"))}}
		first, second := things[0], things[1]
		property := rapid.IntRange(0, 1).Draw(t, "property")
		verb := []string{"weigh", "cost"}
		dialogue := []string{
			fmt.Sprintf("How much does the %s lantern %s?", first, verb[property]),
			rapid.SampledFrom([]string{"And the %s one?", "And the %s lantern?", "What about the %s lantern?", "How about the %s lantern?"}).Draw(t, "opening"),
			fmt.Sprintf("How much does it %s?", verb[1-property]),
			fmt.Sprintf("And the %s lantern?", first),
		}
		dialogue[1] = fmt.Sprintf(dialogue[1], second)
		for n, want := range []string{facts[first][property], facts[second][property], facts[second][1-property], facts[first][1-property]} {
			got := asked(t, found, dialogue[:n+1]...)
			require.True(t, strings.Contains(got, want), "%q: %s", dialogue[:n+1], got)
			require.Equal(t, 1, strings.Count(got, "[1]"), "one sentence is enough: %q: %s", dialogue[:n+1], got)
		}
	})
}

// What a follow-up names must be there: the answer to the question before is no answer to it.
func TestAFollowUpAboutWhatIsNotThere(t *testing.T) {
	found := []passage{{N: 1, Title: "Rooms", Text: "The garden room costs 80 crowns. The tower room costs 140 crowns."}}
	for _, last := range []string{"And the cellar?", "What about the attic room?", "And the boathouse?"} {
		require.Contains(t, asked(t, found, "How much does the garden room cost?", last), unknownEN, last)
	}
	found = []passage{{N: 1, Title: "Тарифы", Text: "Базовый тариф стоит 300 рублей. Полный тариф стоит 900 рублей."}}
	for _, last := range []string{"А семейный?", "А для студентов?"} {
		require.Contains(t, asked(t, found, "Сколько стоит базовый тариф?", last), unknownRU, last)
	}
}

// A heading says what the sentences below it are about, and is no answer.
func TestHeadingsAreNoAnswers(t *testing.T) {
	found := []passage{{N: 1, Title: "House", Text: "Garden room\n\nIt costs 80 crowns a night.\n\nTower room\n\nIt costs 140 crowns a night."}}
	require.Contains(t, asked(t, found, "How much does the tower room cost?"), "140 crowns")
	require.Contains(t, asked(t, found, "How much does the tower room cost?", "And the garden room?"), "80 crowns")
	require.NotContains(t, asked(t, found, "How much does the tower room cost?", "And the garden room?"), "140")
	// Nor does the first row of a table.
	found = []passage{{N: 1, Title: "Harbour", Text: "Limits of boats:\n\n| limit | metres |\n| --- | --- |\n| length | 40 |\n| draught | 3 |\n\nOn limits nobody argues."}}
	require.Equal(t, "draught – 3 [1] (Harbour)", asked(t, found, "What is the limit of draught?"))
	require.Equal(t, "length – 40 [1] (Harbour)", asked(t, found, "What is the limit of draught?", "And of length?"))
	// Nor is code, if a sentence says it.
	found = []passage{{N: 1, Title: "Status", Text: "{\"code\": 3, \"stale\": true,\n\nWhat is stale was loaded before."}}
	require.Equal(t, "What is stale was loaded before. [1] (Status)", asked(t, found, "What does stale mean?"))
	// A list is none of headings.
	found = []passage{{N: 1, Title: "Packing", Text: "For the sea:\n\n- a woollen jacket\n\n- rubber boots"}}
	require.Contains(t, asked(t, found, "Are rubber boots packed?"), "rubber boots")
}
