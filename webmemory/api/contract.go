// Package api is the contract of webmemory's public routes, and a client of them for commands, bots, tools and tests:
// what a request holds, what an answer holds, where they are, and the codes of refusals. Errors are those of
// apiserver/api: every refusal is an *api.Problem, also inside of an event stream. An answer to a message is a run;
// its events are server-sent events, each with the number by which a broken stream is resumed.
//
// It owns nothing but a Client's connections. A Client never gives an event twice, also where a stream broke off.
package api

import (
	"encoding/json"
	"net/url"
	"strings"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// Master is the agent_version that asks the master, and the default.
const Master = "master"

// What on_busy may say of a message to a chat that has another one in hand.
const (
	Queue     = "queue"     // wait behind it and behind all that wait; the default
	Reject    = "reject"    // refuse the message
	Interrupt = "interrupt" // stop it and go before all that wait
)

// Headers of a post and of its answer.
const (
	// IdempotencyKey names a message: a post that repeats one does not run it again.
	// Printable ASCII of at most MaxKey bytes.
	IdempotencyKey = "Idempotency-Key"
	MaxKey         = 255
	// RunID is the id of the run that answers the post.
	RunID = "Mneme-Run-Id"
)

// Codes of the Problems that are webmemory's own. Retryable ones say so themselves.
const (
	CodeBadRequest        = "bad_request"
	CodeUnknownRoute      = "unknown_route"
	CodeMethodNotAllowed  = "method_not_allowed"
	CodeTooLarge          = "too_large"
	CodeUnknownAgent      = "unknown_agent"
	CodeKeyReused         = "idempotency_key_reused" // with another message
	CodeTooManyMessages   = "too_many_messages"      // wait for this chat
	CodeRateLimited       = event.OwnRate            // of a key, a tenant or a user
	CodeTooManyChats      = "too_many_chats"         // are busy
	CodeStorageFull       = "storage_full"           // the tenant's limit is reached
	CodeChatBusy          = "chat_busy"              // and the message was not to wait, or waited in vain
	CodeChatErased        = "chat_erased"            // while the message waited
	CodeUnknownChat       = "unknown_chat"           // it has no memory
	CodeUnknownMessage    = "unknown_message"        // no message of the history has the id
	CodeChatNotEmpty      = "chat_not_empty"         // an import would mix two memories
	CodeUnknownNote       = "unknown_note"
	CodeOperatorsNote     = "operators_note"        // a model would replace it
	CodeNotesFull         = "notes_full"            // some have to be deleted
	CodeUnknownSetAside   = "unknown_set_aside"     // a rewind of long ago, or of another chat
	CodeMessagesSince     = "messages_since"        // the rewind
	CodeTurnMoved         = "turn_moved"            // another process has the chat's lease
	CodeHistoryFull       = "history_full"          // it has to be deleted, or a part of it
	CodeHistoryDamaged    = "history_damaged"       // what is stored is no history
	CodeMemoryUnavailable = "memory_unavailable"    // Redis is away, or takes no writes
	CodeMemoryRefused     = "memory_refused"        // Redis answers, and refuses what the memory needs
	CodeAgentsUnavailable = "apiserver_unavailable" // the agents cannot be reached
	CodeOutcomeUnknown    = "outcome_unknown"       // the message may be answered or not
	CodeShuttingDown      = "shutting_down"         // another process may take the message
	CodeClientLeft        = "client_left"           // said in logs only
	CodeTimeout           = "timeout"               // of a request
	CodeBadWait           = "bad_wait"              // the agents wanted to wait for what cannot be kept
	CodeNotWaiting        = "not_waiting"           // the run waits for nothing, or for nothing more
	CodeUsageOff          = "usage_off"             // the service is not told where usage is counted
	CodeAuditOff          = "audit_off"             // the service keeps no log of who did what
	CodeWaitsOpen         = "waits_open"            // not all of them were answered
	CodeAnswered          = "answered"              // otherwise, before
	CodeUnknownWait       = "unknown_wait"          // the run never waited for it
	CodeWaitExpired       = "wait_expired"          // and counts as denied
	CodeRunFailed         = "run_failed"            // and its run did not say how
	CodeInternal          = event.Internal          // the log says what
	CodeUnauthorized      = "unauthorized"          // no key, or a wrong one
	CodeForbidden         = "forbidden"             // the key has no right to it
	CodeKeysUnavailable   = "keys_unavailable"      // they cannot be checked
	CodeKeysOff           = "keys_off"              // the service asks for none
	CodeUnknownKey        = "unknown_key"           // or another tenant's
)

// MessageRequest is the body of POST /v1/chats/{chat}/messages.
type MessageRequest struct {
	Message      string       `json:"message"`                 // at most memory.MaxMessage bytes
	AgentVersion string       `json:"agent_version,omitempty"` // Master or a subagent's name; empty for Master
	Stream       bool         `json:"stream,omitempty"`        // as Accept: text/event-stream
	ChatID       *memory.Chat `json:"chat_id,omitempty"`       // required by POST /chat; elsewhere the path's, if given
	OnBusy       string       `json:"on_busy,omitempty"`       // Queue, Reject or Interrupt; empty for Queue
	// User is whom the message is of, for tools that are told; at most 255 bytes.
	User string `json:"user,omitempty"`
	// TimeZone is the IANA zone for "yesterday" and the days of notes. If it is empty, the stored zone of User is used, or
	// UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Tools are the client's own: a run that calls one waits for its result.
	Tools []ClientTool `json:"tools,omitempty"`
	api.Wishes
	// Instructions stand behind the prompt of whoever answers, for this run alone; at most MaxInstructions bytes.
	Instructions string `json:"instructions,omitempty"`
	// Images come with the message, each the text of a data: URL in base64, of PNG, JPEG, GIF or WebP, or of an https
	// address; see memory.MaxImages. Whoever answers sees them, for this run alone; what is stored of them are references.
	Images []string `json:"images,omitempty"`
	// ImagesBefore are images of the user's messages before, the oldest first, which whoever answers sees once more;
	// nothing is stored of them, and a model that takes none does without. The bounds are those of both together.
	ImagesBefore []string `json:"images_before,omitempty"`
	// Pasted are the parts of Message that the user pasted: from the first code point to the one behind the last. They
	// count as the words of others. Nil if the client does not know.
	Pasted []memory.Span `json:"pasted,omitzero"`
	// Metadata is stored with the message and given back with it; see CheckMetadata.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Context are messages that take the place of the history in the prompt of the agent that answers, for this run alone,
	// as of a OneShotRequest. None of them is stored.
	Context []json.RawMessage `json:"context,omitempty"`
	// ParentID is the id of the message that this one follows, "" for none: what stands behind that is taken back
	// first, as by a rewind, under the turn in which the message is taken. Nil: behind all there is.
	ParentID *string `json:"after,omitempty"`
	// IfLast is the id of the chat's last message, "" for none: if another one stands there when the message has
	// its turn, it is refused with CodeMessagesSince. Nil: whatever stands there.
	IfLast *string `json:"if_last,omitempty"`
}

// UserSettings is the body of PUT /v1/users/{user} and answers it and GET.
type UserSettings struct {
	TimeZone string `json:"time_zone"` // IANA name, of posts that have none; "" for UTC
}

// ChatRequest is the body of POST /chat, which always streams.
type ChatRequest struct {
	MessageRequest
	// CustomSystemPrompt is Instructions by the name that the service had for them which this one replaces; a body has
	// one of the two.
	CustomSystemPrompt string `json:"custom_system_prompt,omitempty"`
}

// ClientTool is a tool of the client's own.
type ClientTool = api.ClientTool

// OutcomeWaiting is the outcome of a run that goes on when its waits are answered.
const OutcomeWaiting = "waiting"

// Waiting answers, with 202, a message whose run waits for somebody.
type Waiting struct {
	Outcome string       `json:"outcome"` // OutcomeWaiting
	RunID   string       `json:"run_id"`
	Pending []event.Wait `json:"waits"`
}

// ResumeRequest is the body of POST …/runs/{run}/resume, which is answered as a message is. It
// answers all that the run waits for.
type ResumeRequest struct {
	Answers []event.WaitAnswer `json:"answers"`
	Stream  bool               `json:"stream,omitempty"` // as of a MessageRequest
}

// ApprovalList answers GET /v1/approvals?status=open: what runs wait for, what expires first
// before the others.
type ApprovalList struct {
	Approvals  []ApprovalEntry `json:"approvals"`
	NextCursor string          `json:"next_cursor"` // empty at the end
}

// ApprovalEntry is a wait of an ApprovalList.
type ApprovalEntry struct {
	ChatID memory.Chat `json:"chat_id"`
	RunID  string      `json:"run_id"`
	event.Wait
}

// Result answers a message whose client waits for the end of its run.
type Result struct {
	RunID     string           `json:"run_id"`
	Content   string           `json:"content"`
	Citations []event.Citation `json:"citations"`
	Answers   []Finding        `json:"answers,omitempty"`
	Usage     event.Usage      `json:"usage"`
	Outcome   string           `json:"outcome"` // event.Completed or event.Stopped; a failed run is a Problem
	Partial   bool             `json:"partial,omitempty"`

	FinishReason string `json:"finish_reason,omitempty"` // that of the answer's memory.Message
}

// OutcomeStarted is the outcome of a run with a client that does not wait for its end.
const OutcomeStarted = "started"

// Started answers a message whose client prefers not to wait ("Prefer: respond-async").
type Started struct {
	Outcome string `json:"outcome"` // OutcomeStarted
	RunID   string `json:"run_id"`
	Events  string `json:"events"` // the path at which the run's events are read
}

// Finding is what a subagent that reads documents concluded in one delegation.
type Finding struct {
	Subagent memory.Agent `json:"subagent"`
	CallID   string       `json:"call_id"`
	*event.Answer
}

// ChatList answers GET /v1/chats.
type ChatList struct {
	Chats      []ChatEntry `json:"chats"`
	NextCursor string      `json:"next_cursor"` // empty at the end
}

// ChatEntry is one chat of a ChatList.
type ChatEntry struct {
	ChatID    memory.Chat `json:"chat_id"`
	*ChatCard             // nil where the list is in no order
}

// ChatCard is what a list in the order of use says of a chat.
type ChatCard struct {
	Title    string            `json:"title"`           // as set, else the beginning of its first message
	Used     float64           `json:"used"`            // Unix seconds of its last run, 0 if that is not known
	Messages int               `json:"messages"`        // of its own history, with those in its archive
	State    string            `json:"state,omitempty"` // ChatBusy, ChatWaiting or empty
	Pinned   bool              `json:"pinned,omitempty"`
	Asleep   bool              `json:"asleep,omitempty"` // it is in the cold store; the next request for it wakes it
	Metadata map[string]string `json:"metadata,omitempty"`
}

// What the state of a ChatCard says beside nothing.
const (
	ChatBusy    = "busy"    // a run goes on
	ChatWaiting = "waiting" // one waits for somebody
)

// ChatChange is the body of PATCH /v1/chats/{chat}, which answers with the ChatEntry. What is left out stays.
type ChatChange struct {
	Title    *string            `json:"title,omitempty"`    // at most MaxTitle bytes; "" for the beginning of its first message
	Metadata *map[string]string `json:"metadata,omitempty"` // takes the place of all pairs
	Pinned   *bool              `json:"pinned,omitempty"`   // the chat is listed by order=pinned, too
	// Generated says that the title was made from the chat's first message: it stands where the beginning of that message
	// does, goes with it, and a title that was set hides it.
	Generated bool `json:"made,omitempty"`
}

// MaxTitle bounds a chat's title, in bytes.
const MaxTitle = 512

// ChatInfo answers GET /v1/chats/{chat}.
type ChatInfo struct {
	ChatID    memory.Chat   `json:"chat_id"`
	Title     string        `json:"title,omitempty"` // as of a ChatCard
	Histories []HistoryInfo `json:"histories"`
	Run       string        `json:"run,omitempty"`     // id of the run under way, empty for none
	Waiting   *Waiting      `json:"waiting,omitempty"` // the run that waits for somebody; nil for none
}

// HistoryInfo describes a history without its messages.
type HistoryInfo struct {
	Key      string       `json:"key"`
	Subagent memory.Agent `json:"subagent"` // empty for the chat's own
	Messages int          `json:"messages"`
	Bytes    int          `json:"bytes"`
	// What trims cut off it, and is kept in its archive.
	Archived      int `json:"archived,omitempty"` // messages
	ArchivedBytes int `json:"archived_bytes,omitempty"`
	Notes         int `json:"notes,omitempty"`
}

// NoteList answers GET …/notes.
type NoteList struct {
	Notes []memory.Note `json:"notes"` // in order of creation, in whatever state
}

// NoteRequest is the body of POST …/notes, which answers with the memory.Note.
type NoteRequest struct {
	Text     string `json:"text"`
	Replaces string `json:"replaces,omitempty"` // id of the note that it supersedes
}

// NoteChange is the body of PATCH …/notes/{id}, which answers with the memory.Note. What is
// left out stays.
type NoteChange struct {
	State string `json:"state,omitempty"` // memory.NoteActive
	Text  string `json:"text,omitempty"`
}

// ErasedUser answers DELETE /v1/users/{user}.
type ErasedUser struct {
	Notes    int           `json:"notes"`           // of the user that this request erased
	Chats    []memory.Chat `json:"chats,omitempty"` // that it erased: all of each was posted under this user
	Retained []memory.Chat `json:"kept,omitempty"`  // that stay: others have posted there too
	// Failed are chats that could not be read, so that it is unknown whether another user posted in them. They count as
	// left. Restore or erase each of them.
	Failed []memory.Chat `json:"failed,omitempty"`
	// Remaining is the number of the user's chats that are not erased yet. Repeat the request until it counts only Failed.
	Remaining int `json:"left"`
}

// Scopes of a redaction.
const (
	Exchange = "exchange" // the message's run, in every history of the chat; the default
	Message  = "message"  // the message alone
)

// Redacted answers DELETE …/messages/{id}.
type Redacted struct {
	Redacted []MessageRef `json:"redacted"`          // messages that say nothing any more
	Partial  bool         `json:"partial,omitempty"` // a damaged part of an archive could not be searched
}

// MessageRef names a message of a chat.
type MessageRef struct {
	Subagent memory.Agent `json:"subagent"` // whose history it is in; empty for the chat's own
	ID       string       `json:"id"`
}

// Recalled answers GET …/recall.
type Recalled = memory.Recalled

// ExportLine is a line of GET …/export, and of the body of POST …/import.
type ExportLine struct {
	Subagent memory.Agent    `json:"subagent,omitempty"` // whose history it is of; empty for the chat's own
	Message  json.RawMessage `json:"message,omitempty"`  // as stored, with its id
	// Missing stands where messages should: a part of the archive that is damaged or gone. An import passes it over.
	Missing *HistoryGap  `json:"missing,omitempty"`
	Note    *memory.Note `json:"note,omitempty"` // behind all messages
	// Quarantine is the chat's, in a line of its own.
	Quarantine memory.Quarantine `json:"quarantine,omitempty"`
	// Messages stands in the last line, alone: how many lines have a message. An import
	// that is not whole is refused by it.
	Messages *int `json:"messages,omitempty"`
	Notes    int  `json:"notes,omitempty"` // beside it, how many lines have a note
}

// Imported answers POST …/import.
type Imported struct {
	Messages  int `json:"messages"`
	Histories int `json:"histories"`
	Notes     int `json:"notes,omitempty"` // all of them proposed
	// Missing is how many messages of a fork's source are in parts of its archive that are damaged or gone.
	Missing int `json:"missing,omitempty"`
}

// RewindRequest is the body of POST …/rewind.
type RewindRequest struct {
	Target *string `json:"to"` // id of the last message that stays; nil for none
}

// SetAside is what a rewind took back: it answers POST …/rewind and …/set-aside/{id}/restore, and is an
// entry of SetAsides.
type SetAside struct {
	ID        string            `json:"id,omitempty"` // empty if there was nothing to take back
	TS        float64           `json:"ts"`           // Unix seconds of the rewind
	Until     float64           `json:"until,omitempty"`
	Target    *string           `json:"to"`
	Messages  int               `json:"messages"`
	Histories []SetAsideHistory `json:"histories"`
}

// SetAsideHistory is how much of one history is set aside.
type SetAsideHistory struct {
	Subagent memory.Agent `json:"subagent"` // empty for the chat's own
	Messages int          `json:"messages"`
}

// SetAsides answers GET …/set-aside, the oldest first.
type SetAsides struct {
	SetAside []SetAside `json:"set_aside"`
}

// ForkRequest is the body of POST …/fork.
type ForkRequest struct {
	As     memory.Chat `json:"as"`
	LastID string      `json:"at,omitempty"` // id of the last message that goes along; empty for all
}

// HistoryPage answers GET …/history: a part of a history, the messages as stored.
type HistoryPage struct {
	Key        string            `json:"key"`
	Total      int               `json:"total"` // messages of the whole history
	Offset     int               `json:"offset"`
	Messages   []json.RawMessage `json:"messages"`
	NextOffset int               `json:"next_offset,omitempty"` // 0 at the end
	Stale      bool              `json:"stale,omitempty"`       // Redis is away; this is what was known
	// Damaged are parts of the archive that cannot be read: their messages count, and are missing in Messages.
	Damaged []HistoryGap `json:"damaged,omitempty"`
	// Runs are those that made the messages, by their ids, where they were asked for with runs=true and are known.
	Runs map[string]*RunView `json:"runs,omitempty"`
}

// HistoryGap is a part of a HistoryPage's range that is damaged.
type HistoryGap struct {
	Offset   int `json:"offset"`
	Messages int `json:"messages"` // 0 where nobody knows how many there were
}

// Erased answers the DELETE of a chat or of a history with the keys that were erased.
type Erased struct {
	Erased  []string `json:"erased"`
	Nothing bool     `json:"-"` // there was nothing, also beside the histories
}

// StopStatus answers POST …/runs/{run}/stop.
type StopStatus struct {
	RunID  string `json:"run_id"`
	Status string `json:"status"` // Stopping or Finished
}

// What a StopStatus says.
const (
	Stopping = "stopping" // the run's events tell when it has ended
	Finished = "over"
)

// Paths of routes that belong to no chat.
const (
	chatsPath       = "/v1/chats"
	CollectionsPath = "/v1/collections"
)

// ChatPath is where a chat is.
func ChatPath(chat memory.Chat) string { return chatsPath + "/" + url.PathEscape(chat.ID()) }

// MessagesPath is where messages to a chat are posted.
func MessagesPath(chat memory.Chat) string { return ChatPath(chat) + "/messages" }

// RunPath is where a run is: its events below /events, its end by a post to /stop.
func RunPath(chat memory.Chat, run string) string {
	return ChatPath(chat) + "/runs/" + url.PathEscape(run)
}

// ResumePath is where a run that waits is answered.
func ResumePath(chat memory.Chat, run string) string { return RunPath(chat, run) + "/resume" }

// ApprovalsPath lists what runs wait for.
const ApprovalsPath = "/v1/approvals"

// MessagePath is where a message of a history is redacted.
func MessagePath(key memory.Key, id string) string {
	return strings.TrimSuffix(HistoryPath(key), "/history") + "/messages/" + url.PathEscape(id)
}

// HistoryPath is where a history is read and erased.
func HistoryPath(key memory.Key) string { return keyPath(key) + "/history" }

// NotesPath is where the notes of a history are.
func NotesPath(key memory.Key) string { return keyPath(key) + "/notes" }

// userPath is where what is known of a user is erased.
func userPath(u memory.User) string { return "/v1/users/" + url.PathEscape(u.ID()) }

// UserNotesPath is where the notes of a user are.
func UserNotesPath(u memory.User) string { return userPath(u) + "/notes" }

func keyPath(key memory.Key) string {
	if key.Agent() == "" {
		return ChatPath(key.Chat())
	}
	return ChatPath(key.Chat()) + "/subagents/" + url.PathEscape(string(key.Agent()))
}
