//go:build !race

package chatstate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory/chatstate"
)

// The model: two processes use one chat over servers that lose what they took last, come back empty, or go on apart
// for a while, with clocks that step back, processes that die, and commits that are sent twice. What a process was
// told to be committed it may have told its clients: that must hold for ever, or be known to be broken.

type place = string

// snapshot is what a server holds of the chat.
type snapshot struct {
	text   []byte // nil: absent
	arrays map[place]chatstate.Mark
}

type server struct {
	id int // another one after each loss
	snapshot
	before []snapshot
	lease  string
}

type process struct {
	name  string
	skew  int64
	on    *server
	mem   chatstate.State // what it remembers on its disk
	seen  int64           // the highest token of which it knows
	knows int             // the server whose state was merged with mem
	heard int             // the server since whose beginning it has heard the other process
	held  bool
	state chatstate.State // under its lease
	by    string
}

type told struct {
	name string // call, or run
	run  chatstate.Mark
	step int64
	mark chatstate.Mark
	sum  string
}

type world struct {
	*rapid.T
	now     int64
	main    *server
	apart   *server // the old server that some still use; nil for none
	ids     int
	procs   [2]*process
	unsure  bool // a process that cannot be asked is waited for no longer
	loose   bool // it was so in this run of the model
	gateway map[place]chatstate.Mark

	grants, answers, begins, ends, withdrawn []told
	erasures                                 []chatstate.Mark
}

func (w *world) serverID() int { w.ids++; return w.ids }

func (p *process) clock(w *world) int64 { return w.now + p.skew }

var resident = []string{chatstate.OfHistory} // parts that lie on the server

// stored decodes what a server holds.
func (w *world) stored(s *server) chatstate.State {
	if s.text == nil {
		return chatstate.State{}
	}
	state, err := chatstate.Decode(s.text)
	require.NoError(w, err)
	return state
}

// write is the commit script: it compares head and lease. The same bytes again are a success; the same head is not,
// since who does not know what became of a commit may go on with another one of the same number.
func (w *world) write(p *process, before, after chatstate.State, create bool) bool {
	s := p.on
	if s.lease != p.by {
		return false
	}
	is := func(of chatstate.State) bool {
		return s.text != nil && strings.HasPrefix(string(s.text), chatstate.Head(of.Mark()))
	}
	if string(s.text) == string(after.Encode()) {
		return true
	}
	if !is(before) && !(create && s.text == nil) {
		return false
	}
	require.True(w, s.text == nil || w.stored(s).Mark().Turn <= after.Turn, "the token goes back on one server")
	s.before = append(s.before, snapshot{s.text, maps.Clone(s.arrays)})
	s.text = after.Encode()
	require.LessOrEqual(w, len(s.text), chatstate.MaxMerged)
	return true
}

// commit makes one transition under the lease. True: the process was told that it holds.
func (w *world) commit(p *process, act chatstate.Act) (effects []chatstate.Effect, ok bool) {
	after, effects, err := chatstate.Apply(p.state, act)
	if err != nil || !p.held {
		return nil, false
	}
	for range rapid.IntRange(1, 2).Draw(w.T, "sent") {
		ok = w.write(p, p.state, after, false)
	}
	if !ok {
		p.held = false
		return nil, false
	}
	if rapid.IntRange(0, 15).Draw(w.T, "dies") == 0 {
		p.held = false
		return nil, false
	}
	p.state, p.mem = after, after
	return effects, true
}

func (w *world) pick() *process { return w.procs[rapid.IntRange(0, 1).Draw(w.T, "process")] }

func (w *world) other(p *process) *process {
	if w.procs[0] == p {
		return w.procs[1]
	}
	return w.procs[0]
}

// holder is a process that thinks that it has the lease.
func (w *world) holder() *process {
	p := w.pick()
	if !p.held {
		p = w.other(p)
	}
	if !p.held {
		if rapid.IntRange(0, 2).Draw(w.T, "lease is free") > 0 {
			p.on.lease = ""
		}
		w.take(p, rapid.IntRange(0, 3).Draw(w.T, "reachable") > 0)
	}
	return p
}

// settled says whether a process may grant: it has heard the other one since the change of server, or does not wait.
func (w *world) settled(p *process) bool {
	return p.heard == p.on.id || w.unsure && rapid.Bool().Draw(w.T, "waited long enough")
}

