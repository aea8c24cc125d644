package recall

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// life is a history in which some people and things occur.
func life() *Index {
	return told("My sister Anna moved to Lisbon, her dog is called Rex.",
		"I spilled wine at the Crooked Spoon on Bank Street.",
		"My dentist is Novak, I see him on Mondays.", "We decided to use Postgres for the billing service.",
		"Меня зовут Алия, я работаю медсестрой в Казани.", "Мама подарила мне камертон.")
}

func shownFor(text string) []string {
	return ids(Search([]*Index{life()}, Query{Text: text, AskedAt: start.AddDate(0, 1, 0), Needed: true}))
}

func TestWhatNeedsMemoryFindsIt(t *testing.T) {
	for _, text := range []string{
		"Who is my dentist?", "what's my sister's dog called", "Book me a table at the place where I spilled the wine",
		"remind me what we decided about billing", "Which database did we settle on for the billing service?",
		"Write Anna's new city on the envelope, the same as in my list", "как меня зовут", "Кем я работаю?",
		"что мама мне подарила",
	} {
		assert.NotEmpty(t, shownFor(text), text)
		assert.True(t, MayNeed(text), text)
	}
}

func TestWhatNeedsNoMemoryFindsNothing(t *testing.T) {
	for _, text := range []string{
		"", " \n", "?", "...", "```\nmy sister Anna\n```", "> my sister Anna moved to Lisbon", "https://example.com/?q=my+dentist",
		"Thanks!", "ok", "Привет!", "How are you?", "как дела?", "What is the capital of Portugal?", "how does a dentist drill work",
		"Explain what Postgres is", "I had a nice day.", "Сегодня был хороший день", "What about you, do you like dogs?",
		"Translate into French: My sister Anna moved to Lisbon and her dog is called Rex.", "Write a poem about wine",
		"\xff\xfe?", strings.Repeat("?", 100_000), strings.Repeat("my ", 10),
	} {
		assert.Empty(t, shownFor(text), text)
	}
}

// What is asked stands before or behind what is pasted.
func TestWhatIsNeededStandsAroundPastedText(t *testing.T) {
	pasted := strings.Repeat("Many words are pasted here, and they ask nothing. ", 50_000)
	require.False(t, MayNeed(pasted))
	for _, text := range []string{pasted + "Who is my dentist?", "Who is my dentist?\n" + pasted} {
		require.True(t, MayNeed(text))
	}
	require.Equal(t, ids(ask(life(), "Who is my dentist?"))[0], ids(ask(life(), pasted+"Who is my dentist?"))[0])
}

// A vector is near to something always, so it cannot make a need.
func TestAVectorIsNoNeed(t *testing.T) {
	ix := life()
	q := Query{Text: "What is the capital of Portugal?", AskedAt: start.AddDate(0, 1, 0), Needed: true}
	q.Vector = []float32{1, 0}
	require.Empty(t, Search([]*Index{ix}, q).Hits)
	require.Empty(t, Search(nil, Query{Text: "Who is my dentist?", Needed: true}).Hits)
}
