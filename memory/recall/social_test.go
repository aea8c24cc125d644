package recall

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What people write to an assistant when they do not ask for what was said before: orders, thanks,
// statements, code, chat, and questions about the world, which may count as questions.
const ordinary = `
Hi there!
Good morning, hope you're well
Hey! Long time no see, how have you been?
Thanks a lot, that was very helpful.
Perfect, thank you!
Great job, it works now.
No, that's not what I meant.
Yes, go ahead.
Ok, next step please
Write a birthday card for my colleague.
Can you write a short poem about rain?
Could you please translate this paragraph into French?
Can you help me with that?
Would you mind making it a bit shorter?
Make it shorter and more formal.
Fix the typos in the text below.
Rewrite the second paragraph so that it sounds friendlier.
Summarize this article in three sentences.
Give me five names for a bakery.
Explain recursion like I am five.
Plan a weekend in Vienna with two kids.
Add a column for the price to the table.
Convert 5 miles to kilometres.
Sort these names alphabetically: Zoe, Adam, Mia.
Remind me tomorrow at nine to call the bank.
I moved to Lisbon in March and work remotely.
My sister Anna is getting married in June.
I'm allergic to peanuts, please keep that in mind.
We decided to use Postgres for the new service.
I had a terrible day, everything went wrong.
I was thinking about learning the cello.
The meeting went well, they liked the proposal.
My dog is called Rex and he is three years old.
It's raining again, isn't it lovely?
Pretty cool, huh?
That makes sense, right?
You know what I mean?
Who would have thought?
Isn't that great?
Do you like music?
Are you a real person?
Do you ever get tired?
What's your favorite colour?
Wanna hear a joke?
Guess what happened today?
What is the capital of Australia?
How do I boil an egg?
func add(a, b int) int { return a + b } // does not compile
Traceback (most recent call last): KeyError: 'name'
SELECT id, name FROM users WHERE active = 1;
Привет!
Добрый день, надеюсь, у вас всё хорошо
Привет, как дела?
Как прошёл твой день?
Большое спасибо, очень помогло.
Отлично, то что нужно!
Нет, я имел в виду другое.
Да, продолжай.
Хорошо, следующий шаг
Напиши поздравление для коллеги.
Можешь написать короткое стихотворение о дожде?
Не могли бы вы перевести этот абзац на английский?
Можешь помочь с этим?
Сделай текст короче и официальнее.
Исправь опечатки в тексте ниже.
Перепиши второй абзац дружелюбнее.
Кратко перескажи статью.
Придумай пять названий для пекарни.
Объясни рекурсию простыми словами.
Составь план выходных в Вене с детьми.
Добавь в таблицу столбец с ценой.
Переведи пять миль в километры.
Отсортируй имена по алфавиту: Яна, Адам, Мила.
Напомни завтра в девять позвонить в банк.
Я переехал в Лиссабон в марте и работаю удалённо.
Моя сестра Анна выходит замуж в июне.
У меня аллергия на арахис, учитывай это, пожалуйста.
Мы решили взять Postgres для нового сервиса.
У меня был ужасный день, всё шло наперекосяк.
Думаю научиться играть на виолончели.
Встреча прошла хорошо, предложение понравилось.
Мою собаку зовут Рекс, ей три года.
Опять дождь, красиво, да?
Здорово, правда?
Логично, не так ли?
Кто бы мог подумать
Разве не здорово?
Тебе нравится музыка?
Ты настоящий человек?
Ты когда-нибудь устаёшь?
Какой твой любимый цвет?
Хочешь анекдот?
Представляешь, что сегодня случилось?
Какая столица у Австралии?
Как сварить яйцо всмятку?
Что нового?
Ну и погода сегодня!
Код не компилируется, посмотри строку 12.
Ошибка: не найден модуль requests
Ладно, давай сменим тему.
`

func TestFewOrdinaryTurnsToAnAssistantAreQuestions(t *testing.T) {
	turns := lines(ordinary)
	assert.Len(t, turns, 100)
	var questions []string
	for _, s := range turns {
		if IsQuestion(s) {
			questions = append(questions, s)
		}
	}
	t.Logf("%d of %d: %q", len(questions), len(turns), questions)
	assert.LessOrEqual(t, len(questions), 15)
}

func TestTalkThatHasTheFormOfQuestions(t *testing.T) {
	for _, s := range lines(`
That must have been fun, right?
It's amazing how books do that, isn't it?
Got any book recommendations?
Any plans for tonight?
Have you read any good books lately?
Do you have a favorite movie?
Have you ever been to Peru?
How did it feel to win?
How's everything going with the new team?
What have you been up to since we last talked?
What made it so special?
How did you make it?
What did it look like?
Is there anything I can do to help?
Can I join you sometime?
Could you tell me more about it?
Want to come along?
Can you review this code and suggest improvements?
Can you help me fix this?
Could you create a schedule for the week?
У тебя есть какие-нибудь планы на лето?
Ты когда-нибудь был в Перу?
Как прошла неделя?
Хочешь пойти с нами?
Чем я могу помочь?
Можешь проверку кода сделать?
Расскажи подробнее
Классно, да?
Since we last met?
`) {
		assert.False(t, IsQuestion(s), s)
	}
	for _, q := range lines(`
How did my interview at the bank go?
How did Ann feel after the accident?
How long has Ann been practicing the cello?
What European countries has Maria been to?
Have I ever been to Peru?
Did I mention any allergies?
Do you remember anything about my sister?
Did you suggest any restaurant in Rome?
Any updates on the invoice of the Berlin office?
We agreed on Friday, right?
Can you list the order in which I brought up the features?
Could you walk me through how I solved it?
Can you help me remember where I parked?
Can you give me the address of my dentist?
What can you tell me about my project?
Could you tell me what the deadline was?
Is there anything I told you about the contract?
What was the name of the plumber?
Когда у меня собеседование?
Какие-нибудь ограничения по еде у меня есть?
Можешь напомнить, где я живу?
Не мог бы ты перечислить мои книги?
Я когда-нибудь был в Перу?
Как прошло моё собеседование?
Чем закончилась встреча с Новаком?
Мы договорились на пятницу, да?
Что ты советовал мне посадить в саду?
У меня есть аллергия?
Как звали сантехника?
У меня аллергия на орехи, да?
Может ли Анна есть орехи?
Is Ann a nurse?
Did Caroline ever visit Paris?
Is there a note about the contract?
So we agreed on Friday, right?
`) {
		assert.True(t, IsQuestion(q), q)
	}
}
