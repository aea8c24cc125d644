package sanitize

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/wire"
)

const (
	interleavedBeta = "interleaved-thinking-2025-05-14"
	contextBeta     = "context-management-2025-06-27"
)

// dropThinkingEdits removes the context edits that are only allowed with thinking, while it is off.
func (r *request) dropThinkingEdits() {
	if !r.off() {
		return
	}
	context := objectOf(r.root.get("context_management"))
	edits, removed := removeElements(context.get("edits"), func(edit []byte) bool {
		o := objectOf(edit)
		return strings.HasPrefix(o.text("type"), "clear_thinking_")
	})
	if removed {
		r.setIn(KindEdits, "context_management", "edits", edits)
	}
}

// fitEffort replaces the effort by one that the model accepts.
func (r *request) fitEffort() {
	config := objectOf(r.root.get("output_config"))
	effort := config.text("effort")
	fit := effort
	if r.p.Thinking.ByEffort {
		fit = r.effortOfMode(effort)
	}
	if fit == "" {
		return
	}
	if r.off() && (effort == "xhigh" || effort == "max") {
		fit = "high"
	}
	if fit = r.level(fit); fit == effort {
		return
	}
	var value []byte
	if fit != "" {
		value = wire.Quote(fit)
	}
	r.setIn(KindEffort, "output_config", "effort", value)
}

// effortOfMode is the effort that says what the mode of thinking says, or the one that was asked for beside it. A
// translated "max" is the highest level that all models of Responses know of.
func (r *request) effortOfMode(effort string) string {
	switch mode := r.mode(); {
	case effort == "max" && r.Translated && r.p.Thinking.Efforts == nil:
		return "xhigh"
	case effort != "" || mode == "":
		return effort
	case mode == Disabled:
		return noEffort
	}
	if budget, _ := integer(r.thinking().get("budget_tokens")); budget > 0 {
		return effortOf(budget)
	}
	return "medium" // some models do not think unless they are told an effort
}

// chooseEffort sets Input.Effort in a request that has no effort of its own, if the model is known
// to accept it.
func (r *request) chooseEffort() {
	t := r.p.Thinking
	if r.Effort == "" || r.root.has("reasoning_effort") || r.root.has("thinking") ||
		!slices.Contains(t.Efforts, r.Effort) {
		return
	}
	if !t.NoEffortTools || !r.tools() {
		r.set(KindEffort, "reasoning_effort", wire.Quote(r.Effort))
	}
}

// fitChatEffort is fitEffort for the chat dialect, where an effort may be the only way to ask for
// thinking.
func (r *request) fitChatEffort() {
	effort := r.root.text("reasoning_effort")
	if t := r.p.Thinking; t.NoEffortTools && r.tools() && effort != noEffort {
		r.set(KindEffort, "reasoning_effort", wire.Quote(noEffort))
		return
	}
	if effort == "" {
		return
	}
	if fit := r.level(effort); fit == "" {
		r.set(KindEffort, "reasoning_effort", nil)
	} else if fit != effort {
		r.set(KindEffort, "reasoning_effort", wire.Quote(fit))
	}
}

// noEffort is the level without thinking.
const noEffort = "none"

// levels are all levels of effort in ascending order. Some models have "default" in place of all
// levels with thinking.
var levels = []string{noEffort, "minimal", "low", "medium", "high", "xhigh", "max", "default"}

// Levels are those of some words that are levels of effort, in ascending order.
func Levels(words []string) []string {
	return slices.DeleteFunc(slices.Clone(levels), func(l string) bool { return !slices.Contains(words, l) })
}

// level is the accepted level for the one that was asked for: the next higher one, else the
// highest; empty if the model accepts none.
func (r *request) level(effort string) string {
	t := r.p.Thinking
	switch {
	case t.NoEffortOff && (r.unthinking || r.mode() == Disabled):
		return ""
	case t.Efforts == nil || slices.Contains(t.Efforts, effort):
		return effort
	case len(t.Efforts) == 0:
		return ""
	}
	return levelOf(t.Efforts, effort)
}

// levelOf returns the next higher level that is taken, or the highest one.
func levelOf(accepted []string, effort string) string {
	for _, level := range levels[max(0, slices.Index(levels, effort)):] {
		if slices.Contains(accepted, level) {
			return level
		}
	}
	return accepted[len(accepted)-1]
}

// fitSampling removes sampling parameters that the model does not accept.
func (r *request) fitSampling() {
	kind, fixed := r.p.Sampling, false
	switch kind {
	case SamplingFixed, SamplingNone:
		fixed = true
	case SamplingPlain, SamplingOne:
		fixed = r.on()
	case SamplingIdle:
		config := objectOf(r.root.get("output_config"))
		effort := r.root.text("reasoning_effort") + config.text("effort")
		fixed = effort != "" && effort != noEffort
	}
	for _, name := range []string{"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"} {
		raw := r.root.get(name)
		if raw == nil || !fixed {
			continue
		}
		f, err := strconv.ParseFloat(string(raw), 64)
		legal := err != nil || f == 1 && name != "top_k" ||
			name == "top_p" && (kind == SamplingPlain || kind == SamplingOne) && f >= 0.95
		if strings.HasSuffix(name, "_penalty") {
			legal = err != nil || f == 0
		}
		if !legal || kind == SamplingNone {
			r.set(KindSampling, name, nil)
		}
	}
	if kind == SamplingOne && r.root.has("temperature") && r.root.has("top_p") {
		r.set(KindSampling, "top_p", nil)
	}
}

