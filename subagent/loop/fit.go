package loop

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"mneme/memory"
)

// kept is what remains of a budget's messages when some must go. The front of a
// prompt then stays as it is until the rest is full again, so that vendors' prompt
// caches hit.
const retainedShare = 0.6

// leastPart is the least that is left of a message that is cut, in tokens.
const leastPart = 64

// prompt is a request with the estimates of its parts.
type prompt struct {
	messages []memory.Message
	fixed    int   // tokens of the system prompt, the tools, what is recalled and images
	content  []int // tokens of each message's text
	rest     []int // tokens of what else a message has, which cannot be cut
}

func newPrompt(r Request) *prompt {
	p := &prompt{messages: r.Messages, content: make([]int, len(r.Messages)), rest: make([]int, len(r.Messages))}
	p.fixed = r.sizes.tokens(r.System) + r.sizes.tokens(r.Recalled) + r.Images.tokens()
	for _, t := range r.Tools {
		p.fixed += r.sizes.tokens(t.Name) + r.sizes.tokens(t.Description) + r.sizes.tokens(string(t.Parameters))
	}
	for i, m := range r.Messages {
		text := m.Content
		m.Content = ""
		p.content[i], p.rest[i] = r.sizes.tokens(text), m.Tokens()
	}
	return p
}

// size is the whole prompt's, in tokens.
func (p *prompt) size() int {
	n := p.fixed
	for i := range p.messages {
		n += p.content[i] + p.rest[i]
	}
	return n
}

// fit gives the messages that fit a budget, and the prompt's size with them, in
// tokens.
//
// It replays how the messages came: whenever one more is too much, whole exchanges
// leave from the front until 60 % of the budget are used. The outcome hangs on the
// messages alone, and what was once cut stays cut in the same place as more follow.
// A message that does not fit alone is cut in its middle; so are, to one length, the
// longest of the last exchange when that does not fit: it never leaves, and no call
// loses its result.
func (p *prompt) fit(budget int) ([]memory.Message, int) {
	if size := p.size(); size <= budget {
		return p.messages, size
	}
	room := max(budget-p.fixed, minPrompt)
	low := int(retainedShare * float64(room))
	length := slices.Clone(p.content) // of each message's text, as it is shown
	start, total := 0, 0
	for i := range p.messages {
		if length[i]+p.rest[i] > room {
			length[i] = min(length[i], max(low-p.rest[i], leastPart))
		}
		if total += length[i] + p.rest[i]; total <= room {
			continue
		}
		for total > low {
			next := p.nextUser(start + 1)
			if next > i {
				break
			}
			for ; start < next; start++ {
				total -= length[start] + p.rest[start]
			}
		}
		if total > room {
			total = p.level(length, start, i, low)
		}
	}
	out := slices.Clone(p.messages[start:])
	for i := range out {
		if n := length[start+i]; n < p.content[start+i] {
			out[i].Content = cutMiddle(out[i].Content, p.content[start+i], n)
		}
	}
	return out, p.fixed + total
}

// nextUser is the index of the first user message at or after i, or their number.
func (p *prompt) nextUser(i int) int {
	for i < len(p.messages) && p.messages[i].Role != memory.RoleUser {
		i++
	}
	return i
}

// level shortens the longest texts from start to end, all to one length, so that
// the messages fit into room, and gives what they have then.
func (p *prompt) level(length []int, start, end, room int) (total int) {
	texts := slices.Sorted(slices.Values(length[start : end+1]))
	for _, n := range p.rest[start : end+1] {
		room -= n
		total += n
	}
	most := leastPart
	for i, n := range texts {
		share := room / (len(texts) - i) // of those that are not shorter than n
		if n > share {
			most = max(share, leastPart)
			break
		}
		room -= n
		most = n
	}
	for i := start; i <= end; i++ {
		length[i] = min(length[i], most)
		total += length[i]
	}
	return total
}

// cutMiddle shortens a text of has tokens to about want, and says in its middle how
// much is missing. Of what is left three fifths are its beginning.
func cutMiddle(text string, has, want int) string {
	for keep := len(text) / max(has, 1) * want; ; keep = keep * 9 / 10 {
		head := len(memory.Shorten(text, keep*3/5))
		tail := max(head, len(memory.Shorten(text, len(text)-keep*2/5)))
		mark := fmt.Sprintf("\n… (cut: %d characters) …\n", utf8.RuneCountInString(text[head:tail]))
		short := strings.TrimRight(text[:head], " \n") + mark + strings.TrimLeft(text[tail:], " \n")
		if keep == 0 || memory.Tokens(short) <= want {
			return short
		}
	}
}
