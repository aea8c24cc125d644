package rag

import (
	"context"
	"iter"
	"maps"
	"net/netip"
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
	mu      sync.Mutex
	given   []*support              // passage n at index n-1; guarded by mu
	said    []*support              // by the user, in this run and before; guarded by mu
	answers map[string]event.Answer // by the checked text; with a status if it is from documents; guarded by mu
}

// of returns a passage's number. A passage with a changed text gets a new one, so that a marker
// keeps its meaning.
func (e *Evidence) of(p Passage) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.given {
		if g := s.passage; g.Collection == p.Collection && g.ID == p.ID && g.Hash == p.Hash {
			return i + 1
		}
	}
	e.given = append(e.given, passageSupport(p))
	return len(e.given)
}

// Said adds the user's message and the chat's history, as models are given them.
func (e *Evidence) Said(message string, history []memory.Message) {
	texts := []string{message}
	for _, m := range history {
		texts = append(texts, m.Content)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, &support{text: strings.Join(texts, "\n\n"), links: true})
}

// scope is the evidence for one text: the passages with some numbers, nil for all, what was said, and more.
func (e *Evidence) scope(only map[int]bool, more ...*support) *scope {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &scope{map[int]*support{}, append(more, e.said...)}
	for i, g := range e.given {
		if only == nil || only[i+1] {
			s.passages[i+1] = g
		}
	}
	return s
}

// Cite returns the citations for the markers of a checked text, and what the check found.
func (e *Evidence) Cite(text string) ([]event.Citation, []event.Flag) {
	citations, flags := e.scope(nil).cite(text), e.answer(text).Flags
	if len(citations) == 0 {
		return nil, flags
	}
	return citations, flags
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
	e.answers[text] = a
}

// Model wraps a model so that its texts are checked while they stream; complete sentences, lines
// and pieces of code are passed on. fromReaders tells which tools' results are answers from
// documents: these are not evidence, the passages are. Results of other delegations support figures
// and quotations, but not addresses.
func (e *Evidence) Model(m loop.Model, delegates bool, fromReaders func(tool string) bool) loop.Model {
	return checkedModel{e, m, delegates, fromReaders}
}

type checkedModel struct {
	*Evidence
	model       loop.Model
	delegates   bool
	fromReaders func(tool string) bool
}

// Generate asks the model, and checks what it says.
func (m checkedModel) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		c := newChecker(m.scope(nil, heard(r, m.fromReaders, !m.delegates, !m.delegates)...))
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

// heard is the further evidence in a request: the results of tools that are not left out, with their addresses if links
// is set; what is recalled, which supports figures and quotations, but not addresses, as these may have come from a
// document; and the history before the task in the same way, if that counts.
func heard(r loop.Request, leftOut func(tool string) bool, history, links bool) []*support {
	_, start := delegation(r.Messages)
	told, results := []string{r.Recalled}, []string(nil)
	for i, m := range r.Messages {
		switch {
		case i < start && history, i >= start && m.Role == memory.RoleTool && m.Name == recall.ToolName:
			told = append(told, m.Content)
		case i >= start && m.Role == memory.RoleTool && !leftOut(m.Name):
			results = append(results, m.Content)
		}
	}
	return []*support{{text: strings.Join(told, "\n\n")}, {text: strings.Join(results, "\n\n"), links: links}}
}

// Work wraps a subagent's work that is not one model with tools, so that all its texts are checked,
// including those that show progress. counted matches the figures that the work itself puts into
// its texts.
func (e *Evidence) Work(w subagent.Work, counted *regexp.Regexp) subagent.Work {
	return func(ctx context.Context, task subagent.Task, emit func(event.Payload) error) (loop.Result, error) {
		given := e.scope(nil, &support{text: task.Text})
		check := func(text string, complete bool) (string, []event.Flag) {
			own := &support{text: strings.Join(counted.FindAllString(text, -1), "\n")}
			c := newChecker(&scope{given.passages, append(slices.Clip(given.supports), own)})
			return c.write(text) + c.close(complete), c.flags
		}
		result, err := w(ctx, task, func(p event.Payload) error {
			if progress, ok := p.(*event.ToolProgress); ok && progress.Detail != "" {
				shown := *progress
				shown.Detail, _ = check(progress.Detail, false)
				p = &shown
			}
			return emit(p)
		})
		if result.Text != "" {
			text, flags := check(result.Text, true)
			e.keep(text, event.Answer{Flags: flags})
			result.Text = text
		}
		return result, err
	}
}

