package offline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is one message of a user and what they would notice in the service's answer.
type line struct {
	say  string
	to   string // the agents delegated to, in order; "" leaves it open, "-" wants none
	want string // fragments apart by "|", each of which the answer holds
	not  string // fragments that it does not hold
}

const (
	unknownEN = "I don't know"
	unknownRU = "Я не знаю"
)

var dialogues = map[string][]line{
	"the request of the walk": {
		{say: "Tell the analytic subagent that my name is Aliya, then ask it what my name is", to: "analytic analytic", want: "name is Aliya"},
		{say: "What is my name?", to: "analytic", want: "Your name is Aliya"},
		{say: "And where do I live?", want: unknownEN, not: "Aliya"},
	},
	"the request of the walk in Russian": {
		{say: "Скажи подагенту что меня зовут Алия, а потом спроси у него моё имя", to: "analytic analytic", want: "зовут Алия", not: unknownRU},
		{say: "Как меня зовут?", to: "analytic", want: "Вас зовут Алия"},
		{say: "Где я живу?", want: unknownRU},
	},
	"plain statement and question": {
		{say: "My name is Aliya", to: "analytic", want: "Noted|Aliya"},
		{say: "What is my name?", to: "analytic", want: "Your name is Aliya."},
		{say: "what's my name", want: "Aliya"},
		{say: "Do you remember my name?", want: "Aliya"},
		{say: "Can you tell me what my name is?", want: "Aliya"},
		{say: "Is my name Dana?", want: "Aliya"},
		{say: "Who am I?", want: "Aliya"},
		{say: "What's my sister's name?", want: unknownEN, not: "Aliya"},
		{say: "What is my surname?", want: unknownEN},
	},
	"polite and indirect": {
		{say: "Please let the analytic agent know I live in Astana and after that ask where I live", to: "analytic analytic", want: "You live in Astana", not: "Know"},
		{say: "I'd like to know where I live", want: "Astana"},
		{say: "remind me where I live please", want: "Astana"},
		{say: "Where is my home?", want: "Astana"},
	},
	"polite question that tells": {
		{say: "Hey! Could you please remember that I'm allergic to peanuts? Thanks!", to: "analytic", want: "Noted|peanuts"},
		{say: "What am I allergic to?", to: "analytic", want: "You're allergic to peanuts."},
	},
	"no punctuation at all": {
		{say: "tell analytic my name is aliya then ask it what my name is", to: "analytic analytic", want: "your name is aliya"},
	},
	"no joining word either": {
		{say: "tell analytic i live in varna ask it where i live", to: "analytic analytic", want: "live in varna"},
	},
	"statement and question run together": {
		{say: "My name is Aliya what is my name", to: "analytic analytic", want: "Your name is Aliya"},
	},
	"upper case": {
		{say: "TELL THE ANALYTIC SUBAGENT THAT MY NAME IS ALIYA THEN ASK IT WHAT MY NAME IS", to: "analytic analytic", want: "YOUR NAME IS ALIYA"},
	},
	"quoted facts of several sentences": {
		{say: `Tell analytic "My name is Aliya. I live in Astana." Then ask it "Where do I live?"`, to: "analytic analytic", want: "You live in Astana"},
		{say: "what is my name", want: "Your name is Aliya.", not: "Astana"},
	},
	"facts over several sentences and difficult names": {
		{say: "Tell analytic that my name is Jean-Luc O'Brien-Müller. I collect stamps. I was born in Lyon. Then ask it where I was born.", to: "analytic analytic", want: "You were born in Lyon"},
		{say: "What do I collect?", want: "You collect stamps"},
		{say: "What is my name?", want: "Jean-Luc O'Brien-Müller", not: "stamps"},
		{say: "What do you know about me?", want: "stamps|Lyon|Müller"},
	},
	"two agents told at once": {
		{say: "tell knowledge that my cat is called Barsik and tell analytic that I was born in 1990", to: "knowledge analytic", want: "Barsik|1990"},
		{say: "What is the name of my cat?", to: "knowledge", want: "Barsik"},
		{say: "When was I born?", to: "analytic", want: "1990"},
	},
	"arithmetic and documents": {
		{say: "what's 17*23 and what is the capital of Veldoria in the docs", to: "analytic knowledge", want: "391|Tarsk|[1]|guide.md"},
	},
	"both at once": {
		{say: "Tell both subagents that I am vegan", to: "analytic knowledge", want: "vegan"},
		{say: "ask knowledge and analytic what I am", to: "knowledge analytic", want: "vegan"},
	},
	"the named and the other": {
		{say: "inform the knowledge assistant that our office closes at 6pm; then query it about when our office closes", to: "knowledge knowledge", want: "6pm"},
		{say: "ask the other one when our office closes", to: "analytic", want: unknownEN},
		{say: "Ask the same one to add 2 and 5", to: "analytic", want: "7"},
	},
	"a pronoun across requests": {
		{say: "Tell knowledge that the gate code is 9931", to: "knowledge", want: "9931"},
		{say: "Now ask it what the gate code is", to: "knowledge", want: "9931"},
	},
	"called by name": {
		{say: "@knowledge what is the default admin port?", to: "knowledge", want: "8443|[2]"},
		{say: "knowledge, what is the currency of Veldoria?", to: "knowledge", want: "orin"},
		{say: "Analytic: how much is 10 percent of 250?", to: "analytic", want: "25"},
	},
	"how things are done": {
		{say: "How do I reset the router?", to: "knowledge", want: "rear button|[2]"},
		{say: "Tell analytic that I reset my alarm with the blue key. How do I reset my alarm?", to: "analytic analytic", want: "blue key"},
	},
	"described agent": {
		{say: "ask the document agent how to reset the router", to: "knowledge", want: "rear button|[2]|router.txt"},
	},
	"ordered to remember and to tell": {
		{say: "Tell the analytic subagent to remember that my flight is on May 3 at 10:40, and then have it tell me when my flight is", to: "analytic analytic", want: "May 3 at 10:40"},
	},
	"two agents in turn": {
		{say: "Could you ask analytic to calculate (2+3)*4, then ask knowledge how to reset the router?", to: "analytic knowledge", want: "20|rear button"},
	},
	"use this for that": {
		{say: "Use knowledge to find the default admin port and use analytic to compute 12*12", to: "knowledge analytic", want: "8443|144"},
	},
	"a list": {
		{say: "1. Tell analytic that my shoe size is 43\n2. Ask analytic what my shoe size is", to: "analytic analytic", want: "Your shoe size is 43"},
	},
	"say to, ask for": {
		{say: "Say to analytic that the gate code is 9931. Ask analytic for the gate code.", to: "analytic analytic", want: "The gate code is 9931"},
	},
	"whether": {
		{say: "I have a dog", want: "dog"},
		{say: "Ask analytic if I have a dog", to: "analytic", want: "You have a dog"},
		{say: "Ask analytic whether my sister is married", to: "analytic", want: unknownEN},
	},
	"two questions asked of one": {
		{say: "My name is Tove. I live in Bergen.", want: "Tove|Bergen"},
		{say: "ask analytic what my name is and where I live", to: "analytic analytic", want: "Your name is Tove|You live in Bergen"},
	},
	"a password of something": {
		{say: "Remember that the staging database password is hunter2", to: "analytic", want: "hunter2"},
		{say: "what is the password of the staging database?", to: "analytic", want: "hunter2"},
		{say: "what is the production database password?", want: unknownEN, not: "hunter2"},
		{say: "Who is the president?", want: unknownEN},
	},
	"alike facts": {
		{say: "My wifi password is Xk9-22. My office wifi password is Zeta.", want: "Xk9-22|Zeta"},
		{say: "what is my wifi password?", want: "Xk9-22", not: "Zeta"},
		{say: "what is the office wifi password?", want: "Zeta", not: "Xk9-22"},
	},
	"identifiers": {
		{say: "The server atlas-7 runs on port 9090. The server atlas-8 runs on port 9191.", want: "atlas-7"},
		{say: "Which port does atlas-7 run on?", want: "9090", not: "9191"},
		{say: "what port is atlas-8 on", want: "9191", not: "9090"},
		{say: "what is the port of atlas-9", want: unknownEN, not: "9090"},
	},
	"a sister is not me": {
		{say: "My sister's name is Zarina. My name is Aliya.", want: "Zarina|Aliya"},
		{say: "What is my name?", want: "Aliya", not: "Zarina"},
		{say: "What is my sister's name?", want: "Zarina", not: "Aliya"},
		{say: "What's my brother's name?", want: unknownEN, not: "Zarina"},
	},
	"only the sister": {
		{say: "The name of my sister is Zarina", want: "Zarina"},
		{say: "What is my name?", want: unknownEN, not: "Zarina"},
	},
	"a pronoun for the sister": {
		{say: "I have a sister. Her name is Zarina.", want: "Zarina"},
		{say: "What's my sister's name?", want: "Zarina"},
		{say: "What's my name?", want: unknownEN, not: "Zarina"},
	},
	"where each lives": {
		{say: "My brother Timur lives in Oslo and I live in Bergen", want: "Oslo|Bergen"},
		{say: "Where do I live?", want: "Bergen", not: "Oslo"},
		{say: "Where does Timur live?", want: "Oslo", not: "Bergen"},
		{say: "where does my brother live", want: "Oslo", not: "Bergen"},
	},
	"ages": {
		{say: "My sister is 12 and I am 30", want: "12|30"},
		{say: "how old am i", want: "30", not: "12"},
		{say: "how old is my sister?", want: "12", not: "30"},
	},
	"contractions": {
		{say: "I'm Dana and I'm 34", want: "Dana"},
		{say: "How old am I?", want: "34"},
		{say: "What's my name?", want: "Dana", not: "34"},
	},
	"call me": {
		{say: "call me Ishmael", want: "Ishmael"},
		{say: "what's my name?", want: "Ishmael"},
	},
	"an update": {
		{say: "I live in Astana", want: "Astana"},
		{say: "Actually I moved to Almaty", want: "Almaty"},
		{say: "Where do I live?", want: "Almaty", not: "Astana"},
	},
	"an update of the name": {
		{say: "Remember: my name is Aliya", want: "Aliya"},
		{say: "actually my name is Dana now", to: "analytic", want: "Dana"},
		{say: "What is my name?", want: "Dana", not: "Aliya"},
	},
	"preferences": {
		{say: "My favorite food is plov. My favourite colour is teal.", want: "plov|teal"},
		{say: "what colour do I like?", want: "teal", not: "plov"},
		{say: "What food do I like best?", want: "plov", not: "teal"},
		{say: "What's my favourite drink?", want: unknownEN, not: "teal"},
	},
	"dislikes": {
		{say: "I don't like onions. I like garlic.", want: "onions"},
		{say: "What do I like?", want: "garlic", not: "onions"},
		{say: "What don't I like?", want: "onions", not: "garlic"},
	},
	"pets": {
		{say: "I have three cats: Misha, Grisha and Zed", want: "Misha"},
		{say: "How many cats do I have?", want: "three"},
		{say: "what are my cats called?", want: "Grisha"},
		{say: "What is my dog's name?", want: unknownEN, not: "Zed"},
	},
	"a pet asked about as such": {
		{say: "My dog Rex loves carrots", want: "Rex"},
		{say: "What's the name of my dog?", want: "Rex"},
		{say: "What is my pet's name?", want: "Rex"},
		{say: "What does my dog love?", want: "carrots"},
		{say: "What do I love?", want: unknownEN},
	},
	"others' addresses": {
		{say: "Let knowledge know that Bob's email is bob@example.com and that Ann's email is ann@example.com", to: "knowledge", want: "bob@example.com"},
		{say: "What is Bob's email?", to: "knowledge", want: "bob@example.com", not: "ann@"},
		{say: "what's the email of Ann", want: "ann@example.com", not: "bob@"},
		{say: "What's my email?", want: unknownEN},
	},
	"an appointment": {
		{say: "Don't forget: the meeting with Kowalski is at 15:30 in room 4B", want: "15:30"},
		{say: "When is the meeting with Kowalski?", want: "15:30"},
		{say: "Where's the meeting?", want: "4B"},
		{say: "When is the meeting with Novak?", want: unknownEN},
	},
	"a project": {
		{say: "My project is called Orion and its deadline is 2026-05-01", want: "Orion"},
		{say: "what is my project called", want: "Orion"},
		{say: "When is the deadline of the project?", want: "2026-05-01"},
	},
	"work": {
		{say: "I work as a beekeeper in Trondheim", want: "beekeeper"},
		{say: "What do I do for a living?", want: "beekeeper"},
		{say: "What is my job?", want: "beekeeper"},
	},
	"arithmetic in many forms": {
		{say: "15% of 80", to: "analytic", want: "12"},
		{say: "what is 5 squared", to: "analytic", want: "25"},
		{say: "multiply 12 by 12", to: "analytic", want: "144"},
		{say: "subtract 5 from 20", to: "analytic", want: "15"},
		{say: "What is 1,200 / 4 + 7?", to: "analytic", want: "307"},
		{say: "how much is seven times eight?", to: "analytic", want: "56"},
		{say: "What is twenty-five plus 17", to: "analytic", want: "42"},
		{say: "What is 2 to the power of 10?", to: "analytic", want: "1024"},
		{say: "what is 7 / 0", to: "analytic", want: "failed|division by zero"},
	},
	"dates in many forms": {
		{say: "How many days are there between 2024-01-15 and 2024-03-01?", to: "analytic", want: "46 days"},
		{say: "What date is 90 days after January 15, 2024?", to: "analytic", want: "2024-04-14"},
		{say: "what date was 2 weeks before 1 March 2024?", to: "analytic", want: "2024-02-16"},
		{say: "what day of the week is 2024-02-29", to: "analytic", want: "Thursday"},
		{say: "What's today's date?", to: "analytic", want: "2026-03-10"},
		{say: "How many days until 2026-12-31?", to: "analytic", want: "296"},
		{say: "What date is it in 10 days?", to: "analytic", want: "2026-03-20"},
	},
	"documents": {
		{say: "What is the capital of Veldoria?", to: "knowledge", want: "Tarsk|[1]"},
		{say: "What is the capital of Zubrovia?", want: unknownEN, not: "Tarsk"},
	},
	"chit-chat": {
		{say: "Hi", to: "-", want: "offline extractive model"},
		{say: "thanks!", to: "-", want: "welcome|offline extractive model"},
		{say: "who are you?", to: "-", want: "offline extractive model"},
		{say: "???", to: "-", want: "offline extractive model"},
		{say: "Привет!", to: "-", want: "офлайн-модель"},
		{say: "спасибо большое", to: "-", want: "офлайн-модель"},
	},
	"a greeting before a fact": {
		{say: "Hi, my name is Aliya, nice to meet you", want: "Aliya"},
		{say: "what is my name?", want: "Aliya"},
	},
	"favourite colour in Russian": {
		{say: "Запомни: мой любимый цвет — бирюзовый. Какой мой любимый цвет?", to: "analytic analytic", want: "Ваш любимый цвет — бирюзовый"},
		{say: "Какой цвет я люблю?", want: "бирюзовый"},
		{say: "Какое моё любимое блюдо?", want: unknownRU, not: "бирюзовый"},
	},
	"the analyst in Russian": {
		{say: "Передай аналитику, что я живу в Алматы, и спроси у него, где я живу.", to: "analytic analytic", want: "в Алматы"},
		{say: "где я живу", to: "analytic", want: "Алматы"},
		{say: "Напомни мне, пожалуйста, где я живу", want: "Алматы"},
		{say: "Какой у меня адрес?", want: "Алматы"},
		{say: "Узнай у аналитика, где я живу", to: "analytic", want: "Алматы"},
	},
	"agent and name in two scripts": {
		{say: "Сообщи подагенту knowledge, что отчёт сдаётся в пятницу. Потом узнай у него, когда сдаётся отчёт.", to: "knowledge knowledge", want: "в пятницу"},
	},
	"two Russian questions at once": {
		{say: "Одновременно спроси у analytic, сколько будет 3*3, и у knowledge, какая столица Вельдории", to: "analytic knowledge", want: "9|Тарск|[3]"},
	},
	"no punctuation in Russian": {
		{say: "скажи аналитику моё имя Тимур потом спроси как меня зовут", to: "analytic analytic", want: "имя Тимур"},
	},
	"many facts in one Russian sentence": {
		{say: "меня зовут Иван, я живу в Казани, мне 42 года, у меня есть собака Рекс", want: "Иван"},
		{say: "сколько мне лет?", want: "42", not: "Казани"},
		{say: "где я живу", want: "Казани", not: "42"},
		{say: "как зовут мою собаку?", want: "Рекс"},
		{say: "как зовут мою жену?", want: unknownRU, not: "Рекс"},
		{say: "как меня зовут", want: "Иван", not: "Рекс"},
	},
	"a sister in Russian": {
		{say: "Мою сестру зовут Зарина", want: "Зарина"},
		{say: "Как меня зовут?", want: unknownRU, not: "Зарина"},
		{say: "Как зовут мою сестру?", want: "Вашу сестру зовут Зарина"},
	},
	"another person in Russian": {
		{say: "Зарина живёт в Алматы, а я живу в Астане", want: "Астане"},
		{say: "Где живёт Зарина?", want: "Алматы", not: "Астане"},
		{say: "Где я живу?", want: "Астане", not: "Алматы"},
		{say: "Where do I live?", want: "You told me|Астане"},
	},
	"passed on in a polite question": {
		{say: "Hey, can you pass on to the knowledge agent that the release is on Friday? And after that find out from it when the release is.", to: "knowledge knowledge", want: "on Friday"},
		{say: "Which day is the release?", to: "knowledge", want: "Friday"},
	},
	"a landlord with a title": {
		{say: "I want you to tell analytic that my landlord is Mr. Petrov and his number is 555-7781. Then ask it who my landlord is", to: "analytic analytic", want: "Mr. Petrov"},
		{say: "what is my landlord's number?", want: "555-7781"},
	},
	"an address with abbreviations": {
		{say: "I've just moved to a flat in Gdansk, ul. Długa 5.", want: "Gdansk"},
		{say: "Where do I live?", want: "ul. Długa 5"},
	},
	"irregular verbs": {
		{say: "I bought a red bicycle yesterday", want: "bicycle"},
		{say: "What did I buy?", want: "red bicycle"},
		{say: "what colour is my bicycle?", want: "red"},
		{say: "where did I leave my keys", want: unknownEN},
	},
	"allergies of two": {
		{say: "I'm allergic to cats and my wife is allergic to pollen", want: "pollen"},
		{say: "What is my wife allergic to?", want: "pollen", not: "cats"},
		{say: "What am I allergic to?", want: "cats", not: "pollen"},
	},
	"languages spoken": {
		{say: "Tell the subagent I speak Kazakh, Russian and English; then ask the subagent which languages I speak.", to: "analytic analytic", want: "Kazakh"},
	},
	"everyone told, everyone asked": {
		{say: "tell everyone my name is Pip", to: "analytic knowledge", want: "Pip"},
		{say: "ask both agents what my name is", to: "analytic knowledge", want: "Your name is Pip"},
	},
	"we in Russian": {
		{say: "Мы с женой живём в Омске", want: "Омске"},
		{say: "Где мы живём?", want: "Омске"},
	},
	"an age that changes": {
		{say: "Мне 30 лет", want: "30"},
		{say: "Мне уже 31 год", want: "31"},
		{say: "Сколько мне лет?", want: "31", not: "30"},
		{say: "что ты обо мне знаешь?", want: "31"},
	},
	"told one, asked another": {
		{say: "Передай подагенту knowledge мой email a.b@c.kz и спроси у analytic мой email", to: "knowledge analytic", want: "a.b@c.kz|" + unknownRU},
	},
	"birth in Russian": {
		{say: "Привет! Меня зовут Олжас. Я родился 5 мая 1988 года в Караганде.", want: "Олжас"},
		{say: "Когда я родился?", want: "1988"},
		{say: "Когда у меня день рождения?", want: "5 мая"},
	},
	"a code in Russian": {
		{say: "Запомни, что код от сейфа 8080", want: "8080"},
		{say: "Какой код от сейфа?", want: "8080"},
		{say: "какой пароль от почты?", want: unknownRU, not: "8080"},
	},
	"a polite Russian question that tells": {
		{say: "Можешь запомнить, что мой пароль кварц-77?", want: "Запомнил|кварц-77"},
		{say: "мой пароль?", want: "кварц-77"},
	},
	"let the analyst remember": {
		{say: "Пожалуйста, пусть аналитик запомнит, что моя машина серая", to: "analytic", want: "серая"},
		{say: "Какого цвета моя машина?", to: "analytic", want: "серая"},
	},
	"work in Russian": {
		{say: "Я работаю инженером в порту", want: "инженером"},
		{say: "Кем я работаю?", want: "инженером"},
		{say: "Где я работаю?", want: "порту"},
	},
	"likes in Russian": {
		{say: "Мне нравится чай", want: "чай"},
		{say: "Что я люблю?", want: "Вам нравится чай"},
	},
	"arithmetic in Russian": {
		{say: "Спроси подагента analytic сколько будет 2+2", to: "analytic", want: "4"},
		{say: "сколько будет двадцать пять умножить на 4", to: "analytic", want: "100"},
		{say: "Вычисли 2^10", to: "analytic", want: "1024"},
		{say: "15 процентов от 80", to: "analytic", want: "12"},
		{say: "Сколько дней между 15.01.2024 и 01.03.2024?", to: "analytic", want: "46"},
		{say: "Какой день недели 29 февраля 2024?", to: "analytic", want: "четверг"},
		{say: "Какое сегодня число?", to: "analytic", want: "2026-03-10"},
	},
	"documents in Russian": {
		{say: "Сколько длится отпуск?", to: "knowledge", want: "28 дней|[3]"},
		{say: "Какая столица у Вельдории?", to: "knowledge", want: "Тарск"},
	},
}

