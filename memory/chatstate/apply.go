package chatstate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Errors of transitions. A transition that is refused has changed nothing.
var (
	ErrFull     = errors.New("the chat's state has no room; end or answer what is open, then try again")
	ErrBusy     = errors.New("a run of the chat is not over")
	ErrNoRun    = errors.New("the chat has no such run, or it is not in a phase in which this can be done")
	ErrAnswered = errors.New("the run was answered already, and otherwise")
	ErrUnknown  = errors.New("the call may have been made already")
	ErrKnown    = errors.New("the post was answered already: its run is over or was lost")
	ErrMade     = errors.New("the call was made, and its result is kept")
)

// An Act is what a transition does: apply changes the state that it is given, which is a copy, at the mark of the
// commit that is to be.
type Act interface {
	apply(s *State, at Mark) ([]Effect, error)
}

// What the effects do.
const (
	ListOpen   = "list open"  // the chat is looked after: value is the Unix ms from which on
	ListWaits  = "list waits" // and is on the list of those that wait
	Unlist     = "unlist"     // it is on neither list
	Keep       = "keep"       // a field of the key beside the state gets the value, in the same commit
	Drop       = "drop"       // a field of that key goes, "" for all of it
	Record     = "record"     // the run's own record says how it ended, before the commit
	Ask        = "ask"        // the apiserver is asked for the run
	Stop       = "stop"       // the apiserver is told to stop the run
	Close      = "close"      // the run's readers are told that it is lost
	Do         = "do"         // a part of a change is to be done
	Tell       = "tell"       // the other processes are told of a change
	BesideBody = "body"       // field of the body of a post
	BesideWait = "wait"       // field of what a suspended run goes on from
	BesideCall = "call:"      // begins the field of a call's result
	BesideSaid = "said:"      // begins the field of what was answered
	maxBody    = 1 << 10      // bytes of a body in the state
	maxURL     = 512          // bytes of the address of a run's events
	maxOpen    = maxCuts / 2  // changes that are not done
	maxAgent   = 64           // bytes of a subagent's name
	reserve    = 2 << 10      // bytes of a state that are left to what brings things to their ends
)

// Effect is something to be done beside the commit: in its order, and again after a crash.
type Effect struct {
	Do    string
	Name  string
	At    int64
	Value []byte
}

// Apply makes the transition of one act. The state after has the next number under the same token; if the act changes
// nothing, as one that was done before, it is the state before, and there is nothing to commit.
func Apply(s State, a Act) (State, []Effect, error) {
	after, at := s, Mark{s.Turn, s.N + 1, s.By}
	effects, err := a.apply(&after, at)
	if err != nil {
		return s, nil, err
	}
	after = normal(after)
	if slices.Equal(after.Encode(), s.Encode()) {
		return s, effects, nil
	}
	if _, take := a.(Take); !take {
		after.N = at.N
	}
	if size := len(after.Encode()); begins(a) && size > MaxSize-reserve && size > len(s.Encode()) {
		return s, nil, fmt.Errorf("%w (%d bytes, at most %d)", ErrFull, size, MaxSize-reserve)
	}
	return after, effects, nil
}

// begins says whether an act begins something. Only that is refused for want of room, and leaves the reserve to what
// brings things to their ends: a run that was accepted must be noted, and an erasure is always taken.
func begins(a Act) bool {
	switch a := a.(type) {
	case Post, Claim, Use, Converse, Suspend:
		return true
	case Remove:
		return a.Kind != Erase || a.Of != ""
	}
	return false
}

// Take takes the fencing token of a new lease. Above is the highest token that the caller has seen or that its clock
// gives; the new one is above it and above all that the state has.
type Take struct {
	By    string
	Above int64
}

func (t Take) apply(s *State, _ Mark) ([]Effect, error) {
	if !isWord(t.By, 16) || t.By == "" {
		return nil, fmt.Errorf("a lease's holder is a short text, not %.40q", t.By)
	}
	s.Turn, s.N, s.By = max(s.Turn, t.Above)+1, 0, t.By
	if s.Run != nil && s.Run.Phase == Posted {
		return []Effect{{Do: Ask, Name: s.Run.ID, Value: []byte(s.Run.Body)}}, nil
	}
	return nil, nil
}

