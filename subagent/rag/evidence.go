package rag

import (
	"context"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"mneme/memory"
	"mneme/memory/envelope"
	"mneme/memory/event"
	"mneme/memory/number"
	"mneme/memory/textindex"
	"mneme/subagent"
	"mneme/subagent/loop"
	"mneme/subagent/recall"
)

// Evidence is the table of what the texts of one run are checked against, whichever agent writes them: the passages that
// models of the run were given, by number, and what the user and the chat's history say. A passage keeps its number for
// the whole run, whichever subagent finds it. The zero value is ready for use. Safe for concurrent use.
type Evidence struct {
	mu       sync.Mutex
	passages []*support              // passage n at index n-1; guarded by mu
	messages []*support              // of the user, with the chat's history; guarded by mu
	answers  map[string]event.Answer // by the checked text; with a status if it is from documents; guarded by mu
}

// number returns a passage's number. A passage with a changed text gets a new one, so that a marker
// keeps its meaning.
func (e *Evidence) number(p Passage) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.passages {
		if g := s.passage; g.Collection == p.Collection && g.ID == p.ID && g.Hash == p.Hash {
			return i + 1
		}
	}
	e.passages = append(e.passages, passageSupport(p))
	return len(e.passages)
}

// AddMessages adds the user's message and the chat's history, as models are given them.
func (e *Evidence) AddMessages(message string, history []memory.Message) {
	texts := []string{message}
	for _, m := range history {
		texts = append(texts, m.Content)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages = append(e.messages, &support{text: strings.Join(texts, "\n\n"), links: true})
}

// scope returns the evidence for one text: the passages with some numbers, nil for all, the messages, and more.
func (e *Evidence) scope(only map[int]bool, extra ...*support) *scope {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &scope{map[int]*support{}, append(extra, e.messages...)}
	for i, g := range e.passages {
		if only == nil || only[i+1] {
			s.passages[i+1] = g
		}
	}
	return s
}

// Cite returns the citations for the markers of a checked text, and what the check found.
func (e *Evidence) Cite(text string) ([]event.Citation, []event.Flag) {
	return e.scope(nil).cite(text), e.answer(text).Flags
}

// answer returns what the check found in a text.
func (e *Evidence) answer(text string) event.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answers[text]
}

// keep stores what the check found in a text.
func (e *Evidence) keep(text string, a event.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[string]event.Answer{}
	}
	if a.Status != "" || e.answers[text].Status == "" { // another agent may repeat an answer from documents
		e.answers[text] = a
	}
}

// Model wraps a model so that its texts are checked while they stream. It passes on complete sentences, lines and pieces
// of code. fromReaders reports whether a tool answers from documents. Such an answer is no evidence, its passages are.
// Results of other delegations support figures and quotations, but not addresses.
func (e *Evidence) Model(m loop.Model, delegates bool, fromReaders func(tool string) bool) loop.Model {
	return checkedModel{e, m, delegates, fromReaders}
}

type checkedModel struct {
	*Evidence
	model       loop.Model
	delegates   bool
	fromReaders func(tool string) bool
}

// Generate asks the model and checks its text.
func (m checkedModel) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		c := newChecker(m.scope(nil, requestEvidence(r, m.fromReaders, !m.delegates, !m.delegates)...))
		calls := false
		for delta, err := range m.model.Generate(ctx, r) {
			if err != nil {
				// What was written before the error counts as far as it goes.
				if rest := c.close(false); rest == "" || ctx.Err() != nil || yield(loop.Delta{Text: rest}, nil) {
					yield(loop.Delta{}, err)
				}
				return
			}
			calls = calls || len(delta.Calls) > 0
			delta.Text = c.write(delta.Text)
			if delta.Text == "" && len(delta.Calls) == 0 && delta.Usage == (event.Usage{}) {
				continue
			}
			if !yield(delta, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if rest := c.close(!calls); rest != "" && !yield(loop.Delta{Text: rest}, nil) {
			return
		}
		m.keep(c.out.String(), event.Answer{Flags: c.flags})
	}
}

// requestEvidence returns the other evidence in a request: the results of tools that are not left out, with their addresses if links
// is set; what is recalled, which supports figures and quotations, but not addresses, as these may have come from a
// document; and the history before the task in the same way, if that counts.
func requestEvidence(r loop.Request, leftOut func(tool string) bool, history, links bool) []*support {
	_, start := delegation(r.Messages)
	recalled, results := []string{r.Recalled}, []string(nil)
	for i, m := range r.Messages {
		switch {
		case i < start && history, i >= start && m.Role == memory.RoleTool && m.Name == recall.ToolName:
			recalled = append(recalled, m.Content)
		case i >= start && m.Role == memory.RoleTool && !leftOut(m.Name):
			results = append(results, m.Content)
		}
	}
	return []*support{{text: strings.Join(recalled, "\n\n")}, {text: strings.Join(results, "\n\n"), links: links}}
}

