package thinking

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/lazyregexp"
	"mneme/proxy/wire"
)

// Class is what a vendor's error says about the thinking in a request, which decides how the
// request may be retried.
type Class int

// The classes.
const (
	ClassOther   Class = iota // the error is not about thinking
	ClassStrip                // thinking in the history is invalid: the request may pass without it
	ClassRestore              // thinking is missing from the history: stripping makes it worse
)

func (c Class) String() string {
	switch c {
	case ClassStrip:
		return "strip"
	case ClassRestore:
		return "restore"
	}
	return "other"
}

// Classify classifies an error that came with an HTTP status. Gateways between here and the vendor
// rewrite the status, so any status from 400 on is looked at.
func Classify(status int, body []byte) Class {
	if status < http.StatusBadRequest {
		return ClassOther
	}
	return classOf(body)
}

// IsError reports whether the data of an event, or a JSON body, is an error.
func IsError(data []byte) bool {
	// Cheap checks first, because most answers are long and no errors.
	if bytes.Contains(data, []byte(`"base_resp"`)) &&
		wire.BaseResponseFailed([]byte(gjson.GetBytes(data, "base_resp").Raw)) {
		return true
	}
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false
	}
	failure := gjson.GetBytes(data, "error")
	return gjson.GetBytes(data, "type").Str == "error" || failure.Exists() && failure.Type != gjson.Null
}

// Demand is the form in which a vendor's error of ClassRestore wants the missing reasoning back.
type Demand int

// The demands.
const (
	DemandsNothing    Demand = iota // the error does not say
	DemandsOnCalls                  // unsigned reasoning in each assistant message that calls a tool
	DemandsEverywhere               // unsigned reasoning in every assistant message
	DemandsSignatures               // Google's thought signatures, on tool calls
)

// Demanded reads the Demand from an error's text.
func Demanded(body []byte) Demand {
	text := errorText(body)
	switch {
	case strings.Contains(text, "mustbepassedback"):
		return DemandsEverywhere
	case strings.Contains(text, "reasoning_contentismissing"):
		return DemandsOnCalls
	case strings.Contains(text, "missingathought_signature"):
		return DemandsSignatures
	}
	return DemandsNothing
}

// SaysBound reports whether an error says that a block is bound to a different conversation: this
// backend verifies what precedes a block, not only the block.
func SaysBound(body []byte) bool {
	return strings.Contains(errorText(body), "boundtoadifferentconversation")
}

// Kind tells refusals of thinking apart for the metrics that count them; it decides nothing.
type Kind string

// The kinds.
const (
	KindNone      Kind = ""          // the error is not about thinking in the history
	KindSignature Kind = "signature" // a block is not as it was signed, or signed by another vendor
	KindModified  Kind = "modified"  // blocks are changed or left out in the newest turn, or moved
	KindPlace     Kind = "place"     // a block is where none may be, or a turn does not begin with one
	KindDisabled  Kind = "disabled"  // a block although thinking is off
	KindMissing   Kind = "missing"   // thinking was not passed back
	KindSchema    Kind = "schema"    // a member of a block, or reasoning at all, is not known
)

// kindPhrases are phrases of errors in the order in which they are tried; KindSchema is the rest.
var kindPhrases = []struct {
	Kind
	phrases []string
}{
	{KindModified, []string{"cannotbemodified", "boundtoadifferentconversation"}},
	{KindDisabled, []string{"whenthinkingisdisabled"}},
	{KindPlace, []string{
		"butfound", "muststartwithathinkingblock", "firstblockmustbe", "finalblockin", "finalpositioncannotcontain",
	}},
	{KindMissing, []string{
		"mustbepassedback", "reasoning_contentismissing", "missingathought_signature", "withoutitsrequired",
	}},
	{KindSchema, []string{"fieldrequired", "extrainputs", "foundusingtype", "unknownvariant", "supportedvaluesare",
		"missingrequired", "unknownparameter", "arraytoolong", "isnotanarray"}},
	{KindSignature, []string{
		"signature", "invaliddata", "encrypted", "incompatiblemodel", "verif", "mismatch", "unrecogni", "notvalid", "invalid",
	}},
}

// KindOf is the kind of an error.
func KindOf(body []byte) Kind {
	if classOf(body) == ClassOther {
		return KindNone
	}
	text := errorText(body)
	for _, k := range kindPhrases {
		if slices.ContainsFunc(k.phrases, func(p string) bool { return strings.Contains(text, p) }) {
			return k.Kind
		}
	}
	return KindSchema
}

