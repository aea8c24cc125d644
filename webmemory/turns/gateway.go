package turns

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/provenance"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// HeardRoutes serves recall to the agents of runs, and recording and recall to the gateway, with the rights of the
// caller's key. The gateway reads the traffic of agents outside mneme, such as Claude Code, and of their models.
type HeardRoutes struct {
	*node.Core
	Leaser   *Leaser
	Searcher *past.Searcher
}

// heardTurn is the body of POST …/heard: a turn of an agent, or the items of a conversation.
type heardTurn struct {
	// Session and Turn identify the turn: 1 to 32 letters and digits each. Recorded messages are not recorded again.
	Session  string       `json:"session"`
	Turn     string       `json:"turn"`
	Subagent memory.Agent `json:"subagent,omitempty"` // the turn's subagent, whose user is the agent; empty for the user
	Began    int64        `json:"began"`              // Unix milliseconds; a later erasure discards the turn
	Input    string       `json:"said"`
	Answer   string       `json:"answered,omitempty"` // empty while the turn is active
	// Origin is the origin of Answer: the agent, or the source of its words.
	Origin memory.Origin `json:"origin,omitzero"`
	// Messages are recorded instead of Input and Answer. Each has the form of a message in a one-shot's context.
	Messages []json.RawMessage `json:"messages,omitempty"`
}

// Chat ids and sessions of recorded turns.
const (
	agentChats  = "agent:" // id prefix of the chats that the gateway records in
	itemSession = "items"  // session of the Conversations API, whose items are recorded in the chat that the client names
)

// maxTurn is the maximum age of a recorded turn. The longest stream lasts hours: see proxy.stream_timeout.
const maxTurn = 24 * time.Hour

// maxAhead is how far the clock of another service may be ahead.
const maxAhead = time.Minute

// check rejects turns that the gateway and the Conversations API do not record: in other chats, or with older times. A
// service's caller cannot write into the past of another chat.
func (t heardTurn) check(key memory.Key, now time.Time) error {
	began := time.UnixMilli(t.Began)
	switch {
	case !strings.HasPrefix(key.Chat().ID(), agentChats) && (t.Session != itemSession || t.Subagent != ""):
		return problem.BadRequest("turns are recorded in chats whose ids begin with %s.", agentChats)
	case began.Before(now.Add(-maxTurn)), began.After(now.Add(maxAhead)):
		return problem.BadRequest("began is not a time of the last %s, in Unix milliseconds.", maxTurn)
	}
	return nil
}

// messages returns the messages to record under run.
func (t heardTurn) messages(run string, now time.Time) (out []memory.Message, err error) {
	if len(t.Messages) > 0 {
		for i, raw := range t.Messages {
			m, err := contextMessage(raw)
			if err != nil {
				return nil, problem.BadRequest("messages[%d]: %s", i, err)
			}
			if len(m.Content) > memory.MaxMessage {
				return nil, problem.BadRequest("messages[%d] has %d bytes, at most %d are taken.", i, len(m.Content),
					memory.MaxMessage)
			}
			out = append(out, memory.Message{Role: m.Role, Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID})
		}
	} else {
		if strings.TrimSpace(t.Input) == "" || len(t.Input) > memory.MaxMessage || len(t.Answer) > memory.MaxMessage {
			return nil, problem.BadRequest("said is empty, or a text has more than %d bytes.", memory.MaxMessage)
		}
		out = []memory.Message{{Role: memory.RoleUser, Content: t.Input}, {Role: memory.RoleAssistant, Content: t.Answer}}
		if t.Answer == "" {
			out = out[:1]
		}
	}
	end := float64(now.UnixMilli()) / 1000
	var sources provenance.Ledger
	for i := range out {
		m := &out[i]
		m.ID, m.Timestamp = memory.MessageID(run, int64(i)+1), end
		switch {
		case m.Role == memory.RoleUser && t.Subagent == "":
			m.Origin = memory.Origin{Authority: memory.FromUser}
		case m.Role == memory.RoleTool:
			m.Origin = memory.Origin{Authority: memory.FromOutside}
		case len(t.Messages) > 0:
			m.Origin = sources.OriginOf(m.Content)
		case m.Role == memory.RoleAssistant && t.Origin.Authority.Foreign() && t.Origin.Authority != "":
			m.Origin = memory.Origin{Authority: t.Origin.Authority, Source: memory.Shorten(t.Origin.Source, memory.MaxSource)}
			if m.Authority.LowerThan(memory.FromOutside) { // the authority is unknown
				m.Authority = memory.FromOutside
			}
		default:
			m.Origin = memory.Origin{Authority: memory.FromAgent}
		}
		sources.Add(m.Origin, m.Content)
		if m.Role == memory.RoleUser {
			m.Timestamp = min(end, float64(t.Began)/1000)
		}
	}
	return out, nil
}

