// Package chatstate is what is true of a chat beside its histories: the run that is not over, what it waits for, the
// calls of tools outside that were granted, which posts were answered, and what was deliberately changed or erased. It
// is one value, State, small enough to be read and written whole. Transitions (Apply) change it, and Merge joins two
// states of one chat that went different ways after the server lost data.
//
// The package is pure: it knows neither Redis nor the network, and times are arguments. DESIGN.md says why the rules
// of Merge are as they are. The services do not use it yet.
package chatstate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of an encoded state in bytes: after any transition, and after a merge, which may add up what two states hold.
const (
	MaxSize   = 8 << 10
	MaxMerged = 16 << 10
)

// ErrDamaged says that a stored text is no state of ours.
var ErrDamaged = errors.New("the chat's state is damaged: it is not what mneme writes; restore it or delete the key")

// Mark names one commit: by the fencing token under which it was made, the holder of the lease, and its number under
// that token. The holder is part of it because a token's number can be given twice: two servers that went apart give
// the next number each, and so do two clocks that went back.
type Mark struct {
	Turn int64  // the fencing token, about the Unix ms at which the lease was taken
	N    int64  // of the commits under it, 0 for taking the lease
	By   string // the lease's holder: a short random text, new with every lease
}

// Compare orders marks: by token, then by holder, then by number.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Turn, o.Turn), strings.Compare(m.By, o.By), cmp.Compare(m.N, o.N))
}

// Before says whether it was made before another one, as far as the order of marks tells.
func (m Mark) Before(o Mark) bool { return m.Compare(o) < 0 }

// SameHolder says whether both were made under one lease.
func (m Mark) SameHolder(o Mark) bool { return m.Turn == o.Turn && m.By == o.By }

// MarshalText implements encoding.TextMarshaler.
func (m Mark) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%d.%s", m.Turn, m.N, m.By), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mark) UnmarshalText(text []byte) error {
	turn, rest, _ := strings.Cut(string(text), ".")
	n, by, _ := strings.Cut(rest, ".")
	var err, err2 error
	m.Turn, err = strconv.ParseInt(turn, 10, 64)
	m.N, err2 = strconv.ParseInt(n, 10, 64)
	m.By = by
	if err != nil || err2 != nil || m.Turn < 0 || m.N < 0 || !isWord(by, 16) {
		return fmt.Errorf("%w: %.60q names no commit", ErrDamaged, text)
	}
	return nil
}

// State is what is true of a chat. The zero value is that of a chat that nobody has used. Its lists are sorted and
// never changed in place, so a copy of the struct is a copy of the state.
type State struct {
	Turn int64  `json:"turn"` // these three come first and in this form: the commit script compares them as text
	N    int64  `json:"n"`
	By   string `json:"by"`

	Run    *Run    `json:"run,omitempty"`    // the newest run, also when it is over
	Keys   []Key   `json:"keys,omitempty"`   // posts with an idempotency key whose runs are over
	Grants []Grant `json:"grants,omitempty"` // of calls of tools outside
	// Older is the newest mark of a grant that left the list for want of room: a call whose post is older and that is
	// not on the list may have been granted.
	Older Mark `json:"older,omitzero"`

	Erased *Change  `json:"erased,omitempty"` // the newest erasure of the whole chat
	Cuts   []Change `json:"cuts,omitempty"`   // other deliberate changes since
	Cut    Mark     `json:"cut,omitzero"`     // the newest change that left the list for want of room

	Array         Array          `json:"array,omitzero"` // of the chat's own history
	Histories     []History      `json:"histories,omitempty"`
	Conversations []Conversation `json:"conversations,omitempty"` // the gateway's; the last one is in use
}

// Phases of a run, in the order in which they come.
const (
	Posted   = "posted"   // no apiserver has accepted it as far as is known
	Accepted = "accepted" // an apiserver has it
	Waiting  = "waiting"  // it is suspended until somebody answers
	Over     = "over"
)

// Outcomes of a run that are none of the run's own.
const (
	Lost      = "run_lost"  // a newer run began while it was not over, since Redis had forgotten it
	Withdrawn = "withdrawn" // refused before it was accepted: it left nothing behind
)

