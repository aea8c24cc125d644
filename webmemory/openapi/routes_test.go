package openapi_test

import (
	"encoding/json"
	"reflect"

	"mneme/access"
	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	webapi "mneme/webmemory/api"
)

// operation is a route with one of its methods.
type operation struct {
	route   string // method and path
	summary string
	params  string // of the query and of headers, names of parameters
	body    any    // a value of the type, or media
	answers map[int]any
	refused map[int]string // codes, beside those that any route may answer with
}

// What answers and bodies may be beside JSON of a type.
type (
	media  map[string]any // by the content type
	events struct{}       // a stream of events
	lines  []any          // values of the types of which each line of JSON is one
	chunks struct{}       // a stream of parts of a chat completion
	parts  struct{}       // a UI message stream
	text   struct{}
	binary struct{}
	object struct{} // any JSON object
)

type (
	ok   = map[int]any
	says = map[int]string
)

// answered is how the posts are that a run answers.
var answered = ok{
	200: media{"application/json": webapi.Result{}, "text/event-stream": events{}},
	202: oneOf{webapi.Started{}, webapi.Waiting{}},
}

type oneOf []any

// Problem is the body of every refusal.
type Problem struct {
	Error *api.Problem `json:"error"`
}

// What the apiserver and the services answer with types of their own.
type (
	// CollectionList are all collections.
	CollectionList struct {
		Collections []docstore.Info `json:"collections"`
	}
	// Collection describes a collection, and who reads it.
	Collection struct {
		docstore.Info
		ReadBy   []memory.Agent `json:"read_by"`  // the subagents that search it
		Searched []string       `json:"searched"` // all collections that subagents search, by name
		Reads    []string       `json:"reads"`    // extensions of the files that can be put
	}
	// DocumentList is a page of documents, without their texts.
	DocumentList struct {
		Documents  []docstore.Head `json:"documents"`
		NextCursor string          `json:"next_cursor"` // empty at the end
	}
	// Ready answers GET /readyz.
	Ready struct {
		telemetry.Readiness
		Redis *RedisAway `json:"redis,omitempty"` // while it does not answer
	}
	// RedisAway says since when Redis has not answered.
	RedisAway struct {
		AwaySince string `json:"away_since"` // RFC 3339
	}
)

