package textindex

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// spellings are short questions and the texts that they should find. Users ask in a word or two, without accents, and
// write numbers, codes and names in their own way.
var spellings = map[string][][2]string{
	"short questions": {
		{"Fahrrad", "Morgen hole ich unsere Fahrräder aus dem Keller."},
		{"reservas", "Hice una reserva para dos personas."},
		{"chevaux", "Elle garde un cheval dans la grange."},
		{"Häuser kaufen", "Der Kauf des Hauses war teuer."},
		{"kitaplar", "Kitabımı trende unuttum."},
		{"książki", "Zgubiłem moją książkę w pociągu."},
		{"fiets gestolen", "Iemand heeft mijn fietsen gestolen."},
		{"bicicletta rubata", "Mi hanno rubato le biciclette ieri."},
		{"båtar", "Vi köpte en båt i somras."},
		{"médicaments", "Il prend un médicament chaque matin."},
		{"переплатил", "Мы переплачивали за интернет целый год."},
		{"заказывал пиццу", "Вчера я заказал две пиццы на ужин."},
	},
	"accents": {
		{"manana malaga", "Mañana viajamos a Málaga en tren."},
		{"the cafe of Zoe", "We met in the café that Zoë likes."},
		{"where is the fiancee", "The fiancée of Tom arrives at noon."},
		{"ecole", "L'école ferme à midi."},
		{"Muenchen", "Im Mai fahren wir nach München."},
		{"Strasse", "Die Straße ist gesperrt."},
		{"what did Goekhan say", "Gökhan said that the rent went up."},
		{"Lodz", "The conference is in Łódź this year."},
		{"resume of the candidate", "The candidate sent her résumé today."},
		{"Sao Paulo", "Ele mora em São Paulo."},
		{"елки", "Мы купили ёлку."},
		{"Istanbul", "İstanbul'a uçuyoruz."},
		{"Café", "The cafe opens at nine."},
		{"Zürich", "We land in Zuerich at ten."},
	},
	"numbers": {
		{"1050", "The fee is 1,050 crowns."},
		{"1,050", "The fee is 1050 crowns."},
		{"12500", "Der Preis beträgt 12 500 Euro."},
		{"1050", "Die Miete beträgt 1.050 Euro."},
		{"1.050", "Die Miete beträgt 1050 Euro."},
		{"1.050.000", "O orçamento é de 1050000 reais."},
		{"12 500", "Der Preis beträgt 12.500 Euro."},
		{"٤٥٦٧", "My locker is 4567."},
		{"4567", "رقم خزانتي ٤٥٦٧"},
		{"5mm", "Use the 5 mm drill."},
		{"5 mm", "Use the 5mm drill."},
		{"+49 30 1234567", "Call me at +49301234567."},
		{"+49301234567", "Call me at +49 30 1234567."},
		{"555-0123", "Her number is 5550123."},
		{"DE89 3704 0044 0532 0130 00", "IBAN DE89370400440532013000"},
		{"DE89370400440532013000", "IBAN DE89 3704 0044 0532 0130 00"},
	},
	"codes": {
		{"AB12345X", "The order AB-12345-X has shipped."},
		{"AB-12345-X", "The order AB12345X has shipped."},
		{"AB 12345 X", "The order AB-12345-X has shipped."},
		{"wifi", "The Wi-Fi password is on the door."},
		{"Wi-Fi", "The wifi password is on the door."},
		{"email", "Send it by e-mail please."},
		{"get user name", "Call getUserName before you draw."},
		{"getUserName", "The function get_user_name is slow."},
		{"username", "The field userName is empty."},
		{"HTTPServer", "An http server listens there."},
		{"covid19", "She had COVID-19 in May."},
		{"GPT4", "We moved to GPT-4 in spring."},
		{"B12", "Take vitamin B-12 daily."},
	},
	"words that are usually left out": {
		{"Что мне нельзя есть?", "Мне нельзя есть орехи."},
		{"to be or not to be", "To be or not to be, that was the play."},
	},
}

// distractors fill a collection of several languages.
var distractors = []string{
	"The weather was fine and we walked along the river.", "Das Treffen beginnt um drei Uhr.", "Hier soir, le chat dormait.",
	"Завтра будет дождь.", "El perro duerme todo el día.", "My order 777 came on Monday.", "Il treno parte alle otto.",
	"Yarın toplantı var.", "القطة تنام طوال اليوم", "The server was restarted twice.", "Pies śpi cały dzień.", "De kat slaapt.",
	"The number of guests is 40.", "User accounts are reviewed each year.", "Das Haus am See.", "Der Preis ist heiß.",
	"The play was long.", "Мы едим суп.", "Code review is at 5.", "He said that the fee is high.",
}

func TestShortQuestionsAndSpellingsFindTheirText(t *testing.T) {
	t.Parallel()
	for kind, pairs := range spellings {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, pair := range pairs {
				all := NewCollection()
				for i, text := range append(slices.Clone(distractors), pair[1]) {
					all.Put(Document{ID: fmt.Sprint(i), Passages: []Passage{{Text: text}}})
				}
				found := all.Search(Query{Text: pair[0], Limit: 1})
				if len(found.Hits) == 0 || found.Hits[0].Document != fmt.Sprint(len(distractors)) {
					t.Errorf("%q does not find %q", pair[0], pair[1])
				}
			}
		})
	}
	require.NotEmpty(t, spellings)
}

// A word of two languages would make each short text of the one a text of the other.
func TestFunctionWordsAreOfOneLanguage(t *testing.T) {
	t.Parallel()
	for word := range foreignWords {
		require.False(t, stopwords[word], word)
	}
}
