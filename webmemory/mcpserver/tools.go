package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// Members of _meta.
const (
	// MetaKey of a call of ask is its idempotency key: a call that repeats it does not ask again.
	MetaKey = "mneme/idempotency-key"
	// MetaError of a result that is an error is the api.Problem.
	MetaError = "mneme/error"
	// metaRetryAfter has the delay in seconds before a retry of a failed call, if it is known.
	metaRetryAfter = "mneme/retry-after"
	// MetaEvent of a notification of progress is the role of the event that it tells of.
	MetaEvent = "mneme/event"
)

type askInput struct {
	Chat    string `json:"chat" jsonschema:"id of the conversation, 1 to 128 characters of A-Z a-z 0-9 . _ : @ + = -; a new id begins a new conversation"`
	Message string `json:"message" jsonschema:"what is said to the agents"`
	Agent   string `json:"agent,omitempty" jsonschema:"name of one agent that is to answer alone; without it the master answers, who asks the others"`
}

// answer is the result of the tool ask.
type answer struct {
	webapi.Result
	// Pending are what the run waits for, where Outcome is webapi.OutcomeWaiting.
	Pending []event.Wait `json:"waits,omitempty" jsonschema:"what the run waits for somebody to answer; no tool can"`
	// ResumePath is where the waits are answered, at webmemory.
	ResumePath string `json:"resume_path,omitempty" jsonschema:"path at webmemory where a person's program answers the waits"`
	Note       string `json:"note,omitempty" jsonschema:"what to tell the user about an answer that is not there yet"`
}

type recallInput struct {
	Chat     string `json:"chat" jsonschema:"id of the conversation"`
	Query    string `json:"query" jsonschema:"what to look for, in words or as a question"`
	Subagent string `json:"subagent,omitempty" jsonschema:"name of the agent whose memory alone is searched"`
	TimeZone string `json:"time_zone,omitempty" jsonschema:"IANA time zone of the user such as Europe/Berlin, in which yesterday is meant and times are given; UTC without it"`
}

type searchInput struct {
	Collection string `json:"collection" jsonschema:"name of the collection of documents"`
	Query      string `json:"query" jsonschema:"what to look for, in words or as a question"`
}

func (c Config) addTools(s *mcp.Server) {
	add(c, s, &mcp.Tool{
		Name: "ask", Title: "Ask mneme's agents",
		Description: "Say something in a chat and wait for the answer. The agents remember what was said in the chat " +
			"before, and what is said in it from then on.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(bool)},
	}, c.ask)
	add(c, s, &mcp.Tool{
		Name: "recall", Title: "Search a chat's memory",
		Description: "Find what was said in a chat, however long ago: literal pieces of its messages, best first.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)},
	}, c.recall)
	add(c, s, &mcp.Tool{
		Name: "search_documents", Title: "Search documents",
		Description: "Find the passages of a collection of documents that match a query best.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)},
	}, c.searchDocuments)
}

// add adds a tool that gives a text and the same as data. Its error is a result too, so that
// the client's model reads the sentence. The arguments are read here, and not by mcp.AddTool:
// its errors are those of a schema.
func add[In, Out any](c Config, s *mcp.Server, t *mcp.Tool,
	call func(context.Context, *mcp.CallToolRequest, In) (string, Out, error)) {
	t.InputSchema, t.OutputSchema = schemaOf[In](), schemaOf[Out]()
	t.InputSchema.(*jsonschema.Schema).AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	s.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		var text string
		var out Out
		err := readArguments(req.Params.Arguments, &in)
		if err == nil {
			text, out, err = call(ctx, req, in)
		}
		if c.Called != nil {
			c.Called(t.Name, err != nil)
		}
		if err != nil {
			return failed(err), nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: out}, nil
	})
}

// readArguments reads an object of arguments. Without any it is as an empty one.
func readArguments(raw json.RawMessage, in any) error {
	if len(raw) == 0 {
		return nil
	}
	err := api.UnmarshalKnown(raw, in)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		p.Message = strings.Replace(p.Message, "The body", "The object of arguments", 1)
	}
	return err
}

// failed is the result of a call that failed. It has no structured content: clients check that
// against the tool's schema.
func failed(err error) *mcp.CallToolResult {
	problem := &api.Problem{Code: "webmemory_unavailable", Message: problemText(err), Retryable: webapi.Retryable(err)}
	errors.As(err, &problem)
	meta := mcp.Meta{MetaError: problem}
	if problem.RetryAfter > 0 {
		meta[metaRetryAfter] = problem.Failure().RetryAfter
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: problemText(err)}}, Meta: meta}
}

// schemaOf is the schema of what a tool gives. Members that a newer version adds are allowed.
func schemaOf[Out any]() *jsonschema.Schema {
	s, err := jsonschema.For[Out](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
	}})
	if err != nil {
		panic(fmt.Sprintf("mcpserver: no schema of %v: %v", reflect.TypeFor[Out](), err)) // plain structs of ours
	}
	open(s)
	return s
}

// open lets objects have members that a schema does not name.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
}

// ask posts a message and follows its run. What ends ctx, such as a client that leaves, does not
// stop a run that has begun.
func (c Config) ask(ctx context.Context, req *mcp.CallToolRequest, in askInput) (string, answer, error) {
	chat, err := memory.Tenant{}.Chat(in.Chat)
	if err != nil {
		return "", answer{}, api.BadRequest(err)
	}
	key, err := idempotencyKey(req.Params.Meta)
	if err != nil {
		return "", answer{}, err
	}
	prog := newProgress(ctx, req)
	defer prog.end()
	got := webapi.NewCollected("")
	for e, err := range c.Memory.Ask(ctx, chat, memory.Agent(in.Agent), in.Message, key) {
		if err != nil {
			return "", answer{}, err
		}
		got.Add(e)
		prog.tell(e)
	}
	if err := got.Err(); err != nil {
		return "", answer{}, err
	}
	if got.Outcome != webapi.OutcomeWaiting {
		return answerText(got.Result), answer{Result: got.Result}, nil
	}
	out := answer{Result: got.Result, Pending: got.Pending, ResumePath: webapi.ResumePath(chat, got.RunID)}
	out.Note = waitingNote(out)
	return out.Note, out, nil
}

