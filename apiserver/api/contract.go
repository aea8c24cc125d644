package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"mneme/memory"
	"mneme/memory/event"
)

// RunRequest asks for one run. Contexts are stored messages, passed on as they are.
type RunRequest struct {
	RunID            string                             `json:"run_id"`  // 1–64 of A-Z a-z 0-9 _ -
	Message          string                             `json:"message"` // empty where Context ends with results of tools
	ChatID           memory.Chat                        `json:"chat_id"`
	Context          []json.RawMessage                  `json:"context"`           // the chat's window, without Message
	SubagentContexts map[memory.Agent][]json.RawMessage `json:"subagent_contexts"` // the subagents' windows
	AgentVersion     string                             `json:"agent_version"`     // empty for the master
	ConversationID   string                             `json:"conversation_id,omitempty"`
	// RetryOf is the failed run with the message that this one tries once more: Context ends
	// with it, and with nothing but failures behind. Empty for a run of its own.
	RetryOf string `json:"retry_of,omitempty"`
	// MemoryReset says that the memory lost data since the chat's run before, which this
	// one is to tell.
	MemoryReset bool `json:"memory_reset,omitempty"`
	// Memory is how the agents search what the windows do not show; nil where they cannot.
	Memory *MemoryAccess `json:"memory,omitempty"`
	RunNotes
	// User is the message's user, for tools that are told; empty if it is not known.
	User string `json:"user,omitempty"`
	// TimeZone is the user's IANA zone for "yesterday" and the days of notes; empty or unknown for UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Tools are the client's own. The master may call them; the run waits for what they return.
	Tools []ClientTool `json:"tools,omitempty"`
	Wishes
	// Approved names tools that were approved in this chat for good, see approve: first_in_chat.
	Approved []string `json:"approved,omitempty"`
	// Instructions stand behind the prompt of the agent that answers, for this run alone; at most MaxInstructions bytes.
	Instructions string `json:"instructions,omitempty"`
	// Pasted are the parts of Message that were pasted, in code points; nil if the client does not say. See memory.Own.
	Pasted []memory.Span `json:"pasted,omitzero"`
	// Metadata is stored with the message; see CheckMetadata.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Images are those of Message, which says that they are there; ImagesBefore those of the user's messages before
	// it, the oldest first. See CheckImages.
	Images       []string `json:"images,omitempty"`
	ImagesBefore []string `json:"images_before,omitempty"`
	// CanWait says that the run may wait for results of Tools although there is no Memory: the client that posts it keeps
	// it.
	CanWait bool `json:"waits,omitempty"`
	// Bare has the master's model alone answer: without its prompt, its tools and subagents.
	Bare bool `json:"bare,omitempty"`
	// Resume goes on with a run that waits; the rest of the request is as it was then, and only
	// RunID, ChatID, ConversationID, Memory and Approved are read of it. Nil for a run that begins.
	Resume *Resume `json:"resume,omitempty"`
}

// ClientTool is a tool that the client of a run has: the run waits for its result.
type ClientTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of an object
}

// Resume is what a run that waits goes on from.
type Resume struct {
	Events  []json.RawMessage  `json:"events"` // all, from the first to the event.RunWaiting
	State   json.RawMessage    `json:"state"`  // of that
	Answers []event.WaitAnswer `json:"answers"`
	// Turn is the fencing token of the caller. What a later one began takes the place of what
	// an earlier one did, never the other way round.
	Turn int64 `json:"turn"`
}

// MarshalJSON writes histories that hold nothing as [], also where a sender of an
// older version wrote null.
func (r RunRequest) MarshalJSON() ([]byte, error) {
	type plain RunRequest
	r.Context = append([]json.RawMessage{}, r.Context...)
	subagents := make(map[memory.Agent][]json.RawMessage, len(r.SubagentContexts))
	for name, history := range r.SubagentContexts {
		subagents[name] = append([]json.RawMessage{}, history...)
	}
	r.SubagentContexts = subagents
	return memory.EncodeJSON(plain(r))
}

