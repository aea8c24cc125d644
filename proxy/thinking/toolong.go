package thinking

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"mneme/proxy/lazyregexp"
)

// Excess says which limit on a request's length was exceeded.
type Excess int

// The kinds.
const (
	NotLong       Excess = iota // the error is not about length
	OverWindow                  // the request exceeds the model's context window
	OverAllowance               // it exceeds what the account may send per minute, so that it can never pass as it is
)

// Length is what an error says about the length of a request, in tokens as the vendor counts them;
// 0 where it does not say.
type Length struct {
	Excess Excess
	Limit  int // the context window, or the allowance
	Total  int // prompt and answer together, where both count
	Input  int // the prompt
	Output int // the length that was asked for the answer, by max_tokens or a parameter like it
}

// Room is how many tokens are left for an answer behind a prompt that fits; 0 if the prompt itself
// is too long, or its length is not known.
func (l Length) Room() int {
	if l.Excess != OverWindow || l.Input == 0 || l.Output == 0 || l.Limit <= l.Input {
		return 0
	}
	return l.Limit - l.Input
}

// ReadLength reads an error that came with an HTTP status. Any status from 400 on may mean length:
// llama.cpp uses 500, gateways 502.
func ReadLength(status int, body []byte) Length {
	// what an account can afford is another matter
	if status < http.StatusBadRequest || status == http.StatusPaymentRequired {
		return Length{}
	}
	return lengthOf(body)
}

func lengthOf(body []byte) Length {
	text := unescaped.Replace(errorText(body))
	// Codes and numbers are in members that errorText does not read.
	members := unescaped.Replace(fold(withoutEcho(string(body[:min(len(body), maxErrorText)]))))
	switch {
	case perMinute().MatchString(text):
		l := Length{Excess: OverAllowance, Limit: number(text, allowed), Total: number(text, requested)}
		if !strings.Contains(text, "requesttoolarge") && (l.Total == 0 || l.Total <= l.Limit) {
			return Length{} // a rate limit, for which waiting helps
		}
		return l
	case longCode().MatchString(members), overWindow.in(text):
	default:
		return Length{}
	}
	return measures(text, members)
}

// unescaped decodes the escapes of < and > that JSON within a text has left, after errorText
// has removed their backslash.
var unescaped = strings.NewReplacer("u003c", "<", "u003e", ">")

// perMinute recognises a limit on what an account may send in a time.
var (
	perMinute = lazyregexp.New(`(tokens|requests)\W?per\W?(min|hour|day)|\b[tr]p[mdh]\b|tokens/min`)
	allowed   = lazyregexp.New(`limit:?` + count)
	requested = lazyregexp.New(`requested:?` + count)
)

// longCode matches the codes and types of errors about the context window.
var longCode = lazyregexp.New(`\b(context_length_exceeded|(model_)?context_window_exceeded|contextwindowexceeded(error)?|` +
	`exceed_context_size_error|tokens_limit_reached|(model_)?max_prompt_tokens_exceeded|max_context_length_exceeded)\b`)

// overWindow are the wordings for an exceeded context window: a noun for the prompt or for the
// window, and a word that says that one exceeds the other. They do not match a max_tokens that is
// too large ("max_tokens: 64000 > 8192"), nor a list, a string or a file that is too large.
var overWindow = signs{
	phrases: []string{
		"promptistoolong",
		"inputistoolongforrequestedmodel",
		"trytousealargercontext",
		"contextwindowexceedslimit",
		"reducethelengthofthemessages",
		"exceedstheavailablecontextsize",
		"promptexceedsmaxlength",
		"prompt超长",
		"toomanyinputtokens",
		"toomanytokens:sizelimitexceeded",
		"istoolongtofitintothemodel",
		"requestexceededmodeltokenlimit",
		"tokenstokeepfromtheinitialpromptisgreaterthanthecontextlength",
	},
	patterns: []pattern{
		near("max_tokens", `inputlengthandmax_tokensexceedcontextlimit`),
		near("context", `maximumcontextlength(is|of|:)?`+count+`(tokens|[^;]*(however|but|reduce|lessthan|exceed))`),
		near("context",
			`(exceeds?|exceeded|exceeding|longerthan|largerthan|greaterthan|toolongfor|overflow(s|ed)?|beyond|above)(the|this|our|its|of|model'?s?|maximum|max|available|configured|supported|allowed|total)*context_?(length|window|size|limit)`),
		near("context",
			`context_?(length|window|size|limit)(ofthismodel|ofthemodel|is|was|has|been)*(exceeded|overflow(s|ed)?)`),
		near("contextlength", `toolargeformodelwith`+count+`maximumcontextlength`),
		near("contextlength", `contextlength(is|of)only`+count),
		near("modellength", `longerthanthemaximummodellength`),
		near("promptlength", `maximumpromptlengthis`+count+`but`),
		near("prompt", `promptlength\(?`+count+`\)?exceedsmaximuminputlength`),
		near("prompt", `lengthofprompt_tokens\(`+count+`\)mustbelessthan`),
		near("token",
			`(input|prompt|messages?)token(s|count|length)?[^;.]{0,40}(exceeds?|cannotexceed|istoolong|toolong|butmodelonlysupports)`),
		near("token", `numberof(input)?tokens(inthe(prompt|input))?[^;.]{0,30}(exceeds?|cannotexceed)`),
		near("tokens", `requestedtokens\(?`+count+`\)?exceed`),
		near("tokens", `totaltokens[^;.]{0,30}exceeds?max`),
		near("tokens", `inputs?tokens\+max_new_tokensmustbe<=`+count),
		near("tokens", `inputsmusthavelessthan`+count+`tokens`),
		near("inputlength", `rangeofinputlengthshouldbe\[`),
		// https://github.com/FoundationAgents/OpenManus/issues/935
		near("totallength", `rangeoftotallengthshouldbe`),
		near("inputlength", `inputlength\(?`+count+`\)?exceeds(the)?max`),
	},
}

