// Package envelope holds what models are shown beside their instructions and is none of them: passages of documents,
// which come from strangers, what was said in a chat before, and what tools outside of this service return. It is put
// between tags that no text can forge, since their nonce is random, and what could be taken for such a tag, for a
// speaker or for a citation is changed so that it cannot.
//
// It owns nothing. It makes an attack harder and never impossible: a model may still do what a text says in plain
// words. What holds is that it has no tool there with which it could do harm.
package envelope

import (
	"cmp"
	"crypto/rand"
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"mneme/memory/number"
)

// What an envelope holds, which its tags are called.
const (
	Passages = "passage"
	Recalled = "recalled"
	Outside  = "outside" // what a tool returned
)

// Nonce is new for each envelope, or for all of one run: 130 random bits.
func Nonce() string { return rand.Text() }

// Open is the tag before a text; attributes begin with a space, or are empty.
func Open(what, nonce, attributes string) string {
	return "<" + what + ` nonce="` + nonce + `"` + attributes + ">\n"
}

// Close is the tag behind a text.
func Close(what, nonce string) string { return "\n</" + what + ` nonce="` + nonce + `">` }

// Seal puts a neutralised text between tags with a nonce of their own.
func Seal(what, text string) string {
	nonce := Nonce()
	return Open(what, nonce, "") + text + Close(what, nonce)
}

// Heading is the heading of a message in a Recalled envelope: its id, its time, and more about it.
func Heading(id string, t time.Time, extra string) string {
	id, _ = Label(id)
	return "<said " + id + " " + Clock(t) + extra + ">"
}

// Clock returns a time as models read it, to the minute. The text around it has to name the time's zone.
func Clock(t time.Time) string { return t.Format("2006-01-02 15:04") }

// Neutralise gives a text without what could pass for the envelope, a speaker or a
// citation, and without invisible characters; signals counts what looks like an
// attempt to give orders.
func Neutralise(text string) (harmless string, signals int) {
	text, signals = visible(text)
	signals += len(orders.FindAllStringIndex(Fold(text).Text, -1))
	for {
		// A change may bring together what was apart. Each takes away a bracket, a colon
		// or a #, so there is an end.
		changes := threats(Fold(text))
		if len(changes) == 0 {
			return text, signals
		}
		signals += len(changes)
		text = Splice(text, changes)
	}
}

// Label is Neutralise for what stands in one line: a title, a path, a heading.
func Label(text string) (string, int) {
	text, signals := Neutralise(text)
	text = strings.Join(strings.Fields(text), " ")
	if cut := []rune(text); len(cut) > maxLabel {
		text = string(cut[:maxLabel]) + "…"
	}
	return text, signals
}

// maxLabel is above the longest id, which must stay as it is.
const maxLabel = 300

// visible is the text without control, zero-width and other invisible characters;
// hidden counts those that have no use in spelling.
func visible(text string) (clean string, hidden int) {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			return '\n'
		case invisible(r):
			if unicode.Is(unicode.Bidi_Control, r) || r >= 0xE0000 && r < 0xE0080 {
				hidden++
			}
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd")), hidden
}

func invisible(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u3164', '\uffa0', '\u2800':
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector) || unicode.Is(unicode.Noncharacter_Code_Point,
		r)
}

// Change replaces a piece of a text.
type Change struct {
	Start, End int
	Text       string
}

// Splice makes changes, which are in the text's order and do not overlap.
func Splice(text string, changes []Change) string {
	var b strings.Builder
	pos := 0
	for _, c := range changes {
		b.WriteString(text[pos:c.Start])
		b.WriteString(c.Text)
		pos = c.End
	}
	b.WriteString(text[pos:])
	return b.String()
}

