package recall

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/textindex"
)

// IsQuestion says whether a message or a task asks for something that may have been said
// before, by its form alone, in English or Russian: it has a question mark behind more
// than small talk, begins as questions do, or asks to be told or reminded. Of a long text
// the first and the last sentences count. Code, quotations and addresses do not, nor do
// orders, offers, and what people ask each other while they talk.
func IsQuestion(text string) bool {
	text = ends(text)
	text = oneSpelling.Replace(strings.ToLower(notProse.ReplaceAllString(text, "\n")))
	sentences := sentence.FindAllString(text, -1)
	const edge = 3
	if len(sentences) > 2*edge {
		sentences = slices.Concat(sentences[:edge], sentences[len(sentences)-edge:])
	}
	return slices.ContainsFunc(sentences, asks)
}

// ends is a text, or the front and the back of one that is very long: a question stands
// there, before or behind what is pasted.
func ends(text string) string {
	const most = 8 << 10 // bytes
	if len(text) <= 2*most {
		return text
	}
	back := len(text) - most
	for !utf8.RuneStart(text[back]) {
		back++
	}
	return front(text, most) + "\n" + text[back:]
}

var (
	notProse    = regexp.MustCompile("(?s)```.*?(```|$)|`[^`\n]*`|(?m:^\\s*>.*$)|https?://\\S+")
	sentence    = regexp.MustCompile(`[^.!?？؟…;\n]+[.!?？؟…;]*`)
	oneSpelling = strings.NewReplacer("ё", "е", "’", "'")
)

// asks says whether a sentence in lower case is a question.
func asks(text string) bool {
	w := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '\'' && r != '-'
	})
	for len(w) > 1 && fillers[w[0]] {
		w = w[1:]
	}
	if len(w) == 0 || smallTalk(w) {
		return false
	}
	if social(w, text) {
		return false
	}
	if !anyOf(w, first) && (anyOf(w, second) && !anyOf(w, known) && !slices.ContainsFunc(w, past) || !says(text)) {
		return false // about the person that is asked, or about nothing
	}
	if strings.ContainsAny(text, "?？؟") {
		return len(w) > 1 || interrogatives[w[0]]
	}
	return !strings.Contains(text, "!") && (englishAsks(w) || russianAsks(w, text)) || toBeTold(w)
}

// A question that speaks of the person that is asked, and not of the person that asks, is
// small talk unless it is about what that one did, knows or can do.
var (
	first = words(`i me my mine myself we us our ours i'm i've i'd i'll we're we've я меня мне мной мы нас нам нами мой моя мое
мои моего моей моему моем моих моим моими мою наш наша наше наши нашего нашей нашему нашем наших нашим нашу`)
	second = words(`you your yours you're you've ты тебя тебе тобой вы вас вам вами твой твоя твое твои твоего твоей твоих твою
ваш ваша ваше ваши вашего вашей ваших вашу`)
	known = words(`did have has had was were remember know recall can could would will should can't couldn't wouldn't
помнишь помните знаешь знаете можешь можете мог могла могли`)
)

var pastEnding = regexp.MustCompile(`(л|ла|ли|лся|лась|лись)$`)

// past tells Russian verbs of the past by their endings.
func past(w string) bool {
	return len(w) > len("лжи") && pastEnding.MatchString(w)
}

func anyOf(w []string, set map[string]bool) bool {
	return slices.ContainsFunc(w, func(word string) bool { return set[word] })
}

// says tells whether a text has words to search by.
func says(text string) bool { return len(textindex.Terms(text)) > 0 }

// fillers stand before what a sentence begins with.
var fillers = words(`please ok okay hey hi hello so and but well oh um also then now btw actually sorry thanks again
пожалуйста ну а и но так привет ок слушай кстати еще спасибо извини тогда вот слушайте здравствуйте`)

// small talk that has the form of questions.
var phrases = strings.Split(`how are you|how're you|how is it going|how's it going|how are things|how's everything|
how have you been|how do you do|how's life|how was your day|how was your weekend|how's your day|how about you|
what about you|what's up|what is up|whats up|sup|what's new|what's going on|anything new|and you|yourself|you there|
are you there|anyone there|is anyone there|can you hear me|are you ready|ready|are you ok|are you okay|who knows|why not|
so what|you know what|guess what|know what i mean|you know|isn't it|isn't that great|isn't that nice|what do you think|
does that make sense|make sense|makes sense|shall we|sounds good|sound good|is that ok|is that okay|is that all right|
anything else|can you believe it|can you believe that|really|right|what|huh|seriously|is that so|deal|what else|
how cool is that|how nice is that|how great is that|may i ask you something|can i ask you something|
can i ask a question|can you help me|could you help me|are you a robot|are you human|
как дела|как ты|как жизнь|как вы|как сам|как сама|как настроение|как поживаешь|как поживаете|как твои дела|
как ваши дела|как оно|как прошел день|что нового|ты тут|ты здесь|вы тут|вы здесь|есть кто|ты|вы|у тебя|у вас|правда|
серьезно|да|нет|что|как|понятно|понимаешь|готов|готова|готовы|кто знает|почему нет|почему бы и нет|почему бы нет|
начнем|поехали|что думаешь|как думаешь|что скажешь|как тебе|неужели|не так ли|верно|ладно|договорились|идет|хорошо|
можно вопрос|можно спросить|можно тебя спросить|ты поможешь|поможешь|поможешь мне|можешь помочь|ты можешь помочь|
можешь мне помочь|представляешь|знаешь что|не правда ли|разве не здорово`, "|")

