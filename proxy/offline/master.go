package offline

import (
	"fmt"
	"slices"
	"strings"
)

// decide answers a request by the role that its tools show.
func decide(req *request) reply {
	tools := req.usableTools()
	turn := lastTurn(req.Messages)
	var delegates []tool
	for _, t := range tools {
		if t.delegates() {
			delegates = append(delegates, t)
		}
	}
	if len(delegates) > 0 || turn.delegated(req.Tools) {
		return delegate(req, turn, delegates)
	}
	return respond(turn, req, tools)
}

// usableTools are the tools that tool_choice leaves.
func (r *request) usableTools() []tool {
	if r.ToolChoice == nil {
		return r.Tools
	}
	switch r.ToolChoice.Type {
	case "none":
		return nil
	case "tool":
		for _, t := range r.Tools {
			if t.Name == r.ToolChoice.Name {
				return []tool{t}
			}
		}
	}
	return r.Tools
}

// delegates says whether t stands for an agent.
func (t tool) delegates() bool {
	p, ok := t.InputSchema.Properties["task"]
	return ok && p.Type == "string" && slices.Equal(t.InputSchema.Required, []string{"task"})
}

// onlyString is the name of the single required string property of t, "" when there is none such.
func (t tool) onlyString() string {
	if len(t.InputSchema.Required) != 1 {
		return ""
	}
	name := t.InputSchema.Required[0]
	if p := t.InputSchema.Properties[name]; p.Type != "string" || len(p.Enum) > 0 {
		return ""
	}
	return name
}

// turn is a conversation cut at its last request.
type turn struct {
	earlier []string // the user's texts before the request, oldest first
	request string
	uses    []use // the calls made since the request, in order
}

// use is a tool call with its result.
type use struct {
	id, tool string
	result   string
	failed   bool
	answered bool
}

// lastTurn reads messages. Text of the user that follows tool results in one message is a new request, since some
// clients merge neighbouring messages of one role.
func lastTurn(messages []message) turn {
	var t turn
	asked := false
	for _, m := range messages {
		var text []string
		for _, b := range m.Content {
			switch {
			case b.Type == "text" && m.Role == "user" && strings.TrimSpace(b.Text) != "":
				text = append(text, b.Text)
			case b.Type == "tool_use" && m.Role == "assistant":
				t.uses = append(t.uses, use{id: b.ID, tool: b.Name})
			case b.Type == "tool_result":
				t.settle(b)
			}
		}
		if len(text) == 0 {
			continue
		}
		if asked {
			t.earlier = append(t.earlier, t.request)
		}
		t.request, t.uses, asked = strings.Join(text, "\n"), nil, true
	}
	t.clip()
	return t
}

// clip drops what is over the limits; the newest of the earlier texts stay.
func (t *turn) clip() {
	t.request = clipText(t.request)
	budget := maxHistory
	for i := len(t.earlier) - 1; i >= 0; i-- {
		t.earlier[i] = clipText(t.earlier[i])
		if budget -= len(t.earlier[i]); budget < 0 {
			t.earlier = t.earlier[i+1:]
			return
		}
	}
}

func clipText(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}

func (t *turn) settle(b block) {
	for i := range t.uses {
		if t.uses[i].id == b.ToolUseID {
			t.uses[i].result = strings.TrimSpace(b.Content.text())
			t.uses[i].failed = b.IsError
			t.uses[i].answered = true
		}
	}
}

// delegated says whether the calls of this turn went to agents, which tells the role when tool_choice hides the tools.
func (t turn) delegated(offered []tool) bool {
	return slices.ContainsFunc(t.uses, func(u use) bool {
		return slices.ContainsFunc(offered, func(o tool) bool { return o.Name == u.tool && o.delegates() })
	})
}

// Limits of what is read: of one message, and of all earlier ones of the user, in bytes.
const (
	maxText    = 32 << 10
	maxHistory = 256 << 10
)

// delegation is one task for one agent.
type delegation struct {
	agent int
	task  string
	after bool
}

