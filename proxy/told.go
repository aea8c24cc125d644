package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"mneme/access/tally"
	"mneme/proxy/sanitize"
)

// Headers of an answer that say which backend and model gave it and what it took. All of it is known when the answer
// begins, but for its cost.
const (
	backendHeader  = "X-Ag-Backend"
	modelHeader    = "X-Ag-Model"    // as the backend calls it
	attemptsHeader = "X-Ag-Attempts" // requests that were sent to the backend
	mendedHeader   = "X-Ag-Mended"   // a list of mends, separated by commas

	// costTrailer is the cost in millionths of a USD, behind a stream to a client that takes trailers.
	costTrailer = "X-Ag-Cost-Micro-Usd"
)

// mend names what was done to a request beyond what its client and its configuration asked for, so that it
// would pass. The names are part of the API.
type mend string

// All mends.
const (
	thinkingRestored    mend = "thinking_restored"
	thinkingStripped    mend = "thinking_stripped"
	thinkingConverted   mend = "thinking_converted"
	thinkingPlaceholder mend = "thinking_placeholder"
	thinkingOff         mend = "thinking_off"
	historyRebuilt      mend = "history_rebuilt"
	callsClosed         mend = "calls_closed"
	resultsMoved        mend = "results_moved"
	resultsOrphaned     mend = "results_orphaned"
	resultsDoubled      mend = "results_doubled"
	toolIDs             mend = "tool_ids"
	reasoningAsked      mend = "reasoning_asked"
	refusedThinking     mend = "refused_thinking"
	refusedParameter    mend = "refused_parameter"
	refusedLength       mend = "refused_length"
	refusedSchema       mend = "refused_schema"
	answerBounded       mend = "answer_bounded"
)

var (
	mendOfKind = map[sanitize.Kind]mend{
		sanitize.KindThinking: thinkingStripped, sanitize.KindReasoning: thinkingStripped,
		sanitize.KindTrailing: thinkingStripped, sanitize.KindPlaceholder: thinkingPlaceholder,
		sanitize.KindLoop: thinkingOff, sanitize.KindUnanswered: callsClosed, sanitize.KindPlace: resultsMoved,
		sanitize.KindOrphan: resultsOrphaned, sanitize.KindDoubled: resultsDoubled, sanitize.KindToolID: toolIDs,
		sanitize.KindAnswer: answerBounded,
	}
	mendOfCure = map[cureKind]mend{
		cureThinking: refusedThinking, cureParameter: refusedParameter, cureLength: refusedLength,
		cureSchema: refusedSchema,
	}
)

// tell says in an answer's header which backend and model it is of, and what it took.
func (x *request) tell(h http.Header) {
	if x.result.backend == nil {
		return
	}
	values := make([]string, 0, 4) // of all of them, in one piece
	put := func(name, value string) {
		unsent := func(r rune) bool { return r <= ' ' || r > '~' }
		if value != "" && len(value) <= maxModelName && !strings.ContainsFunc(value, unsent) {
			values = append(values, value)
			h[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	put(backendHeader, x.result.backend.name)
	put(modelHeader, x.result.model)
	if n := x.result.attempts; n > 0 {
		put(attemptsHeader, strconv.Itoa(n))
	}
	if x.result.attempt != nil {
		put(mendedHeader, strings.Join(x.result.attempt.mended(), ","))
	}
}

// tellCost says behind a stream what the call cost, if that is known.
func (x *request) tellCost(n tally.Counts) {
	if n.Calls > n.Unpriced && x.client.stream && lists(x.in.header["Te"], "trailers") {
		x.client.Header().Set(http.TrailerPrefix+costTrailer, strconv.FormatInt(n.Micros, 10))
	}
}

// mended are the mends of the request that was sent.
func (a *attempt) mended() (names []string) {
	add := func(m mend, done bool) {
		if done && m != "" && !slices.Contains(names, string(m)) {
			names = append(names, string(m))
		}
	}
	r := a.report
	add(historyRebuilt, a.continued != nil && a.continued.Rebuilt > 0)
	add(thinkingRestored, r.PutBack > 0)
	add(thinkingStripped, r.Removed()+r.Stripped > 0)
	add(thinkingConverted, r.IntoText > 0)
	add(reasoningAsked, a.asksReasoning)
	for _, c := range a.cures {
		add(mendOfCure[c.kind], true)
		for _, m := range c.mends {
			add(m, true)
		}
	}
	for _, c := range a.changes {
		add(mendOfKind[c.Kind], true)
	}
	return names
}