// Post begins a run with all that is needed to ask an apiserver for it, whoever does.
type Post struct {
	Run  Run // with what is known of the post
	Body string
	Look int64 // Unix ms from which on others look after the chat
}

func (p Post) apply(s *State, at Mark) ([]Effect, error) {
	if s.Run.Unfinished() {
		return nil, fmt.Errorf("%w: %s", ErrBusy, s.Run.ID)
	}
	if !isWord(p.Run.ID, 64) || p.Run.ID == "" || len(p.Run.Events) > maxURL {
		return nil, fmt.Errorf("%w: %.80q is no run's id", ErrNoRun, p.Run.ID)
	}
	if s.Erased != nil && s.Erased.Mark.SameHolder(at) {
		// A grant is told from those before an erasure by its lease alone.
		return nil, fmt.Errorf("%w: the lease was taken to erase the chat; take another one", ErrBusy)
	}
	if s.Knows(p.Run.ID) != "" {
		return nil, fmt.Errorf("%w: %s", ErrKnown, p.Run.ID)
	}
	if s.Run != nil {
		s.Keys = union(s.Keys, keyOf(s.Run), Key.compare, func(k, l Key) Key { return greater(k, l, Key.order) })
	}
	run, effects := p.Run, []Effect{{Do: ListOpen, At: p.Look}}
	run.Mark, run.At, run.Phase, run.Step, run.Outcome, run.Answers = at, at, Posted, 0, "", nil
	if run.Since == 0 || run.Attempt <= 1 {
		run.Since = at.Turn
	}
	if run.Body, run.Beside = p.Body, false; len(p.Body) > maxBody {
		run.Body, run.Beside = "", true
		effects = append(effects, Effect{Do: Keep, Name: BesideBody, Value: []byte(p.Body)})
	}
	s.Run = &run
	return append(effects, Effect{Do: Ask, Name: run.ID}), nil
}

// Knows is how a run ended that a post may repeat, "" for what is not known or was withdrawn.
func (s State) Knows(run string) (outcome string) {
	keys := s.Keys
	if s.Run != nil {
		keys = append(slices.Clone(keys), keyOf(s.Run)...)
	}
	for _, k := range keys {
		if k.Run == run && k.Outcome != Withdrawn && (outcome == "" || outcomes(outcome, k.Outcome) < 0) {
			outcome = k.Outcome
		}
	}
	return outcome
}

// Accept notes that an apiserver has the run.
type Accept struct{ Run, Events, Process string }

func (a Accept) apply(s *State, at Mark) ([]Effect, error) {
	if !s.Run.Unfinished() || s.Run.ID != a.Run || s.Run.Phase == Waiting || len(a.Events) > maxURL {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, a.Run)
	}
	run, beside := *s.Run, s.Run.Beside
	run.Events, run.Process, run.Body, run.Beside, run.Phase = a.Events, a.Process, "", false, Accepted
	if run.Phase != s.Run.Phase || run.Events != s.Run.Events || run.Process != s.Run.Process {
		run.At = at
	}
	s.Run = &run
	if beside {
		return []Effect{{Do: Drop, Name: BesideBody}}, nil
	}
	return nil, nil
}

// Finish ends the run: as it ended by itself, as Lost, or as Withdrawn before it was accepted.
type Finish struct{ Run, Outcome string }

func (f Finish) apply(s *State, at Mark) ([]Effect, error) {
	r := s.Run
	if r == nil || r.ID != f.Run || !isWord(f.Outcome, 32) || f.Outcome == "" {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, f.Run)
	}
	if r.Phase == Over {
		return nil, nil
	}
	if f.Outcome == Withdrawn && r.Phase != Posted {
		return nil, fmt.Errorf("%w: %s was accepted", ErrNoRun, f.Run)
	}
	effects := []Effect{{Do: Record, Name: f.Run}, {Do: Unlist}}
	if f.Outcome == Withdrawn {
		effects = effects[1:]
	}
	if r.Beside || r.Step > 0 || r.Phase == Waiting {
		effects = append(effects, Effect{Do: Drop, Name: BesideBody}, Effect{Do: Drop, Name: BesideWait})
	}
	s.Run = &Run{Mark: r.Mark, ID: r.ID, Phase: Over, Step: r.Step + 1, At: at, Outcome: f.Outcome, Keyed: r.Keyed}
	return effects, nil
}

