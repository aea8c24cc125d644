package memory

import "encoding/json"

// RecallRequest is the body of POST {api.MemoryAccess.URL}/recall.
type RecallRequest struct {
	// Subagent is the agent that asks; empty for the master. A subagent's own memory of the
	// chat is searched, for the master the chat's and those of its subagents.
	Subagent Agent  `json:"subagent,omitempty"`
	Query    string `json:"query"`
	From     string `json:"from,omitempty"` // see api.ReadTime; empty for no bound
	To       string `json:"to,omitempty"`   // the first moment that is too late
	// TimeZone is the IANA zone of the words for times in Query; empty for UTC.
	TimeZone string `json:"time_zone,omitempty"`
	Budget   int    `json:"budget,omitempty"` // tokens of the hits; 0 for the default
	Overhead int    `json:"overhead,omitempty"`
	// Automatic is a search for a prompt that no agent asked for: in the asker's own memory
	// alone, for what its window does not show, the oldest first.
	Automatic bool `json:"automatic,omitempty"`
	Needed    bool `json:"needed,omitempty"` // finds something only for a query that seems to need it
	// Everywhere searches what was said in all chats in which the run's user was alone, and not the memories of
	// subagents. It has no effect for a run without a user, and in a chat of several users.
	Everywhere bool `json:"everywhere,omitempty"`
}

// Recalled is the result of a search of a chat's memory.
type Recalled struct {
	Hits []RecallHit `json:"hits"`
	// Partial: some messages were not searched. The oldest ones are searched a moment later.
	Partial bool `json:"partial"`
	// Unread are chats of a user that could not be searched, because their copy is damaged or unavailable.
	Unread []string `json:"unread,omitempty"`
}

// RecallHit is a message that was found.
type RecallHit struct {
	ID       string   `json:"id"`
	TS       float64  `json:"ts"` // Unix seconds
	Role     string   `json:"role"`
	Name     string   `json:"name,omitempty"`
	Chat     string   `json:"chat,omitempty"` // in which it was said; empty for the one that was asked about
	Subagent Agent    `json:"subagent"`       // whose memory it is; empty for the chat's own
	Score    float64  `json:"score"`          // more is better; only hits of one answer compare
	Text     string   `json:"text"`           // a literal piece of the message
	Messages []string `json:"messages"`       // ids of the exchange that it is of
	Origin
	// Newer reports that the message is later than one of the best hits and shares a rare name with it, or corrects it.
	Newer bool `json:"newer,omitempty"`
}

// ClaimRequest is the body of POST {api.MemoryAccess.URL}/calls: an agent is about to call a tool
// outside of this service.
type ClaimRequest struct {
	Subagent  Agent           `json:"subagent,omitempty"` // the tool's owner; empty for the master
	Tool      string          `json:"tool"`               // server and name, also if the name alone is unique
	Arguments json.RawMessage `json:"arguments"`
	N         int             `json:"n"` // 1 for the first call of the run with these arguments, 2 for the next
	// Seq is the number of the event that tells of the call. The claim is granted once that is
	// stored.
	Seq int64 `json:"after"`
	// Repeatable: the tool may be called again where it is not known whether it was.
	Repeatable bool `json:"repeatable,omitempty"`
}

// Claimed answers a ClaimRequest. Of all callers that ask for one call, in whatever process and
// whatever attempt at the run's post, one is granted it.
type Claimed struct {
	CallID string `json:"call_id"` // of the call, the same in every attempt at it
	State  string `json:"state"`   // one of the states below
	Result string `json:"result,omitempty"`
	Failed bool   `json:"failed,omitempty"` // the result is an error
}

// States of a Claimed.
const (
	CallGranted = "granted" // call it, and settle it then
	CallDone    = "done"    // it was called; this is what it returned
	CallUnknown = "unknown" // it was granted before, and what became of it is not known
)

// RememberRequest is the body of POST {api.MemoryAccess.URL}/notes, which answers with the
// Note. It is active if Quote is made of whole sentences of the run's message, or of their first clauses,
// in which the user tells something; whatever else it may be, it is proposed.
type RememberRequest struct {
	// Subagent is the note's owner, empty for the chat.
	Subagent Agent `json:"subagent,omitempty"`
	// OfUser makes it the note of the run's user instead, over chats.
	OfUser   bool   `json:"of_user,omitempty"`
	Quote    string `json:"quote"`
	Replaces string `json:"replaces,omitempty"` // id of the note that it supersedes
}

// ForgetRequest is the body of POST {api.MemoryAccess.URL}/forget.
type ForgetRequest struct {
	Text string `json:"text"` // words of earlier messages or notes
}

// Forgotten answers a ForgetRequest.
type Forgotten struct {
	Requested bool `json:"asked"`    // the newest message asks for it; otherwise nothing changed
	Messages  int  `json:"messages"` // hidden earlier messages of the chat
	Notes     int  `json:"notes"`    // hidden notes
	Exchange  bool `json:"exchange"` // the messages of the run are hidden
}
