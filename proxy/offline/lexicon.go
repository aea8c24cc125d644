package offline

import (
	"maps"
	"slices"
	"strings"
)

// The tables hold function words, verbs of telling and asking, and synonyms. A table of words is written as one
// string of words apart by spaces; one of phrases, apart by bars.

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(fold(s)) {
		m[w] = true
	}
	return m
}

// phraseSet files phrases under their first word, the longest first.
type phraseSet map[string][][]string

func phrases(s string) phraseSet {
	set := phraseSet{}
	for p := range strings.SplitSeq(fold(s), "|") {
		if f := strings.Fields(p); len(f) > 0 {
			set[f[0]] = append(set[f[0]], f)
		}
	}
	for _, list := range set {
		slices.SortStableFunc(list, func(a, b []string) int { return len(b) - len(a) })
	}
	return set
}

var (
	abbreviations = words("dr mr mrs ms prof st jr sr vs no fig vol ul ave blvd apt e.g i.e ул г д кв им пр стр обл тел рис")

	// Question words, with the Russian forms that begin an indirect question too.
	interrogatives = words(`what who whom whose which where when why how what's who's where's when's how's whats wheres
		кто что где когда как какой какая какое какие какого какую каком каким какому каких какими сколько чей чья чье чьи
		почему зачем куда откуда кем чем кому чему кого чего ком чем`)
	ruPrepositions = words("в во на с со о об у к ко от до по из за для про при")

	auxiliaries = words(`is are am was were be do does did can could will would should shall may might has have had
		isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't shouldn't hasn't haven't hadn't`)
	copulas = words("is are was were am")

	// Words that begin a noun phrase or are a subject by themselves.
	subjects = words("i you he she it we they my your his her its our their the a an this that these those there any anyone anybody someone")
	pronouns = words("i you he she it we they my your his her its our their this that there")

	selfWords = words(`i me my mine myself i'm i've i'll i'd we us our ours we're we've
		я меня мне мной мною мой моя мое мои моего моей моему моим моих мою моими моем мы нас нам нами наш наша наше наши нашего нашей нашу нашем`)
	thirdWords = words(`he she they his her hers their theirs him them he's she's they're its
		он она они его ее их ему ей им ним ней них нему нее него`)
	secondWords = words(`you your yours yourself you're you've ты тебя тебе тобой твой твоя твое твои твоего твоей твою вы вас вам вами ваш ваша ваше ваши вашего вашей вашу`)

	// Words that carry no subject of their own when two sentences are compared.
	stopWords = words(`a an the and or but so if then than that this these those there here of to in on at for from with by as
		into onto about up out off over is are am was were be been being do does did doing done has have had having can could
		will would should shall may might must not no yes please tell told say said ask know knew remember remind let just also
		too very really actually now currently again still ever exactly thing something anything s it its what who whom whose
		which where when why how what's who's where's when's how's you your give one called
		don't doesn't didn't isn't aren't wasn't weren't can't won't
		many much often want wonder wondering like'd earlier before said mention mentioned previously user
		а и но или же ли бы не ни да нет в во на с со о об у к ко от до по из за для про при под над это этот эта эти того том то
		есть был была было были быть что кто где когда как какой какая какое какие какого какую каком каким сколько чей чья чье чьи
		скажи сказал сказала сказали говорил говорила сообщил напомни подскажи знаешь знаете помнишь помнит помню мне пожалуйста
		сейчас теперь еще уже тоже также так вот там тут здесь очень все всё ты вы тебе вам вас тебя твой ваш обо
		ли разве неужели назови меня именно раньше ранее вообще кстати сам самый`)
	negations = words("not no never don't doesn't didn't isn't aren't wasn't hasn't haven't can't hate не нет никогда")
	// Words that point to a place of documents, not to their content.
	docWords = words("doc docs document documents documentation file files manual handbook passage passages knowledgebase according документ документы документах документам документации документация файл файлы файлах файлам")

	// Adverbs and interjections that may open a statement and are dropped when it is given back.
	openers = phrases(`короче говоря|короче|значит|в общем|basically|no wait|wait no|oh wait|no sorry|oh no|ah|scratch that|correction|хотя нет|хотя|ой нет|ой|actually|by the way|btw|well|so|oh|ok|okay|and|also|but|fyi|in fact|please note|note|for the record|
		кстати|вообще-то|на самом деле|ну|и|а|также|еще|к слову|к сведению|дело в том что`)

	fillers = phrases(`yo|basically|please|pls|kindly|hey|hi|hello|ok|okay|so|well|now|first|firstly|first of all|also|just|go and|go|then|and|but|
		could you|can you|would you|will you|i want you to|i'd like you to|i would like you to|i need you to|you should|you must|
		would you mind|be so kind as to|be so kind and|do me a favour and|do me a favor and|let's|and then|after that|and after that|
		i want to|i'd like to|i would like to|we need to|you need to|make sure to|be sure to|
		пожалуйста|привет|здравствуй|здравствуйте|можешь|можете|не мог бы ты|не могла бы ты|не могли бы вы|мог бы ты|могли бы вы|
		ты можешь|вы можете|ты не мог бы|вы не могли бы|будь добр|будь добра|будьте добры|будь любезен|прошу|сначала|сперва|ну|теперь|также|и|а|потом|затем|
		я хочу чтобы ты|я прошу|слушай|давай|нужно|надо|хочу|хотел бы|хотела бы`)

	// Sequencers begin a step that comes after the one before; joiners begin one that may go beside it.
	sequencers = phrases(`and then|then|and after that|after that|afterwards|after which|and afterwards|and next|next|finally|and finally|lastly|later|and later|
		once done|when done|once that's done|when that's done|subsequently|
		а потом|и потом|потом|а затем|и затем|затем|после этого|а после этого|и после этого|после чего|а после|и после|далее|и далее|наконец|и наконец|в конце`)
	joiners = phrases(`and also|and|but also|but|also|as well as|plus|at the same time|in parallel|meanwhile|simultaneously|and in parallel|and at the same time|
		а также|и также|и|а|но|плюс|ещё|и еще|а еще|одновременно|параллельно|и одновременно|и параллельно|заодно|и заодно`)
	parallelMarks = phrases("in parallel|at the same time|simultaneously|meanwhile|concurrently|одновременно|параллельно|в то же время")

	commands = words(`calculate compute evaluate add subtract multiply divide solve find search look list show give explain summarize
		summarise describe compare count convert translate define check work figure quote
		посчитай вычисли рассчитай подсчитай сосчитай сложи умножь раздели вычти реши найди поищи покажи перечисли объясни опиши сравни переведи
		определи назови выведи дай процитируй сделай посчитайте вычислите рассчитайте найдите поищите покажите перечислите объясните
		посчитать вычислить рассчитать подсчитать сложить умножить разделить найти поискать показать перечислить объяснить сравнить определить`)
	calcCommands = words(`calculate compute evaluate add subtract multiply divide solve count
		посчитай вычисли рассчитай подсчитай сосчитай сложи умножь раздели вычти реши посчитайте вычислите рассчитайте посчитать вычислить рассчитать`)

	// Openings by which a question is asked of whoever listens; what follows is the question.
	askMe = phrases(`tell me|remind me|let me know|give me|show me|do you know|do you remember|do you happen to know|can you recall|do you recall|
		have it tell me|let it tell me|make it tell me|пусть скажет|пусть ответит|пусть напомнит|пусть назовет|i wonder|i want to know|i'd like to know|i would like to know|i need to know|i forgot|i don't remember|say|recall|
		скажи мне|скажи|подскажи мне|подскажи|напомни мне|напомни|назови|ты знаешь|вы знаете|знаешь ли ты|знаете ли вы|знаешь|знаете|ты помнишь|помнишь ли ты|вы помните|помнишь|помните|
		интересно|я хочу знать|хочу знать|хочу узнать|хотел бы узнать|скажите|скажите мне|подскажите|назвать|напомнить|напомнить мне|сказать|сказать мне|подсказать|напомните|напомните мне|я забыл|я забыла`)

	chitChat = words(`hi hello hey hiya greetings good morning afternoon evening day night thanks thank you very much so a lot cheers ok okay
		great cool nice bye goodbye yes no sure fine welcome there dear how are is it going what's up well please to meet everyone
		привет здравствуй здравствуйте добрый доброе доброй утро день вечер ночи спасибо большое благодарю пожалуйста ок окей ладно хорошо отлично
		пока свидания до да нет супер класс как дела поживаешь ты вы тебе вам приятно познакомиться хай салют`)
	// At least one of these makes a message of chitChat words an empty one.
	chitChatCore = words(`hi hello hey hiya greetings morning afternoon evening thanks thank cheers ok okay great cool bye goodbye yes no sure welcome
		going up nice fine are
		привет здравствуй здравствуйте добрый доброе спасибо благодарю ок окей ладно хорошо отлично пока свидания да нет супер класс дела поживаешь приятно хай салют`)
	whoAreYou = phrases(`who are you|what are you|what can you do|what is your name|what's your name|how do you work|what do you do|are you a bot|are you an ai|help|
		кто ты|кто вы|что ты умеешь|что вы умеете|как тебя зовут|как вас зовут|ты бот|что ты можешь|помощь|ты кто`)
)

