package main

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

// failing is a fault of the next requests, as it is posted.
type failing struct {
	Status     int    `json:"status"`      // 0 is a connection that is cut without any answer
	Times      int    `json:"times"`       // how many requests; 0 is one
	RetryAfter *int   `json:"retry_after"` // seconds
	Body       string `json:"body"`        // as it is sent; empty is an error of that status
	// First, a dialect (messages, chat, responses), makes it the first event of a stream of
	// status 200, which names an error of Status with the text Message.
	First   string `json:"first"`
	Message string `json:"message"`
}

var dialects = map[string]wire.Dialect{"messages": wire.Messages, "chat": wire.Chat,
	"responses": wire.Responses, "interactions": wire.Interactions}

func (f failing) fault() upstreamtest.Fault {
	switch d, ok := dialects[f.First]; {
	case ok:
		return upstreamtest.ErrorFirst(d, f.Status, f.Message)
	case f.RetryAfter != nil:
		fault := upstreamtest.RateLimited(*f.RetryAfter)
		fault.Status, fault.Body = f.Status, f.Body
		return fault
	}
	return upstreamtest.Canned(f.Status, f.Body)
}

// fail serves the posts of faults; an empty list takes back those that are left.
func fail(vendor *upstreamtest.Server) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var faults []failing
		if err := json.UnmarshalRead(r.Body, &faults, json.RejectUnknownMembers(true)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if len(faults) == 0 {
			vendor.Fail()
		}
		for _, f := range faults {
			for range max(f.Times, 1) {
				vendor.Fail(f.fault())
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
