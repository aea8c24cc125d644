package proxy

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// optional are the parameters that a request can do without, whoever put them in:
// the gateway, our agents, translation, or a client's library by its defaults. An
// answer may differ without them in style, cost or length. What a request means is
// not among them: messages, tools, the format of the answer, where it stops, how
// many there are. Those are refused to the client.
var optional = []string{
	"context_management", "enable_thinking", "frequency_penalty", "logit_bias", "metadata", "min_p",
	"output_config.effort",
	"parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning",
	"reasoning_effort",
	"repetition_penalty", "safety_identifier", "seed", "service_tier", "store", "stream_options", "temperature", "think",
	"thinking",
	"top_k", "top_p", "user", "verbosity",
}

// limits are the two names of an answer's limit in chat completions. One refused,
// the other is tried: a limit is never given up.
var limits = map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

// spellings are the parameters that an error may mean by a name, the likeliest first.
var spellings = map[string][]string{
	"effort":                       {"output_config.effort", "reasoning_effort"},
	"output_config":                {"output_config.effort"},
	"reasoning":                    {"reasoning", "reasoning_effort", "thinking"},
	"reasoning.effort":             {"reasoning", "reasoning_effort"},
	"reasoning_effort":             {"reasoning_effort", "output_config.effort", "reasoning", "think"},
	"stream_options.include_usage": {"stream_options"},
	"think":                        {"think", "reasoning_effort", "thinking", "enable_thinking"},
	"thinking":                     {"thinking", "reasoning_effort"},
}

// leaveOut is the cure for a parameter that the model does not take: the request
// goes without it, or with the name or the value that the error asks for. It is nil
// for an error that names none, or one that the request needs.
func (a *attempt) leaveOut() *cure {
	said := a.answer.parameter
	if said.Name == "" {
		return nil
	}
	f, ok := a.refusal(said)
	if !ok {
		return nil
	}
	c := &cure{kind: cureParameter, without: []sanitize.Refusal{f}}
	c.log = func(ok bool) {
		line := a.log().Warn().Str("parameter", f.Name).Bool("ok", ok).Str("backend", a.backend.name).Str("model", a.model)
		if f.Instead != "" {
			line = line.Str("instead", f.Instead)
		}
		line.Msg("[parameter_retry] the backend refused a parameter: the request was sent again without it")
	}
	c.learn = func(context.Context) {
		a.backend.lessons.add(a.model, func(l *lesson) { l.refuse(f) })
	}
	return c
}

// refusal is what to leave out of requests like the one that was sent.
func (a *attempt) refusal(said thinking.Refused) (f sanitize.Refusal, ok bool) {
	f = sanitize.Refusal{Name: said.Name, Beside: said.Beside, Off: said.Off}
	if f.Beside != "" && a.sent(f.Beside) == nil {
		return f, false
	}
	if other, limit := limits[said.Name]; limit {
		f.Instead = other
		return f, a.backend.dialect == wire.Chat && !said.Value && a.sent(said.Name) != nil
	}
	if f.Off { // it may be refused for what the model does without it
		return f, a.backend.dialect == wire.Chat && said.Name == "reasoning_effort" && string(a.sent(said.Name)) != `"none"`
	}
	names := spellings[said.Name]
	if names == nil {
		names = []string{said.Name}
	}
	for _, name := range names {
		value := a.sent(name)
		if value == nil || !slices.Contains(optional, name) {
			continue
		}
		f.Name = name
		// Of temperature and its like any value is refused but the default.
		if said.Value && (strings.Contains(name, "effort") || strings.HasPrefix(name, "reasoning") ||
			strings.HasPrefix(name, "think")) {
			f.Value = slices.Clone(value)
		}
		return f, true
	}
	return f, false
}

// sent is the raw value of a member of the request as it left; nil for none.
func (a *attempt) sent(name string) []byte {
	o := a.doc
	outer, inner, nested := strings.Cut(name, ".")
	at := o.Members.Get(outer)
	if nested && at.Found() {
		at = o.Object(at).Get(inner)
	}
	if !at.Found() {
		return nil
	}
	return o.Of(at)
}

// lesson is what a backend's refusals have taught about one of its models.
type lesson struct {
	refusals []sanitize.Refusal
	replay   *sanitize.Replay // how reasoning goes back, if not as the profile says
}

// refuse adds a refusal, unless a request at the same time has added it.
func (l *lesson) refuse(f sanitize.Refusal) {
	same := func(r sanitize.Refusal) bool {
		return r.Name == f.Name && r.Beside == f.Beside && r.Off == f.Off && bytes.Equal(r.Value, f.Value)
	}
	if slices.ContainsFunc(l.refusals, same) {
		return
	}
	l.refusals = append(slices.Clone(l.refusals), f)
	l.refusals = l.refusals[max(0, len(l.refusals)-maxRefusals):]
}

// lessons are those of a backend, by model. Clients choose names, so their number
// is bounded; a lesson that is forgotten costs one refusal.
type lessons struct {
	mu    sync.RWMutex
	known map[string]lesson // guarded by mu; what a lesson holds is never changed
}

const (
	maxLessons  = 64 // models
	maxRefusals = 16 // of a model; the oldest goes
)

func (l *lessons) of(model string) lesson {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.known[model]
}

func (l *lessons) add(model string, learn func(*lesson)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.known[model]
	if !ok && (l.known == nil || len(l.known) == maxLessons) {
		l.known = map[string]lesson{}
	}
	learn(&known)
	l.known[strings.Clone(model)] = known
}
