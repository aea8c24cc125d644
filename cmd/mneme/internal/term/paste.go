package term

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	maxPaste   = 4 << 20 // bytes; what is longer is cut, and is far above what a message may have
	maxInline  = 1000    // bytes of a pasted text that is shown; a longer one has a short name
)

// A line editor has one line: what would end or shift it is shown by these.
var (
	toSymbols   = strings.NewReplacer("\r\n", "␤", "\r", "␤", "\n", "␤", "\t", "␉")
	fromSymbols = strings.NewReplacer("␤", "\n", "␉", "\t")
)

// pastes puts texts that are pasted into one line, and takes them out again.
type pastes struct {
	mu    sync.Mutex
	long  []string // guarded by mu; the texts that are shown by a name
	names []string // guarded by mu
}

// filter copies keys from in to out, with every pasted text in the form of a line.
// It ends with in.
func (p *pastes) filter(out io.WriteCloser, in io.Reader) {
	defer out.Close()
	var held []byte   // not yet written: perhaps the beginning of a mark
	var pasted []byte // the text between two marks
	inside := false
	chunk := make([]byte, 4096)
	for {
		n, err := in.Read(chunk)
		held = append(held, chunk[:n]...)
		for {
			mark := pasteBegin
			if inside {
				mark = pasteEnd
			}
			at := bytes.Index(held, []byte(mark))
			if at < 0 {
				break
			}
			if inside {
				pasted = append(pasted, held[:at]...)
				_, _ = io.WriteString(out, p.line(pasted))
				pasted = nil
			} else {
				_, _ = out.Write(held[:at])
			}
			held, inside = held[at+len(mark):], !inside
		}
		free := len(held) - overlap(held, inside)
		if inside {
			pasted = append(pasted, held[:min(free, max(0, maxPaste-len(pasted)))]...)
		} else {
			_, _ = out.Write(held[:free])
		}
		held = append([]byte(nil), held[free:]...)
		if err != nil {
			return
		}
	}
}

// overlap is how many bytes at the end of b may be the beginning of a mark.
func overlap(b []byte, inside bool) int {
	mark := pasteBegin
	if inside {
		mark = pasteEnd
	}
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, []byte(mark[:n])) {
			return n
		}
	}
	return 0
}

// line is a pasted text as a part of a line: itself, or a name for a long one.
func (p *pastes) line(pasted []byte) string {
	text := strings.ToValidUTF8(string(pasted), "")
	text = strings.TrimRight(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	text = Clean(text)
	if len(text) <= maxInline {
		return toSymbols.Replace(text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("[pasted text %d: %d characters]", len(p.long)+1, utf8.RuneCountInString(text))
	p.long, p.names = append(p.long, text), append(p.names, name)
	return name
}

// expand gives the text that a line stands for.
func (p *pastes) expand(line string) string {
	line = fromSymbols.Replace(line)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, name := range p.names {
		line = strings.ReplaceAll(line, name, p.long[i])
	}
	return line
}

// collapse is the reverse of expand.
func (p *pastes) collapse(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, long := range p.long {
		text = strings.ReplaceAll(text, long, p.names[i])
	}
	return toSymbols.Replace(text)
}