// idempotencyKey is a new one, or that of the call.
func idempotencyKey(meta mcp.Meta) (string, error) {
	value, ok := meta[MetaKey]
	if !ok {
		return rand.Text(), nil
	}
	key, _ := value.(string)
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if key == "" || len(key) > webapi.MaxKey || strings.ContainsFunc(key, unprintable) {
		return "", &api.Problem{Status: http.StatusBadRequest, Code: webapi.CodeBadRequest, Message: fmt.Sprintf(
			"%s in _meta is 1 to %d bytes of printable ASCII, such as a UUID.", MetaKey, webapi.MaxKey)}
	}
	return key, nil
}

// answerText is an answer with the sources of its markers.
func answerText(r webapi.Result) string {
	var b strings.Builder
	b.WriteString(r.Content)
	if r.Partial {
		b.WriteString("\n\n(The answer was stopped before its end.)")
	}
	if r.FinishReason != "" {
		b.WriteString("\n\n(The model did not complete its answer: " + r.FinishReason + ".)")
	}
	for i, c := range r.Citations {
		if i == 0 {
			b.WriteString("\n\nSources:")
		}
		fmt.Fprintf(&b, "\n[%d] %s", c.N, place(c.Title, c.Section, c.Source, c.Page))
	}
	return b.String()
}

// place says where in which document something is.
func place(title, section, source string, page int) string {
	label := cmp.Or(title, source)
	if section != "" && section != title {
		label += ", " + section
	}
	if page > 0 {
		label += fmt.Sprintf(", page %d", page)
	}
	if source != "" && source != title {
		label += " (" + source + ")"
	}
	return label
}

// waitingNote says what a run waits for, and that it cannot be answered from here.
func waitingNote(a answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "There is no answer yet: the run waits for a person's decision or answer. A tool cannot give it. "+
		"Ask the user to give it on the page or in `mneme chat`, or call POST %s.",
		a.ResumePath)
	for _, w := range a.Pending {
		fmt.Fprintf(&b, "\n- %s (%s %s, until %s): %s", w.ID, w.Kind, w.Tool, stamp(w.ExpiresAt, nil), w.Reason)
	}
	return b.String()
}

// stamp is a time of Unix seconds in a zone, nil for UTC.
func stamp(seconds float64, zone *time.Location) string {
	return time.UnixMilli(int64(seconds * 1000)).In(cmp.Or(zone, time.UTC)).Format("2006-01-02 15:04 MST")
}

func (c Config) recall(ctx context.Context, _ *mcp.CallToolRequest, in recallInput) (string, memory.Recalled, error) {
	chat, err := memory.Tenant{}.Chat(in.Chat)
	if err != nil {
		return "", memory.Recalled{}, api.BadRequest(err)
	}
	query := url.Values{"query": {in.Query}, "time_zone": {in.TimeZone}}
	if in.Subagent != "" {
		query.Set("subagent", in.Subagent)
	}
	recalled, err := c.Memory.Recall(ctx, chat, query)
	if err != nil {
		return "", memory.Recalled{}, err
	}
	var b strings.Builder
	zone, _ := api.ReadZone(in.TimeZone) // webmemory has checked it
	for _, h := range recalled.Hits {
		fmt.Fprintf(&b, "%s, %s: %s\n\n", stamp(h.TS, zone), strings.TrimSpace(string(h.Subagent)+" "+h.Role), h.Text)
	}
	if len(recalled.Hits) == 0 {
		b.WriteString("Nothing was found.\n")
	}
	if recalled.Partial {
		b.WriteString("The oldest messages are not searched yet; the same call finds them in a moment.\n")
	}
	return strings.TrimSpace(b.String()), recalled, nil
}

func (c Config) searchDocuments(ctx context.Context, _ *mcp.CallToolRequest, in searchInput) (
	string, api.SearchResult, error) {
	if in.Collection == "" {
		return "", api.SearchResult{}, &api.Problem{Status: http.StatusBadRequest, Code: webapi.CodeBadRequest,
			Message: "collection is missing: name the collection of documents to search."}
	}
	result, err := c.Memory.Search(ctx, in.Collection, api.SearchRequest{Query: in.Query})
	if err != nil {
		return "", result, c.naming(ctx, err)
	}
	var b strings.Builder
	for i, p := range result.Passages {
		fmt.Fprintf(&b, "[%d] %s\n%s\n\n", i+1, place(p.Title, p.Section, p.Source, p.Page), p.Text)
	}
	if len(result.Passages) == 0 {
		b.WriteString("Nothing was found.\n")
	}
	if result.Degraded {
		b.WriteString("A part of the search could not be asked; there may be more.\n")
	}
	return strings.TrimSpace(b.String()), result, nil
}

// naming adds to the refusal of an unknown collection which there are, for a model that guessed.
func (c Config) naming(ctx context.Context, err error) error {
	if !webapi.IsNotFound(err) {
		return err
	}
	names, listing := c.Memory.Collections(ctx)
	if listing != nil {
		return err
	}
	slices.Sort(names)
	return fmt.Errorf("%w There are: %s", err, cmp.Or(strings.Join(names, ", "), "none"))
}
