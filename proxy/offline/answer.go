package offline

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// utterance is a text of the user. at is the day of a note, or the day, time and zone of a recalled message.
type utterance struct{ text, timestamp string }

// transcript reads a request. It returns the user's texts, oldest first and the request last, and the results of the
// calls made for it. Recalled messages and the notes of the system prompt are older than the messages. Text after tool
// results in one message is a new request, because some clients merge messages of one role.
func transcript(req *wire.Request) (texts []utterance, results []wire.Block) {
	var recalled, notes []utterance
	for _, m := range req.Messages {
		text := ""
		for _, b := range m.Content {
			if b.Type == wire.ToolResultBlock {
				results = append(results, b)
			} else if b.Type == wire.TextBlock && m.Role == wire.RoleUser {
				text += b.Text + "\n"
			}
		}
		if strings.TrimSpace(text) != "" {
			text, recalled = cutRecalled(text[:min(len(text), maxText)])
			texts, results = append(texts, utterance{text: strings.TrimSpace(strings.ToValidUTF8(text, ""))}), nil
		}
	}
	for _, b := range req.System {
		for _, m := range patterns["note"]().FindAllStringSubmatch(b.Text, -1) {
			notes = append(notes, utterance{gjson.Parse(m[2]).Str, m[1]})
		}
	}
	slices.Reverse(notes)                                                  // the newest note is the first one
	return slices.Concat([]utterance{{}}, recalled, notes, texts), results // an empty text if there is no other
}

// cutRecalled cuts the block of recalled messages off a text. It returns what the user says in the block.
func cutRecalled(text string) (rest string, list []utterance) {
	intro, block, _ := strings.Cut(text, `<recalled nonce="`)
	nonce, block, _ := strings.Cut(block, "\">\n")
	block, rest, closed := strings.Cut(block, "\n</recalled nonce=\""+nonce+`">`)
	if !closed {
		return text, nil
	}
	_, zone, _ := strings.Cut(intro, "Times are ")
	zone, _, _ = strings.Cut(zone, ".")
	timestamp := ""
	for _, m := range patterns["recalled"]().FindAllStringSubmatch(block, -1) {
		timestamp = cmp.Or(m[1], timestamp)
		if m[2] == wire.RoleUser || m[1] != "" && !match("role", m[2]) { // a name, right after the heading
			list = append(list, utterance{m[3], timestamp + " " + zone})
		}
	}
	return rest, list
}

// step is one thing that a message says. text is the sentence without its lead, quote is the whole sentence, agent is
// the subagent that it is for, and reply is the answer if it needs nothing else. A call has the form "use NAME {json}".
// A fragment is a statement only after another one.
type step struct {
	text, quote, agent, reply           string
	statement, question, call, fragment bool
}

// run answers one request, as master or as subagent. It repeats the whole request each time: the calls that have a
// result return it, and the first call without one is pending.
type run struct {
	tools, agents []wire.Tool  // a subagent has no agents
	results       []wire.Block // of calls, not yet used
	facts         facts
	last, task    string // the subagent that was addressed last, and what it was told last
	pending       *wire.Block
	out           []string
}

// decide returns the answer to a request: a text or a tool call.
func decide(req *wire.Request) wire.Block {
	texts, results := transcript(req)
	request := texts[len(texts)-1].text
	if title := find("pageTask", request); title != nil && len(req.Tools) == 0 {
		return wire.Block{Type: wire.TextBlock, Text: replace("longTitle", title[1], "$1…")}
	}
	r := &run{results: results}
	if req.ToolChoice == nil || req.ToolChoice.Type != "none" {
		r.tools = req.Tools
	}
	r.agents = slices.DeleteFunc(slices.Clone(r.tools), func(t wire.Tool) bool { return !isAgent(t) })
	for i, u := range texts {
		for _, st := range r.read(u.text) {
			if st.statement {
				r.facts.learn(st, u.timestamp)
			}
			if i == len(texts)-1 && r.pending == nil {
				r.perform(st, request)
			}
		}
	}
	if r.pending != nil {
		return *r.pending
	}
	return wire.Block{Type: wire.TextBlock, Text: cmp.Or(strings.Join(r.out, " "), say(request, "unknown"))}
}