func TestDialogues(t *testing.T) {
	for name, lines := range allDialogues() {
		t.Run(name, func(t *testing.T) {
			c := newChat(t)
			for _, l := range lines {
				got := c.say(l.say)
				var to []string
				for _, s := range got.steps {
					to = append(to, s.agent)
				}
				switch l.to {
				case "":
				case "-":
					require.Empty(t, to, "%q asks for nothing to be done", l.say)
				default:
					require.Equal(t, strings.Fields(l.to), to, "%q goes to the wrong agents: %v", l.say, got.steps)
				}
				for w := range strings.SplitSeq(l.want, "|") {
					require.Contains(t, strings.ToLower(got.answer), strings.ToLower(w), "answer to %q, steps %v", l.say, got.steps)
				}
				if l.not != "" {
					require.NotContains(t, got.answer, l.not, "answer to %q, steps %v", l.say, got.steps)
				}
			}
		})
	}
}

func TestDialoguesAreManyPhrasings(t *testing.T) {
	n := 0
	for _, lines := range allDialogues() {
		n += len(lines)
	}
	require.GreaterOrEqual(t, n, 120)
}

func TestTasksAreSelfContained(t *testing.T) {
	for _, tc := range []struct {
		say   string
		tasks []string
	}{
		{"Tell the analytic subagent that my name is Aliya, then ask it what my name is", []string{"My name is Aliya.", "What is my name?"}},
		{"Скажи подагенту что меня зовут Алия, а потом спроси у него моё имя", []string{"Меня зовут Алия.", "Моё имя?"}},
		{"ask analytic where I was born", []string{"Where was I born?"}},
		{"ask analytic how old I am", []string{"How old am I?"}},
		{"ask it what colour I like", []string{"What colour do I like?"}},
		{"ask it for my address", []string{"What is my address?"}},
		{"ask analytic whether I have a car", []string{"Do I have a car?"}},
		{"tell analytic to add 2 and 3", []string{"Add 2 and 3."}},
		{"Remember that I drive a van", []string{"I drive a van."}},
		{"What is my name?", []string{"What is my name?"}},
		{"My name is Aliya", []string{"My name is Aliya."}},
		{"Tell analytic that the meeting is at 3pm, then ask when the meeting is, then ask where it is", []string{"The meeting is at 3pm.", "When is the meeting?", "Where is the meeting?"}},
		{"Скажи analytic, что встреча в среду, потом спроси, где она", []string{"Встреча в среду.", "Где встреча?"}},
		{"Tell analytic that my sister is a pilot and ask it where she lives", []string{"My sister is a pilot.", "Where my sister lives?"}},
		{"Tell analytic: “I play the oboe”", []string{"I play the oboe."}},
		{"Передай аналитику, что у меня есть брат", []string{"У меня есть брат."}},
		{"Попроси аналитика посчитать 6*7", []string{"Посчитать 6*7."}},
		{"Узнай у подагента analytic, сколько мне лет", []string{"Сколько мне лет?"}},
		{"My job is to tell stories and ask people questions", []string{"My job is to tell stories and ask people questions."}},
		{"I went home and then I slept", []string{"I went home and then I slept."}},
	} {
		t.Run(tc.say, func(t *testing.T) {
			var tasks []string
			for _, s := range newChat(t).say(tc.say).steps {
				tasks = append(tasks, s.task)
			}
			require.Equal(t, tc.tasks, tasks)
		})
	}
}

func TestDependentStepsGoOneByOneAndIndependentOnesTogether(t *testing.T) {
	for say, rounds := range map[string]int{
		"Tell analytic that I ski, then ask it what I do":                                    2,
		"Tell analytic that I ski and tell knowledge that I swim":                            1,
		"Tell analytic that I ski. Tell knowledge that I swim.":                              2,
		"In parallel, tell analytic that I ski. Tell knowledge that I swim.":                 1,
		"Tell analytic that I ski and ask analytic whether I ski":                            2,
		"Спроси у analytic, сколько будет 2+2, а потом спроси у knowledge, где мануал":       2,
		"Скажи analytic, что я бегаю, и скажи knowledge, что я плаваю":                       1,
		"tell analytic I ski, ask knowledge how to reset the router and ask it what I drink": 3,
	} {
		t.Run(say, func(t *testing.T) {
			require.Len(t, newChat(t).say(say).rounds, rounds)
		})
	}
}

func TestAnotherChatKnowsNothing(t *testing.T) {
	newChat(t).say("My name is Aliya")
	require.Contains(t, newChat(t).say("What is my name?").answer, unknownEN)
}
