package panel

import (
	"fmt"
	"strings"
	"time"

	"mneme/subagent"
)

// failure is an error in the words that users and the master are shown.
type failure struct {
	code, message string
	retryable     bool
}

func (f failure) Error() string { return f.message }

// Describe gives the failure as a run's error event has it.
func (f failure) Describe() (code, message string, retryable bool) {
	return f.code, f.message, f.retryable
}

func slow(after time.Duration) failure {
	return failure{"model_slow", fmt.Sprintf("It took longer than %s.", after), true}
}

// malformed is what a member said when it has not the form that was asked for.
type malformed string

func (m malformed) Error() string { return string(m) }

// Describe says it without what the member itself was told to do.
func (malformed) Describe() (code, message string, retryable bool) {
	return "malformed_answer", "Twice it did not keep to the form that was asked for.", true
}

// reason says in a sentence why a member failed.
func reason(err error) string { return subagent.Describe(err).Message }

// allFailed is that no member did what a task begins with.
func allFailed(did string, members []Member, errs []error) failure {
	f := failure{code: "panel_failed"}
	var why []string
	for i, m := range members {
		e := subagent.Describe(errs[i])
		f.retryable = f.retryable || e.Retryable
		why = append(why, fmt.Sprintf("%s: %s", m.Name, e.Message))
	}
	f.message = fmt.Sprintf("None of the %d models %s. %s", len(members), did, strings.Join(why, " "))
	return f
}
