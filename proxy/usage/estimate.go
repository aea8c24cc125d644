package usage

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// imageTokens is what an image counts for, in base64 or by its address: Anthropic scales one down that has more than
// about 1,600 tokens (docs.claude.com/en/docs/vision). Its models of high resolution may read more of one.
const imageTokens = 1600

// documentBytes is how much of a document in base64 counts for one token, beyond imageTokens: one of a megabyte has
// some fifty thousand. The size of one that is named by an address or an id is not known; it counts as an image.
const documentBytes = 20

// EstimateInput is a rough count of what a model reads of a request in any dialect: four ASCII characters, or two
// others, of its strings and numbers make a token. Only where a part of a message is an image or a document is data in
// base64 no text, and only where it is thinking is a signature nothing.
func EstimateInput(request []byte) int64 {
	var t tally
	for rest := request; len(rest) > 0; {
		start := bytes.IndexByte(rest, '"')
		if start < 0 {
			start = len(rest) - 1
		}
		for _, c := range rest[:start] {
			if c >= '0' && c <= '9' {
				t.ascii++
			}
		}
		rest = rest[start+1:]
		rest = rest[min(t.literal(rest)+1, len(rest)):]
	}
	files := int64(0)
	if slices.ContainsFunc(kindsOfParts, func(kind string) bool { return bytes.Contains(request, []byte(kind)) }) {
		for _, list := range []string{"messages", "input"} {
			gjson.GetBytes(request, list).ForEach(func(_, message gjson.Result) bool {
				files += t.parts(last(message, "content"), 0) + t.parts(last(message, "output"), 0)
				return true
			})
		}
	}
	return t.tokens() + files
}

// kindsOfParts begin the types of the parts that are no text.
var kindsOfParts = []string{`"thinking"`, `"image`, `"document"`, `"file"`, `"input_`}

// parts takes out of the count what is no text in a content, an array of parts of which a tool's result has parts of
// its own, and gives the tokens of the files in it.
func (t *tally) parts(content gjson.Result, depth int) (tokens int64) {
	if !content.IsArray() || depth > 1 {
		return 0
	}
	content.ForEach(func(_, part gjson.Result) bool {
		switch kind := last(part, "type").Str; kind {
		case "thinking":
			t.subtract(last(part, "signature"))
		case "input_audio":
			tokens += t.file(last(last(part, kind), "data"), false)
		case "image", "document":
			if source := last(part, "source"); last(source, "type").Str != "text" {
				tokens += t.file(last(source, "data"), kind == "image")
			}
		case "image_url", "input_image", "file", "input_file":
			url := part
			for _, name := range []string{"image_url", "file", "url", "file_data"} {
				if inner := last(url, name); inner.Exists() {
					url = inner
				}
			}
			inline, _, base64 := strings.Cut(url.Str[:min(len(url.Str), 200)], ";base64,")
			switch {
			case !strings.HasPrefix(inline, "data:"):
				tokens += imageTokens
			case base64 && !strings.HasPrefix(inline, "data:text/"): // which is read as the text that it is
				tokens += t.file(url, strings.Contains(kind, "image"))
			}
		}
		tokens += t.parts(last(part, "content"), depth+1)
		return true
	})
	return tokens
}

// file takes the data of a file out of the count and gives its tokens; without data it is one that is referred to.
func (t *tally) file(data gjson.Result, image bool) int64 {
	t.subtract(data)
	if image {
		return imageTokens
	}
	return imageTokens + int64(len(data.Raw)/documentBytes)
}

// last is the member of an object that counts for a parser that lets the last of one name win, as vendors' do.
func last(object gjson.Result, name string) (member gjson.Result) {
	object.ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			member = value
		}
		return true
	})
	return member
}

// subtract takes a string out of the count.
func (t *tally) subtract(text gjson.Result) {
	if text.Type == gjson.String {
		var s tally
		s.literal([]byte(text.Raw[1:]))
		t.ascii, t.other = t.ascii-s.ascii, t.other-s.other
	}
}

// tally counts characters.
type tally struct{ ascii, other int64 }

func (t *tally) tokens() int64 { return (t.ascii+3)/4 + (t.other+1)/2 }

// literal counts the characters of a JSON string, given what follows its opening
// quote, and returns the length up to the closing one.
func (t *tally) literal(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i
		case c == '\\':
			if i++; i < len(b) && b[i] == 'u' {
				i += 4
				t.other++
			} else {
				t.ascii++
			}
		case c < 0x80:
			t.ascii++
		case c >= 0xC0: // the first byte of a character
			t.other++
		}
	}
	return len(b)
}
