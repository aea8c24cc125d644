package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// turn is what a user says, and what the answer must hold and must not.
type turn struct{ say, doc, want, not string }

// conversations are about documents; most questions mean nothing without those
// before them.
var conversations = map[string]struct {
	documents map[string]string
	turns     []turn
}{
	"rooms": {
		map[string]string{
			"rooms.md": "# Rooms\n\n## Garden room\n\nThe garden room costs 80 crowns a night. It sleeps two guests. A small terrace belongs to it.\n\n" +
				"## Tower room\n\nThe tower room costs 140 crowns a night. It sleeps four guests. From its window one sees the lake.",
			"boats.md": "# Boats\n\nA rowing boat costs 12 crowns an hour. Guests of the hotel row for free on Sundays.",
		},
		[]turn{
			{"Ask the knowledge subagent: how much does the garden room cost?", "rooms.md", "80 crowns", "140"},
			{"And the tower room?", "rooms.md", "140 crowns", "80"},
			{"How many guests does it sleep?", "rooms.md", "four guests", "two"},
			{"And the garden room?", "rooms.md", "two guests", "80 crowns"},
			{"What about a rowing boat, how much does it cost?", "boats.md", "12 crowns", "140"},
		},
	},
	"ferries": {
		map[string]string{
			"north.md": "# Northern line\n\nThe first ferry leaves the pier at 7:10. The second ferry leaves the pier at 9:40. The last ferry leaves the pier at 21:15.\n\n" +
				"Bicycles travel on the second ferry only.",
			"south.md": "# Southern line\n\nThe bus leaves the square at 8:00. A bus ticket is valid for two hours.",
		},
		[]turn{
			{"Ask the knowledge subagent when the first ferry leaves the pier.", "north.md", "7:10", "9:40"},
			{"And the second one?", "north.md", "9:40", "7:10"},
			{"What about the last one?", "north.md", "21:15", "7:10"},
			{"And the bus?", "south.md", "8:00", "21:15"},
			{"How long is its ticket valid?", "south.md", "two hours", "7:10"},
		},
	},
	"тарифы": {
		map[string]string{
			"тарифы.md": "# Тарифы\n\n## Базовый\n\nБазовый тариф стоит 300 рублей в месяц. Поддержка базового тарифа отвечает за три дня.\n\n" +
				"## Полный\n\nПолный тариф стоит 900 рублей в месяц. Поддержка полного тарифа отвечает за четыре часа.",
			"доставка.md": "# Доставка\n\nКурьер привозит заказ за два дня. Доставка стоит 150 рублей.",
		},
		[]turn{
			{"Спроси у подагента knowledge, сколько стоит базовый тариф?", "тарифы.md", "300 рублей", "900"},
			{"А полный?", "тарифы.md", "900 рублей", "300"},
			{"Как быстро отвечает его поддержка?", "тарифы.md", "четыре часа", "три дня"},
			{"А у базового?", "тарифы.md", "три дня", "четыре"},
			{"А сколько стоит доставка?", "доставка.md", "150 рублей", "900"},
		},
	},
	"отпуск": {
		map[string]string{
			"отпуск.md": "# Отпуск\n\nСотрудник цеха отдыхает 28 дней в году. Сотрудник конторы отдыхает 24 дня в году. Заявление подают за две недели.\n\n" +
				"## Больничный\n\nБольничный лист приносят в день выхода. Его оплачивает касса предприятия.",
			"столовая.md": "# Столовая\n\nСтоловая открывается в одиннадцать часов. Обед стоит 250 рублей, ужин стоит 180 рублей.",
		},
		[]turn{
			{"Спроси у подагента knowledge, сколько дней отдыхает сотрудник цеха?", "отпуск.md", "28 дней", "24"},
			{"А сотрудник конторы?", "отпуск.md", "24 дня", "28"},
			{"За сколько подают заявление?", "отпуск.md", "две недели", "28"},
			{"А больничный лист когда приносят?", "отпуск.md", "день выхода", "недели"},
			{"Во сколько открывается столовая?", "столовая.md", "одиннадцать", "выхода"},
		},
	},
	"telescope": {
		map[string]string{
			"scopes.md": "# Telescopes\n\nThe north dome houses the Halden telescope. Its mirror measures 1.2 metres. Students use it on Tuesdays.\n\n" +
				"The south dome houses the Corvo telescope. Its mirror measures 3.5 metres. Students use it on Fridays.",
			"visits.md": "# Visits\n\nVisitors climb the hill on foot. The guided tour takes ninety minutes. Children pay half.",
		},
		[]turn{
			{"Ask the knowledge subagent which telescope the north dome houses.", "scopes.md", "Halden", "Corvo"},
			{"And the south dome?", "scopes.md", "Corvo", "Halden"},
			{"When do students use the Halden telescope?", "scopes.md", "Tuesdays", "Fridays"},
			{"And the Corvo telescope?", "scopes.md", "Fridays", "Tuesdays"},
			{"How long does the guided tour take?", "visits.md", "ninety minutes", "Fridays"},
		},
	},
	"letters": {
		map[string]string{
			"parcels.txt": "A letter to Norway takes three days. A letter to Japan takes eight days. Parcels are weighed at the counter. " +
				"The counter in Hill Street closes at 18:00, and the counter in Mill Street closes at 20:00.",
			"stamps.txt": "Stamps for a postcard cost 90 cents. Stamps for a letter cost 120 cents.",
		},
		[]turn{
			{"Ask the knowledge subagent: how many days does a letter to Norway take?", "parcels.txt", "three days", "eight"},
			{"And to Japan?", "parcels.txt", "eight days", "three"},
			{"How much do stamps for a postcard cost?", "stamps.txt", "90 cents", "120"},
			{"And for a letter?", "stamps.txt", "120 cents", "90"},
			{"Where are parcels weighed?", "parcels.txt", "at the counter", "cents"},
		},
	},
	"clinic, with no subagent named": {
		map[string]string{
			"clinic.md": "# Clinic\n\n## Opening hours\n\nThe clinic is open from 8:00 to 17:00 on weekdays. On Saturdays it is open from 9:00 to 12:00.\n\n" +
				"## Prices\n\n| service | price |\n| --- | --- |\n| first visit | 40 euros |\n| second visit | 25 euros |\n| blood test | 18 euros |",
			"doctors.md": "# Doctors\n\nDr. Haldane treats children. Her room is on the second floor. Dr. Okoye treats eyes. His room is on the third floor.",
		},
		[]turn{
			{"When is the clinic open on weekdays?", "clinic.md", "17:00", "12:00"},
			{"And on Saturdays?", "clinic.md", "12:00", "17:00"},
			{"How much is the first visit?", "clinic.md", "40 euros", "25"},
			{"And the second one?", "clinic.md", "25 euros", "40"},
			{"Who treats eyes?", "doctors.md", "Okoye", "Haldane"},
			{"Where is his room?", "doctors.md", "third floor", "second"},
		},
	},
	"bakery": {
		map[string]string{
			"bread.md": "# Bread\n\nRye bread weighs 900 grams. Rye bread keeps fresh for six days. Wheat bread weighs 500 grams. Wheat bread keeps fresh for two days.",
			"cake.md":  "# Cake\n\nHoney cake weighs 1200 grams. Honey cake contains walnuts. Lemon cake contains almonds.",
		},
		[]turn{
			{"Ask the knowledge subagent: how long does rye bread keep fresh?", "bread.md", "six days", "two days"},
			{"And wheat bread?", "bread.md", "two days", "six"},
			{"How much does it weigh?", "bread.md", "500 grams", "900"},
			{"And honey cake?", "cake.md", "1200 grams", "500"},
			{"Which nuts does it contain?", "cake.md", "walnuts", "almonds"},
		},
	},
}

// Five turns and more through the public door, with the offline model: each is answered
// from the right sentence of the right passage.
func TestFollowUpsAreAnsweredFromTheRightSentence(t *testing.T) {
	for name, c := range conversations {
		t.Run(name, func(t *testing.T) {
			u := start(t, "MNEME_DATA_DIR="+t.TempDir())
			u.load(c.documents)
			for _, turn := range c.turns {
				a := u.ask("1", turn.say)
				require.NotEmpty(t, a.Citations, "%s: %s", turn.say, a.Content)
				require.Equal(t, turn.doc, a.Citations[0].DocID, "%s: %s", turn.say, a.Content)
				require.Contains(t, a.Content, turn.want, turn.say)
				require.NotContains(t, a.Content, turn.not, turn.say)
			}
		})
	}
}
