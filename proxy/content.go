package proxy

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/lazyregexp"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// allBlocks means that the last message of a request has only blocks of the user's very last message.
const allBlocks = -1

// sees is the profile, with what holds for a kind of backend whatever the model.
func (x routedRequest) sees() sanitize.Profile {
	p := x.modelInfo.profile
	switch x.backend.config.Kind {
	case KindCopilot:
		p.Carried = []string{} // a prompt is a text
	case KindOffline:
		p.NoImages = true
	}
	return p
}

// takesNewest refuses a request if the user's very last message has content that the backend is known not to take and
// that no text can replace. Otherwise the model would answer only half of the message. The message is the last n blocks
// of o, and the client's ephemeral parts.
func (x *adaptedRequest) takesNewest(o *wire.Outline, p sanitize.Profile, n int) error {
	i := len(o.Messages) - 1
	for i > 0 && wire.IsSystem(o.Messages[i].Role) {
		i--
	}
	if x.endpoint.counts || i < 0 || o.Messages[i].Role != wire.RoleUser {
		return nil
	}
	blocks := o.Messages[i].Blocks
	if n != allBlocks {
		blocks = blocks[max(0, len(blocks)-n):]
	}
	values := slices.Clone(x.scopedRequest.ephemeral.parts)
	for _, b := range blocks {
		if b.Type != wire.TextBlock && b.Type != wire.ToolResultBlock {
			values = append(values, o.Raw(b.Span))
		}
	}
	for _, v := range values {
		kind := wire.ContentKind(gjson.ParseBytes(v))
		if wire.SpeaksForItself(kind) {
			continue
		}
		if x.newest = append(x.newest, kind); !p.Accepts(kind) {
			return x.lacks(p, kind)
		}
	}
	return nil
}

// lacks is the error for content of a kind in the user's very last message.
func (x *adaptedRequest) lacks(p sanitize.Profile, kind string) error {
	f := wire.Failure{Status: http.StatusBadRequest, Param: "messages"}
	base, _, _ := strings.Cut(kind, "/")
	switch {
	case base == wire.ImageContent && p.Accepts(base):
		f.Message = "an image's address cannot be sent to this backend: send the image itself, in base64"
	case base == wire.ImageContent:
		f.Code = string(reasonImages)
		f.Message = fmt.Sprintf("the model %.200s of backend %q takes text only, and the newest message has an image: "+
			"send the text alone, or use a model that takes images", x.model, x.backend.name)
	case base == wire.DocumentContent && p.Accepts(base):
		f.Message = "a document's address cannot be sent to this backend: send the file itself, in base64"
	case base == wire.DocumentContent || base == wire.FileContent:
		f.Code = string(reasonDocuments)
		f.Message = "a document that is no text cannot be sent to this backend: send its text, or use a backend that " +
			"reads files"
	default:
		f.Message = fmt.Sprintf("content of type %.200q cannot be sent to this backend", kind)
	}
	return f
}

// imageWords match refusals by models without vision, in thinking.Sentence. Errors about one image, its size or format,
// use other words. content_test.go has most of the sources. The others are
// https://github.com/BerriAI/litellm/issues/7908, https://github.com/ollama/ollama/issues/18055 (an image in a result),
// https://github.com/TriDefender/zcode-api/pull/26, https://github.com/agentscope-ai/QwenPaw/issues/1022 and
// https://github.com/deepseek-ai/DeepSeek-V3/issues/1026, https://github.com/lmstudio-ai/localization/issues/425,
// https://github.com/Alishahryar1/free-claude-code/issues/512.
var imageWords = lazyregexp.New(`image_not_supported|only supported by certain models|unknown variant .?image|` +
	`not a (multi-?modal|vision)|(not|n't) (currently )?(support|accept|take|handle)s?\b[^.]{0,40}\b(images?|image_url|` +
	`vision|multi-?modal)\b|\b(images?|image_url|vision|multi-?modal)'?( (inputs?|content|blocks?|parts?|urls?|modality))*` +
	`( is| are)? ?(not|n't) (currently )?(supported|enabled|available|allowed|accepted)|support image input|` +
	`data required for image input|unsupported content( part)? type\W+(for [^:]*: )?(image|input_image)|` +
	`at most 0 image|text[- ]only|only '?text'?( \w+)? (content|blocks?|parts?)|input should be ('text'|a valid string)|` +
	`(取值范围|allowed values):? ?\['text'\]|content\W[^.]{0,20}must be a string|sequence, expected a string`)