// support is text that an answer may rest on: a passage, or other text. The check reads it once, on first use.
type support struct {
	passage Passage // zero for other text
	text    string
	links   bool // addresses in the text may be repeated

	once      sync.Once
	numbers   number.Set
	terms     map[string]bool // of a passage
	addresses map[string]bool // that an answer may have
	quotable  string          // the text as foldQuote returns it
}

func passageSupport(p Passage) *support {
	return &support{passage: p, text: p.Title + "\n" + p.Source + "\n" + p.Section + "\n" + p.Text}
}

func (s *support) read() *support {
	s.once.Do(func() {
		isPassage := s.passage != (Passage{})
		s.numbers, s.addresses = number.Set{}, map[string]bool{}
		s.numbers.Add(s.text, isPassage)
		f := envelope.Fold(s.text)
		s.quotable = foldQuote(f)
		if isPassage {
			s.terms = termsOf(s.text)
			s.addresses[canonicalAddress(s.passage.Source)] = true
		}
		if s.links {
			for _, at := range addresses(f) {
				s.addresses[canonicalAddress(s.text[f.Start[at[0]]:f.End[at[1]-1]])] = true
			}
		}
	})
	return s
}

// scope is the evidence for one text. It is not changed, so that it may be used concurrently.
type scope struct {
	passages map[int]*support // by number
	supports []*support
}

// termsOf is the set of a text's terms.
func termsOf(text string) map[string]bool {
	terms := map[string]bool{}
	for _, t := range textindex.Terms(text) {
		terms[t] = true
	}
	return terms
}