// classOf classifies an error by its text. Signs of missing thinking are tried first, since stripping
// would make that worse.
func classOf(body []byte) Class {
	text := errorText(body)
	switch {
	case compaction.in(text):
		return ClassOther
	case missing.in(text):
		return ClassRestore
	case invalid.in(text), doubtsThinking(body, text):
		return ClassStrip
	}
	return ClassOther
}

// doubtsThinking reports whether an error says no more than that thinking is not what the vendor takes: "Invalid thinking
// block", "Thinking verification failed" (https://github.com/ding113/claude-code-hub/issues/652,
// https://github.com/anthropics/claude-code/issues/2573). An error that names a parameter or a tool is about that.
func doubtsThinking(body []byte, text string) bool {
	if !strings.Contains(text, "thinking") {
		return false
	}
	text = thinkingTools().ReplaceAllString(text, "")
	if !strings.Contains(text, "thinking") || !doubts().MatchString(text) || namesMember().MatchString(text) {
		return false
	}
	sentence := normalize(body)
	_, names := refusedIn(sentence)
	return !names && !ofSchema().MatchString(sentence)
}

// signs are the phrases and patterns that identify an error of some class. They are matched with a
// text normalised by errorText: in lower case, without white space, quotes, backslashes and
// asterisks. \W+ between the parts of a path matches "thinking.signature: Field required" and also
// the list that FastAPI makes of it.
type signs struct {
	phrases  []string
	patterns []pattern
}

// pattern is a regular expression that is tried only where word occurs, since that is much cheaper.
type pattern struct {
	word string
	lazyregexp.Regexp
}

func (s signs) in(text string) bool {
	return slices.ContainsFunc(s.phrases, func(p string) bool { return strings.Contains(text, p) }) ||
		slices.ContainsFunc(s.patterns, func(p pattern) bool {
			return strings.Contains(text, p.word) && p.Regexp().MatchString(text)
		})
}

func near(word, expression string) pattern { return pattern{word, lazyregexp.New(expression)} }

// compaction are the signs of an error about a compacted history, which is all that the client still has of it: the
// error is the client's to see, whatever else it says.
var compaction = signs{phrases: []string{"foritemcmp_", "compactionblob", "compactionitem"}}

// DoubtsCompaction reports whether an error is about a compacted history.
func DoubtsCompaction(body []byte) bool { return compaction.in(errorText(body)) }

// missing are the signs of the errors after which Refill may help.
var missing = signs{phrases: []string{
	"mustbepassedback",
	"withoutitsrequiredreasoningitem",
	"reasoning_contentismissing",
	"missingathought_signature",
	"expectedthinkingorredacted_thinking,butfound",
	"muststartwithathinkingblock",
}}

