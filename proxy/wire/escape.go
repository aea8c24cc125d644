package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// escapeLength is the length of an escape with hexadecimal digits, such as \u0041.
const escapeLength = 6

// CheckText returns a Failure if JSON has an escape that does not encode text: U+0000, or half of a surrogate pair (RFC
// 8259, section 8.2). Vendors refuse both, and a conversation that has one never succeeds again
// (anthropics/claude-code#6273).
func CheckText(body []byte) error {
	for offset := 0; ; {
		i := bytes.Index(body[offset:], []byte(`\u`))
		if i < 0 {
			return nil
		}
		offset += i
		runStart := len(bytes.TrimRight(body[:offset], `\`))
		unit := escaped(body[offset:])
		switch {
		case (offset-runStart)%2 != 0 || unit < 0: // the backslash is escaped itself, or a parser refuses the body
			offset += len(`\u`)
			continue
		case utf16.IsSurrogate(unit) && utf16.DecodeRune(unit, escaped(body[min(offset+escapeLength,
			len(body)):])) != '\uFFFD':
			offset += escapeLength
		case unit == 0 || utf16.IsSurrogate(unit):
			return Failure{Status: http.StatusBadRequest, Code: "bad_text", Message: fmt.Sprintf(
				"%s contains %s (byte %d of the body), which is no text. Remove it", memberAt(body, offset),
				body[offset:offset+escapeLength], offset)}
		}
		offset += escapeLength
	}
}

// escaped returns the UTF-16 code unit of an escape with hexadecimal digits, or -1.
func escaped(b []byte) rune {
	if len(b) < escapeLength || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(b[2:escapeLength]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// memberAt returns the JSON pointer of the member that has a byte.
func memberAt(body []byte, offset int) string {
	d := jsontext.NewDecoder(bytes.NewReader(body), lenient)
	for {
		if _, err := d.ReadToken(); err != nil || d.InputOffset() > int64(offset) {
			return place(d.StackPointer())
		}
	}
}
