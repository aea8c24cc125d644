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

// CallsFile is the prefix of the names of call files. No run id begins with it.
const CallsFile = "calls-"

// CallLine is a line of a call file. It holds a field of the calls in Redis, or answers.
type CallLine struct {
	Chat    memory.StoredChat `json:"chat"`
	Run     string            `json:"run"` // run that was granted the call or received the answers
	Field   string            `json:"field,omitempty"`
	Value   string            `json:"value,omitempty"`
	Seq     int64             `json:"seq,omitempty"`     // sequence number of the run's newest event at the grant
	Answers map[string]string `json:"answers,omitempty"` // by wait id
	Until   int64             `json:"until,omitempty"`   // expiry of the answers, Unix ms
}

// KnownCalls holds the known tool calls of a post's runs.
type KnownCalls struct {
	Fields map[string]string   `json:"fields"` // as in Redis: calls by id, results by redisstore.ResultOf
	Runs   map[string]runCalls `json:"runs"`
}

// runCalls holds the known answers and the newest call of a run.
type runCalls struct {
	Answers map[string]string `json:"answers"` // by wait id
	Until   int64             `json:"until"`   // expiry of the answers, Unix ms
	Called  int64             `json:"called"`  // sequence number of its newest event at its newest grant; 0 for none
}

// with merges the records of two processes, or of two lines, about a run.
func (r runCalls) with(other runCalls) runCalls {
	answers := map[string]string{}
	maps.Copy(answers, r.Answers)
	maps.Copy(answers, other.Answers)
	return runCalls{answers, max(r.Until, other.Until), max(r.Called, other.Called)}
}

// NoteCall appends a line to the call file of a post and keeps the file for the duration life. first is the run of the
// post's first attempt.
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

// Calls returns the calls that NoteCall stored. It skips incomplete lines and lines of other chats. It also leaves out
// calls, with their results, if their run was taken back after the grant.
func (e *EndStore) Calls(chat memory.Chat, first string) KnownCalls {
	calls := KnownCalls{Fields: map[string]string{}, Runs: map[string]runCalls{}}
	path := e.path(chat, CallsFile+first)
	if e.Dir == "" || path == "" {
		return calls
	}
	text, _ := os.ReadFile(path) // most posts have no such file
	for line := range bytes.Lines(text) {
		var l CallLine
		if json.Unmarshal(line, &l) != nil || l.Chat.Chat != chat {
			continue
		}
		if l.Field != "" {
			calls.Fields[l.Field] = l.Value
			delete(calls.Fields, redisstore.ResultOf(l.Field)) // no call with a result is granted
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

// Add merges the calls known to another process into k.
func (k KnownCalls) Add(other KnownCalls) {
	maps.Copy(k.Fields, other.Fields)
	for run, theirs := range other.Runs {
		k.Runs[run] = k.Runs[run].with(theirs)
	}
}

// Get handles GET /internal/v1/chats/{chat}/calls/{run}.
func (e *EndStore) Get(c *gin.Context, chat memory.Chat) error {
	return api.Answer(c.Writer, http.StatusOK, e.Calls(chat, c.Param("run")), nil)
}
