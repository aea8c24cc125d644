package offline

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func cited(t *testing.T, status, question string, passages ...passage) string {
	t.Helper()
	for i := range passages {
		passages[i].N, passages[i].Source = i+1, string(rune('a'+i))
	}
	raw, err := json.Marshal(map[string]any{"status": status, "passages": passages})
	require.NoError(t, err)
	return cite(keys(question), string(raw), langOf(question))
}

// The search's order counts, and what it is sure of needs to share little with the question.
func TestCitedIsWhatTheSearchPutFirst(t *testing.T) {
	stove := passage{
		Title: "Stove", Text: "Open the lower flap before lighting. Coal burns for nine hours, wood for three.",
	}
	tiles := passage{Title: "Tiles", Text: "The stove was lined with green tiles. Nobody knows who fired them."}
	require.Equal(t, "Coal burns for nine hours, wood for three. [1] (a)",
		cited(t, "ok", "For how many hours does coal keep the old stove of the guest house warm?", stove, tiles))
	require.Equal(t, notInDocs.in(en),
		cited(t, "weak", "For how many hours does coal keep the old stove of the guest house warm?", stove, tiles))
	require.Equal(t, notInDocs.in(en), cited(t, "ok", "Who painted the ceiling of the chapel?", stove, tiles))
	require.Equal(t, "The stove was lined with green tiles. [2] (b)",
		cited(t, "ok", "Who fired the green tiles of the stove?", stove, tiles), "it fits much better")
}

// A quote is a sentence, not a line of it, not the heading above it, and not a row of a table; there is none where no
// sentence shares a word with the question.
func TestAQuoteIsASentence(t *testing.T) {
	for question, want := range map[string]string{
		"Where do I copy the font file on Linux?": "Copy the font file to a directory that is read by the font server, in " +
			"most cases the directory /usr/local/share/fonts will do.",
		"How is the font removed?": "- To remove a font, delete its file and log in again, which may take " +
			"a while on old machines.",
		"What does the table of sizes hold?": "",
		"How long is the ferry's cabin?":     "",
	} {
		p := passage{Text: `FONTS ON LINUX

  Copy the font file to a directory that is read by the font
  server, in most cases the directory
  /usr/local/share/fonts will do. Users of a desktop see it at once.
  - To remove a font, delete its file and log in again, which may
    take a while on old machines.
| table of sizes | 12 | 14 |
`}
		weight, rare := weigh(keys(question), p)
		require.Equal(t, want, quote(weight, rare, p), question)
	}
}

// A question is about the user where it asks for a matter of theirs, not where it merely has the word I, or a Russian
// word that ends like a verb.
func TestAQuestionThatTheDocumentsMayAnswer(t *testing.T) {
	for _, text := range []string{
		"Where do I copy the font file on Linux?", "When do we have to renew the licence?",
		"Какую сумму платят за канал?", "Почему закрыли маяк?",
		"Which numbers does the user of the panel have to remember exactly?",
	} {
		c := newChat(t)
		c.say("My name is Aliya.")
		steps := c.say(text).steps
		require.NotEmpty(t, steps, text)
		require.Equal(t, "knowledge", steps[len(steps)-1].agent, text)
	}
	c := newChat(t)
	for _, text := range []string{"What is my name?", "Где я живу?", "When is my birthday?"} {
		for _, step := range c.say(text).steps {
			require.Equal(t, "analytic", step.agent, text)
		}
	}
}
