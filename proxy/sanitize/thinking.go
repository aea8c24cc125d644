package sanitize

import (
	"math"
	"slices"
	"strconv"

	"mneme/proxy/wire"
)

// minBudget is the least thinking budget that vendors take, and what is left of
// max_tokens for the answer, in tokens.
const minBudget = 1024

// budgets are what levels of effort are worth in tokens where thinking has a
// budget, in ascending order. Share is the part of a configured budget, in percent.
var budgets = []struct {
	effort string
	tokens int64
	share  int64
}{{"low", 4096, 25}, {"medium", 8192, 50}, {"high", 16384, 100}, {"xhigh", 32768, 100}, {"max", 65536, 100}}

// BudgetOf is what an effort is worth in tokens. With a bound it is a share of that:
// low is 25 %, medium 50 %, anything else all of it, counted from the 1024 tokens
// that vendors take at least. Without (0) it is a number of its own. No effort is
// high, which is the vendors' default.
func BudgetOf(bound int64, effort string) int64 {
	worth := budgets[2]
	for _, b := range budgets {
		if b.effort == effort {
			worth = b
		}
	}
	switch {
	case bound <= 0:
		return worth.tokens
	case bound <= minBudget:
		return bound
	}
	return minBudget + (bound-minBudget)*worth.share/100
}

// effortOf is the effort that a budget is worth.
func effortOf(budget int64) string {
	for _, b := range budgets[:2] {
		if budget <= b.tokens {
			return b.effort
		}
	}
	return budgets[2].effort
}

// mode is how the request asks for thinking; empty if it does not say.
func (r *request) mode() Mode {
	raw := r.root.get("thinking")
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case 't':
		return Enabled
	case 'f':
		return Disabled
	case '{':
		r.thinking()
		return r.settled
	}
	return ""
}

// thinking is how the request asks for thinking, with its members.
func (r *request) thinking() *object {
	raw := r.root.get("thinking")
	if len(r.thinkingCache.body) != len(raw) || len(raw) > 0 && &r.thinkingCache.body[0] != &raw[0] {
		r.thinkingCache = objectOf(raw)
		r.settled = Mode(r.thinkingCache.text("type"))
	}
	return &r.thinkingCache
}

// on and off are both false where it is unknown.
func (r *request) on() bool {
	m := r.mode()
	return m == Enabled || m == Adaptive || m == "" && !r.unthinking && r.p.Thinking.Default == On
}

func (r *request) off() bool {
	m := r.mode()
	return m == Disabled || m == BetweenTools || m == "" && (r.unthinking || r.p.Thinking.Default == Off)
}

// settleMode asks for thinking in a way that the model knows. The other members
// of "thinking" stay.
func (r *request) settleMode() {
	t := r.p.Thinking
	raw := r.root.get("thinking")
	if raw == nil || t.Modes == nil && !t.NeedsBudget {
		return
	}
	if t.Modes != nil && len(t.Modes) == 0 {
		r.set(KindMode, "thinking", nil)
		return
	}
	if raw[0] == 't' || raw[0] == 'f' {
		r.set(KindMode, "thinking", []byte(`{"type":"`+string(r.mode())+`"}`))
	}
	switch m := r.mode(); {
	case t.accepts(m):
	case m == Adaptive || m == "auto":
		if t.accepts(Adaptive) {
			r.setMode(Adaptive)
		} else {
			r.makeManual()
		}
	case m == Enabled:
		r.makeAdaptive()
	case m == Disabled || m == BetweenTools:
		if !r.turnOff(KindMode) {
			r.set(KindMode, "thinking", nil) // it cannot be told not to think
		}
	}
}

func (r *request) setMode(m Mode) { r.setIn(KindMode, "thinking", "type", wire.Quote(string(m))) }

// makeManual turns adaptive into enabled with a budget. What an effort asked for
// is in the budget then.
func (r *request) makeManual() {
	r.setMode(Enabled)
	if r.Dialect == wire.Messages || r.p.Thinking.NeedsBudget {
		r.setIn(KindMode, "thinking", "budget_tokens", strconv.AppendInt(nil, r.ownBudget(), 10))
	}
	r.betweenTools = r.p.Thinking.Interleaved // as adaptive does by itself
}

// makeAdaptive turns enabled into adaptive, with an effort of what the budget was
// worth unless the request has one.
func (r *request) makeAdaptive() {
	r.setMode(Adaptive)
	o := objectOf(r.root.get("thinking"))
	budget, ok := integer(o.get("budget_tokens"))
	if o.has("budget_tokens") {
		r.setIn(KindMode, "thinking", "budget_tokens", nil)
	}
	config := objectOf(r.root.get("output_config"))
	if !ok || r.Dialect != wire.Messages || config.has("effort") {
		return
	}
	if r.Budget > 0 {
		budget = min(budget, r.Budget)
	}
	r.setIn(KindMode, "output_config", "effort", wire.Quote(effortOf(budget)))
}

// turnOff makes thinking be off, if the model can be told so.
func (r *request) turnOff(kind Kind) bool {
	t := r.p.Thinking
	switch {
	case t.Default == Off || len(t.Modes) == 0 && t.Default != On:
		r.unthinking = true
		if r.root.get("thinking") != nil {
			r.set(kind, "thinking", nil)
		}
	case t.accepts(Disabled):
		r.set(kind, "thinking", []byte(`{"type":"disabled"}`))
	case t.accepts(BetweenTools):
		r.set(kind, "thinking", []byte(`{"type":"between_tools"}`))
	default:
		return false
	}
	return true
}

