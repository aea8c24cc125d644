package sanitize

import (
	"bytes"
	"strings"

	"mneme/proxy/wire"
)

// Refusal is a parameter that a backend has refused for a model.
type Refusal struct {
	Name string // a member of the request, or with a dot a member's member
	// Value is the refused value as JSON; nil for any value.
	Value []byte
	// Beside is the member together with which it was refused; empty for any request.
	Beside string
	// Instead is the member that takes over its value; empty for none.
	Instead string
	// Off: the member must be "none", and must be added if it is missing.
	Off bool
}

// leaveOut applies the refusals that are known of the backend.
func (r *request) leaveOut() {
	for i := range r.Refusals {
		r.refuse(&r.Refusals[i])
	}
}

// refuse applies one refusal.
func (r *request) refuse(f *Refusal) {
	outer, inner, nested := strings.Cut(f.Name, ".")
	value := r.root.get(outer)
	if nested {
		o := objectOf(value)
		value = o.get(inner)
	}
	switch {
	case f.Beside != "" && (!r.root.has(f.Beside) || f.Beside == "tools" && !r.tools()):
		return
	case f.Off:
		if none := wire.Quote(noEffort); !bytes.Equal(value, none) {
			r.set(RuleRefused, f.Name, none)
		}
		return
	case value == nil, f.Value != nil && !bytes.Equal(value, f.Value):
		return
	case nested:
		r.setIn(RuleRefused, outer, inner, nil)
	default:
		r.set(RuleRefused, f.Name, nil)
	}
	if f.Instead != "" && !r.root.has(f.Instead) {
		r.root.set(f.Instead, value)
	}
	if f.Name == "thinking" {
		r.unthinking = true
	}
}
