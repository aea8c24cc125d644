package api

import (
	"encoding/json"

	"mneme/memory"
	"mneme/memory/event"
)

// RunView is what a run's events say of it when it is looked at afterwards: enough to draw it as it was
// streamed. When the run's log is kept no longer it says what the histories of the chat tell, and Record what it took.
type RunView struct {
	RunID       string                  `json:"run_id"`
	RetryOf     string                  `json:"retry_of,omitempty"` // as of event.RunStarted
	Outcome     string                  `json:"outcome"`            // of event.RunFinished, OutcomeWaiting, or empty while it goes on
	Started     float64                 `json:"started"`            // Unix seconds
	Finished    float64                 `json:"ended,omitempty"`
	Usage       event.Usage             `json:"usage"`
	Delegations []DelegationView        `json:"delegations"`
	Tools       []ToolView              `json:"tools"` // of the master
	Recalled    []event.RecalledMessage `json:"recalled"`
	Citations   []event.Citation        `json:"citations"`       // of the answer
	Pending     []event.Wait            `json:"waits,omitempty"` // that nobody has answered
	Error       *event.Error            `json:"error,omitempty"`
	Record      *event.Record           `json:"record,omitempty"` // once there is an answer, or a failure
}

// DelegationView is a delegation of a RunView.
type DelegationView struct {
	Subagent memory.Agent            `json:"subagent"`
	CallID   string                  `json:"call_id"`
	Task     string                  `json:"task"`
	Content  string                  `json:"content"` // what the subagent answered, as far as it has
	Status   string                  `json:"status"`  // of event.Completion; empty while it goes on
	Tools    []ToolView              `json:"tools"`
	Recalled []event.RecalledMessage `json:"recalled"`
	Answer   *event.Answer           `json:"answer,omitempty"`
	Error    *event.Error            `json:"error,omitempty"` // why there is no answer
}

// ToolView is a call of a tool.
type ToolView struct {
	ID        string          `json:"id"` // the model's; empty for the master's own
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // as the model gave them; a JSON string if they are no JSON
	Result    string          `json:"result,omitempty"`    // of the master's own only where it failed
	Status    string          `json:"status,omitempty"`    // of event.ToolProgress; empty until it starts
}

// Trace answers GET …/runs/{run}/trace: a run as a list of its steps, in the order of their beginnings.
type Trace struct {
	RunID    string      `json:"run_id"`
	Outcome  string      `json:"outcome"` // as of a RunView
	Started  float64     `json:"started"`
	Finished float64     `json:"ended,omitempty"`
	Usage    event.Usage `json:"usage"`
	Steps    []TraceStep `json:"steps"`

	Record *event.Record `json:"record,omitempty"` // as of a RunView
}

// Kinds of a TraceStep.
const (
	StepMessage    = "message"    // of the user
	StepModelCall  = "model_call" // of Agent
	StepDelegation = "delegation" // to Agent
	StepTool       = "tool"       // that Agent called
	StepRecalled   = "recalled"   // by Agent
	StepWait       = "wait"       // for somebody, and the answer
	StepAnswer     = "answer"     // of the master, or of the subagent that was asked
	StepError      = "error"
)

// TraceStep is a step of a run. Its status is, of a StepModelCall, the code of its failure or event.Completed; of a
// StepDelegation and a StepTool as in a RunView; of a StepRecalled why it failed, or event.Partial; of a StepWait the
// decision, OutcomeWaiting before it and "unanswered" where none came; of a StepAnswer event.Completed, or why it is
// a part of one; of a StepError its code.
type TraceStep struct {
	Kind     string           `json:"kind"`
	Agent    string           `json:"agent,omitempty"`   // Master or a subagent's name
	CallID   string           `json:"call_id,omitempty"` // of the delegation that it belongs to
	Started  float64          `json:"started"`           // Unix seconds
	Finished float64          `json:"ended,omitempty"`   // left out while it goes on
	Title    string           `json:"title"`             // one line: the tool's name, the task, the model
	Detail   string           `json:"detail,omitempty"`  // what there is to read below it: arguments and result, the answer
	Status   string           `json:"status,omitempty"`
	Call     *event.ModelCall `json:"call,omitempty"` // of a StepModelCall
}
