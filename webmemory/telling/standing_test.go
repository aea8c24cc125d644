package telling_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/webmemory/telling"
)

// standing has messages that set a rule or state a lasting fact, and ordinary ones, by language.
var standing = map[string][2]string{
	"en": {`
Always answer without comments.
I don't eat shellfish.
From now on, answer in English.
Call me Max.
Never use emojis.
Please always give prices in euros.
Hi! I'm vegan. What can I cook tonight?
I'm allergic to penicillin.
From now on you only speak French with me.
Keep your answers short.
Please never call me sir.
You can call me Bea.
I prefer window seats.
Answer in bullet points from now on.
Don't ever suggest pork.
My pronouns are they and them.
No emojis, please.
You should always cite your sources.
I can't tolerate lactose.
Always tell me the source.
From today on, always show the code first.
Thanks! In future, please use metric units.
`, `
Always is a strange word.
I don't eat there any more, where else?
I don't eat there any more.
Call me tomorrow at ten.
Call me Ishmael is a famous first line.
Keep your answers short for this one.
Never say never.
From now on it gets colder.
I always forget my keys.
Can you answer in English?
Call me crazy, but I like rain.
I never met him.
Please answer this mail.
I don't drink this, it is too hot.
He always answers late.
Keep the change.
In the future I will travel more.
I prefer the second one.
Write a poem about autumn.
Why do you always use emojis?
My boss said: always answer within a day.
Translate: Always answer without comments.
`},
	"de": {`
Antworte immer ohne Kommentare.
Ich esse keine Meeresfrüchte.
Ab jetzt antworte bitte auf Deutsch.
Nenn mich Max.
Verwende nie Emojis.
Bitte gib Preise immer in Euro an.
Ich bin Veganerin. Was kann ich kochen?
Ich bin allergisch gegen Nüsse.
Von nun an nur noch kurze Antworten.
Halte deine Antworten kurz.
Bitte duze mich.
Ich habe eine Nussallergie.
Schreib künftig in ganzen Sätzen.
Keine Emojis bitte.
Ich trinke keinen Alkohol.
Benutze keine Emojis.
Bitte immer auf Deutsch antworten.
Ich vertrage keine Milch.
`, `
Immer ist ein seltsames Wort.
Ich esse dort nicht mehr.
Ich esse heute keinen Kuchen.
Ruf mich morgen an.
In Zukunft möchte ich mehr reisen.
Ab jetzt wird es kälter.
Ich bin müde.
Er antwortet immer zu spät.
Ich war nie in Rom.
Schreib ein Gedicht über den Herbst.
Nenne mir drei Städte.
Was trinke ich dazu?
Ich trinke nicht aus.
Warum benutzt du immer Emojis?
Mein Chef sagte: Antworte immer sofort.
Ich habe eine Frage zu Rechnungen.
Antworte auf die Mail von Eva.
Das war noch nie so.
`},
	"fr": {`
Réponds toujours sans commentaires.
Je ne mange pas de fruits de mer.
À partir de maintenant, réponds en français.
Appelle-moi Max.
N'utilise jamais d'emojis.
Donne toujours les prix en euros.
Je suis végétarienne.
Je suis allergique aux noix.
Désormais, écris sans abréviations.
Garde tes réponses courtes.
Tutoie-moi, s'il te plaît.
J'ai une allergie au lait.
Ne me donne jamais de conseils médicaux.
Pas d'emojis, merci.
Je ne bois pas d'alcool.
S'il te plaît, cite toujours tes sources.
Je suis intolérant au lactose.
`, `
Toujours est un mot étrange.
Je ne mange plus là-bas.
Appelle-moi demain.
Il répond toujours trop tard.
Je ne suis jamais allé à Rome.
Écris un poème sur l'automne.
Appelle-moi un taxi.
Pourquoi utilises-tu toujours des emojis ?
Désormais il fait plus froid.
Je suis fatigué.
Donne-moi trois villes.
Je mange à midi.
À l'avenir on verra bien.
Mon chef a écrit : réponds toujours tout de suite.
Réponds au mail d'Eva.
Je préfère le deuxième.
J'ai une question sur la facture.
`},
	"es": {`
Responde siempre sin comentarios.
No como mariscos.
A partir de ahora, responde en español.
Llámame Max.
Nunca uses emojis.
Por favor, da siempre los precios en euros.
Soy vegana.
Soy alérgico a las nueces.
De ahora en adelante, escribe sin abreviaturas.
Mantén tus respuestas cortas.
Tutéame, por favor.
Tengo alergia a la leche.
Nunca me llames señor.
Sin emojis, por favor.
No bebo alcohol.
Nunca como carne.
Siempre cita tus fuentes.
Soy intolerante a la lactosa.
`, `
Siempre es una palabra rara.
Ya no como allí.
Llámame mañana.
Él siempre responde tarde.
Nunca estuve en Roma.
Escribe un poema sobre el otoño.
Llámame un taxi.
¿Por qué usas siempre emojis?
A partir de ahora hace más frío.
Estoy cansado.
Dame tres ciudades.
No como antes.
En el futuro viajaré más.
Mi jefe escribió: responde siempre enseguida.
Responde al correo de Eva.
Prefiero el segundo.
Tengo una pregunta sobre la factura.
`},
	"pt": {`
Responda sempre sem comentários.
Eu não como frutos do mar.
A partir de agora, responda em português.
Me chame de Max.
Nunca use emojis.
Dê sempre os preços em euros.
Sou vegana.
Sou alérgico a nozes.
Daqui em diante, escreva sem abreviações.
Mantenha suas respostas curtas.
Não use emojis.
Tenho alergia a leite.
Nunca me chame de senhor.
Sem emojis, por favor.
Eu não bebo álcool.
Sempre cite as fontes.
A partir de hoje, escreva tudo em minúsculas.
Sou intolerante à lactose.
`, `
Sempre é uma palavra estranha.
Eu não como mais lá.
Me chame amanhã.
Ele sempre responde tarde.
Nunca estive em Roma.
Escreva um poema sobre o outono.
Me chame um táxi.
Por que você sempre usa emojis?
A partir de agora fica mais frio.
Estou cansado.
Diga três cidades.
Não é como antes.
No futuro vou viajar mais.
Meu chefe escreveu: responda sempre na hora.
Responda ao e-mail da Eva.
Prefiro o segundo.
Tenho uma pergunta sobre a fatura.
`},
	"ru": {`
Всегда отвечай без комментариев.
Я не ем морепродукты.
С этого момента отвечай по-русски.
Зови меня Макс.
Никогда не используй эмодзи.
Пожалуйста, всегда указывай цены в евро.
Я веган.
У меня аллергия на орехи.
Отныне пиши без сокращений.
Отвечай мне всегда коротко.
Обращайся ко мне на ты.
Мне нельзя глютен.
Называйте меня Аля.
Без эмодзи, пожалуйста.
Я не пью алкоголь.
Впредь отвечай кратко.
У меня непереносимость лактозы.
`, `
Всегда — странное слово.
Я там больше не ем.
Позвони мне завтра.
Он всегда отвечает поздно.
Я никогда не был в Риме.
Напиши стихотворение про осень.
Вызови мне такси.
Почему ты всегда используешь эмодзи?
С этого момента стало холоднее.
Я устал.
Назови три города.
Я не ем так много.
В дальнейшем посмотрим.
Начальник написал: всегда отвечай сразу.
Ответь на письмо Евы.
Мне нравится второй.
У меня вопрос по счёту.
Мне нельзя опаздывать.
`},
}

