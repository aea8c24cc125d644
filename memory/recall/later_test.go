package recall

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// What a made-up chat talks of besides, a message and its reply each.
var talkOf = map[string][]string{
	"en": {
		"Good morning! It rained all night here.", "Then a day for a book. What are you reading?",
		"A novel about a lighthouse keeper who collects clocks.",
		"That sounds quiet and a little strange. Do you like it so far?",
		"The first half is slow, but the clocks are lovely.", "Slow books often pay off in the end.",
		"Can you give me a recipe for lentil soup?",
		"Fry an onion, add lentils, carrots and stock, and let it simmer for half an hour.",
		"I have no carrots, only celery.", "Celery works well, add a spoon of tomato paste for colour.",
		"The soup turned out great, thanks.", "Wonderful. It is even better on the second day.",
		"How do I get candle wax out of a tablecloth?",
		"Freeze it, scrape off what breaks, and iron the rest through paper.",
		"We played cards until midnight yesterday.", "Who won? Late games are the best ones.",
		"My cousin won every round, as usual.", "Some people have all the luck with cards.",
		"I want to learn to whistle with two fingers.",
		"Fold the tongue back with the fingertips and blow over the lip, softly at first.",
		"That did not work, only air.", "It takes most people a week of trying.",
		"Explain compound interest in a sentence.",
		"Interest is paid on the interest of earlier years, too, so that the sum grows faster and faster.",
		"Is it true that bees can count?", "Up to four or five, experiments say.",
		"The concert was live on the radio tonight.", "Live recordings have a charm of their own.",
		"I work better with music on.", "Many do, as long as nobody sings.",
	},
	"ru": {
		"Доброе утро! Всю ночь шёл дождь.", "Значит, день для книги. Что читаете?",
		"Роман о смотрителе маяка, который собирает часы.", "Звучит тихо и немного странно. Нравится?",
		"Первая половина медленная, но часы прекрасны.", "Медленные книги часто вознаграждают в конце.",
		"Дай рецепт чечевичного супа.", "Обжарьте лук, добавьте чечевицу, морковь и бульон, варите полчаса.",
		"Моркови нет, только сельдерей.", "Сельдерей подойдёт, добавьте ложку томатной пасты для цвета.",
		"Суп получился отличный, спасибо.", "Прекрасно. На второй день он ещё вкуснее.",
		"Чем вывести воск со скатерти?", "Заморозьте, соскоблите и прогладьте остаток через бумагу.",
		"Вчера играли в карты до полуночи.", "Кто победил? Поздние партии самые лучшие.",
		"Двоюродный брат выиграл каждую партию, как обычно.", "Некоторым в картах везёт.",
		"Хочу научиться свистеть двумя пальцами.", "Подверните язык кончиками пальцев и дуйте над губой, сначала тихо.",
		"Не получилось, только воздух.", "У большинства на это уходит неделя.",
		"Объясни сложный процент одним предложением.",
		"Проценты платят и на проценты прошлых лет, так что сумма растёт всё быстрее.",
		"Правда, что пчёлы умеют считать?", "До четырёх или пяти, как показывают опыты.",
		"Концерт шёл по радио в прямом эфире.", "У живых записей своё обаяние.",
		"Под музыку работаю лучше.", "Многие тоже, лишь бы никто не пел.",
	},
}

// What one message tells of what an earlier one named is found, though it has no word of the question: what
// changed since, and what the answer needs a second step for.
var later = []struct {
	kind, language, question string
	told                     []string // in this order, far from each other; the last has the answer
}{
	{"update", "en", "Where do I live?", []string{
		"I live in Hamburg, in a small flat with a view of the harbour.",
		"I have been living in Hamburg for nine years by the way, and I still love it.",
		"I moved from Hamburg to Vienna on Friday."}},
	{"update", "en", "Which company do I work for?", []string{
		"I work for Brightwater, a small company that repairs pumps.",
		"There was cake at work, since Brightwater turned thirty.",
		"Brightwater let me go in spring, so I keep the books at Nordlicht."}},
	{"update", "en", "When is my appointment with the dentist?", []string{
		"I made an appointment with the dentist: Dr. Okafor, Tuesday at nine.",
		"Remind me of the dentist on Monday evening, please.",
		"Okafor's practice called, it is Friday at two instead."}},
	{"update", "ru", "Где я живу?", []string{
		"Я живу в Самаре, недалеко от набережной.", "Живу в Самаре уже девять лет и всё равно её люблю.",
		"Переехал из Самары в Казань."}},
	{"update", "ru", "На какой машине я езжу?", []string{
		"Я езжу на старой машине, это Шкода моего деда.", "Машина опять не завелась, Шкода не любит мороз.",
		"Шкоду продал, купил Ниссан."}},
	{"multi-hop", "en", "Where does my sister's husband teach?", []string{
		"My sister has married, her husband is called Tobias.", "My sister and her husband came to dinner.",
		"Tobias got a post at the observatory in Tartu."}},
	{"multi-hop", "en", "What does the school of my daughter cost?", []string{
		"My daughter goes to a new school, it is the Lindenhof.", "My daughter likes her school.",
		"The Lindenhof has raised its fee to 410 euros."}},
	{"multi-hop", "en", "How high is the rent of the studio?", []string{
		"I rent a studio from Mrs. Pelham, it has north light.", "The studio is cold, but the rent includes the stove.",
		"Pelham wants 640 a month from May on."}},
	{"multi-hop", "ru", "Какая собака у моего соседа?", []string{
		"Мой сосед Геннадий завёл собаку, она лает по утрам.", "Собака соседа опять лаяла.",
		"Геннадий гуляет с таксой по кличке Пиксель."}},
	{"multi-hop", "ru", "Где лежит договор с подрядчиком?", []string{
		"Договор с подрядчиком назвали «Сосна», чтобы не путать.", "Подрядчик хвалил договор.",
		"«Сосну» убрал в синюю папку у окна."}},
}