func (w *world) take(p *process, reach bool) {
	s := p.on
	if s.lease != "" && s.lease != p.by {
		return
	}
	w.ids++
	p.by, p.held = fmt.Sprintf("%s%d", p.name, w.ids), false
	s.lease = p.by
	stored := w.stored(s)
	known := []chatstate.State{stored}
	other := w.other(p)
	if p.knows != s.id {
		known = append(known, p.mem)
	}
	asked := p.heard != s.id && reach
	if asked {
		known = append(known, other.mem)
		p.seen = max(p.seen, other.seen)
	}
	from := stored
	if len(known) > 1 {
		from = chatstate.Recover(0, resident, known...)
	}
	after, _, err := chatstate.Apply(from, chatstate.Take{By: p.by, Above: max(p.clock(w), p.seen)})
	require.NoError(w, err)
	require.Greater(w, after.Turn, p.seen, "a token is above all that were seen, whatever the clock and the server say")
	if asked {
		// The one who is asked from another server than its own asks before it grants anything there.
		if other.seen = max(other.seen, after.Turn); other.on.id != s.id {
			other.heard = -1
		}
	}
	require.True(w, w.write(p, stored, after, true))
	for _, k := range known {
		merged := chatstate.Merge(after, k)
		same(w, chatstate.Merge(merged, after), merged, "absorbs")
		require.Equal(w, after.Mark(), merged.Mark())
		if k.Erased == nil && after.Erased == nil {
			same(w, after, merged, "nothing that was known is missing after a merge")
		}
	}
	p.knows = s.id
	if asked {
		p.heard = s.id
	}
	p.state, p.mem, p.seen, p.held = after, after, max(p.seen, after.Turn), true
}

// lose brings a server back to before some commits, or empty.
func (w *world) lose(s *server) {
	s.id = w.serverID()
	if n := rapid.IntRange(0, min(6, len(s.before))).Draw(w.T, "lost commits"); n > 0 {
		at := len(s.before) - n
		s.snapshot, s.before = s.before[at], s.before[:at]
	}
	if rapid.IntRange(0, 7).Draw(w.T, "empty") == 0 {
		s.snapshot, s.before = snapshot{arrays: map[place]chatstate.Mark{}}, nil
	}
	if rapid.Bool().Draw(w.T, "lease too") {
		s.lease = ""
	}
}

