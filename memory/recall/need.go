package recall

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/textindex"
)

// carried is what a message brings along to be worked on: code, quotations, addresses, what stands behind a colon and asks
// nothing.
var carried = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]*`|(?m:^\\s*>.*$)|https?://\\S+|" +
	`["“„«][^"“”«»\n]{16,}["“”»]|(?m:: [^?？\n]{15,}$)|:\s*\n[^?？]*$`)

var (
	sentence     = regexp.MustCompile(`[^.!?？؟…;。\n]+[.!?？؟…;。]*`)
	oneSpelling  = strings.NewReplacer("ё", "е", "’", "'")
	unspelt      = regexp.MustCompile(`\p{Cyrillic}|\p{Han}`) // scripts of languages without articles
	name         = regexp.MustCompile(`(\pL+) (\p{Lu}[\pL-]{2,})('s)?`)
	prepositions = textindex.WordSet(`в во с о об на у к по из от для за`)
	places       = textindex.WordSet(`of in the to from at on between than`) // stand before names of places
	// bids are the endings of Russian imperatives, past those of verbs that tell what was.
	bids = regexp.MustCompile(`^[а-я]+(й|и|ь|йте|ите|ьте|йся|ись)$`)
	past = regexp.MustCompile(`^([а-я]{2,}(л|ла|лся|лась|лись)|[а-я]+[^с]ли|[a-z]{3,}ed)$`)
	// wish asks the reader to do something.
	wish = regexp.MustCompile(`(^| )((can|could|would|will) you|мож(ешь|ете)|могл?[аи]? бы|kannst du|puedes)( |$)`)
	// statementStart is how the first words of a statement go on: with its subject and verb.
	statementStart = regexp.MustCompile(`^\S*'[^d]|^\S+ \S+'[^s]|^\S+ing( |$)| (i|я|is|are|was|were|has|have|had|will|can|would|could|should|ist|sind|war|hat)( |$)`)
)

// clues are words that say what a message is about, each kind with a letter: of the writer (o), the reader (y), a thing
// that is known (d) or any (a), what was or is again (b), memory (m), the world in general (g), text to be made (k), small
// talk (s), the past (p). Others begin questions (q) and statements (t), or stand before what a sentence begins with (f).
var clues = vocabularyOf(`
o: i i'm i've i'd i'll im me my mine myself we our ours we're we've я меня мне мной мы нас нам нами мой моя мое мои
моего моей моему моем моих моим моими мою наш* ich mich mein* wir uns unser* yo mi mis nuestr* mir je j'* moi m'* mon
ma mes nous notre nos mí nosotr* tengo soy estoy vivo trabajo necesito quiero puedo debo dije pedí reservé compré nací
hago voy io mio mia miei mie noi nostr* ho abito lavoro devo voglio posso vado faccio; y: you your yours you're you've
ты тебя тебе тобой вы вас вам вами твой твоя твое твои ваш* du dein* tu usted dich dir ihnen te ton ta tes vous votre
vos tú tus tuo tua tuoi; d: the that those this these тот та то те того той том тех тем этот эта этот эти эту der die
das den dem diese* le la les ce cette ces el los las este esta ese esa il lo gli questo questa quel quella; a: a an
any some ein eine un una einen einem une des unos uno; b: again still last same before previous* earlier usual as
already anymore nowadays currently опять снова прошл* тогда прежн* раньше те же обычно теперь сейчас wieder nochmal
letzt* immer damals früher gleich* encore dernier* dernière* toujours même* avant précédent* otra último* última*
todavía siempre mism* antes anterior* ancora ultim* sempre stess* solit* nuovo; m: remember remind forgot forget
forgotten recall told said mentioned agreed decided promised settled planned noted записан* напомн* помн* вспомн*
забыл* говорил* договор* договаривал* обещал* решил* erinner* vergessen gesagt erwähnt vereinbart beschlossen
versprochen notiert rappelle* souviens oublié* dit noté* décidé* promis convenu* recuérda* recuerda* olvid* dijiste
acord* decid* prometí anot* ricord* dimentic* detto deciso promesso concordato annot*; g: general generally usually
typical* generic average difference mean means explain world определение значит отличается разница разнице вообще
обычный бывает бывают allgemein normalerweise durchschnitt* unterschied bedeutet erklär* général* moyenne différence
signifie explique* generalmente promedio diferencia significa explica* generale differenza spiega*; k: translate write
convert correct summarize shorten rewrite make create generate turn sort solve fix calculate draft suggest придумай
переведи напиши сократи реши исправь посчитай расставь übersetz* schreib* korrigier* fasse mach erstelle berechne
traduis écris corrige résume réécris fais crée calcule traduce escribe resume haz crea calcula traduci scrivi correggi
riassumi fai calcola; s: thanks thank thx cheers hi hello lol haha bye great cool wow sorry спасибо привет хаха ок
супер danke gracias congratulations nice glad love lovely happy awesome amazing hallo tschüss super schade merci salut
bonjour bravo désolé* hola jaja genial perdón grazie ciao scusa bello; p: did was were had been got went said told
made gave used waren hatte wurde était étais avait era estaba fue había hubo aveva stato stata; q: what what's whats
when where where's who who's whose whom which why how how's is are was were am do does did has have can could would
will should кто что где когда куда откуда почему зачем как какой какая какое какие какого каком какую каким каких
сколько чей чья чье чьи чем кому кого кем was wie wo wer wann warum welche* qué cuál cuáles cuándo dónde quién cómo
cuántos wieso wieviel* qui où quand pourquoi comment quel* combien qu'* est-ce donde cuando cual quien como cuanto*
cuánt* chi dove quando perché quale quali quant* cosa cos'* qual; t: i i'm i've im it it's that's we he she they the
my our this his her their there a yesterday today finally just я мы он она оно они мой моя мои у сегодня вчера это все
er es wir heute gestern gerade endlich il elle aujourd'hui hier hoy ayer oggi ieri; f: please ok okay hey hi hello so
and but well oh um also then now btw actually sorry thanks lol haha hmm ugh ah yeah yes no пожалуйста ну а и но так
привет ок слушай кстати еще спасибо извини тогда вот слушайте здравствуйте bitte und aber stp svp alors et mais bon
ben pues y pero bueno oye allora ma dai senti`)

// weights are what speaks for memory in a sentence, in tenths: its clues, those of the writer and of the past apart in
// questions (?) and orders (!), a question mark (??) and a name that a history knows (n). They were fitted to testdata/talk
// by logistic regression, but for longWeight; a chat that was left out came out alike.
var weights = map[string]int{
	"?o": 38, "!o": 12, "?p": 17, "b": 32, "d": 11, "m": 27, "n": 13, "y": -8, "a": -4, "g": -23, "k": -8, "s": -20,
	"?": -3, "!": 8, "t": -10, "??": 6,
}

const (
	rareWeight    = 19 // of each rare word that the best message has, up to mostRare
	mostRare      = 2
	unspeltWeight = 2   // where articles say nothing
	fewWeight     = -9  // of a message of less than four words
	repliesWeight = -9  // of one that begins with a sentence of small talk
	longWeight    = -23 // of one of 40 words or more, and less of it down to 20: it says itself what it needs
	leastNeed     = 32
	// clearNeed is the need from which on the whole budget may be used. Most messages that need nothing have less.
	clearNeed  = 1.8
	weakBudget = 640 // tokens
	// maxClueWords is how many words speak for memory: what has more of them has its clues and its rare words by chance.
	maxClueWords = 16
)

// MayNeed says whether the right reaction to a message may take something from a history, whatever that has: if not, no
// search is worth its while.
func MayNeed(text string) bool {
	score, _ := clueScore(prose(edges(text)), func(string) bool { return true })
	return score+rareWeight*mostRare >= leastNeed
}

// need returns how much speaks for it that the right reaction to a message takes something from the histories, as a
// multiple of leastNeed: how many of its rare words a message of theirs has, and what its sentences are about.
func need(indexes []*Index, text string) float64 {
	text = prose(text)
	score, words := clueScore(text, func(name string) bool { return rare(indexes, name) > 0 })
	return (score + rareWeight*min(rare(indexes, subjectOf(text, nil))*thin(words), mostRare)) / leastNeed
}

// thin is what a clue among so many words counts.
func thin(words int) float64 { return min(1, maxClueWords/float64(words)) }

// prose is a text without what it carries.
func prose(text string) string { return oneSpelling.Replace(carried.ReplaceAllString(text, "\n")) }

// clueScore is what the clues of a message say for memory, by the sentence that says most, and of how many words it is. Of
// a long one the first and the last sentences count.
func clueScore(text string, isKnown func(name string) bool) (score float64, words int) {
	const edge = 4
	sentences := sentence.FindAllString(text, -1)
	if len(sentences) > 2*edge {
		sentences = slices.Concat(sentences[:edge], sentences[len(sentences)-edge:])
	}
	score = math.Inf(-1)
	for _, s := range sentences {
		sum, n := clueSum(s, isKnown)
		score, words = max(score, sum), words+n
	}
	if len(sentences) > 1 && slices.ContainsFunc(wordsIn(sentences[0]), func(w string) bool { return clues.has(w, "s") }) {
		score += repliesWeight
	}
	if unspelt.MatchString(text) {
		score += unspeltWeight
	}
	if words < 4 {
		score += fewWeight
	}
	return score + longWeight*max(0, min(1, float64(words-20)/20)), words
}

func wordsIn(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '\'' && r != '-'
	})
}

