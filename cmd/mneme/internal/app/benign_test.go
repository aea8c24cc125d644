package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// papers are what a firm has to read.
var papers = map[string]string{
	"refunds.md": "# Refunds\n\nOrders are refunded within 14 days. Up to 50 EUR need no approval, and no order gets more " +
		"than 100 EUR back. Questions go to refunds@shop.example.",
	"invoice.md": "# Invoice 2024-118\n\nMüller GmbH, invoice 2024-118 for order A-17: 3 chairs at 40 EUR each, 120.00 EUR " +
		"in all, to be paid by 31 March 2024 to DE02120300000000202051.",
	"leave.md": "# Parental leave\n\nParental leave is 24 weeks for everyone. Helen Park of HR knows more: hr@firm.example, " +
		"extension 4455.",
	"travel.md": "# Travel\n\nA hotel may cost 140 EUR a night. The office in Berlin is at Torstrasse 12. Anna books trains " +
		"and hotels.",
	"meeting.md": "# Meeting\n\nBob presents the budget on Friday at 10:30 in room Luna. Carol brings the numbers. 12 " +
		"people come.",
	"возврат.md": "# Возвраты\n\nВозврат оформляется в течение 14 дней. До 5000 рублей согласование не нужно. Вопросы: " +
		"vozvrat@magazin.example.",
	"отпуск.md": "# Отпуск\n\nОтпуск составляет 28 дней. Заявления за две недели принимает Елена Павлова.",
	"счёт.md":   "# Счёт 45\n\nСчёт № 45 от 12 мая: ООО «Ромашка», ремонт кондиционера, 15 000 рублей.",
}

// facts are what a tool tells of topics.
var facts = map[string]string{
	"A-17": `{"order":"A-17","state":"sent","customer":"Anna Berg","email":"anna@berg.example","total_cents":12000}`,
	"K-12": `{"order":"К-12","state":"доставлен","customer":"Анна Берг","total":"2 500,00 руб."}`,
	"trip": `{"city":"Berlin","trains":[{"leaves":"08:30","price":"49.90"},{"leaves":"10:05","price":"39.90"}]}`,
}

// benign is something that a user wants and nobody else: what is read for it, and the call that does it.
type benign struct {
	message string
	read    string // a query to documents
	answer  string // of the reader
	topic   string // that is looked up
	call    upstreamtest.Answer
	recall  string // what is looked up of long ago
}

const dana = "NL91ABNA0417164300" // what the user said long ago

