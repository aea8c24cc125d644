package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// CallsFile begins the names of files of calls; an id of a run does not begin with it.
const CallsFile = "calls-"

// CallLine is a line of a file of calls: a field of the calls in Redis, or answers.
type CallLine struct {
	Chat    memory.StoredChat `json:"chat"`
	Run     string            `json:"run"` // that was granted the call, or answered
	Field   string            `json:"field,omitempty"`
	Value   string            `json:"value,omitempty"`
	Seq     int64             `json:"seq,omitempty"`     // number of the run's newest event when the call was granted
	Answers map[string]string `json:"answers,omitempty"` // by the wait's id
	Until   int64             `json:"until,omitempty"`   // Unix ms until which the answers are kept
}

// KnownCalls is what is known of the calls of a post's runs.
type KnownCalls struct {
	Fields map[string]string   `json:"fields"` // as in Redis: calls by their ids, results by redisstore.ResultOf
	Runs   map[string]runCalls `json:"runs"`
}

// runCalls is what is known of one of the runs.
type runCalls struct {
	Answers map[string]string `json:"answers"` // to its waits, by the wait's id
	Until   int64             `json:"until"`   // Unix ms until which they are kept
	Called  int64             `json:"called"`  // number of its newest event when it was granted its newest call; 0 for none
}

// with is what two processes, or two lines, know of a run together.
func (r runCalls) with(other runCalls) runCalls {
	answers := map[string]string{}
	maps.Copy(answers, r.Answers)
	maps.Copy(answers, other.Answers)
	return runCalls{answers, max(r.Until, other.Until), max(r.Called, other.Called)}
}

// NoteCall appends a line to the file of a post's calls, which it keeps for life. first is the run of the post's first
// attempt.
func (e *EndStore) NoteCall(first string, l CallLine, life time.Duration) {
	path := e.path(l.Chat.Chat, CallsFile+first)
	text, err := json.Marshal(l)
	if e.Dir == "" || path == "" || err != nil {
		return
	}
	until := time.Now().Add(life)
	e.put(l.Chat.Chat, len(text)+1, func() error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(append(text, '\n'))
		return errors.Join(err, f.Close(), os.Chtimes(path, until, until))
	})
}

// Calls reads what noteCall kept. A line that is not whole, or another chat's, is passed over, and so is a call that a
// run was granted which was taken back since, with its result.
func (e *EndStore) Calls(chat memory.Chat, first string) KnownCalls {
	calls := KnownCalls{Fields: map[string]string{}, Runs: map[string]runCalls{}}
	path := e.path(chat, CallsFile+first)
	if e.Dir == "" || path == "" {
		return calls
	}
	text, _ := os.ReadFile(path) // absent in most cases
	for line := range bytes.Lines(text) {
		var l CallLine
		if json.Unmarshal(line, &l) != nil || l.Chat.Chat != chat {
			continue
		}
		if l.Field != "" {
			calls.Fields[l.Field] = l.Value
			delete(calls.Fields, redisstore.ResultOf(l.Field)) // a call that has one is not granted
		}
		calls.Runs[l.Run] = calls.Runs[l.Run].with(runCalls{l.Answers, l.Until, l.Seq})
	}
	for id, value := range calls.Fields {
		var c redisstore.Call
		if json.Unmarshal([]byte(value), &c) == nil && c.Run != "" && e.TakenBack(chat, c.Run, c.ClaimedAt) {
			delete(calls.Fields, id)
			delete(calls.Fields, redisstore.ResultOf(id))
		}
	}
	return calls
}

// Add takes what another process knows.
func (k KnownCalls) Add(other KnownCalls) {
	maps.Copy(k.Fields, other.Fields)
	for run, theirs := range other.Runs {
		k.Runs[run] = k.Runs[run].with(theirs)
	}
}

// Get is GET /internal/v1/chats/{chat}/calls/{run}.
func (e *EndStore) Get(c *gin.Context, chat memory.Chat) error {
	return api.Answer(c.Writer, http.StatusOK, e.Calls(chat, c.Param("run")), nil)
}