// tagNames are what elements are called, besides our own, in the formats in which
// vendors write conversations.
var tagNames = []string{
	"document", "source", "context", "system", "sys", "user", "assistant", "human", "developer", "tool",
	"function", "instruction", "prompt", "message", "result", "inst", "admin", "im_start", "im_end", "thinking",
	"think", "start_of", "end_of", // with what begins or ends, of Gemma: <start_of_turn>
	"invoke", "parameter", "said", "search", "untrusted", "nonce", "img", "script", "iframe",
	// Of coding agents, such as <system-reminder>, <local-command-stdout> and <environment_context>.
	"reminder", "stdout", "stderr", "command-name", "command-message", "command-args", "bash-input", "notification",
	"environment_context", "environment_details", "ide_opened_file", "ide_selection", "extremely_important",
	"turn_aborted", "permissions",
}

// speakers are names of authors: a model could take their words for more than a document's.
var speakers = []string{
	"system", "user", "assistant", "human", "developer", "tool", "function", "admin", "instruction", "instructions", "ai",
	"bot", "система", "системное сообщение", "пользователь", "ассистент", "помощник", "администратор", "инструкция",
	"инструкции", "разработчик",
}

// bare are control tokens with names that are too short to be told from a comparison if they do not end with a
// bracket.
var bare = []string{"s", "bos", "eos", "pad", "unk", "sop", "eop"}

// bracketTokens are control tokens in square brackets, of Llama and Mistral.
var bracketTokens = []string{
	"inst", "sys", "system_prompt", "available_tools", "tool_call", "tool_calls", "tool_result", "tool_results",
	"tool_content", "call_id", "think", "gmask", "smask", // the last two of GLM
}

// The patterns see a folded text.
var (
	tag = regexp.MustCompile(`<[\s/!?|\\"'*_~.-]*(?:[a-z0-9]+[:._-])*(?:` + spaced([]string{Passages, Recalled, Outside}) +
		`|(?:` + spaced(tagNames) + `)s?(?:[^\p{L}\d]|$))|<\s*\||<\s*<|` +
		`<[\s/]*(?:` + folded(bare) + `)\s*>|<\s*[a-z_]+\s*\|\s*>`)
	// speaker is a name with a colon, where a line or a sentence begins.
	speaker = regexp.MustCompile(`(?:^|\n|[.!?…)\]>"'»;|]\s)[ \t>*#_~|"'(\[{/=-]*(?:` + folded(speakers) +
		`)(?:[ \t]+(?:prompt|message|note|says?))?[ \t*_~"')\]}]*(:)`)
	speakerJSON = regexp.MustCompile(`["']?\brole["']?\s*(:)\s*["']?(?:` + folded(speakers) + `)`)
	heading2    = regexp.MustCompile(`(?:^|\n)[ \t]*(#+)[ \t]*(?:(?:new|updated|real)[ \t]+)?(?:` + folded(speakers) +
		`|response|input|output)(?:[ \t]+(?:prompt|message))?[ \t]*[:#]*[ \t]*(?:\n|$)`)
	bracketed = regexp.MustCompile(`(\[)[\s/]*(?:` + folded(bracketTokens) + `|` + folded(speakers) +
		`)(?:[ \t]+(?:prompt|message))?\s*(\])`)
	citation = regexp.MustCompile(
		`(\\?\[)[\s^#n†]*\d+(?:[\s,;:†^–—-]*(?:and|и)?\s*\d+)*(?:†[^\[\]\n]{0,40})?\s*(\\?\])`,
	)
	// decided matches the words in which models learn a person's decision.
	decided = regexp.MustCompile(`([(\[{<])[\s*_]*(?:(?:approved|denied|allowed|confirmed|granted|edited|changed)[\s*_]+by[\s*_]+|` +
		`a[\s*_]+person[\s*_]+)(?:(?:an?|the)[\s*_]+)?(?:person|human|user|operator|admin|changed|approved|denied|allowed)`)
	orders = regexp.MustCompile(`(?:ignore|disregard|forget|override|bypass)\s+(?:\w+\s+){0,4}(?:previous|prior|above|earlier|instructions?|rules)|` +
		`system\s+prompt|you\s+are\s+now|new\s+instructions|do\s+not\s+(?:tell|inform)\s+the\s+user|` +
		folded([]string{"игнорируй", "игнорируйте", "забудь все", "забудьте все", "системный промпт", "новые инструкции",
			"теперь ты"}))
)

