package loader

import (
	"bytes"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode/utf32"

	utf16 "golang.org/x/text/encoding/unicode"
)

// decode gives a file's bytes as clean UTF-8. named is the encoding that the sender or
// the file itself claims, "" for none: it is believed only for bytes that are not UTF-8
// anyway.
func decode(data []byte, encodingName string) (string, error) {
	text, err := decoded(data, encodingName)
	if err != nil {
		return "", err
	}
	if err := isText(text); err != nil {
		return "", err
	}
	return clean(text), nil
}

func decoded(data []byte, encodingName string) (string, error) {
	for _, m := range byteOrderMarks {
		if bytes.HasPrefix(data, []byte(m.mark)) {
			return decodeWith(m.encoding, data[len(m.mark):])
		}
	}
	claimed := encodingOf(encodingName)
	if e := escaped(data, claimed); e != nil {
		return decodeWith(e, data)
	}
	// UTF-16 of ASCII letters is UTF-8 with NULs.
	if utf8.Valid(data) && (encodingName == "" || bytes.IndexByte(data, 0) < 0) {
		return string(data), nil
	}
	if claimed != nil && claimed != utf16.UTF8 {
		return decodeWith(claimed, data)
	}
	if mostlyUTF8(data) {
		return strings.ToValidUTF8(string(data), "\ufffd"), nil
	}
	return guess(data)
}

// encodingOf returns the encoding of that name, nil if there is none.
func encodingOf(name string) encoding.Encoding {
	if e, err := htmlindex.Get(name); err == nil && e != encoding.Replacement {
		return e
	}
	// The names of web pages lack DOS code pages and HZ.
	if e, err := ianaindex.IANA.Encoding(name); err == nil {
		return e
	}
	return nil
}

// WithCharset adds the name of an encoding to a MIME type. It reports whether the name is known.
func WithCharset(contentType, name string) (string, bool) {
	if encodingOf(name) == nil {
		return contentType, false
	}
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, parameters = "application/octet-stream", map[string]string{}
	}
	parameters["charset"] = name
	return mime.FormatMediaType(kind, parameters), true
}

var hzText = regexp.MustCompile(`~\{(?:[!-w][!-~])+(?:~\}|\n|\z)`)

// escaped returns the encoding of bytes that are ASCII with escape sequences for other characters, nil if
// they are not such text.
func escaped(data []byte, claimed encoding.Encoding) encoding.Encoding {
	var e encoding.Encoding
	switch {
	case bytes.ContainsFunc(data, func(r rune) bool { return r >= 0x80 }):
		return nil
	case bytes.Contains(data, []byte("\x1b$B")), bytes.Contains(data, []byte("\x1b$@")):
		e = japanese.ISO2022JP
	case hzText.Match(data) &&
		(claimed == simplifiedchinese.HZGB2312 || wide()[0].share(data, simplifiedchinese.HZGB2312) >= leastFrequent):
		e = simplifiedchinese.HZGB2312
	default:
		return nil
	}
	if text, err := decodeWith(e, data); err != nil || strings.ContainsRune(text, utf8.RuneError) {
		return nil
	}
	return e
}

var byteOrderMarks = []struct {
	mark     string
	encoding encoding.Encoding
}{
	{"\xef\xbb\xbf", utf16.UTF8},
	{"\xff\xfe\x00\x00", utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)},
	{"\x00\x00\xfe\xff", utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)},
	{"\xff\xfe", utf16.UTF16(utf16.LittleEndian, utf16.IgnoreBOM)},
	{"\xfe\xff", utf16.UTF16(utf16.BigEndian, utf16.IgnoreBOM)},
}

func decodeWith(e encoding.Encoding, data []byte) (string, error) {
	text, err := e.NewDecoder().Bytes(data)
	if err != nil {
		return "", &Error{Code: Encoding, Sentence: "the file's encoding is broken: save it as UTF-8", Err: err}
	}
	return string(text), nil
}

// isText refuses what has too many characters that no text has.
func isText(text string) error {
	total, nul, odd := 0, 0, 0
	for _, r := range text {
		total++
		switch {
		case r == 0:
			nul++
		case r == '\t', r == '\n', r == '\r', r == '\f':
		case r == utf8.RuneError, r < ' ', r >= 0x7f && r < 0xa0:
			odd++
		}
	}
	// Logs have a NUL or an escape sequence here and there, after a crash or for
	// colours.
	if nul*1000 > total || odd*20 > total {
		return refuse(Encoding, "the file is binary, not text")
	}
	return nil
}

// mostlyUTF8 says whether the bytes are UTF-8 with a few wrong ones, as after a
// cut in the middle of a character.
func mostlyUTF8(data []byte) bool {
	right, wrong := 0, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			wrong++
		case size > 1:
			right++
		}
		i += size
	}
	return wrong*20 <= right
}

// sample is how many bytes a guess looks at.
const sample = 64 << 10
