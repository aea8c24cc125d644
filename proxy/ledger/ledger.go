// Package ledger is the one store of answered turns: what models said, byte for
// byte, so that it can go back to them as they said it, however a client replays
// it.
//
// The unit is the answered turn and not the signed block: some vendors sign
// nothing, and a vendor that does refuses blocks that were merged, doubled or
// moved although each is genuine. DESIGN.md says how turns are found and told
// apart.
package ledger

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Scope is where a turn belongs. Nothing is ever found from another tenant or
// another route.
type Scope struct {
	Tenant       string // hex SHA-256 of the credential that the caller presented; empty if none
	Route        string // main, or teammate/<name>
	Conversation string
}

// Origin is who answered, or is about to be asked.
type Origin struct {
	Backend string // its name in the configuration
	Vendor  string
	Model   string // as the backend calls it
}

// ToolID is an id of a tool use under both its names.
type ToolID struct {
	Vendor string // as the model gave it
	Client string // as the client got it; the same unless the vendor's can recur, see CanRecur
}

// Turn is one answer of a model. One that the ledger gave out is shared and must
// not be written into.
type Turn struct {
	Scope   Scope
	Origin  Origin
	Dialect wire.Dialect // of the backend
	// Content is, in the messages dialect, the array of blocks and, in chat
	// completions, the message object, as the vendor sent it, with its tool ids. It
	// must not be written into once the turn is recorded.
	Content jsontext.Value
	// Outline is what wire.ReadContent gives for Content, from who has it already, and
	// may be nil. It is not kept.
	Outline *wire.Outline
	// Tools are the ids of the tool uses that the client knows by another name; in
	// the order of the tool uses, if it is all of them.
	Tools []ToolID
	// Predecessor is the key of the last thinking block in the request, as sent,
	// that this answers; empty for none. See BlockKey.
	Predecessor string
	Context     string // ContextKey of that request
	// Asked is the AskedKey of that request, as it was translated and before it was
	// sanitized. Without it turns that show the same text are never told apart.
	Asked string
	Cut   bool // the answer broke off: it is found by signature only, and has no place
	// Place is nil for a turn that stands in no conversation's tree. It must not be
	// written into once the turn is recorded.
	Place *Place
	// At is when the request was begun: an erasure of the conversation that came
	// later erases the turn too, whenever it is recorded. Zero: now.
	At time.Time
}

// State is what is known of a thinking block that a client replays.
type State int

// The states. They are judged for one backend and model.
const (
	NoThinking State = iota // the block is of another kind
	Proven                  // it stands in its turn as the model gave it
	Altered                 // its turn is known and the block or its place is not as it was
	Foreign                 // another vendor made it
	Refused                 // this backend and model rejected it before; wins over Proven
	Unknown                 // nobody knows
)

func (s State) String() string {
	names := [...]string{"no thinking", "proven", "altered", "foreign", "refused", "unknown"}
	if s < 0 || int(s) >= len(names) {
		return "no state"
	}
	return names[s]
}

// Judged is what is known of one assistant message of a request. Its slices are
// shared and must not be written into.
type Judged struct {
	Message int // its index in the outline
	// Turn is the stored turn whose visible part the message shows; nil if none is
	// known, or two could be meant. Its dialect may be another than the request's,
	// if its backend's was: then its content cannot go back as it is.
	Turn *Turn
	// Same: nothing of the turn must be put back. The message is the turn as it was,
	// apart from cache_control and from tool ids, or the turn is of another dialect.
	Same bool
	// Edited: a turn is known by one of the message's keys, but what is visible of
	// the message is not what the model said.
	Edited bool
	States []State  // of its blocks; one, of the reasoning fields, in chat completions
	Keys   []string // the BlockKeys that States are of; empty for a block that is no thinking
	// TurnStates and TurnKeys are the same of the blocks that Turn has, were they to
	// go back: proven, foreign or refused.
	TurnStates []State
	TurnKeys   []string
	// Tools are the message's tool ids, as Client, where the vendor's are others.
	// They hold for the tool results that follow, too.
	Tools []ToolID
}

// Request is what Judge looks at.
type Request struct {
	Scope Scope
	// Minted: the conversation's id was made for this request. Turns are then found
	// in the whole route of the tenant, by keys that cannot collide by chance.
	Minted  bool
	Target  Origin
	Dialect wire.Dialect
	Outline *wire.Outline
	// Read is what Ledger.Read gave for the same outline; nil to read it again.
	Read []Message
	// Known are the turns that messages show, by the index of the message, where
	// that is certain from what stands around them.
	Known map[int]*Node
}