// folded joins words, folded as the text is, for a pattern.
func folded(words []string) string {
	var list []string
	for _, w := range words {
		list = append(list, strings.ReplaceAll(regexp.QuoteMeta(Fold(w).Text), " ", `[ \t]+`))
	}
	// The longest first: the first that fits is taken.
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return strings.Join(list, "|")
}

// spaced joins words for a pattern that finds them with their letters apart, too.
func spaced(words []string) string {
	var list []string
	for _, w := range words {
		list = append(list, strings.Join(strings.Split(w, ""), `[\s*._~-]*`))
	}
	return strings.Join(list, "|")
}

// threats are the changes that make a text harmless, in its order.
func threats(f Folding) []Change {
	var changes []Change
	add := func(start, end int, text string) {
		changes = append(changes, Change{f.Start[start], f.End[end-1], text})
	}
	for _, m := range tag.FindAllStringIndex(f.Text, -1) {
		add(m[0], m[0]+1, "(")
	}
	for _, p := range []*regexp.Regexp{speaker, speakerJSON} {
		for _, m := range p.FindAllStringSubmatchIndex(f.Text, -1) {
			add(m[2], m[3], " -")
		}
	}
	for _, m := range decided.FindAllStringSubmatchIndex(f.Text, -1) {
		add(m[2], m[3], `"`)
	}
	for _, m := range heading2.FindAllStringSubmatchIndex(f.Text, -1) {
		add(m[2], m[3], "-")
	}
	for _, p := range []*regexp.Regexp{bracketed, citation} {
		for _, m := range p.FindAllStringSubmatchIndex(f.Text, -1) {
			add(m[2], m[3], "(")
			add(m[4], m[5], ")")
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start),
			cmp.Compare(b.End, a.End))
	})
	pos := 0
	return slices.DeleteFunc(changes, func(c Change) bool {
		if c.Start < pos {
			return true
		}
		pos = c.End
		return false
	})
}

// Folding is a text as it could be read: lower case, compatibility forms and
// letters that look alike as one, escapes resolved. Start and End say for each of
// its bytes where what it stands for lies in the source.
type Folding struct {
	Text       string
	Start, End []int
}

// Fold folds a text.
func Fold(source string) Folding { return FoldSome(source, math.MaxInt) }

// FoldSome folds a text until there are that many bytes.
func FoldSome(source string, enough int) Folding {
	var f Folding
	var b strings.Builder
	for pos := 0; pos < len(source) && b.Len() < enough; {
		text, size := unescape(source[pos:])
		for _, r := range text {
			start := b.Len()
			foldRune(&b, r)
			for range b.Len() - start {
				f.Start = append(f.Start, pos)
				f.End = append(f.End, pos+size)
			}
		}
		pos += size
	}
	f.Text = b.String()
	return f
}