func (w *world) acts() map[string]func(*rapid.T) {
	run := func(p *process) *chatstate.Run {
		if p.state.Run == nil {
			return &chatstate.Run{ID: "none", Phase: chatstate.Over}
		}
		return p.state.Run
	}
	call := func() string { return rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(w.T, "call") }
	note := func(list *[]told, name string, p *process, step int64, sum string) {
		var of chatstate.Mark
		if p.state.Run != nil {
			of = p.state.Run.Mark
		}
		*list = append(*list, told{name, of, step, p.state.Mark(), sum})
	}
	acts := map[string]func(*rapid.T){
		"take": func(*rapid.T) { w.take(w.pick(), rapid.Bool().Draw(w.T, "reachable")) },
		"lease ends": func(*rapid.T) {
			w.pick().on.lease = "" // its holder does not know yet
		},
		"post": func(*rapid.T) {
			p := w.holder()
			id := fmt.Sprint("R", rapid.IntRange(0, 5).Draw(w.T, "run"))
			if !w.settled(p) {
				return
			}
			if _, ok := w.commit(p, chatstate.Post{Run: chatstate.Run{ID: id, Keyed: true}, Body: "hi"}); ok {
				note(&w.begins, id, p, 0, "")
			}
		},
		"accept": func(*rapid.T) { p := w.holder(); w.commit(p, chatstate.Accept{Run: run(p).ID, Events: "u"}) },
		"claim": func(*rapid.T) {
			p, c := w.holder(), call()
			if !w.settled(p) {
				return
			}
			if _, ok := w.commit(p, chatstate.Claim{Call: c}); ok {
				if rapid.IntRange(0, 3).Draw(w.T, "too few replicas") == 0 {
					w.commit(p, chatstate.Unclaim{Call: c}) // whatever comes of that, it is not told
					return
				}
				note(&w.grants, c, p, 0, "")
			}
		},
		"settle": func(*rapid.T) { w.commit(w.holder(), chatstate.Settle{Call: call()}) },
		"suspend": func(*rapid.T) {
			p := w.holder()
			w.commit(p, chatstate.Suspend{Run: run(p).ID, Expires: w.now, State: []byte("s")})
		},
		"resume": func(*rapid.T) {
			p, sum := w.holder(), rapid.SampledFrom([]string{"yes", "no"}).Draw(w.T, "answer")
			r := run(p)
			if !w.settled(p) || r.Phase != chatstate.Waiting {
				return
			}
			if _, ok := w.commit(p, chatstate.Resume{Run: r.ID, Sum: sum}); ok {
				note(&w.answers, r.ID, p, r.Step, sum)
			}
		},
		"finish": func(*rapid.T) {
			p := w.holder()
			r := run(p)
			how := rapid.SampledFrom([]string{"completed", "failed", chatstate.Withdrawn}).Draw(w.T, "how")
			if r.Phase == chatstate.Over {
				return
			}
			list := &w.ends
			if how == chatstate.Withdrawn {
				list = &w.withdrawn
				note(list, r.ID, p, 0, how) // also where it is not told
			}
			if _, ok := w.commit(p, chatstate.Finish{Run: r.ID, Outcome: how}); ok {
				note(list, r.ID, p, 0, how)
			}
		},
		"write": func(*rapid.T) {
			p, agent := w.holder(), rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.T, "agent")
			if _, ok := w.commit(p, chatstate.Use{Agent: agent}); ok && p.on.lease == p.by {
				p.on.arrays[chatstate.OfHistory+agent] = p.state.Mark()
			}
			id := fmt.Sprintf("g%s%d", p.by, p.state.N)
			if len(p.state.Conversations) > 0 {
				id = p.state.Conversations[len(p.state.Conversations)-1].ID
			}
			if _, ok := w.commit(p, chatstate.Converse{ID: id}); ok {
				w.gateway[chatstate.OfConversation+id] = p.state.Mark()
			}
		},
		"erase": func(*rapid.T) {
			if rapid.IntRange(0, 5).Draw(w.T, "really") > 0 {
				return
			}
			p := w.holder()
			if _, ok := w.commit(p, chatstate.Remove{Kind: chatstate.Erase, Parts: []string{"documents"}}); ok {
				w.erasures = append(w.erasures, p.state.Mark())
			}
		},
		"redact": func(*rapid.T) {
			w.commit(w.holder(), chatstate.Remove{Kind: chatstate.Redact, Names: []string{"m"}, Parts: []string{"x"}})
		},
		"do a part": func(*rapid.T) { w.doPart(w.holder()) },
		"expire":    func(*rapid.T) { w.commit(w.holder(), chatstate.Expire{Posts: 0, Changes: w.now - 5}) },
		"lose":      func(*rapid.T) { w.lose(w.main) },
		"part": func(*rapid.T) {
			if w.apart != nil {
				return
			}
			w.apart = w.main
			w.main = &server{snapshot: snapshot{w.main.text, maps.Clone(w.main.arrays)},
				before: slices.Clone(w.main.before), lease: w.main.lease}
			w.lose(w.main)
			w.pick().on = w.main
		},
		"heal": func(*rapid.T) { w.heal() },
		"clock": func(*rapid.T) {
			w.now += rapid.Int64Range(0, 10).Draw(w.T, "passes")
			w.pick().skew = rapid.SampledFrom([]int64{0, 0, -3600, 30}).Draw(w.T, "skew")
		},
		"": func(*rapid.T) {
			for _, p := range w.procs {
				require.LessOrEqual(w, len(p.mem.Encode()), chatstate.MaxMerged)
			}
		},
	}
	for i := range 12 { // what a run does most of the time
		acts[fmt.Sprint("go on ", i)] = func(t *rapid.T) {
			next := map[string][]string{"": {"post"}, chatstate.Over: {"post"}, chatstate.Posted: {"accept"},
				chatstate.Accepted: {"claim", "claim", "settle", "suspend", "finish"}, chatstate.Waiting: {"resume"}}
			phase := ""
			if r := w.holder().state.Run; r != nil {
				phase = r.Phase
			}
			acts[rapid.SampledFrom(next[phase]).Draw(t, "next")](t)
		}
	}
	return acts
}

// doPart does one open part of the newest erasure.
func (w *world) doPart(p *process) bool {
	open := p.state.Erased.Open()
	slices.Sort(open)
	if len(open) == 0 {
		return false
	}
	at := p.state.Erased.Mark
	for part, from := range map[string]map[place]chatstate.Mark{open[0]: p.on.arrays, open[0] + " ": w.gateway} {
		part = strings.TrimSpace(part)
		if m, there := from[part]; there && !at.Before(m) && p.on.lease == p.by {
			delete(from, part)
		}
	}
	w.commit(p, chatstate.Done{Of: at, Part: open[0]})
	return true
}

func (w *world) heal() {
	for _, p := range w.procs {
		p.on = w.main
	}
	w.apart = nil
}