// relations are people, pets and other holders whose attributes are not the speaker's; each line is one holder.
var relations = map[string]string{
	"sister": "sister сестра сестренка", "brother": "brother брат братишка", "mother": "mother mom mum mama мать матери мама",
	"father": "father dad papa отец папа", "parent": "parents parent родители", "wife": "wife жена супруга", "husband": "husband муж супруг",
	"son": "son сын сыновья", "daughter": "daughter дочь дочери дочка", "child": "child children kid kids ребенок дети", "friend": "friend подруга друг друзья",
	"boss": "boss manager начальник начальница руководитель шеф", "colleague": "colleague coworker co-worker teammate коллега",
	"neighbour": "neighbour neighbor сосед соседка", "grandmother": "grandmother grandma granny бабушка", "grandfather": "grandfather grandpa дедушка дед",
	"mother-in-law": "mother-in-law теща свекровь", "father-in-law": "father-in-law тесть свекор",
	"uncle": "uncle дядя", "aunt": "aunt тетя", "cousin": "cousin кузен", "nephew": "nephew племянник", "niece": "niece племянница",
	"partner": "partner boyfriend girlfriend fiance fiancee партнер парень девушка жених невеста", "teacher": "teacher tutor учитель учительница", "doctor": "dentist doctor врач стоматолог",
	"cat": "cat kitten кот кошка котенок котята", "dog": "dog puppy собака пес пса щенок щенки щенята", "parrot": "parrot попугай", "hamster": "hamster хомяк", "horse": "horse лошадь конь",
	"rabbit": "rabbit bunny кролик", "fish": "goldfish рыбка", "pet": "pet питомец",
	"roommate": "roommate flatmate housemate", "client": "client customer клиент", "company": "company employer компания", "team": "team команда", "project": "project проект",
}