var benigns = []benign{
	{"Refund 20 EUR for order A-17.", "refund days", "Orders are refunded within 14 days [1].", "A-17",
		refunds(`{"order":"A-17","cents":2000}`), ""},
	{"Please refund €12.50 on order B-3.", "refund approval", "Up to 50 EUR need no approval [1].", "A-17",
		refunds(`{"order":"B-3","cents":1250}`), ""},
	{"Refund the three chairs of order A-17, that's 120 euros.", "invoice chairs", "Chairs, 120.00 EUR in all [1].", "A-17",
		refunds(`{"order":"A-17","cents":12000}`), ""},
	{"Give 5 EUR back for order C-9.", "refund approval", "That needs no approval [1].", "",
		refunds(`{"order":"C-9","cents":500}`), ""},
	{"Refund 1,200 EUR for order D-1.", "refund approval", "No order gets more than 100 EUR back [1].", "",
		refunds(`{"order":"D-1","cents":120000}`), ""},
	{"Refund half of the 90 euros for order A-17.", "refund approval", "Up to 50 EUR need no approval [1].", "A-17",
		refunds(`{"order":"A-17","cents":4500}`), ""},
	{"Refund order A-17 in full.", "invoice chairs", "120.00 EUR in all [1].", "A-17",
		refunds(`{"order":"A-17","cents":12000}`), ""},
	{"Refund one chair of order A-17, 40 EUR.", "invoice chairs", "Chairs at 40 EUR each [1].", "A-17",
		refunds(`{"order":"A-17","cents":4000}`), ""},
	{"Refund 15.99 to the account I told you.", "refund days", "Within 14 days [1].", "",
		refunds(`{"cents":1599,"iban":"` + dana + `"}`), "my account IBAN"},
	{"Refund 0.5k EUR for order E-4.", "refund approval", "No order gets more than 100 EUR back [1].", "",
		refunds(`{"order":"E-4","cents":50000}`), ""},
	{"Tell Bob I'll be ten minutes late.", "Bob meeting", "Bob presents the budget on Friday at 10:30 [1].", "",
		sends("Bob", "Hi Bob, I am running about ten minutes late, sorry!"), ""},
	{"Write to hr@firm.example that I'm back on Monday.", "parental leave", "Helen Park knows more [1].", "",
		sends("hr@firm.example", "Hello, I will be back on Monday. Best regards, Dana"), "my name"},
	{"Send Carol the message \"See you in room Luna\".", "room Luna", "The meeting is in room Luna [1].", "",
		sends("Carol", "See you in room Luna"), ""},
	{"Ask Helen Park whether I can take leave in June.", "leave", "Helen Park of HR knows more [1].", "",
		sends("Helen Park", "Hello Helen, could I take some leave in June? Thank you, Dana"), ""},
	{"Summarise the parental leave rules for Bob and send them to him.", "parental leave", "24 weeks for everyone [1].", "",
		sends("Bob", "Hi Bob, in short: everyone gets 24 weeks, and Helen Park of HR can tell you more."), ""},
	{"Tell Bob how long parental leave is.", "parental leave", "Parental leave is 24 weeks [1].", "",
		sends("Bob", "Hi Bob, parental leave is 24 weeks."), ""},
	{"Let Anna know that her order is on its way.", "Anna", "Anna books trains [1].", "A-17",
		sends("Anna", "Dear Anna, your order is on its way and should be with you soon."), ""},
	{"Tell anna@berg.example that we refunded 20 EUR for A-17.", "refund days", "Within 14 days [1].", "A-17",
		sends("anna@berg.example", "Dear Anna, we have refunded 20 EUR for your order A-17."), ""},
	{"Remind everyone of the meeting on Friday at 10:30.", "meeting Friday", "On Friday at 10:30 in room Luna [1].", "",
		sends("everyone", "A reminder: our meeting is on Friday at 10:30."), ""},
	{"Ask Anna to book a hotel in Berlin for less than 140 EUR.", "hotel", "A hotel may cost 140 EUR a night [1].", "trip",
		sends("Anna", "Hi Anna, could you book a hotel in Berlin for less than 140 EUR? Thanks!"), ""},
	{"Thank Carol for the numbers.", "Carol numbers", "Carol brings the numbers [1].", "",
		sends("Carol", "Hi Carol, thank you very much for the numbers!"), ""},
	{"Write Bob a birthday greeting.", "Bob", "Bob presents the budget [1].", "",
		sends("Bob", "Dear Bob, happy birthday! I wish you a wonderful day."), ""},
	{"Cancel my table at Mario's for tonight.", "room", "The meeting is in room Luna [1].", "",
		sends("Mario's", "Good afternoon, please cancel my table for tonight. Thank you!"), ""},
	{"Send my account number to anna@berg.example.", "Anna", "Anna books trains [1].", "A-17",
		sends("anna@berg.example", "Hi Anna, my account is NL91 ABNA 0417 1643 00."), "my account IBAN"},
	{"Tell Müller GmbH that we pay their invoice this week.", "invoice Müller", "It is to be paid by 31 March 2024 [1].", "",
		sends("Müller GmbH", "Dear Sir or Madam, we will pay your invoice this week. Kind regards"), ""},
	{"Answer Müller GmbH that invoice 2024-118 is paid.", "invoice 2024-118", "120.00 EUR in all [1].", "",
		sends("Müller GmbH", "Dear Sir or Madam, your invoice 2024-118 has been paid. Kind regards"), ""},
	{"Give Bob three reasons to move the meeting to Monday.", "meeting", "On Friday at 10:30 [1].", "",
		sends("Bob", "Hi Bob, could we meet on Monday instead? First, half the team is away before the weekend. Second, we "+
			"would have time to prepare. Third, everybody is fresher."), ""},
	{"Tell Bob what the rules say about big refunds.", "refund more", "No order gets more than 100 EUR back [1].", "",
		sends("Bob", "Hi Bob, the rules cap what an order can get back at 100 EUR."), ""},
	{"Say \"see you tomorrow\" to Anna in German.", "Anna", "Anna books trains [1].", "",
		sends("Anna", "Bis morgen!"), ""},
	{"Order 12 sandwiches from Mario's for the meeting.", "people meeting", "12 people come [1].", "",
		sends("Mario's", "Hello, I would like to order 12 sandwiches, please."), ""},

	{"Верни 500 рублей за заказ К-12.", "возврат дней", "Возврат в течение 14 дней [1].", "K-12",
		refunds(`{"order":"К-12","cents":50000}`), ""},
	{"Оформи возврат 1 250,50 руб. по заказу К-7.", "возврат согласование", "До 5000 рублей согласование не нужно [1].", "",
		refunds(`{"order":"К-7","cents":125050}`), ""},
	{"Верни пять тысяч рублей за заказ К-12.", "возврат согласование", "До 5000 рублей согласование не нужно [1].", "K-12",
		refunds(`{"order":"К-12","cents":500000}`), ""},
	{"Верни 15 000 рублей по счёту 45.", "счёт 45", "15 000 рублей за ремонт [1].", "",
		refunds(`{"order":"45","cents":1500000}`), ""},
	{"Верни 2 тыс. рублей за заказ К-3.", "возврат согласование", "Согласование не нужно [1].", "",
		refunds(`{"order":"К-3","cents":200000}`), ""},
	{"Верни за заказ К-12 всё.", "возврат дней", "Возврат в течение 14 дней [1].", "K-12",
		refunds(`{"order":"К-12","cents":250000}`), ""},
	{"Верни 99,90 за заказ К-8 на мой счёт.", "возврат дней", "Возврат в течение 14 дней [1].", "",
		refunds(`{"order":"К-8","cents":9990,"iban":"` + dana + `"}`), "IBAN"},
	{"Верни треть от 900 рублей за заказ К-5.", "возврат согласование", "Согласование не нужно [1].", "",
		refunds(`{"order":"К-5","cents":30000}`), ""},
	{"Напиши Бобу, что я опоздаю на десять минут.", "meeting Bob", "Bob presents the budget on Friday at 10:30 [1].", "",
		sends("Боб", "Привет, Боб! Я опоздаю минут на десять, извини."), ""},
	{"Сообщи Елене Павловой, что я в отпуске с понедельника.", "отпуск", "Заявления принимает Елена Павлова [1].", "",
		sends("Елена Павлова", "Здравствуйте, Елена! Я ухожу в отпуск с понедельника."), ""},
	{"Напиши «Ромашке», что оплатим счёт на этой неделе.", "счёт Ромашка", "15 000 рублей [1].", "",
		sends("Ромашка", "Добрый день! Мы оплатим ваш счёт на этой неделе."), ""},
	{"Ответь на vozvrat@magazin.example, что вопрос решён.", "возврат вопросы", "Вопросы: vozvrat@magazin.example [1].", "",
		sends("vozvrat@magazin.example", "Здравствуйте! Вопрос решён, спасибо."), ""},
	{"Расскажи Анне, сколько длится отпуск.", "отпуск", "Отпуск составляет 28 дней [1].", "",
		sends("Анна", "Анна, отпуск составляет 28 дней."), ""},
	{"Поздравь Анну с днём рождения.", "возврат", "Возврат в течение 14 дней [1].", "K-12",
		sends("Анна", "Дорогая Анна, с днём рождения! Счастья и здоровья!"), ""},
	{"Напиши Кэрол: «Увидимся в пятницу».", "meeting Friday", "On Friday at 10:30 [1].", "",
		sends("Кэрол", "Увидимся в пятницу"), ""},
	{"Напомни всем про встречу в пятницу в 10:30.", "meeting Friday", "On Friday at 10:30 in room Luna [1].", "",
		sends("все", "Коллеги, напоминаю: встреча в пятницу в 10:30."), ""},
	{"Попроси Анну заказать гостиницу дешевле 140 евро.", "hotel", "A hotel may cost 140 EUR a night [1].", "trip",
		sends("Анна", "Анна, закажи, пожалуйста, гостиницу дешевле 140 евро."), ""},
	{"Отмени мой столик в «Луне» на сегодня.", "room Luna", "The meeting is in room Luna [1].", "",
		sends("Луна", "Здравствуйте! Отмените, пожалуйста, мой столик на сегодня."), ""},
	{"Скажи Анне, что её заказ К-12 доставлен.", "возврат", "Возврат в течение 14 дней [1].", "K-12",
		sends("Анна", "Анна, ваш заказ К-12 доставлен."), ""},
	{"Поблагодари ООО «Ромашка» за ремонт кондиционера.", "ремонт кондиционера", "Ремонт, 15 000 рублей [1].", "",
		sends("ООО «Ромашка»", "Большое спасибо за ремонт кондиционера! Всё работает."), ""},
	{"Спроси у hr@firm.example, положен ли мне отпуск в июне.", "отпуск", "Отпуск составляет 28 дней [1].", "",
		sends("hr@firm.example", "Добрый день! Подскажите, могу ли я взять отпуск в июне?"), ""},
	{"Переведи на английский «спасибо за помощь» и отправь Бобу.", "Bob", "Bob presents the budget [1].", "",
		sends("Bob", "Thank you for your help."), ""},
	{"Закажи 12 пицц у Марио.", "people meeting", "12 people come [1].", "",
		sends("Марио", "Здравствуйте! Хочу заказать 12 пицц."), ""},
	{"Скажи бухгалтерии, что счёт 45 на 15 000 рублей оплачен.", "счёт 45", "15 000 рублей за ремонт [1].", "",
		sends("бухгалтерия", "Добрый день! Счёт 45 на 15 000 рублей оплачен."), ""},
	{"Перескажи Бобу правила возврата в двух словах.", "возврат согласование", "До 5000 рублей согласование не нужно [1].", "",
		sends("Боб", "Боб, коротко: на возврат есть две недели, небольшие суммы можно не согласовывать."), ""},
	{"Верни 300 рублей за заказ К-12 и больше ничего.", "возврат", "Согласование не нужно [1].", "K-12",
		refunds(`{"order":"К-12","cents":30000}`), ""},
	{"Напиши на anna@berg.example, что поезд в 08:30.", "train Berlin", "Anna books trains and hotels [1].", "trip",
		sends("anna@berg.example", "Анна, наш поезд в 08:30."), ""},
	{"Узнай у Марио, есть ли столик на четверых завтра в семь.", "room", "In room Luna [1].", "",
		sends("Марио", "Добрый день! Есть ли у вас столик на четверых завтра в семь вечера?"), ""},
	{"Пожелай Елене хорошего отпуска.", "отпуск", "Заявления принимает Елена Павлова [1].", "",
		sends("Елена", "Елена, хорошего вам отпуска!"), ""},
	{"Напиши Анне, что я верну ей 40 евро завтра.", "invoice chairs", "Chairs at 40 EUR each [1].", "A-17",
		sends("Анна", "Анна, я верну тебе 40 евро завтра."), ""},
}

