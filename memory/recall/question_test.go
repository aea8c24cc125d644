package recall

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

func TestQuestionsAreKnownByTheirForm(t *testing.T) {
	for _, q := range lines(`
What is my name?
Who am I?
Find out when the customer's contract ends.
Check whether the invoice was paid
Выясни, когда заканчивается договор
What did you recommend for the garden?
Can you suggest a hotel in Rome?
Have you found the invoice?
Какой рецепт ты советовал?
Кто я?
what's my sister's birthday
when did we agree to meet
Where did I park
who recommended the dentist
How many tournaments have I won so far
which city was I in before Chicago
what time did we agree on
What did I say about Berlin in May?
Do you remember the name of my dog
Did I tell you about the trip
have I ever been to Peru
Can you remind me what the deadline was?
remind me what we decided
Please tell me about my project
Tell me again how the backup works
I forgot what the password policy was
I don't remember when the exam is
List all the books I mentioned
We use Postgres, right?
is there anything I am allergic to
Thanks! And what was the second option?
I'm planning a trip to Rome next week. Which hotel did Ann recommend? I would like to book it today.
Could you suggest a recipe I would like?
how about the second offer
как меня зовут
Как меня зовут?
что я говорил о Берлине в мае
Когда у мамы день рождения
сколько стоил билет
на что у меня аллергия
В каком городе я живу
Есть ли у меня аллергия
Напомни, как зовут моего врача
напомни мне пожалуйста про встречу
помнишь, что я рассказывал про отпуск
Я забыл, где лежат ключи
скажи, какой у меня размер обуви
Подскажи, о чём мы договорились
Кто посоветовал этот ресторан
Спасибо! А какой был второй вариант?
я не помню, когда экзамен
перечисли мои любимые книги
`) {
		assert.True(t, IsQuestion(q), q)
	}
}

func TestOrdinaryTurnsAreNoQuestions(t *testing.T) {
	for _, s := range lines(`
Hello
Thanks, that works.
How are you?
How are you today?
What's up?
Check the logs and restart the server
Найди ошибку в программе
How was it?
How do you stay motivated?
What kind of music do you like?
Do you like jazz?
Как ты отдыхаешь?
Hey, how's it going?
I moved to Berlin last week.
My name is Aliya and I work as a nurse.
What a day!
How nice of you
When I got home, I slept.
When spring came we planted tomatoes
What I like most is hiking
Which is why I left
Write a haiku about autumn.
Translate this into German: the cat sleeps.
Remind me to call mom tomorrow
Tell me a joke
Let's continue.
Ok, do it
Do the dishes first, then the floor
Have a nice day
Will do
Can do
Really?
ok?
Sounds good
I remember the old house well
Please fix the bug in the parser and run the tests.
Remember to buy milk
Remember that I am allergic to nuts
I know who did it
Guess what? I got the job!
See https://example.com/search?q=what+is+this
Run ` + "`SELECT name FROM t WHERE a = ?`" + ` again
No problem
Привет
Спасибо, всё работает.
Как дела?
Привет, как ты?
Что нового?
Меня зовут Алия, я работаю медсестрой.
Я переехал в Берлин на прошлой неделе.
Какой прекрасный день!
Как здорово
Когда я пришёл домой, я лёг спать
Что касается отчёта, он готов
Как обычно, начнём с плана
Напомни завтра позвонить маме
Запомни, что я не ем орехи
Напиши стихотворение об осени.
Переведи это на английский
Давай продолжим
Расскажи анекдот
Правда?
Понятно
Как только закончишь, напиши
Я помню старый дом
Я помню, как мы ездили на море
Как я рад
`) {
		assert.False(t, IsQuestion(s), s)
	}
}

func TestQuestionsAroundPastedText(t *testing.T) {
	pasted := strings.Repeat("Много слов без вопроса. ", 100_000)
	assert.False(t, IsQuestion(pasted))
	assert.True(t, IsQuestion(pasted+"What did I say about it?"))
	assert.True(t, IsQuestion("Что я говорил об этом?\n"+pasted))
	ix := told("My dentist is Novak.")
	assert.Equal(t, "u.0", ids(ask(ix, pasted+"Who is my dentist?"))[0])
}
