package rag

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxPassage is the length of a passage in characters: about what answers one
// question, so that five of them fit any model.
const maxPassage = 800

// passage is a piece of a document that can be found and cited.
type passage struct {
	id      string // document#ordinal, counted from 1
	doc     string // path below the folder, with slashes
	title   string // of the document
	section string // headings above the passage: "A > B"
	text    string
}

// heading is an ATX heading of Markdown.
var heading = regexp.MustCompile(`^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$`)

// splitter cuts one document into passages: whole paragraphs of one section as
// long as they fit, a longer paragraph at the ends of its sentences.
type splitter struct {
	doc       string
	title     string
	headings  [6]string // the current heading of each level, "" for none
	paragraph []string  // lines
	text      string    // of the passage being filled
	passages  []passage
}

// split cuts cleaned text. Only Markdown has headings and fenced blocks; the
// first top heading is the title, without one it is the file's name.
func split(doc, text string, markdown bool) []passage {
	s := splitter{doc: doc}
	fence := ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if markdown && (fence == "" || strings.HasPrefix(trimmed, fence)) {
			mark := trimmed[:min(3, len(trimmed))]
			switch {
			case fence != "":
				fence = ""
			case mark == "```" || mark == "~~~":
				fence = mark
			}
		}
		if h := heading.FindStringSubmatch(line); markdown && fence == "" && h != nil {
			s.open(len(h[1]), h[2])
			continue
		}
		if trimmed == "" && fence == "" {
			s.endParagraph()
			continue
		}
		s.paragraph = append(s.paragraph, strings.TrimRight(line, " \t"))
	}
	s.endPassage()
	if s.title == "" {
		name := strings.TrimSuffix(path.Base(doc), path.Ext(doc))
		s.title = strings.NewReplacer("_", " ", "-", " ").Replace(name)
	}
	for i := range s.passages {
		s.passages[i].title = s.title
	}
	return s.passages
}

// open starts the section under a heading.
func (s *splitter) open(level int, name string) {
	s.endPassage()
	if level == 1 && s.title == "" {
		s.title = name
	}
	s.headings[level-1] = name
	clear(s.headings[level:])
}

func (s *splitter) endParagraph() {
	text := strings.TrimSpace(strings.Join(s.paragraph, "\n"))
	s.paragraph = s.paragraph[:0]
	for text != "" {
		piece := text[:cut(text, maxPassage)]
		text = strings.TrimSpace(text[len(piece):])
		if s.text != "" && runes(s.text)+len("\n\n")+runes(piece) > maxPassage {
			s.flush()
		}
		if s.text != "" {
			s.text += "\n\n"
		}
		s.text += strings.TrimSpace(piece)
	}
}

func (s *splitter) endPassage() {
	s.endParagraph()
	s.flush()
}

func (s *splitter) flush() {
	if s.text == "" {
		return
	}
	var section []string
	for _, h := range s.headings {
		if h != "" {
			section = append(section, h)
		}
	}
	s.passages = append(s.passages, passage{
		id:      s.doc + "#" + strconv.Itoa(len(s.passages)+1),
		doc:     s.doc,
		section: strings.Join(section, " > "),
		text:    s.text,
	})
	s.text = ""
}

func runes(s string) int { return len([]rune(s)) }

// cut is where to divide text so that the first part has at most limit
// characters: behind the last line or sentence in its second half, else between
// words, else inside one. It is len(text) if all of it fits.
func cut(text string, limit int) int {
	count, sentence, word := 0, 0, 0
	var before rune
	for i, r := range text {
		if unicode.IsSpace(r) && i > 0 {
			word = i
			if (r == '\n' || strings.ContainsRune(".!?…。", before)) && count > limit/2 {
				sentence = i
			}
		}
		if count == limit {
			switch {
			case sentence > 0:
				return sentence
			case word > 0:
				return word
			}
			return i
		}
		before = r
		count++
	}
	return len(text)
}

// clean gives text with line feeds and tabs as its only control characters, and
// without the invisible characters that could hide or reorder what a reader
// sees. The joiners stay: scripts and emoji are spelled with them.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d':
			return r
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.In(r, unicode.Cc, unicode.Cf):
			return -1
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// cleanName does the same for a file's name, which is one line.
func cleanName(name string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(strings.ToValidUTF8(name, "\ufffd")))
}
