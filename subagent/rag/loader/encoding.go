package loader

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode/utf32"

	utf16 "golang.org/x/text/encoding/unicode"
)

// decode gives a file's bytes as clean UTF-8. named is the encoding that the sender or
// the file itself claims, "" for none: it is believed only for bytes that are not UTF-8
// anyway.
func decode(data []byte, named string) (string, error) {
	text, err := decoded(data, named)
	if err != nil {
		return "", err
	}
	if err := isText(text); err != nil {
		return "", err
	}
	return clean(text), nil
}

func decoded(data []byte, named string) (string, error) {
	for _, m := range byteOrderMarks {
		if bytes.HasPrefix(data, []byte(m.mark)) {
			return through(m.encoding, data[len(m.mark):])
		}
	}
	// UTF-16 of ASCII letters is UTF-8 with NULs.
	if utf8.Valid(data) && (named == "" || bytes.IndexByte(data, 0) < 0) {
		return string(data), nil
	}
	if claimed, err := htmlindex.Get(named); err == nil && claimed != utf16.UTF8 {
		return through(claimed, data)
	}
	if mostlyUTF8(data) {
		return strings.ToValidUTF8(string(data), "\ufffd"), nil
	}
	guess := oneByte(data)
	if guess == nil {
		return "", refuse(Encoding, "the file is no text in a known encoding: save it as UTF-8")
	}
	return through(guess, data)
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

func through(e encoding.Encoding, data []byte) (string, error) {
	text, err := e.NewDecoder().Bytes(data)
	if err != nil {
		return "", &Error{Code: Encoding, Sentence: "the file's encoding is broken: save it as UTF-8", Err: err}
	}
	return string(text), nil
}

// isText refuses what has too many characters that no text has.
func isText(text string) error {
	all, nul, odd := 0, 0, 0
	for _, r := range text {
		all++
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
	if nul*1000 > all || odd*20 > all {
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

// oneByte guesses the encoding of a text with one byte for each character:
// Cyrillic ones have words of high bytes in small letters, Western ones have single high bytes
// between ASCII letters. It is nil if the text is neither.
func oneByte(data []byte) encoding.Encoding {
	high, runs := 0, 0
	data = data[:min(len(data), sample)]
	for i, c := range data {
		if c < 0x80 {
			continue
		}
		high++
		if i > 0 && data[i-1] >= 0x80 || i+1 < len(data) && data[i+1] >= 0x80 {
			runs++
		}
	}
	if runs*2 <= high {
		return charmap.Windows1252
	}
	var best encoding.Encoding
	bestScore := 0
	for _, e := range []*charmap.Charmap{charmap.Windows1251, charmap.KOI8R, charmap.CodePage866} {
		letters, score, broken, small := 0, 0, 0, false
		for _, c := range data {
			if c < 0x80 {
				small = false
				continue
			}
			r := e.DecodeByte(c)
			if small && unicode.IsUpper(r) {
				broken++ // no person writes wOrds like this
			}
			small = unicode.IsLower(r)
			if unicode.Is(unicode.Cyrillic, r) || strings.ContainsRune("«»„“”—–…№\u00a0", r) {
				letters++
			}
			if strings.ContainsRune("оеаинтсрвлкм", r) {
				score++
			}
		}
		if letters*100 >= high*85 && broken*20 <= letters && score > bestScore {
			best, bestScore = e, score
		}
	}
	return best
}
