package recall

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// A question about a speaker finds first what this speaker said.
func TestAQuestionAboutASpeakerFindsTheirMessages(t *testing.T) {
	ix := New(key)
	for i, c := range []struct{ id, name, text string }{
		{"ann", "Ann", "The pottery class was fun."},
		{"ben", "Ben", "The pottery class was fun, I made a bowl."},
		{"ann.ru", "Мария", "Мы купили красный велосипед."},
		{"ben.ru", "Иван", "Мы купили красный велосипед и шлем."},
	} {
		ix.Append(memory.Message{ID: c.id, Name: c.name, Role: memory.RoleUser, Content: c.text,
			Timestamp: at(start.AddDate(0, 0, i))}.Encode())
	}
	for question, first := range map[string]string{
		"How was Ann's pottery class?":          "ann",
		"How was Ben's pottery class?":          "ben",
		"Какой велосипед купили Марии?":         "ann.ru",
		"Какой велосипед был у Ивана?":          "ben.ru",
		"Did Ann tell Ben of a pottery bowl?":   "ben", // both are named: the words decide
		"Who made a bowl in the pottery class?": "ben",
	} {
		require.Equal(t, first, ids(ask(ix, question))[0], question)
	}
}

// In a chat without names, a question about oneself finds first what the user said.
func TestAQuestionAboutOneselfFindsTheUsersMessages(t *testing.T) {
	ix := New(key)
	for i, role := range []string{memory.RoleUser, memory.RoleAssistant} {
		text := "The budget of the kitchen is 4,000 euros."
		if role == memory.RoleAssistant {
			text = "The usual budget of a kitchen is 9,000 euros."
		}
		ix.Append(said(role, role, text, start.AddDate(0, 0, i)))
	}
	for _, question := range []string{"What is my usual budget of a kitchen?", "Which budget did I set for a usual kitchen?"} {
		require.Equal(t, memory.RoleUser, ids(ask(ix, question))[0], question)
	}
	ix.Append(memory.Message{ID: "n", Name: "Zoe", Role: memory.RoleUser, Content: "Hi", Timestamp: at(start)}.Encode())
	require.Equal(t, memory.RoleUser, ids(ask(ix, "What is my usual budget of a kitchen?"))[0], "the only name")
	require.Equal(t, memory.RoleAssistant, ids(ask(ix, "What is the usual budget of a kitchen?"))[0])
}

// In a chat with very many names no speaker is preferred, which bounds the cost of a search.
func TestVeryManySpeakers(t *testing.T) {
	ix := New(key)
	for i := range maxNames + 1 {
		ix.Append(memory.Message{ID: fmt.Sprint(i), Name: fmt.Sprint("n", i), Role: memory.RoleUser, Content: "pottery",
			Timestamp: at(start.Add(time.Duration(i) * time.Hour))}.Encode())
	}
	require.Zero(t, speakerOf([]*Index{ix}, "What did n7 say of pottery?"))
}
