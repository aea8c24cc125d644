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
	for at := 0; ; {
		i := bytes.Index(body[at:], []byte(`\u`))
		if i < 0 {
			return nil
		}
		at += i
		before := len(bytes.TrimRight(body[:at], `\`))
		unit := escaped(body[at:])
		switch {
		case (at-before)%2 != 0 || unit < 0: // the backslash is escaped itself, or a parser refuses the body
			at += len(`\u`)
			continue
		case utf16.IsSurrogate(unit) && utf16.DecodeRune(unit, escaped(body[min(at+escapeLength, len(body)):])) != '\uFFFD':
			at += escapeLength
		case unit == 0 || utf16.IsSurrogate(unit):
			return Failure{Status: http.StatusBadRequest, Code: "bad_text", Message: fmt.Sprintf(
				"%s contains %s (byte %d of the body), which is no text. Remove it", memberAt(body, at),
				body[at:at+escapeLength], at)}
		}
		at += escapeLength
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
func memberAt(body []byte, at int) string {
	d := jsontext.NewDecoder(bytes.NewReader(body), lenient)
	for {
		if _, err := d.ReadToken(); err != nil || d.InputOffset() > int64(at) {
			return place(d.StackPointer())
		}
	}
}
