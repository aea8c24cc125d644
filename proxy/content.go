package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// allBlocks means that the last message of a request has only blocks of the user's very last message.
const allBlocks = -1

// sees is the profile, with what holds for a kind of backend whatever the model.
func (x routed) sees() sanitize.Profile {
	p := x.known.profile
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
func (x *asked) takesNewest(o *wire.Outline, p sanitize.Profile, n int) error {
	at := len(o.Messages) - 1
	for at > 0 && wire.IsSystem(o.Messages[at].Role) {
		at--
	}
	if x.endpoint.counts || at < 0 || o.Messages[at].Role != wire.RoleUser {
		return nil
	}
	blocks := o.Messages[at].Blocks
	if n != allBlocks {
		blocks = blocks[max(0, len(blocks)-n):]
	}
	said := slices.Clone(x.named.ephemeral.parts)
	for _, b := range blocks {
		if b.Type != wire.TextBlock && b.Type != wire.ToolResultBlock {
			said = append(said, o.Of(b.Span))
		}
	}
	for _, v := range said {
		kind := wire.ContentKind(gjson.ParseBytes(v))
		if wire.SpeaksForItself(kind) {
			continue
		}
		if x.newest = append(x.newest, kind); !p.Takes(kind) {
			return x.lacks(p, kind)
		}
	}
	return nil
}

// lacks is the error for content of a kind in the user's very last message.
func (x *asked) lacks(p sanitize.Profile, kind string) error {
	f := wire.Failure{Status: http.StatusBadRequest, Param: "messages"}
	base, _, _ := strings.Cut(kind, "/")
	switch {
	case base == wire.ImageContent && p.Takes(base):
		f.Message = "an image's address cannot be sent to this backend: send the image itself, in base64"
	case base == wire.ImageContent:
		f.Code = string(reasonImages)
		f.Message = fmt.Sprintf("the model %.200s of backend %q takes text only, and the newest message has an image: "+
			"send the text alone, or use a model that takes images", x.model, x.backend.name)
	case base == wire.DocumentContent && p.Takes(base):
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

// imageWords match refusals by models without vision, in lower case. Errors about one image, its size or format, use
// other words. content_test.go has most of the sources. The others are
// https://github.com/BerriAI/litellm/issues/7908, https://github.com/ollama/ollama/issues/18055 (an image in a result),
// https://github.com/TriDefender/zcode-api/pull/26, https://github.com/agentscope-ai/QwenPaw/issues/1022 and
// https://github.com/deepseek-ai/DeepSeek-V3/issues/1026.
var imageWords = regexp.MustCompile(`image_not_supported|only supported by certain models|unknown variant .?image|` +
	`not a (multi-?modal|vision)|(not|n't) (currently )?(support|accept|take|handle)s?\b[^.]{0,40}\b(images?|image_url|` +
	`vision|multi-?modal)\b|\b(images?|image_url|vision|multi-?modal)( (inputs?|content|parts?|urls?|modality))*` +
	`( is| are)? ?(not|n't) (currently )?(supported|enabled|available|allowed|accepted)|support image input|` +
	`data required for image input|unsupported content( part)? type\W+(for [^:]*: )?(image|input_image)|` +
	`at most 0 image|text[- ]only|only text content|input should be ('text'|a valid string)|` +
	`(取值范围|allowed values):? ?\['text'\]|content\W[^.]{0,20}must be a string|sequence, expected a string`)

// imageFaults are complaints about one image in words that contain imageWords.
var imageFaults = regexp.MustCompile(`images? (larger|bigger|over|above|exceed)|media[_ ]type|mime`)

// addressWords refuse images by their address. The words are Ollama's (ollama/ollama, openai/openai.go).
var addressWords = regexp.MustCompile(`image urls are not (currently )?supported`)

// documentWords match refusals by models that read no PDFs or files, in lower case.
var documentWords = regexp.MustCompile(`(not|n't) (currently )?(support|accept|take|handle)s?\b[^.]{0,40}\b(pdfs?|documents?|` +
	`file (inputs?|content|parts?))\b|\b(pdfs?|documents?|files?)( (inputs?|content|blocks?|parts?))*( is| are)? ?(not|n't) ` +
	`(currently )?(supported|enabled|allowed|accepted)`)

// typeWords refuse a type of content by its name. Sources: https://github.com/MoonshotAI/Kimi-K2.5/issues/27 ("Input
// tag"), https://github.com/QwenLM/qwen-code/pull/1838 ("Invalid value: file."),
// https://github.com/deepseek-ai/DeepSeek-V3/issues/1026 ("unknown variant").
var typeWords = regexp.MustCompile("(?:unknown variant|input tag|invalid value:?|(?:unknown|unsupported|invalid|unexpected) " +
	"(?:(?:content|part|block|item|input) ){0,2}types?:?) ?[`'\"]?([a-z_]+)")

// refusedContent are the kinds of content that an error says the model does not take, and that the request has; nil for
// none.
func (a *attempt) refusedContent(f wire.Failure) []string {
	said := strings.ToLower(f.Code + " " + f.Message)
	has := func(types ...string) bool { return slices.ContainsFunc(types, a.shows) }
	images := has("image", "image_url", "input_image")
	switch {
	case images && addressWords.MatchString(said):
		return []string{wire.ImageContent + "/url"}
	case images && imageWords.MatchString(said) && !imageFaults.MatchString(said):
		return []string{wire.ImageContent}
	case has("document", "file", "input_file") && documentWords.MatchString(said):
		return []string{wire.DocumentContent, wire.FileContent}
	}
	m := typeWords.FindStringSubmatch(said)
	if m == nil || !a.shows(m[1]) && !a.sealsItem(m[1]) {
		return nil
	}
	base, _, _ := strings.Cut(wire.ContentKind(gjson.Parse(`{"type":"`+m[1]+`"}`)), "/")
	switch {
	case base == wire.DocumentContent, base == wire.FileContent:
		return []string{wire.DocumentContent, wire.FileContent}
	case wire.IsThinking(base), base == wire.TextBlock, base == wire.ToolUseBlock, base == wire.ToolResultBlock:
		return nil
	}
	return []string{base}
}

// shows reports whether the messages of the request have content of a type, in results too.
func (a *attempt) shows(kind string) bool {
	for i := range a.doc.Messages {
		for _, b := range a.doc.Messages[i].Blocks {
			if b.Type == kind || b.Type == wire.ToolResultBlock &&
				bytes.Contains(a.doc.Of(b.Span), []byte(`"`+kind+`"`)) {
				return true
			}
		}
	}
	return false
}

// sealsItem reports whether the client's own input for a vendor of Responses has an item of a type.
func (a *attempt) sealsItem(kind string) bool {
	return a.native != nil && gjson.GetBytes(a.native.Body, `input.#(type=="`+kind+`")`).Exists()
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