// count matches a number of tokens.
const count = `(\d{1,3}(?:,\d{3})+|\d+)`

// Where the numbers are. In each list the first pattern that matches counts.
var (
	sumOver = lazyregexp.New(count + `\+` + count + `>` + count)

	limits = patternsOf(
		`context_?(?:length|window|size|limit)(?:is|of|only|:|=|\(|limitedto)*`+count,
		`>`+count+`max`,
		count+`(?:tokens)?maximumcontext`,
		`maximum(?:prompt|input|model|sequence)length(?:is|of|:|\()*`+count,
		`maximumnumberoftokensallowed(?:is|of|:|\()*`+count,
		`n_ctx:`+count,
		`(?:tokens?|configured|prompt|exceedsthe|model|total(?:tokens)?)limit(?:is|of|:|\()*`+count,
		`supports(?:only)?upto`+count,
		`max_seq_len(?:is|of|:|\()*`+count,
		`max(?:size|inputtokens):?`+count,
		`(?:cannotexceed|mustbe<=|lessthan|whilelimitis|limitis|limitof)(?:\D{0,24}?)`+count,
		`shouldbe\[\d+,`+count+`\]`,
		`max(?:imum)?(?:input|prompt|context)?(?:length|tokens?)(?:is|of|:|\()*`+count,
	)
	totals = patternsOf(
		`requested(?:about|atotalof|:)*`+count+`(?:tokens|\))`,
		`resultedin`+count,
		`requestcontains`+count,
		`n_prompt_tokens:`+count,
	)
	inputs = patternsOf(
		`(?:request|passed)(?:has|contains)?`+count+`inputtokens`,
		`toolong:`+count,
		`(?:input|prompt)tokencount(?:is|of|:|\()*`+count,
		`promptcontains`+count,
		`(?:totallength|requestedtokens\()`+count,
		`(?:prompt|input|request)\((?:length)?`+count,
		`length(?:is|\()*`+count+`\)?(?:exceeds|while|must)`,
		`prompt_tokens\(`+count,
		`thefirst`+count+`tokens`,
		`(?:given|received|n_keep|inputtokens):?`+count,
		`inputtokens(?:lengthis)?`+count,
	)
	outputs = patternsOf(
		`max_(?:completion_|output_)?tokensistoolarge:`+count,
		`max_(?:completion_|new_)?tokens\(`+count,
		`and`+count+`max_new_tokens`,
		`requested`+count+`outputtokens`,
		`outputtokenslengthis`+count,
	)

	// parts are the terms of a sum: "(9969 in the messages, 26000 in the completion)", "(658 of
	// text input, 732 of tool input, 262000 in the output)".
	parts = lazyregexp.New(count + `(?:tokens)?(?:in|of|for|from)(?:the|your)?(text|tool|image|audio|file)?` +
		`(messages|prompt|input|inputmessages|functions|tools|completion|output|response|answer)\b?`)
)

// measures reads the numbers from an error about the context window.
func measures(text, members string) Length {
	l := Length{Excess: OverWindow}
	if m := sumOver().FindStringSubmatch(text); m != nil {
		l.Input, l.Output, l.Limit = atoi(m[1]), atoi(m[2]), atoi(m[3])
		l.Total = l.Input + l.Output
		return l
	}
	l.Limit = firstOf(limits, text, members)
	l.Total = firstOf(totals, text, members)
	for _, m := range parts().FindAllStringSubmatch(text, -1) {
		switch m[3] {
		case "completion", "output", "response", "answer":
			l.Output = max(l.Output, atoi(m[1]))
		default:
			if l.Total == 0 || l.Input+atoi(m[1]) <= l.Total { // an error may be quoted twice
				l.Input += atoi(m[1])
			}
		}
	}
	l.Input = cmp.Or(l.Input, firstOf(inputs, text, members))
	l.Output = cmp.Or(l.Output, firstOf(outputs, text, members))
	switch {
	case l.Input == 0 && l.Total > l.Output:
		l.Input = l.Total - l.Output
	case l.Total == 0 && l.Input > 0:
		l.Total = l.Input + l.Output
	}
	return l
}

func patternsOf(expressions ...string) []lazyregexp.Regexp {
	out := make([]lazyregexp.Regexp, len(expressions))
	for i, e := range expressions {
		out[i] = lazyregexp.New(e)
	}
	return out
}

// firstOf is the number that the first fitting expression finds in the first of the texts.
func firstOf(expressions []lazyregexp.Regexp, texts ...string) int {
	for _, text := range texts {
		for _, e := range expressions {
			if n := number(text, e); n > 0 {
				return n
			}
		}
	}
	return 0
}

// number is what the only group of an expression finds.
func number(text string, e lazyregexp.Regexp) int {
	if m := e().FindStringSubmatch(text); m != nil {
		return atoi(m[1])
	}
	return 0
}

// maxCount bounds what is believed: no model reads a thousand million tokens.
const maxCount = 1_000_000_000

func atoi(s string) int {
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil || n > maxCount {
		return 0
	}
	return n
}