// askedTurn is the body of POST …/recalled.
type askedTurn struct {
	Session  string       `json:"session"` // excluded from recall: the agent has its messages already
	Subagent memory.Agent `json:"subagent,omitempty"`
	Query    string       `json:"query"`  // empty to get only the version
	Budget   int          `json:"budget"` // tokens
}

// recalledTurn is the response to an askedTurn.
type recalledTurn struct {
	memory.Recalled
	// Erased is the history's version, which changes with each erasure. The gateway does not show parts of another
	// version.
	Erased string `json:"erased"`
}

// MaxHeard limits the body of POST …/heard, in bytes: two texts of memory.MaxMessage each, in any JSON encoding.
const MaxHeard = 2*6*memory.MaxMessage + 4096

// heardID returns the id of the run that records a turn: its session and turn, joined.
func heardID(parts ...string) (id string, err error) {
	for _, part := range parts {
		ok := part != "" && len(part) <= 32 && !strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
		})
		if !ok {
			return "", problem.BadRequest("session and turn are 1 to 32 letters and digits.")
		}
	}
	return strings.Join(parts, "-"), nil
}

// heardKey returns the key of the history that a turn belongs to.
func heardKey(c *gin.Context, subagent memory.Agent) (memory.Key, error) {
	chat, err := problem.ChatOf(c)
	if err != nil || subagent == "" {
		return memory.ChatKey(chat), err
	}
	agent, err := memory.ParseAgent(string(subagent))
	return memory.SubagentKey(agent, chat), err
}

// PostHeard handles POST /internal/v1/chats/{chat}/heard.
func (s *HeardRoutes) PostHeard(c *gin.Context, t heardTurn) error {
	key, err := heardKey(c, t.Subagent)
	if err != nil {
		return err
	}
	run, err := heardID(t.Session, t.Turn)
	if err == nil {
		err = t.check(key, time.Now())
	}
	if err != nil {
		return err
	}
	messages, err := t.messages(run, time.Now())
	if err != nil {
		return err
	}
	err = s.Leaser.UnderTurn(c.Request.Context(), key.Chat(), func(ctx context.Context, w *runs.Writer) error {
		if w.ErasedIn() >= t.Began {
			return nil
		}
		if err := s.writeHeard(w, key, messages); err != nil {
			return err
		}
		return s.Store.Chats.ListNew(ctx, key.Chat())
	})
	return api.Answer(c.Writer, http.StatusNoContent, nil, err)
}

// heardBehind is the number of newest messages that are searched for messages that were recorded before.
const heardBehind = 100