// end brings all together and checks what holds.
func (w *world) end() {
	w.heal()
	w.unsure = false
	p := w.procs[0]
	p.heard, p.knows, w.main.lease = -1, -1, ""
	w.take(p, true)
	require.True(w, p.held)
	m := p.state
	at := chatstate.Mark{}
	if m.Erased != nil {
		at = m.Erased.Mark
	}
	for _, e := range w.erasures {
		require.False(w, at.Before(e), "an erasure that was told is there")
	}
	for _, k := range m.Keys {
		require.True(w, at.Before(k.Mark), "nothing from before an erasure is left")
	}
	for _, h := range m.Histories {
		require.True(w, at.Before(h.Mark), "nothing from before an erasure is left")
	}
	require.True(w, m.Run == nil || at.Before(m.Run.Mark), "nothing from before an erasure is left")
	live := map[string][]told{}
	for _, g := range w.grants {
		if !at.Before(g.mark) || g.mark.Turn <= m.Older.Turn {
			continue
		}
		require.NotEmpty(w, m.Word(g.name), "a claim that was told is known: %v", g)
		same := func(o told) bool { return o.mark.SameHolder(g.mark) }
		if live[g.name] = append(live[g.name], g); slices.ContainsFunc(live[g.name][:len(live[g.name])-1], same) {
			w.Fatalf("one lease was granted %v twice", g)
		}
		if len(live[g.name]) > 1 {
			require.True(w, m.Twice(g.name), "a call that was granted twice is known as such: %v", live[g.name])
			require.True(w, w.loose, "settled processes grant no call twice: %v", live[g.name])
		}
	}
	w.checkAnswers(m, at)
	w.checkRuns(m, at)
	w.checkText(p)
}

func (w *world) checkAnswers(m chatstate.State, at chatstate.Mark) {
	for i, a := range w.answers {
		if !at.Before(a.run) {
			continue
		}
		for _, b := range w.answers[:i] {
			if b.name == a.name && b.run == a.run && b.step == a.step && b.sum != a.sum {
				require.True(w, w.loose, "settled processes take one answer: %v %v", a, b)
			}
		}
		if m.Run == nil || m.Run.Mark != a.run || m.Run.Phase == chatstate.Over {
			continue
		}
		of := slices.IndexFunc(m.Run.Answers, func(b chatstate.Answer) bool { return b.Step == a.step })
		if m.Run.Step > a.step+8 {
			continue
		}
		require.GreaterOrEqual(w, of, 0, "an answer that was told is there: %v in %s", a, m.Encode())
		require.False(w, a.mark.Before(m.Run.Answers[of].Mark), "no later answer took its place: %v", a)
	}
}

func (w *world) checkRuns(m chatstate.State, at chatstate.Mark) {
	for _, e := range w.ends {
		if at.Before(e.run) {
			outcome := m.Knows(e.name)
			require.NotEmpty(w, outcome, "an end that was told is known: %v in %s", e, m.Encode())
			require.NotEqual(w, chatstate.Lost, outcome, "and is not taken for lost")
		}
	}
	for i, b := range w.begins {
		if !at.Before(b.run) {
			continue
		}
		require.True(w, m.Run != nil && !m.Run.Mark.Before(b.run), "no run newer than the newest")
		for _, c := range w.begins[:i] {
			withdrawn := w.loose || slices.ContainsFunc(w.withdrawn, func(x told) bool { return x.run == c.run })
			require.True(w, c.name != b.name || !at.Before(c.run) || withdrawn, "a post ran twice: %v %v", c, b)
		}
	}
}

// checkText does what is open, and looks for what should be gone.
func (w *world) checkText(p *process) {
	for w.doPart(p) {
		if !p.held { // it died meanwhile
			p.on.lease = ""
			w.take(p, true)
		}
	}
	for _, e := range w.erasures {
		for _, of := range []map[place]chatstate.Mark{p.on.arrays, w.gateway} {
			for name, m := range of {
				require.True(w, e.Before(m), "%s of %v is still there after the erasure %v: %s", name, m, e, p.state.Encode())
			}
		}
	}
}

func TestTwoProcessesOverServersThatLoseData(t *testing.T) {
	for name, unsure := range map[string]bool{"settled": false, "unsure": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := &world{T: t, now: 10_000, unsure: unsure, loose: unsure, gateway: map[place]chatstate.Mark{}}
				w.main = &server{id: w.serverID(), snapshot: snapshot{arrays: map[place]chatstate.Mark{}}}
				for i := range w.procs {
					w.procs[i] = &process{name: string(rune('a' + i)), on: w.main}
				}
				t.Repeat(w.acts())
				w.end()
			})
		})
	}
}
