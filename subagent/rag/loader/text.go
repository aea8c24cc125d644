package loader

import "strings"

// readText reads plain text: paragraphs, and nothing else is known of it.
func readText(b *builder, f file) error {
	text, err := decode(f.data, f.charset())
	if err != nil {
		return err
	}
	if b.room(0) {
		b.paragraph(squeeze(text))
	}
	return nil
}

// squeeze leaves one blank line where there are more.
func squeeze(text string) string {
	var out strings.Builder
	blank := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			blank++
			continue
		}
		if blank > 0 && out.Len() > 0 {
			out.WriteByte('\n')
		}
		blank = 0
		out.WriteString(line)
	}
	return out.String()
}
