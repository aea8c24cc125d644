package wire

import "bytes"

// Fold takes out of a text what clients change without meaning to: the way lines
// end, spaces at the ends of lines, and what surrounds the whole. It does not write
// into the text, and mostly gives a part of it.
func Fold(text []byte) []byte {
	newline := []byte("\n")
	if bytes.IndexByte(text, '\r') >= 0 {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), newline), []byte("\r"), newline)
	}
	if bytes.Contains(text, []byte(" \n")) || bytes.Contains(text, []byte("\t\n")) {
		lines := bytes.Split(text, newline)
		for i, line := range lines {
			lines[i] = bytes.TrimRight(line, " \t")
		}
		text = bytes.Join(lines, newline)
	}
	return bytes.TrimSpace(text)
}
