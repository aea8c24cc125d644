// Package ledger stores answered turns: a model's answers byte for byte, so that each can go back to its vendor
// exactly as it came, in whatever form a client replays it. The unit is the answered turn and not the signed block:
// some vendors sign nothing, and those that do refuse blocks that were merged, duplicated or moved although each one
// is genuine.
//
// It owns turns and refusals in memory, bounded and with an end, and the goroutine that writes them behind an answer
// to the store that processes share. It never changes a turn, never finds one of another tenant or route, and never
// makes a request wait for Redis longer than it is told. DESIGN.md says how turns are found and told apart.
package ledger

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Scope is the place of a turn. Nothing is ever found across tenants or routes.
type Scope struct {
	Tenant       string // hex SHA-256 of the credential that the caller presented; empty if none
	Route        string // main, or teammate/<name>
	Conversation string
}

// Origin identifies a model: the one that answered, or the one that is about to be asked.
type Origin struct {
	Backend string // its name in the configuration
	Vendor  string
	Model   string // as the backend calls it
}

// ToolID is a tool use's id under both of its names. This and Response and Place are stored as this JSON.
type ToolID struct {
	Vendor string `json:"vendor"` // as the model gave it
	Client string `json:"client"` // as the client got it; the same unless the vendor's can recur, see CanRecur
}

// Turn is one answered turn. A turn that the ledger has returned is shared and must not be changed.
type Turn struct {
	Scope   Scope
	Origin  Origin
	Dialect wire.Dialect // of the backend
	// Content is the array of blocks (messages dialect) or the message object (chat completions) as
	// the vendor sent it, with its tool ids. It must not be changed once the turn is recorded.
	Content jsontext.Value
	// Outline has a message with this content, if the caller has read one already; it may be nil. It
	// is not kept.
	Outline *wire.Outline
	// Tools are the ids of the tool uses for which the client has another name. If it lists all
	// tool uses it is in their order.
	Tools []ToolID
	// Predecessor is the key of the last thinking block in the request that this turn answers, as
	// that was sent; empty if there was none. See BlockKey.
	Predecessor string
	Context     string // ContextKey of that request
	// ResponseID is the ID of Response, and other text in older records. It is a part of a turn's identity,
	// so that responses that say the same stay apart, and nothing else.
	ResponseID string
	// Response is what a client that stores its responses can ask for; nil for none. It must not be
	// changed once the turn is recorded.
	Response *Response
	Cut      bool // the answer broke off: it is found by signature only, and has no place
	// Place is the turn's position in the tree of its conversation; nil for none. It must not be
	// changed once the turn is recorded.
	Place *Place
	// Time is when the request began. An erasure of the conversation after that erases the turn too,
	// no matter when it is recorded. The zero time means now.
	Time time.Time
}

// State is the verdict on a thinking block that a client replays, for one backend and model.
type State int

// The states. They are judged for one backend and model.
const (
	NoThinking State = iota // the block is of another kind
	Proven                  // it is in its turn exactly as the model gave it
	Altered                 // its turn is known, but the block or its place has changed
	Foreign                 // another vendor produced it
	Refused                 // this backend and model rejected it before; takes precedence over Proven
	Unknown                 // the ledger does not know it
)

// Judged is what is known of one assistant message of a request. Its slices are shared and must not
// be changed.
type Judged struct {
	Message int // its index in the outline
	// Turn is the stored turn that the message shows; nil if none is known or several would fit. If
	// its dialect is not the request's, its content cannot go back as it is.
	Turn *Turn
	// Same: nothing has to be put back. The message is the turn unchanged, apart from cache_control
	// and tool ids, or the turn is in another dialect.
	Same bool
	// Edited: one of the message's keys belongs to a known turn, but its visible part is not what
	// the model said.
	Edited bool
	States []State  // of its blocks; one, of the reasoning fields, in chat completions
	Keys   []string // the BlockKeys that States are of; empty for a block that is no thinking
	// TurnStates and TurnKeys are the same for the blocks of Turn, if they were put back: proven,
	// foreign or refused.
	TurnStates []State
	TurnKeys   []string
	// Tools are the message's tool ids (as Client) for which the vendor has others. They also apply
	// to the tool results that follow.
	Tools []ToolID
}

// Request is the input of Judge.
type Request struct {
	Scope   Scope
	New     bool // the conversation begins with this request, so that nothing is known of it
	Target  Origin
	Dialect wire.Dialect
	Outline *wire.Outline
	// Read is the result of Ledger.Read for the same outline; nil to read it again.
	Read []Message
	// Nodes are the turns of messages, by the messages' index, that the caller is certain of from
	// their surroundings.
	Nodes map[int]*Node
}
