package openaiapi

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"mneme/memory/event"
	"mneme/memory/secrets"
	webapi "mneme/webmemory/api"
)

// This file is about how a run's events become the parts of a UI message stream. They have the members that each of the
// AI SDK's versions 5, 6 and 7 takes: the older ones refuse a part with another one.

// part is a part of the stream.
type part map[string]any

// uiAnswer is an answer as a UI message stream.
type uiAnswer struct {
	*answer
	texts       int  // parts of text so far
	speaks      bool // one of them is open
	delegations map[string]*delegation
	shows       map[string]bool   // parts of tools that the client has
	asked       map[string]string // the part of a tool, by the wait for a person that it shows
	settles     []string          // parts of tools that a person has approved and that have no output yet
}

// delegation is what a data-subagent part says, which each later one of the same id replaces.
type delegation struct {
	Name  string `json:"name"`
	Task  string `json:"task"`
	State string `json:"state"` // "running", or the status of an event.Completion
	Text  string `json:"text"`  // the end of what it does, then its answer
}

// part sends a part of the stream.
func (a *uiAnswer) part(kind string, p part) {
	if p == nil {
		p = part{}
	}
	p["type"] = kind
	a.write(line(p))
}

// show gives an event to the client.
func (a *uiAnswer) show(e event.Event) {
	if a.first == 0 {
		a.run, a.first = e.RunID, e.Seq
		a.mu.Lock()
		if a.out == nil {
			a.w.Header().Set(webapi.RunID, a.run)
		}
		a.head()
		a.mu.Unlock()
		a.part("start", part{"messageId": a.run, "messageMetadata": part{"run": a.run, "chat": a.chat.ID()}})
	}
	a.collected.Add(e)
	switch p := e.Payload.(type) {
	case *event.RunStarted:
		a.part("start-step", nil)
	case *event.Recalled:
		a.part("data-memory", part{"id": "memory-" + strconv.FormatInt(e.Seq, 10), "data": part{
			"agent": cmp.Or(string(e.Subagent), webapi.Master), "messages": p.Messages, "failed": p.Failed}})
	case *event.AssistantDelta:
		a.say(p.Text)
	case *event.Assistant:
		a.complement(p.Content)
		a.hush()
		a.sources(p.Citations)
	case *event.MasterTool:
		a.hush()
		a.part("data-tool", part{"id": p.Tool, "data": p})
	case *event.Delegation:
		a.hush()
		a.delegate(e, delegation{Task: p.Task, State: "running"})
	case *event.SubagentDelta:
		a.delegate(e, delegation{Text: p.Text})
	case *event.ToolProgress:
		a.delegate(e, delegation{Text: "\n" + p.Tool + ", " + p.Status + ": " + p.Detail + "\n"})
	case *event.AssistantWithTools:
		for _, c := range p.ToolCalls {
			a.tool(partOf(e.CallID, c.ID), c.Function.Name, json.RawMessage(c.Function.Arguments), true, nil)
		}
	case *event.ToolResult:
		a.settle(partOf(e.CallID, p.ToolCallID), p.Content)
	case *event.Completion:
		a.delegate(e, delegation{State: p.Status, Text: p.Response})
	case *event.RunWaiting:
		a.wait(p.Waits)
	case *event.RunResumed:
		a.goOn(p.Answers)
	}
}

// say shows a piece of the answer.
func (a *uiAnswer) say(text string) {
	if text == "" {
		return
	}
	if !a.speaks {
		a.texts++
		a.speaks = true
		a.part("text-start", part{"id": a.textID()})
	}
	a.raw.WriteString(text)
	a.piece.WriteString(text)
	a.part("text-delta", part{"id": a.textID(), "delta": text})
}

func (a *uiAnswer) textID() string { return "text-" + strconv.Itoa(a.texts) }

// hush ends a part of text. What is said behind it is another one.
func (a *uiAnswer) hush() {
	a.piece.Reset()
	if a.speaks {
		a.speaks = false
		a.part("text-end", part{"id": a.textID()})
	}
}

// complement shows what is missing of the whole answer.
func (a *uiAnswer) complement(content string) {
	switch rest, begun := strings.CutPrefix(content, a.piece.String()); {
	case a.raw.String() == content:
	case begun:
		a.say(rest)
	default:
		a.hush()
		a.say(content)
	}
}

// sources are the citations of the answer, with all that is known of each beside.
func (a *uiAnswer) sources(all []event.Citation) {
	for _, c := range all {
		p := part{"sourceId": strconv.Itoa(c.N), "title": c.Place(), "providerMetadata": part{"mneme": c}}
		if strings.HasPrefix(c.Source, "https://") || strings.HasPrefix(c.Source, "http://") {
			p["url"] = c.Source
			a.part("source-url", p)
			continue
		}
		p["mediaType"], p["filename"] = "text/plain", cmp.Or(c.Source, c.DocID)
		a.part("source-document", p)
	}
}

