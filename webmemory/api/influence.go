package api

// Influence answers GET …/messages/{id}/influence.
type Influence struct {
	// Answers are those that had the message in their prompt, the oldest first.
	Answers []Influenced `json:"answers"`
	Partial bool         `json:"partial,omitempty"` // a part of the chat's archive is damaged or gone
}

// Influenced is one of these answers.
type Influenced struct {
	ID    string  `json:"id"`
	RunID string  `json:"run_id"`
	TS    float64 `json:"ts"` // Unix seconds
	Kind  string  `json:"by"` // InfluenceWindow or InfluenceRecall
}

// How a message came into a prompt.
const (
	InfluenceWindow = "window" // among the newest messages of the chat
	InfluenceRecall = "recall" // found in what was said before
)

// Quarantine is what no model is shown of a chat, in windows and by recall, until it is released.
type Quarantine struct {
	// Entries are ids of messages, and names of sources as messages have them. "forget:" and the id of a message or a
	// run marks a message to be forgotten. A person redacts or releases it.
	Entries []string `json:"entries"`
}
