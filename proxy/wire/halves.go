package wire

import (
	"bytes"
	"regexp"
	"unicode/utf8"
)

// Vendors cut an answer anywhere, so that the halves of one character may come in two events: as the escapes of two
// surrogates (RFC 8259, section 7), or as bytes of one UTF-8 sequence. Decoders replace a half without
// its other half.
var (
	firstEscape  = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}"`)
	secondEscape = regexp.MustCompile(`"\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
)

// hasHalf reports whether an event may have a half of a character.
func hasHalf(data []byte) bool {
	return bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`)) || !utf8.Valid(data)
}

// joinHalves moves the first half of a character from the end of a string to the beginning of a string in a later event
// that has the second half.
func (f *FrameReader) joinHalves(frame Frame) Frame {
	data := frame.Data
	if len(f.half) > 0 {
		at := -1
		if f.half[0] != '\\' {
			at = beforeContinuation(data)
		} else if found := secondEscape.FindIndex(data); found != nil {
			at = found[0] + 1
		}
		if at >= 0 {
			data = bytes.Join([][]byte{data[:at], f.half, data[at:]}, nil)
			f.half = nil
		}
	}
	if from, to := firstHalf(data); from < to && len(f.half) == 0 {
		f.half = bytes.Clone(data[from:to])
		data = append(data[:from:from], data[to:]...)
	}
	if bytes.Equal(data, frame.Data) {
		return frame
	}
	return Frame{Raw: frame.With(nil, data), Data: data}
}

// beforeContinuation returns the place of a string that begins within a UTF-8 sequence, or -1.
func beforeContinuation(data []byte) int {
	for at := 1; at < len(data); at++ {
		if data[at-1] == '"' && data[at]&0xC0 == 0x80 {
			return at
		}
	}
	return -1
}

// firstHalf returns where the first half of a character ends a string.
func firstHalf(data []byte) (from, to int) {
	for _, found := range firstEscape.FindAllIndex(data, -1) {
		before := len(bytes.TrimRight(data[:found[0]], `\`))
		if (found[0]-before)%2 == 0 { // the backslash is not escaped itself
			return found[0], found[1] - 1
		}
	}
	if utf8.Valid(data) {
		return 0, 0
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			end := bytes.IndexByte(data[at:min(at+utf8.UTFMax, len(data))], '"')
			if end > 0 && !utf8.FullRune(data[at:at+end]) {
				return at, at + end
			}
		}
		at += size
	}
	return 0, 0
}
