// Package external gives agents tools that lie outside of this service: what a REST call answers, what a server of
// the Model Context Protocol offers. A tool's Caller reaches it; all that holds for any of them is in here: arguments
// are checked against the schema, a person is asked where the configuration says so, a call is claimed from the
// webmemory that holds the run, and what comes back is put into an envelope.
//
// It owns the compiled schemas of definitions, and nothing of a run: claims are webmemory's. It never makes a call
// without a claim, nor a second one where it is not known whether the first was made.
package external

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"mneme/memory"
)

// Definition is a tool as its server, or its configuration, describes it. Only Parameters shape
// a call; the rest is told to models and to persons.
type Definition struct {
	Server      string          `json:"server"` // its name in the configuration; HTTP for a REST call
	Name        string          `json:"name"`   // as the server knows it
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of an object
	Hints       Hints           `json:"hints,omitzero"`
	// Request is what a REST call sends where, without arguments and credentials. Neither models nor persons see it.
	Request string `json:"request,omitempty"`
}

// Hints are what a tool says of itself. None removes an approval.
type Hints struct {
	Destructive bool `json:"destructive,omitempty"` // said explicitly: its calls are approved unless the configuration says otherwise
	ReadOnly    bool `json:"read_only,omitempty"`
	Idempotent  bool `json:"idempotent,omitempty"`
}

// HTTP is the Server of REST calls.
const HTTP = "http"

// ID names a tool uniquely, also if several servers have one of its name: "crm/refund".
func (d Definition) ID() string { return d.Server + "/" + d.Name }

// Approval is what a person allows for a whole chat: the tool as it is defined, and not what its name stands for later.
func (d Definition) Approval() string { return d.ID() + "#" + d.Hash()[:16] }

// Hash changes with anything that a model or a person is told of the tool, and with what a REST call sends where.
func (d Definition) Hash() string {
	raw, err := json.Marshal(d)
	if err != nil { // of parameters that are no JSON
		raw = []byte(d.Server + "\x00" + d.Name + "\x00" + d.Description + "\x00" + string(d.Parameters))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Policy says when a person is asked before a call.
type Policy string

// Policies. The empty one asks if Hints.Destructive is set.
const (
	Always      Policy = "always"
	FirstInChat Policy = "first_in_chat" // until one call of the tool was approved in the chat
	WhenTainted Policy = "when_tainted"  // if a value of the arguments is from a document or lower, see tainted
	Never       Policy = "never"
)

// Tool is one tool of one agent.
type Tool struct {
	Definition
	Caller Caller
	As     string // what models call it; unique among its agent's tools
	Policy Policy
	// FromUser names arguments whose values the user has to have said in this chat: a person is asked otherwise, whatever
	// the policy but Never.
	FromUser []string
	// Trusted: its results count as this service's own words, and not as from outside.
	Trusted bool
	// Repeatable: it may be called again where it is not known whether it was.
	Repeatable bool
	Timeout    time.Duration
	PassChat   bool // it is told the chat
	PassUser   bool // it is told the user
}

// Source has tools, which may change while the service runs: those of a server come when it is
// first reached.
type Source interface {
	Tools() []Tool
}

// Call is one call of a tool.
type Call struct {
	ID        string // the same when it is made again after a crash
	Run       string
	Chat      string // empty unless Tool.PassChat
	User      string // empty unless Tool.PassUser
	Arguments json.RawMessage
	// Answers are those to the Asked of the call before, by its keys, and State is of that;
	// nil for a first call.
	Answers map[string]json.RawMessage
	State   json.RawMessage
	// Progress is told what the tool says while it works; never nil.
	Progress func(text string)
}

// Caller reaches a tool. The end of ctx ends the call. An error is one that the model is told:
// a sentence without secrets, paths and addresses.
type Caller interface {
	Call(ctx context.Context, c Call) (Returned, error)
}

// Returned is what a call gave.
type Returned struct {
	Text        string       // at most memory.MaxToolResult bytes are kept of it
	Failed      bool         // the tool itself reported a failure
	Elicitation *Elicitation // set if the tool asks a person before it continues; Text is empty then
}

// Elicitation is a tool's question to a person.
type Elicitation struct {
	Questions []Question
	State     json.RawMessage // opaque: given back with the answers
}

// Question is one of them.
type Question struct {
	Key     string
	Message string
	Schema  json.RawMessage // JSON schema of the answer
}

// Calls grants calls. The webmemory that holds the run does, so that of all processes that
// try to make one exactly one may. No claim, no call.
type Calls interface {
	Claim(ctx context.Context, c memory.ClaimRequest) (memory.Claimed, error)
	Settle(ctx context.Context, call, result string, failed bool) error
}

// Run is what the tools of a run have in common.
type Run struct {
	ID   string
	Chat memory.Chat
	User string // empty if it is not known
	// Calls are granted by the webmemory that holds the run; nil where no webmemory does, and
	// then no external tool is called.
	Calls Calls
	// Approved says whether a tool, by its ID, was approved in this chat for good.
	Approved func(tool string) bool
	// LastEvent is the number of the run's last event.
	LastEvent func() int64
	// Count gives the N of a Claim: 1 for the run's first call of a tool, by its ID, with these
	// arguments, 2 for the next. It goes on where the run does after a wait, so each call is
	// counted once, when it is claimed: another attempt at the run, in which it is denied or
	// not, gives calls that are made the same numbers.
	Count func(subagent memory.Agent, tool string, arguments json.RawMessage) int
	// NoChat: Chat was made up for this run alone. No tool is told it, and a call that needs a person fails.
	NoChat bool
	// Expiry is how long a wait is open.
	Expiry time.Duration
	Now    func() time.Time
}