// Suspend has the run wait. State is what it goes on from.
type Suspend struct {
	Run            string
	Expires, Until int64
	State          []byte
}

func (w Suspend) apply(s *State, at Mark) ([]Effect, error) {
	if !s.Run.Unfinished() || s.Run.ID != w.Run || s.Run.Phase != Accepted {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, w.Run)
	}
	run := *s.Run
	run.Phase, run.Step, run.At, run.Expires, run.Until, run.Given = Waiting, run.Step+1, at, w.Expires, w.Until, Mark{}
	s.Run = &run
	return []Effect{{Do: Keep, Name: BesideWait, Value: w.State}, {Do: ListWaits, At: w.Expires}}, nil
}

// Resume answers all that the run waits for, and has it go on: who commits it has the leave to do so. Sum is a hash
// of the answers. The same answers again are no error, and change nothing.
type Resume struct {
	Run, Sum string
	Said     []byte
	Look     int64
}

func (r Resume) apply(s *State, at Mark) ([]Effect, error) {
	if !s.Run.Unfinished() || s.Run.ID != r.Run || !isWord(r.Sum, 64) {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, r.Run)
	}
	run := *s.Run
	i := slices.IndexFunc(run.Answers, func(a Answer) bool { return a.Step == run.Step || a.Step == run.Step-1 })
	switch {
	case i >= 0 && run.Answers[i].Sum != r.Sum:
		return nil, fmt.Errorf("%w: %s", ErrAnswered, r.Run)
	case i < 0 && run.Phase != Waiting:
		return nil, fmt.Errorf("%w: %s", ErrNoRun, r.Run)
	case run.Phase != Waiting:
		return nil, nil
	}
	if i < 0 {
		run.Answers = lastOf(append(slices.Clone(run.Answers), Answer{run.Step, at, r.Sum}), maxAnswers)
		i = len(run.Answers) - 1
	}
	said := fmt.Sprint(BesideSaid, run.Step)
	run.Given, run.Phase, run.Step, run.At = run.Answers[i].Mark, Accepted, run.Step+1, at
	s.Run = &run
	return []Effect{{Do: Keep, Name: said, Value: r.Said}, {Do: ListOpen, At: r.Look}, {Do: Ask, Name: run.ID}}, nil
}

// Claim asks for leave to make a call, by the short hash of the post's first run and of the call's id. No error: it
// is granted by the commit.
type Claim struct {
	Call       string
	Repeatable bool
}

func (c Claim) apply(s *State, at Mark) ([]Effect, error) {
	if !s.Run.Unfinished() || s.Run.Phase != Accepted || !isWord(c.Call, 64) || c.Call == "" {
		return nil, ErrNoRun
	}
	grant := Grant{c.Call, at.Turn, at.By, at.N, Granted}
	own := slices.IndexFunc(s.Grants, func(g Grant) bool { return g.compare(grant) == 0 })
	switch word := s.Word(c.Call); {
	case word == Made:
		return nil, ErrMade
	case word == Granted && !c.Repeatable:
		return nil, ErrUnknown
	case word == "" && own < 0 && s.Run.Since <= s.Older.Turn:
		return nil, ErrUnknown // its grant may be one of those that left the list
	case own < 0 && len(s.Grants) == maxGrants && !s.mayDrop(s.Grants[0]):
		return nil, fmt.Errorf("%w: it keeps %d calls of tools outside", ErrFull, maxGrants)
	}
	s.Grants = union(s.Grants, []Grant{grant}, Grant.compare, func(_, again Grant) Grant { return again })
	return nil, nil
}

// mayDrop says whether a grant may leave the list: none of a post whose run is not over, and no more than that one.
func (s *State) mayDrop(g Grant) bool {
	return g.Turn < s.Run.Since && (len(s.Grants) < 2 || s.Grants[1].mark() != g.mark())
}

// Settle notes that a call was made; the first result stays. It is no error if the grant itself was lost.
type Settle struct {
	Call   string
	Result []byte
}

