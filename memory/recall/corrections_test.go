package recall

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"mneme/memory"
)

// A fact, what its speaker says next about it, and a question that has no word of the correction.
var corrected = []struct{ question, fact, correction string }{
	{"When is the meeting with Ms Krüger?", "The meeting with Ms Krüger is on Wednesday.", "No, Thursday, my mistake."},
	{"What is the code of the garage?", "The code of the garage is 4417.", "Sorry, 4471."},
	{"Who waters the plants in August?", "Piet waters the plants in August.", "Actually it will be Lena."},
	{"Wann ist der Termin beim Zahnarzt?", "Der Termin beim Zahnarzt ist am Montag.", "Nein, am Dienstag, mein Fehler."},
	{"Wo steht das Auto?", "Das Auto steht in der Parkstraße.", "Quatsch, ich meinte die Gartenstraße."},
	{"Когда встреча с юристом?", "Встреча с юристом в среду.", "Нет, в четверг, я ошибся."},
	{"Какой пароль от склада?", "Пароль от склада 5512.", "Вернее, 5521."},
	{"¿Cuándo es la cita con el médico?", "La cita con el médico es el lunes.", "No, el martes, me equivoqué."},
	{"¿Dónde vive mi hermana?", "Mi hermana vive en Bilbao.", "Perdón, quise decir Burgos."},
	{"Quand est la réunion avec Paul ?", "La réunion avec Paul est mardi.", "Non, mercredi, mon erreur."},
	{"Quel est le code du garage ?", "Le code du garage est 8813.", "Pardon, c'est 8831."},
	{"Quando è la riunione con Marta?", "La riunione con Marta è giovedì.", "Anzi, venerdì."},
	{"Qual è il numero della stanza?", "Il numero della stanza è 214.", "Mi correggo, è 241."},
}

func TestACorrectionStandsBeforeWhatItCorrects(t *testing.T) {
	for _, c := range corrected {
		ix, n := New(key), 0
		say := func(role, text string) {
			ix.Append(said(fmt.Sprint(n), role, text, start.Add(time.Duration(n)*9*time.Hour)))
			n++
		}
		told := []string{c.fact, "Noted.", c.correction, "Noted."}
		for i, text := range slices.Concat(talkOf["en"][:8], told, talkOf["en"][8:]) {
			say([]string{memory.RoleUser, memory.RoleAssistant}[i%2], text)
		}
		hits := ask(ix, c.question).Hits
		if assert.GreaterOrEqual(t, len(hits), 2, c.question) {
			assert.Equal(t, []string{c.correction, c.fact}, []string{hits[0].Text, hits[1].Text}, c.question)
			assert.True(t, hits[0].Newer, c.question)
			assert.False(t, hits[1].Newer, c.question)
		}
	}
}

// Corrections of corrections stand together, the newest first.
func TestCorrectionsOfACorrection(t *testing.T) {
	ix := told("The train to Graz leaves at 9:10.", "No, at 9:40, sorry.", "Actually it was moved to 10:05.",
		"Good night to you.")
	assert.Equal(t, []string{"u.2", "u.1", "u.0"}, ids(ask(ix, "When does the train to Graz leave?"))[:3])
	found := ask(ix, "What was moved?")
	assert.Equal(t, []string{"u.2", "u.1", "u.0"}, ids(found)[:3])
}

func TestWhatCorrectsNothing(t *testing.T) {
	long := "Actually " + fmt.Sprint(make([]int, mostCorrection))
	for name, c := range map[string]struct{ reply, next string }{
		"a refusal of an offer": {"Shall I book it?", "No, thanks a lot."},
		"one word":              {"Noted.", "No."},
		"a long text":           {"Noted.", long},
		"a word in a word":      {"Noted.", "Nowhere else is it as quiet."},
		"another statement":     {"Noted.", "It is cold today."},
	} {
		ix := New(key)
		for i, text := range []string{"The hotel in Riga costs 90 euros.", c.reply, c.next} {
			ix.Append(said(fmt.Sprint(i), []string{memory.RoleUser, memory.RoleAssistant}[i%2], text, start.AddDate(0, 0, i)))
		}
		for _, h := range ask(ix, "What does the hotel in Riga cost?").Hits {
			assert.False(t, h.Newer, name)
		}
	}
	ix := New(key)
	for i, name := range []string{"Ann", "Ben"} {
		ix.Append(memory.Message{ID: name, Name: name, Role: memory.RoleUser, Timestamp: at(start.AddDate(0, 0, i)),
			Content: []string{"The hotel in Riga costs 90 euros.", "Sorry, I am late."}[i]}.Encode())
	}
	best := ids(ask(ix, "What does the hotel in Riga cost?"))[:1]
	assert.Equal(t, []string{"Ann"}, best, "another speaker corrects nothing")
}

// Bounds and what the asker has already hold for corrections too.
func TestACorrectionKeepsToTheBounds(t *testing.T) {
	ix := told("The train to Graz leaves at 9:10.", "No, at 9:40, sorry.")
	q := Query{Text: "When does the train to Graz leave?", AskedAt: start.AddDate(1, 0, 0), To: start.AddDate(0, 0, 1)}
	assert.NotContains(t, ids(Search([]*Index{ix}, q)), "u.1")
	q.To, q.Visible = time.Time{}, func(_ memory.Key, id string) bool { return id == "u.1" }
	assert.NotContains(t, ids(Search([]*Index{ix}, q)), "u.1")
}