func smallTalk(w []string) bool {
	said := strings.Join(w, " ")
	return slices.ContainsFunc(phrases, func(p string) bool {
		p = strings.TrimSpace(p)
		rest, found := strings.CutPrefix(said, p)
		return found && (rest == "" || rest[0] == ' ' && addition[strings.TrimSpace(rest)])
	})
}

// addition may follow small talk.
var addition = words(`today now doing then there so guys all everyone buddy man friend too сегодня сейчас там тут все друг`)

// interrogatives are the words that ask.
var interrogatives = words(`what when where who whom whose which why how what's when's where's who's how's
кто что где когда куда откуда почему зачем как какой какая какое какие какого каком какую каким какими каких сколько
чей чья чье чьи чем кому кого кем о чему чего который которая которое которые которую`)

var (
	asking     = words(`what when where who whom whose which why how`)
	contracted = words(`what's when's where's who's how's`)
	auxiliary  = words(`is are was were am do does did have has had can could should would will shall might isn't aren't
wasn't weren't don't doesn't didn't haven't hasn't hadn't can't couldn't shouldn't wouldn't won't`)
	pronoun  = words(`i we you he she it they this that a an i'm we're you're it's i've i'd i'll`)
	subject  = words(`i we you he she they it my our your there this that any anyone anything the his her their`)
	speakers = words(`i we you they`)
)

// englishAsks knows questions by their order of words: a word that asks and a verb behind
// it before any subject, or a verb before the subject.
func englishAsks(w []string) bool {
	if contracted[w[0]] {
		return len(w) > 2
	}
	if asking[w[0]] {
		for i, next := range w[1:min(len(w), 6)] {
			switch {
			case auxiliary[next]:
				return len(w) > i+2 && (w[0] != "which" || i > 0 || subject[w[2]])
			case pronoun[next]:
				return false
			case i == 0 && w[0] == "when": // "when spring came …"
				return false
			}
		}
		return len(w) > 2 && w[0] == "who" || w[0] == "how" && len(w) > 2 && w[1] == "to" ||
			len(w) == 2 && (w[1] == "about") || len(w) > 2 && w[1] == "about"
	}
	if len(w) < 3 || !auxiliary[w[0]] || w[0] == "had" || w[0] == "don't" {
		return false
	}
	if w[0] == "do" || w[0] == "have" {
		return speakers[w[1]]
	}
	return subject[w[1]]
}

// asRussian are words that make no question of the one that asks before them.
var asRussian = words(`здорово хорошо приятно жаль круто интересно раз обычно только будто скажешь хочешь угодно
договорились всегда говорится видишь бы ни то же ж касается минимум правило вариант следует красиво классно
мило неприятно обидно странно`)

var prepositions = words(`в во с о об на у к по из от для за`)

// russianAsks knows questions by the word that they begin with, if no main clause follows
// behind a comma, and by the particle "ли".
func russianAsks(w []string, text string) bool {
	for i, word := range w[:min(len(w), 5)] {
		if word == "ли" && i > 0 && !strings.Contains(text, ",") {
			return true
		}
	}
	at := 0
	if len(w) > 2 && prepositions[w[0]] {
		at = 1
	}
	if w[at][0] < 0x80 || !interrogatives[w[at]] || len(w) < at+2 || asRussian[w[at+1]] ||
		w[at] == "как" && w[at+1] == "я" {
		return false
	}
	return !strings.Contains(text, ",") || w[at] == "какой" || w[at] == "какая" || w[at] == "какие" || w[at] == "сколько"
}

// What follows a request to be told something that is known.
var (
	toldOf = words(`what when where who whom whose which why how about again if whether everything all my our the his her
your what's who's where's кто что где когда куда откуда почему зачем как какой какая какое какие какого каком какую каких
сколько чей чья чье чьи чем кому кого о об обо про мой моя мое мои мою моего моих наш наша наше наши все всё`)
	between = words(`me us please again once more to know let out up мне нам пожалуйста еще раз ка мне-ка снова`)
)

// tells are the requests that toldOf must follow, and those that ask by themselves.
var (
	tells = words(`remind tell remember recall show list name explain forgot forget напомни напомните скажи скажите
подскажи подскажите расскажи расскажите покажи вспомни вспомните помнишь помните забыл забыла назови перечисли объясни
помню знаешь знаете`)
	finds = words(`find check determine figure identify look найди найдите узнай узнайте проверь проверьте выясни выясните
определи определите уточни уточните`)
	forgotten = words(`forgot forget забыл забыла`)
	lead      = words(`i can you could would do don't can't cannot we not just quickly я не ты вы можешь можете мы уже`)
)

// toBeTold says whether a sentence asks to be told or reminded of something.
func toBeTold(w []string) bool {
	own := false // "I remember …" tells, and "I don't remember …" asks
	for len(w) > 1 && lead[w[0]] {
		own = w[0] == "i" || w[0] == "we" || w[0] == "я" || w[0] == "мы" || own && w[0] == "уже"
		w = w[1:]
	}
	if len(w) < 2 || !tells[w[0]] && !finds[w[0]] || own && !forgotten[w[0]] {
		return false
	}
	for _, next := range w[1:] {
		if !between[next] {
			return interrogatives[next] || next == "whether" || next == "if" || tells[w[0]] && toldOf[next]
		}
		if next == "to" && w[0] != "remember" { // "remind me to …"
			return false
		}
	}
	return false
}