func (c Settle) apply(s *State, at Mark) ([]Effect, error) {
	if !isWord(c.Call, 64) || c.Call == "" {
		return nil, ErrNoRun
	}
	of := -1
	for i, g := range s.Grants {
		if g.Call == c.Call && g.Word == Made {
			return nil, nil
		}
		if g.Call == c.Call && g.Word == Granted {
			of = i // the newest
		}
	}
	if of < 0 {
		return nil, ErrUnknown
	}
	grants := slices.Clone(s.Grants)
	grants[of].Word = Made
	s.Grants = grants
	return []Effect{{Do: Keep, Name: BesideCall + c.Call, Value: c.Result}}, nil
}

// Unclaim withdraws what was granted under this lease and was not told to anybody.
type Unclaim struct{ Call string }

func (c Unclaim) apply(s *State, at Mark) ([]Effect, error) {
	grants := slices.Clone(s.Grants)
	for i, g := range grants {
		if g.Call == c.Call && g.mark() == (Mark{Turn: at.Turn, By: at.By}) && g.Word == Granted {
			grants[i].Word, grants[i].N = Refused, at.N
		}
	}
	s.Grants = grants
	return nil, nil
}

// Word is what is known of a call: Made, Granted, or "" for nothing. twice: more than one lease was granted it.
func (s State) Word(call string) string {
	word, _ := s.word(call)
	return word
}

// Twice says whether a call was granted under more than one lease: it may have been made twice.
func (s State) Twice(call string) bool {
	_, live := s.word(call)
	return live > 1
}

func (s State) word(call string) (word string, live int) {
	for _, g := range s.Grants {
		if g.Call != call || g.Word == Refused {
			continue
		}
		if live++; word != Made {
			word = g.Word
		}
	}
	return word, live
}

// Remove notes a deliberate change: Kind Erase without Of is an erasure of the whole chat. Its parts are open.
type Remove struct {
	Kind, Of string
	Names    []string
	Parts    []string
}

func (r Remove) apply(s *State, at Mark) ([]Effect, error) {
	if len(r.Names) > maxNames || len(r.Parts)+maxHistories/2 > maxParts || slices.ContainsFunc(
		slices.Concat(r.Names, r.Parts), func(name string) bool { return name == "" || !isWord(name, 80) }) {
		return nil, fmt.Errorf("%w: a change names at most %d messages or runs", ErrFull, maxNames)
	}
	c := Change{Mark: at, Kind: r.Kind, Of: r.Of, Names: slices.Clone(r.Names), Parts: map[string]int{}}
	effects := []Effect{{Do: Tell, Name: r.Kind}}
	for _, part := range r.Parts {
		c.Parts[part] = 0
		effects = append(effects, Effect{Do: Do, Name: part})
	}
	if r.Kind == Erase && r.Of == "" {
		for _, p := range s.places() {
			c.Parts[p.name] = 0
			effects = append(effects, Effect{Do: Do, Name: p.name})
		}
		if s.Run.Unfinished() {
			effects = append(effects, Effect{Do: Stop, Name: s.Run.ID}, Effect{Do: Drop}, Effect{Do: Unlist})
		}
		s.Erased, s.Array = joinErased(s.Erased, &c), Array{}
		return effects, nil
	}
	if s.Run.Unfinished() && r.Kind != Edit {
		return nil, fmt.Errorf("%w: %s", ErrBusy, s.Run.ID) // its end comes first
	}
	open := 0
	for _, cut := range s.Cuts {
		if len(cut.Open()) > 0 {
			open++
		}
	}
	if open >= maxOpen || len(s.Cuts) >= maxCuts && len(s.Cuts[0].Open()) > 0 {
		return nil, fmt.Errorf("%w: %d changes are not done", ErrFull, open)
	}
	s.Cuts = union(s.Cuts, []Change{joinChange(c, c)}, Change.compare, joinChange)
	return effects, nil
}

// Done notes that a part of a change was done.
type Done struct {
	Of   Mark // the change's
	Part string
}

func (d Done) apply(s *State, _ Mark) ([]Effect, error) {
	s.parts(func(c *Change) {
		if round, known := c.Parts[d.Part]; known && c.Mark == d.Of && round%2 == 0 {
			c.Parts[d.Part]++
		}
	})
	return nil, nil
}