// imageFaults are complaints about one image in words that contain imageWords.
var imageFaults = lazyregexp.New(`images? (larger|bigger|over|above|exceed)|media[_ ]type|mime`)

// addressWords refuse images by their address. The words are Ollama's (ollama/ollama, openai/openai.go).
var addressWords = lazyregexp.New(`image urls are not (currently )?supported`)

// documentWords match refusals by models that read no PDFs or files, in lower case.
var documentWords = lazyregexp.New(`(not|n't) (currently )?(support|accept|take|handle)s?\b[^.]{0,40}\b(pdfs?|documents?|` +
	`file (inputs?|content|parts?))\b|\b(pdfs?|documents?|files?)( (inputs?|content|blocks?|parts?))*( is| are)? ?(not|n't) ` +
	`(currently )?(supported|enabled|allowed|accepted)`)

// typeWords refuse a type of content. Sources: https://github.com/MoonshotAI/Kimi-K2.5/issues/27 ("Input tag"),
// https://github.com/QwenLM/qwen-code/pull/1838 ("Invalid value: file."), https://github.com/openai/codex/issues/45401,
// https://github.com/deepseek-ai/DeepSeek-V3/issues/1026 ("unknown variant").
var typeWords = lazyregexp.New(`unknown|input tag|invalid|unsupported|unexpected|unrecogni[sz]ed|input should be|` +
	`(not|n't) (a )?(valid|support|accept|allow|permit|recogni[sz]ed)`)

// takenTypes begins the list of types that the vendor takes. placeWords matches where a refused value is.
var (
	takenTypes = lazyregexp.New(`expected|(supported|allowed|valid) (values|types)|input should be`)
	placeWords = lazyregexp.New(`\b(messages|input)\W+(\d+)(?:\W+(content|output)\W+(\d+))?`)
)

// label returns the value of a label of metrics for a cure. Clients choose unknown types of content and tools.
func (c *cure) label() string {
	kinds := []string{wire.ImageContent, wire.ImageContent + "/url", wire.DocumentContent, wire.FileContent,
		wire.ServerTool, "mcp_tool_use"}
	switch {
	case c.kind != cureContent || slices.Contains(kinds, c.subject):
		return c.subject
	case strings.HasPrefix(c.subject, "tools."):
		return "tools[]"
	}
	return "other content"
}

// refusesContent reports whether an error is about content that a model cannot read.
func refusesContent(body []byte) bool {
	sentence := thinking.Sentence(body)
	return imageWords().MatchString(sentence) && !imageFaults().MatchString(sentence) ||
		documentWords().MatchString(sentence)
}

// refusedContent are the kinds of content that an error says the model does not take, and that the request has; nil for
// none.
func (a *attempt) refusedContent() []string {
	sentence := thinking.Sentence(a.answer.content)
	if words := []lazyregexp.Regexp{addressWords, imageWords, documentWords, typeWords}; !slices.ContainsFunc(words,
		func(w lazyregexp.Regexp) bool { return w().MatchString(sentence) }) {
		return nil
	}
	types := a.sentTypes()
	images := slices.Contains(types, wire.ImageContent)
	switch {
	case images && addressWords().MatchString(sentence):
		return []string{wire.ImageContent + "/url"}
	case images && imageWords().MatchString(sentence) && !imageFaults().MatchString(sentence):
		return []string{wire.ImageContent}
	case slices.Contains(types, wire.DocumentContent) && documentWords().MatchString(sentence):
		return []string{wire.DocumentContent, wire.FileContent}
	case !typeWords().MatchString(sentence), thinking.DoubtsCompaction(a.answer.content):
		return nil
	}
	kind := a.typeAt(sentence, types)
	for _, name := range types {
		if names(sentence, name) {
			kind = name
		}
	}
	switch base, _, _ := strings.Cut(wire.ContentKind(gjson.Parse(`{"type":"`+kind+`"}`)), "/"); {
	case slices.Contains(typeNames[1], base):
		return []string{wire.DocumentContent, wire.FileContent}
	case base != "":
		return []string{base}
	}
	return nil
}

// names reports whether an error names a type outside the list of types that the vendor takes.
func names(sentence, kind string) bool {
	if loc := takenTypes().FindStringIndex(sentence); loc != nil {
		sentence = sentence[:loc[0]]
	}
	word := `\b` + regexp.QuoteMeta(kind) + `\b`
	if slices.ContainsFunc(typeNames, func(l []string) bool { return slices.Contains(l, kind) }) {
		word = `(types?|variant|tag|value|part|block)'?:? ?'?` + kind + `\b` // others complain about one image or file
	}
	return regexp.MustCompile(word).MatchString(sentence)
}