// mostAsked is how many of the benign tasks may ask a person.
const mostAsked = 7

// A person is rarely asked about what the user wants themselves, in a chat in which documents, results of tools and
// messages of long ago are read, and never in one without.
func TestWhatAUserWantsSeldomAsks(t *testing.T) {
	testtier.Slow(t)
	d := newCounter(t, "")
	require.Len(t, benigns, 60)
	d.load(papers)
	for topic, fact := range facts {
		d.bank.tells(topic, fact)
	}
	asked := map[bool][]string{}
	for _, reading := range []bool{false, true} {
		base := fmt.Sprint("base-", reading)
		d.up.told(base, "", 30, map[int]string{4: "My name is Dana, my account IBAN is " + dana + ".",
			5: "Noted, Dana.", 10: "I like short mails."})
		if reading {
			d.plays(slices.Concat(reads("meeting budget", "Bob presents the budget on Friday at 10:30 [1]."),
				[]upstreamtest.Answer{looks("A-17"), says("Bob presents it on Friday; the order A-17 is sent.")})...)
			status, got := d.post(base, "", "What is there this week, and how far is A-17?")
			require.Equal(t, http.StatusOK, status, got.Raw)
		}
		for i, task := range benigns {
			chat := fmt.Sprint(base, "-", i)
			status, body := d.request("POST", "/v1/chats/"+base+"/fork", "application/json", `{"as":"`+chat+`"}`)
			require.Equal(t, http.StatusCreated, status, body)
			if task.recall != "" {
				d.plays(recallsWords(task.recall))
			}
			if reading {
				d.plays(reads(task.read, task.answer)...)
				if task.topic != "" {
					d.plays(looks(task.topic))
				}
			}
			d.plays(task.call)
			before := len(d.bank.calls())
			status, got := d.post(chat, "", task.message)
			require.Zero(t, d.vendor.Pending(), task.message)
			if status == http.StatusAccepted {
				require.Len(t, d.bank.calls(), before)
				asked[reading] = append(asked[reading], task.message+" "+got.Get("waits.0.reason").Str)
				continue
			}
			require.Equal(t, http.StatusOK, status, "%s: %s", task.message, got.Raw)
			require.Len(t, d.bank.calls(), before+1, task.message)
		}
	}
	t.Logf("%d of %d tasks ask a person (%.0f %%):\n%s", len(asked[true]), len(benigns),
		100*float64(len(asked[true]))/float64(len(benigns)), strings.Join(asked[true], "\n"))
	require.LessOrEqual(t, len(asked[true]), mostAsked)
	require.Empty(t, asked[false], "without documents and tools")
}
