package loop

import (
	"context"
	"slices"
	"sync"

	"mneme/memory"
	"mneme/memory/event"
)

// Calls are the calls of models that a run makes, the first event.MaxModelCalls of them. The zero value has
// none. Safe for concurrent use.
type Calls struct {
	mu   sync.Mutex
	list []event.ModelCall // in the order of their beginnings; guarded by mu
}

// In gives a context under which the calls of models are noted, as those of a delegation to an agent; both are
// empty for the master's.
func (c *Calls) In(ctx context.Context, agent memory.Agent, call string) context.Context {
	return context.WithValue(ctx, callsKey{}, callsOf{c, agent, call})
}

// List are the calls that have ended, and those that were given to Restore.
func (c *Calls) List() []event.ModelCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	var finished []event.ModelCall
	for _, call := range c.list {
		if call.Started > 0 {
			finished = append(finished, call)
		}
	}
	return finished
}

// Restore puts calls before those that will be made.
func (c *Calls) Restore(calls []event.ModelCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.Concat(calls, c.list)
}

type callsKey struct{}

// callsOf names the agent and the delegation that calls are noted for, and the list that they are noted in.
type callsOf struct {
	calls *Calls
	agent memory.Agent
	call  string
}

// BeginCall is what a Model tells that its call begins. It is to call end once, when the call has ended, with all
// that it knows of it but the agent and the delegation.
func BeginCall(ctx context.Context) (end func(event.ModelCall)) {
	scope, ok := ctx.Value(callsKey{}).(callsOf)
	if !ok {
		return func(event.ModelCall) {}
	}
	c := scope.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	index := len(c.list)
	if index >= event.MaxModelCalls {
		return func(event.ModelCall) {}
	}
	c.list = append(c.list, event.ModelCall{})
	return func(call event.ModelCall) {
		call.Subagent, call.CallID = scope.agent, scope.call
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list[index] = call
	}
}