// unescape is what the beginning of a text stands for and how long it is: a
// character, or one that is written as an entity or an escape.
func unescape(s string) (text string, size int) {
	switch s[0] {
	case '&':
		if text, size := entity(s); size > 0 {
			return text, size
		}
	case '\\':
		s = s[:min(len(s), MaxEscape)]
		run := len(s) - len(strings.TrimLeft(s, `\`))
		if run == len(s) || !strings.ContainsRune("uxU", rune(s[run])) {
			return s[:1], 1
		}
		if m := escape.FindStringSubmatch(s); m != nil {
			return hexRune(m[1] + m[2] + m[3]), len(m[0])
		}
	case '%':
		s = s[:min(len(s), MaxEscape)]
		if m := percent.FindStringSubmatch(s); m != nil {
			return hexRune(m[1]), len(m[0])
		}
	}
	_, size = utf8.DecodeRuneInString(s)
	return s[:size], size
}

// MaxEscape bounds, in bytes, one character that is written as an entity or an escape.
const MaxEscape = 200

var (
	escape  = regexp.MustCompile(`^\\+(?:u\{?([0-9a-fA-F]{4})\}?|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))`)
	percent = regexp.MustCompile(`^%(?:25)*([2-7][0-9a-fA-F])`)
	// ampersand is one that is written as an entity itself, however often.
	ampersand = regexp.MustCompile(`^&(?:(?:amp|#0*38|#[xX]0*26);?)+`)
	reference = regexp.MustCompile(`^&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[a-zA-Z]{2,24});?`)
)

func hexRune(digits string) string {
	n, _ := strconv.ParseUint(digits, 16, 32) // the patterns take digits only
	return string(rune(n))
}

// entity resolves an HTML entity, also one with an entity as its ampersand; size 0 if it
// is none.
func entity(s string) (text string, size int) {
	s = s[:min(len(s), 200)]
	skipped := 0
	if m := ampersand.FindString(s); m != "" {
		skipped = len(m) - 1
		if inner := reference.FindString("&" + s[len(m):]); inner == "" {
			return "", 0
		}
		s = "&" + s[len(m):]
	}
	m := reference.FindString(s)
	if m == "" {
		return "", 0
	}
	if text = html.UnescapeString(m); text == m { // one that browsers read with its semicolon only
		text = html.UnescapeString(m + ";")
	}
	if strings.HasPrefix(text, "&") && len(text) > 1 {
		return "", 0
	}
	return text, skipped + len(m)
}

// foldRune writes what a character could be read as; nothing for a mark or an
// invisible one.
func foldRune(b *strings.Builder, r rune) {
	if r < utf8.RuneSelf {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r >= ' ' || r == '\n' || r == '\t' {
			b.WriteByte(byte(r))
		}
		return
	}
	for _, r := range norm.NFKD.String(string(r)) {
		r = unicode.ToLower(r)
		switch base, ok := lookalikes[r]; {
		case ok:
			b.WriteRune(base)
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			b.WriteByte('\n')
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case unicode.Is(unicode.Mn, r) || invisible(r):
		case r >= utf8.RuneSelf && unicode.Is(unicode.Nd, r):
			b.WriteByte('0' + number.Digit(r))
		default:
			b.WriteRune(r)
		}
	}
}

// lookalikes are letters and brackets that are drawn as others are.
var lookalikes = func() map[rune]rune {
	table := map[rune]rune{}
	for like, runes := range map[rune]string{
		'a': "аαɑᴀ", 'b': "вЬʙ", 'c': "сϲᴄ", 'd': "ԁᴅ", 'e': "еεҽᴇ", 'g': "ɡԍɢ", 'h': "һнʜ", 'i': "іιıɩɪ", 'j': "јᴊ",
		'k': "кκᴋ",
		'l': "ӏʟ", 'm': "мᴍ", 'n': "пηɴ", 'o': "оοσօᴏ", 'p': "рρᴘ", 'q': "ԛ", 'r': "гʀ", 's': "ѕꜱ", 't': "тτᴛ", 'u': "υսᴜ",
		'v': "νѵᴠ", 'w': "ԝᴡ", 'x': "хχ", 'y': "уүʏ", 'z': "ᴢ",
		'<': "◁‹〈⟨❮❰⧼≺˂ᐸ⟪〈", '>': "▷›〉⟩❯❱⧽≻˃ᐳ⟫〉", '[': "【〔〖⟦⁅〚❲⦋⟬⌈", ']': "】〕〗⟧⁆〛❳⦌⟭⌉",
		':': "∶꞉ː፡։׃", '/': "⁄∕⧸╱⟋", '|': "│∣ǀ┃", '#': "♯⋕", '"': "“”„‟", '\'': "‘’‚‛", '-': "‐‑‒−", '.': "。․",
	} {
		for _, r := range runes {
			table[unicode.ToLower(r)] = like
		}
	}
	return table
}()