// Run is the newest run of a chat. Mark and ID say which it is: a post that comes again after a loss can begin a
// second run of the same id.
type Run struct {
	Mark    Mark   `json:"mark"` // of the commit that began it
	ID      string `json:"id"`
	Phase   string `json:"phase"`
	Step    int64  `json:"step,omitempty"` // rises with every suspension and every going on
	At      Mark   `json:"at"`             // of the commit that changed it last
	Outcome string `json:"outcome,omitempty"`
	Keyed   bool   `json:"keyed,omitempty"`

	// These are gone once it is over.
	Attempt int    `json:"attempt,omitempty"` // above 1 for a further attempt at the post
	First   string `json:"first,omitempty"`   // the run of the first attempt, if this is another one
	Since   int64  `json:"since,omitempty"`   // the fencing token under which the first attempt began
	Post    string `json:"post,omitempty"`    // hash of the post
	Agent   string `json:"agent,omitempty"`
	Process string `json:"process,omitempty"`
	Events  string `json:"events,omitempty"` // URL
	Body    string `json:"body,omitempty"`   // of the post, until the run is accepted
	Beside  bool   `json:"beside,omitempty"` // the body is in the key beside the state, since it is long

	Expires int64    `json:"expires,omitempty"` // Unix ms at which the first of its waits expires
	Until   int64    `json:"until,omitempty"`   // Unix ms until which what it goes on from is kept
	Given   Mark     `json:"given,omitzero"`    // of the answers that it went on with
	Answers []Answer `json:"answers,omitempty"` // by the step of the suspension
}

// Unfinished says whether there is a run that is not over.
func (r *Run) Unfinished() bool { return r != nil && r.Phase != Over }

// Answer notes that a suspension was answered. All of its waits are answered at once; what was said is in the key
// beside the state.
type Answer struct {
	Step int64  `json:"step"`
	Mark Mark   `json:"mark"`
	Sum  string `json:"sum"` // of what was said
}

// Key is a post with an idempotency key whose run is over.
type Key struct {
	Mark    Mark // of the commit that began the run
	Run     string
	Outcome string
}

// Grant is one leave to make a call of a tool outside.
type Grant struct {
	Call string // short hash of the post's first run and the call's id
	// Mark's token and holder say who was granted it, and N of which commit; that of a withdrawal or a result counts on.
	Turn int64
	By   string
	N    int64
	Word string // what became of it
}

// Words of a Grant.
const (
	Granted = "granted"
	Refused = "refused" // withdrawn, since too few replicas had it
	Made    = "made"    // its result is in the key beside the state
)

// Kinds of a Change.
const (
	Erase  = "erased"   // messages went
	Redact = "redacted" // messages lost their text
	Rewind = "rewound"  // runs were taken back
	Edit   = "edited"   // somebody else rewrote or deleted a history by hand
)

// Change is a deliberate change, which no older copy may undo. Its parts are what is to be done about it, by name: an
// even number says that the part is open, an odd one that it is done. Opening a part again raises the number.
type Change struct {
	Mark  Mark           `json:"mark"`
	Kind  string         `json:"kind"`
	Of    string         `json:"of,omitempty"`    // the subagent whose history it is; "" for the chat's own, or all
	Names []string       `json:"names,omitempty"` // ids of messages or runs
	Parts map[string]int `json:"parts,omitempty"`
}

// Open are the names of the parts that are not done.
func (c *Change) Open() (names []string) {
	if c != nil {
		for name, round := range c.Parts {
			if round%2 == 0 {
				names = append(names, name)
			}
		}
	}
	return names
}