// Reopen opens parts of changes again whose place may have lost that they were done: with every merge after the
// server lost data, those that lie on it, of changes from a token on.
type Reopen struct {
	From   int64
	Places []string // how the names of such parts begin
}

func (r Reopen) apply(s *State, _ Mark) ([]Effect, error) {
	s.parts(func(c *Change) {
		for name, round := range c.Parts {
			on := func(place string) bool { return strings.HasPrefix(name, place) }
			if round%2 == 1 && c.Mark.Turn >= r.From && slices.ContainsFunc(r.Places, on) {
				c.Parts[name]++
			}
		}
	})
	return nil, nil
}

// parts has each change's parts changed, in copies.
func (s *State) parts(change func(*Change)) {
	copied := func(c Change) Change {
		c.Parts = maps.Clone(c.Parts)
		change(&c)
		return c
	}
	if s.Erased != nil {
		e := copied(*s.Erased)
		s.Erased = &e
	}
	cuts := slices.Clone(s.Cuts)
	for i := range cuts {
		cuts[i] = copied(cuts[i])
	}
	s.Cuts = cuts
}

// Append notes what messages made of the chat's own array, which they are spliced into by the same commit.
type Append struct{ Array Array }

func (a Append) apply(s *State, _ Mark) ([]Effect, error) {
	if !isWord(a.Array.Sum, 64) || a.Array.Len < s.Array.Len {
		return nil, fmt.Errorf("an append makes an array longer, not %d bytes of %d", a.Array.Len, s.Array.Len)
	}
	s.Array = a.Array
	return nil, nil
}

// Use notes a subagent before its first message, or what its archive holds; "" for the chat's own history.
type Use struct {
	Agent                     string
	Segments, Messages, Bytes int64
}

func (u Use) apply(s *State, at Mark) ([]Effect, error) {
	if len(u.Agent) > maxAgent || !isWord(u.Agent, maxAgent) {
		return nil, fmt.Errorf("%.80q is no subagent's name", u.Agent)
	}
	histories := slices.Clone(s.Histories)
	i := len(histories) - 1
	for ; i >= 0 && histories[i].Agent != u.Agent; i-- {
	}
	h := History{Agent: u.Agent, Mark: at, Segments: u.Segments, Messages: u.Messages, Bytes: u.Bytes}
	switch {
	case i < 0 && len(histories) >= maxHistories:
		return nil, fmt.Errorf("%w: it knows %d histories", ErrFull, maxHistories)
	case i < 0:
		if h.Messages != 0 {
			h.At = at
		}
		histories = append(histories, h)
	case histories[i].Messages != u.Messages || histories[i].Segments != u.Segments || histories[i].Bytes != u.Bytes:
		h.Mark, h.At = histories[i].Mark, at
		histories[i] = h
	}
	s.Histories = histories
	return nil, nil
}

// Converse gives the chat a conversation of the gateway's.
type Converse struct{ ID string }

func (c Converse) apply(s *State, at Mark) ([]Effect, error) {
	if !isWord(c.ID, 64) || c.ID == "" {
		return nil, fmt.Errorf("%.80q is no conversation", c.ID)
	}
	if n := len(s.Conversations); n > 0 && s.Conversations[n-1].ID == c.ID {
		return nil, nil
	}
	// One that leaves the list for want of room has been erased at the gateway by the change that asked for this one.
	s.Conversations = union(s.Conversations, []Conversation{{at, c.ID}}, Conversation.compare, nil)
	return nil, nil
}

// Expire drops what is too old to matter, by tokens: grants and keys of posts that nobody can repeat any more, and
// changes that no copy is older than.
type Expire struct{ Posts, Changes int64 }

func (e Expire) apply(s *State, _ Mark) ([]Effect, error) {
	posts := e.Posts
	if s.Run.Unfinished() {
		posts = min(posts, s.Run.Since)
	}
	for _, g := range s.Grants {
		if g.Turn < posts {
			s.Older = later(s.Older, g.mark())
		}
	}
	for _, c := range s.Cuts {
		if c.Mark.Turn >= e.Changes || len(c.Open()) > 0 {
			break
		}
		s.Cut = later(s.Cut, c.Mark)
	}
	s.Keys = without(s.Keys, func(k Key) bool { return k.Mark.Turn < posts })
	return nil, nil
}
