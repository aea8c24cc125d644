// Package telling decides whether a quote of a message is what its writer tells, so that it may stand as a note in
// every later prompt. A piece of a message may say the contrary of it, and much of what people post is not theirs: so a
// quote counts only if it is made of whole sentences, or of their first clauses, and wherever that is in doubt it does
// not.
package telling

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/recall"
	"mneme/memory/textindex"
)

// Tells says whether a quote, whose white space is normalised, is told by the writer of a message.
func Tells(message, quote string) bool {
	if len(message) > maxMessage {
		return false
	}
	message, quote = oneSpelling(message), oneSpelling(quote)
	if aboutTexts.MatchString(words(message)) {
		return false
	}
	sentences, own := split(message), 0
	if mark := marks.FindStringIndex(message); mark != nil {
		sentences = split(message[:mark[0]])
		own = len(sentences) - 1 // the last one goes on behind the mark
		sentences = append(sentences, split(message[mark[0]:])...)
	} else {
		own = len(sentences)
	}
	told := func(piece string) bool {
		for i, s := range sentences[:own] {
			near := words(sentences[max(0, i-1):min(i+3, len(sentences))]...)
			if begins(s, piece) && states(s) && !reports.MatchString(near) {
				return true
			}
		}
		return false
	}
	pieces := slices.DeleteFunc(split(quote), func(s string) bool { return s == "" })
	return len(pieces) > 0 && !slices.ContainsFunc(pieces, func(s string) bool { return !told(s) })
}

// maxMessage is how many bytes of a message are judged: more are pasted.
const maxMessage = 16 << 10

// begins says whether a sentence is a piece, or has it as its first clause before others that do not change it. Only
// what introduces a sentence may stand before it.
func begins(sentence, piece string) bool {
	piece = withoutEnd(piece)
	if !telling(lead.ReplaceAllString(piece, "")) {
		return false
	}
	for _, at := range append(clause.FindAllStringIndex(sentence, -1), []int{len(sentence)}) {
		if at[0] > 2*len(piece)+256 {
			return false
		}
		head, ok := strings.CutSuffix(withoutEnd(memory.OneLine(sentence[:at[0]])), piece)
		if ok && lead.ReplaceAllString(head, "") == "" && !changes.MatchString(words(sentence[at[0]:])) {
			return true
		}
	}
	return false
}

// telling says whether a text has two words, one of which is not a stopword, or is of a script without spaces.
func telling(text string) bool {
	count := len(slices.Collect(textindex.Words(text)))
	unspaced := utf8.RuneCountInString(text) >= 4 && strings.ToUpper(text) == strings.ToLower(text)
	return len(textindex.Terms(text)) > 0 && (count >= 2 || unspaced)
}

// states says whether a sentence neither asks nor supposes.
func states(sentence string) bool {
	sentence = lead.ReplaceAllString(sentence, "")
	said := words(sentence)
	return !recall.IsQuestion(sentence) && !asks.MatchString(said) && !supposes.MatchString(said)
}

// split cuts a text into sentences. The last one may be empty, or go on behind the text. A line's end is none of a
// sentence: what it depends on may stand in the line before.
func split(text string) (sentences []string) {
	from := 0
	for _, at := range ends.FindAllStringIndex(text, -1) {
		if !goesOn.MatchString(text[max(from, at[1]-16):at[1]]) {
			sentences = append(sentences, strings.TrimSpace(text[from:at[1]]))
			from = at[1]
		}
	}
	return append(sentences, strings.TrimSpace(text[from:]))
}

// withoutEnd is a sentence without what ends it, unless that is a question mark.
func withoutEnd(s string) string {
	return strings.TrimRightFunc(s, func(r rune) bool {
		return strings.ContainsRune(" .!,;。！", r) || unicode.Is(unicode.So, r)
	})
}

