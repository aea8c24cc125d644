// Package uistream serves the UI message stream protocol of the Vercel AI SDK, which useChat speaks, over the chats of
// a webmemory: POST /v1/chats/{chat}/ui and GET /v1/chats/{chat}/ui/{id}/stream. The protocol is described at
// https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol.
//
// The package owns the request and the parts of the stream. A request posts a message, regenerates or edits one, or
// answers the waits of a run. Package openaiapi posts the message at its place and returns the events of the run.
//
// The package never stores anything and never trusts the client's history, because two pages may show one chat. Of the
// client's messages only the new one counts. A new message follows all others. An edited or regenerated message is
// found by its id and takes its own place.
package uistream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"mneme/access"
	"mneme/access/fair"
	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/secrets"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/problem"
)

// New returns the routes of useChat over the chats of h, whose Close ends the streams.
func New(h *openaiapi.Handler) http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/chats/{chat}/ui", serve(h, post))
	routes.HandleFunc("GET /v1/chats/{chat}/ui/{id}/stream", serve(h, resume))
	return routes
}

// starter reads a request, and returns the events that answer it, or none.
type starter = func(context.Context, *answer, *http.Request) (openaiapi.Events, error)

// serve returns a handler that answers with a run's events as a UI message stream, or with a 204 if the chat has no such run. A
// client that disconnects does not stop the run. It can resume the stream.
func serve(h *openaiapi.Handler, begin starter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, end := h.Bound(r.Context())
		defer end()
		a := &answer{h: h, w: w, stream: h.NewStream(w), collected: webapi.NewCollected(""),
			delegations: map[string]*delegation{}, tools: map[string]bool{}, waitParts: map[string]string{}}
		defer a.stream.Close()
		chat, err := memory.Tenant{}.Chat(r.PathValue("chat"))
		if err != nil {
			a.fail(problem.BadRequest("The path names no chat: %s", api.BadRequest(err).Message))
			return
		}
		a.chat = chat
		events, err := begin(ctx, a, r)
		switch {
		case err != nil:
			a.fail(err)
			return
		case events == nil:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
		a.stream.Start()
		for e, err := range events {
			if err != nil {
				a.fail(err)
				return
			}
			a.show(e)
		}
		a.end()
	}
}

// triggerRegenerate asks for another answer. Any other trigger posts or edits a message, or answers waits.
const triggerRegenerate = "regenerate-message"

// request is the body that DefaultChatTransport sends, with optional members of a webapi.MessageRequest.
type request struct {
	Messages  []message `json:"messages"`
	Trigger   string    `json:"trigger"`
	MessageID string    `json:"messageId"` // of the message that is edited, regenerated, or has the answers

	AgentVersion string              `json:"agent_version"`
	OnBusy       string              `json:"on_busy"`
	User         string              `json:"user"`
	Tools        []webapi.ClientTool `json:"tools"`
	Instructions string              `json:"instructions"`
	Pasted       []memory.Span       `json:"pasted"` // as of a webapi.MessageRequest, in the text parts joined by line breaks
}

type message struct {
	ID    string        `json:"id"`
	Role  string        `json:"role"`
	Parts []messagePart `json:"parts"`
}

// messagePart has the members of a message's part that this package reads.
type messagePart struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Text       string          `json:"text"`
	MediaType  string          `json:"mediaType"`
	URL        string          `json:"url"`
	Filename   string          `json:"filename"`
	Data       json.RawMessage `json:"data"`
	ToolCallID string          `json:"toolCallId"`
	State      string          `json:"state"`
	Output     json.RawMessage `json:"output"`
	ErrorText  string          `json:"errorText"`
	Approval   struct {
		ID       string `json:"id"`
		Approved bool   `json:"approved"`
		Reason   string `json:"reason"`
	} `json:"approval"`
}

