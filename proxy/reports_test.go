package proxy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
)

// A report holds what a vendor refuses in one case of the outside data's cases/gateway, and what the gateway must send
// instead. The cases are inputs from public bug reports. The client must get status 200 for each of its requests.
type report struct {
	// refuses reports whether the vendor refuses a request, which it does in the words that the case quotes.
	refuses func(r received) bool
	// calls is the number of calls that the case costs the vendor when it is replayed for the first time. 0 is one per
	// request. Each later replay must cost one call per request.
	calls int
	// own is the number of requests at the beginning that the gateway itself refuses.
	own int
	// quotes makes the vendor answer each request as the case quotes it.
	quotes bool
	// status is that of the answers that the client gets. 0 is 200.
	status int
	// check examines the requests that the vendor accepted, and the client's answers. It may be nil.
	check func(t *testing.T, accepted []received, answers []answered)
}

// reports are the rows of all sections, by case.
func reports() map[string]report {
	all := map[string]report{}
	for _, rows := range []map[string]report{roleReports, contentReports, pathReports, toolReports, endingReports} {
		maps.Copy(all, rows)
	}
	return all
}

// A reportFile is the part of a case's file that the test reads.
type reportFile struct {
	Backend struct{ Kind, Vendor, Model string } `json:"backend"`
	Sent    []struct {
		Client struct {
			Path    string            `json:"path"`
			Headers map[string]string `json:"headers"`
			Body    json.RawMessage   `json:"body"`
		} `json:"client"`
	} `json:"requests"`
	Vendor []quoted `json:"vendor_said"`

	next int // the place in Sent of the request that is sent
}

// quoted is an answer of the vendor.
type quoted struct {
	Status int      `json:"status"`
	Body   string   `json:"body"`
	Stream []string `json:"stream"`
}

func TestReportsOutsideData(t *testing.T) {
	t.Parallel()
	dir := outsidedata.Path(t, "cases", "gateway")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		require.True(t, reports()[name].check != nil || reports()[name].refuses != nil || reportsElsewhere[name] != "",
			"no test plays the case %s", name)
	}
	for name, row := range reports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(dir, name+".json"))
			require.NoError(t, err)
			var file reportFile
			require.NoError(t, json.Unmarshal(data, &file))
			row.replay(t, &file)
		})
	}
}

// replay plays a case twice through one gateway.
func (row report) replay(t *testing.T, file *reportFile) {
	t.Helper()
	var mu sync.Mutex // guards the next two
	var refused []string
	var accepted []received
	var replays atomic.Int64
	fresh := func(body string) string { // encrypted content that no other answer has
		return strings.ReplaceAll(body, "gAAAAx", fmt.Sprintf("gAAAA%d", replays.Load()))
	}
	v := vendor(t, nil)
	v.answer = func(w http.ResponseWriter, r *http.Request) {
		got := v.last(t)
		refuses := row.refuses != nil && row.refuses(got)
		mu.Lock()
		if refuses {
			refused = append(refused, got.body)
		} else {
			accepted = append(accepted, got)
		}
		mu.Unlock()
		if refuses {
			file.refuse(w)
		} else {
			file.accept(w, r, got.body, row.quotes, fresh)
		}
	}
	config := to(v, file.Backend.Kind)
	backend := config.Backends["v"]
	backend.Vendor = file.Backend.Vendor
	backend.ModelMap = map[string]string{"*": file.Backend.Model}
	config.Backends["v"] = backend
	url, _ := gateway(t, config)

	calls := max(row.calls, len(file.Sent))
	for range 2 {
		replays.Add(1)
		before := v.count()
		refused, accepted = nil, nil
		var answers []answered
		for i, sent := range file.Sent {
			var header []string
			for name, value := range sent.Client.Headers {
				header = append(header, name, value)
			}
			file.next = i
			got := post(t, url+sent.Client.Path, fresh(string(sent.Client.Body)), header...)
			if i < row.own {
				require.Equal(t, http.StatusBadRequest, got.status, got.body)
				continue
			}
			require.Equal(t, cmp.Or(row.status, http.StatusOK), got.status,
				"%s\nthe vendor refused:\n%s", got.body, strings.Join(refused, "\n"))
			answers = append(answers, got)
		}
		require.LessOrEqual(t, v.count()-before, calls, "calls of the vendor; it refused:\n%s", strings.Join(refused, "\n"))
		if row.check != nil {
			row.check(t, accepted, answers)
		}
		calls = len(file.Sent) // the gateway has learned the rule
	}
}

// refuse writes the case's first refusal.
func (f *reportFile) refuse(w http.ResponseWriter) {
	for _, said := range f.Vendor {
		if said.Status >= http.StatusBadRequest {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(said.Status)
			_, _ = w.Write([]byte(said.Body))
			return
		}
	}
	http.Error(w, `{"error":{"message":"the case quotes no refusal"}}`, http.StatusBadRequest)
}

// accept answers the request that is sent, as the case quotes it or in the dialect of its path.
func (f *reportFile) accept(w http.ResponseWriter, r *http.Request, body string, quotes bool,
	fresh func(string) string) {
	if !quotes {
		acceptReport(w, r, body)
		return
	}
	at := min(f.next, len(f.Vendor)-1)
	for at > 0 && f.Vendor[at].Status == http.StatusBadRequest { // refuse writes it
		at--
	}
	said := f.Vendor[at]
	mime := "application/json"
	if len(said.Stream) > 0 {
		mime = "text/event-stream"
	}
	w.Header().Set("Content-Type", mime)
	w.WriteHeader(said.Status)
	_, _ = w.Write([]byte(fresh(cmp.Or(strings.Join(said.Stream, ""), said.Body))))
}

// acceptReport answers a request in the dialect of its path.
func acceptReport(w http.ResponseWriter, r *http.Request, body string) {
	answer, stream := messagesBody, messagesStream
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		answer, stream = chatBody, chatStream
	case strings.HasSuffix(r.URL.Path, "/responses"):
		answer, stream = responsesBody, responsesStream
	}
	if gjson.Get(body, "stream").Bool() {
		says("text/event-stream", stream)(w, r)
		return
	}
	says("application/json", answer)(w, r)
}

// responsesBody and responsesStream are an answer "ok" in the dialect of Responses.
const (
	responsesItem = `{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text",` +
		`"text":"ok","annotations":[]}]}`
	responsesBody = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"real-1","output":[` +
		responsesItem + `],"usage":{"input_tokens":3,"output_tokens":5,"total_tokens":8}}`
	responsesStream = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","model":"real-1","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"ok"}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":` + responsesItem + `}

event: response.completed
data: {"type":"response.completed","sequence_number":4,"response":` + responsesBody + `}

`
)
