package wire

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// BadEscape returns the first escape in JSON of a character that is no text: U+0000, or one half of a surrogate pair
// (RFC 8259, section 8.2). It returns "" if there is none.
func BadEscape(body []byte) string {
	for at := 0; ; {
		i := bytes.IndexByte(body[at:], '\\')
		if i < 0 || at+i+1 >= len(body) {
			return ""
		}
		at += i
		r := escaped(body[at:])
		switch low := rune(-1); {
		case r < 0: // another escape
			at += 2
			continue
		case r == 0:
			return string(body[at : at+6])
		case utf16.IsSurrogate(r):
			if len(body) >= at+12 {
				low = escaped(body[at+6:])
			}
			if low < 0 || utf16.DecodeRune(r, low) == '\uFFFD' {
				return string(body[at : at+6])
			}
			at += 6
		}
		at += 6
	}
}

// escaped returns the UTF-16 code unit of an escape with hexadecimal digits; -1 for anything else.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}