// leaveManual turns thinking off or, where that cannot be, lets the model decide.
func (r *request) leaveManual(kind Kind) {
	if r.turnOff(kind) {
		return
	}
	if r.p.Thinking.accepts(Adaptive) {
		r.makeAdaptive()
		return
	}
	if o := objectOf(r.root.get("thinking")); o.has("budget_tokens") {
		r.setIn(kind, "thinking", "budget_tokens", nil)
	}
}

// freeToolChoice: a model that thinks cannot be forced to call a tool. One that
// always thinks is asked to instead.
func (r *request) freeToolChoice() {
	raw := r.root.get("tool_choice")
	if len(raw) == 0 || !r.on() && r.mode() != BetweenTools {
		return
	}
	o := objectOf(raw)
	switch textOf(raw) + o.text("type") {
	case "any", "tool", "required", "function":
	default:
		return
	}
	t := r.p.Thinking
	if t.Default == Off || len(t.Modes) == 0 || t.accepts(Disabled) {
		r.turnOff(KindToolChoice)
		return
	}
	if r.Dialect == wire.Chat {
		r.set(KindToolChoice, "tool_choice", wire.Quote("auto"))
		return
	}
	o.set("type", wire.Quote("auto"))
	o.drop("name")
	r.set(KindToolChoice, "tool_choice", o.raw())
}

// fitBudget holds the budget of manual thinking within what max_tokens allows.
func (r *request) fitBudget() {
	if r.mode() != Enabled {
		return
	}
	requested, ok := integer(r.thinking().get("budget_tokens"))
	if !ok && !r.p.Thinking.NeedsBudget {
		return
	}
	budget := requested
	if !ok {
		budget = r.ownBudget()
	}
	if r.Budget > 0 {
		budget = min(budget, r.Budget)
	}
	if !r.Count {
		budget = min(budget, r.room())
		if budget < minBudget {
			r.leaveManual(KindBudget)
			return
		}
	}
	if !ok || budget != requested {
		r.setIn(KindBudget, "thinking", "budget_tokens", strconv.AppendInt(nil, budget, 10))
	}
}

// room is the largest budget that max_tokens allows. Thinking between tools may
// take nearly all of it: the budget is one for all of a turn's calls then.
func (r *request) room() int64 {
	limit, ok := integer(r.root.get("max_tokens"))
	if completionLimit, present := integer(r.root.get("max_completion_tokens")); present {
		limit, ok = max(limit, completionLimit), true
	}
	switch {
	case !ok:
		return math.MaxInt64
	case r.hasBeta(interleavedBeta) && r.tools():
		return limit - 1
	}
	return limit - minBudget
}

// boundAnswer bounds an answer that the request leaves open.
func (r *request) boundAnswer() {
	limit, ok := integer(r.root.get("max_tokens"))
	if r.Answer == 0 || r.Count || ok && (limit > 0 || limit == 0 && !r.Translated && r.p.TakesBound(r.Dialect, 0)) {
		return
	}
	completionLimit, _ := integer(r.root.get("max_completion_tokens"))
	switch {
	case completionLimit <= 0 || r.Dialect != wire.Chat:
		r.set(KindAnswer, "max_tokens", strconv.AppendInt(nil, r.Answer+r.thinks(), 10))
	case r.p.CompletionTokens:
		return
	default: // many servers know one name only
		r.set(KindLimit, "max_tokens", strconv.AppendInt(nil, completionLimit, 10))
	}
	r.root.drop("max_completion_tokens")
}

// TakesBound reports whether a vendor gives a meaning to a bound of an answer that is no positive number: Anthropic
// fills its cache for 0 (platform.claude.com/docs/en/api/messages/create), and for -1 LM Studio, Ollama and llama.cpp
// bound nothing.
func (p Profile) TakesBound(d wire.Dialect, n int64) bool {
	return d == wire.Messages && n == 0 && slices.Contains([]string{"anthropic", "bedrock"}, p.Vendor) ||
		d == wire.Chat && n == -1 && slices.Contains([]string{"generic", "lmstudio", "ollama"}, p.Vendor)
}

// thinks is how much the request lets the model think beside its answer, in tokens; 0 if it is not known to think.
func (r *request) thinks() int64 {
	config := objectOf(r.root.get("output_config"))
	effort := config.text("effort") + r.root.text("reasoning_effort")
	off := effort == noEffort || effort == "minimal" || r.off() && (effort == "" || r.Dialect == wire.Messages)
	switch budget, ok := integer(r.thinking().get("budget_tokens")); {
	case ok && r.mode() == Enabled:
		return budget
	case off, effort == "" && !r.on() && len(r.p.Thinking.Efforts) == 0:
		return 0
	}
	return r.ownBudget()
}

// ownBudget is what a request gets that names none.
func (r *request) ownBudget() int64 {
	config := objectOf(r.root.get("output_config"))
	return BudgetOf(r.Budget, config.text("effort")+r.root.text("reasoning_effort"))
}

// startLoop: in manual mode what has been said since the user last spoke must
// begin with thinking.
func (r *request) startLoop() {
	if r.mode() != Enabled || !r.p.Thinking.LoopStart {
		return
	}
	var first *editedMessage
	for _, m := range slices.Backward(r.messages) {
		if m.role == wire.RoleUser && !m.holds(wire.ToolResultBlock) {
			break
		}
		if m.role == wire.RoleAssistant {
			first = m
		}
	}
	if first != nil && (len(first.blocks) == 0 || !first.blocks[0].thinks()) {
		r.leaveManual(KindLoop)
	}
}

func (r *request) tools() bool { return filled(r.root.get("tools")) }

// integer is false for what is no number.
func integer(raw []byte) (int64, bool) {
	if len(raw) == 0 {
		return 0, false // an error of strconv costs memory
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return int64(max(-1<<53, min(f, 1<<53))), err == nil
}
