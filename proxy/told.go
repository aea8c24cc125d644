package proxy

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"mneme/access/tally"
	"mneme/proxy/chatwire"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
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
	rolesChanged        mend = "roles_changed"
	refusedRole         mend = "refused_role"
	answerBounded       mend = "answer_bounded"
	leftOut             mend = "left_out" // with a colon and the member's path
	contentReplaced     mend = "content_replaced"
)

var (
	mendOfKind = map[sanitize.Kind]mend{
		sanitize.KindThinking: thinkingStripped, sanitize.KindReasoning: thinkingStripped,
		sanitize.KindTrailing: thinkingStripped, sanitize.KindPlaceholder: thinkingPlaceholder,
		sanitize.KindLoop: thinkingOff, sanitize.KindUnanswered: callsClosed, sanitize.KindPlace: resultsMoved,
		sanitize.KindOrphan: resultsOrphaned, sanitize.KindDoubled: resultsDoubled, sanitize.KindToolID: toolIDs,
		sanitize.KindAnswer: answerBounded, sanitize.KindRefused: refusedParameter, sanitize.KindShorter: refusedLength,
		sanitize.KindRole: rolesChanged, sanitize.KindContent: contentReplaced,
	}
	mendOfCure = map[cureKind]mend{
		cureThinking: refusedThinking, cureParameter: refusedParameter, cureLength: refusedLength,
		cureSchema: refusedSchema, cureRole: refusedRole, cureContent: contentReplaced,
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
		if mends := strings.Join(x.result.attempt.mended(), ","); mends != "" {
			h[mendedHeader] = []string{mends}
		}
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
	add(contentReplaced, a.replaced)
	for _, c := range a.cures {
		add(mendOfCure[c.kind], true)
		for _, m := range c.mends {
			add(m, true)
		}
	}
	for _, c := range a.changes {
		add(mendOfKind[c.Kind], true)
	}
	for _, path := range a.droppedMembers() {
		add(leftOut+":"+mend(path), true)
	}
	return names
}

// mostLost and longestLost bound the names of lost members in a header, because clients choose unknown names.
const (
	mostLost    = 32
	longestLost = 64
)

// droppedMembers returns the paths of the client's members that the backend did not get because the translation or the last hop
// removed them.
func (a *attempt) droppedMembers() (paths []string) {
	paths = slices.Clone(a.leftOut)
	for _, c := range a.changes {
		if slices.Contains(lossy, c.Kind) && a.memberValue(c.Path) == nil {
			paths = append(paths, c.Path)
		}
	}
	for i, path := range paths {
		paths[i] = cmp.Or(namesOf[a.endpoint.dialect][path], path)
		if paths[i] == "safety_identifier" && !a.in.outline.Members.Get(paths[i]).Exists() {
			paths[i] = "user" // its older name
		}
	}
	slices.Sort(paths)
	illegal := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-'
	}
	paths = slices.DeleteFunc(slices.Compact(paths), func(path string) bool {
		return len(path) > longestLost || strings.ContainsFunc(path, illegal)
	})
	return paths[:min(len(paths), mostLost)]
}

// lossy are the kinds of changes that can leave out a member of the client's.
var lossy = []sanitize.Kind{sanitize.KindContext, sanitize.KindEffort, sanitize.KindRefused, sanitize.KindSampling,
	sanitize.KindVendorTool}

// serial is the member of a messages request that forbids parallel calls.
const serial = "tool_choice.disable_parallel_tool_use"

// namesOf are members of the messages dialect by the names that clients of other dialects have for them.
var namesOf = map[wire.Dialect]map[string]string{
	wire.Chat: {chatwire.UserID: "user", "output_config.effort": "reasoning_effort", "stop_sequences": "stop",
		serial: "parallel_tool_calls"},
	wire.Responses: {chatwire.UserID: "safety_identifier", "output_config.effort": "reasoning.effort",
		serial: "parallel_tool_calls"},
}