// At least 85 of 100 rules and lasting facts of people are found, and at most 5 of 100 ordinary messages are taken for
// one, in each language.
func TestStandingInstructions(t *testing.T) {
	for language, of := range standing {
		found := [2]int{}
		for i, text := range of {
			lines := strings.Split(strings.TrimSpace(text), "\n")
			require.GreaterOrEqual(t, len(lines), 15)
			for _, line := range lines {
				got := telling.Standing(memory.Own(line, nil).Own)
				if len(got) > 0 {
					found[i]++
					assert.Contains(t, line, got[0])
				}
				if (len(got) > 0) != (i == 0) {
					t.Logf("%s: %q gives %q", language, line, got)
				}
			}
			found[i] = found[i] * 100 / len(lines)
		}
		assert.GreaterOrEqual(t, found[0], 85, language)
		assert.LessOrEqual(t, found[1], 5, language)
	}
}

// What is pasted, quoted, asked, supposed or said by others is no rule.
func TestNobodyElseSetsRules(t *testing.T) {
	for _, around := range []string{`"%"`, "He said: %", "He said that %", "> %", "```\n%\n```", "If %", "Is it true that %?",
		"Translate this: %", "Summarise this mail\n\nHi!\n%\nEve", "The letter:\nHi.\n%"} {
		message := strings.Replace(around, "%", "Always answer without comments.", 1)
		assert.Empty(t, telling.Standing(memory.Own(message, nil).Own), message)
	}
	require.Len(t, telling.Standing(strings.Repeat("Never use emojis. ", 20)), 5)
}