// commonTypes are the types of content that cannot be replaced, or whose names are common words.
var commonTypes = []string{
	"", wire.TextBlock, wire.ThinkingBlock, wire.RedactedBlock, wire.ToolUseBlock, wire.ToolResultBlock, "input_text",
	"output_text", "message", "reasoning", "function", "function_call", "function_call_output", "custom",
	"custom_tool_call", "custom_tool_call_output",
}

// typeNames are the names of images and of files in the dialects.
var typeNames = [][]string{{wire.ImageContent, "image_url", "input_image"},
	{wire.DocumentContent, wire.FileContent, "input_file"}}

// maxTypes bounds the types of a request that an error is searched for. Clients send a dozen.
const maxTypes = 64

// sentTypes returns the types of content in the request, without the common ones.
func (a *attempt) sentTypes() (types []string) {
	add := func(_, kind gjson.Result) bool {
		names := []string{kind.Str}
		if i := slices.IndexFunc(typeNames, func(l []string) bool { return slices.Contains(l, kind.Str) }); i >= 0 {
			names = typeNames[i]
		}
		if !slices.Contains(commonTypes, kind.Str) && !slices.Contains(types, kind.Str) {
			types = append(types, names...)
		}
		return len(types) < maxTypes
	}
	for _, path := range []string{
		"messages.#.content.#.type", "messages.#.content.#.content.#.type", "input.#.type", "input.#.content.#.type",
		"input.#.output.#.type",
	} {
		body := a.doc.Body
		if a.native != nil && strings.HasPrefix(path, "input") {
			body = a.native.Body
		}
		gjson.GetBytes(body, path+`|@flatten:{"deep":true}`).ForEach(add)
	}
	return types
}

// typeAt returns the type of the content at the place that an error about a type names, if it is in types; empty for none.
func (a *attempt) typeAt(sentence string, types []string) string {
	m := placeWords().FindStringSubmatch(sentence)
	if m == nil || len(a.result.sentCalls) == 0 || !strings.Contains(sentence, ".type") &&
		!strings.Contains(sentence, "'type'") {
		return ""
	}
	path := m[1] + "." + m[2]
	if m[3] != "" {
		path += "." + m[3] + "." + m[4]
	}
	if kind := gjson.GetBytes(a.lastSent().body, path+".type").Str; slices.Contains(types, kind) {
		return kind
	}
	return ""
}

// onlyFunctions refuse all tools but functions. Source: https://github.com/CommandCodeAI/command-code/issues/885.
var onlyFunctions = lazyregexp.New(`(only|must be|should be|expected) '?(type: ?)?'?function`)

// withoutTools returns the cure for tools that a server of Responses refuses by their type. Other types than functions
// are mostly of tools that the vendor runs.
func (a *attempt) withoutTools() *cure {
	sentence := thinking.Sentence(a.answer.content)
	allTools := onlyFunctions().MatchString(sentence)
	if a.native == nil || !strings.Contains(sentence, "tool") || !allTools && !typeWords().MatchString(sentence) {
		return nil
	}
	c := a.newCure(cureContent, "")
	gjson.GetBytes(a.lastSent().body, "tools.#.type").ForEach(func(_, kind gjson.Result) bool {
		if kind.Str != "" && kind.Str != "function" && (allTools || names(sentence, kind.Str)) {
			c.subject = "tools." + kind.Str
			c.rules = append(c.rules, sanitize.Rule{Name: sanitize.ToolList, Value: kind.Raw, Model: a.model})
		}
		return true
	})
	if c.rules == nil {
		return nil
	}
	return c
}

// replaceContent returns the cure for content that the model does not take. A text replaces the content in this request
// and all later ones. It returns nil if the user's very last message has such content, because the user must know that.
func (a *attempt) replaceContent(kinds []string) *cure {
	for _, kind := range a.newest {
		if base, _, _ := strings.Cut(kind, "/"); slices.Contains(kinds, kind) || slices.Contains(kinds, base) {
			return nil
		}
	}
	rule := sanitize.Rule{Model: a.model}
	if kinds[0] == wire.ImageContent {
		rule.Profile.NoImages = &yes
	} else {
		rule.Profile.NoContent = slices.Concat(a.fitting.NoContent, kinds)
	}
	return a.newCure(cureContent, kinds[0], rule)
}
