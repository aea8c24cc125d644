package wire

import "bytes"

// Fold normalises what clients change in a text without meaning to: line endings, spaces at the
// ends of lines, and white space around the whole. It does not write to the text and mostly returns
// a slice of it.
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