// read returns the steps of a message. Of a long text they are its prose and a question at its end.
func (r *run) read(text string) (steps []step) {
	list := sentences(text)
	if len(list) > 10 || strings.Contains(text, "```") {
		list = prose(text)
		steps = []step{{statement: true, text: strings.Join(list, "\x00"), reply: say(text, "longText")}}
		list = slices.DeleteFunc(list, func(s string) bool { return s != list[len(list)-1] || !match("questionMark", s) })
	}
	for _, line := range list {
		for _, part := range strings.SplitN(replace("joint", line, "\x00$1"), "\x00", maxParts) {
			if st, ok := r.address(part); ok {
				steps = append(steps, st)
			} else if m := find("both", part); m != nil && asks(part) && classify(m[1]).statement {
				steps = append(steps, classify(m[1]), classify(m[2]))
			} else {
				steps = append(steps, classify(part))
			}
		}
	}
	return steps
}

// agent returns the name of the first subagent that one of the words means, also in Cyrillic and with an ending.
func (r *run) agent(words ...string) string {
	for _, a := range r.agents {
		for _, w := range words {
			if strings.EqualFold(w, a.Name) || strings.HasPrefix(strings.ToLower(w), cyrillic.Replace(a.Name)) {
				return a.Name
			}
		}
	}
	return ""
}

var keeper, reader = []string{"remember", "recall", "запомина", "помнит"}, []string{"document", "документ"}

// like returns the first subagent that mentions one of the words, or the first subagent.
func (r *run) like(words ...string) string {
	i := slices.IndexFunc(r.agents, func(a wire.Tool) bool {
		text := strings.ToLower(a.Name + " " + a.Description)
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	})
	return r.agents[max(i, 0)].Name
}

// address returns a step for the subagent that a part of a sentence addresses. A question without an object asks for
// what the user told the subagent last.
func (r *run) address(part string) (st step, ok bool) {
	m := find("address", replace("filler", part, ""))
	if m == nil || len(r.agents) == 0 {
		return st, false
	}
	verb, pronoun, prefix, generic, suffix, plain, rest := m[1], m[2], m[3]+m[7], m[4]+m[6], m[5], m[8], m[9]
	asking := match("asking", verb)
	st.agent = r.agent(suffix, prefix, plain)
	switch {
	case pronoun != "":
		st.agent = r.last
	case generic != "":
		rest = strings.TrimPrefix(suffix, r.agent(suffix)) + " " + rest
		if st.agent == "" && prefix != "" {
			return step{reply: say(part, "noAgent", prefix)}, true
		}
	case st.agent == "":
		return st, false
	}
	rest = cmp.Or(bare(replace("restLead", strings.TrimSpace(rest), "")), r.task)
	if asking && !match("order", rest) && !match("lead", rest) && !match("sum", rest) {
		rest = replace("inverted", rest, "$1 $3 $2") + "?"
	}
	if st.statement = classify(rest).statement; st.statement {
		r.task = rest
	}
	r.last = cmp.Or(st.agent, r.like(keeper...))
	st.agent, st.text = r.last, rest
	return st, true
}

// asks reports whether a sentence asks something, with or without a question mark.
func asks(s string) bool {
	return match("questionMark", s) || match("question", s) || match("asked", bare(s))
}

// classify returns the step of a sentence. A statement must have the form of one: the model keeps no possible question.
func classify(text string) step {
	quote := strings.TrimSpace(text)
	if match("helloWanted", quote) {
		return step{reply: say(text, "hello")}
	}
	s := replace("lead", replace("filler", replace("trailer", quote, ""), ""), "")
	isStatement := match("tellsEN", s+" ") || languageOf(s) == 1 && match("tellsRU", s)
	fragment := match("pronoun", s) || match("correction", quote) && match("value", s)
	using, sum, topics := find("using", quote), find("sum", s), len(newFact(s).keys)
	forgotten := find("forgotten", s)
	switch {
	case forgotten != nil && using == nil:
		words := strings.Fields(forgotten[1])
		if i := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") }); i >= 0 {
			words = words[i:] // "my PIN 4711"
		}
		raw, _ := json.Marshal(strings.Join(words, " ")) // a string
		return step{call: true, text: `use forget {"text":` + string(raw) + `}`}
	case using != nil && json.Valid([]byte(using[2])):
		return step{call: true, text: quote}
	case sum != nil:
		return step{call: true, text: `use calculator {"expression":"` + sum[1] + `"}`}
	case match("listed", quote):
		return step{question: true, text: quote}
	case topics == 0, len(s) > 500, match("layout", quote), match("smallTalk", quote):
	case asks(s) && (!match("yours", s) || match("mine", s)), (!isStatement || topics == 1) && match("matter", bare(s)):
		return step{question: true, text: s}
	case asks(s), userName(s) == "" && (match("order", s) || match("yours", s)):
	case isStatement, fragment, userName(s) != "":
		return step{statement: true, text: s, quote: quote, fragment: !isStatement}
	}
	return step{}
}

