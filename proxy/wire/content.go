package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Kinds of content that have rules of their own. An image by its address or by a vendor's id of a file has the kind
// "image/url" or "image/file", a document likewise.
const (
	ImageContent    = ImageBlock
	DocumentContent = DocumentBlock     // a PDF
	DocumentText    = "document/text"   // a document with a text as its source
	FileContent     = "file"            // a file of chat completions or Responses
	ServerTool      = "server_tool_use" // a call of a tool that the vendor runs, or its result
)

// ContentKind returns the kind of a block, a content part or an item: its type, and behind a slash the type of its
// source unless that is base64. Images have the same kinds in all dialects. A call of a tool that its vendor runs and
// the result have one kind, which ends with the tool's name, so that both are sent or replaced.
func ContentKind(v gjson.Result) string {
	kind := v.Get("type").Str
	switch kind {
	case ImageBlock, DocumentBlock:
		if source := v.Get("source.type").Str; source != "" && source != "base64" {
			return kind + "/" + source
		}
		return kind
	case "image_url", "input_image":
		switch url := v.Get("image_url"); {
		case strings.HasPrefix(url.Str+url.Get("url").Str, "data:"):
			return ImageContent
		case v.Get("file_id").Exists():
			return "image/file"
		}
		return "image/url"
	case FileContent, "input_file":
		if _, ok := fileText(v); ok {
			return FileContent + "/text"
		}
		return FileContent
	case ServerTool:
		return ServerTool + "/" + serverTool(v.Get("name").Str)
	case "mcp_tool_use", "mcp_tool_result":
		return "mcp_tool_use"
	}
	if tool, ok := strings.CutSuffix(kind, "_tool_result"); ok {
		return ServerTool + "/" + serverTool(tool)
	}
	return kind
}

// serverTool returns the name of a tool in the types of its results.
func serverTool(name string) string {
	if strings.HasPrefix(name, "tool_search") { // tool_search_tool_regex, tool_search_tool_bm25
		return "tool_search"
	}
	return name
}

// SpeaksForItself reports whether StandIn keeps all information of content of a kind.
func SpeaksForItself(kind string) bool {
	base, _, _ := strings.Cut(kind, "/")
	switch base {
	case TextBlock, ThinkingBlock, RedactedBlock, ToolUseBlock, ToolResultBlock, "search_result", "tool_reference",
		"compaction", ServerTool, "mcp_tool_use":
		return true
	}
	return kind == DocumentText || kind == "document/content" || kind == FileContent+"/text"
}

// fileText returns the text of a file of chat completions or Responses; ok is false for a file without one.
func fileText(v gjson.Result) (text string, ok bool) {
	data := v.Get("file_data").Str + v.Get("file.file_data").Str
	if rest, isURL := strings.CutPrefix(data, "data:"); isURL {
		if mime, coded, isBase64 := strings.Cut(rest, ";base64,"); isBase64 {
			return TextOfFile(mime, coded)
		}
	}
	return "", false
}

// TextOfFile returns the text of a file in base64, whatever its media type is. ok is false for a PDF and for bytes that
// are not UTF-8.
func TextOfFile(mime, coded string) (text string, ok bool) {
	if strings.HasPrefix(mime, "application/pdf") {
		return "", false
	}
	data, err := base64.StdEncoding.DecodeString(coded)
	return string(data), err == nil && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
}

// StandIn returns the text that replaces a block, a content part or an item that a backend does not take. It depends
// only on the content, so that a vendor's prompt cache holds.
func StandIn(v gjson.Result) string {
	switch kind := ContentKind(v); kind {
	case TextBlock:
		return v.Get("text").Str
	case FileContent + "/text":
		text, _ := fileText(v)
		return Join("\n", v.Get("filename").Str+v.Get("file.filename").Str, text)
	case DocumentText:
		return Join("\n", v.Get("title").Str, v.Get("context").Str, v.Get("source.data").Str)
	case "document/content":
		return Join("\n", v.Get("title").Str, v.Get("context").Str, texts(v.Get("source.content")))
	case "search_result":
		return Join("\n", v.Get("title").Str, v.Get("source").Str, texts(v.Get("content")))
	case "tool_reference":
		return fmt.Sprintf("[The tool %s can be called now.]", v.Get("tool_name").Str)
	default:
		if base, _, _ := strings.Cut(kind, "/"); base == ImageContent || base == DocumentContent || base == FileContent {
			return media(base, v)
		}
		name, text := v.Get("type").Str, string(legible(nil, v, true))
		switch {
		case name == "":
			return text
		case text == "{}":
			return "[" + name + "]"
		}
		return "[" + name + ": " + text + "]"
	}
}

// StandIn returns the text that replaces a block that the other dialect lacks.
func (b Block) StandIn() string { return StandIn(gjson.ParseBytes(b.append(nil))) }

// media describes an image or a file that cannot be read.
func media(base string, v gjson.Result) string {
	first := func(paths ...string) string {
		for _, path := range paths {
			if s := v.Get(path); s.Type == gjson.String && s.Str != "" {
				return s.Str
			}
		}
		return ""
	}
	mime, data := first("source.media_type"), first("source.data")
	address := first("image_url.url", "image_url", "file.file_data", "file_data", "file_url", "source.url")
	if rest, ok := strings.CutPrefix(address, "data:"); ok {
		mime, data, _ = strings.Cut(rest, ";base64,")
		address = ""
	}
	name := first("title", "filename", "file.filename", "source.file_id", "file_id", "file.file_id")
	what := "a file"
	switch {
	case base == ImageContent:
		what = "an image"
	case base == DocumentContent || mime == "application/pdf":
		what, mime = "a PDF", ""
	}
	details := []string{what}
	for _, s := range []string{name, mime, address, size(data)} {
		if s != "" {
			details = append(details, s)
		}
	}
	return "[" + strings.Join(details, ", ") + ", which this model cannot read]"
}

// size returns the size of data in base64; empty for none.
func size(data string) string {
	n := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
	switch {
	case n == 0:
		return ""
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d kB", (n+500)/1000)
}

// texts joins the texts of content, a string or an array of blocks.
func texts(content gjson.Result) string {
	if content.Type == gjson.String {
		return content.Str
	}
	var parts []string
	content.ForEach(func(_, b gjson.Result) bool {
		parts = append(parts, StandIn(b))
		return true
	})
	return Join("\n", parts...)
}

// Join joins texts. It omits empty ones.
func Join(between string, parts ...string) string {
	return JoinTexts(parts, between, func(s string) string { return s })
}

// illegible matches strings that only programs read: data: URLs, and long ones without white space in the alphabet of
// base64.
var illegible = regexp.MustCompile(`^(data:|[A-Za-z0-9+/=_-]{200})`)

// legible appends the JSON of v without what no model can read or use. outer is for the block itself, whose type is
// named elsewhere.
func legible(dst []byte, v gjson.Result, outer bool) []byte {
	object := v.IsObject()
	if !object && !v.IsArray() {
		return append(dst, v.Raw...)
	}
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	start := len(dst)
	v.ForEach(func(name, inner gjson.Result) bool {
		skip := inner.Type == gjson.Null || inner.Type == gjson.String && illegible.MatchString(inner.Str) ||
			strings.HasPrefix(name.Str, "encrypted") || name.Str == "cache_control" || name.Str == "signature"
		if skip || outer && (name.Str == "type" || name.Str == "id" || name.Str == "tool_use_id") {
			return true
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		if object {
			dst = append(append(dst, name.Raw...), ':')
		}
		dst = legible(dst, inner, false)
		return true
	})
	return append(dst, end)
}
