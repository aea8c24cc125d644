package api

import (
	"net/http"
	"time"

	"mneme/apiserver/api"
	"mneme/memory/event"
)

// Collected is what the events of a run add up to, as far as they have come.
type Collected struct {
	Result
	Pending []event.Wait // the waits of a waiting run

	failure *event.Error
	failed  float64 // when it did, in Unix seconds
}

// NewCollected is that of a run before its events.
func NewCollected(run string) *Collected {
	return &Collected{Result: Result{RunID: run, Citations: []event.Citation{}}}
}

// Add takes in the run's next event.
func (c *Collected) Add(e event.Event) {
	c.RunID, c.Pending = e.RunID, nil
	switch p := e.Payload.(type) {
	case *event.Assistant:
		c.Content, c.Partial, c.FinishReason = p.Content, p.Partial, p.FinishReason
		c.Citations = append(c.Citations, p.Citations...)
	case *event.Completion:
		if p.Answer != nil {
			c.Answers = append(c.Answers, Finding{Subagent: e.Subagent, CallID: e.CallID, Answer: p.Answer})
		}
	case *event.Error:
		if e.Subagent == "" {
			c.failure, c.failed = p, e.TS
		}
	case *event.RunWaiting:
		c.Outcome, c.Pending, c.Usage = OutcomeWaiting, p.Pending, p.Usage
	case *event.RunFinished:
		c.Usage, c.Outcome = p.Usage, p.Outcome
	}
}

// Err is the *api.Problem of a run that failed; nil for any other. 409 and 5xx but 502 would say that nothing ran.
func (c *Collected) Err() error {
	if c.Outcome != event.Failed {
		return nil
	}
	failure := c.failure
	if failure == nil {
		failure = event.Fail(CodeRunFailed, "", 0)
	}
	p := api.ProblemOf(failure)
	if p.RunID = c.RunID; p.Status == http.StatusConflict || p.Status >= http.StatusInternalServerError {
		p.Status = http.StatusBadGateway
	}
	// A client that is told later, as by a repeated post, has waited for a part of it.
	elapsed := time.Since(time.UnixMilli(int64(c.failed * 1000)))
	p.RetryAfter = max(0, p.RetryAfter-max(0, elapsed.Truncate(time.Second)))
	return p
}