// What OpenAI's clients send and get, in short; its own documentation has the rest.
type (
	// ChatCompletionRequest is read as far as it stands here; other members are ignored. docs/openai.md says more.
	ChatCompletionRequest struct {
		Model         string         `json:"model"` // `mneme`, or `mneme/` and the name of a subagent
		Messages      []ChatMessage  `json:"messages"`
		Stream        bool           `json:"stream,omitempty"`
		StreamOptions *StreamOptions `json:"stream_options,omitempty"`
		N             float64        `json:"n,omitempty"` // 1
		User          string         `json:"user,omitempty"`
		// Metadata is stored with the message; `chat_id` in it names the chat where nothing else does.
		Metadata   map[string]string `json:"metadata,omitempty"`
		Tools      []ChatTool        `json:"tools,omitempty"`
		ToolChoice json.RawMessage   `json:"tool_choice,omitempty"` // `auto`, `none`, `required`, or a tool of the client's
		// ResponseFormat is that of OpenAI: of the type text, json_object or json_schema.
		ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	}
	// StreamOptions say what a stream has beside its chunks.
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage,omitempty"`
	}
	// ChatMessage is a message of a transcript.
	ChatMessage struct {
		Role       string            `json:"role"`
		Content    json.RawMessage   `json:"content,omitempty"` // a text, or a list of parts
		ToolCalls  []memory.ToolCall `json:"tool_calls,omitempty"`
		ToolCallID string            `json:"tool_call_id,omitempty"`
	}
	// ChatTool is a tool of the client's own.
	ChatTool struct {
		Type     string       `json:"type"`
		Function ChatFunction `json:"function"`
	}
	// ChatFunction is what a tool takes.
	ChatFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	// ChatCompletion is a whole answer.
	ChatCompletion struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []ChatChoice `json:"choices"`
		Usage   ChatUsage    `json:"usage"`
	}
	// ChatChoice is the answer's only choice.
	ChatChoice struct {
		Index        int        `json:"index"`
		Message      ChatAnswer `json:"message"`
		Logprobs     *string    `json:"logprobs"`
		FinishReason string     `json:"finish_reason"`
	}
	// ChatAnswer is the message that answers.
	ChatAnswer struct {
		Role        string           `json:"role"`
		Content     *string          `json:"content"`
		Refusal     *string          `json:"refusal"`
		Reasoning   string           `json:"reasoning_content,omitempty"` // delegations and tools, a line each
		ToolCalls   []ChatToolCall   `json:"tool_calls,omitempty"`        // of the client's own tools
		Annotations []ChatAnnotation `json:"annotations"`
	}
	// ChatToolCall is a call of one of the client's own tools.
	ChatToolCall struct {
		Index int `json:"index,omitempty"` // in a chunk
		memory.ToolCall
	}
	// ChatAnnotation is a citation.
	ChatAnnotation struct {
		Type        string          `json:"type"`
		URLCitation ChatURLCitation `json:"url_citation"`
		Citation    event.Citation  `json:"citation"`
	}
	// ChatURLCitation says where its marker stands in the text, in characters.
	ChatURLCitation struct {
		StartIndex int    `json:"start_index"`
		EndIndex   int    `json:"end_index"`
		Title      string `json:"title"`
		URL        string `json:"url"`
	}
	// ChatUsage counts tokens of all model calls of the run.
	ChatUsage struct {
		PromptTokens            int64           `json:"prompt_tokens"`
		CompletionTokens        int64           `json:"completion_tokens"`
		TotalTokens             int64           `json:"total_tokens"`
		PromptTokensDetails     ChatPromptUsage `json:"prompt_tokens_details"`
		CompletionTokensDetails ChatAnswerUsage `json:"completion_tokens_details"`
	}
	// ChatPromptUsage is a part of the tokens of prompts.
	ChatPromptUsage struct {
		CachedTokens int64 `json:"cached_tokens"`
	}
	// ChatAnswerUsage is a part of the tokens of answers.
	ChatAnswerUsage struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	}
	// ChatChunk is an event of a stream; the last one is `[DONE]`.
	ChatChunk struct {
		ID      string        `json:"id"`
		Object  string        `json:"object"`
		Created int64         `json:"created"`
		Model   string        `json:"model"`
		Choices []ChunkChoice `json:"choices"`
		Usage   *ChatUsage    `json:"usage,omitempty"` // in the last one, if it was asked for
	}
	// ChunkChoice is what a chunk adds.
	ChunkChoice struct {
		Index        int       `json:"index"`
		Delta        ChatDelta `json:"delta"`
		Logprobs     *string   `json:"logprobs"`
		FinishReason *string   `json:"finish_reason"`
	}
	// ChatDelta is what a chunk adds to the message.
	ChatDelta struct {
		Role        string           `json:"role,omitempty"`
		Content     string           `json:"content,omitempty"`
		Reasoning   string           `json:"reasoning_content,omitempty"`
		ToolCalls   []ChatToolCall   `json:"tool_calls,omitempty"`
		Annotations []ChatAnnotation `json:"annotations,omitempty"`
	}
	// ResponseRequest is read as far as it stands here; other members are ignored or refused. docs/openai.md says more.
	ResponseRequest struct {
		Model        string          `json:"model"` // `mneme`, or `mneme/` and the name of a subagent
		Input        json.RawMessage `json:"input"` // a text, or a list of items
		Instructions string          `json:"instructions,omitempty"`
		Stream       bool            `json:"stream,omitempty"`
		// Store: without a chat, false keeps nothing. Left out, the response begins a chat.
		Store        bool            `json:"store,omitempty"`
		Conversation json.RawMessage `json:"conversation,omitempty"` // the chat: its id, or an object with it
		// Previous is the response that the input follows.
		Previous   string            `json:"previous_response_id,omitempty"`
		Metadata   map[string]string `json:"metadata,omitempty"` // as of a ChatCompletionRequest
		Tools      []ResponseTool    `json:"tools,omitempty"`
		ToolChoice json.RawMessage   `json:"tool_choice,omitempty"` // `auto`, `none`, `required`, or a tool of the client's
		Text       json.RawMessage   `json:"text,omitempty"`        // its member format is the form of the answer
		User       string            `json:"user,omitempty"`
	}
	// ResponseTool is a tool of the client's own.
	ResponseTool struct {
		Type        string          `json:"type"`
		Name        string          `json:"name,omitempty"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	// DeletedResponse is a response of which the chat has no words any more.
	DeletedResponse struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}
	// Conversation is a chat as OpenAI's Conversations API describes it.
	Conversation struct {
		ID        string            `json:"id"`
		Object    string            `json:"object"`
		CreatedAt int64             `json:"created_at"`
		Metadata  map[string]string `json:"metadata"`
	}
	// ConversationItems are items of a request.
	ConversationItems struct {
		Items []object `json:"items"`
	}
	// ItemList is a page of the items of a conversation.
	ItemList struct {
		Object  string   `json:"object"`
		Data    []object `json:"data"`
		FirstID string   `json:"first_id"`
		LastID  string   `json:"last_id"`
		HasMore bool     `json:"has_more"`
	}
	// ModelList are the agents.
	ModelList struct {
		Object string  `json:"object"`
		Data   []Model `json:"data"`
	}
	// Model is an agent, as a model.
	Model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	// ChatProblem is a refusal as OpenAI says it.
	ChatProblem struct {
		Error ChatProblemDetail `json:"error"`
	}
	// ChatProblemDetail says what is wrong.
	ChatProblemDetail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
		RunID   string  `json:"run_id,omitempty"`
	}
)

// What useChat of the AI SDK sends, in short.
type (
	// UIRequest is read as far as it stands here; other members are ignored. docs/clients.md says more.
	UIRequest struct {
		Messages  []UIMessage `json:"messages"` // the last one is new, or has the answers
		Trigger   string      `json:"trigger"`
		MessageID string      `json:"messageId,omitempty"` // of the message that is edited, regenerated, or has the answers

		AgentVersion string              `json:"agent_version,omitempty"`
		OnBusy       string              `json:"on_busy,omitempty"`
		User         string              `json:"user,omitempty"`
		Tools        []webapi.ClientTool `json:"tools,omitempty"`
		Instructions string              `json:"instructions,omitempty"`
	}
	// UIMessage is a message of the page's.
	UIMessage struct {
		ID    string           `json:"id"`
		Role  string           `json:"role"`
		Parts []map[string]any `json:"parts"`
	}
)

// aliases are the names of types in the document where that of the Go type says too little.
var aliases = map[reflect.Type]string{
	reflect.TypeFor[docstore.Info]():       "CollectionInfo",
	reflect.TypeFor[docstore.Head]():       "DocumentHead",
	reflect.TypeFor[docstore.Document]():   "StoredDocument",
	reflect.TypeFor[docstore.Passage]():    "PassagePlace",
	reflect.TypeFor[api.Document]():        "Document",
	reflect.TypeFor[rag.Result]():          "SearchResult",
	reflect.TypeFor[rag.Outcome]():         "PutResult",
	reflect.TypeFor[api.LinesEnd]():        "PutResultsEnd",
	reflect.TypeFor[memory.FunctionCall](): "FunctionCall",
	reflect.TypeFor[memory.Recalled]():     "RecallResult",
	reflect.TypeFor[event.Error]():         "RunError",
	reflect.TypeFor[api.Problem]():         "ProblemDetail",
	reflect.TypeFor[access.Key]():          "KeyInfo",
}

const (
	answerParams = "Accept Prefer"
	postRefused  = "chat_busy chat_erased turn_moved"
	limits       = "rate_limit_exceeded budget_exceeded rate_limited"
)

var messageRefused = says{
	400: "unknown_agent image_not_supported", 409: postRefused + " conflict", 422: "idempotency_key_reused",
	429: "too_many_messages " + limits,
	502: "model_failed outcome_unknown bad_wait",
	503: "apiserver_unavailable too_many_chats too_many_runs draining", 507: "history_full storage_full",
}

// operations are the routes, in the document's order of tags.
func operations() []operation {
	out := []operation{
		{"POST /v1/chats/{chat}/messages", "Posts a message and answers with its run", answerParams + " Idempotency-Key",
			webapi.MessageRequest{}, answered, messageRefused},
		{"POST /chat", "Posts a message as the service did that this one replaces; always streams", "Prefer Idempotency-Key",
			webapi.ChatRequest{}, ok{200: media{"text/event-stream": events{}}, 202: webapi.Started{}}, messageRefused},
		{"GET /v1/chats/{chat}/runs/{run}/events", "Streams the events of a run behind the last one that was seen",
			"Last-Event-ID last_event_id", nil, ok{200: media{"text/event-stream": events{}}, 204: nil},
			says{400: "bad_last_event_id", 404: "unknown_run", 410: "events_gone"}},
		{"POST /v1/chats/{chat}/ui", "Answers useChat of the AI SDK: a message, one anew, or answers to what a run waits for", "",
			UIRequest{}, ok{200: media{"text/event-stream": parts{}}},
			says{400: "unknown_agent image_not_supported bad_id", 404: "unknown_run unknown_wait",
				409: "waits_open answered not_waiting messages_since " + postRefused, 410: "wait_expired", 413: "too_large",
				415: "unsupported", 422: "idempotency_key_reused empty damaged encrypted encoding timeout",
				429: "too_many_messages " + limits, 502: "outcome_unknown bad_wait webmemory_unavailable",
				503: "apiserver_unavailable too_many_chats too_many_runs draining documents_unavailable documents_off",
				507: "history_full storage_full"}},
		{"GET /v1/chats/{chat}/ui/{id}/stream", "Streams the run of a chat that goes on or waits, as useChat resumes it",
			"", nil, ok{200: media{"text/event-stream": parts{}}, 204: nil},
			says{404: "unknown_run", 410: "events_gone", 502: "webmemory_unavailable"}},
		{"POST /v1/chats/{chat}/runs/{run}/stop", "Stops a run", "", nil,
			ok{200: webapi.StopStatus{}, 202: webapi.StopStatus{}}, says{404: "unknown_run", 503: "apiserver_unavailable"}},
		{"POST /v1/chats/{chat}/runs/{run}/resume", "Answers all that a run waits for", answerParams,
			webapi.ResumeRequest{}, answered, says{404: "unknown_run unknown_wait",
				409: "waits_open answered not_waiting " + postRefused, 410: "wait_expired", 429: limits,
				502: "model_failed bad_wait", 503: "apiserver_unavailable"}},
		{"GET /v1/chats/{chat}/runs/{run}/trace", "Gives a run as the list of its steps", "", nil, ok{200: webapi.Trace{}},
			says{404: "unknown_run"}},
		{"POST " + webapi.OneShotPath, "Answers a message without a chat; nothing is kept", answerParams,
			webapi.OneShotRequest{}, answered, says{400: "unknown_agent image_not_supported", 429: limits,
				502: "model_failed run_lost", 503: "apiserver_unavailable too_many_runs draining"}},
		{"GET /v1/approvals", "Lists what runs wait for, what expires first before the others", "status kind cursor limit",
			nil, ok{200: webapi.ApprovalList{}}, nil},
		{"GET /v1/chats", "Lists the chats", "order q cursor limit", nil, ok{200: webapi.ChatList{}}, nil},
		{"GET /v1/chats/{chat}", "Describes a chat: its histories and the run that goes on or waits", "", nil,
			ok{200: webapi.ChatInfo{}}, nil},
		{"PATCH /v1/chats/{chat}", "Sets a chat's title and metadata", "", webapi.ChatChange{},
			ok{200: webapi.ChatEntry{}}, says{404: "unknown_chat", 409: "chat_busy chat_erased"}},
		{"DELETE /v1/chats/{chat}", "Erases a chat with everything that belongs to it", "scan", nil,
			ok{200: webapi.Erased{}}, says{503: "gateway_unavailable apiserver_unavailable"}},
		{"GET /v1/chats/{chat}/recall", "Finds what was said in a chat", "query subagent budget from to asked_at time_zone",
			nil, ok{200: webapi.Recalled{}}, nil},
		{"GET /v1/chats/{chat}/export", "Exports a chat's memory", "", nil,
			ok{200: media{"application/x-ndjson": lines{webapi.ExportLine{}}}}, says{404: "unknown_chat"}},
		{"POST /v1/chats/{chat}/import", "Imports what was exported into a chat without a memory", "",
			media{"application/x-ndjson": lines{webapi.ExportLine{}}}, ok{201: webapi.Imported{}},
			says{409: "chat_not_empty chat_busy chat_erased", 413: "too_large", 507: "storage_full"}},
		{"POST /v1/chats/{chat}/rewind", "Takes back what was said behind a message; it is set aside for a day", "",
			webapi.RewindRequest{}, ok{200: webapi.SetAside{}}, says{404: "unknown_message", 503: "gateway_unavailable"}},
		{"GET /v1/chats/{chat}/set-aside", "Lists what rewinds took back and can be put back", "", nil,
			ok{200: webapi.SetAsides{}}, nil},
		{"POST /v1/chats/{chat}/set-aside/{id}/restore", "Puts back what a rewind took back", "", nil,
			ok{200: webapi.SetAside{}}, says{404: "unknown_set_aside", 409: "messages_since"}},
		{"GET /v1/chats/{chat}/messages/{id}/influence", "Lists the answers that had a message in their prompt", "", nil,
			ok{200: webapi.Influence{}}, says{404: "unknown_chat"}},
		{"GET /v1/chats/{chat}/quarantine", "Lists what no model is shown of a chat", "", nil,
			ok{200: webapi.Quarantine{}}, nil},
		{"POST /v1/chats/{chat}/quarantine", "Keeps messages or sources from models until they are released", "",
			webapi.Quarantine{}, ok{200: webapi.Quarantine{}}, says{404: "unknown_chat"}},
		{"DELETE /v1/chats/{chat}/quarantine", "Releases a message or a source", "entry", nil,
			ok{200: webapi.Quarantine{}}, nil},
		{"POST /v1/chats/{chat}/fork", "Makes a chat that begins with the memory of this one", "", webapi.ForkRequest{},
			ok{201: webapi.Imported{}},
			says{404: "unknown_chat unknown_message", 409: "chat_not_empty chat_busy", 507: "storage_full"}},
		{"GET /v1/collections", "Lists the collections of documents", "", nil, ok{200: CollectionList{}}, documents(nil)},
		{"PUT /v1/collections/{collection}", "Makes a collection", "", nil, ok{200: Collection{}, 201: Collection{}},
			documents(says{400: "bad_collection", 507: "storage_full"})},
		{"GET /v1/collections/{collection}", "Describes a collection", "", nil, ok{200: Collection{}},
			documents(says{404: "unknown_collection"})},
		{"DELETE /v1/collections/{collection}", "Removes a collection with its documents", "", nil, ok{204: nil},
			documents(says{404: "unknown_collection"})},
		{"POST /v1/collections/{collection}/search", "Finds the passages that match a query best", "", api.SearchRequest{},
			ok{200: rag.Result{}}, documents(says{404: "unknown_collection"})},
	}
	for _, of := range []string{"", "/subagents/{name}"} {
		whose, at := "a chat", "/v1/chats/{chat}"+of
		if of != "" {
			whose = "one subagent in a chat"
		}
		out = append(out,
			operation{"GET " + at + "/history", "Reads the history of " + whose, "offset limit archive runs", nil,
				ok{200: webapi.HistoryPage{}}, says{500: "history_damaged"}},
			operation{"DELETE " + at + "/history", "Erases the history of " + whose, "", nil, ok{200: webapi.Erased{}},
				says{503: "gateway_unavailable apiserver_unavailable"}},
			operation{"DELETE " + at + "/messages/{id}", "Redacts a message of " + whose, "scope dry_run", nil,
				ok{200: webapi.Redacted{}},
				says{404: "unknown_message", 413: "too_large", 503: "gateway_unavailable apiserver_unavailable"}},
			operation{"GET " + at + "/notes", "Lists the notes of " + whose, "", nil, ok{200: webapi.NoteList{}}, nil},
			operation{"POST " + at + "/notes", "Adds a note to those of " + whose, "", webapi.NoteRequest{},
				ok{201: memory.Note{}},
				says{404: "unknown_note", 409: "chat_busy chat_erased operators_note", 507: "notes_full storage_full"}},
			operation{"PATCH " + at + "/notes/{id}", "Says yes to a note of " + whose + ", or corrects it", "",
				webapi.NoteChange{}, ok{200: memory.Note{}}, says{404: "unknown_note", 409: "chat_busy chat_erased",
					507: "notes_full"}},
			operation{"DELETE " + at + "/notes/{id}", "Removes a note of " + whose, "", nil, ok{204: nil},
				says{404: "unknown_note", 409: "chat_busy chat_erased"}},
		)
	}
	const notes = "/v1/users/{user}/notes"
	out = append(out,
		operation{"GET " + notes, "Lists the notes of a user", "", nil, ok{200: webapi.NoteList{}}, nil},
		operation{"POST " + notes, "Adds a note to those of a user", "", webapi.NoteRequest{}, ok{201: memory.Note{}},
			says{404: "unknown_note", 507: "notes_full storage_full"}},
		operation{"PATCH " + notes + "/{id}", "Says yes to a note of a user, or corrects it", "", webapi.NoteChange{},
			ok{200: memory.Note{}}, says{404: "unknown_note"}},
		operation{"DELETE " + notes + "/{id}", "Removes a note of a user", "", nil, ok{204: nil},
			says{404: "unknown_note"}},
		operation{"GET /v1/users/{user}/recall", "Finds what was said in the chats that are a user's alone",
			"query budget from to asked_at time_zone", nil, ok{200: webapi.Recalled{}}, says{403: "recall_everywhere_off"}},
		operation{"GET /v1/users/{user}", "Reads the settings of a user", "", nil, ok{200: webapi.UserSettings{}}, nil},
		operation{"PUT /v1/users/{user}", "Sets the time zone of a user", "", webapi.UserSettings{},
			ok{200: webapi.UserSettings{}}, says{507: "storage_full"}},
		operation{"DELETE /v1/users/{user}", "Erases the notes of a user, and chats that are the user's alone", "chats", nil,
			ok{200: webapi.ErasedUser{}}, says{503: "gateway_unavailable apiserver_unavailable"}},
	)
	for _, at := range []string{"/v1/collections/{collection}/documents", "/v1/chats/{chat}/documents"} {
		whose, unknown := "a collection", "unknown_collection"
		if at == "/v1/chats/{chat}/documents" {
			whose, unknown = "one chat", ""
		}
		results := media{"application/x-ndjson": lines{rag.Outcome{}, api.LinesEnd{}}}
		out = append(out,
			operation{"GET " + at, "Lists the documents of " + whose, "cursor limit", nil, ok{200: DocumentList{}},
				documents(says{404: unknown})},
			operation{"POST " + at, "Puts documents of " + whose + ", one in each line", "stream",
				media{"application/x-ndjson": lines{api.Document{}}}, ok{200: results, 207: results},
				documents(says{404: unknown, 507: "storage_full"})},
			operation{"PUT " + at + "/{id}", "Puts a document or a file of " + whose,
				"title source charset origin metadata stream",
				media{"application/json": api.Document{}, "*/*": binary{}},
				ok{200: media{"application/json": rag.Outcome{}, "application/x-ndjson": results["application/x-ndjson"]},
					201: rag.Outcome{}, 207: results},
				documents(says{400: "bad_id bad_text bad_title bad_source bad_metadata", 404: unknown, 409: "conflict",
					413: "too_large", 415: "unsupported_media_type unsupported",
					422: "empty damaged encrypted encoding timeout", 507: "storage_full"})},
			operation{"GET " + at + "/{id}", "Gives a document of " + whose + " with its text", "", nil,
				ok{200: docstore.Document{}}, documents(says{404: "unknown_document " + unknown})},
			operation{"DELETE " + at + "/{id}", "Removes a document of " + whose, "", nil, ok{204: nil},
				documents(says{404: "unknown_document " + unknown})},
		)
	}
	for _, base := range []string{"", "/c/{chat}"} {
		whose := ""
		if base != "" {
			whose = ", of one chat"
		}
		out = append(out,
			operation{"POST " + base + "/v1/chat/completions", "Answers as OpenAI's chat completions do" + whose,
				"Mneme-Chat-Id Idempotency-Key", ChatCompletionRequest{},
				ok{200: media{"application/json": ChatCompletion{}, "text/event-stream": chunks{}}},
				says{400: "image_not_supported part_not_supported bad_id", 404: "model_not_found",
					409: "messages_since not_waiting " + postRefused, 413: "too_large", 415: "unsupported",
					422: "idempotency_key_reused empty damaged encrypted encoding timeout",
					429: "too_many_messages " + limits, 502: "model_failed webmemory_unavailable", 503: "apiserver_unavailable " +
						"too_many_chats too_many_runs draining documents_unavailable documents_off", 507: "history_full storage_full"}},
			operation{"POST " + base + "/v1/responses", "Answers as OpenAI's Responses do" + whose,
				"Mneme-Chat-Id Idempotency-Key", ResponseRequest{},
				ok{200: media{"application/json": object{}, "text/event-stream": text{}}},
				says{400: "image_not_supported part_not_supported bad_id previous_response_not_found",
					404: "model_not_found item_not_found",
					409: "messages_since not_waiting " + postRefused, 413: "too_large", 415: "unsupported",
					422: "idempotency_key_reused empty damaged encrypted encoding timeout",
					429: "too_many_messages " + limits, 502: "model_failed webmemory_unavailable", 503: "apiserver_unavailable " +
						"too_many_chats too_many_runs draining documents_unavailable documents_off", 507: "history_full storage_full"}},
			operation{"GET " + base + "/v1/responses/{response}", "Gives a response as its chat remembers it" + whose,
				"Mneme-Chat-Id", nil, ok{200: object{}}, says{404: "response_not_found"}},
			operation{"DELETE " + base + "/v1/responses/{response}", "Redacts what a response was asked and answered" + whose,
				"Mneme-Chat-Id", nil, ok{200: DeletedResponse{}}, says{404: "response_not_found"}},
			operation{"POST " + base + "/v1/embeddings", "Answers as OpenAI's embeddings do" + whose + ", by the gateway", "",
				object{}, ok{200: object{}}, says{413: "too_large", 503: "gateway_unavailable"}},
			operation{"GET " + base + "/v1/models", "Lists the agents as models", "", nil, ok{200: ModelList{}}, nil},
			operation{"GET " + base + "/v1/models/{model}", "Describes an agent as a model", "", nil, ok{200: Model{}},
				says{404: "model_not_found"}},
		)
	}
	const conversation = "/v1/conversations/{conversation}"
	out = append(out,
		operation{"POST /v1/conversations", "Creates a conversation as OpenAI's Conversations API does", "",
			ConversationItems{}, ok{200: Conversation{}},
			says{409: postRefused, 413: "too_large", 507: "history_full storage_full"}},
		operation{"GET " + conversation, "Describes a conversation", "", nil, ok{200: Conversation{}},
			says{404: "conversation_not_found"}},
		operation{"DELETE " + conversation, "Erases a conversation, which is a chat", "", nil, ok{200: DeletedResponse{}},
			says{404: "conversation_not_found", 503: "gateway_unavailable apiserver_unavailable"}},
		operation{"POST " + conversation + "/items", "Appends items to a conversation", "", ConversationItems{},
			ok{200: ItemList{}}, says{404: "conversation_not_found", 409: postRefused, 413: "too_large",
				507: "history_full storage_full"}},
		operation{"GET " + conversation + "/items", "Lists the items of a conversation", "after limit:items order:items", nil,
			ok{200: ItemList{}}, says{404: "conversation_not_found item_not_found"}},
		operation{"DELETE " + conversation + "/items/{item}", "Redacts the message of an item", "", nil,
			ok{200: Conversation{}}, says{404: "conversation_not_found item_not_found unknown_message"}},
	)
	return append(out,
		operation{"GET /v1/usage", "Gives what calls of models took and cost, by day",
			"by since until chat tenant cursor", nil,
			ok{200: tally.Page{}}, says{409: "usage_off"}},
		operation{"GET /v1/audit", "Gives who did what can hurt others, the oldest first", "cursor limit tenant", nil,
			ok{200: webapi.AuditPage{}}, says{409: "audit_off"}},
		operation{"GET /v1/keys", "Lists the keys of those who may come in, without their texts", "", nil,
			ok{200: webapi.KeyList{}}, says{409: "keys_off"}},
		operation{"POST /v1/keys", "Makes a key, and shows it this once", "", webapi.KeyRequest{},
			ok{201: webapi.MadeKey{}}, says{409: "keys_off"}},
		operation{"GET /v1/keys/self", "Tells what the key of the request may do, and in whose data", "", nil,
			ok{200: webapi.Self{}}, nil},
		operation{"DELETE /v1/keys/{key}", "Ends a key", "", nil, ok{200: access.Key{}},
			says{404: "unknown_key", 409: "keys_off"}},
		operation{"POST /v1/keys/{key}/rotate", "Gives a key another text, and shows it this once", "",
			webapi.RotateRequest{}, ok{200: webapi.MadeKey{}}, says{404: "unknown_key", 409: "keys_off"}},
		operation{"GET /v1/tenants", "Lists the tenants that the key may see", "", nil, ok{200: webapi.TenantList{}},
			says{409: "keys_off"}},
		operation{"GET /v1/tenants/{tenant}/export", "Exports all that a tenant has, one thing in each line", "", nil,
			ok{200: media{"application/x-ndjson": lines{webapi.TenantExport{}}}},
			says{404: "unknown_tenant", 409: "keys_off", 503: "apiserver_unavailable"}},
		operation{"DELETE /v1/tenants/{tenant}", "Ends a tenant's keys and erases some of what it has; ask until it is done",
			"", nil, ok{200: webapi.ErasedTenant{}},
			says{404: "unknown_tenant", 409: "keys_off default_tenant keys_in_file",
				503: "gateway_unavailable apiserver_unavailable"}},
		operation{"POST /mcp", "Takes a message of the Model Context Protocol over streamable HTTP", "", object{},
			ok{200: media{"application/json": object{}, "text/event-stream": text{}}, 202: nil}, nil},
		operation{"GET /openapi.json", "Gives this document", "", nil, ok{200: object{}}, nil},
		operation{"GET /healthz", "Says that the process lives", "", nil, ok{200: telemetry.Readiness{}}, nil},
		operation{"GET /readyz", "Says whether messages should be sent here, and why not", "", nil,
			ok{200: Ready{}, 503: Ready{}}, nil},
		operation{"GET /metrics", "Gives the metrics as Prometheus reads them", "", nil,
			ok{200: media{"text/plain": text{}}}, nil},
	)
}

// documents adds what all routes about documents are refused with.
func documents(more says) says {
	out := says{503: "documents_unavailable documents_off apiserver_unavailable starting"}
	for status, codes := range more {
		if codes != "" {
			out[status] = codes
		}
	}
	return out
}

// common are the codes of refusals that any route may answer with.
var common = says{
	400: "bad_request", 401: "unauthorized", 403: "origin_not_allowed host_not_allowed cross_site forbidden",
	404: "unknown_route",
	405: "method_not_allowed", 408: "body_timeout", 413: "too_large", 415: "unsupported_media_type", 500: "internal",
	503: "memory_unavailable memory_refused shutting_down keys_unavailable", 504: "timeout",
}

// enums are the values of members, by the type's name.
var enums = map[string][]any{
	"MessageRequest.on_busy": {webapi.Queue, webapi.Reject, webapi.Interrupt},
	"UIRequest.trigger":      {"submit-message", "regenerate-message"},
	"UIRequest.on_busy":      {webapi.Queue, webapi.Reject, webapi.Interrupt},
	"Result.outcome":         {event.Completed, event.Stopped},
	"Started.outcome":        {webapi.OutcomeStarted},
	"Waiting.outcome":        {webapi.OutcomeWaiting},
	"RunFinished.outcome":    {event.Completed, event.Stopped, event.Failed},
	"Completion.status":      {event.Completed, event.Failed, event.Stopped, event.MaxSteps},
	"Delegation.calls":       {event.Serial, event.Isolated},
	"Answer.status":          {event.Answered, event.Partial, event.NotFound, event.Underspecified},
	"Origin.from": {memory.FromUser, memory.FromAgent, memory.FromOwn, memory.FromClient, memory.FromDocument,
		memory.FromOutside},
	"Wait.kind":           {event.Approval, event.Question, event.ClientResult},
	"WaitAnswer.decision": {event.Approve, event.Deny, event.Edit},
	"StopStatus.status":   {webapi.Stopping, webapi.Finished},
	"ChatCard.state":      {webapi.ChatBusy, webapi.ChatWaiting},
	"Note.state":          {memory.NoteActive, memory.NoteProposed, memory.NoteSuperseded},
	"Note.by":             {memory.ByUser, memory.ByModel, memory.ByTool, memory.ByDocument, memory.ByOperator},
	"Outcome.status": {rag.OutcomeNew, rag.OutcomeChanged, rag.OutcomeUnchanged, rag.OutcomeRefused,
		rag.OutcomeStale},
}

// objects are members that are any JSON object.
var objects = []string{"Wishes.response_format", "ChatCompletionRequest.response_format", "ChatFunction.parameters",
	"ResponseRequest.text", "ResponseTool.parameters", "TenantExport.metadata"}

// eithers are members of one of several types. Not as a list of types: generators of clients want oneOf.
var eithers = map[string][]string{
	"MessageRequest.chat_id":            {"string", "integer"},
	"ForkRequest.as":                    {"string", "integer"},
	"ChatCompletionRequest.tool_choice": {"string", "object"},
	"ResponseRequest.input":             {"string", "array"},
	"ResponseRequest.conversation":      {"string", "object"},
	"ResponseRequest.tool_choice":       {"string", "object"},
}

// open are the routes that want no key.
var open = []string{"GET /openapi.json", "GET /healthz", "GET /readyz", "GET /metrics"}

// said are descriptions of members that have comments for Go alone.
var said = map[string]string{
	"SearchRequest.where": "which documents, by their metadata, such as `{\"lang\": \"en\", \"date\": {\"gte\": \"2024-01-01\"}}`; " +
		"see docs/retrieval.md",
	"Message.failure": "code of the error that stands in place of an answer",
	"Origin.from": "whose words it is: the person's who posts, a model's, a tool's of this service, a client's beside its message, " +
		"a document's, or those of another tool or of what a person pasted; of several the last in this order",
	"Message.id":              "`<run_id>.<seq>` of its event; never sent to a model",
	"MessageRequest.metadata": "stored with the message and given back with it: at most 16 pairs of 64 and 512 bytes",
	"ChatChange.metadata":     "takes the place of all pairs; at most 16, of 64 and 512 bytes",
	"SourceFile.loader":       "what read the file",
	"RewindRequest.to":        "id of the last message that stays; null for none",
}

// unseen are members that clients never see.
var unseen = map[string][]string{"RunWaiting": {"state"}}

// param is a parameter of the query, or one that begins with a capital letter: a header.
type param struct {
	kind    string // string, integer or boolean
	text    string
	allowed []any
}

// params are those of the query and of headers, and of paths in braces.
var params = map[string]param{
	"{chat}":         {"string", "the chat: 1 to 128 characters of `A-Z a-z 0-9 . _ : @ + = -`", nil},
	"{key}":          {"string", "the key's id: the part of its text between the first two `_`", nil},
	"{tenant}":       {"string", "the tenant: 1 to 32 characters of `a-z 0-9 -`", nil},
	"{user}":         {"string", "the user: 1 to 128 characters of `A-Z a-z 0-9 . _ : @ + = -`", nil},
	"{run}":          {"string", "the run's id, as `Mneme-Run-Id` and its events have it", nil},
	"{name}":         {"string", "the subagent: 1 to 64 characters of `a-z 0-9 _ -`", nil},
	"{collection}":   {"string", "the collection: 1 to 64 characters of `a-z 0-9 _ -`", nil},
	"{model}":        {"string", "`mneme`, or `mneme/` and the name of a subagent, unescaped", nil},
	"{response}":     {"string", "the response's id", nil},
	"{conversation}": {"string", "the chat's id", nil},
	"{item}":         {"string", "the item's id", nil},
	"after":          {"string", "the id of the item before the page", nil},
	"limit:items":    {"integer", "how many at most, 1 to 100; 20", nil},
	"order:items":    {"string", "from the newest or from the oldest; desc", []any{"desc", "asc"}},
	"Mneme-Chat-Id":  {"string", "the chat; `openai.chat_headers` are other names of it", nil},
	"order":          {"string", "the chats that were used last first, with titles: all, or those that are pinned", []any{"used", "pinned"}},
	"q":              {"string", "a part of the title or of the id", nil},
	"{id}":           {"string", "the id; that of a document may hold slashes, also unescaped", nil},
	"Accept":         {"string", "`text/event-stream` for the run's events, live", nil},
	"Prefer":         {"string", "`respond-async` for an answer as soon as the run has begun", nil},
	"Idempotency-Key": {"string", "names the post: one that repeats it joins its run, or gets its kept answer; at most 255 " +
		"bytes of printable ASCII", nil},
	"Last-Event-ID": {"integer", "number of the last event that was seen", nil},
	"last_event_id": {"integer", "as the header Last-Event-ID", nil},
	"time_zone": {"string", "the IANA zone of days and of \"yesterday\", such as `Europe/Berlin`; the one of the user in the path, " +
		"or UTC", nil},
	"by": {"string", "what a row stands for; tenant",
		[]any{"key", "tenant", "user", "chat", "subagent", "model"}},
	"since":    {"string", "the first day: so many days ago such as 7d, or a date; 30d", nil},
	"until":    {"string", "the last day; 0d", nil},
	"chat":     {"string", "only the chat with this id, by chat", nil},
	"tenant":   {"string", "another tenant, for admins of the default one", nil},
	"cursor":   {"string", "`next_cursor` of the page before", nil},
	"limit":    {"integer", "how many at most, 1 to 1000; 100", nil},
	"offset":   {"integer", "of the first message; a negative one counts from the end", nil},
	"archive":  {"boolean", "count and give what trims cut off too, the oldest first", nil},
	"runs":     {"boolean", "give the views of the runs that made the messages", nil},
	"status":   {"string", "what was answered is in the events of its run", []any{"open"}},
	"kind":     {"string", "of the waits", []any{event.Approval, event.Question, event.ClientResult}},
	"scan":     {"boolean", "look through all keys of Redis for what no index names", nil},
	"chats":    {"boolean", "erase the chats that were posted under the user alone, too", nil},
	"query":    {"string", "what to look for, in words or as a question", nil},
	"subagent": {"string", "whose memory alone is searched", nil},
	"budget":   {"integer", "tokens of text, 1 to 32000; 800", nil},
	"from":     {"string", "a time as `2024-03-05`, RFC 3339 or Unix seconds", nil},
	"to":       {"string", "the first moment that is too late, as `from`", nil},
	"asked_at": {"string", "what \"yesterday\" is relative to, as `from`", nil},
	"scope":    {"string", "what the message's run wrote in every history, or the message alone", []any{webapi.Exchange, webapi.Message}},
	"dry_run":  {"boolean", "only answer", nil},
	"entry":    {"string", "the id of a message, or the name of a source", nil},
	"stream":   {"boolean", "send each result as soon as it is there, and then how it ended", nil},
	"title":    {"string", "of the document", nil},
	"source":   {"string", "where the document came from", nil},
	"charset":  {"string", "the encoding of a file's text, such as `windows-1250`", nil},
	"origin":   {"string", "what the document is kept in step with", nil},
	"metadata": {"object", "of a file's document, as `metadata.KEY=VALUE` for each", nil},
}