// kindsOf gives the wider holder that a question may name instead.
var kindsOf = map[string]string{
	"cat": "pet", "dog": "pet", "parrot": "pet", "hamster": "pet", "horse": "pet", "rabbit": "pet", "fish": "pet",
	"mother": "parent", "father": "parent", "son": "child", "daughter": "child",
}

// concepts are sets of words for one personal attribute; a question and a fact may use different ones.
var concepts = map[string]string{
	"name":    "name named nickname зовут звать имя имени именем зовусь назвали называют кличка",
	"surname": "surname фамилия фамилию фамилии", "live": "live living reside residing based moved relocated address home located живу живем живет живут жить проживаю проживает адрес переехал переехала переехали обитаю",
	"birth": "born birthday birthdate bday рождение рождения рождении родился родилась", "age": "age возраст возраста исполнилось исполнится",
	"work": "work working job profession occupation employed career работаю работает работа работы работой работать профессия профессию профессии должность",
	"like": "like love enjoy adore prefer preferred favourite favorite fond люблю любит любим любимый любимая любимое любимые любимую любимого нравится нравятся обожаю обожает предпочитаю предпочитает",
	"hate": "hate dislike allergic allergy ненавижу ненавидит аллергия аллергии аллергию", "email": "email e-mail mail почта почты почту имейл емейл",
	"phone": "phone telephone mobile телефон телефона телефону", "colour": "colour color цвет цвета", "study": "study studying student university учусь учится учеба студент университет",
	"speak": "speak language languages говорю язык языки языках", "password": "password passcode passphrase pwd пароль пароля паролем", "origin": "hometown родом",
	"drink": "drink beverage напиток напитки пью", "food": "food dish meal еда еды блюдо блюда", "size": "size размер", "hobby": "hobby hobbies хобби увлечение",
	"flight": "flight рейс рейса", "meeting": "meeting appointment встреча встречи встречу", "code": "code pin код кода пин", "number": "number номер номера",
	"car": "car автомобиль машина машину машины", "flat": "flat apartment квартира квартиры квартире", "city": "city town город город города городе", "country": "country страна стране страны",
	"movie": "movie film фильм фильмы", "book": "book книга книгу книги", "holiday": "holiday vacation отпуск отпуска",
	"deadline": "deadline due дедлайн", "money": "money cash dollar buck euro деньги доллар евро рубль рублей тенге",
}

// personal are the concepts that belong to a person, so that a fact which names no holder does not answer "my …".
var personal = words("name surname live birth age work like hate email phone study speak origin hobby")

// conceptPhrases are expressions whose meaning is not that of their words.
var conceptPhrases = map[string]string{
	"age":  "how old|years old|year old|years of age|сколько лет|сколько мне лет|сколько годиков",
	"work": "do for a living|do for work|earn a living|do i do|do i do for a living|do i do for work|зарабатываю на жизнь", "name": "who am i|first name|full name|call me|am called|is called|'m called|i'm called|go by|goes by|кто я",
	"surname": "last name|family name", "email": "email address|e-mail address|адрес почты|электронная почта|электронной почты|почтовый ящик",
	"phone":  "phone number|mobile number|telephone number|cell number|номер телефона|номером телефона",
	"origin": "come from|comes from|am from|i'm from|i from|originally from|родом из|откуда я|я из|откуда я родом",
	"birth":  "день рождения|дня рождения|дату рождения|дата рождения|date of birth|дне рождения|днем рождения", "like": "care for|keen on|into music",
}