// writeHeard appends the messages that the history does not have yet.
func (s *HeardRoutes) writeHeard(w *runs.Writer, key memory.Key, messages []memory.Message) error {
	h, recorded := w.History(key), map[string]bool{}
	for i := h.Len() - 1; i >= 0 && i >= h.Len()-heardBehind; i-- {
		if m, err := memory.Decode(h.Raw(i)); err == nil && len(m) > 0 {
			recorded[m[0].ID] = true
		}
	}
	for i, m := range messages {
		if recorded[m.ID] {
			continue
		}
		run, _, _ := memory.SplitID(m.ID)
		if err := w.AppendEncoded(key, memory.Mark{Run: run, Seq: int64(i) + 1, Turn: w.Number}, m.Encode()); err != nil {
			return err
		}
	}
	return w.Trim(s.Cfg.MaxHistory)
}

// PostRecalled handles POST /internal/v1/chats/{chat}/recalled.
func (s *HeardRoutes) PostRecalled(c *gin.Context, req askedTurn) error {
	key, err := heardKey(c, req.Subagent)
	if err != nil {
		return err
	}
	session, err := heardID(req.Session)
	if err != nil {
		return err
	}
	var out recalledTurn
	if out.Erased, err = s.Store.Erasures.Version(c.Request.Context(), key); err != nil {
		return err
	}
	if req.Query == "" {
		return api.Answer(c.Writer, http.StatusOK, out, nil)
	}
	q, err := past.RecallQuery(memory.Shorten(req.Query, past.MaxRecallQuery), "", "", "", "")
	if err != nil {
		return err
	}
	q.Budget, q.OldestFirst, q.Needed = min(max(req.Budget, 1), past.MaxRecallBudget), true, true
	q.Visible = func(_ memory.Key, id string) bool { return strings.HasPrefix(id, session+"-") }
	if out.Recalled, err = s.Searcher.Search(c.Request.Context(), q, key); err != nil {
		return err
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// PostRecall searches for the agents of a run; see memory.RecallRequest. It leaves out messages of the run itself,
// which the agents have.
func (s *HeardRoutes) PostRecall(c *gin.Context, r *runs.Run, req memory.RecallRequest) error {
	q, err := past.RecallQuery(req.Query, req.From, req.To, "", req.TimeZone)
	if err != nil {
		return err
	}
	if req.Budget < 0 || req.Budget > past.MaxRecallBudget || req.Overhead < 0 {
		return problem.BadRequest("budget is a whole number from 0 to %d, and overhead one of 0 or more.",
			past.MaxRecallBudget)
	}
	if r.OwnCalls != nil { // a one-shot has no past
		return api.Answer(c.Writer, http.StatusOK, memory.Recalled{Hits: []memory.RecallHit{}}, nil)
	}
	q.Budget, q.Overhead, q.OldestFirst = cmp.Or(req.Budget, past.RecallBudget), req.Overhead, req.Automatic
	own := memory.ChatKey(r.Chat)
	if req.Subagent != "" {
		if _, err := memory.ParseAgent(string(req.Subagent)); err != nil {
			return err
		}
		own = memory.SubagentKey(req.Subagent, r.Chat)
	}
	keys := []memory.Key{own}
	if req.Subagent == "" && !req.Automatic {
		if keys, err = s.Store.Chats.Keys(c.Request.Context(), r.Chat, s.Cfg.Agents()...); err != nil {
			return err
		}
	}
	visible := map[string]bool{}
	q.Needed = req.Needed
	if req.Automatic {
		visible = r.VisibleIDs(own)
	}
	if req.Automatic && !q.Needed {
		q.Floor = past.AutomaticFloor
	}
	q.Visible = func(_ memory.Key, id string) bool {
		run, _, ok := memory.SplitID(id)
		return visible[id] || ok && run == r.ID
	}
	if req.Everywhere && !r.User.IsZero() {
		// A chat with several users gets nothing from the other chats of a single user.
		exclusive, _, err := s.Store.Users.PostedAlone(c.Request.Context(), r.User, r.Chat)
		if err != nil {
			return err
		}
		if exclusive {
			return past.AnswerUser(c, s.Searcher, q, r.User)
		}
	}
	return s.Searcher.AnswerRecall(c, q, keys...)
}