// chatOf is a chat in which some messages stand among many others, and the id of the last of them.
func chatOf(language string, told []string) (ix *Index, last string) {
	ix = New(key)
	n := 0
	say := func(role, text string) {
		last = fmt.Sprintf("m.%d", n)
		ix.Append(said(last, role, text, start.Add(time.Duration(n)*5*time.Hour)))
		n++
	}
	talk := talkOf[language]
	step := len(talk) / (len(told) + 1) / 2 * 2
	var answer string
	for i, text := range told {
		for j, other := range talk[i*step : (i+1)*step] {
			say([]string{memory.RoleUser, memory.RoleAssistant}[j%2], other)
		}
		say(memory.RoleUser, text)
		answer = last
		say(memory.RoleAssistant, map[string]string{"en": "Noted.", "ru": "Понятно."}[language])
	}
	for j, other := range talk[len(told)*step:] {
		say([]string{memory.RoleUser, memory.RoleAssistant}[j%2], other)
	}
	return ix, answer
}

func TestWhatIsNewerOnTheSameIsFound(t *testing.T) {
	for _, c := range later {
		ix, answer := chatOf(c.language, c.told)
		r := ask(ix, c.question)
		i := slices.Index(ids(r), answer)
		if assert.GreaterOrEqual(t, i, 0, "%s: %s", c.kind, c.question) {
			assert.True(t, r.Hits[i].Newer, c.question)
			assert.Equal(t, c.told[len(c.told)-1], r.Hits[i].Text)
		}
		for _, h := range r.Hits {
			assert.False(t, h.Newer && slices.Contains(c.told[:1], h.Text), "what is older than all others")
		}
	}
}

// Only what comes later is newer: the same messages, told the other way round.
func TestWhatIsOlderIsNotCalledNewer(t *testing.T) {
	for _, c := range later {
		told := slices.Clone(c.told)
		slices.Reverse(told)
		ix, _ := chatOf(c.language, told)
		for _, h := range ask(ix, c.question).Hits {
			assert.False(t, h.Newer && h.Text == told[0], c.question)
		}
	}
}

func TestWhatIsNewerKeepsToItsShareAndItsBounds(t *testing.T) {
	ix := New(key)
	ix.Append(said("first", memory.RoleUser, "I live in Hamburg.", start))
	for i := range 60 {
		day := start.AddDate(0, 0, i+1)
		text := fmt.Sprintf("Of w%d they say that people live there for w%d or w%d years, and then they leave.",
			3*i, 3*i+1, 3*i+2)
		ix.Append(said(fmt.Sprintf("live.%d", i), memory.RoleAssistant, text, day))
	}
	for i := range 6 {
		text := strings.Repeat(fmt.Sprintf("word%d ", i), 40) + "by Hamburg."
		ix.Append(said(fmt.Sprintf("h.%d", i), memory.RoleUser, text, start.AddDate(0, 0, 70+i)))
	}
	newer := func(r Result) (tokens int) {
		for _, h := range r.Hits {
			if h.Newer && strings.HasPrefix(h.ID, "h.") {
				tokens += (len(h.Text) + 3) / 4
			}
		}
		return tokens
	}
	r := ask(ix, "Where do I live?")
	assert.Positive(t, newer(r))
	assert.LessOrEqual(t, newer(r), laterTokens)
	characters := 0
	for _, h := range r.Hits {
		characters += len(h.Text)
	}
	assert.LessOrEqual(t, characters, 4*defaultBudget)
	r = Search([]*Index{ix}, Query{Text: "Where do I live?", AskedAt: start.AddDate(1, 0, 0), To: start.AddDate(0, 0, 71)})
	require.NotEmpty(t, r.Hits)
	for _, h := range r.Hits {
		assert.Less(t, h.TS, at(start.AddDate(0, 0, 71)))
	}
	assert.Positive(t, newer(r))
	r = Search([]*Index{ix}, Query{Text: "Where do I live?", AskedAt: start.AddDate(1, 0, 0),
		Visible: func(_ memory.Key, id string) bool { return strings.HasPrefix(id, "h.") }})
	assert.Zero(t, newer(r))
}