// delegate shows what changes of a delegation. Of what a subagent does it is the end, since each part has all of it;
// of its answer it is all.
func (a *uiAnswer) delegate(e event.Event, change delegation) {
	d := a.delegations[e.CallID]
	if d == nil {
		d = &delegation{}
		a.delegations[e.CallID] = d
	}
	d.Name, d.Task, d.State = string(e.Subagent), cmp.Or(change.Task, d.Task), cmp.Or(change.State, d.State)
	if change.State != "" {
		d.Text = ""
	}
	d.Text += change.Text
	if change.State == "" && len(d.Text) > maxLine {
		d.Text = strings.ToValidUTF8(d.Text[len(d.Text)-maxLine:], "")
	}
	a.part("data-subagent", part{"id": e.CallID, "data": d})
}

// partOf names the part of a tool's call: models use the same ids in several delegations.
func partOf(delegation, call string) string { return strings.TrimPrefix(delegation+"."+call, ".") }

// tool shows a call of a tool. One that is ours runs here; of another one the page has the output.
func (a *uiAnswer) tool(id, name string, input json.RawMessage, ours bool, beside any) {
	a.hush()
	p := part{"toolCallId": id, "toolName": name, "input": part{}, "dynamic": true}
	if json.Valid(input) {
		p["input"] = input
	} else if len(input) > 0 {
		p["input"] = string(input)
	}
	if ours {
		p["providerExecuted"] = true
	}
	if beside != nil {
		p["providerMetadata"] = part{"mneme": beside}
	}
	a.shows[id] = true
	a.part("tool-input-available", p)
}

// settle shows the output of a tool. The SDK takes an output without its call for a broken stream.
func (a *uiAnswer) settle(id string, output any) {
	a.settles = slices.DeleteFunc(a.settles, func(other string) bool { return other == id })
	if a.shows[id] {
		a.part("tool-output-available", part{"toolCallId": id, "output": output, "dynamic": true, "providerExecuted": true})
	}
}

// wait shows what a run waits for: approvals, and calls whose output the page gives.
func (a *uiAnswer) wait(waits []event.Wait) {
	a.settleRest()
	for _, w := range waits {
		id := partOf(w.CallID, w.ToolCallID)
		if w.Kind != event.Approval {
			id = callID(a.run, w.ID)
		}
		beside := part{"kind": w.Kind, "reason": w.Reason, "expiresAt": w.ExpiresAt}
		if len(w.Schema) > 0 {
			beside["schema"] = w.Schema
		}
		a.tool(id, w.Tool, w.Arguments, w.Kind == event.Approval, beside)
		a.asked[w.ID] = id
		if w.Kind == event.Approval {
			a.part("tool-approval-request", part{"approvalId": callID(a.run, w.ID), "toolCallId": id})
		}
	}
	a.part("finish-step", nil)
}

// goOn shows how waits were answered. What follows is a step of its own: pages send the answers of the last one.
func (a *uiAnswer) goOn(answers []event.WaitAnswer) {
	for _, w := range answers {
		id, shown := a.asked[w.ID]
		switch {
		case !shown || !a.shows[id]:
		case w.Decision == event.Deny:
			a.part("tool-output-denied", part{"toolCallId": id})
			delete(a.shows, id) // what the model is told of it is no output
		default:
			a.settles = append(a.settles, id)
		}
	}
	clear(a.asked)
	a.part("start-step", nil)
}

// settleRest settles the approved calls that no event told the output of, as those of the master's own tools.
func (a *uiAnswer) settleRest() {
	for _, id := range slices.Clone(a.settles) {
		a.settle(id, event.Approve)
	}
}

// end completes the answer.
func (a *uiAnswer) end() {
	if err := a.collected.Err(); err != nil {
		a.fail(err)
		return
	}
	a.hush()
	finish := "tool-calls"
	if a.collected.Outcome != webapi.OutcomeWaiting { // that ends the step itself
		finish = finishStop
		a.settleRest()
		a.part("finish-step", nil)
	}
	if a.collected.Outcome == event.Stopped {
		finish = "other"
		a.part("abort", nil)
	}
	used := a.collected.Usage
	usage := part{"inputTokens": used.InputTokens, "outputTokens": used.OutputTokens,
		"totalTokens": used.InputTokens + used.OutputTokens, "cachedInputTokens": used.CachedTokens,
		"reasoningTokens": used.ReasoningTokens}
	if used.CostMicroUSD != nil {
		usage["costMicroUSD"] = *used.CostMicroUSD
	}
	a.part("finish", part{"finishReason": finish, "messageMetadata": part{"usage": usage, "outcome": a.collected.Outcome}})
	a.write([]byte("[DONE]"))
}

// fail ends the answer with an error: as a status, or inside of a stream that has begun.
func (a *uiAnswer) fail(err error) {
	a.close() // no ping comes before the status, or behind the error
	f := failureOf(err)
	if a.out == nil {
		a.w.Header().Del("X-Vercel-Ai-Ui-Message-Stream")
		RefuseUI(a.w, &f.Problem)
		return
	}
	a.hush()
	a.part("error", part{"errorText": secrets.Keyless(f.Message)})
	a.write([]byte("[DONE]"))
}