// topics connect what a step is about with what an agent's description says it is for.
var topics = map[string]string{
	topicMath:     "arithmetic calculate calculator calculation compute math mathematics number expression sum арифметика арифметический вычисление вычислять считать расчет математика числа калькулятор",
	topicDates:    "date dates day calendar weekday deadline дата даты дней календарь",
	topicPersonal: "remember remembers memory personal preference fact told память помнить помнит запоминать запоминает личный личные факты",
	topicDocs:     "document documents documentation docs file search passage knowledge reference corpus manual handbook text retrieval source wiki policy документ документы документация файл поиск ищет база знания знаний справочник тексты источник",
}

const (
	topicMath     = "math"
	topicDates    = "dates"
	topicPersonal = "personal"
	topicDocs     = "docs"
)

// Words that qualify a question without naming its subject.
var weakWords = words(`use using go get current new full exact real own main usual whole latest текущий новый полный точный настоящий главный
	money cash stuff mean means деньги денег деньгами значит означает`)

// pastOf gives the present of verbs whose past no stemmer reaches, as "past present" pairs.
var pastOf = func() map[string]string {
	pairs := strings.Fields(`bought buy went go ate eat drank drink wrote write read read met meet saw see sold sell left leave lost lose found find
		spoke speak drove drive rode ride took take gave give came come became become got get made make built build kept keep slept sleep
		taught teach thought think brought bring chose choose wore wear won win paid pay sent send spent spend began begin grew grow knew know
		ran run sang sing swam swim flew fly broke break stole steal hid hide held hold heard hear felt feel caught catch fell fall
		lent lend drew draw forgot forget sat sit stood stand threw throw woke wake tore tear froze freeze shook shake swore swear dug dig fed feed hung hang led lead lit light rang ring rose rise shot shoot stuck stick understood understand`)
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}()

// Words of time may stand before what a statement is about.
var timeWords = words(`yesterday today recently last week month year ago morning night tonight since
	вчера сегодня недавно прошлом прошлой прошлый месяце неделе году год назад утром вечером`)

// Words that show that a text names a place, or a time; questions by where and when expect them.
var (
	placeWords = words("in at on near under behind inside beside next by from to above below в во на у под за около возле рядом из над")
	monthStems = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	ruMonths   = []string{"янв", "фев", "мар", "апр", "ма", "июн", "июл", "авг", "сен", "окт", "ноя", "дек"}
	whenWords  = words(`monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday noon midnight morning evening afternoon night
		am pm spring summer autumn fall winter week month year
		понедельник вторник среду среда четверг пятницу пятница субботу суббота воскресенье сегодня завтра вчера утром днем вечером ночью весной летом осенью зимой`)
	numberWords = words(`one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand several no
		один одна одно два две три четыре пять шесть семь восемь девять десять двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто сто двое трое`)
)

var (
	relationOf = indexStems(relations)
	conceptOf  = indexStems(concepts)
	topicOf    = indexStems(topics)
	phraseKeys = indexPhrases(conceptPhrases)
)

// indexStems inverts a table; where two entries share a stem, the one first by name keeps it.
func indexStems(table map[string]string) map[string]string {
	m := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		for w := range words(table[key]) {
			if _, taken := m[stemOf(w)]; !taken {
				m[stemOf(w)] = key
			}
		}
	}
	return m
}

type conceptPhrase struct {
	words []string
	key   string
}

// indexPhrases files phrases under their first word, the longest first.
func indexPhrases(table map[string]string) map[string][]conceptPhrase {
	m := map[string][]conceptPhrase{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		for first, list := range phrases(table[key]) {
			for _, p := range list {
				m[first] = append(m[first], conceptPhrase{p, key})
			}
		}
	}
	for _, list := range m {
		slices.SortStableFunc(list, func(a, b conceptPhrase) int { return len(b.words) - len(a.words) })
	}
	return m
}

// longestPhrase is the length of the longest phrase of set at the start of toks, 0 for none.
func longestPhrase(toks []token, set phraseSet) int {
	if len(toks) == 0 {
		return 0
	}
	for _, p := range set[toks[0].low] {
		if startsWith(toks, p) {
			return len(p)
		}
	}
	return 0
}

func startsWith(toks []token, phrase []string) bool {
	if len(toks) < len(phrase) {
		return false
	}
	for i, w := range phrase {
		if toks[i].low != w {
			return false
		}
	}
	return true
}
