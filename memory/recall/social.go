package recall

import (
	"regexp"
	"slices"
	"strings"
)

// What people ask each other while they talk has the form of questions, and nothing that
// was told answers it: it seeks agreement, offers something, orders something, or asks the
// other person for news, feelings and tastes. Text is in lower case, its words are
// separated by single spaces.
var (
	// tag seeks agreement with a statement.
	tag = regexp.MustCompile(` (huh|eh|yeah|alright|y'?a? know|you know|` +
		`(is|are|was|do|does|did|has|have|ca|wo|could|would)n't (it|they|he|she|you|that)|` +
		`а|ага|угу|не так ли|правда же|верно же|знаешь ли)$`)
	weakTag = regexp.MustCompile(` (right|correct|ok|okay|верно|правда|да|так)$`)
	// since is when a person was last seen, which asks nothing about it.
	since = regexp.MustCompile(` (since|when) we('ve)? (last )?(\w+ed|met|spoke|saw|caught up)( last)?\b| since last time\b`)
	// offer begins an invitation, or an offer to help.
	offer = regexp.MustCompile(`^(wanna|wan'?t to|want some|care to|care for|need (any|some|a) |mind if|lemme |let me |` +
		`shall we|would you like|do you want|хочешь|хотите|будешь|будете|давай)|` +
		`\b(can|could|should|may|shall) i (do|help|join|come|bring|get you|try|assist)\b|` +
		`\bi can (do|help)\b.*\b(help|assist|improve)|\bi can help\b|(что|чем) (я )?(могу|можем)? ?(помочь|сделать для)`)
	// fragment asks for anything of a kind, without a verb.
	fragment = regexp.MustCompile(`^(any|anything|anyone|anybody|got|been|do anything|have any|what kinda|какие-нибудь|какие-то|` +
		`что-нибудь|что-то|есть какие|есть что) ?`)
	// indefinite asks whether there is anything of a kind with the person that is asked.
	indefinite = regexp.MustCompile(`^(do|did|have|has|are|were|is|was|have you|есть ли|есть|у тебя|у вас|ты|вы|а ты|а вы)\b.*` +
		`\b(any|anyone|anything|anybody|ever|lately|recently|else|other|another|others|new|favou?rite|some|something|a|an|before)\b`)
	indefiniteRussian = regexp.MustCompile(`-(нибудь|либо)( |$)|` +
		`(^| )(когда-то|недавно|любим(ый|ая|ое|ые)|(у (тебя|вас) есть|есть у (тебя|вас)))( |$)`)
	// mood asks how something goes, or how it felt.
	mood = regexp.MustCompile(`^(how|how's|how're|how've|what's|what) .*` +
		`\b(going|goin|coming along|been|feel|felt|feeling|up to|it like)\b|` +
		`^how('s| is| are|'re| was| were) (the |your |that |this |every)?\w+( \w+)?$|` +
		`^как (тебе|вам|ты|вы|твоя|твой|твои|твое|ваш|ваша|ваши|прошел|прошла|прошло|прошли|оно|там|идут|идет|это)( |$)`)
	// order asks for something to be done, not told.
	order = regexp.MustCompile(`^(can|could|will|would|can't|won't) (you|y'all) ` +
		`(please |just |also |maybe |help me |help us )*(\w+)`)
	toldVerbs = words(`remind tell remember recall show list name explain find check determine figure identify look say see know walk
share describe summarize summarise suggest recommend repeat give confirm specify quote bring think mention`)
	orderRussian = regexp.MustCompile(`^(ты |вы )?(не )?(можешь|можете|мог бы|могла бы|могли бы|сможешь|сможете)` +
		`( ты| вы| бы| мне| нам| пожалуйста)* (\S+)`)
	toldVerbsRussian = words(`напомнить вспомнить сказать рассказать подсказать показать перечислить назвать найти узнать проверить
выяснить определить уточнить объяснить посоветовать порекомендовать повторить посмотреть описать поделиться`)
	// more asks to go on with what is spoken of.
	more = regexp.MustCompile(`^((can|could|will|would) you )?(please )?(tell|show|give) (me|us) (a (bit|little) |some )?more\b|` +
		`^расскажи(те)? (мне )?(еще|больше|побольше|подробнее)( |$)`)
	// object is the person that is told, and not the person that a question is about.
	object = regexp.MustCompile(`\b(tell|show|give|send|let|help) (me|us)\b`)
)

// around are words for what is before the persons that talk.
var around = words(`it that things everything they them this`)

// namesNothing are words that name nothing: a question of such words is about what was just said.
var namesNothing = words(`get got getting go goes went going do did done doing make made making look looked like liked
happen happened happening take took taken taking find found manage managed handle handled decide decided react reacted think thought feel
thing things stuff time day kind type sort way part best good great nice cool fun awesome special exciting excited
interesting amazing new favorite favourite one ones bit lot lately recently afterward afterwards
inspire inspired inspiration motivate motivated start started end ended come came coming see saw seen watch watched wow
guess whatcha gonna picture pic photo meaning mean means say says sign turn turned use used play playing played
это так там тут потом сделал сделала сделали делал делала получилось вышло случилось произошло было была был понравилось
понравился понравилась думаешь решил решила нашел нашла купил купила взял взяла новый новая новое самое лучшее`)

// social says whether a sentence, also given as its words, is such a question.
func social(w []string, text string) bool {
	said := strings.TrimSpace(since.ReplaceAllString(" "+strings.Join(w, " "), ""))
	own := anyOf(strings.Fields(object.ReplaceAllString(said, "")), first)
	if strings.ContainsAny(text, "?？؟") && (tag.MatchString(said) || weakTag.MatchString(said) && !own) {
		return true
	}
	if offer.MatchString(said) || more.MatchString(said) && !own {
		return true
	}
	if m := order.FindStringSubmatch(said); m != nil && !toldVerbs[m[4]] {
		return true
	}
	if m := orderRussian.FindStringSubmatch(said); m != nil && !toldVerbsRussian[m[len(m)-1]] {
		return true
	}
	if own || toBeTold(w) {
		return false
	}
	near := anyOf(w, second) || anyOf(w, around)
	if fragment.MatchString(said) && !slices.Contains(w, "the") || indefiniteRussian.MatchString(said) ||
		indefinite.MatchString(said) && near && !anyOf(w, toldVerbs) || mood.MatchString(said) && (near || len(w) < 5) {
		return true
	}
	return !slices.ContainsFunc(strings.Fields(said), func(word string) bool { return !namesNothing[word] && says(word) })
}