// nameLimit renames the limit on the answer's length to the name that the model accepts.
func (r *request) nameLimit() {
	limit := r.root.get("max_tokens")
	if limit == nil || !r.p.CompletionTokens {
		return
	}
	r.set(KindLimit, "max_tokens", nil)
	if !r.root.has("max_completion_tokens") {
		r.root.set("max_completion_tokens", limit)
	}
}

// dropMarkers removes surplus cache markers. Those of tools and system stay longest, then the
// newest ones of the messages.
func (r *request) dropMarkers() {
	most := r.p.CacheMarkers
	if most == 0 || bytes.Count(r.Outline.Body, markerEnd) <= most {
		return
	}
	places := r.markers() // in the order in which they are given up
	surplus := -most
	for _, p := range places {
		surplus += len(p.indexes)
	}
	for _, p := range places {
		if n := min(surplus, len(p.indexes)); n > 0 {
			p.unmark(p.indexes[:n])
			surplus -= n
		}
	}
}

// markerEnd is searched for to find out quickly whether there is a marker at all. It begins with a
// rare byte.
var markerEnd = []byte(`_control"`)

// marked is an array in which some objects have a marker, or one object with a marker.
type marked struct {
	indexes []int
	unmark  func(indexes []int)
}

func (r *request) markers() []marked {
	var out []marked
	for _, m := range r.messages {
		for _, b := range m.blocks {
			if inner := b.get("content"); b.kind == wire.ToolResultBlock && bytes.Contains(inner, markerEnd) {
				out = append(out, marked{markedIn(inner), func(indexes []int) {
					b.set("content", unmarked(inner, indexes))
					r.note(KindMarkers, m, b)
				}})
			}
			if b.has(wire.CacheControl) {
				out = append(out, marked{[]int{0}, func([]int) {
					b.drop(wire.CacheControl)
					r.note(KindMarkers, m, b)
				}})
			}
		}
	}
	for _, member := range []string{"tools", "system"} {
		raw := r.root.get(member)
		out = append(out, marked{markedIn(raw), func(indexes []int) { r.set(KindMarkers, member, unmarked(raw, indexes)) }})
	}
	return out
}

// markedIn are the indexes of an array's elements that have a marker.
func markedIn(raw []byte) []int {
	var indexes []int
	for i, it := range elements(raw) {
		if o := objectOf(it.raw); o.has(wire.CacheControl) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// unmarked is an array without the markers of some of its elements.
func unmarked(raw []byte, indexes []int) []byte {
	items := elements(raw)
	for _, i := range indexes {
		o := objectOf(items[i].raw)
		o.drop(wire.CacheControl)
		items[i].raw = o.raw()
	}
	return array(raw, wire.Span{Start: 0, End: len(raw)}, len(items), items)
}

// settleBetas handles members that need a beta, and the header that asks for betas.
func (r *request) settleBetas() {
	if r.root.has("context_management") {
		switch r.p.ContextManagement {
		case Rejected:
			r.set(KindContext, "context_management", nil)
		case Beta:
			if r.refusesBeta(contextBeta) {
				r.set(KindRefused, "context_management", nil)
			} else {
				r.needBeta(contextBeta)
			}
		}
	}
	if (r.betweenTools || r.Translated && r.p.Thinking.Interleaved) && r.mode() == Enabled && r.tools() {
		r.needBeta(interleavedBeta)
	}
	for _, v := range r.Betas {
		switch {
		case r.refusesBeta(v):
			r.changed(KindRefused, BetaHeader+"."+v)
		case r.p.Betas != nil && !slices.Contains(r.p.Betas, v):
			r.changed(KindBeta, BetaHeader+"."+v)
		default:
			continue
		}
		r.out.RemoveBetas = append(r.out.RemoveBetas, v)
	}
}

// refusesBeta reports whether the backend has refused a beta, or all of them.
func (r *request) refusesBeta(v string) bool {
	return slices.ContainsFunc(r.Rules, func(f Rule) bool {
		return f.Name == BetaHeader && (f.Value == "" || f.Value == v)
	})
}

func (r *request) needBeta(v string) {
	unknown := r.p.Betas != nil && !slices.Contains(r.p.Betas, v)
	if unknown || r.hasBeta(v) || r.refusesBeta(v) || slices.Contains(r.out.AddBetas, v) {
		return
	}
	r.out.AddBetas = append(r.out.AddBetas, v)
	r.changed(KindBeta, BetaHeader+"."+v)
}

func (r *request) hasBeta(v string) bool { return slices.Contains(r.Betas, v) }

// splitBetas splits the values of a header, each of which may be a comma-separated list.
func splitBetas(values []string) []string {
	var out []string
	for _, list := range values {
		for v := range strings.SplitSeq(list, ",") {
			if v = strings.TrimSpace(v); v != "" {
				out = append(out, v)
			}
		}
	}
	return out
}