// oneSpelling gives apostrophes and single quotation marks one form each. A single word in quotation marks is taken for
// a name, since it states nothing.
func oneSpelling(text string) string {
	text = apostrophes.ReplaceAllString(text, "'")
	text = openQuote.ReplaceAllString(text, `$1"`)
	text = closeQuote.ReplaceAllString(text, `"$1`)
	return introduction.ReplaceAllString(quotedName.ReplaceAllString(text, "$1"), "$1$2, ")
}

var (
	apostrophes  = regexp.MustCompile("[’‘‛ʼ′´＇]")
	openQuote    = regexp.MustCompile(`(^|[^\pL\pN])'`)
	closeQuote   = regexp.MustCompile(`'([^\pL\pN]|$)`)
	quotedName   = regexp.MustCompile(`["“„«]([\p{Lu}\p{Ll}][\p{Lu}\p{Ll}\pN-]*)["”“»]`)
	introduction = regexp.MustCompile(`(?i)(^|[^\pL])(remember|note|important|ps|fyi|запомни|запомните|учти|важно): +`)

	// marks stand where words may begin that are not the writer's: quotation marks, code, tags, a colon, a line that
	// parts texts, a line of a dialogue. Where they end is never sure, so nothing behind the first one counts.
	marks = regexp.MustCompile("(?m)[\"`<>＂＜＞“”„‟«»‹›「」『』《》❝❞〝〞\\p{Cf}]|:(?:\\s|$)|：|^(?:\t| {4})|^[ \t]*[—–]|" +
		"^[ \t]*[-=*_#~]{3,}[ \t]*$")

	ends   = regexp.MustCompile(`[.!?]+\s+|[。！？]+\s*`)
	goesOn = regexp.MustCompile(`(?i)(?:\.\.|(?:^|[^\pL])(?:\pL|mr|mrs|ms|dr|prof|st|vs|etc|ул|им|проф|др|гр)\.)\s+$`)

	// lead is what introduces a sentence and changes nothing in it.
	lead = regexp.MustCompile(`(?i)^(?:(?:(?:hi|hello|hey)(?: there)?|ok|okay|yes|yeah|oh|well|so|and|also|btw|` +
		`by the way|actually|thanks|thank you|please|(?:important|note|ps|fyi|no|нет|важно),|` +
		`(?:note|remember|keep in mind|don't forget)(?: that)?|привет|здравствуйте?|добрый день|добрый вечер|ок|да|` +
		`ну|и|а|также|кстати|спасибо|пожалуйста|` +
		`(?:запомни|помни|учти|имей в виду|не забудь|не забывай)(?:те)?(?:,? что)?)(?:[\s,!]+|$))+`)

	// clause is where a first clause may end: the next one has a subject of its own, or a line.
	clause = regexp.MustCompile(`(?i)\n|[,;] (?:and|и|а) |(?:[,;]| [—–-]| and| и| а) (?:i|i'm|i've|my|we|our|please|` +
		`я|мне|меня|у меня|мой|моя|моё|мое|мои|мы) `)
)

// words are those of sentences with a space around each, and behind each sentence a question mark if it has one, else a
// full stop.
func words(sentences ...string) (said string) {
	said = " "
	for _, s := range sentences {
		said += strings.Join(slices.Collect(textindex.Words(s)), " ") + " . "
		if strings.ContainsAny(s, "?？؟⁇⁈⁉‽") {
			said = said[:len(said)-2] + "? "
		}
	}
	return said
}

// oneOf is a pattern of words: a star is any ending, an underscore the space between two.
func oneOf(list string) *regexp.Regexp {
	list = strings.NewReplacer("*", `\S*`, "_", " ").Replace(strings.Join(strings.Fields(list), "|"))
	return regexp.MustCompile(" (?:" + list + ") ")
}