// maxReplayed bounds the earlier requests read to see who was told what.
const maxReplayed = 50

// delegate answers as the master: the next calls of the plan, or the results when the plan is done.
func delegate(req *request, t turn, tools []tool) reply {
	forced := req.ToolChoice != nil && (req.ToolChoice.Type == "any" || req.ToolChoice.Type == "tool")
	plan := planFor(t, tools, forced && len(t.uses) == 0)
	if len(t.uses) >= len(plan) || len(tools) == 0 {
		return reply{text: conclude(t)}
	}
	next := plan[len(t.uses):]
	var rep reply
	var busy []int
	for i, d := range next {
		if i > 0 && (d.after || slices.Contains(busy, d.agent) || req.ToolChoice != nil && req.ToolChoice.DisableParallel) {
			break
		}
		busy = append(busy, d.agent)
		rep.calls = append(rep.calls, call{tool: tools[d.agent].Name, input: arguments{}.text("task", d.task)})
	}
	return rep
}

// planFor splits the request of t into delegations. Earlier requests are replayed first, so that "it" and questions
// about what was told find their agent.
func planFor(t turn, tools []tool, forced bool) []delegation {
	sp := speech{}
	for _, tl := range tools {
		sp.agents = append(sp.agents, newAgent(tl))
	}
	r := &router{sp: sp, last: -1}
	var before clause
	for _, text := range t.earlier[max(0, len(t.earlier)-maxReplayed):] {
		for _, st := range sp.split(text) {
			st = st.following(before)
			before = st.clause
			r.assign(st)
		}
	}
	steps := sp.split(t.request)
	if len(steps) == 0 && forced {
		steps = []step{{clause: clause{text: t.request}}}
	}
	var plan []delegation
	for i, st := range steps {
		st = st.following(before)
		before = st.clause
		for k, a := range r.assign(st) {
			plan = append(plan, delegation{agent: a, task: st.sentence(), after: i > 0 && k == 0 && st.after})
		}
	}
	return plan
}

// following is st with what it takes over from the step before it.
func (st step) following(before clause) step {
	carried := carryNoun(before, st.clause)
	st.cont = st.cont || carried.text != st.text
	st.clause = carried
	return st
}

// conclude is the answer after the last step: what the agents said, failures told as such.
func conclude(t turn) string {
	if len(t.uses) == 0 {
		return introduce(t.request)
	}
	l := langOf(t.request)
	var out []string
	for _, u := range t.uses {
		text := u.result
		switch {
		case !u.answered || text == "":
			text = fmt.Sprintf(l.pick("The subagent %s returned nothing.", "Подагент %s ничего не вернул."), u.tool)
		case u.failed || strings.HasPrefix(text, "(no answer"):
			reason := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, "(no answer"), ":"), ")")
			text = fmt.Sprintf(l.pick("The subagent %s gave no answer: %s.", "Подагент %s не ответил: %s."), u.tool, strings.Trim(reason, " ."))
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	sep := " "
	if slices.ContainsFunc(out, func(s string) bool { return strings.Contains(s, "\n") }) {
		sep = "\n\n"
	}
	return strings.Join(out, sep)
}

// introduce answers what asks for nothing: a greeting, thanks, or who is there.
func introduce(request string) string {
	l := langOf(request)
	opening := ""
	for _, t := range tokenize(request) {
		switch t.low {
		case "hi", "hello", "hey", "привет", "здравствуй", "здравствуйте", "hiya":
			opening = l.pick("Hello! ", "Здравствуйте! ")
		case "thanks", "thank", "спасибо", "благодарю":
			opening = l.pick("You are welcome. ", "Пожалуйста. ")
		}
	}
	return opening + l.pick(
		"I am an offline extractive model: I can only note what I am told and answer with the words that I was told, that documents hold or that tools return.",
		"Я офлайн-модель без генерации: я лишь запоминаю сказанное и отвечаю словами, которые мне сказали, которые есть в документах или которые вернули инструменты.")
}