// invalid are the signs of the errors after which Strip may help.
var invalid = signs{
	phrases: []string{
		"invalidsignatureinthinkingblock",
		"thinkingblocksinthelatestassistantmessagecannotbemodified",
		"invaliddatainredacted_thinkingblock",
		"thinkingblockfromincompatiblemodel",
		"unrecognizedthinkingblockformat",
		"thinkingblocksarenotsupported",
		"invalid_encrypted_content",

		// Items of Responses: one without what it stands before, of another account or vendor, or not in the form
		// in which the vendor takes it back.
		"withoutitsrequiredfollowingitem",
		"itemsarenotpersistedwhenstore",
		"duplicateitemfoundwithidrs_",
		"expectedanidthatbeginswithrs",
		"reasoninginputitemscanonlybeprovidedto",
		"item[content]isnotanarray",

		// A block is in a place where none is allowed.
		"ifanassistantmessagecontainsanythinkingblocks",
		"finalblockinanassistantmessagecannotbethinking",
		"finalblockinanassistantmessagecannotberedacted_thinking",
		"messageinthefinalpositioncannotcontainthinking",
		"messageinthefinalpositioncannotcontainredacted_thinking",
	},
	patterns: []pattern{
		near("signature", `(corrupted|invalid)(thought|thinking)_?signature`),
		near("signature", `thought_?signature(isnotvalid|\(type_bytes\),base64decodingfailed)`),
		near("signature", `thinkingblock:?signature(verificationfailed|mismatch|isinvalid|isnotvalid)`),

		// Behind the path of a block no prose of the user's stands: there the words of the family are enough.
		near("thinking", blockPath+`[^;]{0,300}thinking[^;]{0,300}`+doubt),
		near("thinking", blockPath+`[^;]{0,300}`+doubt+`[^;]{0,300}thinking`),

		near("notfound", `itemwithidrs_[^;]{0,120}notfound`),
		near("encrypted", `encrypted_?content[^;]{0,200}(couldnotbe|cannotbe|failedtobe)(verif|decrypt|decod|pars)`),
		near("encrypted", `encrypted_?content[^;]{0,80}(notissued(to|by|for)|isinvalid|isnotvalid|mismatch|hasexpired)`),
		near("encrypted", `((could|can)not|failedto|unableto)(decrypt|decode|verify|parse)[^;]{0,60}encrypted_?content`),
		near("encrypted", `encrypted_?contentisnotsupported(\.|;|\(|$)`), // "with this model" is about include
		near("summary", `missingrequired(parameter|field)\W*(input\[\w*\]\W*)?summary`),
		near("unknownparameter", `unknownparameter\W*input\[\w*\]\W*(status|summary|encrypted_content)`),
		near("maximumlength0", `input\[[^;]{0,80}arraytoolong[^;]{0,60}maximumlength0`),

		// A block, or a member of one, does not match the vendor's schema.
		near("fieldrequired", `(thinking\W+(signature|thinking|data)|[.:]signature)\W+(msg\W+)?fieldrequired`),
		near("content.", `content\.\w*\.(redacted_)?thinking(\.\w+)?:`),
		near("extrainputs", `(thinking\.cache_control|\.(tool_use|text)\W+signature)\W+(msg\W+)?extrainputsarenotpermitted`),
		near("foundusingtype", `inputtag(redacted_)?thinkingfoundusingtype`),
		near("unknownvariant", `unknownvariant(redacted_)?thinking,expectedoneof`),
		near("invalidvalue", `invalidvalue:(redacted_)?thinking\.supportedvaluesare`),

		// The vendor does not accept reasoning in a request.
		near("extrainputs", `assistant\W+`+field+`\W+(msg\W+)?extrainputsarenotpermitted`),
		near("supported", `messages[.[]\d+[^;]*property(messages[.[]\d+]?\.)?(assistant\.)?`+field+
			`is(unsupported|notsupported)`),
		near("messages", `messages[.[]\d+]?\.(assistant\.)?`+field+
			`\W*(is)?(extrainputs|unsupported|notsupported|notpermitted|notallowed)`),
		near("messages", `(unknown|unrecognized|unsupported|extrainputs)[^;]*messages[.[]\d+]?\.(assistant\.)?`+field+`\b`),
		near("removethe", `removethe`+field+`from`),
	},
}

// blockPath matches the path of a content block in a request, with the colon behind it; gateways mask
// the message's. doubt matches what vendors say of thinking that they do not take for theirs.
const (
	blockPath = `\.content[.[]\d+\]?(\.(redacted_)?thinking(\.\w+)?)?:`
	doubt     = `(signature|invalid|notvalid|verif(y|ied|ication)|mismatch|unrecogni[sz]ed)`
)

var (
	doubts = lazyregexp.New(doubt)
	// thinkingTools matches what has a word of such an error in its name: types of errors and tools.
	thinkingTools = lazyregexp.New(`sequential[-_]?thinking|\w*__\w*thinking\w*|thinking_error|` +
		`invalid[-_]?(request|param|argument|api)\w*`)
	// namesMember matches the parameters that such an error may be about in place of the history.
	namesMember = lazyregexp.New(`thinking\.(type|budget|display|effort|keep|block_binding|enabled|adaptive|disabled|` +
		`between_tools)|budget_tokens|thinking_?(budget|level|options)|effort|tool_choice|max_tokens|temperature|top_[pk]\b|` +
		`clear_thinking|context_management|anthropic-beta|output_config|input_schema|\btools?[.[]\d|type=|` +
		`\.content[.[]\d+\]?\.(tool_use|tool_result|text|image|document)|` +
		`(parameter|argument|field|option|property)s?\W*thinking|thinking\W*(parameter|argument|field|option|property|mode)`)
)

// field matches the names under which chat completions carry reasoning.
const field = `(reasoning_content|reasoning_details|reasoning|thinking_blocks)`