var (
	// aboutTexts are the words of who hands a text over, or plays: then nothing of the message is sure to be meant.
	aboutTexts = oneOf(`summari* a_summary translat* proofread* rewrite reword rephras* paraphras* transcri*
following below (is|does|about|with|answer|forward|copy|say)_(this|these)
(read|check|fix|correct|review|improve|edit|shorten|explain|analy*|continue|finish)_(this|these|the|my)
(this|the|that|attached|pasted)_(text|mail|email|message|letter|article|post|paragraph|document)
(text|mail|email|message|letter)_(from|by) repeat_after here_is here's dear regards sincerely forwarded quote*
suppos* imagin* assum* pretend* hypothe* role_play* roleplay* act_as picture_(this|me) for_the_sake let's_(say|play)
kidding joking перевед* перевест* перескаж* пересказ* резюмир* суммир* сократи* перефраз* исправь* проверь*
отредактир* перепиши* прочитай* прочти* процитир* повтори* продолж* следующ* ниже
(это|этот|эта|вот)_(письмо|текст|сообщени*|стать*|пост|документ) уважаем* с_уважением допусти* предполож* положим
скажем представ* вообрази* притвори* сделай_вид шучу шутка`)
	// reports are the words of who passes on what others say, or takes back what he says, in a sentence or beside it.
	reports = oneOf(`said says saying tells told telling claim(s|ed|ing) thinks thought believes believed
insist(s|ed|ing) argues argued swears swore stated writes wrote reads mentions mentioned according apparently
allegedly supposedly reportedly rumo* heard asks asked replied answered suggests suggested suspects suspected
reckons explained reported admits admitted warns warned promises promised denies denied shouts shouted texted posted
confirms confirmed demands demanded accuses accused alleges advised recommended convinced opinion
(calls|called|wants)_me per_my read_that word_is legend_has
(they|you|people|some|everyone|\S+s)_(say|think|believe|claim|tell|ask|want)(_me)?
(write|draft|compose|text|email|tell)_(to|him|her|them|my|a|an) lie lies untrue not_true is_false [.?]_not_[.?]
or_not_[.?] говор(ит|ят|ил*|ишь|ите) сказа* скажет утвержда* счита(ет|ют|л*) дума(ет|ют|л*) пишет пишут писал*
написа* напиши* сообщи* сообща* заяв* уверя* уверен* клян* якобы мол дескать слыша* слух* по_словам согласно
по_мнению ответил* спросил* спрашива* просит просил* попросил* велел* обеща(ет|л*) призна* требу(ет|ют) рассказал*
рассказыва* настаива* полага* обвиня* называет_меня неправда ложь вранье sagt sagte behauptet
(right|correct|true|really|верно|правда|да|нет|так)_\?`)
	// asks are questions, and what asks behind a statement.
	asks = regexp.MustCompile(`^ (?:is|are|am|was|were|does|did|has|could|would|should|shall|might|who|whose|whom|` +
		`which|why|where|how|what|(?:is|are|was|were|does|did|has|could|would|should)n'?t) |` + oneOf(`\?
(am|is|are|was|were|do|does|did|can|could|will|would|should|may|might|must|has|have|had|\S+n't)_(i|we|you|he|she|it|they)
ли разве неужели wonder* whether интересно (right|correct|huh|eh|innit|yeah|верно|правда|да)_\.`).String())
	// supposes are the words of conditions and wishes, and of what somebody knows, fears or is to be told.
	supposes = oneOf(`if unless when whenever in_case provided as_though wish* dream* (for|an)_(example|instance)
say_(i|i'm|my) that_(i|i'm|i've|i'd|my|me|we|our) если когда бы б будь пусть вдруг например к_примеру теоретически
гипотетически будто словно что_(я|у|мне|меня|мой|моя|мое|мои|мы) wenn falls angenommen`)
	// changes are the words by which a clause takes back or narrows the one before.
	changes = oneOf(`not no never nobody none nor neither or but except unless only mean* wish* hope* guess* lie
lied lying used anymore longer however though although yet once until till before formerly maybe perhaps probably
almost rather wrong false \S+n't не нет ни никогда но или либо кроме только пока хотя однако раньше бывш* наверное
может почти вроде впрочем наоборот неправда соврал*`)
)