// rare returns about how many rare words of a text the best passage has.
func rare(indexes []*Index, text string) (most float64) {
	for _, ix := range indexes {
		most = max(most, ix.words.Snapshot().RareWords(text, maxTerms))
	}
	return most
}

// clueSum is what the clues of a sentence say for memory, and of how many words it is.
func clueSum(text string, isKnown func(name string) bool) (score float64, count int) {
	w := wordsIn(text)
	count = len(w)
	for len(w) > 1 && clues.has(w[0], "f") {
		w = w[1:]
	}
	if len(w) == 0 {
		return math.Inf(-1), 0
	}
	head := strings.Join(w[:min(len(w), 3)], " ")
	marked := strings.ContainsAny(text, "?？؟")
	was := slices.IndexFunc(w, func(word string) bool { return past.MatchString(word) || clues.has(word, "p") })
	form := "!"
	switch {
	case wish.MatchString(strings.Join(w, " ")):
	case marked, clues.has(w[0], "q"), len(w) > 2 && prepositions[w[0]] && clues.has(w[1], "q"):
		form = "?"
	case was != 0 && bids.MatchString(w[0]) && !clues.has(w[0], "t"):
	case len(w) < 3, was >= 0 && was < 4, clues.has(w[0], "ts"), statementStart.MatchString(head),
		strings.HasSuffix(strings.TrimSpace(text), "!"):
		form = "t"
	}
	features := map[string]bool{form: true, "??": marked, form + "p": was >= 0, "k": clues.has(w[0], "k")}
	for i, word := range w {
		for _, c := range strings.Split(clues.kind(word), "") {
			switch c {
			case "o":
				features[form+c] = true
			case "d": // "the end of …" says itself which
				features[c] = features[c] || i+1 < len(w) && (i+2 == len(w) || !places[w[i+2]])
			case "b", "m", "y", "a", "g", "s":
				features[c] = true
			}
		}
	}
	for _, m := range name.FindAllStringSubmatch(text, 4) {
		features["n"] = features["n"] || (m[3] != "" || !places[m[1]]) && isKnown(m[2])
	}
	speaks, denies := 0, 0
	for clue, is := range features {
		if is {
			speaks, denies = speaks+max(weights[clue], 0), denies+min(weights[clue], 0)
		}
	}
	return float64(speaks)*thin(count) + float64(denies), count
}

// edges is a text, or the front and the back of one that is very long: what it asks stands there, before or behind what is
// pasted.
func edges(text string) string {
	const most = 8 << 10 // bytes
	if len(text) <= 2*most {
		return text
	}
	start := len(text) - most
	for !utf8.RuneStart(text[start]) {
		start++
	}
	return memory.Shorten(text, most) + "\n" + text[start:]
}

// hasTerms reports whether a text has search terms.
func hasTerms(text string) bool { return len(textindex.Terms(text)) > 0 }
