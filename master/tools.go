package master

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/external"
	"mneme/subagent/loop"
)

// kit makes what the agents of the run work with.
func (r *run) kit() {
	tools := external.Run{
		ID: r.req.RunID, Chat: r.req.Chat, User: r.req.User, Calls: r.req.Calls,
		Approved:  func(tool string) bool { return slices.Contains(r.req.Approved, tool) },
		LastEvent: r.rec.last, Count: r.alike.next, Expiry: cmp.Or(r.agent.Expiry, external.DefaultExpiry), Now: r.agent.Now,
		NoChat: r.req.Memory == nil,
	}
	for _, s := range r.agent.Subagents {
		if s.Kit == nil && s.External == nil {
			continue
		}
		var k subagent.Kit
		if s.Kit != nil {
			k = s.Kit()
		}
		if s.External != nil {
			k.Tools = append(slices.Clip(k.Tools), s.External(tools)...)
		}
		r.kits[s.Name] = k
	}
	if r.agent.External != nil {
		r.own = r.agent.External(tools)
	}
	if len(r.req.Tools) > 0 {
		client := external.Holder{Run: tools, Log: r.agent.Log}
		r.own = append(slices.Clip(r.own), client.ClientTools(r.req.Tools)...)
	}
}

// checkToolNames returns an error if two of the master's tools have the same name.
func (r *run) checkToolNames(tools []loop.Tool) error {
	if len(r.own) == 0 { // the others were told apart by the configuration
		return nil
	}
	names := map[string]bool{}
	for _, t := range tools {
		name := t.Spec().Name
		if names[name] {
			return subagent.Failure{Code: "tool_name_taken",
				Message: fmt.Sprintf("Two tools of the master's have the name %q: give yours another one.", name)}
		}
		names[name] = true
	}
	return nil
}

// counter counts the calls of a run that are alike. Safe for concurrent use.
type counter struct {
	mu     sync.Mutex
	counts map[string]int // by a hash of agent, tool and arguments; guarded by mu
}

// next counts a call. Arguments are alike however their JSON is laid out.
func (c *counter) next(agent memory.Agent, tool string, arguments json.RawMessage) int {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			arguments = canonical
		}
	}
	sum := sha256.Sum256([]byte(string(agent) + "\x00" + tool + "\x00" + string(arguments)))
	key := hex.EncodeToString(sum[:16])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[key]++
	return c.counts[key]
}

// listener tells the master's own text, and how its own tools work; what subagents do, they
// tell themselves.
type listener struct{ run *run }

func (l listener) Text(text string) error              { return l.run.rec.emit(&event.AssistantDelta{Text: text}) }
func (listener) Calls(string, []memory.ToolCall) error { return nil }

func (l listener) Start(call memory.ToolCall) error {
	return l.tell(call, "running", call.Function.Arguments)
}

func (l listener) Progress(call memory.ToolCall, text string) error {
	return l.tell(call, "running", text)
}

func (l listener) Result(call memory.ToolCall, content string, _ memory.Origin, failed bool) error {
	if failed {
		return l.tell(call, "failed", content)
	}
	return l.tell(call, "done", "")
}

func (l listener) tell(call memory.ToolCall, status, detail string) error {
	own := func(t loop.Tool) bool { return t.Spec().Name == call.Function.Name }
	if !slices.ContainsFunc(l.run.own, own) {
		return nil
	}
	return l.run.rec.emit(&event.MasterTool{Tool: call.Function.Name, Status: status, Detail: detail})
}
