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
		pos := -1
		if f.half[0] != '\\' {
			pos = beforeContinuation(data)
		} else if loc := secondEscape.FindIndex(data); loc != nil {
			pos = loc[0] + 1
		}
		if pos >= 0 {
			data = bytes.Join([][]byte{data[:pos], f.half, data[pos:]}, nil)
			f.half = nil
		}
	}
	if start, stop := firstHalf(data); start < stop && len(f.half) == 0 {
		f.half = bytes.Clone(data[start:stop])
		data = append(data[:start:start], data[stop:]...)
	}
	if bytes.Equal(data, frame.Data) {
		return frame
	}
	return Frame{Raw: frame.With(nil, data), Data: data}
}

// beforeContinuation returns the place of a string that begins within a UTF-8 sequence, or -1.
func beforeContinuation(data []byte) int {
	for i := 1; i < len(data); i++ {
		if data[i-1] == '"' && data[i]&0xC0 == 0x80 {
			return i
		}
	}
	return -1
}

// firstHalf returns where the first half of a character ends a string.
func firstHalf(data []byte) (start, stop int) {
	for _, loc := range firstEscape.FindAllIndex(data, -1) {
		runStart := len(bytes.TrimRight(data[:loc[0]], `\`))
		if (loc[0]-runStart)%2 == 0 { // the backslash is not escaped itself
			return loc[0], loc[1] - 1
		}
	}
	if utf8.Valid(data) {
		return 0, 0
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			end := bytes.IndexByte(data[i:min(i+utf8.UTFMax, len(data))], '"')
			if end > 0 && !utf8.FullRune(data[i:i+end]) {
				return i, i + end
			}
		}
		i += size
	}
	return 0, 0
}