// known reports whether the run has a passage with a number.
func (s *scope) known(n int) bool { _, had := s.passages[n]; return had }

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
	evidence, known := s.evidence(used(text)), map[string]bool{}
	flag := func(kind, text string) {
		if !known[text] {
			known[text] = true
			flags = append(flags, event.Flag{Kind: kind, Text: text})
		}
	}
	for _, figure := range number.Claims(withoutMarkers(text)) {
		found, stated := false, false
		for _, e := range evidence {
			has, states := e.read().numbers.Has(figure)
			found, stated = found || has, stated || states
		}
		if !found {
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

// quotation matches text in quotation marks of any kind, within a line.
var quotation = regexp.MustCompile(
	`(?:^|[\s(\[*_—–-])"([^\s"][^"\n]*[^\s"])"(?:[^\p{L}\p{N}]|$)|“([^“”"\n]+)[”"]|„([^„“”"\n]+)[“”"]|«([^«»\n]+)»`,
)

// From these sizes on, text in quotation marks is a quotation and not a name or a word.
const (
	quoteWords      = 4
	quoteCharacters = 20
)

// quotations are the quotations in a text, outside of code.
func quotations(text string) []string {
	var list []string
	for line := range strings.SplitSeq(codeSpan.ReplaceAllString(text, "`"), "\n") {
		for _, m := range quotation.FindAllStringSubmatch(line, -1) {
			quote := strings.TrimSpace(withoutMarkers(m[1] + m[2] + m[3] + m[4]))
			if len(strings.Fields(quote)) >= quoteWords || len([]rune(quote)) >= quoteCharacters {
				list = append(list, quote)
			}
		}
	}
	return list
}

// omission matches what stands in a quotation for words that were left out or inserted.
var omission = regexp.MustCompile(`\[[^\]]*\]|\([^)]*removed\)|\.{3,}|…`)

// quoted reports whether every part of a quotation is in one of the texts.
func quoted(quote string, evidence []*support) bool {
	return !slices.ContainsFunc(omission.Split(quote, -1), func(part string) bool {
		part = strings.Trim(foldQuote(envelope.Fold(part)), " .,;:!?-")
		return !slices.ContainsFunc(evidence, func(e *support) bool { return strings.Contains(e.read().quotable, part) }) && part != ""
	})
}

// quoteNoise matches the marks of emphasis and quotation that a quotation may add or lack.
var quoteNoise = regexp.MustCompile("[\"'`*_«»]+")

// foldQuote returns folded text for the search for quotations.
func foldQuote(f envelope.Folding) string {
	text := strings.NewReplacer("–", "-", "—", "-").Replace(quoteNoise.ReplaceAllString(f.Text, ""))
	return strings.Join(strings.Fields(text), " ")
}

// linkRemoved takes the place of an address.
const linkRemoved = "(link removed)"

// linkPatterns match addresses in normalised text (see fold): with any scheme; without one, as
// browsers complete them; and hosts with a path or a query, also when they are written so that they
// are not links.
var linkPatterns = regexp.MustCompile(strings.NewReplacer(
	"REST", `[^\s<>()\[\]"'`+"`"+`]`, "DOT", `(?:\.|\[\.\]|\(\.\)|\[dot\]|\(dot\)|\{\.\})`, "TLD",
	`(?:[a-z]{2,24}|xn--[a-z0-9-]+|p[ф])`,
).Replace(`[a-z][a-z0-9+.-]{1,30}:[/\\]{2}REST+` +
	`|h(?:tt|xx)ps?\s?:[/\\]*REST+` +
	`|(?:java|vb|live)script:REST+` +
	`|(?:\b|[0-9_])(?:ftps?|file|wss?|blob|mailto|view-source|ms-[a-z-]+):REST+` +
	`|\bdata:(?:[a-z]+/REST*|REST*,REST+|;REST+)` +
	`|(?:\b|[0-9_])www(?:\.|\[\.\]|\(\.\))REST+` +
	`|\](?:\(|:)\s*<?(?:[a-z][a-z0-9+.-]*:REST+|[/\\]\s?[/\\]REST*)` +
	`|(?:^|[\s(<"'=|])[/\\]{2}[\p{L}\p{N}-]+(?:DOT[\p{L}\p{N}-]+)+REST*` +
	`|(?:[\p{L}\p{N}_-]+DOT)+TLD(?::\d{1,5})?(?:/REST*|\?REST+)` +
	`|\b\d{1,3}(?:DOT\d{1,3}){3}(?::\d{1,5})?[/?][a-z?]REST*`))

// fileName matches a file's name that looks like a host. None of these endings is a top-level
// domain.
var fileName = regexp.MustCompile(
	`^[^/?#:]*\.(?:js|mjs|ts|tsx|jsx|json|ya?ml|txt|toml|xml|csv|tsv|pdf|docx?|xlsx|html?|css|cpp|go|exe|conf|cfg|ini|log|lock|mod|sum|sql|ipynb|gz|jar)/`,
)

// addressTail are characters that may follow an address without being part of it.
const addressTail = ".,;:!?*_~|…»”’\\"

// addresses are the places of the addresses in a normalised text.
func addresses(f envelope.Folding) [][2]int {
	var list [][2]int
	if !strings.ContainsAny(f.Text, `:/\?`) && !strings.Contains(f.Text, "www") {
		return nil
	}
	for _, m := range linkPatterns.FindAllStringIndex(f.Text, -1) {
		start := m[0] + len(f.Text[m[0]:m[1]]) - len(strings.TrimLeft(f.Text[m[0]:m[1]], "](: \t\n<\"'=|"))
		found := f.Text[start:m[1]]
		if fileName.MatchString(found) || private(found) {
			continue
		}
		list = append(list, [2]int{start, m[1]})
	}
	return list
}

// private reports whether an address without a scheme is on this machine or its own network, so
// that nothing can leak to it.
func private(address string) bool {
	host := address[:len(address)-len(strings.TrimLeft(address, "0123456789."))]
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsPrivate())
}

// links returns the changes that remove the addresses which are not allowed. The whole address has to be known: one that
// a longer address begins with allows nothing.
func (c *checker) links(text string, f envelope.Folding) (changes []envelope.Change) {
	for _, at := range addresses(f) {
		start, end := f.Start[at[0]], f.End[at[1]-1]
		found := text[start:end]
		if c.scope.allowed(found) {
			continue
		}
		end = start + len(strings.TrimRight(found, ".,;:!?*|"))
		by := linkRemoved
		if strings.HasSuffix(text[:start], "]") { // a Markdown link would need the parenthesis here
			by = " " + by
		}
		c.flag(RemovedLink, text[start:end])
		changes = append(changes, envelope.Change{Start: start, End: end, By: by})
	}
	return changes
}

// canonicalAddress removes what does not make an address a different one.
func canonicalAddress(address string) string {
	return strings.TrimSuffix(strings.TrimRight(address, addressTail), "/")
}