// has reports whether the agent may call a tool.
func (r *run) has(tool string) bool {
	return slices.ContainsFunc(r.tools, func(t wire.Tool) bool { return t.Name == tool })
}

// source returns the tool or subagent that answers a step, with its input. It returns "" if there is none.
func (r *run) source(st step) (name string, input any) {
	using, master := find("using", st.text), len(r.agents) > 0
	own := match("own", st.text) && !match("howTo", st.text)
	task := map[string]string{"task": sentence(st.text)}
	switch {
	case st.reply != "":
	case st.agent != "":
		return st.agent, task
	case st.statement && master && r.has("remember"):
		return "remember", map[string]string{"quote": st.quote}
	case st.call && r.has(using[1]):
		return using[1], json.RawMessage(using[2])
	case st.call && master:
		return r.like(using[1]), task
	case st.question && master && own:
		return r.like(keeper...), task
	case st.question && master:
		return r.like(reader...), task
	case st.question && !own && r.has("search_documents"):
		return "search_documents", map[string]string{"query": st.text}
	}
	return "", nil
}

// perform answers a step, or leaves a call pending. A statement is noted by the tool remember of a master. A subagent
// does not note, because its tasks are not the user's words.
func (r *run) perform(st step, request string) {
	q := newFact(st.text)
	if st.question && st.agent == "" {
		for _, f := range r.facts.answer(q) {
			st.reply = strings.TrimSpace(st.reply + " " + f.reply(request))
		}
	}
	source, input := r.source(st)
	result, failure := r.do(source, input)
	switch {
	case st.reply != "":
		result = st.reply
	case failure != "":
		result = say(request, "failed", source, failure)
	case st.statement && st.agent == "":
		// Any result but "Noted…" is only a proposal.
		result = say(request, map[bool]string{true: "noted", false: "understood"}[strings.HasPrefix(result, "Noted")],
			cmp.Or(turned(q.text, request), say(request, "quoted", q.text)))
	case source == "search_documents":
		result = cmp.Or(cite(q, result), say(st.text, "unknown"))
	case source == "" || st.agent == "" && match("ignorant", result):
		result = say(request, "unknown")
	}
	r.out = slices.Compact(append(r.out, result))
}

// do returns the result of a call, or why it failed. Without a result it makes the call pending.
func (r *run) do(source string, input any) (result, failure string) {
	if source == "" {
		return "", ""
	} else if len(r.results) == 0 {
		raw, _ := json.Marshal(input) // input is a map of strings, or valid JSON
		r.pending = &wire.Block{Type: wire.ToolUseBlock, Name: source, Input: raw}
		return "", ""
	}
	block := r.results[0]
	r.results = r.results[1:]
	for _, c := range block.Content {
		result += c.Text
	}
	if match("failure", result) || block.IsError || result == "" {
		return "", cmp.Or(strings.Trim(replace("failure", result, ""), " .:)"), "…")
	}
	return replace("outside", result, "$1"), ""
}

// cite quotes the sentence of the passages that answers a question best, with the number of its passage. It returns ""
// if no sentence is good enough: a sentence must have half of the question's topics. Together with the headings above
// it, it must have all of them but one of four. A heading does not count for the first topic of a how-to question: under
// "Installing", "To remove it, run …" does not tell how to install.
func cite(q fact, result string) (best string) {
	most, how := 0.0, match("howTo", q.text)
	for i, p := range gjson.Get(result, "passages").Array() {
		for _, s := range prose(replace("envelope", p.Get("text").Str, "")) {
			f, context := newFact(s), newFact(p.Get("title").Str+". "+p.Get("section").Str)
			direct, near, total := 0, 0, len(q.keys)
			for k := range q.keys {
				if f.position(k) > 0 {
					direct++
				} else if context.position(k) > 0 && !(how && k == q.subject) || match("optional", k) {
					near++
				}
			}
			score := float64(10*direct+near)/float64(total) - float64(i)/2
			if 2*direct >= total && direct+near >= total-total/4 && f.fits(q) && score > most {
				best, most = s+" ["+p.Get("n").Raw+"] ("+cmp.Or(p.Get("source").Str, p.Get("title").Str)+")", score
			}
		}
	}
	return best
}