// Work wraps a subagent's work that is not one model with tools, so that all its texts are checked,
// including those that show progress. counted matches the figures that the work itself puts into
// its texts.
func (e *Evidence) Work(w subagent.Work, counted *regexp.Regexp) subagent.Work {
	return func(ctx context.Context, task subagent.Task, emit func(event.Payload) error) (loop.Result, error) {
		check := func(text string, complete bool) string {
			own := &support{text: strings.Join(counted.FindAllString(text, -1), "\n")}
			c := newChecker(e.scope(nil, &support{text: task.Text}, own))
			text = c.write(text) + c.close(complete)
			e.keep(text, event.Answer{Flags: c.flags})
			return text
		}
		result, err := w(ctx, task, func(p event.Payload) error {
			if progress, ok := p.(*event.ToolProgress); ok && progress.Detail != "" {
				checked := *progress
				checked.Detail = check(progress.Detail, false)
				p = &checked
			}
			return emit(p)
		})
		if result.Text != "" {
			result.Text = check(result.Text, true)
		}
		return result, err
	}
}

// support is text that an answer may rest on: a passage, or other text. The check reads it once, on first use.
type support struct {
	passage Passage // zero for other text
	text    string
	links   bool // addresses in the text may be repeated

	readOnce  sync.Once
	numbers   number.Set
	terms     map[string]bool // of a passage
	addresses map[string]bool // that an answer may have
	quotable  string          // the text as foldQuote returns it
}

func passageSupport(p Passage) *support {
	return &support{passage: p, text: p.Title + "\n" + p.Source + "\n" + p.Section + "\n" + p.Text}
}

// read computes the other fields.
func (s *support) read() *support {
	s.readOnce.Do(func() {
		isPassage := s.passage.Text != ""
		s.numbers, s.addresses = number.Set{}, map[string]bool{}
		s.numbers.Add(s.text, isPassage)
		f := envelope.Fold(s.text)
		s.quotable = foldQuote(f)
		if isPassage {
			s.terms = termsOf(s.text)
			s.addresses[canonicalAddress(s.passage.Source)] = true
		}
		if s.links {
			for _, loc := range addresses(f) {
				s.addresses[canonicalAddress(s.text[f.Start[loc[0]]:f.End[loc[1]-1]])] = true
			}
		}
	})
	return s
}

// scope is the evidence for one text. It does not change, so it is safe for concurrent use.
type scope struct {
	passages map[int]*support // by number
	supports []*support
}

// termsOf returns the terms of a text.
func termsOf(text string) map[string]bool { return textindex.SetOf(textindex.Terms(text)) }

// has reports whether the run has a passage with a number.
func (s *scope) has(n int) bool { _, had := s.passages[n]; return had }

// allowed reports whether an address may be shown: it is a passage's source, or was named by the user, the history or a
// tool.
func (s *scope) allowed(address string) bool {
	address = canonicalAddress(address)
	return slices.ContainsFunc(s.evidence(nil), func(e *support) bool { return e.read().addresses[address] })
}

// evidence returns the passages with some numbers or, if there are none, all, and the other texts.
func (s *scope) evidence(cited map[int][]string) []*support {
	list := slices.Clone(s.supports)
	for n, p := range s.passages {
		if cited[n] != nil {
			list = append(list, p)
		}
	}
	if len(list) == len(s.supports) {
		list = slices.AppendSeq(list, maps.Values(s.passages))
	}
	return list
}

// unsupported returns the figures and quotations of a text that are neither in the passages that it rests on nor in other
// evidence, and the denials of figures that a passage states.
func (s *scope) unsupported(text string) (flags []event.Flag) {
	evidence, flagged := s.evidence(sentencesByPassage(text)), map[string]bool{}
	flag := func(kind, text string) {
		if !flagged[text] {
			flagged[text] = true
			flags = append(flags, event.Flag{Kind: kind, Text: text})
		}
	}
	for _, figure := range number.Claims(withoutMarkers(text)) {
		present, stated := false, false
		for _, e := range evidence {
			has, states := e.read().numbers.Has(figure)
			present, stated = present || has, stated || states
		}
		if !present {
			flag(Unverified, figure.Text)
		} else if stated && figure.Denial != "" {
			flag(Unverified, figure.Denial)
		}
	}
	for _, quote := range quotations(text) {
		if !quoted(quote, evidence) {
			flag(BadQuote, quote)
		}
	}
	return flags
}