// Validate says what is wrong with the request, as a *Problem.
func (r RunRequest) Validate() error {
	if !ValidRunID(r.RunID) {
		return badRequest("run_id must be 1 to 64 characters of A-Z a-z 0-9 _ -.")
	}
	if _, err := r.ChatID.Tenant().Chat(r.ChatID.ID()); err != nil {
		return BadRequest(fmt.Errorf("bad chat_id: %w", err))
	}
	if r.ConversationID != "" {
		if err := ValidConversation(r.ConversationID); err != nil {
			return err
		}
	}
	if r.Resume != nil {
		return r.Resume.validate()
	}
	masters := r.AgentVersion == "" || r.AgentVersion == "master"
	if strings.TrimSpace(r.Message) == "" && (!masters || !endsWithResults(r.Context)) {
		return badRequest("message is empty: say what the run is to answer.")
	}
	if r.Bare && (!masters || len(r.Tools) > 0) {
		return badRequest("bare goes with the master, and with no tools.")
	}
	if len(r.Message) > memory.MaxMessage {
		return tooLarge(fmt.Sprintf("message has %d bytes, at most %d are taken.", len(r.Message), memory.MaxMessage))
	}
	for name := range r.SubagentContexts {
		if _, err := memory.ParseAgent(string(name)); err != nil {
			return BadRequest(fmt.Errorf("bad subagent_contexts: %w", err))
		}
	}
	for name := range r.SubagentNotes {
		if _, err := memory.ParseAgent(string(name)); err != nil {
			return BadRequest(fmt.Errorf("bad subagent_notes: %w", err))
		}
	}
	if r.RetryOf != "" && !ValidRunID(r.RetryOf) {
		return badRequest("retry_of must be the id of a run: 1 to 64 characters of A-Z a-z 0-9 _ -.")
	}
	if len(r.User) > maxUser {
		return badRequest(fmt.Sprintf("user has %d bytes, at most %d are taken.", len(r.User), maxUser))
	}
	if err := CheckInstructions("instructions", r.Instructions); err != nil {
		return err
	}
	if err := memory.CheckSpans(r.Message, r.Pasted); err != nil {
		return badRequest(fmt.Sprintf("pasted %v.", err))
	}
	if err := CheckMetadata(r.Metadata); err != nil {
		return err
	}
	if err := CheckWishes(r.Wishes, r.Tools); err != nil {
		return err
	}
	return ValidateTools(r.Tools)
}

// endsWithResults says whether the last message is the result of a tool.
func endsWithResults(context []json.RawMessage) bool {
	if len(context) == 0 {
		return false
	}
	last, err := memory.Decode(context[len(context)-1:])
	return err == nil && last[0].Role == memory.RoleTool
}

// maxUser bounds RunRequest.User, in bytes.
const maxUser = 255

var (
	runID          = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	conversationID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
)

// ValidConversation says what is wrong with the id of a conversation; the gateway
// takes no other.
func ValidConversation(id string) error {
	if !conversationID.MatchString(id) {
		return badRequest("conversation_id must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	}
	return nil
}

// ValidRunID says whether a run may have this id.
func ValidRunID(id string) bool { return runID.MatchString(id) }

// RunAccepted answers a RunRequest. Events is an absolute URL of the very process
// that holds the run.
type RunAccepted struct {
	RunID  string `json:"run_id"`
	Events string `json:"events"`
}

// ChatErased answers DELETE /v1/chats/{chat}.
type ChatErased struct {
	Documents bool `json:"documents"` // it had some
}

// SubagentInfo describes one subagent that the apiserver has.
type SubagentInfo struct {
	Name        memory.Agent `json:"name"`
	Description string       `json:"description"`
	Calls       string       `json:"calls"`                 // event.Serial or event.Isolated
	Collections []string     `json:"collections,omitempty"` // of documents, that it searches
}

// SubagentList is the answer to GET /v1/subagents.
type SubagentList struct {
	Subagents []SubagentInfo `json:"subagents"`
}