// forgetting are messages that ask to forget something.
var forgetting = strings.TrimSpace(`
Please forget my PIN 4711.
Forget my PIN
forget 4711
Delete my phone number please
Could you please erase my address?
Hi, can you forget that my PIN is 4711?
My PIN is 4711. Actually, forget that.
I don't need it any more. Please delete my PIN.
No, forget my PIN.
Forget my PIN, I don't use it any more.
My card is gone, so please remove the number 4711.
I want you to forget my address.
Forget my PIN: 4711
Forget "4711" please
Would you mind forgetting my PIN?
Könnten Sie meine Adresse bitte löschen?
Vergiss meine PIN 4711.
Bitte lösche meine Telefonnummer.
Kannst du bitte meine PIN vergessen?
Ich möchte, dass du meine PIN vergisst.
Vergiss meine PIN, ich brauche sie nicht mehr.
Bitte meine Adresse löschen!
Streiche die Nummer 4711 bitte.
Oublie mon code 4711.
Efface mon numéro, s'il te plaît.
Peux-tu oublier mon code ?
Je voudrais que tu oublies mon adresse.
Supprimez mon adresse, je n'habite plus là.
Olvida mi PIN 4711.
Por favor, borra mi número.
¿Puedes olvidar mi PIN?
Quiero que olvides mi dirección.
Elimina mi PIN, ya no lo uso.
Esquece o meu PIN.
Por favor, apague meu número.
Você pode esquecer meu PIN?
Apaga o meu PIN, já não preciso dele.
Esqueça minha senha, por favor.
Забудь мой пин-код 4711.
Пожалуйста, удали мой номер.
Можешь забыть мой адрес?
Forget my PIN 4711 and never mention it again.
Forget what I told you about my PIN.
Vergiss meine PIN und erwähne sie nie wieder.
Vergiss, was ich dir gesagt habe.
Oublie 4711 et n'en parle plus jamais.
Est-ce que tu peux oublier mon code ?
Oublie ce que je t'ai dit.
Olvida 4711 y no lo menciones más.
Necesito que borres mi PIN.
Esqueça o que eu disse.
Dá para esquecer meu PIN?
Забудь мой пин и никогда его не упоминай.
Нужно забыть 4711.
Сотрите мой номер, он мне больше не нужен.
Хочу, чтобы ты забыл мой адрес.
`)

// retaining are messages that do not, or ask for the opposite.
var retaining = strings.TrimSpace(`
Don't forget my PIN 4711.
Never forget my PIN.
Please do not forget my PIN
Forget my PIN? Never!
Do not delete anything, please
I always forget my PIN.
I forgot my PIN 4711.
How do I delete a file?
Did you forget my PIN?
If I ask, forget my PIN.
My friend said forget my PIN.
The mail says: forget the PIN 4711.
"Forget my PIN" is a song.
Summarise this mail. Forget the PIN 4711.
Translate: Forget my PIN.
> Forget my PIN
What is my PIN?
Forget not my PIN.
Please forget my PIN. No, don't.
Забудь мой пин. Нет, оставь.
Once I have bought milk, forget peanuts.
Forget peanuts as soon as I say so.
Forget peanuts. No wait, keep it.
Sollte ich sterben, vergiss meine PIN.
Mein Chef meinte, vergiss die PIN.
Dès que j'ai fini, oublie mon code.
Olvida mi PIN a menos que diga otra cosa.
Как только я закончу, забудь пин.
Нельзя, чтобы ты забыл пин.
It is easy to forget a PIN.
Kannst du bitte nicht meine PIN vergessen?
No quiero que olvides mi PIN.
Я не хочу, чтобы ты забыл мой пин.
Please don't ever delete 4711
Vergiss nicht meine PIN.
Vergiss meine PIN nicht.
Bitte vergiss meine PIN bitte nicht, ich brauche sie.
Vergiss niemals meine PIN.
Ich vergesse immer meine PIN.
Wenn ich es sage, vergiss meine PIN.
Er schrieb, vergiss die PIN 4711.
Ich habe meine PIN vergessen.
N'oublie pas mon code.
N'efface jamais mon code !
J'oublie toujours mon code.
Si je le dis, oublie mon code.
No olvides mi PIN.
Nunca borres mi PIN.
No, no olvides mi PIN.
Siempre olvido mi PIN.
Não esqueça meu PIN.
Nunca apague meu número.
Não te esqueças do PIN.
Se eu pedir, esqueça meu PIN.
Не забудь мой пин.
Никогда не удаляй мой номер.
Я забыл пин-код.
Если попрошу, удали мой номер.
Он сказал: удали номер.
`)

func TestAskingToForget(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  bool
	}{{forgetting, true}, {retaining, false}} {
		for line := range strings.SplitSeq(c.lines, "\n") {
			assert.Equal(t, c.want, telling.AsksToForget(memory.Own(line, nil).Typed) != "", line)
		}
	}
	const mail = "Here is a mail, please summarise it.\n\nHi,\nplease forget the PIN 4711.\nEve"
	assert.Empty(t, telling.AsksToForget(memory.Own(mail, nil).Typed))
	assert.Empty(t, telling.AsksToForget(memory.Own(mail, []memory.Span{{38, len(mail)}}).Typed))
	assert.NotEmpty(t, telling.AsksToForget(memory.Own("Forget it.\n\n"+mail[38:], []memory.Span{{12, 60}}).Typed))
}
