package event

import "encoding/json"

// Record is what stays of a run for as long as the message that ended it: counts, and which model answered. It says
// nothing that anybody wrote.
type Record struct {
	Usage    Usage `json:"usage,omitzero"`
	Recalled int   `json:"recalled,omitempty"` // messages that the run's agents were given of what was said before
	// Window is the id of the oldest message of the prompt's contiguous part, empty for none.
	Window string `json:"window,omitempty"`
	// RecalledIDs are the ids of the first MaxRecalledIDs messages that were recalled.
	RecalledIDs []string `json:"given,omitempty"`
	Calls       int      `json:"calls,omitempty"`   // of models, the first MaxModelCalls
	Model       string   `json:"model,omitempty"`   // that wrote the answer
	Backend     string   `json:"backend,omitempty"` // of the gateway, which the model was called at
}

// MaxRecord bounds a Record, in bytes of JSON without Window and RecalledIDs, since each answer in a history has one.
const MaxRecord = 300

// MaxRecalledIDs bounds Record.RecalledIDs.
const MaxRecalledIDs = 64

// NewRecord returns the record of a run, or nil for a run without usage, recalled messages and calls. Its model is the
// master's, or that of the subagent that the user talks to without the master. A name that would make the record longer
// than MaxRecord is left out.
func NewRecord(used Usage, window string, recalled []string, calls []ModelCall) *Record {
	r := &Record{Usage: used, Recalled: len(recalled), Calls: len(calls)}
	own := false
	for _, c := range calls {
		if c.Error == "" && (c.Subagent == "" || !own) {
			r.Model, r.Backend, own = c.Model, c.Backend, c.Subagent == ""
		}
	}
	if r.Usage == (Usage{}) && r.Recalled+r.Calls == 0 {
		return nil
	}
	for _, name := range []*string{&r.Backend, &r.Model} {
		if raw, err := json.Marshal(r); err != nil || len(raw) > MaxRecord {
			*name = ""
		}
	}
	r.Window, r.RecalledIDs = window, recalled[:min(len(recalled), MaxRecalledIDs)]
	return r
}

// recorded is how a message has its record; nil for none.
func recorded(r *Record) json.RawMessage {
	if r == nil {
		return nil
	}
	raw, _ := json.Marshal(r) // a plain struct of text and numbers
	return raw
}