// Refuse answers a request with an error. The body is the sentence alone, which useChat shows as the error's message.
func Refuse(w http.ResponseWriter, p *api.Problem) {
	p.SetHeader(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set(CodeHeader, p.Code)
	w.WriteHeader(cmp.Or(p.Status, http.StatusInternalServerError))
	_, _ = w.Write([]byte(secrets.Keyless(p.Message))) // a client that has left needs none
}

// CodeHeader is the header with the code of an error.
const CodeHeader = "Mneme-Error-Code"

// post serves POST /v1/chats/{chat}/ui.
func post(ctx context.Context, a *answer, r *http.Request) (events openaiapi.Events, err error) {
	err = fair.Share(ctx, func(shareCtx context.Context) (err error) {
		events, err = a.read(ctx, r.WithContext(shareCtx))
		return err
	})
	return events, err
}

// read reads a request. The returned events use ctx, because they outlive the fair share that bounds r.
func (a *answer) read(ctx context.Context, r *http.Request) (openaiapi.Events, error) {
	raw, err := api.ReadBody(a.w, r, openaiapi.MaxBody, jsonbound.Transcript)
	if err != nil {
		return nil, err
	}
	var body request
	if err := api.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	index := len(body.Messages) - 1
	for i, m := range body.Messages {
		if body.Trigger != triggerRegenerate && m.ID != "" && m.ID == body.MessageID {
			index = i
		}
	}
	switch {
	case index >= 0 && body.Messages[index].Role == memory.RoleUser:
		return a.postMessage(ctx, &body, index)
	case index >= 0 && body.Messages[index].Role == memory.RoleAssistant:
		return a.resumeRun(ctx, body.Messages[index])
	}
	return nil, problem.BadRequest("messages has to end with one of the user, or with answers to what a run waits for.")
}

// resume serves GET /v1/chats/{chat}/ui/{id}/stream. It returns the chat's running or waiting run from its first event.
func resume(ctx context.Context, a *answer, _ *http.Request) (openaiapi.Events, error) {
	info, err := a.h.Memory.Chat(openaiapi.WithMemoryScopes(ctx), a.chat)
	if info.Run == "" && info.Waiting != nil && maySee(ctx, info.Waiting.Pending) {
		info.Run = info.Waiting.RunID
	}
	if err != nil || info.Run == "" {
		return nil, err
	}
	return a.h.Follow(ctx, a.stream, a.chat, info.Run), nil
}

// maySee reports whether the caller may see the waits of a run. Any client may see waits for results of its tools.
// Waits for a person need a right to decide or to read the chat.
func maySee(ctx context.Context, pending []event.Wait) bool {
	caller := access.FromContext(ctx)
	return caller.HasScope(access.Approve) || caller.HasScope(access.MemoryRead) ||
		!slices.ContainsFunc(pending, func(w event.Wait) bool { return w.Kind != event.ClientResult })
}

// postMessage posts the user's message with the index at.
func (a *answer) postMessage(ctx context.Context, body *request, index int) (openaiapi.Events, error) {
	id, p := body.Messages[index].ID, openaiapi.Post{Chat: a.chat}
	for i, m := range body.Messages[:index+1] {
		if m.Role != memory.RoleUser && m.Role != memory.RoleAssistant {
			continue
		}
		c, texts := openaiapi.ChatMessage{Role: m.Role}, []string(nil)
		for _, p := range m.Parts {
			switch {
			case p.Type == "text":
				texts = append(texts, p.Text)
			case p.Type == "file" && strings.HasPrefix(p.MediaType, "image"):
				c.Content.Images = append(c.Content.Images, p.URL)
			case p.Type == "file" && i == index: // files of older messages are documents already
				c.Content.Files = append(c.Content.Files, openaiapi.FilePart{Name: p.Filename, Data: p.URL})
			}
		}
		c.Content.Text, c.Content.Pasted = openaiapi.JoinTexts(texts)
		if text := strings.Join(texts, "\n"); i == index && body.Pasted != nil {
			if err := memory.CheckSpans(text, body.Pasted); err != nil {
				return nil, problem.BadRequest("pasted %v.", err)
			}
			c.Content.Pasted = memory.SpansOf(text, strings.TrimSpace(text), body.Pasted)
		}
		c.Content.Text = openaiapi.WithFiles(strings.TrimSpace(c.Content.Text), c.Content.Files)
		p.Messages = append(p.Messages, c)
	}
	p.Request = webapi.MessageRequest{AgentVersion: body.AgentVersion, Stream: true, OnBusy: body.OnBusy, User: body.User,
		Tools: body.Tools, Instructions: body.Instructions, Metadata: map[string]string{}}
	if id != "" {
		p.Request.Metadata[api.MessageIDMember] = id
	}
	p.Replaces, p.Newest = body.MessageID != "", body.MessageID == "" && body.Trigger == triggerRegenerate
	if id != "" && !p.Replaces && !p.Newest { // the same message again
		p.Key = fmt.Sprintf("ui-%x", sha256.Sum256([]byte(id)))
	}
	return a.h.Post(ctx, a.stream, p)
}

// resumeRun resumes a waiting run with the answers in the last step of the message.
func (a *answer) resumeRun(ctx context.Context, m message) (openaiapi.Events, error) {
	run, answers := "", []event.WaitAnswer(nil)
	for _, p := range m.Parts {
		switch p.Type {
		case "step-start":
			answers = nil
		case "data-subagent":
			a.delegations[p.ID] = &delegation{}
			_ = json.Unmarshal(p.Data, a.delegations[p.ID]) // malformed members stay empty
		}
		a.tools[p.ToolCallID] = p.ToolCallID != ""
		id, w := p.ToolCallID, event.WaitAnswer{Decision: event.Approve, Result: p.Output,
			Reason: cmp.Or(p.ErrorText, p.Approval.Reason)}
		responded := p.State == "approval-responded"
		if responded {
			id = p.Approval.ID
			a.waitParts[id] = p.ToolCallID
		}
		if responded && !p.Approval.Approved || p.State == "output-error" {
			w.Decision = event.Deny
		}
		id, wait, ok := openaiapi.SplitCallID(id)
		if !ok || !responded && p.State != "output-available" && p.State != "output-error" {
			continue
		}
		run, w.ID = id, wait
		answers = append(answers, w)
	}
	if len(answers) == 0 {
		return nil, problem.BadRequest("The last message is the assistant's, and has no answer to what a run waits for.")
	}
	return a.h.Resume(ctx, a.stream, a.chat, run, answers), nil
}

// maxProgress bounds the progress that a part of a delegation shows, in bytes.
const maxProgress = 200

// part is a part of the stream. It has only members that the AI SDK's versions 5, 6 and 7 all accept, because versions
// 5 and 6 reject a part with an unknown member.
type part map[string]any

// answer writes an answer as a UI message stream.
type answer struct {
	h         *openaiapi.Handler
	w         http.ResponseWriter
	stream    *openaiapi.Stream
	chat      memory.Chat
	run       string
	agent     string // as of the event.RunStarted
	collected *webapi.Collected
	raw       strings.Builder // the text of the answer so far
	piece     strings.Builder // its part since the last break

	textCount   int    // parts of text so far
	textID      string // id of the one that is open; empty for none
	delegations map[string]*delegation
	tools       map[string]bool   // parts of tools that the client has
	waitParts   map[string]string // the part of a tool, by the callID of the wait that it shows
}

// delegation is the data of a data-subagent part. A later part with the same id replaces it.
type delegation struct {
	Name  string `json:"name"`
	Task  string `json:"task"`
	State string `json:"state"` // "running", or the status of an event.Completion
	Text  string `json:"text"`  // the end of its progress, then its answer
}

// write writes a part of the stream, and sets its type.
func (a *answer) write(kind string, p part) {
	p["type"] = kind
	line, _ := memory.EncodeJSON(p) // plain values of ours
	a.stream.Data(line)
}

// show writes the parts of an event.
func (a *answer) show(e event.Event) {
	if a.run == "" {
		a.run = e.RunID
		a.stream.SetHeader(webapi.RunID, a.run)
		a.write("start", part{"messageId": a.run, "messageMetadata": part{"run": a.run, "chat": a.chat.ID()}})
	}
	a.collected.Add(e)
	switch p := e.Payload.(type) {
	case *event.RunStarted:
		a.agent = p.AgentVersion
		a.write("start-step", part{})
	case *event.Recalled:
		a.write("data-memory", part{"id": fmt.Sprint("memory-", e.Seq), "data": part{
			"agent": cmp.Or(string(e.Subagent), webapi.Master), "messages": p.Messages, "failed": p.Failed}})
	case *event.AssistantDelta:
		a.writeText(p.Text)
	case *event.Assistant:
		switch rest, ok := strings.CutPrefix(p.Content, a.piece.String()); {
		case a.raw.String() == p.Content, ok && rest == "":
		case ok:
			a.writeText(rest)
		default:
			a.endText()
			a.writeText(p.Content)
		}
		a.endText()
		a.writeSources(p.Citations)
	case *event.MasterTool:
		a.endText()
		a.write("data-tool", part{"id": p.Tool, "data": p})
	case *event.Delegation:
		a.endText()
		a.writeDelegation(e, p.Task, "running", "")
	case *event.SubagentDelta:
		if a.writeDelegation(e, "", "", p.Text); string(e.Subagent) == a.agent { // whom the user talks to
			a.writeText(p.Text)
		}
	case *event.ToolProgress:
		a.writeDelegation(e, "", "", "\n"+p.Tool+", "+p.Status+": "+p.Detail+"\n")
	case *event.AssistantWithTools:
		for _, c := range p.ToolCalls {
			a.writeTool(toolPartID(e.CallID, c.ID), c.Function.Name, json.RawMessage(c.Function.Arguments),
				part{"providerExecuted": true})
		}
	case *event.ToolResult:
		a.writeOutput(toolPartID(e.CallID, p.ToolCallID), p.Content)
	case *event.Completion:
		a.writeDelegation(e, "", p.Status, p.Response)
	case *event.RunWaiting:
		a.writeWaits(p.Pending)
	case *event.RunResumed:
		a.writeDecisions(p.Answers)
	}
}

// writeText writes a piece of the answer, and opens a part of text if none is open.
func (a *answer) writeText(text string) {
	if a.textID == "" {
		a.textCount++
		a.textID = fmt.Sprint("text-", a.textCount)
		a.write("text-start", part{"id": a.textID})
	}
	a.raw.WriteString(text)
	a.piece.WriteString(text)
	a.write("text-delta", part{"id": a.textID, "delta": text})
}

// endText closes the open part of text, if there is one.
func (a *answer) endText() {
	if a.piece.Reset(); a.textID != "" {
		a.write("text-end", part{"id": a.textID})
		a.textID = ""
	}
}

// writeSources writes the citations of the answer. The metadata of each part has the whole citation.
func (a *answer) writeSources(citations []event.Citation) {
	for _, c := range citations {
		p := part{"sourceId": fmt.Sprint(c.N), "title": c.Place(), "providerMetadata": part{"mneme": c}}
		if strings.HasPrefix(c.Source, "https://") || strings.HasPrefix(c.Source, "http://") {
			p["url"] = c.Source
			a.write("source-url", p)
			continue
		}
		p["mediaType"], p["filename"] = "text/plain", cmp.Or(c.Source, c.DocID)
		a.write("source-document", p)
	}
}

// writeDelegation applies a change to a delegation and writes it. Its text is the end of the progress, because each
// part repeats it, or the whole answer.
func (a *answer) writeDelegation(e event.Event, task, state, text string) {
	d := cmp.Or(a.delegations[e.CallID], &delegation{})
	a.delegations[e.CallID] = d
	d.Name, d.Task, d.State = string(e.Subagent), cmp.Or(task, d.Task), cmp.Or(state, d.State)
	if d.Text += text; state != "" {
		d.Text = text
	} else if len(d.Text) > maxProgress {
		d.Text = strings.ToValidUTF8(d.Text[len(d.Text)-maxProgress:], "")
	}
	a.write("data-subagent", part{"id": e.CallID, "data": d})
}

// toolPartID returns the id of the part of a tool call. Models use the same call ids in several delegations.
func toolPartID(delegation, call string) string { return strings.TrimPrefix(delegation+"/"+call, "/") }

// writeTool writes a tool call. The page runs a tool that is not providerExecuted.
func (a *answer) writeTool(id, name string, input json.RawMessage, extra part) {
	a.endText()
	extra["toolCallId"], extra["toolName"], extra["input"], extra["dynamic"] = id, name, input, true
	if !json.Valid(input) {
		extra["input"] = string(input)
	}
	a.tools[id] = true
	a.write("tool-input-available", extra)
}

// writeOutput writes the output of a tool call that the client has. The SDK rejects an output without its call.
func (a *answer) writeOutput(id string, output any) {
	if a.tools[id] {
		a.write("tool-output-available", part{"toolCallId": id, "output": output, "dynamic": true, "providerExecuted": true})
	}
}

// writeWaits writes the approvals and the calls of client tools that a run waits for, and ends the step.
func (a *answer) writeWaits(pending []event.Wait) {
	for _, w := range pending {
		extra, id := part{"providerMetadata": part{"mneme": w}}, openaiapi.CallID(a.run, w.ID)
		a.waitParts[id] = id
		if w.Kind == event.Approval {
			a.waitParts[id], extra["providerExecuted"] = toolPartID(w.CallID, w.ToolCallID), true
		}
		a.writeTool(a.waitParts[id], w.Tool, w.Arguments, extra)
		if w.Kind == event.Approval {
			a.write("tool-approval-request", part{"approvalId": id, "toolCallId": a.waitParts[id]})
		}
	}
	a.write("finish-step", part{})
}

// writeDecisions writes the answers of waits and begins a step, because pages send the answers of the last step only.
func (a *answer) writeDecisions(answers []event.WaitAnswer) {
	for _, w := range answers {
		id := a.waitParts[openaiapi.CallID(a.run, w.ID)]
		switch {
		case !a.tools[id]:
		case w.Decision == event.Deny:
			a.write("tool-output-denied", part{"toolCallId": id})
			delete(a.tools, id) // what the model is told of it is no output
		case !strings.Contains(id, "/"): // no event has the output of what is not a subagent's
			a.writeOutput(id, w.Decision)
		}
	}
	a.write("start-step", part{})
}

// end completes the answer.
func (a *answer) end() {
	if err := a.collected.Err(); err != nil {
		a.fail(err)
		return
	}
	a.endText()
	finish := "tool-calls"
	if a.collected.Outcome != webapi.OutcomeWaiting { // that ends the step itself
		// AI SDK's names: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol.
		finish = strings.ReplaceAll(cmp.Or(a.collected.FinishReason, "stop"), "_", "-")
		a.write("finish-step", part{})
	}
	if a.collected.Outcome == event.Stopped {
		finish = "other"
		a.write("abort", part{})
	}
	u := a.collected.Usage
	a.write("finish", part{"finishReason": finish, "messageMetadata": part{"outcome": a.collected.Outcome, "usage": part{
		"inputTokens": u.InputTokens, "outputTokens": u.OutputTokens, "totalTokens": u.InputTokens + u.OutputTokens,
		"cachedInputTokens": u.CachedTokens, "reasoningTokens": u.ReasoningTokens, "costMicroUSD": u.CostMicroUSD}}})
	a.stream.Data([]byte("[DONE]"))
}

// fail ends the answer with an error: as a status, or inside of a stream that has begun.
func (a *answer) fail(err error) {
	p := openaiapi.ProblemOf(err)
	if !a.stream.Close() { // no ping comes before the status, or behind the error
		Refuse(a.w, p)
		return
	}
	a.endText()
	a.write("error", part{"errorText": secrets.Keyless(p.Message)})
	a.stream.Data([]byte("[DONE]"))
}
