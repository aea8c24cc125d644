package thinking

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Class is what an error of a vendor says about the thinking in a request.
type Class int

// The classes.
const (
	ClassOther   Class = iota // nothing
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

// Classify reads an error that came with an HTTP status. Gateways in between
// rewrite the status, so that any from 400 on may be one about thinking.
func Classify(status int, body []byte) Class {
	if status < http.StatusBadRequest {
		return ClassOther
	}
	return classOf(body)
}

// ClassifyEvent reads what came with status 200: the data of a stream's first
// event, or a JSON body. It is ClassOther for anything that is no error.
func ClassifyEvent(data []byte) Class {
	if !IsError(data) {
		return ClassOther
	}
	return classOf(data)
}

// IsError reports whether the data of an event, or a JSON body, is an error.
func IsError(data []byte) bool {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false // most answers, which are long
	}
	failure := gjson.GetBytes(data, "error")
	return gjson.GetBytes(data, "type").Str == "error" || failure.Exists() && failure.Type != gjson.Null
}

// Demand is in which way an error of ClassRestore wants reasoning back.
type Demand int

// The demands.
const (
	DemandsNothing    Demand = iota // it does not say
	DemandsOnCalls                  // reasoning that nobody signs, with every call of a tool
	DemandsEverywhere               // and with every other answer, too
	DemandsSignatures               // of Google's kind, on calls
)

// Demanded reads that in an error's words.
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

// SaysBound reports whether an error says that a block is bound to a different
// conversation: this backend checks what stands before a block.
func SaysBound(body []byte) bool {
	return strings.Contains(errorText(body), "boundtoadifferentconversation")
}

func classOf(body []byte) Class {
	text := errorText(body)
	switch {
	case missing.in(text):
		return ClassRestore
	case invalid.in(text):
		return ClassStrip
	}
	return ClassOther
}

// signs are what gives an error of some class away. They are matched with a text
// as errorText makes it: in lower case, without white space, quotes, backslashes
// and asterisks. \W+ between the parts of a path takes both "thinking.signature:
// Field required" and the list that FastAPI makes of it.
type signs struct {
	phrases  []string
	patterns []pattern
}

// pattern is tried where its word occurs.
type pattern struct {
	word string
	*regexp.Regexp
}

func (s signs) in(text string) bool {
	return slices.ContainsFunc(s.phrases, func(p string) bool { return strings.Contains(text, p) }) ||
		slices.ContainsFunc(s.patterns, func(p pattern) bool { return strings.Contains(text, p.word) && p.MatchString(text) })
}

func near(word, expression string) pattern { return pattern{word, regexp.MustCompile(expression)} }

var missing = signs{phrases: []string{
	"mustbepassedback",
	"reasoning_contentismissing",
	"missingathought_signature",
	"expectedthinkingorredacted_thinking,butfound",
	"muststartwithathinkingblock",
}}

var invalid = signs{
	phrases: []string{
		"invalidsignatureinthinkingblock",
		"thinkingblocksinthelatestassistantmessagecannotbemodified",
		"invaliddatainredacted_thinkingblock",
		"thinkingblockfromincompatiblemodel",
		"unrecognizedthinkingblockformat",
		"invalid_encrypted_content",

		// A block is where none may be.
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

		// A block or one of its members is not as the schema wants it.
		near("fieldrequired", `(thinking\W+(signature|thinking|data)|\.signature)\W+(msg\W+)?fieldrequired`),
		near("content.", `content\.\w*\.(redacted_)?thinking(\.\w+)?:`),
		near("extrainputs", `(thinking\.cache_control|\.(tool_use|text)\W+signature)\W+(msg\W+)?extrainputsarenotpermitted`),
		near("foundusingtype", `inputtag(redacted_)?thinkingfoundusingtype`),
		near("unknownvariant", `unknownvariant(redacted_)?thinking,expectedoneof`),
		near("invalidvalue", `invalidvalue:(redacted_)?thinking\.supportedvaluesare`),

		// The vendor takes no reasoning back.
		near("extrainputs", `assistant\W+`+field+`\W+(msg\W+)?extrainputsarenotpermitted`),
		near("supported", `messages[.[]\d+[^;]*property(messages[.[]\d+]?\.)?(assistant\.)?`+field+`is(unsupported|notsupported)`),
		near("messages", `messages[.[]\d+]?\.(assistant\.)?`+field+`\W*(is)?(extrainputs|unsupported|notsupported|notpermitted|notallowed)`),
		near("messages", `(unknown|unrecognized|unsupported|extrainputs)[^;]*messages[.[]\d+]?\.(assistant\.)?`+field+`\b`),
		near("removethe", `removethe`+field+`from`),
	},
}

const field = `(reasoning_content|reasoning_details|reasoning|thinking_blocks)`