// History is one that the chat has used, and what its archive holds. The chat's own has no agent. One that two
// servers noted apart has two entries; the last one holds.
type History struct {
	Agent    string `json:"agent,omitempty"`
	Mark     Mark   `json:"mark"`        // of the commit that noted it
	At       Mark   `json:"at,omitzero"` // of the last change of its archive
	Segments int64  `json:"segments,omitempty"`
	Messages int64  `json:"messages,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
}

// Array is what the chat's own history is stored as, whose appends are part of commits: its length in bytes, its
// messages, and the content chain's end over them. It says what the server had at the state's mark and no more: after
// a merge the history is looked at before it is written.
type Array struct {
	Len   int64  `json:"len"`
	Count int64  `json:"count"`
	Sum   string `json:"sum"`
}

// Conversation is one of the gateway's. Those before the last one are known for an erasure alone.
type Conversation struct {
	Mark Mark   `json:"mark"`
	ID   string `json:"id"`
}

// Mark is that of the commit that made the state.
func (s State) Mark() Mark { return Mark{s.Turn, s.N, s.By} }

// Head is how an encoded state begins that a commit made: the commit script compares it byte for byte, since a number
// of that size would lose its last digits in Lua.
func Head(m Mark) string {
	return fmt.Sprintf(`{"turn":%d,"n":%d,"by":"%s"`, m.Turn, m.N, m.By)
}

// Encode is the stored form. Two states that are the same have the same bytes.
func (s State) Encode() []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(fmt.Sprintf("chatstate: a state does not encode: %v", err)) // plain structs of ours
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// Decode reads what Encode wrote. Any other text is refused with ErrDamaged.
func Decode(text []byte) (State, error) {
	var s State
	if len(text) > MaxMerged {
		return State{}, fmt.Errorf("%w (%d bytes, at most %d)", ErrDamaged, len(text), MaxMerged)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := s.check(); err != nil {
		return State{}, err
	}
	return Merge(s, s), nil // its lists in order
}

// check says what in a decoded state cannot have been written by Encode.
func (s State) check() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }
	if s.Turn < 0 || s.N < 0 || !isWord(s.By, 16) {
		return bad("its fencing token is none")
	}
	if r := s.Run; r != nil && (!isWord(r.ID, 64) || phaseOrder(r.Phase) < 0 || r.Step < 0) {
		return bad("its run is none")
	}
	for _, c := range append(s.Cuts[:len(s.Cuts):len(s.Cuts)], deref(s.Erased)...) {
		for name, round := range c.Parts {
			if round < 0 || name == "" {
				return bad("a part of a change is none")
			}
		}
	}
	return nil
}

func deref(c *Change) []Change {
	if c == nil {
		return nil
	}
	return []Change{*c}
}

// phaseOrder is a phase's place among them, -1 for what is none.
func phaseOrder(phase string) int {
	for i, p := range []string{Posted, Accepted, Waiting, Over} {
		if p == phase {
			return i
		}
	}
	return -1
}

// isWord says whether a text can stand in a list's entry: short, and without what separates there.
func isWord(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '"' || c == '\\'
	})
}

// The entries of the long lists are texts of words, a third of the bytes that objects would take.

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%d.%s %s %s", k.Mark.Turn, k.Mark.N, k.Mark.By, k.Run, k.Outcome), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(text []byte) error {
	words := strings.Split(string(text), " ")
	if len(words) != 3 || !isWord(words[1], 64) || !isWord(words[2], 32) {
		return fmt.Errorf("%w: %.60q is no key's entry", ErrDamaged, text)
	}
	k.Run, k.Outcome = words[1], words[2]
	return k.Mark.UnmarshalText([]byte(words[0]))
}

// MarshalText implements encoding.TextMarshaler.
func (g Grant) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%d.%s %s %s", g.Turn, g.N, g.By, g.Call, g.Word), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Grant) UnmarshalText(text []byte) error {
	words := strings.Split(string(text), " ")
	if len(words) != 3 || !isWord(words[1], 64) || wordOrder(words[2]) < 0 {
		return fmt.Errorf("%w: %.60q is no grant", ErrDamaged, text)
	}
	var m Mark
	err := m.UnmarshalText([]byte(words[0]))
	g.Turn, g.N, g.By, g.Call, g.Word = m.Turn, m.N, m.By, words[1], words[2]
	return err
}

// wordOrder is a grant's word's place among them, -1 for what is none.
func wordOrder(word string) int {
	for i, w := range []string{Granted, Refused, Made} {
		if w == word {
			return i
		}
	}
	return -1
}
